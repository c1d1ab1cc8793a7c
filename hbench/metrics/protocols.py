"""Protocols: how each metric is computed. `paper` follows the papers' equations, `official`
reproduces the evaluators that were released with them.

Published tables were made with the released evaluators. So a leaderboard compares published rows
with `official` values, which are computed in the same pass over the ranking. The released
evaluators differ from the equations in four ways:

* For H-AP |Ω^(l)| is counted in the set of queries, including the query itself
  (`query_set_counts`). For landmark sets it is counted in the retrieved list.
* For H-AP the items of a level are found by comparing float32 relevances, so that items of two
  levels with equal relevance count in both.
* With a separate gallery the item that is ranked last is dropped, for every metric.
* If the names of the labels form no tree, labels are compared column by column, for every metric
  (`hbench.metrics.name_columns`).

Queries for which a metric is undefined are left out of the mean under both protocols. The released
code drops their whole batch, so that its result depends on the batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.registry import Registry
from hbench.metrics.definitions import NAN, ap, positive_count, positives, weighted
from hbench.metrics.level_sequence import LevelSequence, canonical_order, level_ranges
from hbench.metrics.name_columns import NamedSequences, equal_columns
from hbench.metrics.names import MetricName
from hbench.metrics.readings import Reading
from hbench.metrics.relevance import Relevance
from hbench.tree import Labels

Counts = NDArray[np.int64]
ScoreQuery = Callable[[int, LevelSequence], float]
ScoreNamed = Callable[[int, NamedSequences], float]
Grade = Callable[[NDArray[np.int64], Counts], tuple[NDArray[np.float64], Counts]]


@dataclass(frozen=True)
class Scorer:
    """One metric under one protocol: a function of one query and its level sequence, together with
    the parts from which kernels compute it for many queries at once.

    Attributes:
        name: the metric.
        arguments: the keyword arguments of the metric's function.
        function: computes the value of a query, given by its position in the input, from its level
            sequence.
        grade: for H-AP: returns the relevance and the weight of every level, (Q, L+1) each, for
            queries (Q,) with level counts (Q, L+1). None for other metrics.
        loses_last: whether the item ranked last is dropped first, as released evaluators do where
            the gallery is separate from the queries.
        by_name: computes the value of a query that is ranked by name; None if the protocol uses the
            tree only.
        reading: under partial labels a sequence has codes in place of levels
            (hbench.metrics.readings); the reading converts them to levels. None: it has levels.
        level_required: queries whose label ends above this level are skipped.
    """

    name: MetricName
    arguments: Mapping[str, Any]
    function: ScoreQuery
    grade: Grade | None = None
    loses_last: bool = False
    by_name: ScoreNamed | None = None
    reading: Reading | None = None
    level_required: int = 0

    def __call__(self, query: int, sequence: LevelSequence) -> float:
        """Compute the value of the query at this position of the input from its level sequence,
        whose codes, under partial labels, are converted to levels first."""
        levels = sequence if self.reading is None else self.reading.of(sequence)
        return self.function(query, levels)


@dataclass(frozen=True)
class Setting:
    """What a protocol may use in addition to the level sequence.

    `levels`: names of the levels. `relevance`, `exponent`: those of an H-AP without parameters.
    `labels` (Q, L): labels of the queries. `keeps_last`: whether released evaluators keep the item
    ranked last of each list: most do only if the queries are their own gallery.
    `names` (Q, L): labels of the queries by name, None where names form a tree.
    """

    levels: Sequence[str]
    relevance: Relevance
    exponent: float
    labels: Labels
    keeps_last: bool
    names: Labels | None = None


Protocol = Callable[[MetricName, Setting], ScoreQuery]
protocols: Registry[Protocol] = Registry("protocol")


@protocols.register("paper")
def paper(name: MetricName, setting: Setting) -> Scorer:
    """Make the scorer of a metric by the papers' equations, on the gallery without the query."""
    function = name.bind(setting.levels, setting.relevance)
    arguments = name.arguments(setting.levels, setting.relevance)  # {name: value}, of the function
    # the position of the query is not used: a value depends on the query's own list only
    return Scorer(
        name=name,
        arguments=arguments,
        function=lambda query, sequence: function(sequence),
        # relevance and weight by level, by which the engine computes graded sums such as H-AP
        grade=_by_level(arguments),
    )


@protocols.register("official")
def official(name: MetricName, setting: Setting) -> Scorer:
    """Make the scorer of a metric as the released evaluators of HAPPIER and the rank losses compute
    it: the |Ω^(l)| in the relevances are counted in the set of queries, not in each list."""
    return _released(name, setting, query_set_counts(setting.labels))


@protocols.register("official-landmark")
def official_landmark(name: MetricName, setting: Setting) -> Scorer:
    """Make the scorer of a metric as the released evaluator of landmark sets computes it: the
    |Ω^(l)| in the relevances are counted in the retrieved list."""
    return _released(name, setting, None)


@protocols.register("official-revisited")
def official_revisited(name: MetricName, setting: Setting) -> ScoreQuery:
    """Make the scorer of a metric as the released evaluator of revisited Oxford and Paris computes
    it: AP by the trapezoid rule, P@k up to the last positive.
    """
    functions: dict[str, Callable[..., float]] = {"AP": trapezoid_ap, "P": p_at_last}
    if name.base not in functions:  # the evaluator has no other metrics: they follow the equations
        return paper(name, setting)
    arguments = name.arguments(setting.levels)  # level, and the cut of P@k
    return lambda query, sequence: functions[name.base](sequence, **arguments)


def trapezoid_ap(sequence: LevelSequence, *, level: int) -> float:
    """AP by the trapezoid rule: 1/|P_l| Σ_m ((m−1)/(r_m−1) + m/r_m)/2, r_m the rank of the m-th
    positive, P_l all items of `level` or finer. For r_m = 1 the first term is 1 (Philbin et al.
    2007; Radenovic et al. 2018)."""
    ranks = positives(sequence, level)
    total = positive_count(sequence, level)
    hits = np.arange(1, len(ranks) + 1)
    # the precision before each positive, (m−1)/(r_m−1), defined as 1 at rank 1
    before = np.where(ranks == 1, 1.0, (hits - 1) / np.maximum(ranks - 1, 1))
    return float((before + hits / ranks).sum() / (2 * total)) if total else NAN


def p_at_last(sequence: LevelSequence, *, level: int, cut: int) -> float:
    """P@k' with k' = min(k, r_|P|), k the `cut` and r_|P| the rank of the last positive, an item of
    `level` or finer: items after the last positive do not count. 0 if a truncated list has no
    positive, NaN if the gallery has none."""
    ranks = positives(sequence, level)
    if not len(ranks):
        return 0.0 if positive_count(sequence, level) else NAN
    last = min(cut, int(ranks[-1]))
    return float((ranks <= last).sum() / last)


def _released(name: MetricName, setting: Setting, own_counts: Counts | None) -> Scorer:
    """Make the scorer of a metric as the released evaluators compute it: without the last result,
    unless the setting `keeps_last`. For H-AP they find the items of a level by comparing
    relevances, so that items of two levels with equal relevance count in both.

    `own_counts` (Q, L+1): |Ω^(l)|, the divisors of the relevances, as counted in the set of
    queries; None: count in each list.
    """
    exponent = float(dict(name.parameters).get("alpha", setting.exponent))
    # the released H-AP has only the relevance alpha; with any other the equations are followed
    by_value = name.base == "H-AP" and set(dict(name.parameters)) <= {"alpha"}
    function = name.bind(setting.levels, setting.relevance)
    arguments = name.arguments(setting.levels, setting.relevance)

    def score(query: int, sequence: LevelSequence) -> float:
        """Compute the value of the query at this position of the input."""
        listed = sequence if setting.keeps_last else without_last(sequence)
        if not by_value:
            return function(listed)
        return h_ap_by_value(
            listed, listed.counts if own_counts is None else own_counts[query], exponent
        )

    def grade(queries: NDArray[np.int64], counts: Counts) -> tuple[NDArray[np.float64], Counts]:
        """Return the relevance and the weight of every level, (n, L+1) each, for n queries, given
        by position. `counts` (n, L+1): the items of each level in their lists."""
        rel = released_relevance(counts if own_counts is None else own_counts[queries], exponent)
        # (n, L+1): the number of levels, from 1 on, that have the relevance of this level; an item
        # counts in each of them
        equal_levels = (rel[:, :, None] == rel[:, None, 1:]).sum(axis=2)
        return rel.astype(np.float64), equal_levels

    # The function for queries with ambiguous names, used in place of `score`: it compares items by
    # name. None if the names form a tree, where comparing names gives the levels of the tree.
    by_name = None
    if setting.names is not None:
        # equal names are counted where |Ω^(l)| is counted: by `own_counts` in the set of queries,
        # without them in each list
        own_names = None if own_counts is None else setting.names
        by_name = _by_name(name, setting, own_names, exponent if by_value else None)
    grades = grade if by_value else _by_level(arguments)
    # the released code drops the item ranked last if the gallery is separate from the queries
    return Scorer(
        name=name,
        arguments=arguments,
        function=score,
        grade=grades,
        loses_last=not setting.keeps_last,
        by_name=by_name,
    )


def _by_name(
    name: MetricName, setting: Setting, names: Labels | None, exponent: float | None
) -> ScoreNamed:
    """Make the function that computes a metric of a query that is ranked by name. A metric of one
    level compares the names of that level only; any other uses the number of equal columns.

    `exponent`: α of an H-AP that is computed as the released evaluator does; None for other
    metrics. `names` (Q, L): the names of all queries, if this H-AP counts |Ω^(l)|, the items of a
    level, among the queries; None if it counts them in each list.
    """
    function = name.definition.function
    arguments = name.arguments(setting.levels, setting.relevance)

    def of_column(query: int, named: NamedSequences) -> float:
        """Compute the value from the names of the metric's level alone, as for a tree of one level,
        whose positives have level 1."""
        return function(listed(named.columns[arguments["level"] - 1]), **arguments | {"level": 1})

    def of_columns(query: int, named: NamedSequences) -> float:
        """Compute wAP: the weighted mean of the AP of each column of names."""
        return weighted(
            [ap(listed(column), level=1) for column in named.columns], arguments["weights"]
        )

    def of_whole(query: int, named: NamedSequences) -> float:
        """Compute the value from the level sequence `named.whole`, in which the level of an item is
        the number of equal names (`named` also has a sequence for each level). The released H-AP
        counts the items of each level in the set of queries if `names` is given."""
        # `listed`: without the item ranked last, if the gallery is separate from the queries
        whole = listed(named.whole)
        if exponent is None:  # not the released H-AP
            return function(whole, **arguments)
        if names is None:
            return h_ap_by_value(whole, whole.counts, exponent)
        # as the released code does, the query itself is counted, too
        counts = np.bincount(equal_columns(names[query], names), minlength=names.shape[1] + 1)
        return h_ap_by_value(whole, counts, exponent)

    def listed(sequence: LevelSequence) -> LevelSequence:
        """Drop the item ranked last, unless `keeps_last`, as the released evaluator does."""
        return sequence if setting.keeps_last else without_last(sequence)

    if name.base == "wAP":
        return of_columns
    # AP# has a level, too, but takes it as a number of equal columns
    return of_column if "level" in arguments and name.base != "AP#" else of_whole


def _by_level(arguments: Mapping[str, Any]) -> Grade | None:
    """Return the `grade` of a Scorer that follows the equations: relevances from the level counts,
    and weights of 1, since an item counts in its own level only. None for a metric that takes no
    relevance. `arguments`: the keyword arguments of the metric's function."""
    if "relevance" not in arguments:
        return None
    return lambda queries, counts: (arguments["relevance"](counts), np.ones_like(counts))


def scorers_by_name(scorers: Sequence[ScoreQuery]) -> dict[int, ScoreNamed]:
    """Return {position of a scorer: its `by_name` function}, of the scorers that have one."""
    return {
        row: scorer.by_name
        for row, scorer in enumerate(scorers)
        if isinstance(scorer, Scorer) and scorer.by_name
    }


def released_relevance(counts: Counts, exponent: float) -> NDArray[np.float32]:
    """Return the relevance (…, L+1) of an item of each level l as the released evaluator computes
    it: (l/(L−1))^α / counts[l] in float32; 0 for distractors and for levels without items.

    `counts` (…, L+1): the number of items of the levels 0 … L. `exponent`: α.
    """
    # L − 1 and float32 as in the released code, whose rounding decides which levels are equal
    depth = counts.shape[-1] - 1
    weights = np.array(
        [(level / max(depth - 1, 1)) ** exponent for level in range(depth + 1)], np.float32
    )
    weights[0] = 0
    rel: NDArray[np.float32] = np.where(
        counts > 0, weights / counts.clip(1).astype(np.float32), np.float32(0)
    )
    return rel


def h_ap_by_value(sequence: LevelSequence, counts: Counts, exponent: float) -> float:
    """Compute H-AP as the released evaluator does: relevances are float32, and the items of a level
    are found by their relevance, so that items of two levels with equal relevance count in both.

    `counts` (L+1,): |Ω^(l)|, the divisors of the relevances. `exponent`: α in (l/(L−1))^α; the
    released code has L − 1 where the paper has L.
    """
    rel = released_relevance(counts, exponent)
    gains = rel[sequence.levels]
    total = gains.sum(dtype=np.float64)
    if total == 0:
        return float("nan")
    # (P,): for each positive k the sum of min(rel(k), rel(j)) over the positives j up to rank k
    h_rank = np.zeros(len(gains))
    for value in rel[1:]:
        h_rank += np.cumsum(gains == value) * np.minimum(gains, value)
    return float((h_rank / sequence.ranks).sum() / total)


def without_last(sequence: LevelSequence) -> LevelSequence:
    """Remove the item ranked last from a level sequence and from its counts, as the released
    evaluators do. An empty list is returned unchanged."""
    size = int(sequence.counts.sum())
    if size == 0:
        return sequence
    # the level of that item: a sequence lists positives only, so if the last one does not have the
    # last rank, the item is a distractor
    lost = int(sequence.levels[-1]) if len(sequence.ranks) and sequence.ranks[-1] == size else 0
    counts = sequence.counts - (np.arange(len(sequence.counts)) == lost)
    kept = sequence.ranks < size
    return LevelSequence(
        ranks=sequence.ranks[kept], levels=sequence.levels[kept], counts=counts, tied=sequence.tied
    )


def query_set_counts(labels: Labels) -> Counts:
    """For each query, count the queries, itself included, that share exactly l = 0 … L levels with
    it: (Q, L+1). `labels` (Q, L): of all queries."""
    # sort equal labels together; their order among themselves does not matter, so all keys are 0
    order = canonical_order(labels, np.zeros(len(labels), np.uint64))
    # (Q, L) each: the range of the sorted queries that share at least l levels with each query
    starts, ends = level_ranges(labels, labels[order])
    # (Q, L + 2): how many share at least 0 levels (all), 1 … L levels, and L + 1 levels (none)
    at_least = np.column_stack(
        [np.full(len(labels), len(labels)), ends - starts, np.zeros(len(labels), np.int64)]
    )
    counts: Counts = at_least[:, :-1] - at_least[:, 1:]
    return counts
