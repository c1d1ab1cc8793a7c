"""Measures a test: makes its arrays a job of the engine, which ranks every query and computes
metrics by block.

A submitted ranking, and a benchmark that lists each query's positives pair by pair, are measured by
level sequences that were ranked elsewhere.
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

    `queries`, `gallery`: vectors and labels of both sides, None: the queries rank each other.
    `self_rows` (Q,): each query's own row in the gallery, −1 for none; None: there is no gallery,
    or no query is in it. `ids` (Q,): of the queries. `names`: the labels (Q, L), (G, L) of queries
    and gallery by name, where the released evaluators see them otherwise than the tree.
    """

    queries: Side
    gallery: Side | None
    self_rows: NDArray[np.int64] | None
    ids: NDArray[np.object_]
    names: tuple[Labels, Labels] | None = None

    def of_queries(self, some: NDArray[np.int64]) -> Retrieval:
        """The test with some of its queries alone, by their positions; the gallery stays the
        same."""
        # where the queries are the gallery, query q is its row q
        rows = np.arange(len(self.ids)) if self.gallery is None else self.self_rows
        names = None
        if self.names is not None:
            of_queries, of_gallery = self.names
            names = (of_queries[some], of_gallery)
        return Retrieval(
            queries=self.queries.of(some),
            gallery=self.gallery or self.queries,
            self_rows=None if rows is None else rows[some],
            ids=self.ids[some],
            names=names,
        )


def several_in_words(items: int, most: int) -> str:
    """Say how many items have several paths, `most` at most, and what that means for scores."""
    return (
        f"{items:,} items have several paths, up to {most}: the level of a pair is the largest "
        "over all pairs of their paths; "
        "intervals go by the class of a query's first path"
    )


def scorers_of(
    conditions: Conditions,
    labels: Labels,
    *,
    all_pairs: bool,
    also: Protocol | None = None,
    names: Labels | None = None,
) -> list[ScoreQuery]:
    """The functions of one query that give a report its values: every metric under the protocol,
    then under `also`. Of partial labels each metric of all levels also gets two bounds, with all
    that is unknown taken as wrong, and as right.

    `labels` (Q, L): those of the queries, by node of the tree. `names` (Q, L): the same by name
    alone, where some nodes share a name: released evaluators compare names. `all_pairs`: whether
    queries and gallery are the same items: released evaluators then keep the item that is ranked
    last, which they drop otherwise.
    """
    setting = Setting(
        conditions.levels, conditions.relevance, conditions.exponent, labels, all_pairs, names
    )
    if conditions.words.partial:  # never with `also`: released evaluators do not know such labels
        return list(partial_scorers(conditions.metrics, setting))
    protocols = [conditions.protocol] if also is None else [conditions.protocol, also]
    return [protocol(metric, setting) for protocol in protocols for metric in conditions.metrics]


def job_of(
    test: Retrieval,
    conditions: Conditions,
    *,
    also: Protocol | None = None,
    memory: int | None = None,
    all_pairs: bool | None = None,
) -> Job:
    """One test as a job: every metric of every query, under the protocol and `also` in the same
    pass.

    `memory` bounds what the evaluation holds beyond the embeddings, in bytes. `all_pairs`: whether
    released evaluators keep the item that is ranked last, by default where the queries are their
    own gallery.
    """
    names = None if test.names is None else test.names[0]
    keeps_last = test.gallery is None if all_pairs is None else all_pairs
    scorers = scorers_of(
        conditions, test.queries.labels, all_pairs=keeps_last, also=also, names=names
    )
    results = 8 * len(scorers) * len(test.queries.labels)  # bytes of the values, float64
    queries = test.queries
    gallery = test.gallery

    # only another test of the dataset has partial labels: those of this test are all known to the
    # finest level, which both sides must state
    if conditions.words.partial and queries.known is None:
        queries = _fully_known(queries)
        gallery = gallery and _fully_known(gallery)

    ranker = Ranker(
        queries,
        gallery,
        self_rows=test.self_rows,
        similarity=conditions.similarity,
        tie_key=conditions.ties,
        memory=None if memory is None else memory - results,
    )
    by_name = _columns_by_name(test, ranker, conditions) if scorers_by_name(scorers) else None
    return Job(
        ranker,
        scorers,
        _conditions_in_words(conditions, also),
        by_name=by_name,
    )


def _conditions_in_words(conditions: Conditions, also: Protocol | None) -> str:
    """What the values depend on beside the ranker, as one text: blocks that were kept under other
    conditions are then not taken for these. `also`: the second protocol."""
    metrics = ",".join(map(str, conditions.metrics))
    words = [str(conditions.signature("", ())), metrics]
    if also is not None:
        words.append(also.__name__)
    return " ".join(words)


def _fully_known(side: Side) -> Side:
    """The side with all of its labels stated to be known to the finest level, where partial labels
    of another test want it said."""
    depth = side.labels.shape[1]
    more = side.more
    if more is not None:
        more = more._replace(known=np.full(len(more.items), depth, np.uint8))
    return replace(side, known=np.full(len(side.labels), depth, np.uint8), more=more)


def _columns_by_name(test: Retrieval, ranker: Ranker, conditions: Conditions) -> NameColumns | None:
    """The labels by name, queries and gallery each in the order of the ranker; None where no query
    is affected: a query is, if one of its names stands for several nodes of the tree."""
    assert test.names is not None  # there are scorers by name only where the tree has names
    of_queries, of_gallery = test.names
    gallery = test.queries if test.gallery is None else test.gallery
    # of both sides, since items of either can show that a name stands for several nodes
    nodes = np.concatenate([test.queries.labels, gallery.labels])
    are_ambiguous = have_ambiguous_names(np.concatenate(test.names), nodes)
    affected = are_ambiguous[: len(test.queries.labels)]  # the queries come first
    if not affected.any():
        return None
    return NameColumns(
        of_queries[ranker.queries],
        of_gallery[ranker.columns],
        affected[ranker.queries],
        conditions.ties,
    )


@dataclass(frozen=True)
class Measurement:
    """`values` (M, Q) float64 in input order, NaN where undefined. `first_level` (Q,): the level of
    the item ranked first.

    `counts` (Q, L+1): items per level in each query's gallery. `tied` (Q,): queries whose equal
    scores differ in level. `canonical` (Q,): the input positions of the measured queries, in the
    order in which values are to be summed. `others`: under the job's other views.
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
    """Apply the job's scorers to the level sequence of every query, or of those of some `blocks`.

    `execute` computes the blocks; `on_block(done, blocks)` is told of progress.
    """
    ranker = job.ranker
    chosen = range(ranker.blocks) if blocks is None else blocks
    # values of all queries, in the order of the input, NaN until their block is done
    result = job.nothing(len(ranker.queries))
    for done, (block, values) in enumerate(execute(job, chosen), start=1):
        result.put(ranker.rows(block), values)
        if on_block:
            on_block(done, len(chosen))
    # of no blocks, such as a share of fewer blocks than shares, no query is measured
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
    """The values of one view of the labels (the dataset's own, or another tree), with the order in
    which means are summed, which decides their last bits.

    That is the view's own order, if it has one and all blocks were measured (`is_whole`); else the
    order of `measured` (n,), the input positions of the measured queries.
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
    """The measurement of lists that somebody else ranked: level sequences, one per query.

    `scorers`: the functions of one query that give its values; `canonical` (Q,): the order in which
    means are summed, which decides their last bits; `named`: {query: its sequence by name}, of
    queries for which some names stand for several nodes.
    """
    values = [
        [scorer(query, sequence) for query, sequence in enumerate(sequences)] for scorer in scorers
    ]
    for row, scorer in scorers_by_name(scorers).items():
        for query, by_name in (named or {}).items():
            values[row][query] = scorer(query, by_name)

    # the level of the item at rank 1, which is a positive or of level 0
    first = [
        int(each.levels[0]) if len(each.ranks) and each.ranks[0] == 1 else 0 for each in sequences
    ]
    return Measurement(
        np.array(values, dtype=np.float64),
        np.array(first, dtype=np.uint8),
        np.stack([sequence.counts for sequence in sequences]),
        np.array([sequence.tied for sequence in sequences]),
        canonical,
    )
