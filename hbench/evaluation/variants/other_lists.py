"""Values of a metric by lists that hbench does not make: the query stays in its own list, the first
result is dropped, the list ends early, the vectors are taken from their mean.

No option of an evaluation gives these, so they are computed from dense blocks of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.evaluation.variants.smaller import directions
from hbench.metrics.functions import sequences_of
from hbench.metrics.level_sequence import LevelSequence
from hbench.submissions.embeddings import Embeddings, align
from hbench.tree import Labels, levels_of_pairs

TREC_DEPTH = 1000  # results of a query in a run, beyond which trec_eval's callers list none
NEVER = 2**60  # a rank at which a positive adds nothing to a mean of precisions
CUT_SHORT = "lists end after 1,000 results, and what is missing counts"
CENTRED = "cosine of vectors from their mean"
HIT = "the query is kept in its own list as a hit"
MISS = "the query is kept in its own list as a miss"
PAIRS_AT_ONCE = 2**22  # scores held at once
TIES = "pessimistic"
Changes = tuple[str, ...]
Values = NDArray[np.float64]
Formula = Callable[[LevelSequence], float]
Scores = NDArray[np.float32]
Listed = tuple[str, Scores, NDArray[np.uint8]]


class ItemsCompared(NamedTuple):
    """Items that are compared with each other: their unit vectors (Q, D) and those from the mean,
    and their labels (Q, L)."""

    unit_vectors: NDArray[np.float64]
    centred: NDArray[np.float64]
    labels: Labels

    @property
    def depth(self) -> int:
        return int(self.labels.shape[1])

    def blocks(self) -> Iterator[NDArray[np.int64]]:
        """The items (b,), as many at once as have room for their scores."""
        step = max(1, PAIRS_AT_ONCE // len(self.labels))
        for start in range(0, len(self.labels), step):
            yield np.arange(start, min(start + step, len(self.labels)))

    def levels(self, own: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The levels (b, Q) that some items share with all."""
        return levels_of_pairs(self.labels[own], self.labels)


def items_compared(
    chosen: NDArray[np.bool_], test: Manifest, embeddings: Embeddings
) -> ItemsCompared:
    """The chosen items of a test."""
    items = np.flatnonzero(chosen)
    rows = align(embeddings, test.items[items])
    vectors = np.asarray(embeddings.vectors[rows], np.float64)  # (Q, D)
    centred = directions(vectors - vectors.mean(axis=0))
    return ItemsCompared(directions(vectors), centred, test.labels[items])


def by_other_lists(
    compared: ItemsCompared, formulas: Mapping[Changes, Formula], *, is_precision: bool
) -> Iterator[tuple[Changes, Values]]:
    """The values (b,) of blocks of queries by every convention of lists.

    `formulas`: by what is changed of the metric, () for itself. `is_precision`: whether it is a
    mean of precisions at the ranks of the positives.
    """
    depth = compared.depth
    for own in compared.blocks():
        levels = compared.levels(own)
        scores = _cosines(compared.unit_vectors, own)
        centred = _without_self(_cosines(compared.centred, own), own)
        for words, of_list, of_items in (
            *_with_self(scores, levels, own, depth),
            (CENTRED, centred, levels),
        ):
            for changes, values in _values_of_lists(of_list, of_items, depth, formulas):
                yield (*changes, words), values
        if is_precision and len(compared.labels) - 1 > TREC_DEPTH:
            yield (CUT_SHORT,), _cut_short(_without_self(scores, own), levels, depth, formulas[()])


def values_among_all(compared: ItemsCompared, formula: Formula) -> Values:
    """The values (Q,) of every item, in the list of all others."""
    found = []
    for own in compared.blocks():
        scores = _without_self(_cosines(compared.unit_vectors, own), own)
        sequences = sequences_of(scores, compared.levels(own), compared.depth, TIES)
        found += [formula(sequence) for sequence in sequences]
    return np.array(found, float)


def _values_of_lists(
    scores: Scores, levels: NDArray[np.uint8], depth: int, formulas: Mapping[Changes, Formula]
) -> Iterator[tuple[Changes, Values]]:
    """The values (b,) of lists of these scores and levels (b, Q)."""
    sequences = list(sequences_of(scores, levels, depth, TIES))
    for changes, formula in formulas.items():
        yield changes, np.array([formula(sequence) for sequence in sequences], float)


def _cut_short(scores: Scores, levels: NDArray[np.uint8], depth: int, formula: Formula) -> Values:
    """The values (b,) of an average precision on lists that end after 1,000 results, as runs of
    TREC do; positives that are not listed still count."""
    values = []
    for sequence in sequences_of(scores, levels, depth, TIES):
        ranks = np.where(sequence.ranks <= TREC_DEPTH, sequence.ranks, NEVER)
        values.append(formula(sequence._replace(ranks=ranks)))
    return np.array(values, float)


def _cosines(directions: NDArray[np.float64], own: NDArray[np.int64]) -> Scores:
    """The scores (b, Q) of some queries; copies are equal in float32, whatever the last digits."""
    return (directions[own] @ directions.T).astype(np.float32)


def _without_self(scores: Scores, own: NDArray[np.int64]) -> Scores:
    """The scores (b, Q) with each query left out of its own list."""
    left = scores.copy()
    left[np.arange(len(own)), own] = -np.inf
    return left


def _with_self(
    scores: Scores, levels: NDArray[np.uint8], own: NDArray[np.int64], depth: int
) -> Iterator[Listed]:
    """The lists in which a query is a hit or a miss, and those without the first result: in words,
    their scores and levels (b, Q)."""
    rows = np.arange(len(own))
    found = scores.copy()
    found[rows, own] = 2  # above all cosines: a vector is nearest to itself
    for words, level in ((HIT, depth), (MISS, 0)):
        of_items = levels.copy()
        of_items[rows, own] = level
        yield words, found, of_items

    left = _without_self(scores, own)
    is_best = left == left.max(axis=1, keepdims=True)
    # of equal ones the least related is first, as in every list
    first = np.where(is_best, levels, depth + 1).argmin(axis=1)
    left[rows, first] = -np.inf
    yield "the first result beside the query is dropped too", left, levels
