"""Computes metrics for lists that hbench itself does not make: with the query in its own list,
without the first result, truncated, or of centred vectors.

No option of an evaluation gives these. All but the last are changes of the level sequence, so that
only centred vectors have to be ranked again.

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

TREC_DEPTH = 1000  # the usual number of results of a query in a TREC run
NEVER = 2**60  # a rank so high that a positive adds nothing to a mean of precisions
CUT_SHORT = "lists end after 1,000 results, and what is missing counts"
CENTRED = "cosine of vectors from their mean"
HIT = "the query is kept in its own list as a hit"
MISS = "the query is kept in its own list as a miss"
DROPPED = "the first result beside the query is dropped too"
Changes = tuple[str, ...]
Values = NDArray[np.float64]
Formula = Callable[[LevelSequence], float]


def kept_as_hit(sequence: LevelSequence) -> LevelSequence:
    """Put the query itself first in its list, since a vector is nearest to itself, as a positive of
    the finest level."""
    finest = len(sequence.counts) - 1
    ranks = np.append(1, sequence.ranks + 1)
    levels = np.append(np.uint8(finest), sequence.levels)
    counts = _with_items(sequence, level=finest, number=1)
    return LevelSequence(ranks, levels, counts, sequence.tied)


def kept_as_miss(sequence: LevelSequence) -> LevelSequence:
    """Put the query itself first in its list, since a vector is nearest to itself, as an item of
    level 0: all positives move one rank down."""
    counts = _with_items(sequence, level=0, number=1)
    return LevelSequence(sequence.ranks + 1, sequence.levels, counts, sequence.tied)


def without_first(sequence: LevelSequence) -> LevelSequence:
    """Remove the first result from a list. Some tools do so: they take the first result for the
    query itself, although the query was left out before."""
    has_first = len(sequence.ranks) > 0 and sequence.ranks[0] == 1
    first_level = int(sequence.levels[0]) if has_first else 0
    left = slice(int(has_first), None)  # drops the first positive if it has rank 1
    counts = _with_items(sequence, level=first_level, number=-1)
    return LevelSequence(
        ranks=sequence.ranks[left] - 1,
        levels=sequence.levels[left],
        counts=counts,
        tied=sequence.tied,
    )


def _with_items(sequence: LevelSequence, level: int, number: int) -> NDArray[np.int64]:
    """Return the level counts (L + 1,) of a sequence with `number` more items of a level, 0 … L; a
    negative number removes items."""
    counts = sequence.counts.copy()
    counts[level] += number
    return counts


def cut_short(sequence: LevelSequence) -> LevelSequence:
    """Truncate a list after 1,000 results, as TREC runs are, for average precision: later positives
    still count in the divisor, but at a rank so high that they add nothing."""
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
    """Rank the chosen items among themselves by cosine, and return {changes: values (n,)}.

    `chosen` (N,): whether each item of the test is one of the n that are ranked. `formulas`:
    {changes in words: function of a level sequence}. `centred`: subtract the mean of the chosen
    vectors first.
    """
    items = np.flatnonzero(chosen)
    # copied, since the ranker may reorder vectors in place
    vectors: Any = np.array(embeddings.vectors[align(embeddings, test.items[items])])  # (n, D)
    if centred:
        vectors = vectors - vectors.mean(axis=0, dtype=np.float64)
    ranker = Ranker(Side(vectors, test.labels[items]))
    # scorers are called with a query's number and its sequence; these formulas take no number
    scorers = [_without_number(formula) for formula in formulas.values()]
    measured = measure(Job(ranker, scorers))
    # (M, n) in the order of `formulas`; the queries in canonical order, so that a mean does not
    # depend on the order of the items
    return dict(zip(formulas, measured.values[:, measured.canonical], strict=True))


def _without_number(formula: Formula) -> ScoreQuery:
    """Adapt a formula to the engine, which also passes the position of the query."""
    return lambda _query, sequence: formula(sequence)


def by_other_lists(
    test: Manifest,
    embeddings: Embeddings,
    formulas: Mapping[Changes, Formula],
    *,
    is_precision: bool,
) -> dict[Changes, Values]:
    """Compute {changes in words: values (Q,)} for a test whose queries are its gallery, under every
    convention of this module.

    `formulas`: {changes in words: function of a level sequence}. The function of the key () is the
    metric itself; those of other keys are other metrics that have the same name.
    `is_precision`: whether the metric is a mean of precisions at the ranks of positives, such as
    AP.
    """
    # OTHER_LISTS: {change in words: function that changes a level sequence}
    by_lists = {
        (*changes, words): _of_changed(formula, changed)
        for words, changed in OTHER_LISTS.items()
        for changes, formula in formulas.items()
    }
    # A truncated list is tried for means of precisions only: there the missing positives count as
    # 0, while conventions for other metrics differ. A list has all queries but its own, hence − 1;
    # lists of up to TREC_DEPTH items are not truncated.
    if is_precision and test.query.sum() - 1 > TREC_DEPTH:
        by_lists[(CUT_SHORT,)] = _of_changed(formulas[()], cut_short)
    # CENTRED changes the vectors and not the lists, so it needs a ranking of its own
    centred = {(*changes, CENTRED): formula for changes, formula in formulas.items()}
    found = among_themselves(test.query, test, embeddings, by_lists)
    return found | among_themselves(test.query, test, embeddings, centred, centred=True)


def _of_changed(formula: Formula, change: Callable[[LevelSequence], LevelSequence]) -> Formula:
    """Return the formula applied to a changed list."""
    return lambda sequence: formula(change(sequence))
