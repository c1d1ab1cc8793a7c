"""Finds what a model retrieves for some queries, and which queries are worth a look: the worst, the best, the most severe.

Only the queries that are asked for are ranked, each against the whole gallery. Equal scores come in the order of the
evaluation's ties policy. A score may differ in its last bit from that of an evaluation, which multiplies more at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName, UsageError
from hbench.datasets.manifest import Manifest
from hbench.engine.measure import Measurement
from hbench.engine.ranker import Ranker, Side
from hbench.engine.settings import Conditions
from hbench.engine.similarity import SelectedRows
from hbench.engine.top_k import NO_ITEM, TopResults
from hbench.evaluation.submission import EmbeddingSubmission, retrieval_of
from hbench.metrics.names import goodness

UNRELATED = "unrelated"


class Hit(NamedTuple):
    """One result of a query. `level`: that of the pair, 0 … L."""

    rank: int
    item: str
    score: float
    level: int


class Retrieved(NamedTuple):
    """The first results of one query."""

    query: str
    hits: tuple[Hit, ...]


Choose = Callable[[Manifest, Measurement | None], NDArray[np.int64]]  # positions among the queries of a test


def retrieve(
    manifest: Manifest, given: EmbeddingSubmission, asked: NDArray[np.int64], conditions: Conditions, k: int
) -> list[Retrieved]:
    """The first k results of the queries at these positions among a test's queries (n,), in that order."""
    ranker = ranker_of(manifest, given, asked, conditions)
    ranked = manifest.items[manifest.gallery]
    top = TopResults(len(asked), k)
    for block in range(ranker.blocks):
        scores, first = ranker.scores.whole(block), block * ranker.scores.block_size
        ranker.mask(scores, first)
        top.keep(ranker, scores, first)
    rows = zip(top.items, top.similarities(ranker, conditions.similarity_name), top.levels, strict=True)
    return [
        Retrieved(str(query), hits_of(ranked[items[items != NO_ITEM]], scores, levels))
        for query, (items, scores, levels) in zip(manifest.items[manifest.query][asked], rows, strict=True)
    ]


def hits_of(items: Iterable[str], scores: Iterable[float], levels: Iterable[int]) -> tuple[Hit, ...]:
    """The results of one query, best first."""
    ranked = zip(items, scores, levels, strict=False)
    return tuple(Hit(rank, str(item), float(score), int(level)) for rank, (item, score, level) in enumerate(ranked, 1))


def ranker_of(
    manifest: Manifest, given: EmbeddingSubmission, asked: NDArray[np.int64], conditions: Conditions
) -> Ranker:
    """A ranker of the queries at these positions among a test's queries (n,), against its whole gallery."""
    test = retrieval_of(manifest, *given.parts)
    vectors = cast("SelectedRows", test.queries.vectors)
    some: Any = SelectedRows(vectors.vectors, vectors.rows[asked])
    ignore = None if test.queries.ignore is None else test.queries.ignore[asked]
    own = asked if test.self_rows is None else test.self_rows[asked]
    known = None if test.queries.known is None else test.queries.known[asked]
    side = Side(some, test.queries.labels[asked], ignore, known)
    gallery = test.gallery or test.queries
    return Ranker(side, gallery, self_rows=own, similarity=conditions.similarity, tie_key=conditions.ties)


def by_id(ids: Sequence[str]) -> Choose:
    """The queries of these ids. Raises UnknownName."""

    def choose(manifest: Manifest, _measured: Measurement | None) -> NDArray[np.int64]:
        position = {item: number for number, item in enumerate(manifest.items[manifest.query].tolist())}
        for item in ids:
            if item not in position:
                raise UnknownName("query", item, list(position))
        return np.array([position[item] for item in ids], np.int64)

    return choose


def of_class(name: str, most: int) -> Choose:
    """The first queries of a class, at whatever level of the tree its name is. Raises UnknownName."""

    def choose(manifest: Manifest, _measured: Measurement | None) -> NDArray[np.int64]:
        labels, names = manifest.labels[manifest.query], manifest.tree.names
        for level, of_level in enumerate(names):
            if name in of_level:
                return np.flatnonzero(labels[:, level] == of_level.index(name))[:most]
        raise UnknownName("class", name, [each for of_level in names for each in of_level])

    return choose


def at_random(number: int, seed: int = 0) -> Choose:
    """Some queries at random, the same for a seed."""

    def choose(manifest: Manifest, _measured: Measurement | None) -> NDArray[np.int64]:
        queries = int(manifest.query.sum())
        return np.random.default_rng(seed).choice(queries, size=min(number, queries), replace=False)

    return choose


def by_value(metric: str, number: int, *, best: bool) -> Choose:
    """The queries of the worst, or the best values of a metric; those without a value are left out."""

    def choose(_manifest: Manifest, measured: Measurement | None) -> NDArray[np.int64]:
        values = goodness(metric, _values(measured))
        order = np.argsort(-values if best else values, kind="stable")
        return order[~np.isnan(values[order])][:number]

    return choose


def most_severe(metric: str, number: int) -> Choose:
    """The queries whose first result is of the lowest level; among them, those of the worst values of the metric."""

    def choose(_manifest: Manifest, measured: Measurement | None) -> NDArray[np.int64]:
        values = goodness(metric, _values(measured))
        assert measured is not None
        order = np.lexsort((np.nan_to_num(values, nan=np.inf), measured.first_level))
        return order[~np.isnan(values[order])][:number]

    return choose


def _values(measured: Measurement | None) -> NDArray[np.float64]:
    if measured is None:
        raise UsageError("these queries are chosen by a metric, and nothing was measured")
    values: NDArray[np.float64] = measured.values[0]
    return values


def level_name(level: int, levels: Sequence[str]) -> str:
    """What a pair of this level shares: the level's name, or that it is unrelated.

    >>> level_name(2, ("genus", "species")), level_name(0, ("genus", "species"))
    ('species', 'unrelated')
    """
    return levels[level - 1] if level else UNRELATED
