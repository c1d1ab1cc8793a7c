"""Synthetic sets of the sizes of benchmarks, for measurements on a device: vectors around the
centres of their classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from hbench.engine.executors.gpu import CardJob, exact_products
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.values.plan import MetricPlan
from hbench.evaluation.measurement import scorers_of
from hbench.sheets.rows import default_levels
from hbench.tree import LabelTree
from hbench.tree.partial import ended_early, known_levels

NOISE = 1.6  # of a class, in units of the distance of centres
ROUNDING = 1e-6  # of a score of unit vectors in float32, at most
SAMPLE = 200


@dataclass(frozen=True)
class Set:
    """Unit vectors (N, D), labels (N, L), and how many levels are known (N,), None where all
    are."""

    vectors: np.ndarray
    labels: np.ndarray
    known: np.ndarray | None = None

    def job(self) -> Job:
        """All default metrics of all pairs."""
        chosen = Settings().resolve(
            default_levels(self.labels.shape[1]), partial=self.known is not None
        )
        ranker = Ranker(Side(self.vectors, self.labels, None, self.known))
        return Job(ranker, scorers_of(chosen, self.labels, keeps_last=True))

    def ranks_beyond_rounding(self, job: Job, device: torch.device) -> tuple[float, float]:
        """How many ranks of some queries no rounding of the scores explains, and how many may
        be."""
        plan = MetricPlan.of(job.ranker, job.scorers)
        number = job.ranker.blocks // 2
        first = number * job.ranker.scores.block_size
        asked_rows = job.ranker.rows(number)[:SAMPLE]
        card = CardJob(job, [plan], device)
        with exact_products():
            (view,) = card.views(1)
            view.rank(card.finished_rows(range(number, number + 1)), first)
        lists = view.lists
        ranks, sizes = (each.cpu().numpy() for each in (lists.ranks, lists.sizes))

        whole = torch.from_numpy(self.vectors[job.ranker.columns]).double()
        asked = torch.from_numpy(self.vectors[asked_rows]).double()
        exact = asked @ whole.T
        exact[torch.arange(len(asked)), torch.arange(first, first + len(asked))] = -torch.inf
        parts = plan.parts(first, first + len(asked))
        beyond = 0
        for query, scores in enumerate(exact):
            begin, size = parts.begins[query], parts.sizes[query]
            count = int(sizes[query])
            own = scores[begin : begin + size].sort(descending=True).values[:count]
            ordered = scores.sort().values
            after = torch.searchsorted(ordered, own - ROUNDING)
            before = torch.searchsorted(ordered, own + ROUNDING, right=True)
            found = torch.from_numpy(ranks[query, :count].astype(np.int64))
            low, high = len(ordered) - before + 1, len(ordered) - after
            beyond += int(((found < low) | (found > high)).sum())
        return float(beyond), 0.0


def uneven_set(items: int, nodes: tuple[int, ...], dim: int) -> Set:
    """Nested classes of uneven size."""
    rng = np.random.default_rng(1)
    weight = rng.lognormal(0, 0.5, nodes[-1])
    columns = [rng.choice(nodes[-1], size=items, p=weight / weight.sum())]
    for above, own in zip(nodes[-2::-1], nodes[:0:-1], strict=True):
        columns.insert(0, np.sort(rng.integers(above, size=own))[columns[0]])
    labels = LabelTree.from_labels(np.stack(columns, axis=1))[1]
    return Set(vectors_of(labels, dim), labels)


def partial_set(items: int, nodes: tuple[int, ...], dim: int) -> Set:
    """The same with a quarter of the paths ending early."""
    whole = uneven_set(items, nodes, dim)
    depth, rng = len(nodes), np.random.default_rng(2)
    levels = default_levels(depth)
    lengths = np.where(rng.random(items) < 0.25, rng.integers(1, depth + 1, items), depth)
    rows = [
        ended_early(tuple(f"{level}-{label}" for level, label in enumerate(path[:length])), levels)
        for path, length in zip(whole.labels.tolist(), lengths.tolist(), strict=True)
    ]
    tree, labels = LabelTree.from_names(rows, levels=levels)
    return Set(whole.vectors, labels, known_levels(tree)[labels[:, -1]])


def all_positives(items: int, dim: int) -> Set:
    """Seven levels of which the coarsest is one class: every other item is a positive."""
    nodes = (5, 20, 50, 230, 700, 1500)
    whole = uneven_set(items, nodes, dim)
    one = np.zeros((items, 1), whole.labels.dtype)
    return Set(whole.vectors, np.concatenate([one, whole.labels], axis=1))


def vectors_of(labels: np.ndarray, dim: int) -> np.ndarray:
    """Unit vectors around the sum of the centres of an item's classes."""
    rng = np.random.default_rng(0)
    vectors = NOISE * rng.standard_normal((len(labels), dim), np.float32)
    for column in labels.T:
        vectors += rng.standard_normal((column.max() + 1, dim), np.float32)[column]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
