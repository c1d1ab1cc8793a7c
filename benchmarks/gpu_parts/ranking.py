"""Evaluations on the device against those of the processors' threads: every similarity, and sets of
the size of benchmarks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpu_parts.rows import LARGE, Row, Sizes, seconds_of, tree_of
from gpu_parts.sets import Set, all_positives, partial_set, uneven_set
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.engine.executors.card_values import CardValues
from hbench.engine.executors.gpu import CardJob, exact_products, on_devices, shares_of_blocks
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job
from hbench.engine.similarity import similarities
from hbench.engine.values.plan import MetricPlan
from hbench.evaluation.evaluate import evaluate
from hbench.evaluation.measurement import measure
from hbench.submissions import embeddings

METRICS = (
    "H-AP", "H-AP(alpha=3)", "H-AP@R", "wAP", "ASI", "ASI/l0", "NDCG", "NDCG@100", "AP", "AP/l0",
    "AP#l0", "R@10", "R@1/l1",
    "TR@10", "TR(norm=min)@10", "P@5", "mAP@R", "mAP@100", "H-P@10", "H-R@10", "HD@10",
    "HD-mistake",
)  # fmt: skip


def of_similarities(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """A row per similarity."""
    names = [
        [f"{level}-{label}" for level, label in enumerate(row)]
        for row in tree_of(sizes.items).tolist()
    ]
    manifest = manifests.from_names(
        [f"{i:06}" for i in range(sizes.items)], names, levels=["l0", "l1", "l2"]
    )
    data = Dataset("synthetic", "1", Protocol(), None, {"test": manifest})
    for name in similarities:
        vectors = vectors_for(name, sizes)
        score = partial(
            evaluate,
            embeddings.joined(manifest.items, vectors),
            data,
            metrics=METRICS,
            similarity=name,
        )
        expected, found = score(execute=on_threads), score(execute=on_devices(str(device)))
        differences = [
            abs(float(expected.scores[each]) - float(found.scores[each]))
            for each in expected.scores
        ]
        bare = seconds_of(partial(_products, torch.from_numpy(vectors).to(device)), device, 1)
        taken = seconds_of(lambda: score(execute=on_devices(str(device))), device, 1)  # noqa: B023 - called at once
        # Inner products of whole numbers are exact everywhere, and only sums are added up in another
        # order; others are rounded elsewhere, and close items change places.
        allowed = 1e-14 if name == "dot" else 1e-4
        yield Row(
            f"evaluate, {name}",
            max(differences),
            allowed,
            taken,
            bare,
            f"{len(differences)} values",
        )


def _products(vectors: Tensor) -> None:
    """All inner products, a thousand rows at a time."""
    for rows in vectors.split(1024):
        _ = rows @ vectors.T


def vectors_for(similarity: str, sizes: Sizes) -> np.ndarray:
    """Clusters by class that the similarity can compare: whole numbers, codes of bits, points of
    the unit ball.
    """
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


def of_sets(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Whole evaluations of the sets that docs/scale.md speaks of, and of partial labels."""
    shapes = {
        "SOP": (60_502, (12, 11_316)),
        "iNaturalist": (136_093, (5, 20, 50, 230, 700, 1500, 2452)),
    }
    if sizes is not LARGE:
        shapes = {
            "SOP": (sizes.items * 4, (4, 300)),
            "iNaturalist": (sizes.items * 2, (3, 9, 20, 40, 80, 120, 150)),
        }
    for name, (items, nodes) in shapes.items():
        yield from _of_set(name, uneven_set(items, nodes, sizes.dim), device, 1e-6)
    items = shapes["iNaturalist"][0]
    yield from _of_set("all positives", all_positives(items, sizes.dim), device, 1e-6)
    items, nodes = shapes["SOP"]
    for depth in (2, 4, 7):
        nodes = tuple(np.geomspace(4, items / 8, depth).astype(int).tolist())
        partial_labels: Set = partial_set(items // 3, nodes, sizes.dim)
        yield from _of_set(f"partial, {depth} levels", partial_labels, device, 1e-5)


def _of_set(name: str, data: Set, device: torch.device, allowed: float) -> Iterator[Row]:
    """Values, ranks, kept blocks and times of one set. Two scores that are equal to rounding may
    change places, which moves a mean of few queries more than one of many: `allowed`."""
    execute = on_devices(str(device))
    job = data.job()
    for _values in execute(job, [0, job.ranker.blocks - 1]):  # warms up
        pass
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
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
    on_card, products = _on_the_card(job, device)
    scores = [np.nanmean(each.values, axis=1) for each in (expected, found)]
    apart = np.nanmax(np.abs(expected.values - found.values), axis=0)
    note = (
        f"{len(scores[0])} values; threads {by_threads:.2f} s, {by_threads / taken:.1f} × the "
        "device's; "
        f"{taken / bare:.2f} × the product; from vectors on the card {on_card:.3f} s, "
        f"{on_card / bare:.2f} ×, of which products {products:.3f} s; "
        f"{memory:.1f} GB; "
        f"{int((apart > 1e-6).sum())} of {len(apart)} queries apart by more than 1e-6"
    )
    yield Row(
        f"{name}, means",
        float(np.nanmax(np.abs(scores[0] - scores[1]))),
        allowed,
        taken,
        bare,
        note,
    )
    same = np.array_equal(expected.counts, found.counts)
    other = (
        int((expected.first_level != found.first_level).sum()),
        int((expected.tied != found.tied).sum()),
    )
    yield Row(
        f"{name}, counts",
        float(not same),
        0.0,
        note=f"other first levels {other[0]}, other ties {other[1]}",
    )
    yield Row(
        f"{name}, ranks", *data.ranks_beyond_rounding(job, device), note="200 queries in float64"
    )
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


def _on_the_card(job: Job, device: torch.device) -> tuple[float, float]:
    """The time of products and kernels with the vectors on the card, and that of the products
    alone."""
    plan = MetricPlan.of(job.ranker, job.scorers)
    card = CardJob(job, [plan], device)
    shares = shares_of_blocks(range(job.ranker.blocks), card.fitting)
    (view,) = card.views(card.fitting)

    def work() -> None:
        for numbers in shares:
            CardValues(view, numbers, card.finished_rows(numbers))

    def products() -> None:
        for numbers in shares:
            card.gallery.rows(numbers)

    with exact_products():
        return seconds_of(work, device, 2), seconds_of(products, device, 2)


def _profile(job: Job, execute: Execute) -> str:
    """The kernels that take most of the device's time in some blocks."""
    from torch.profiler import ProfilerActivity, profile

    some = list(range(min(6, job.ranker.blocks)))
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _values in execute(job, some):
            pass
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    events = [event for event in events if event.self_device_time_total > 0][:14]
    return "; ".join(
        f"{event.key[:60]} {event.self_device_time_total / 1e3 / len(some):.2f} ms"
        for event in events
    )
