"""Measures the decomposability gap of embeddings: how far a metric inside batches lies above the
metric on the whole gallery.

The gallery is cut at random into batches. DG(q) = 1/|B_q| Σ_{b∈B_q} M(q, b) − M(q, Ω), B_q the
batches with positives of q, then averaged over queries (ROADMAP, Eq. 6; rank losses, Eq. 6). It can
be negative: a batch counts as much as any other, however few positives it has.

Two positives in batches without and with 2 negatives; the worst order has both negatives before the
second positive:

>>> largest_gap(np.array([1, 1]), np.array([0, 2]))  # 1 − (1/1 + 2/4)/2
0.25
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.engine.settings import Conditions
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.evaluation.measurement import Measurement, OnBlock, Retrieval, job_of, measure

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Gap:
    """The mean of every metric `inside` batches and on the `whole` gallery, over the same `queries`
    (M,).

    `bound`, `calibrated_bound`: mean over queries of the largest gap of AP that a model could have
    whose AP inside every batch is 1; the second for its own number of scores on the wrong side of
    the thresholds, None unless they are cosines.
    """

    metrics: tuple[str, ...]
    inside: Floats
    whole: Floats
    queries: Counts
    bound: float
    calibrated_bound: float | None


def gap_of(
    test: Retrieval,
    chosen: Conditions,
    batches: Sequence[Counts],
    *,
    margins: tuple[float, float] = (0.9, 0.6),
    on_batch: OnBlock | None = None,
) -> Gap:
    """The gap of every chosen metric: its mean inside batches against that on the whole gallery,
    over the queries for which both are defined.

    `batches`: gallery positions (b,) each. `margins`: α and β of ROADMAP's calibration: positives
    of a cosine above α are on the right side, negatives of one above β on the wrong side.
    `on_batch`: is told of progress.
    """
    whole = measure(job_of(test, chosen)).values
    totals, defined, counts = _inside_batches(test, chosen, batches, whole.shape, on_batch)
    both = (defined > 0) & ~np.isnan(whole)
    number = both.sum(axis=1)
    _refuse_no_queries(number)
    # (M, Q): each query's mean over the batches, 0 where it does not count
    mean = np.divide(totals, defined, out=np.zeros_like(totals), where=both)
    bound, calibrated = _mean_bounds(test, chosen, batches, counts=counts, margins=margins)
    return Gap(
        metrics=tuple(map(str, chosen.metrics)),
        inside=mean.sum(axis=1) / number,
        whole=np.where(both, whole, 0).sum(axis=1) / number,
        queries=number,
        bound=bound,
        calibrated_bound=calibrated,
    )


def _inside_batches(
    test: Retrieval,
    chosen: Conditions,
    batches: Sequence[Counts],
    shape: tuple[int, ...],
    on_batch: OnBlock | None,
) -> tuple[Floats, Counts, Counts]:
    """Measure all queries in each batch of the gallery alone. Return (M, Q) each: the sums of every
    query's values over the batches in which they are defined, and the numbers of those batches; and
    the counts of items by level in every batch (b, Q, L + 1).

    `batches`: positions in the gallery; `shape`: (M, Q); `on_batch`: told of the progress.
    """
    totals = np.zeros(shape)
    defined = np.zeros(shape, np.int64)  # (M, Q): the batches in which a value is defined
    asked, depth = test.queries.labels.shape
    counts = np.empty((len(batches), asked, depth + 1), np.int64)
    for done, (batch, rows) in enumerate(zip(batches, counts, strict=True), start=1):
        inside = measure(job_of(_within(test, batch), chosen))
        values = _where_positive(inside, chosen)
        totals += np.nan_to_num(values)
        defined += ~np.isnan(values)
        rows[:] = inside.counts
        if on_batch:
            on_batch(done, len(batches))
    return totals, defined, counts


def _mean_bounds(
    test: Retrieval,
    chosen: Conditions,
    batches: Sequence[Counts],
    *,
    counts: Counts,
    margins: tuple[float, float],
) -> tuple[float, float | None]:
    """The mean of `largest_gap` over the queries with a positive in some batch; and the same for
    scores that are calibrated by `margins`, α and β, as cosines alone can be: None for another
    similarity, and where queries ignore items.

    `batches`: positions in the gallery; `counts` (b, Q, L + 1): the items of each level in every
    batch, of which those of the finest level are positives.
    """
    # by query and batch (Q, b)
    positives = counts[:, :, -1].T
    negatives = counts[:, :, :-1].sum(axis=2).T
    some = np.flatnonzero(positives.any(axis=1))
    bound = float(np.mean([largest_gap(positives[query], negatives[query]) for query in some]))
    if chosen.words.similarity != "cosine" or test.queries.ignore is not None:
        return bound, None

    good, bad = _counts_beyond_margins(test, batches, margins)
    calibrated = [
        largest_gap(positives[q], negatives[q], good_positives=good[q], bad_negatives=bad[q])
        for q in some
    ]
    return bound, float(np.mean(calibrated))


def _refuse_no_queries(queries: Counts) -> None:
    """Raise UsageError where some metric is defined for no query in any batch; `queries` (M,): for
    how many it is."""
    if not queries.all():
        raise UsageError(
            "no query has a positive in any batch",
            expected="a larger --batch",
            found="nothing to average",
        )


def random_batches(items: int, size: int, seed: int) -> list[Counts]:
    """The positions 0 … items − 1 in random order, which the `seed` decides, cut into batches of
    `size`; what is left over joins the last one.
    """
    shuffled = np.random.default_rng(seed).permutation(items)
    # the last cut is where a whole batch is still left behind it: 10 items by 3 are cut at 3 and 6
    return np.split(shuffled, np.arange(size, items - size + 1, size))


def sampled(test: Retrieval, queries: int, seed: int) -> Retrieval:
    """Draw this many of the `queries` at random, as the `seed` decides, or take all of them where
    there are no more; their order and the gallery stay the same."""
    asked = len(test.queries.labels)
    if asked <= queries:
        return test
    return test.of_queries(
        np.sort(np.random.default_rng(seed).choice(asked, queries, replace=False))
    )


def largest_gap(
    positives: Counts,
    negatives: Counts,
    *,
    good_positives: Counts | None = None,
    bad_negatives: Counts | None = None,
) -> float:
    """How far below 1 the AP of a query over all batches can be if its AP in every batch is 1:
    1 − 1/P Σ_{m≤P} m/(m + n(m)), n(m) the most negatives that can precede the m-th positive.

    `positives`, `negatives` (b,): of the query in each batch. A negative of batch b comes after all
    P_b positives of b, so n(m) ≤ max Σ_b N_b over batches with Σ_b P_b < m; batches may be taken in
    part, which only raises the bound. Batches are of any size; for equal ones, taken whole, this is
    ROADMAP's Eq. 8. `good_positives` (b,): the positives of a score above α; `bad_negatives` (b,):
    the negatives of a score above β: where both are given, only bad negatives can precede good
    positives (Eq. 9).
    """
    m = np.arange(1, positives.sum() + 1)  # the number of each positive, over all batches
    before = _most_before(positives, negatives, m - 1)
    if good_positives is not None and bad_negatives is not None:
        calm = m <= good_positives.sum()  # the first positives are those of the best scores
        before = np.where(
            calm, np.minimum(before, _most_before(good_positives, bad_negatives, m - 1)), before
        )
    return float(1 - (m / (m + before)).mean())


def _most_before(cost: Counts, gain: Counts, capacity: Counts) -> Floats:
    """The most negatives (n,) that can stand before each of n positives in a merged ranking: the
    most `gain` of batches whose `cost` adds up to at most its `capacity`, where parts of batches
    may be taken.

    Args:
        cost: the positives of each of the b batches that are merged, (b,).
        gain: their negatives, (b,).
        capacity: how many positives stand before each of the n, (n,).

    This is the knapsack problem with divisible items: the batches with most gain for their cost are
    taken first.
    """
    free = cost == 0  # batches that cost nothing are all taken
    order = np.argsort(-gain[~free] / cost[~free], kind="stable")
    spent, gained = (
        np.concatenate([[0], np.cumsum(amounts[~free][order])]) for amounts in (cost, gain)
    )
    # linear from one batch to the next: a part of a batch's cost brings that part of its gain
    gains: Floats = gain[free].sum() + np.interp(capacity, spent, gained)
    return gains


def _within(test: Retrieval, batch: Counts) -> Retrieval:
    """The test whose gallery is one batch (b,), given by positions in the whole gallery; a query
    that is in the batch is still not in its own list."""
    gallery = test.queries if test.gallery is None else test.gallery
    self_rows = np.arange(len(test.queries.labels)) if test.self_rows is None else test.self_rows
    # (G + 1,): from a row of the whole gallery to its row in the batch, −1 for what is not in it.
    # The row −1, of a query that is not in the gallery, finds the last entry, which is −1
    position = np.full(len(gallery.labels) + 1, -1)
    position[batch] = np.arange(len(batch))
    return replace(test, gallery=gallery.of(batch), self_rows=position[self_rows], names=None)


def _where_positive(inside: Measurement, chosen: Conditions) -> Floats:
    """The values (M, Q) of a batch, NaN where the query has no positive of the metric's level in
    it: there R@k would be 0, and draw the mean over batches down."""
    values = inside.values.copy()
    for row, name in enumerate(chosen.metrics):
        # a metric of all levels is defined by positives of the coarsest
        level = name.arguments(chosen.levels).get("level", 1)
        values[row, inside.counts[:, level:].sum(axis=1) == 0] = np.nan
    return values


def _counts_beyond_margins(
    test: Retrieval, batches: Sequence[Counts], margins: tuple[float, float]
) -> tuple[Counts, Counts]:
    """Per query and batch (Q, b): how many positives have a cosine above α, and how many negatives
    one above β, at the finest level; `margins` are α and β, `batches` positions in the gallery.
    """
    gallery = test.queries if test.gallery is None else test.gallery
    self_rows = np.arange(len(test.queries.labels)) if test.self_rows is None else test.self_rows
    order = np.concatenate(batches)  # batches side by side, so that each is a range to be summed
    precision = np.float64 if gallery.vectors.dtype == np.float64 else np.float32
    # products of unit vectors are cosines
    ranked = unit_vectors(gallery.vectors[order], precision)
    fine = gallery.labels[order, -1]
    starts = np.cumsum([0, *map(len, batches[:-1])])

    # an array (n, b) for each piece of n queries
    good = []
    bad = []
    for first in range(0, len(self_rows), QUERIES_AT_ONCE):
        rows = np.arange(first, min(first + QUERIES_AT_ONCE, len(self_rows)))
        cosines = unit_vectors(test.queries.vectors[rows], precision) @ ranked.T
        same = test.queries.labels[rows, -1][:, None] == fine
        itself = self_rows[rows][:, None] == order  # a query is no positive of its own
        # above α, and above β; the sums of each batch go from its start to the next one's
        good.append(
            np.add.reduceat(same & ~itself & (cosines > margins[0]), starts, axis=1, dtype=np.int64)
        )
        bad.append(np.add.reduceat(~same & (cosines > margins[1]), starts, axis=1, dtype=np.int64))

    return np.concatenate(good), np.concatenate(bad)
