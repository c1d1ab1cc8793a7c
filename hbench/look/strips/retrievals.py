"""Finds what a model retrieves for some queries, and which queries are worth a look: the worst, the
best, and the most severe mistakes.

Only the chosen queries are ranked, each against the whole gallery. Equal scores are ordered by the
evaluation's ties policy. A score may differ in its last bit from the score in an evaluation, which
multiplies larger matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName
from hbench.datasets.manifest import Manifest
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Conditions
from hbench.engine.top_k import NO_ITEM, TopResults
from hbench.evaluation.submission.embedding import EmbeddingSubmission, retrieval_of
from hbench.look.palette import mark_of
from hbench.tree.partial import known_levels, shown_along

UNRELATED = "unrelated"
SHOWN_RESULTS = 8
WAYS = ("queries", "class_name", "worst", "best", "severe", "at_random")
Floats = NDArray[np.float64]
Queries = NDArray[np.int64]  # positions among the queries of a test


class Choice(NamedTuple):
    """How queries are chosen. `way`: one of WAYS. `value`: its argument, such as ids, the name of a
    class, or a number of queries."""

    way: str
    value: Any


class TopLists(NamedTuple):
    """The first k results of Q queries.

    Attributes:
        items: (Q, k) positions in the manifest, NO_ITEM after the end of a list.
        scores: (Q, k) similarities.
        levels: (Q, k) levels of the pairs.
        copies: (Q, k) whether the result's vector equals the query's.
        right: the first result of each query's finest class; None if only the first k results are
            known.
    """

    items: NDArray[np.int32]
    scores: Floats
    levels: NDArray[np.uint8]
    copies: NDArray[np.bool_]
    right: FirstRight | None = None


class FirstRight(NamedTuple):
    """The first result of each query's finest class: `ranks`, `items` (positions in the manifest)
    and `scores` (Q,). A rank of 0 means that there is no such result."""

    ranks: NDArray[np.int64]
    items: NDArray[np.int32]
    scores: Floats


class Hit(NamedTuple):
    """A result of a query.

    Attributes:
        rank: the rank, from 1.
        item: the item's id.
        score: the similarity.
        level: the level of the pair, 0 … L.
        position: the item's position in the manifest.
        name: the item's finest class.
        copy: whether the item's vector equals the query's.
    """

    rank: int
    item: str
    score: float
    level: int
    position: int
    name: str = ""
    copy: bool = False


class RightResults(TopResults):
    """Keeps the first k results of each query and, at whatever rank, the first result of the
    query's finest class.

    `right` (Q, 1) has the items and scores of the latter results, `ranks` (Q,) their ranks, 0 where
    there is none. Row q belongs to the query at input position q.
    """

    def __init__(self, queries: int, k: int) -> None:
        """Allocate the arrays for the first `k` results and the first right result of the
        queries."""
        super().__init__(queries, k)
        self.right, self.ranks = TopResults(queries, 1), np.zeros(queries, np.int64)

    def keep(self, ranker: Ranker, scores: NDArray[np.floating], first: int) -> None:
        """Keep the first k results of n queries, and the first result of each query's finest class.

        `scores` (n, G) are the finished rows of scores of the queries from `first` on in canonical
        order, −inf where an item is left out of the list. Columns are in canonical order, too: the
        items of each level or a finer one fill a range from `starts` to `ends` of the ranker.
        """
        super().keep(ranker, scores, first)
        for query, row in enumerate(scores, start=first):
            # (L,) each: the items of level l and finer are in the columns from starts[l − 1] to
            # ends[l − 1]
            starts = ranker.starts[query]
            ends = ranker.ends[query]
            if starts[-1] == ends[-1]:  # no item of its finest class
                continue

            # the column of the best item of the finest class, the first among equal scores
            column = starts[-1] + np.argmax(row[starts[-1] : ends[-1]])
            score = row[column]
            at = ranker.queries[query]  # the query's input position
            if score > -np.inf:  # else all items of the class are left out, such as the query
                # the rank counts the items ahead: those with a higher score, and those with an
                # equal score whose level comes first in a tie (a lower key comes first). The range
                # of level l has the items of level l or finer, so an item's level is the number of
                # ranges that contain its column; columns (tied, 1) are compared with ends (L,).
                tied = np.flatnonzero(row == score)[:, None]
                levels = ((starts <= tied) & (tied < ends)).sum(axis=1)
                ahead = ranker.tie_key[levels] < ranker.tie_key[-1]
                self.ranks[at] = 1 + np.count_nonzero(row > score) + np.count_nonzero(ahead)
                # `columns_of` turns columns of finished rows into items; a row may be rearranged
                # for its query, so `columns_of` needs the query, too
                self.right.items[at] = ranker.columns_of(np.array([query]), np.array([column]))
                self.right.scores[at] = score


def first_results(
    manifest: Manifest,
    submission: EmbeddingSubmission,
    queries: Queries,
    conditions: Conditions,
    k: int,
) -> TopLists:
    """Rank the whole gallery for these queries of a test. Row i of the lists has the first k
    results of `queries[i]`, and its first right result, at whatever rank."""
    ranker = ranker_of(manifest, submission, queries, conditions)
    # also keeps the first right result, if it comes later
    top = RightResults(len(queries), k)
    for block in range(ranker.blocks):
        scores = ranker.scores.whole(block)
        first = block * ranker.scores.block_size  # the block's first query, in canonical order
        # The rows of a few queries at a time, which begin at `start` within the block, with −∞ for
        # left-out items. The ranker sorts queries by labels; `keep` stores their results at their
        # places in `queries`.
        for start, rows in ranker.arranged(scores, first):
            top.keep(ranker, rows, first + start)
    return lists_of(manifest, ranker, top, conditions.words.similarity)


def lists_of(manifest: Manifest, ranker: Ranker, top: RightResults, similarity: str) -> TopLists:
    """Convert kept results to positions in the manifest, and scores to similarities."""
    # (G + 1,): NO_ITEM is −1, so it picks the last entry, which is NO_ITEM again
    positions = np.append(np.flatnonzero(manifest.gallery), NO_ITEM).astype(np.int32)
    scores = top.similarities(ranker, similarity)
    of_right = top.right.similarities(ranker, similarity)  # (Q, 1): one result for each query
    right = FirstRight(
        ranks=top.ranks, items=positions[top.right.items[:, 0]], scores=of_right[:, 0]
    )
    return TopLists(
        items=positions[top.items],
        scores=scores,
        levels=top.levels,
        copies=copies_of(scores, similarity),  # (Q, k): which results have the query's vector
        right=right,
    )


def copies_of(scores: Floats, similarity: str) -> NDArray[np.bool_]:
    """Tell which results have the query's vector, up to rounding. Only a cosine shows this, so by
    other similarities no result counts as a copy.

    >>> copies_of(np.array([1.0, 0.999]), "cosine").tolist()
    [True, False]
    """
    return scores > 1 - 1e-6 if similarity == "cosine" else np.zeros(scores.shape, bool)


def hits_of(
    manifest: Manifest, top: TopLists, row: int, query: int | None = None
) -> tuple[Hit, ...]:
    """List the results in one row of the lists, best first.

    If the query is an item, give its position as `query`: an item with several paths is then named
    by the path that it shares with the query.
    """
    # by result: item, score, level, and whether its vector equals the query's, which are the first
    # four fields; items after the end of the list are NO_ITEM
    ranked = zip(*(part[row].tolist() for part in top[:4]), strict=True)
    return tuple(
        Hit(
            rank=rank,
            item=str(manifest.items[item]),
            score=score,
            level=level,
            position=item,
            name=class_name(manifest, item, query),
            copy=copy,
        )
        for rank, (item, score, level, copy) in enumerate(ranked, start=1)
        if item != NO_ITEM
    )


def right_of(
    manifest: Manifest,
    top: TopLists,
    row: int,
    query: int | None = None,
    *,
    shown: int,
    depth: int | None = None,
) -> Hit | None:
    """Find the first right result of a query if it comes after the results that are shown.

    Args:
        manifest: the items of the test.
        top: the kept results.
        row: the query's row in `top`.
        query: the query's position in the manifest; None if the query is a name.
        shown: the number of results that are shown.
        depth: the level at which a result is right: the finest level (the default), or the level
            of the node if the query is a name.

    Returns None if the right result is among those shown, or is not known, or does not exist.
    """
    depth = depth or manifest.tree.depth
    # the places of right results among the kept ones, from 0
    listed = np.flatnonzero((top.levels[row] == depth) & (top.items[row] != NO_ITEM))
    if len(listed):  # it was kept, but perhaps behind those that are shown
        return hits_of(manifest, top, row, query)[listed[0]] if listed[0] >= shown else None
    # a rank of 0 means that there is no right result
    if top.right is None or top.right.ranks[row] == 0:
        return None
    rank, item, score = (part[row].item() for part in top.right)
    return Hit(
        rank=rank,
        item=str(manifest.items[item]),
        score=score,
        level=depth,
        position=item,
        name=class_name(manifest, item, query),
    )


def path_of(manifest: Manifest, position: int, query: int | None = None) -> tuple[str, ...]:
    """List the classes of an item, coarse to fine. Of an item with several paths, this is the path
    that it shares with the item at `query`, or the first path without a query."""
    shared = (
        None if manifest.more is None or query is None else manifest.paths.shared(query, position)
    )
    nodes = manifest.labels[position] if shared is None else shared
    return shown_along(manifest.tree, nodes.tolist())


def class_name(manifest: Manifest, position: int, query: int | None = None) -> str:
    """Return the finest class of an item on the path of `path_of`. If the class is only a number,
    the name of the class above is put in front."""
    path = path_of(manifest, position, query)
    return " ".join(path[-2:]) if path[-1].isdigit() else path[-1]


def all_paths_of(manifest: Manifest, position: int) -> str:
    """Return all paths of an item as text. A name that a path repeats down to the finest level, as
    of a class without finer classes, occurs once.

    >>> from hbench.datasets.manifest import from_names
    >>> all_paths_of(
    ...     from_names(
    ...         ["a"], [["Office", "desk"]], levels=["room", "kind"], more=[(0, ["Home", "shelf"])]
    ...     ),
    ...     0,
    ... )
    'Office › desk; Home › shelf'
    """
    paths = manifest.paths.of_item(position).tolist()
    return "; ".join(" › ".join(_once(shown_along(manifest.tree, path))) for path in paths)


def _once(path: Sequence[str]) -> Sequence[str]:
    """Cut the end of a path whose last name is repeated down to the finest level, so that the name
    occurs once."""
    end = len(path)
    while end > 1 and path[end - 1] == path[end - 2]:
        end -= 1
    return path[:end]


def ranker_of(
    manifest: Manifest, submission: EmbeddingSubmission, queries: Queries, conditions: Conditions
) -> Ranker:
    """Make a ranker that ranks the whole gallery, without the query itself, for each of these
    queries of a test. `queries` are positions among the test's queries."""
    # `parts`: the embeddings of the queries and, if it has its own file, of the gallery
    test = retrieval_of(manifest, *submission.parts).of_queries(queries)
    return Ranker(
        test.queries,
        test.gallery,
        # (Q,): the query's own row in the gallery, −1 if it has none; None without a gallery of its
        # own, where query q is row q
        self_rows=test.self_rows,
        similarity=conditions.similarity,
        tie_key=conditions.ties,
    )


def by_id(manifest: Manifest, ids: Sequence[str]) -> Queries:
    """Find the queries with these ids. Returns their positions among the queries, in the order of
    the ids. Raises UnknownName."""
    position = {item: number for number, item in enumerate(manifest.items[manifest.query].tolist())}
    for item in ids:
        if item not in position:
            raise UnknownName("query", item, list(position))
    return np.array([position[item] for item in ids], np.int64)


def of_class(manifest: Manifest, name: str) -> Queries:
    """Find the queries of a class at any level of the tree. If several levels have a class of this
    name, the coarsest one counts. Raises UnknownName."""
    labels = manifest.labels[manifest.query]
    names = manifest.tree.names
    for level, of_level in enumerate(names):
        if name in of_level:
            return np.flatnonzero(labels[:, level] == of_level.index(name))
    raise UnknownName("class", name, [node for of_level in names for node in of_level])


def at_random(manifest: Manifest, number: int, seed: int = 0) -> Queries:
    """Choose some queries at random. Returns positions among the queries, the same ones for the
    same seed."""
    queries = int(manifest.query.sum())
    return np.random.default_rng(seed).choice(queries, size=min(number, queries), replace=False)


def worst_first(values: Floats) -> Queries:
    """Sort the queries by goodness (Q,), worst first. Queries without a value (NaN) are left
    out."""
    order = np.argsort(values, kind="stable")
    return order[~np.isnan(values[order])]


def known_first(manifest: Manifest, queries: Queries) -> Queries:
    """Put queries whose label ends early after the others, and keep the order otherwise. Their
    values are low for no fault of the model: items that agree as far as the label is known do not
    count for them."""
    known = known_levels(manifest.tree)[manifest.labels[manifest.query][queries, -1]]
    return queries[np.argsort(-known.astype(np.int64), kind="stable")]


def most_severe_first(values: Floats, first_level: NDArray[np.integer]) -> Queries:
    """Sort the queries by the level (Q,) of their first result, lowest first, then by the goodness
    (Q,) in `values`, worst first.

    Queries without a value (NaN) are left out.
    """
    order = np.lexsort((np.nan_to_num(values, nan=np.inf), first_level))
    return order[~np.isnan(values[order])]


def level_name(level: int, levels: Sequence[str]) -> str:
    """Return the name of a level of a pair, which is "unrelated" for level 0.

    >>> level_name(2, ("genus", "species")), level_name(0, ("genus", "species"))
    ('species', 'unrelated')
    """
    return levels[level - 1] if level else UNRELATED


def legend_of(levels: Sequence[str]) -> list[tuple[int, str, str]]:
    """List number, mark and name of every possible level of a pair, finest first.

    >>> legend_of(("genus", "species"))
    [(2, '●●', 'species'), (1, '●○', 'genus'), (0, '○○', 'unrelated')]
    """
    return [
        (level, mark_of(level, len(levels)), level_name(level, levels))
        for level in range(len(levels), -1, -1)
    ]
