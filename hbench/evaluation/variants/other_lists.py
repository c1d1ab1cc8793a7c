"""Values of a metric by lists that hbench does not make: the query stays in its own list, the first
result is dropped, the list ends early, the vectors are taken from their mean.

No option of an evaluation gives these. Each is a change of the level sequence that the evaluation
itself ranks, so that nothing is ranked again but the vectors from their mean.

>>> sequence = LevelSequence(np.array([1, 3]), np.array([2, 1], np.uint8), np.array([2, 1, 1]))
>>> for changed in (kept_as_hit, kept_as_miss, without_first):
...     ranks, levels, counts, _ = changed(sequence)
...     print(ranks.tolist(), levels.tolist(), counts.tolist())
[1, 2, 4] [2, 2, 1] [2, 1, 2]
[2, 4] [2, 1] [3, 1, 1]
[2] [1] [2, 1, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.sides import Side
from hbench.evaluation.measurement import measure
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.protocols import ScoreQuery
from hbench.submissions.embeddings import Embeddings, align

TREC_DEPTH = 1000  # results of a query in a run, beyond which trec_eval's callers list none
NEVER = 2**60  # a rank at which a positive adds nothing to a mean of precisions
CUT_SHORT = "lists end after 1,000 results, and what is missing counts"
CENTRED = "cosine of vectors from their mean"
HIT = "the query is kept in its own list as a hit"
MISS = "the query is kept in its own list as a miss"
DROPPED = "the first result beside the query is dropped too"
Changes = tuple[str, ...]
Values = NDArray[np.float64]
Formula = Callable[[LevelSequence], float]


def kept_as_hit(sequence: LevelSequence) -> LevelSequence:
    """The sequence of a list in which the query itself stands first, since a vector is nearest to
    itself, and counts as right: a positive of the finest level."""
    finest = len(sequence.counts) - 1
    ranks = np.append(1, sequence.ranks + 1)
    levels = np.append(np.uint8(finest), sequence.levels)
    counts = _with_items(sequence, level=finest, number=1)
    return LevelSequence(ranks, levels, counts, sequence.tied)


def kept_as_miss(sequence: LevelSequence) -> LevelSequence:
    """The sequence of a list in which the query itself stands first, since a vector is nearest to
    itself, and counts as wrong: an item of level 0, behind which all others move one rank down."""
    counts = _with_items(sequence, level=0, number=1)
    return LevelSequence(sequence.ranks + 1, sequence.levels, counts, sequence.tied)


def without_first(sequence: LevelSequence) -> LevelSequence:
    """The sequence of a list without its first result, as tools have it that take this for the
    query, although the query was left out before."""
    has_first = len(sequence.ranks) > 0 and sequence.ranks[0] == 1
    first_level = int(sequence.levels[0]) if has_first else 0
    left = slice(int(has_first), None)  # without the first positive, if that was the first result
    counts = _with_items(sequence, level=first_level, number=-1)
    return LevelSequence(sequence.ranks[left] - 1, sequence.levels[left], counts, sequence.tied)


def _with_items(sequence: LevelSequence, level: int, number: int) -> NDArray[np.int64]:
    """The counts (L + 1,) by level of a sequence's list if that had a `number` of items more of a
    level, 0 … L; less, if it is negative."""
    counts = sequence.counts.copy()
    counts[level] += number
    return counts


def cut_short(sequence: LevelSequence) -> LevelSequence:
    """The sequence of a list that ends after 1,000 results, as runs of TREC do, for an average
    precision: positives beyond still count, but at a rank so high that they add nothing."""
    return sequence._replace(ranks=np.where(sequence.ranks <= TREC_DEPTH, sequence.ranks, NEVER))


OTHER_LISTS = {HIT: kept_as_hit, MISS: kept_as_miss, DROPPED: without_first}


def among_themselves(
    chosen: NDArray[np.bool_],
    test: Manifest,
    embeddings: Embeddings,
    formulas: Mapping[Changes, Formula],
    *,
    centred: bool = False,
) -> dict[Changes, Values]:
    """The values (n,) of the chosen items of a test (N,) by every formula, each ranked by cosine in
    a list of all others; `centred`: with the mean of their vectors taken off."""
    items = np.flatnonzero(chosen)
    # a copy: the ranker may reorder vectors in place
    vectors: Any = np.array(embeddings.vectors[align(embeddings, test.items[items])])  # (n, D)
    if centred:
        vectors = vectors - vectors.mean(axis=0, dtype=np.float64)
    ranker = Ranker(Side(vectors, test.labels[items]))
    scorers = [_without_number(formula) for formula in formulas.values()]
    measured = measure(Job(ranker, scorers))
    # in the order of sums, so that a mean does not depend on the order of the items
    return dict(zip(formulas, measured.values[:, measured.canonical], strict=True))


def _without_number(formula: Formula) -> ScoreQuery:
    """A formula as the engine calls it, with the number of the query, which it does not need."""
    return lambda _query, sequence: formula(sequence)


def by_other_lists(
    test: Manifest,
    embeddings: Embeddings,
    formulas: Mapping[Changes, Formula],
    *,
    is_precision: bool,
) -> dict[Changes, Values]:
    """The values (Q,) of a test whose queries are its gallery, by every convention of lists, and
    of vectors from their mean, which are ranked anew, too.

    `formulas`: by what is changed of the metric, () for itself. `is_precision`: whether it is a
    mean of precisions at the ranks of the positives, such as AP.
    """
    by_lists = {
        (*changes, words): _of_changed(formula, changed)
        for words, changed in OTHER_LISTS.items()
        for changes, formula in formulas.items()
    }
    # Where a list is cut after TREC_DEPTH results, the positives behind still count in a mean of
    # precisions, with 0. What a cut means for other metrics is not settled, so that they are not
    # tried; and a list of fewer items is not cut.
    if is_precision and test.query.sum() - 1 > TREC_DEPTH:
        by_lists[(CUT_SHORT,)] = _of_changed(formulas[()], cut_short)
    centred = {(*changes, CENTRED): formula for changes, formula in formulas.items()}
    found = among_themselves(test.query, test, embeddings, by_lists)
    return found | among_themselves(test.query, test, embeddings, centred, centred=True)


def _of_changed(formula: Formula, change: Callable[[LevelSequence], LevelSequence]) -> Formula:
    """The formula of a changed list."""
    return lambda sequence: formula(change(sequence))
