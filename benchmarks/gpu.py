"""Checks and times on a GPU what hbench computes there, and prints one table. On a machine without one it says so, and checks the
same through torch's processor device.

    python benchmarks/gpu.py               # about five minutes on a GPU
    python benchmarks/gpu.py --quick       # small sizes, for a look

evaluation   every similarity, all metrics: the device's values against the processors'; time beside the bare matrix product
losses       value and gradient in float32 on the device against float64 on the processor; time beside x @ x.T and its gradient
training     a step on the device against the processor's; images/s beside a bare loop with the same net, loss and optimiser; the
             places of a step that is not logged where the host waits (on a GPU)
processes    a step under DistributedDataParallel with one process against one without
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

import hbench
from hbench.core import compiled
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.engine.executors.gpu import on_device
from hbench.engine.executors.threads import on_threads
from hbench.engine.similarity import similarities
from hbench.evaluation import embeddings
from hbench.evaluation.evaluate import evaluate
from hbench.losses import build_loss, cpu_kernel, losses
from hbench.train.loop import update
from hbench.train.processes import ALONE, Processes
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import LossSpec, Recipe
from hbench.train.recipes.sizes import fitted_to
from hbench.train.run import TrainingRun, begin
from hbench.train.steps.gradients import completed, facts_of

METRICS = (
    "H-AP", "H-AP(alpha=3)", "H-AP@R", "wAP", "ASI", "ASI/l0", "NDCG", "NDCG@100", "AP", "AP/l0", "AP#l0", "R@10", "R@1/l1",
    "TR@10", "TR(norm=min)@10", "P@5", "mAP@R", "mAP@100", "H-P@10", "H-R@10", "HD@10", "HD-mistake",
)  # fmt: skip
NESTED = {"loss": "sup_ap", "size": 512}  # what losses around a loss need


class Sizes(NamedTuple):
    """Items and dimension of the evaluation, batch of the losses, images and side of the training."""

    items: int
    dim: int
    batch: int
    images: int
    side: int
    net: str


LARGE = Sizes(60_000, 512, 1024, 128, 224, "torchvision:resnet50")
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


# ---- evaluation


def evaluation(sizes: Sizes, device: torch.device) -> Iterator[Row]:
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


# ---- losses


def rank_losses(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """A row per loss: the relative difference of its value, or of its gradient where that is larger."""
    labels = tree_of(sizes.batch)
    facts = {**facts_of(labels, sizes.dim), **NESTED}
    generator = torch.Generator().manual_seed(0)
    leaf = nn.functional.normalize(torch.randn(sizes.batch, sizes.dim, generator=generator, dtype=torch.float64))
    ours = leaf.float().to(device)
    bare = seconds_of(partial(_differentiated, lambda x, _: (x @ x.T).sum(), ours, ours), device)
    for name in losses:
        # RaMBO's mAP over classes takes a score of every class, and which of them are in the image.
        ids = (leaf > 0.1).long() if name == "rambo_map_classes" else torch.from_numpy(labels)
        torch.manual_seed(0)
        params = completed(name, {}, facts)
        if "loss" in params:
            params["params"] = completed(params["loss"], {}, facts)
        slow = build_loss(name, **params)
        fast = copy.deepcopy(slow).to(device)
        wanted = _differentiated(slow.double(), leaf, ids)
        found = _differentiated(fast, ours, ids.to(device))
        apart = [(a - b.cpu().double()).norm() / a.norm().clamp(min=1e-9) for a, b in zip(wanted, found, strict=True)]
        taken = seconds_of(partial(_differentiated, fast, ours, ids.to(device)), device)
        yield Row(f"loss, {name}", float(max(apart)), 1e-3, taken, bare)


def _differentiated(loss: Callable[[Tensor, Tensor], Tensor], at: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss's value and gradient."""
    x = at.clone().requires_grad_()
    value = loss(x, labels)
    (gradient,) = torch.autograd.grad(value, x, allow_unused=True)
    return value.detach(), torch.zeros_like(x) if gradient is None else gradient


# ---- training


def training(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """A step against the processor's; its images/s and host waits; and the same under DistributedDataParallel."""
    recipe, data, pixels, labels = _begun(sizes)
    plain = begin(recipe, data)
    expected = update(plain, pixels, labels)
    there = ALONE._replace(device=device)
    run = begin(recipe, data, there)
    given = pixels.to(device), labels.to(device)
    found = update(run, *given, there)
    yield Row("training step", _apart(float(expected[0]), plain, float(found[0]), run), 1e-3)
    quick = begin(recipe.model_copy(update={"precision": "auto"}), data, there)
    taken = seconds_of(lambda: update(quick, *given, there), device)
    bare = seconds_of(lambda: _bare_step(quick, *given), device)
    rate = f"{sizes.images / taken:,.0f} images/s, {bare / taken:.2f} of a bare loop's; {_waits(quick, given, there)}"
    yield Row("step / bare step", 0.0, 0.0, taken, bare, rate)
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            shared = begin(recipe, data, there)
            shared.embed = nn.parallel.DistributedDataParallel(shared.model)
            again = update(shared, *given, Processes(0, 1, device))
            yield Row("step, DDP of one", _apart(float(found[0]), run, float(again[0]), shared), 1e-5)
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
    weights = [run.model.projection.weight.grad.cpu() for run in (one, other)]
    apart = float((weights[0] - weights[1]).norm() / weights[0].norm())
    return max(abs(first - second) / abs(first), apart)


def _bare_step(run: TrainingRun, pixels: Tensor, labels: Tensor) -> None:
    """Take a step as anyone would write it with the same net, loss and optimiser."""
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    total, _ = run.objective(run.model(pixels.to(memory_format=run.layout)), labels)
    total.backward()
    for optimizer in run.optimizers:
        optimizer.step()


def _waits(run: TrainingRun, given: tuple[Tensor, Tensor], processes: Processes) -> str:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    where = torch.cuda.get_device_name(device) if has_gpu else "no GPU here: torch's processor device in its place"
    print(f"hbench {hbench.__version__}, torch {torch.__version__}, {where}", flush=True)
    compiled.SMALL = -1  # threads go by the kernels, whose last bits are the device's, however few the items
    if not has_gpu:
        print("What is checked is the same; the times say nothing about a GPU.")
        cpu_kernel.MOST_ITEMS = 0  # no compiled kernels of the processor: the losses as they are on any other device
    sizes = QUICK if chosen.quick else LARGE if has_gpu else SMALL
    print(f"\n| {'check':<28} | difference | allowed |       | seconds | bare    | note |\n|{'---|' * 7}")
    bad = 0
    for part in (evaluation, rank_losses, training):
        for row in part(sizes, device):
            bad += not row.is_good
            times = [f"{value:7.4f}" if math.isfinite(value) else "      -" for value in (row.seconds, row.bare)]
            print(
                f"| {row.what:<28} | {row.difference:10.1e} | {row.allowed:7.0e} | {'ok   ' if row.is_good else 'APART'} | "
                f"{' | '.join(times)} | {row.note} |",
                flush=True,
            )
    print(f"\n{bad} of the checks are apart" if bad else "\nall agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
