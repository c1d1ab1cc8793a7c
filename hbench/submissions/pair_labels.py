"""Level sequences for benchmarks that list, for each query, which gallery items are positives and
which are left out.

The level of an item is then the level given in that list; the labels of the classes are not used
(`hbench.datasets.dataset`).

>>> import pyarrow as pa
>>> table = pa.table({"query": ["q", "q"], "item": ["b", "c"], "level": [1, -1]})
>>> (of_query,) = judged(table, ["q"], ["a", "b", "c"])
>>> of_query.rows.tolist(), of_query.levels.tolist()  # b is a positive, c is left out
([1, 2], [1, -1])
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.lists.pairs import QueryLists
from hbench.metrics.level_sequence import LevelSequence, level_sequence
from hbench.submissions.embeddings.ids import Ids, rows_in
from hbench.submissions.rankings.files import Ranking
from hbench.submissions.rankings.level_sequences import padding


class Judged(NamedTuple):
    """The judged gallery items of one query: their rows in the gallery and their levels.

    An item of level -1 is left out of the query's ranking.
    """

    rows: NDArray[np.int64]  # (n,)
    levels: NDArray[np.int8]  # (n,)


def judged(
    table: pa.Table, query_ids: Ids | Sequence[str], gallery: Ids | Sequence[str]
) -> list[Judged]:
    """The judged gallery items of each query.

    Args:
        table: a row for each pair of a query and an item, with their level. A negative level means
            that the item is left out of the query's ranking. Pairs with a query that is not in
            `query_ids`, or an item that is not in `gallery`, are skipped.
        query_ids: the ids of the queries, (Q,). The result has one entry for each, in this order.
        gallery: the ids of the gallery items, (G,).
    """
    # for each pair, the index of its query and of its item; −1 if it is not among the ids
    queries = rows_in(table["query"], query_ids)
    rows = rows_in(table["item"], gallery)
    levels = table["level"].to_numpy().astype(np.int8)
    known = np.flatnonzero((queries >= 0) & (rows >= 0))
    # sort the pairs by query; stable, so that a query's pairs keep the order of the table
    order = known[np.argsort(queries[known], kind="stable")]
    # (Q + 1,): the pairs of query i are order[bounds[i]:bounds[i + 1]]
    bounds = np.searchsorted(queries[order], np.arange(len(query_ids) + 1))
    return [
        Judged(rows[order[start:end]], levels[order[start:end]])
        for start, end in itertools.pairwise(bounds)
    ]


def lists_of(
    table: pa.Table, query_ids: Ids | Sequence[str], gallery: Ids | Sequence[str]
) -> QueryLists:
    """The judged gallery items of all queries, joined query by query in flat arrays, as the engine
    expects them.

    `table`: a row for each pair of a query and an item, with their level, which is negative for an
    item that the query's ranking leaves out; pairs of other ids are skipped. `query_ids` (Q,), in
    the order of the lists; `gallery` (G,): the ids of its items."""
    lists = judged(table, query_ids, gallery)
    # (Q + 1,): query i has the entries from bounds[i] to bounds[i + 1]
    bounds = np.concatenate([[0], np.cumsum([len(each.rows) for each in lists])]).astype(np.int64)
    rows = np.concatenate([each.rows for each in lists] or [np.zeros(0, np.int64)])
    levels = np.concatenate([each.levels for each in lists] or [np.zeros(0, np.int8)])
    return QueryLists(bounds, rows.astype(np.int64), levels)


def sequences_of_ranking(
    ranking: Ranking, manifest: Manifest, lists: Sequence[Judged], tie_key: NDArray[np.uint8]
) -> list[LevelSequence]:
    """The level sequences of a submitted ranking, one per query of the manifest.

    A query without a list has no ranks. A repeated item, one outside the gallery, and one that is
    not judged take up their rank with level 0. The padding of a list that is too short takes up no
    rank.

    Args:
        lists: for each query of the manifest, its judged gallery items: their rows in the gallery
            and levels, −1 for items that the query leaves out, such as junk.
        tie_key: a key for each level, (L+1,). Among equal scores, the level with the lower key
            comes first.
    """
    gallery = manifest.items[manifest.gallery]
    # three arrays (n,), one entry for each line: the item's row in the gallery, −1 if it is not in
    # the gallery; whether the item stands earlier in the same list; whether it is not padding
    rows = rows_in(ranking.names, gallery)[ranking.items]
    again = ranking.repeats
    is_item = ~padding(ranking, rows)
    # from each query's id to the slice of its lines
    slices = map(slice, ranking.offsets[:-1].tolist(), ranking.offsets[1:].tolist())
    list_of = dict(zip(ranking.queries.tolist(), slices, strict=True))

    sequences = []
    for query, judgement in zip(manifest.items[manifest.query].tolist(), lists, strict=True):
        lines = list_of.get(query, slice(0, 0))
        # A level of −1 means that the item is left out of the ranking. The row −1, of an item that
        # is not in the gallery, looks up an extra last entry, the level 0.
        levels = _levels_by_row(judgement, len(gallery))[rows[lines]]
        levels[again[lines] & (levels > 0)] = 0  # a repeat of a left-out item stays left out
        if ranking.scores is None:  # falling scores keep the order of the list
            scores = -np.arange(len(levels), dtype=np.float64)
        else:
            scores = ranking.scores[lines]
        kept = (levels >= 0) & is_item[lines]
        counts = _counts(judgement, len(gallery), len(tie_key))
        sequences.append(
            level_sequence(scores[kept], levels[kept].astype(np.uint8), counts, tie_key)
        )

    return sequences


def _levels_by_row(judgement: Judged, size: int) -> NDArray[np.int8]:
    """The level of every row of a gallery of `size` items, (size + 1,). The extra last entry is 0:
    the row -1, which stands for an item outside the gallery, looks it up."""
    levels = np.zeros(size + 1, np.int8)
    levels[judgement.rows] = judgement.levels
    return levels


def _counts(judgement: Judged, size: int, depth: int) -> NDArray[np.int64]:
    """The level counts (L + 1,) of one query: how many gallery items it has at each level, without
    those that are left out. Items that are not judged have level 0.

    Args:
        judgement: the query's judged items, with negative levels for items that are left out.
        size: the number of items in the gallery.
        depth: the number of levels including 0, L + 1.
    """
    counts = np.bincount(judgement.levels[judgement.levels > 0].astype(np.int64), minlength=depth)
    left_out = int((judgement.levels < 0).sum())
    positives = int(counts[1:].sum())
    counts[0] = size - left_out - positives
    return counts
