"""Measures benchmarks that list, for each query, which gallery items are positives, and which are
left out.

The level of an item is then the one it is listed with, whatever the labels say
(`hbench.datasets.dataset`).

>>> import pyarrow as pa
>>> table = pa.table({"query": ["q", "q"], "item": ["b", "c"], "level": [1, -1]})
>>> lists = judged(table, ["q"], ["a", "b", "c"])
>>> sequence_of(np.array([0.9, 0.5, 0.7]), lists[0], np.arange(2, dtype=np.uint8))  # c is left out
LevelSequence(ranks=array([2]), levels=array([1], dtype=uint8), counts=array([1, 1]), tied=False)
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
from hbench.submissions.rankings.level_sequences import padding, repeats


class Judged(NamedTuple):
    """One query's list: rows of the gallery and their levels, -1 for what is left out; two (n,)."""

    rows: NDArray[np.int64]
    levels: NDArray[np.int8]


def judged(
    table: pa.Table, asked: Ids | Sequence[str], gallery: Ids | Sequence[str]
) -> list[Judged]:
    """What is said of every query's gallery items, in the order of `asked`, the queries' ids.

    `table`: a row for each pair of a query and an item with their level, negative for one that is
    left out of the list; pairs of other queries, or of items that are not in the `gallery` (ids),
    are passed over.
    """
    queries = rows_in(table["query"], asked)
    rows = rows_in(table["item"], gallery)
    levels = table["level"].to_numpy().astype(np.int8)
    known = np.flatnonzero((queries >= 0) & (rows >= 0))
    # the pairs by query, those of one side by side
    order = known[np.argsort(queries[known], kind="stable")]
    bounds = np.searchsorted(queries[order], np.arange(len(asked) + 1))
    return [
        Judged(rows[order[start:end]], levels[order[start:end]])
        for start, end in itertools.pairwise(bounds)
    ]


def lists_of(
    table: pa.Table, asked: Ids | Sequence[str], gallery: Ids | Sequence[str]
) -> QueryLists:
    """The lists of all queries side by side in flat arrays, as the engine takes them; `table`:
    rows of query, item and level; `asked`, `gallery`: the ids of queries and gallery items."""
    lists = judged(table, asked, gallery)
    bounds = np.concatenate([[0], np.cumsum([len(each.rows) for each in lists])]).astype(np.int64)
    rows = np.concatenate([each.rows for each in lists] or [np.zeros(0, np.int64)])
    levels = np.concatenate([each.levels for each in lists] or [np.zeros(0, np.int8)])
    return QueryLists(bounds, rows.astype(np.int64), levels)


def sequence_of(
    scores: NDArray[np.floating], judgement: Judged, tie_key: NDArray[np.uint8]
) -> LevelSequence:
    """The level sequence of one query whose positives are listed item by item.

    `scores` (G,): of the whole gallery, in which what is left out is overwritten with −inf;
    `tie_key` (L+1,), by level: of equal scores the level of the lower key comes first.
    """
    levels = np.zeros(len(scores), np.uint8)
    positive = judgement.levels > 0
    out = judgement.rows[judgement.levels < 0]
    levels[judgement.rows[positive]] = judgement.levels[positive]
    scores[out] = -np.inf
    return level_sequence(scores, levels, _counts(judgement, len(scores), len(tie_key)), tie_key)


def sequences_of_ranking(
    ranking: Ranking, manifest: Manifest, lists: Sequence[Judged], tie_key: NDArray[np.uint8]
) -> list[LevelSequence]:
    """The level sequences of a submitted ranking, one per query of the manifest; a query without a
    list has no ranks. `lists`: of each query, the levels of the gallery items that are judged.

    A repeat, or an item outside the gallery, holds its rank and counts for nothing; the padding of
    a list that is too short holds none. `tie_key` (L+1,): of equal scores the level of the lower
    key comes first.
    """
    gallery = manifest.items[manifest.gallery]
    # of every line (n,): the row of the gallery, −1 for none; whether it repeats an item of its
    # list; whether it is an item at all
    rows = rows_in(ranking.names, gallery)[ranking.items]
    again = repeats(ranking)
    is_item = ~padding(ranking, rows)
    # the lines of every query
    slices = map(slice, ranking.offsets[:-1].tolist(), ranking.offsets[1:].tolist())
    list_of = dict(zip(ranking.queries.tolist(), slices, strict=True))

    sequences = []
    for query, judgement in zip(manifest.items[manifest.query].tolist(), lists, strict=True):
        lines = list_of.get(query, slice(0, 0))
        # −1 where the judgement leaves an item out of the list; the row −1 is the last, of level 0
        levels = _levels_by_row(judgement, len(gallery))[rows[lines]]
        levels[again[lines] & (levels > 0)] = 0  # a repeat of what is left out stays left out
        if ranking.scores is None:  # the order of the list
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
    """The levels of a gallery of this size by row, and at the row -1 that of items outside of it,
    0.
    """
    levels = np.zeros(size + 1, np.int8)
    levels[judgement.rows] = judgement.levels
    return levels


def _counts(judgement: Judged, size: int, depth: int) -> NDArray[np.int64]:
    """Count the gallery items of a query at each level, (L + 1,), without what is left out; `size`:
    of the gallery; `depth`: L + 1. Items that are not judged are of level 0. `judgement`: the
    judged items with their levels, negative for what is left out."""
    counts = np.bincount(judgement.levels[judgement.levels > 0].astype(np.int64), minlength=depth)
    counts[0] = size - int((judgement.levels < 0).sum()) - int(counts[1:].sum())
    return counts
