"""What one ranking answers beyond a tree of one path per item: on the device against the
processors' threads. Scores are whole numbers, exact on both, and tie often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

import hbench
from gpu_parts.rows import Row, Sizes, failed, seconds_of, tree_of
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.engine.executors.gpu import on_devices
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job
from hbench.engine.lists.pairs import QueryLists
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.evaluation import examination
from hbench.evaluation.measurement import measure, scorers_of
from hbench.evaluation.variants import trees
from hbench.sheets.rows import default_levels
from hbench.submissions.embeddings import Embeddings, joined
from hbench.tree.several import MorePaths

ROUNDING = 1e-12  # sums of the metrics are added up on the processors, in blocks of another size


def of_views(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """A row per view: items of several paths, listed pairs, other trees, names as queries."""
    execute = on_devices(str(device))
    views: dict[str, Callable[[], Row]] = {
        "several paths": lambda: _of_job("several paths", several_paths(sizes), device),
        "listed pairs": lambda: _of_job("listed pairs", listed_pairs(sizes), device),
        "other trees": lambda: _other_trees(sizes, execute),
        "names as queries": lambda: _names(sizes, execute),
    }
    for what, view in views.items():
        try:
            yield view()
        except Exception as error:
            yield failed(what, error)


def _of_job(what: str, job: Job, device: torch.device) -> Row:
    """The values of a job, and whether all else of it is the same."""
    execute = on_devices(str(device))
    expected, found = measure(job), measure(job, execute=execute)
    unlike = [
        name
        for name in ("first_level", "counts", "tied", "canonical")
        if not np.array_equal(getattr(expected, name), getattr(found, name))
    ]
    apart = float(np.nanmax(np.abs(expected.values - found.values)))
    note = f"unlike: {', '.join(unlike)}" if unlike else f"{expected.values.size} values"
    return Row(
        what,
        float("inf") if unlike else apart,
        ROUNDING,
        seconds_of(lambda: measure(job, execute=execute), device, 1),
        seconds_of(lambda: measure(job), device, 1),
        f"{note}; 'bare' is the threads' time",
    )


def several_paths(sizes: Sizes) -> Job:
    """All default metrics of items of which every tenth has a second path."""
    labels = tree_of(sizes.items)
    rng = np.random.default_rng(3)
    owners = np.sort(rng.choice(sizes.items, sizes.items // 10, replace=False))
    more = MorePaths(owners, labels[rng.integers(sizes.items, size=len(owners))])
    side = Side(whole_numbers(sizes), labels, None, None, more)
    chosen = Settings().resolve(default_levels(labels.shape[1]))
    return Job(Ranker(side, similarity=dot), scorers_of(chosen, labels, keeps_last=True))


def listed_pairs(sizes: Sizes) -> Job:
    """All default metrics of a tenth of the items as queries, with lists of up to a fifth of
    them."""
    queries = sizes.items // 10
    rng = np.random.default_rng(4)
    levels = rng.choice([-1, 0, 0, 1, 2], (queries, sizes.items)).astype(np.int8)
    levels[:, sizes.items // 5 :] = 0
    listed = [np.flatnonzero(row) for row in levels]
    bounds = np.concatenate([[0], np.cumsum([len(rows) for rows in listed])]).astype(np.int64)
    lists = QueryLists(bounds, np.concatenate(listed), levels[levels != 0])

    vectors, one = whole_numbers(sizes), np.zeros((1, 2), np.int64)
    asked = Side(vectors[:queries], one.repeat(queries, axis=0))
    ranked = Side(vectors, one.repeat(sizes.items, axis=0))
    ranker = Ranker(asked, ranked, similarity=dot).of_lists(lists)
    chosen = Settings().resolve(default_levels(2))
    return Job(ranker, scorers_of(chosen, asked.labels, keeps_last=True), "lists")


def _other_trees(sizes: Sizes, execute: Execute) -> Row:
    """The metrics under a shuffled tree, beside those of the set's own."""
    data, given = _set_of(sizes)
    examined = examination.examine(given, data, Settings(similarity="dot"))
    chosen = trees.parse("shuffled")
    expected, found = (
        trees.report_under(examined, chosen, execute=way).document.trees["shuffled"].scores
        for way in (on_threads, execute)
    )
    apart = max(abs(expected[name].value - found[name].value) for name in expected)
    return Row("other trees", apart, ROUNDING, note=f"{len(expected)} values")


def _names(sizes: Sizes, execute: Execute) -> Row:
    """The metrics of every node of the tree as a query."""
    data, given = _set_of(sizes)
    labels = tree_of(sizes.items)
    paths = sorted(
        {
            " > ".join(f"{level}-{label}" for level, label in enumerate(row[:depth]))
            for row in labels.tolist()
            for depth in (1, 2, 3)
        }
    )
    rng = np.random.default_rng(5)
    nodes = joined(np.array(paths), rng.integers(-4, 5, (len(paths), sizes.dim)).astype(np.float32))
    expected, found = (
        hbench.evaluate(given, data, nodes=nodes, similarity="dot", execute=way).scores
        for way in (on_threads, execute)
    )
    apart = max(abs(expected[name] - found[name]) for name in expected)
    return Row("names as queries", apart, ROUNDING, note=f"{len(paths)} nodes")


def _set_of(sizes: Sizes) -> tuple[Dataset, Embeddings]:
    """Items in classes, and their vectors."""
    names = [
        [f"{level}-{label}" for level, label in enumerate(row)]
        for row in tree_of(sizes.items).tolist()
    ]
    ids = [f"{i:06}" for i in range(sizes.items)]
    manifest = manifests.from_names(ids, names, levels=["l0", "l1", "l2"])
    data = Dataset("synthetic", "1", Protocol(), None, {"test": manifest})
    return data, joined(manifest.items, whole_numbers(sizes))


def whole_numbers(sizes: Sizes) -> np.ndarray:
    """Vectors of whole numbers around the centres of their classes."""
    rng = np.random.default_rng(0)
    centres = rng.integers(-4, 5, (sizes.items // 4 + 1, sizes.dim))
    near = centres[tree_of(sizes.items)[:, 2]] + rng.integers(-6, 7, (sizes.items, sizes.dim))
    return near.astype(np.float32)
