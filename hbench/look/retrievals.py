"""Finds what a model retrieves for some queries, and which queries are worth a look: the worst, the best, the most severe.

Only the chosen queries are ranked, each against the whole gallery. Equal scores are ordered by the evaluation's ties policy. A
score may differ in its last bit from that of an evaluation, whose matrix products are larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName
from hbench.datasets.manifest import Manifest
from hbench.engine.ranker import Ranker, Side
from hbench.engine.settings import Conditions
from hbench.engine.similarity import SelectedRows
from hbench.engine.top_k import NO_ITEM, TopResults
from hbench.evaluation.submission import EmbeddingSubmission, retrieval_of
from hbench.look.palette import mark_of

UNRELATED = "unrelated"
Floats = NDArray[np.float64]
Queries = NDArray[np.int64]  # positions among the queries of a test


class TopLists(NamedTuple):
    """The first k results of some queries: `items` (Q, k), positions in the manifest, or NO_ITEM after the end of a list;
    `scores` (Q, k); `levels` (Q, k)."""

    items: NDArray[np.int32]
    scores: Floats
    levels: NDArray[np.uint8]


class Hit(NamedTuple):
    """A result of a query; `level` 0 … L is that of the pair, `position` that of the item in the manifest."""

    rank: int
    item: str
    score: float
    level: int
    position: int


def first_results(
    manifest: Manifest, submission: EmbeddingSubmission, queries: Queries, conditions: Conditions, k: int
) -> TopLists:
    """Rank these queries and keep the first k results of each, in the order of `queries`."""
    ranker = ranker_of(manifest, submission, queries, conditions)
    top = TopResults(len(queries), k)
    for block in range(ranker.blocks):
        scores, first = ranker.scores.whole(block), block * ranker.scores.block_size
        ranker.mask(scores, first)
        top.keep(ranker, scores, first)
    return lists_of(manifest, ranker, top, conditions.similarity_name)


def lists_of(manifest: Manifest, ranker: Ranker, top: TopResults, similarity: str) -> TopLists:
    """Convert kept results to positions in the manifest, with similarities."""
    positions = np.append(np.flatnonzero(manifest.gallery), NO_ITEM).astype(np.int32)
    return TopLists(positions[top.items], top.similarities(ranker, similarity), top.levels)


def hits_of(manifest: Manifest, top: TopLists, row: int) -> tuple[Hit, ...]:
    """List the results in one row of the lists, best first."""
    ranked = zip(*(part[row].tolist() for part in top), strict=True)
    return tuple(
        Hit(rank, str(manifest.items[item]), score, level, item)
        for rank, (item, score, level) in enumerate(ranked, start=1)
        if item != NO_ITEM
    )


def ranker_of(manifest: Manifest, submission: EmbeddingSubmission, queries: Queries, conditions: Conditions) -> Ranker:
    """Make a ranker of these queries of a test against the whole gallery."""
    test = retrieval_of(manifest, *submission.parts)
    vectors = cast("SelectedRows", test.queries.vectors)
    some: Any = SelectedRows(vectors.vectors, vectors.rows[queries])
    ignore = None if test.queries.ignore is None else test.queries.ignore[queries]
    self_rows = queries if test.self_rows is None else test.self_rows[queries]
    known = None if test.queries.known is None else test.queries.known[queries]
    side = Side(some, test.queries.labels[queries], ignore, known)
    gallery = test.gallery or test.queries
    return Ranker(side, gallery, self_rows=self_rows, similarity=conditions.similarity, tie_key=conditions.ties)


def by_id(manifest: Manifest, ids: Sequence[str]) -> Queries:
    """Find the queries with these ids; raises UnknownName."""
    position = {item: number for number, item in enumerate(manifest.items[manifest.query].tolist())}
    for item in ids:
        if item not in position:
            raise UnknownName("query", item, list(position))
    return np.array([position[item] for item in ids], np.int64)


def of_class(manifest: Manifest, name: str) -> Queries:
    """Find the queries of a class at any level of the tree; raises UnknownName."""
    labels, names = manifest.labels[manifest.query], manifest.tree.names
    for level, of_level in enumerate(names):
        if name in of_level:
            return np.flatnonzero(labels[:, level] == of_level.index(name))
    raise UnknownName("class", name, [node for of_level in names for node in of_level])


def at_random(manifest: Manifest, number: int, seed: int = 0) -> Queries:
    """Choose some queries at random, by a seed."""
    queries = int(manifest.query.sum())
    return np.random.default_rng(seed).choice(queries, size=min(number, queries), replace=False)


def worst_first(values: Floats) -> Queries:
    """Sort the queries by the goodness (Q,) of their values, worst first; leave out those without a value."""
    order = np.argsort(values, kind="stable")
    return order[~np.isnan(values[order])]


def most_severe_first(values: Floats, first_level: NDArray[np.integer]) -> Queries:
    """Sort the queries by the level (Q,) of their first result, lowest first, then by the goodness (Q,) of their values.

    Queries without a value are left out.
    """
    order = np.lexsort((np.nan_to_num(values, nan=np.inf), first_level))
    return order[~np.isnan(values[order])]


def level_name(level: int, levels: Sequence[str]) -> str:
    """Name what a pair of this level shares: the name of the level, or "unrelated".

    >>> level_name(2, ("genus", "species")), level_name(0, ("genus", "species"))
    ('species', 'unrelated')
    """
    return levels[level - 1] if level else UNRELATED


def legend_of(levels: Sequence[str]) -> list[tuple[int, str, str]]:
    """List number, mark and name of every level of a pair, finest first.

    >>> legend_of(("genus", "species"))
    [(2, '■■', 'species'), (1, '■□', 'genus'), (0, '□□', 'unrelated')]
    """
    return [(level, mark_of(level, len(levels)), level_name(level, levels)) for level in range(len(levels), -1, -1)]
