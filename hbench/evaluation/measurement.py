"""Measures a test: makes a job from its arrays, has the engine compute it block by block, and
collects the values of all queries.

A submitted ranking is measured from its level sequences, which were ranked elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job, Values, View
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Conditions
from hbench.engine.sides import Side
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns, NamedSequences
from hbench.metrics.partial_lists import partial_scorers
from hbench.metrics.protocols import Protocol, ScoreQuery, Setting, scorers_by_name
from hbench.tree import Labels
from hbench.tree.names import have_ambiguous_names

OnBlock = Callable[[int, int], None]
OnTest = Callable[[str], OnBlock]


@dataclass(frozen=True)
class Retrieval:
    """One test of a dataset as arrays.

    Attributes:
        queries: vectors and labels of the queries.
        gallery: those of the gallery; None: the queries rank each other.
        self_rows: (Q,), each query's own row in the gallery, −1 for none. None: there is no
            separate gallery, or no query is in it.
        ids: (Q,), of the queries.
        names: labels by name of queries (Q, L) and gallery (G, L); None if names form a tree.
    """

    queries: Side
    gallery: Side | None
    self_rows: NDArray[np.int64] | None
    ids: NDArray[np.object_]
    names: tuple[Labels, Labels] | None = None

    def of_queries(self, some: NDArray[np.int64]) -> Retrieval:
        """Restrict the test to the queries at the positions `some`. The gallery keeps all items.
        If the queries were the gallery (`self.gallery` is None), the result has a separate gallery
        of all these items, since only `some` of them are still queries."""
        # (Q,): each query's row in the gallery, −1 for none; None if no query is in it. If the
        # queries are the gallery, query q is row q
        rows = np.arange(len(self.ids)) if self.gallery is None else self.self_rows
        names = None
        if self.names is not None:
            query_labels, gallery_labels = self.names  # labels by name, (Q, L) and (G, L)
            names = (query_labels[some], gallery_labels)
        return Retrieval(
            queries=self.queries.of(some),
            gallery=self.gallery or self.queries,
            self_rows=None if rows is None else rows[some],
            ids=self.ids[some],
            names=names,
        )


def several_in_words(items: int, most: int) -> str:
    """Make the remark on the number of items with several paths. `most`: the largest number of
    paths of an item."""
    return (
        f"{items:,} items have several paths, up to {most}: the level of a pair is the largest "
        "over all pairs of their paths; "
        "intervals go by the class of a query's first path"
    )


def scorers_of(
    conditions: Conditions,
    labels: Labels,
    *,
    keeps_last: bool,
    also: Protocol | None = None,
    names: Labels | None = None,
) -> list[ScoreQuery]:
    """Make the scorers that give a report its values: those of every metric under the protocol,
    then those of every metric under a second one. Under partial labels there is no second protocol;
    instead, the scorers of the lower bounds follow, and then those of the upper bounds. Only
    metrics that use all levels have bounds.

    Args:
        conditions: the metrics, the protocol and their settings.
        labels: (Q, L), of the queries, by node of the tree.
        keeps_last: whether released evaluators keep the item ranked last of each list, as they do
            if the queries are the gallery, and those for listed positives always; else they drop
            it.
        also: the second protocol; None: there is none.
        names: (Q, L), the labels by name, which released evaluators compare; None if names form a
            tree.
    """
    setting = Setting(
        conditions.levels, conditions.relevance, conditions.exponent, labels, keeps_last, names
    )
    if conditions.words.partial:  # `also` is None then: no released evaluator has partial labels
        return list(partial_scorers(conditions.metrics, setting))
    protocols = [conditions.protocol] if also is None else [conditions.protocol, also]
    return [protocol(metric, setting) for protocol in protocols for metric in conditions.metrics]


def job_of(
    test: Retrieval,
    conditions: Conditions,
    *,
    also: Protocol | None = None,
    memory: int | None = None,
    keeps_last: bool | None = None,
) -> Job:
    """Make the job that computes every metric of every query of a test.

    `also`: a second protocol, whose values are computed in the same pass. `memory`: the most bytes
    held beyond the embeddings. `keeps_last`: whether released evaluators keep the item ranked last
    of each list. None: they do if the queries are the gallery of the test, and drop it otherwise.
    """
    names = None if test.names is None else test.names[0]  # (Q, L), of the queries
    if keeps_last is None:
        keeps_last = test.gallery is None
    scorers = scorers_of(
        conditions, test.queries.labels, keeps_last=keeps_last, also=also, names=names
    )
    results = 8 * len(scorers) * len(test.queries.labels)  # bytes of the values, float64
    queries = test.queries
    gallery = test.gallery

    # `known` is None if no label of this test ends early. The conditions are partial if labels of
    # any test of the dataset end early. The scorers are then those of partial labels, which need
    # `known` in every test: here it says that all levels are known.
    if conditions.words.partial and queries.known is None:
        queries = _fully_known(queries)
        gallery = gallery and _fully_known(gallery)

    ranker = Ranker(
        queries,
        gallery,
        self_rows=test.self_rows,
        similarity=conditions.similarity,
        tie_key=conditions.ties,
        # the values are held, too, so the ranker gets the rest
        memory=None if memory is None else memory - results,
    )
    # labels by name, for scorers that compare names as released evaluators do
    by_name = _columns_by_name(test, ranker, conditions) if scorers_by_name(scorers) else None
    return Job(
        ranker,
        scorers,
        _conditions_in_words(conditions, also),
        by_name=by_name,
    )


def _conditions_in_words(conditions: Conditions, also: Protocol | None) -> str:
    """Write everything besides the ranker that the values depend on as one text, by which kept
    blocks of other conditions are recognised. `also`: the second protocol."""
    metrics = ",".join(map(str, conditions.metrics))
    words = [str(conditions.signature("", ())), metrics]
    if also is not None:
        words.append(also.__name__)
    return " ".join(words)


def _fully_known(side: Side) -> Side:
    """Return the side with `known` set: all of its labels are known to the finest level."""
    depth = side.labels.shape[1]
    more = side.more
    if more is not None:
        more = more._replace(known=np.full(len(more.items), depth, np.uint8))
    return replace(side, known=np.full(len(side.labels), depth, np.uint8), more=more)


def _columns_by_name(test: Retrieval, ranker: Ranker, conditions: Conditions) -> NameColumns | None:
    """Return the labels by name of queries and gallery, each in the ranker's order. None if no
    query is affected, that is has a name that stands for several nodes of the tree."""
    assert test.names is not None  # called only for scorers by name, which need these labels
    # (Q, L) and (G, L), in input order
    of_queries, of_gallery = test.names
    gallery = test.queries if test.gallery is None else test.gallery
    # of both sides: a name may stand for one node among queries, and for another in the gallery
    nodes = np.concatenate([test.queries.labels, gallery.labels])
    are_ambiguous = have_ambiguous_names(np.concatenate(test.names), nodes)
    affected = are_ambiguous[: len(test.queries.labels)]  # the queries come first
    if not affected.any():
        return None
    # `ranker.queries` (Q,), `ranker.columns` (G,): the input positions in the ranker's order
    return NameColumns(
        queries=of_queries[ranker.queries],
        gallery=of_gallery[ranker.columns],
        affected=affected[ranker.queries],
        ties=conditions.ties,
    )


@dataclass(frozen=True)
class Measurement:
    """What was measured for Q queries, in the order of the input.

    Attributes:
        values: float64 (M, Q), NaN where undefined.
        first_level: (Q,), the level of the item ranked first.
        counts: (Q, L+1), the number of items of each level in the query's gallery.
        tied: (Q,), whether items with equal scores differ in level.
        canonical: the positions of the measured queries, in the order in which values are summed.
        others: the measurements under the job's other views.
    """

    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    counts: NDArray[np.int64]
    tied: NDArray[np.bool_]
    canonical: NDArray[np.int64]
    others: tuple[Measurement, ...] = ()


def measure(
    job: Job,
    *,
    execute: Execute = on_threads,
    blocks: Sequence[int] | None = None,
    on_block: OnBlock | None = None,
) -> Measurement:
    """Compute the values of a job's queries: of all, or of those in some `blocks`.

    `execute`: computes the blocks. `on_block`: called with the number of finished blocks and the
    number of all.
    """
    ranker = job.ranker
    chosen = range(ranker.blocks) if blocks is None else blocks
    # values of all queries, in the order of the input, NaN until their block is done
    result = job.nothing(len(ranker.queries))
    # `ranker.rows(block)`: the input positions of the queries of a block
    for done, (block, values) in enumerate(execute(job, chosen), start=1):
        result.put(ranker.rows(block), values)
        if on_block:
            on_block(done, len(chosen))
    # `chosen` may be empty, if the blocks are divided into more shares than there are blocks
    measured = np.concatenate([ranker.rows(block) for block in chosen] or [ranker.queries[:0]])
    # `others`: the same rankings, by the levels of other trees
    views = zip((job, *job.others), (result, *result.others), strict=True)
    own, *others = [
        _measurement(view, values, measured, is_whole=blocks is None) for view, values in views
    ]
    return replace(own, others=tuple(others))


def _measurement(
    view: View, values: Values, measured: NDArray[np.int64], *, is_whole: bool
) -> Measurement:
    """Make the measurement of one view of the labels (the dataset's own, or another tree).

    For means, the values are summed in the order `view.canonical`, if there is one and all blocks
    were computed (`is_whole`), else in the order of `measured` (n,), the positions of the measured
    queries. The order decides the last bits of the means.
    """
    canonical = measured if view.canonical is None or not is_whole else view.canonical
    return Measurement(values.values, values.first_level, values.counts, values.tied, canonical)


def measured_sequences(
    sequences: Sequence[LevelSequence],
    scorers: Sequence[ScoreQuery],
    *,
    canonical: NDArray[np.int64],
    named: Mapping[int, NamedSequences] | None = None,
) -> Measurement:
    """Measure lists that were ranked elsewhere, given as level sequences, one for each query.

    `scorers`: compute the values of a query. `canonical` (Q,): the order in which means are summed,
    which decides their last bits. `named`: {query: its sequences by name}, for queries of which
    a name stands for several nodes; scorers that compare names use these sequences.
    """
    values = [
        [scorer(query, sequence) for query, sequence in enumerate(sequences)] for scorer in scorers
    ]
    # `scorers_by_name`: {position in `scorers`: scorer}, of those that compare names as released
    # evaluators do
    for row, scorer in scorers_by_name(scorers).items():
        for query, by_name in (named or {}).items():
            values[row][query] = scorer(query, by_name)

    # the level of the item at rank 1: that of the first positive if it has rank 1, else 0
    first = [
        int(each.levels[0]) if len(each.ranks) and each.ranks[0] == 1 else 0 for each in sequences
    ]
    return Measurement(
        values=np.array(values, dtype=np.float64),
        first_level=np.array(first, dtype=np.uint8),
        counts=np.stack([sequence.counts for sequence in sequences]),
        tied=np.array([sequence.tied for sequence in sequences]),
        canonical=canonical,
    )
