"""Checks and times on a GPU what hbench computes there, and prints one table. On a machine without one it says so, and checks the
same through torch's processor device.

    python benchmarks/gpu.py                   # about seven minutes on a GPU
    python benchmarks/gpu.py --quick           # small sizes, for a look
    python benchmarks/gpu.py --out DIR         # also gpu.json and gpu.md
    python benchmarks/gpu.py --parts losses    # only some: similarities sets losses training speed

similarities every similarity, all metrics: the device's values against the processors'
sets         sets of the size of SOP and iNaturalist, whole and with partial labels: values, ranks, kept blocks; time beside the
             processors' and beside the bare matrix product; what the device does with its time
losses       value and gradient in float32 on the device against float64 on the processor, under autocast and compiled; time
training     a step on the device against the processor's, in two passes, compiled, under DistributedDataParallel; a run that is
             resumed; two processes that share the device
speed        training and embedding beside a bare loop with the same net, loss and optimiser; decoding by numbers of workers

A check that fails for another reason than its difference is a line of the table, too; the others go on.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchvision
from PIL import Image
from sets import Set, partial_set, uneven_set
from torch import Tensor, nn

import hbench
from hbench.core import compiled
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.engine.block_values import Block, MetricPlan
from hbench.engine.executors import gpu
from hbench.engine.executors.gpu import on_device
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job
from hbench.engine.similarity import similarities
from hbench.evaluation import embeddings
from hbench.evaluation.evaluate import evaluate
from hbench.evaluation.measurement import measure
from hbench.losses import build_loss, cpu_kernel, losses
from hbench.train.images.batches import Batches, images_of, keys_of
from hbench.train.images.sampler import plan as plan_batches
from hbench.train.loop import steps, update
from hbench.train.processes import ALONE, Processes
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import LossSpec, Recipe
from hbench.train.recipes.sizes import fitted_to
from hbench.train.records import checkpoints
from hbench.train.run import TrainingRun, begin
from hbench.train.steps.gradients import TrainStep, completed, direct, facts_of, in_two_passes

METRICS = (
    "H-AP", "H-AP(alpha=3)", "H-AP@R", "wAP", "ASI", "ASI/l0", "NDCG", "NDCG@100", "AP", "AP/l0", "AP#l0", "R@10", "R@1/l1",
    "TR@10", "TR(norm=min)@10", "P@5", "mAP@R", "mAP@100", "H-P@10", "H-R@10", "HD@10", "HD-mistake",
)  # fmt: skip
Pair = tuple[Tensor, Tensor]  # images and their labels
NESTED = {"loss": "sup_ap", "size": 512}  # what losses around a loss need


class Sizes(NamedTuple):
    """Items and dimension of the evaluation, batch of the losses, images and side of the training."""

    items: int
    dim: int
    batch: int
    images: int
    side: int
    net: str


LARGE = Sizes(20_000, 512, 512, 128, 224, "torchvision:resnet50")
SMALL = Sizes(4_000, 128, 128, 16, 64, "torchvision:resnet18")
QUICK = Sizes(200, 16, 32, 8, 32, "torchvision:resnet18")


class Row(NamedTuple):
    """A line of the table: what was checked, the largest difference and what it may be, seconds, and those of the bare twin."""

    what: str
    difference: float
    allowed: float
    seconds: float = float("nan")
    bare: float = float("nan")
    note: str = ""

    @property
    def is_good(self) -> bool:
        return self.difference <= self.allowed


def seconds_of(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """The best time of some runs, the device waited for; one before them warms up."""
    best = float("inf")
    for number in range(repeats + 1):
        _finish(device)
        began = time.perf_counter()
        work()
        _finish(device)
        if number:
            best = min(best, time.perf_counter() - began)
    return best


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def tree_of(items: int) -> np.ndarray:
    """Labels (items, 3): four items of a class, eight classes of a family, eight families of an order."""
    fine = np.arange(items) // 4
    return np.stack([fine // 64, fine // 8, fine], axis=1)


# ---- similarities


def of_similarities(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """A row per similarity."""
    names = [[f"{level}-{label}" for level, label in enumerate(row)] for row in tree_of(sizes.items).tolist()]
    manifest = manifests.from_names([f"{i:06}" for i in range(sizes.items)], names, levels=["l0", "l1", "l2"])
    data = Dataset("synthetic", "1", Protocol(), None, {"test": manifest})
    for name in similarities:
        vectors = vectors_for(name, sizes)
        score = partial(evaluate, embeddings.joined(manifest.items, vectors), data, metrics=METRICS, similarity=name)
        expected, found = score(execute=on_threads), score(execute=on_device(str(device)))
        differences = [abs(float(expected.scores[each]) - float(found.scores[each])) for each in expected.scores]
        bare = seconds_of(partial(_products, torch.from_numpy(vectors).to(device)), device, 1)
        taken = seconds_of(lambda: score(execute=on_device(str(device))), device, 1)  # noqa: B023 - called at once
        # Inner products of whole numbers are exact everywhere; others are rounded elsewhere, and close items change places.
        allowed = 0.0 if name == "dot" else 1e-4
        yield Row(f"evaluate, {name}", max(differences), allowed, taken, bare, f"{len(differences)} values")


def _products(vectors: Tensor) -> None:
    """All inner products, a thousand rows at a time."""
    for rows in vectors.split(1024):
        _ = rows @ vectors.T


def vectors_for(similarity: str, sizes: Sizes) -> np.ndarray:
    """Clusters by class that the similarity can compare: whole numbers, codes of bits, points of the unit ball."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(sizes.items // 4 + 1, sizes.dim))
    vectors = centres[tree_of(sizes.items)[:, 2]] + rng.normal(size=(sizes.items, sizes.dim))
    if similarity == "dot":
        return np.round(2 * vectors).astype(np.float32)
    if similarity == "hamming":
        return (vectors > 0).astype(np.float32)
    if similarity == "poincare":
        return (0.9 * vectors / np.linalg.norm(vectors, axis=1).max()).astype(np.float32)
    return vectors.astype(np.float32)


# ---- sets of the size of benchmarks


def of_sets(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Whole evaluations of the sets that docs/scale.md speaks of, and of partial labels."""
    shapes = {
        "SOP": (60_502, (12, 11_316)),
        "iNaturalist": (136_093, (5, 20, 50, 230, 700, 1500, 2452)),
    }
    if sizes is not LARGE:
        shapes = {"SOP": (sizes.items * 4, (4, 300)), "iNaturalist": (sizes.items * 2, (3, 9, 20, 40, 80, 120, 150))}
    for name, (items, nodes) in shapes.items():
        yield from _of_set(name, uneven_set(items, nodes, sizes.dim), device)
    items, nodes = shapes["SOP"]
    for depth in (2, 4, 7):
        nodes = tuple(np.geomspace(4, items / 8, depth).astype(int).tolist())
        partial_labels: Set = partial_set(items // 3, nodes, sizes.dim)
        yield from _of_set(f"partial, {depth} levels", partial_labels, device)


def _of_set(name: str, data: Any, device: torch.device) -> Iterator[Row]:
    """Values, ranks, kept blocks and times of one set."""
    execute = on_device(str(device))
    job = data.job()
    for _values in execute(job, [0, job.ranker.blocks - 1]):  # warms up
        pass
    torch.cuda.reset_peak_memory_stats() if device.type == "cuda" else None
    began = time.perf_counter()
    found = measure(job, execute=execute)
    taken = time.perf_counter() - began
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    for _values in on_threads(job, [0]):
        pass
    began = time.perf_counter()
    expected = measure(job)
    by_threads = time.perf_counter() - began

    gallery = torch.from_numpy(data.vectors).to(device)
    bare = seconds_of(partial(_products, gallery), device, 2)
    ranking = _ranking_alone(job, device)
    scores = [np.nanmean(each.values, axis=1) for each in (expected, found)]
    apart = np.nanmax(np.abs(expected.values - found.values), axis=0)
    note = (
        f"{len(scores[0])} values; threads {by_threads:.2f} s, {by_threads / taken:.1f} × the device's; "
        f"{taken / bare:.1f} × the product; product and ranking alone {ranking:.2f} s; {memory:.1f} GB; "
        f"{int((apart > 1e-6).sum())} of {len(apart)} queries apart by more than 1e-6"
    )
    yield Row(f"{name}, means", float(np.nanmax(np.abs(scores[0] - scores[1]))), 1e-6, taken, bare, note)
    same = np.array_equal(expected.counts, found.counts)
    other = int((expected.first_level != found.first_level).sum()), int((expected.tied != found.tied).sum())
    yield Row(f"{name}, counts", float(not same), 0.0, note=f"other first levels {other[0]}, other ties {other[1]}")
    yield Row(f"{name}, ranks", *data.ranks_beyond_rounding(job, device), note="200 queries in float64")
    with tempfile.TemporaryDirectory() as folder:
        kept = kept_in(Path(folder), execute)
        half = range(0, job.ranker.blocks, 2)
        first, again = measure(job, execute=kept, blocks=half), measure(job, execute=kept)
        rows = first.canonical
        unlike = not np.array_equal(first.values[:, rows], again.values[:, rows], equal_nan=True)
        unlike |= not np.array_equal(again.values, found.values, equal_nan=True)
        yield Row(f"{name}, resumed", float(unlike), 0.0)
    if device.type == "cuda":
        yield Row(f"{name}, profile", 0.0, 0.0, note=_profile(job, execute))


def _ranking_alone(job: Job, device: torch.device) -> float:
    """The time of products and ranking, without the sums of the metrics."""
    plan, gallery = MetricPlan.of(job.ranker, job.scorers), gpu.Gallery(job.ranker.scores, device)

    def work() -> None:
        for number in range(job.ranker.blocks):
            block = Block(plan.ranker, number, plan.metrics)
            rows = gallery.rows(number)
            gpu._mask(rows, plan.ranker, block.first)
            gpu.rank(plan, block, rows, slice(0, len(rows)))

    with gpu._exact_products():
        return seconds_of(work, device, 1)


def _profile(job: Job, execute: Execute) -> str:
    """The kernels that take most of the device's time in some blocks."""
    from torch.profiler import ProfilerActivity, profile

    some = list(range(min(6, job.ranker.blocks)))
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _values in execute(job, some):
            pass
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    events = [event for event in events if event.self_device_time_total > 0][:14]
    return "; ".join(f"{event.key[:60]} {event.self_device_time_total / 1e3 / len(some):.2f} ms" for event in events)


# ---- losses


def of_losses(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Rows of every loss: the relative difference of its value, or of its gradient where that is larger."""
    labels = tree_of(sizes.batch)
    facts = {**facts_of(labels, sizes.dim), **NESTED}
    generator = torch.Generator().manual_seed(0)
    leaf = nn.functional.normalize(torch.randn(sizes.batch, sizes.dim, generator=generator, dtype=torch.float64))
    ours = leaf.float().to(device)
    bare = seconds_of(partial(_differentiated, lambda x, _: (x @ x.T).sum(), ours, ours), device)
    for name in losses:
        # RaMBO's mAP over classes takes a score of every class, and which of them are in the image.
        ids = (leaf > 0.1).long() if name == "rambo_map_classes" else torch.from_numpy(labels)
        try:
            yield from _of_loss(name, (leaf, ids, facts), device, bare)
        except Exception as error:
            yield _failed(f"loss, {name}", error)
    if device.type == "cuda":
        yield from _rank_loss_times(device)


def _of_loss(name: str, on: tuple[Tensor, Tensor, dict[str, Any]], device: torch.device, bare: float) -> Iterator[Row]:
    leaf, ids, facts = on
    torch.manual_seed(0)
    params = completed(name, {}, facts)
    if "loss" in params:
        params["params"] = completed(params["loss"], {}, facts)
    single = build_loss(name, **params)
    slow, half = copy.deepcopy(single).double(), copy.deepcopy(single)
    fast, again = copy.deepcopy(single).to(device), copy.deepcopy(single).to(device)
    compiled_loss = torch.compile(copy.deepcopy(single).to(device))
    ours = leaf.float().to(device)

    wanted = _differentiated(slow, leaf, ids)
    found = _differentiated(fast, ours, ids.to(device))
    own = _relative(wanted, _differentiated(single, leaf.float(), ids))
    taken = seconds_of(partial(_differentiated, fast, ours, ids.to(device)), device)
    note = f"processor in float32 {own:.0e}"
    yield Row(f"loss, {name}", _relative(wanted, found), max(1e-5, 3 * own), taken, bare, note)

    whole = _differentiated(half.double(), leaf.bfloat16().double(), ids)
    with torch.autocast(device.type, torch.bfloat16):
        in_half = _differentiated(again, leaf.to(device, torch.bfloat16), ids.to(device))
    # The gradient comes back in bfloat16, whose steps are 2^-8.
    yield Row(f"bfloat16, {name}", _relative(whole, in_half), 2e-2)
    torch.manual_seed(0)
    compiled_values = _differentiated(compiled_loss, ours, ids.to(device))
    yield Row(f"compiled, {name}", _relative(found, compiled_values), 1e-6 if device.type == "cpu" else 1e-5)


def _relative(wanted: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor]) -> float:
    """The largest relative difference of value and gradient; infinite where one is not finite."""
    pairs = [(a.cpu().double(), b.cpu().double()) for a, b in zip(wanted, found, strict=True)]
    apart = [float((a - b).norm() / a.norm().clamp(min=1e-9)) for a, b in pairs]
    return max(each if math.isfinite(each) else math.inf for each in apart)


def _rank_loss_times(device: torch.device) -> Iterator[Row]:
    """A rank loss, forward and backward, by the size of the batch."""
    for batch in (256, 1024, 4096):
        labels = torch.from_numpy(tree_of(batch)).to(device)
        x = nn.functional.normalize(torch.randn(batch, 512, device=device))
        for name in ("sup_hap", "sup_ap", "smooth_ap"):
            loss = build_loss(name).to(device)
            torch.cuda.reset_peak_memory_stats()
            taken = seconds_of(partial(_differentiated, loss, x, labels), device, 5)
            memory = torch.cuda.max_memory_allocated() / 2**20
            bare = seconds_of(partial(_differentiated, lambda x, _: (x @ x.T).sum(), x, x), device, 5)
            yield Row(f"{name}, batch {batch}", 0.0, 0.0, taken, bare, f"{memory:,.0f} MB")


def _differentiated(loss: Callable[[Tensor, Tensor], Tensor], at: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss's value and gradient."""
    x = at.clone().requires_grad_()
    value = loss(x, labels)
    (gradient,) = torch.autograd.grad(value, x, allow_unused=True)
    return value.detach(), torch.zeros_like(x) if gradient is None else gradient


# ---- training


def of_training(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Steps on the device against the processor's; in parts, compiled, with a memory, resumed, and by several processes."""
    recipe, data, pixels, labels = _begun(sizes)
    plain = begin(recipe, data)
    expected = update(plain, pixels, labels)
    there = ALONE._replace(device=device)
    given = pixels.to(device), labels.to(device)
    run = begin(recipe, data, there)
    found = update(run, *given, there)
    yield Row("training step", _apart(float(expected[0]), plain, float(found[0]), run), 1e-3)

    def against(what: str, changed: Recipe, allowed: float, compute: TrainStep = direct) -> Row:
        other = begin(changed, data, there)
        value = update(other, *given, there, compute)
        return Row(what, _apart(float(found[0]), run, float(value[0]), other), allowed)

    def of_model(**changes: Any) -> Recipe:
        return recipe.model_copy(update={"model": recipe.model.model_copy(update=changes)})

    cases: list[tuple[str, Callable[[], Row]]] = [
        ("step in two passes", lambda: against("step in two passes", recipe, 1e-4, in_two_passes(sizes.images // 4))),
        ("step, contiguous", lambda: against("step, contiguous", of_model(channels_last=False), 1e-3)),
        ("step, bfloat16", lambda: against("step, bfloat16", recipe.model_copy(update={"precision": "bfloat16"}), 0.2)),
        ("step, float16", lambda: _half_step(recipe, data, given, there)),
        ("step with XBM", lambda: _xbm_step(recipe, data, (pixels, labels), there)),
        ("resumed run", lambda: _resumed(recipe, data, given, there)),
        ("two processes", lambda: _by_two(sizes, device, float(found[0]), run)),
        ("step, DDP of one", lambda: _by_one(recipe, data, given, (there, float(found[0]), run))),
    ]
    if device.type == "cuda":
        cases.append(("step, compiled", lambda: against("step, compiled", of_model(compile=True), 1e-3)))
    for what, case in cases:
        try:
            yield case()
        except Exception as error:
            yield _failed(what, error)


def _half_step(recipe: Recipe, data: Dataset, given: Pair, there: Processes) -> Row:
    """A step in float16: its scaler may skip the first ones, which then change nothing."""
    if there.device.type != "cuda":
        return Row("step, float16", 0.0, 0.0, note="float16 trains on GPUs")
    run = begin(recipe.model_copy(update={"precision": "float16"}), data, there)
    values = [float(update(run, *given, there)[0]) for _ in range(4)]
    return Row(
        "step, float16",
        float(not all(map(math.isfinite, values))),
        0.0,
        note=f"losses {values[0]:.4f} … {values[-1]:.4f}",
    )


def _xbm_step(recipe: Recipe, data: Dataset, on: Pair, there: Processes) -> Row:
    """Three steps with a memory of past batches, against the processor's."""
    spec = {"xbm": LossSpec(params={"loss": "contrastive", "size": 4 * len(on[0])})}
    changed = recipe.model_copy(update={"losses": spec})
    plain, run = begin(changed, data), begin(changed, data, there)
    moved = on[0].to(there.device), on[1].to(there.device)
    for _ in range(3):
        expected, found = update(plain, *on), update(run, *moved, there)
    return Row("step with XBM", _apart(float(expected[0]), plain, float(found[0]), run), 1e-2)


def _resumed(recipe: Recipe, data: Dataset, given: Pair, there: Processes) -> Row:
    """Two steps after a checkpoint, against those of the run that went on."""
    with tempfile.TemporaryDirectory() as folder:
        run = begin(recipe, data, there)
        for _ in range(2):
            update(run, *given, there)
            run.step += 1
        run.save(Path(folder))
        again = begin(recipe, data, there)
        again.restore(checkpoints.latest(Path(folder)))
        for _ in range(2):
            expected, found = update(run, *given, there), update(again, *given, there)
    return Row("resumed run", _apart(float(expected[0]), run, float(found[0]), again), 1e-5)


def _by_one(recipe: Recipe, data: Dataset, given: Pair, alone: tuple[Processes, float, TrainingRun]) -> Row:
    """A step under DistributedDataParallel with one process."""
    there, expected, run = alone
    backend = "nccl" if there.device.type == "cuda" else "gloo"
    with _group(backend, 0, 1, tempfile.mkdtemp()):
        shared = begin(recipe, data, there)
        shared.embed = nn.parallel.DistributedDataParallel(shared.model)
        again = update(shared, *given, Processes(0, 1, there.device))
        return Row("step, DDP of one", _apart(expected, run, float(again[0]), shared), 1e-5)


def _by_two(sizes: Sizes, device: torch.device, expected: float, run: TrainingRun) -> Row:
    """A step of two processes that share the device, by gloo, with half of the batch each."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_half_of_step, args=(folder, sizes, str(device)), nprocs=2)
        value, gradient = torch.load(Path(folder) / "step.pt", weights_only=True)
    own = run.model.projection.weight.grad.cpu()
    apart = max(abs(expected - value) / abs(expected), float((own - gradient).norm() / own.norm()))
    return Row("two processes", apart, 1e-4)


def _half_of_step(rank: int, folder: str, sizes: Sizes, device: str) -> None:
    """What one of two processes does."""
    recipe, data, pixels, labels = _begun(sizes)
    with _group("gloo", rank, 2, folder):
        own = Processes(rank, 2, torch.device(device))
        run, half = begin(recipe, data, own), slice(rank * len(pixels) // 2, (rank + 1) * len(pixels) // 2)
        values = update(run, pixels[half].to(device), labels[half].to(device), own)
        if rank == 0:
            torch.save((float(values[0]), run.model.projection.weight.grad.cpu()), Path(folder) / "step.pt")


@contextmanager
def _group(backend: str, rank: int, world: int, folder: str) -> Iterator[None]:
    dist.init_process_group(backend, init_method=f"file://{folder}/group", rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _begun(sizes: Sizes) -> tuple[Recipe, Dataset, Tensor, Tensor]:
    """A recipe in float32, data of one batch, its images as bytes, its labels."""
    names = [[f"{level}-{label}" for level, label in enumerate(row)] for row in tree_of(sizes.images).tolist()]
    manifest = manifests.from_names([f"{i:06}" for i in range(sizes.images)], names, levels=["l0", "l1", "l2"])
    data = Dataset("synthetic", "1", Protocol(), manifest, {"test": manifest})
    changes = [f"model.backbone={sizes.net}", "model.weights=random", "optimizer.name=sgd", "optimizer.lr=0.01"]
    recipe = resolve(
        "own-happier", ["dataset=synthetic", "precision=float32", f"sampler.batch={sizes.images}", *changes]
    )
    recipe = fitted_to(recipe.model_copy(update={"losses": {"sup_hap": LossSpec()}, "proxies": None}), manifest)
    generator = torch.Generator().manual_seed(0)
    shape = (sizes.images, 3, sizes.side, sizes.side)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return recipe, data, pixels, torch.from_numpy(tree_of(sizes.images))


def _apart(first: float, one: TrainingRun, second: float, other: TrainingRun) -> float:
    """How far two steps are apart: relatively in the loss, or in the projection's gradient."""
    weights = [run.model.projection.weight.grad.cpu().float() for run in (one, other)]
    apart = float((weights[0] - weights[1]).norm() / weights[0].norm())
    return max(abs(first - second) / abs(first), apart)


# ---- speed of training and embedding


def of_speed(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Steps and embeddings a second beside a bare loop, and images a second by the number of workers that decode."""
    recipe, data, pixels, labels = _begun(sizes)
    there = ALONE._replace(device=device)
    given = pixels.to(device), labels.to(device)
    for precision in ("auto", "float32"):
        run = begin(recipe.model_copy(update={"precision": precision}), data, there)
        taken = seconds_of(lambda: update(run, *given, there), device, 10)  # noqa: B023 - called at once
        bare = seconds_of(_bare_loop(sizes, given, precision), device, 10)
        rate = (
            f"{sizes.images / taken:,.0f} images/s, {bare / taken:.2f} of a plain loop's; {_waits(run, given, there)}"
        )
        yield Row(f"step, {precision} / plain", 0.0, 0.0, taken, bare, rate)
        model = run.model.eval()
        with torch.inference_mode():
            taken = seconds_of(lambda: model(given[0]), device, 10)  # noqa: B023
            bare = seconds_of(_bare_embedding(sizes, given[0], precision), device, 10)
        yield Row(f"embed, {precision} / plain", 0.0, 0.0, taken, bare, f"{sizes.images / taken:,.0f} images/s")
    if device.type == "cuda":
        compiled_run = begin(
            recipe.model_copy(update={"precision": "auto", "model": recipe.model.model_copy(update={"compile": True})}),
            data,
            there,
        )
        taken = seconds_of(lambda: update(compiled_run, *given, there), device, 10)
        yield Row("step, compiled", 0.0, 0.0, taken, note=f"{sizes.images / taken:,.0f} images/s")
        yield from _by_workers(recipe, there)


def _by_workers(recipe: Recipe, there: Processes) -> Iterator[Row]:
    """Images a second, from JPEG files of 500 × 375, that reach the device, and that a training run takes."""
    items, side = 2048, recipe.images.size
    with tempfile.TemporaryDirectory() as folder:
        names = [[f"{level}-{label}" for level, label in enumerate(row)] for row in tree_of(items).tolist()]
        manifest = manifests.from_names([f"{i:06}.jpg" for i in range(items)], names, levels=["l0", "l1", "l2"])
        _draw(Path(folder), [str(item) for item in manifest.items])
        manifest = dataclasses.replace(manifest, picture=lambda item: Image.open(Path(folder) / item).convert("RGB"))
        data = Dataset("pictures", "1", Protocol(), manifest, {"test": manifest})
        for workers in (4, 8, 15):
            images = recipe.images.model_copy(update={"workers": workers, "augment": "resized_crop"})
            changed = recipe.model_copy(update={"images": images, "precision": "auto", "epochs": 3, "log_every": 4})
            loader = Batches(images_of(data.name, manifest, images, vary=True), workers=workers, device=there.device)
            rates = []
            for epoch in range(2):
                began = time.perf_counter()
                batches = list(keys_of(plan_batches(manifest.labels, changed.sampler, seed=0, epoch=epoch)))
                count = sum(len(rows) for _pixels, rows in loader.of(batches))
                _finish(there.device)
                rates.append(count / (time.perf_counter() - began))
            run = begin(changed, data, there)
            moments = [(step.step, time.perf_counter()) for step in steps(run, changed, data, Path(folder), there)]
            (first, start), (last, end) = moments[len(moments) // 3], moments[-1]
            speed = (last - first) * changed.sampler.batch / (end - start)
            yield Row(
                f"{workers} workers",
                0.0,
                0.0,
                note=f"decoded {rates[-1]:,.0f} images/s at {side}; trained {speed:,.0f} images/s",
            )


def _draw(folder: Path, items: Sequence[str]) -> None:
    """JPEG pictures of some texture."""
    rng = np.random.default_rng(0)
    for item in items:
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(folder / item, quality=90)


def _plain_net(sizes: Sizes, given: Tensor) -> nn.Module:
    """The net as anyone would write it."""
    net = torchvision.models.get_model(sizes.net.removeprefix("torchvision:"), weights=None)
    net.fc = nn.Sequential(nn.LayerNorm(net.fc.in_features), nn.Linear(net.fc.in_features, 512))
    layout = torch.channels_last if given.is_cuda else torch.contiguous_format
    return net.to(given.device, memory_format=layout)


def _pixels(given: Tensor) -> Tensor:
    """Bytes as a net takes them."""
    mean, std = (
        torch.tensor(values, device=given.device)[:, None, None]
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    layout = torch.channels_last if given.is_cuda else torch.contiguous_format
    return ((given.to(memory_format=layout).float() / 255 - mean) / std).contiguous(memory_format=layout)


def _bare_loop(sizes: Sizes, given: Pair, precision: str) -> Callable[[], object]:
    """A step as anyone would write it with the same net, loss and optimiser."""
    net, loss = _plain_net(sizes, given[0]), build_loss("sup_hap")
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, fused=given[0].is_cuda)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(given[0].device.type, torch.bfloat16, enabled=precision == "auto" and given[0].is_cuda):
            vectors = net(_pixels(given[0]))
        loss(nn.functional.normalize(vectors.float()), given[1]).backward()
        optimizer.step()

    return step


def _bare_embedding(sizes: Sizes, given: Tensor, precision: str) -> Callable[[], object]:
    net = _plain_net(sizes, given).eval()

    def embed() -> Tensor:
        with torch.autocast(given.device.type, torch.bfloat16, enabled=precision == "auto" and given.is_cuda):
            return nn.functional.normalize(net(_pixels(given)).float())

    return embed


def _waits(run: TrainingRun, given: Pair, processes: Processes) -> str:
    """The places of a step where the host waits for the GPU."""
    if processes.device.type != "cuda":
        return "host waits: only a GPU shows"
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            update(run, *given, processes)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = [f"{Path(each.filename).name}:{each.lineno}" for each in found]
    return f"host waits: {len(places)} ({', '.join(dict.fromkeys(places))})"


# ---- the table

PARTS = {
    "similarities": of_similarities,
    "sets": of_sets,
    "losses": of_losses,
    "training": of_training,
    "speed": of_speed,
}


def _failed(what: str, error: Exception) -> Row:
    """The line of a check that ended in an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = (
        f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error).strip().splitlines()[:1]}"
    )
    return Row(what, math.inf, 0.0, note=reason[:400])


def guarded(name: str, sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """The rows of a part; one more where it ended in an error."""
    try:
        yield from PARTS[name](sizes, device)
    except Exception as error:
        yield _failed(f"part {name}", error)


HEAD = f"| {'check':<28} | difference | allowed |       | seconds | bare    | note |\n|{'---|' * 7}"


def line(row: Row) -> str:
    """A row as Markdown."""
    times = [f"{value:7.4f}" if math.isfinite(value) else "      -" for value in (row.seconds, row.bare)]
    verdict = "ok   " if row.is_good else "APART"
    return f"| {row.what:<28} | {row.difference:10.1e} | {row.allowed:7.0e} | {verdict} | {' | '.join(times)} | {row.note} |"


def write(folder: Path, title: str, rows: Sequence[Row]) -> None:
    """The table so far, as JSON and as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps({"title": title, "rows": [row._asdict() for row in rows]}, indent=1))
    (folder / "gpu.md").write_text("\n".join([title, "", HEAD, *map(line, rows), ""]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    where = torch.cuda.get_device_name(device) if has_gpu else "no GPU here: torch's processor device in its place"
    title = f"hbench {hbench.__version__}, torch {torch.__version__}, {where}, {os.cpu_count()} processors"
    print(title, flush=True)
    compiled.SMALL = -1  # threads go by the kernels, whose last bits are the device's, however few the items
    if not has_gpu:
        print("What is checked is the same; the times say nothing about a GPU.")
        cpu_kernel.MOST_ITEMS = 0  # no compiled kernels of the processor: the losses as they are on any other device
    sizes = QUICK if chosen.quick else LARGE if has_gpu else SMALL
    print(f"\n{HEAD}")
    rows: list[Row] = []
    for part in chosen.parts:
        began = time.perf_counter()
        for row in guarded(part, sizes, device):
            rows.append(row)
            print(line(row), flush=True)
            if chosen.out:
                write(chosen.out, title, rows)
        print(f"{part}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    bad = sum(not row.is_good for row in rows)
    print(f"\n{bad} of the checks are apart" if bad else "\nall agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
