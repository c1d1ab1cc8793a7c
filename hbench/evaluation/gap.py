"""Measures the decomposability gap of embeddings: by how much a metric inside batches exceeds the
metric on the whole gallery.

The gallery is split into random batches. DG(q) = 1/|B_q| Σ_{b∈B_q} M(q, b) − M(q, Ω), where B_q are
the batches with positives of q; it is averaged over queries (ROADMAP, Eq. 6; rank losses, Eq. 6).
It can be negative, since all batches have the same weight, however few positives they have.

Two batches have one positive each; the second batch also has 2 negatives. In the worst order both
negatives come before the second positive:

>>> largest_gap(np.array([1, 1]), np.array([0, 2]))  # 1 − (1/1 + 2/4)/2
0.25
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.engine.settings import Conditions
from hbench.engine.similarity.products import product_of
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.evaluation.measurement import Measurement, OnBlock, Retrieval, job_of, measure

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Positions = NDArray[np.int64]
QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Gap:
    """The decomposability gap of M metrics.

    Attributes:
        metrics: their names.
        inside: (M,), the mean of each metric inside batches.
        whole: (M,), the mean of each metric on the whole gallery, over the same queries.
        queries: (M,), the number of these queries.
        bound: the mean over queries of the largest possible gap of AP for a model whose AP inside
            every batch is 1.
        calibrated_bound: the same, given how many scores of this model are on the wrong side of
            ROADMAP's thresholds; None unless scores are cosines.
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
    batches: Sequence[Positions],
    *,
    margins: tuple[float, float] = (0.9, 0.6),
    on_batch: OnBlock | None = None,
) -> Gap:
    """Measure by how much every chosen metric is higher inside batches than on the whole gallery,
    over the queries for which it is defined in both.

    `test`: with the whole gallery. `chosen`: holds the M metrics. `batches`: the gallery positions
    of the items of each batch. `margins`: α and β of ROADMAP's calibration loss, which pushes the
    cosines of positives above α, and those of negatives below β. `on_batch`: called with the number
    of finished batches and the number of all.

    The result has two upper bounds of the gap of AP at the finest level, each a mean over queries:
    `bound`, for a model that is perfect inside every batch, and `calibrated_bound`, which also uses
    how many scores are beyond the margins.
    """
    whole = measure(job_of(test, chosen)).values  # (M, Q), NaN where undefined
    # (M, Q) each: the sum of a query's values over the batches in which they are defined, and the
    # number of these batches; (b, Q, L + 1): the items of each level in every batch
    totals, defined, counts = _inside_batches(test, chosen, batches, whole.shape, on_batch)
    both = (defined > 0) & ~np.isnan(whole)
    number = both.sum(axis=1)
    _refuse_no_queries(number)
    # (M, Q): the mean over the batches for each query, 0 for queries that are left out
    mean = np.divide(totals, defined, out=np.zeros_like(totals), where=both)
    # How far AP can fall depends on the positives and negatives of each query in each batch. Both
    # are means over the queries with a positive in some batch; `calibrated` is None without such a
    # bound
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
    batches: Sequence[Positions],
    shape: tuple[int, ...],
    on_batch: OnBlock | None,
) -> tuple[Floats, Counts, Counts]:
    """Measure all queries with each batch as the gallery.

    Args:
        test: the test with the whole gallery.
        chosen: the metrics.
        batches: the gallery positions of the items of each batch.
        shape: (M, Q), the numbers of metrics and queries.
        on_batch: called with the number of finished batches and the number of all.

    Returns:
        The sum of each query's values over the batches in which they are defined (M, Q), the number
        of these batches (M, Q), and the number of items of each level in every batch (b, Q, L + 1).
    """
    totals = np.zeros(shape)
    defined = np.zeros(shape, np.int64)  # (M, Q): the number of batches with a defined value
    asked, depth = test.queries.labels.shape
    counts = np.empty((len(batches), asked, depth + 1), np.int64)
    for done, (batch, rows) in enumerate(zip(batches, counts, strict=True), start=1):
        inside = measure(job_of(_within(test, batch), chosen))
        values = _where_positive(inside, chosen)  # (M, Q), NaN for queries without a positive
        totals += np.nan_to_num(values)
        defined += ~np.isnan(values)
        rows[:] = inside.counts  # writes to `counts`, of which `rows` is the part of this batch
        if on_batch:
            on_batch(done, len(batches))
    return totals, defined, counts


def _mean_bounds(
    test: Retrieval,
    chosen: Conditions,
    batches: Sequence[Positions],
    *,
    counts: Counts,
    margins: tuple[float, float],
) -> tuple[float, float | None]:
    """Return two upper bounds of the gap between the AP inside batches and the AP on the whole
    gallery, as means over the queries with a positive in some batch. The second bound is for scores
    calibrated by `margins` (α and β): positives above α are good, and negatives above β are bad.

    The second bound is None if scores are not cosines, since the margins are cosines. It is also
    None if queries ignore items, since the counts beyond the margins would include these.

    `batches`: for each batch an array of the gallery positions of its items. `counts`
    (b, Q, L + 1): the number of items of each level in every batch; items of the finest level are
    the positives.
    """
    # (Q, b) each: a query's positives and negatives in each batch
    positives = counts[:, :, -1].T
    negatives = counts[:, :, :-1].sum(axis=2).T
    some = np.flatnonzero(positives.any(axis=1))
    bound = float(np.mean([largest_gap(positives[query], negatives[query]) for query in some]))
    if chosen.words.similarity != "cosine" or test.queries.ignore is not None:
        return bound, None

    # (Q, b) each: positives above α, and negatives above β
    good, bad = _counts_beyond_margins(test, batches, margins)
    calibrated = [
        largest_gap(positives[q], negatives[q], good_positives=good[q], bad_negatives=bad[q])
        for q in some
    ]
    return bound, float(np.mean(calibrated))


def _refuse_no_queries(queries: Counts) -> None:
    """Raise UsageError if one of the M metrics is not defined for any query. `queries` (M,): for
    each metric, how many queries have a value both in some batch and on the whole test."""
    if not queries.all():
        raise UsageError(
            "no query has a positive in any batch",
            expected="a larger --batch",
            found="nothing to average",
        )


def random_batches(items: int, size: int, seed: int) -> list[Positions]:
    """Split the positions 0 … items − 1, in random order, into batches of `size`. The remainder
    joins the last batch.
    """
    shuffled = np.random.default_rng(seed).permutation(items)
    # the last split leaves at least a whole batch behind it: 10 items in batches of 3 are split at
    # 3 and 6
    return np.split(shuffled, np.arange(size, items - size + 1, size))


def sampled(test: Retrieval, queries: int, seed: int) -> Retrieval:
    """Draw `queries` (a number) of the test's queries at random, or return the test as it is if it
    has no more. The order of the queries and the gallery stay the same."""
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
    """Compute how far below 1 the AP of a query over all batches can be if its AP in every batch is
    1. It is 1 − 1/P Σ_{m≤P} m/(m + n(m)), where P is the number of positives, and n(m) the largest
    number of negatives that can precede the m-th positive.

    Batch b has P_b positives and N_b negatives. Its negatives come after all its positives, so only
    batches whose positives all precede the m-th one can have negatives before it. Thus n(m) is at
    most max Σ_b N_b over sets of batches with Σ_b P_b < m. Sets may also contain fractions of
    batches, which can only raise the maximum. Batches may differ in size; for equal batches, taken
    whole, this is ROADMAP's Eq. 8.

    Args:
        positives: (b,), the positives of the query in each batch.
        negatives: (b,), the negatives.
        good_positives: (b,), the positives with a score above α, a margin that the caller chose.
        bad_negatives: (b,), the negatives with a score above the margin β. If this and
            `good_positives` are given, only bad negatives can precede good positives (Eq. 9).
    """
    m = np.arange(1, positives.sum() + 1)  # numbers the positives of all batches in ranked order
    before = _most_before(positives, negatives, m - 1)
    if good_positives is not None and bad_negatives is not None:
        is_good = m <= good_positives.sum()  # good positives have the best scores: they come first
        before = np.where(
            is_good, np.minimum(before, _most_before(good_positives, bad_negatives, m - 1)), before
        )
    return float(1 - (m / (m + before)).mean())


def _most_before(cost: Counts, gain: Counts, capacity: Counts) -> Floats:
    """Compute an upper bound (n,) of the negatives that can precede each of n positives in the
    merged ranking of all batches.

    In each batch all positives come before all negatives. So a batch's negatives can precede a
    positive only if all the batch's own positives do: these are its cost. This is a knapsack
    problem: choose batches with the largest total gain whose total cost is at most the capacity.
    Fractions of batches are allowed, which only raises the bound. Then the best choice is to take
    the batches with the largest gain per cost first.

    Args:
        cost: (b,), the positives of each batch.
        gain: (b,), the negatives of each batch.
        capacity: (n,), the number of positives before each of the n positives.
    """
    free = cost == 0  # batches without positives cost nothing and are always taken
    order = np.argsort(-gain[~free] / cost[~free], kind="stable")
    spent, gained = (
        np.concatenate([[0], np.cumsum(amounts[~free][order])]) for amounts in (cost, gain)
    )
    # linear interpolation: a fraction of a batch's cost yields the same fraction of its gain
    gains: Floats = gain[free].sum() + np.interp(capacity, spent, gained)
    return gains


def _own_rows(test: Retrieval) -> Counts:
    """Each query's own row in the whole gallery, (Q,), −1 if it is not there. Without a gallery the
    queries rank each other; with one, no `self_rows` mean that it has no query."""
    if test.self_rows is not None:
        return test.self_rows
    queries = len(test.queries.labels)
    return np.arange(queries) if test.gallery is None else np.full(queries, -1)


def _within(test: Retrieval, batch: Positions) -> Retrieval:
    """Restrict the gallery of a test to one batch (b,) of gallery positions. A query that is in the
    batch is still left out of its own list. The result has no labels by name (`names`), which only
    released evaluators compare."""
    gallery = test.queries if test.gallery is None else test.gallery
    self_rows = _own_rows(test)
    # (G + 1,): maps a row of the whole gallery to its row in the batch, −1 if it is not there. The
    # extra last entry stays −1: a query that is not in the gallery has the row −1, which indexes it
    position = np.full(len(gallery.labels) + 1, -1)
    position[batch] = np.arange(len(batch))
    return replace(test, gallery=gallery.of(batch), self_rows=position[self_rows], names=None)


def _where_positive(inside: Measurement, chosen: Conditions) -> Floats:
    """Return the values (M, Q) of a batch, NaN for queries without a positive of the metric's level
    in the batch: R@k would be 0 there and lower the mean over batches."""
    values = inside.values.copy()
    for row, name in enumerate(chosen.metrics):
        # A metric of one level has that level, a number, among its arguments. A metric of all
        # levels has none: it needs a positive of any level, that is of level 1 or finer
        level = name.arguments(chosen.levels).get("level", 1)
        positives = inside.counts[:, level:].sum(axis=1)  # counts (Q, L + 1): of level 0 … L
        values[row, positives == 0] = np.nan
    return values


def _counts_beyond_margins(
    test: Retrieval, batches: Sequence[Positions], margins: tuple[float, float]
) -> tuple[Counts, Counts]:
    """Count, for each query and batch (Q, b), the positives with a cosine above α, and the
    negatives with a cosine above β. Positives are items of the query's finest class.

    `batches`: positions in the gallery. `margins`: α and β.
    """
    gallery = test.queries if test.gallery is None else test.gallery
    self_rows = _own_rows(test)
    order = np.concatenate(batches)  # sort the gallery by batch, so that each batch is a range
    # float64 vectors are compared in float64, all others in float32
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
        cosines = product_of(unit_vectors(test.queries.vectors[rows], precision), ranked)
        same = test.queries.labels[rows, -1][:, None] == fine  # (n, G): are of one finest class
        itself = self_rows[rows][:, None] == order  # a query is not its own positive
        # reduceat sums each batch: from its start to that of the next
        good.append(
            np.add.reduceat(same & ~itself & (cosines > margins[0]), starts, axis=1, dtype=np.int64)
        )
        bad.append(np.add.reduceat(~same & (cosines > margins[1]), starts, axis=1, dtype=np.int64))

    return np.concatenate(good), np.concatenate(bad)
