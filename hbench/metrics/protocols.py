"""A protocol fixes what the equations leave open; `paper` follows them, `official` reproduces the
released evaluators.

Published tables were made with the released evaluators, so a leaderboard of published rows is
placed by `official` values, from the same ranking pass. The released H-AP differs in three ways
(metrics differ nowhere else on an all-pairs set):

* |Ω^(l)| is counted in the set of the queries, the query itself included (`query_set_counts`),
  except on landmark sets, which count on the retrieved list (`list_counts`);
* the items of a level are found by their float32 relevance, so that two levels of equal relevance
  are each counted in both;
* with a separate gallery the item ranked last is lost, for every metric.

And where the names of the labels form no tree, it compares them column by column
(`hbench.metrics.name_columns`).

Undefined queries are left out of the mean under both; the released code loses their whole batch,
which depends on the batch size.
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
    """One metric under one protocol: a function of a query and its level sequence, and the same in
    parts that can be computed for many queries at once.

    `function`: of a query, by its position in the input, and its level sequence. `arguments`: the
    keywords of the metric's function. `grade`: for H-AP, the relevance and the weight (Q, L+1) of
    the levels for queries (Q,) with level counts (Q, L+1). `loses_last`: the item ranked last is
    dropped first, as released evaluators do where queries are apart from the gallery. `by_name`:
    the value of a query that is ranked by name; None where the protocol goes by the tree. Under
    partial labels (hbench.metrics.readings) a sequence holds codes, of which `reading` makes the
    levels that the function takes; queries whose label ends above `level_required` are skipped.
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
        """The metric's value for the query at this position of the input, from its level sequence;
        under partial labels the sequence holds codes, of which the reading makes levels."""
        levels = sequence if self.reading is None else self.reading.of(sequence)
        return self.function(query, levels)


@dataclass(frozen=True)
class Setting:
    """The data that a protocol may use in addition to the level sequence.

    `levels`: level names. `relevance`, `exponent`: of a bare H-AP. `labels` (Q, L): of the queries.
    `all_pairs`: whether the queries are their own gallery. `names` (Q, L): the labels by name,
    where they form no tree.
    """

    levels: Sequence[str]
    relevance: Relevance
    exponent: float
    labels: Labels
    all_pairs: bool
    names: Labels | None = None


Protocol = Callable[[MetricName, Setting], ScoreQuery]
protocols: Registry[Protocol] = Registry("protocol")


@protocols.register("paper")
def paper(name: MetricName, setting: Setting) -> Scorer:
    """The scorer of a metric by the papers' equations, on the gallery without the query."""
    function = name.bind(setting.levels, setting.relevance)
    arguments = name.arguments(setting.levels, setting.relevance)
    # the number of the query is not used: every list is measured by itself
    return Scorer(name, arguments, lambda query, sequence: function(sequence), _by_level(arguments))


@protocols.register("official")
def official(name: MetricName, setting: Setting) -> Scorer:
    """The scorer of a metric as the released evaluators of HAPPIER and the rank losses compute it:
    the |Ω^(l)| by which relevances are divided are counted in the query set, not in the list."""
    return _released(name, setting, query_set_counts(setting.labels))


@protocols.register("official-landmark")
def official_landmark(name: MetricName, setting: Setting) -> Scorer:
    """The scorer of a metric as the released evaluator of landmark sets computes it: the |Ω^(l)| by
    which relevances are divided are counted in the list that was retrieved."""
    return _released(name, setting, None)


@protocols.register("official-revisited")
def official_revisited(name: MetricName, setting: Setting) -> ScoreQuery:
    """The released evaluator of revisited Oxford and Paris: AP by the trapezoid rule, P@k up to the
    last positive.
    """
    functions: dict[str, Callable[..., float]] = {"AP": trapezoid_ap, "P": p_at_last}
    if name.base not in functions:  # it has these two metrics alone; others go by the equations
        return paper(name, setting)
    arguments = name.arguments(setting.levels)  # level, and the cut of P@k
    return lambda query, sequence: functions[name.base](sequence, **arguments)


def trapezoid_ap(sequence: LevelSequence, *, level: int) -> float:
    """AP by the trapezoid rule: 1/|P_l| Σ_m ((m−1)/(r_m−1) + m/r_m)/2, r_m the rank of the m-th
    positive, P_l all items of `level` or finer; the first term is 1 at rank 1 (Philbin et al. 2007;
    Radenovic et al. 2018)."""
    ranks = positives(sequence, level)
    total = positive_count(sequence, level)
    hits = np.arange(1, len(ranks) + 1)
    # the precision just before each positive; at rank 1 nothing stands before it
    before = np.where(ranks == 1, 1.0, (hits - 1) / np.maximum(ranks - 1, 1))
    return float((before + hits / ranks).sum() / (2 * total)) if total else NAN


def p_at_last(sequence: LevelSequence, *, level: int, cut: int) -> float:
    """P@k' with k' = min(k, r_|P|), k the `cut` and r_|P| the rank of the last positive, an item of
    `level` or finer: items after the last positive do not count. 0 where a list that is cut holds
    no positive, NaN where there is none."""
    ranks = positives(sequence, level)
    if not len(ranks):
        return 0.0 if positive_count(sequence, level) else NAN
    last = min(cut, int(ranks[-1]))
    return float((ranks <= last).sum() / last)


def _released(name: MetricName, setting: Setting, own_counts: Counts | None) -> Scorer:
    """A metric as the released evaluator computes it: without the last result where queries are
    apart from the gallery and, for H-AP, with items of equal relevance as one level.

    `own_counts` (Q, L+1): |Ω^(l)| as counted in the query set; None: in each query's list.
    """
    exponent = float(dict(name.parameters).get("alpha", setting.exponent))
    # the released H-AP knows the relevance alpha alone
    by_value = name.base == "H-AP" and set(dict(name.parameters)) <= {"alpha"}
    function = name.bind(setting.levels, setting.relevance)
    arguments = name.arguments(setting.levels, setting.relevance)

    def score(query: int, sequence: LevelSequence) -> float:
        """The value of the query at this position of the input."""
        listed = sequence if setting.all_pairs else without_last(sequence)
        if not by_value:
            return function(listed)
        return h_ap_by_value(
            listed, listed.counts if own_counts is None else own_counts[query], exponent
        )

    def grade(queries: NDArray[np.int64], counts: Counts) -> tuple[NDArray[np.float64], Counts]:
        """The relevance and weight (n, L+1) of every level for n queries; `counts` (n, L+1): the
        items of each level in their lists."""
        rel = released_relevance(counts if own_counts is None else own_counts[queries], exponent)
        # (Q, L+1): how many levels have the same relevance; an item counts in each of them
        equal_levels = (rel[:, :, None] == rel[:, None, 1:]).sum(axis=2)
        return rel.astype(np.float64), equal_levels

    by_name = None  # where the names form a tree, the tree has the same levels
    if setting.names is not None:
        # names are counted where levels are: in the query set, or in each list
        own_names = None if own_counts is None else setting.names
        by_name = _by_name(name, setting, own_names, exponent if by_value else None)
    grades = grade if by_value else _by_level(arguments)
    # queries apart from the gallery: the released code loses the item that is ranked last
    return Scorer(name, arguments, score, grades, loses_last=not setting.all_pairs, by_name=by_name)


def _by_name(
    name: MetricName, setting: Setting, names: Labels | None, exponent: float | None
) -> ScoreNamed:
    """Make the function of a query that is ranked by name, where labels form no tree: a metric of
    one level looks at its column, any other at the number of equal columns.

    `exponent`: α of an H-AP that is computed as released; None for any other metric. `names`
    (Q, L): of the query set, in which the released H-AP counts |Ω^(l)|; None: it counts in the
    list.
    """
    function = name.definition.function
    arguments = name.arguments(setting.levels, setting.relevance)

    def of_column(query: int, named: NamedSequences) -> float:
        """The value by the names of one level alone: a tree of one level, whose positives have
        level 1."""
        return function(listed(named.columns[arguments["level"] - 1]), **arguments | {"level": 1})

    def of_columns(query: int, named: NamedSequences) -> float:
        """wAP: the weighted mean of the AP of each column of names."""
        return weighted(
            [ap(listed(column), level=1) for column in named.columns], arguments["weights"]
        )

    def of_whole(query: int, named: NamedSequences) -> float:
        """The value by the number of names that agree, which is an item's level here. H-AP as
        released counts the items of each level among the query set's names, if given."""
        if exponent is None:
            return function(listed(named.whole), **arguments)
        whole = listed(named.whole)
        if names is None:
            return h_ap_by_value(whole, whole.counts, exponent)
        counts = np.bincount(equal_columns(names[query], names), minlength=names.shape[1] + 1)
        return h_ap_by_value(whole, counts, exponent)

    def listed(sequence: LevelSequence) -> LevelSequence:
        """The list as the released evaluator has it: without the item ranked last, where the
        queries have a gallery apart from themselves."""
        return sequence if setting.all_pairs else without_last(sequence)

    # AP# has a level, too, but is of a number of equal columns
    if name.base == "wAP":
        return of_columns
    return of_column if "level" in arguments and name.base != "AP#" else of_whole


def _by_level(arguments: Mapping[str, Any]) -> Grade | None:
    """How a metric's levels are graded: a function that gives the relevance and weight (n, L+1) of
    every level, from the counts (n, L+1) of the items of each; the weight is 1, an item counts
    once. None for a metric that takes no relevance. `arguments`: those of the metric's function."""
    if "relevance" not in arguments:
        return None
    return lambda queries, counts: (arguments["relevance"](counts), np.ones_like(counts))


def scorers_by_name(scorers: Sequence[ScoreQuery]) -> dict[int, ScoreNamed]:
    """The functions that value a query ranked by name, from the position of each scorer among all;
    scorers that go by the tree alone have none."""
    return {
        row: scorer.by_name
        for row, scorer in enumerate(scorers)
        if isinstance(scorer, Scorer) and scorer.by_name
    }


def released_relevance(counts: Counts, exponent: float) -> NDArray[np.float32]:
    """The relevance (…, L+1) of an item of each level l as the released evaluator has it:
    (l/(L−1))^α / counts[l] in float32, 0 for distractors and for levels without items. `counts`
    (…, L+1): the items of each level, from 0; `exponent`: α."""
    # L − 1 and float32 as in the released code: its rounding decides which levels are equal
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
    """H-AP as the released evaluator computes it: relevances in float32, and the items of a level
    found by their relevance, so that two levels of equal relevance are each counted in both.

    `counts` (L+1,): |Ω^(l)|, by which relevances are divided; `exponent`: α of (l/(L−1))^α, in
    which the released code has L − 1 where the paper has L. A sequence has the ranks and levels of
    the positives (P,), in the order of their ranks.
    """
    rel = released_relevance(counts, exponent)
    gains = rel[sequence.levels]
    total = gains.sum(dtype=np.float64)
    if total == 0:
        return float("nan")
    # per positive k: Σ of min(rel(k), rel(j)) over those up to rank k
    h_rank = np.zeros(len(gains))
    for value in rel[1:]:
        h_rank += np.cumsum(gains == value) * np.minimum(gains, value)
    return float((h_rank / sequence.ranks).sum() / total)


def without_last(sequence: LevelSequence) -> LevelSequence:
    """The sequence of a list (ranks and levels of its positives, counts of all its items by level)
    without its last item, which is taken off the counts, too: the evaluators that were released
    with the papers of H-AP lose it. An empty list has no last item, and stays as it is."""
    size = int(sequence.counts.sum())
    if size == 0:
        return sequence
    # its level: that of the last positive if this has the last rank, else 0
    lost = int(sequence.levels[-1]) if len(sequence.ranks) and sequence.ranks[-1] == size else 0
    counts = sequence.counts - (np.arange(len(sequence.counts)) == lost)
    kept = sequence.ranks < size
    return LevelSequence(sequence.ranks[kept], sequence.levels[kept], counts, sequence.tied)


def query_set_counts(labels: Labels) -> Counts:
    """Count the queries that share exactly 0 … L levels with each query, itself included; (Q, L+1),
    of the labels (Q, L) of all queries."""
    # equal labels side by side; their order among themselves (the keys, all 0) changes no count
    order = canonical_order(labels, np.zeros(len(labels), np.uint64))
    # (Q, L) each: from where to where the queries lie that share at least l levels with each
    starts, ends = level_ranges(labels, labels[order])
    # (Q, L + 2): all share at least 0 levels, none at least L + 1
    at_least = np.column_stack(
        [np.full(len(labels), len(labels)), ends - starts, np.zeros(len(labels), np.int64)]
    )
    counts: Counts = at_least[:, :-1] - at_least[:, 1:]
    return counts
