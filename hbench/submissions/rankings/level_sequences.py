"""Turns a submitted ranking into level sequences. The ranking's queries and items are joined to a
manifest by id.

Three entries are left out of a query's list, and the items below them move up: the query itself,
the items of its ignore group, and -1, with which a search index pads a list that is too short
(unless the dataset has an item called -1). An item that is not in the gallery, or that the list
repeats, takes up its rank but has level 0, as in Google Landmarks.

>>> from hbench.datasets import manifest
>>> from hbench.submissions.rankings.files import Ranking
>>> photos = manifest.from_names(["a", "b", "c"], [["x"], ["y"], ["x"]], levels=["class"])
>>> names = np.array(["a", "b", "c"], dtype=object)
>>> submitted = Ranking(names[:1], names, np.array([0, 3]), np.arange(3), None, "", "run")
>>> [
...     sequence.ranks.tolist() for sequence in levels_of(submitted, photos)
... ]  # c is second when a itself is left out
[[2], [], []]
"""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.lists.paths import KnownPaths, PathLists
from hbench.metrics.level_sequence import (
    LevelSequence,
    Ties,
    canonical_order,
    level_ranges,
    level_sequence,
    pessimistic,
)
from hbench.metrics.name_columns import NamedSequences, named_sequences
from hbench.submissions.embeddings.ids import Ids, rows_in
from hbench.submissions.embeddings.spellings import likely_cause
from hbench.submissions.problems import SubmissionProblem, found, in_a_line
from hbench.submissions.rankings.files import PADDING, Ranking
from hbench.tree import Labels
from hbench.tree.names import have_ambiguous_names

LINES_AT_ONCE = 1 << 20


def levels_of(
    ranking: Ranking, manifest: Manifest, *, ties: Ties = pessimistic
) -> list[LevelSequence]:
    """One level sequence per query of the manifest, in its order; equal scores are ordered by
    `ties`.

    The `counts` of a sequence cover the whole gallery, so a positive that is missing from the list
    is counted but has no rank. A query without a list has no ranks at all. Repeats and unknown
    items take up their rank with level 0 (`_levels_of_lines`); the query itself, items that it
    leaves out, and padding take up none (`_lines_by_query`).
    """
    tie_key = ties(manifest.tree.depth)  # (L + 1,), by which the levels of equal scores are sorted
    # (n,), an entry for each line: the query's and the item's row in the manifest, −1 if unknown
    queries, items = _lines(ranking, manifest)
    levels = _levels_of_lines(manifest, queries, items, ranking.repeats)
    scores = _scores(ranking)  # (n,), falling ones if the file has only an order
    lines_of = _lines_by_query(ranking, manifest, queries, items)
    query_ids = manifest.items[manifest.query].tolist()
    lists = zip(map(lines_of, query_ids), _gallery_counts(manifest), strict=True)
    return [
        level_sequence(scores[lines], levels[lines], counts, tie_key) for lines, counts in lists
    ]


def named_levels_of(
    ranking: Ranking, manifest: Manifest, names: Labels, *, ties: Ties = pessimistic
) -> dict[int, NamedSequences]:
    """The sequences of queries with ambiguous names, by the query's position among the queries.

    A name is ambiguous if several nodes of the tree have it. For these queries, items are compared
    by name, level by level, instead of by node.

    Args:
        names: the labels of the manifest's items as numbers, (N, L). In each column, equal numbers
            mean equal names.
    """
    # (n,), an entry for each line: the query's and the item's row in the manifest, −1 if unknown
    queries, items = _lines(ranking, manifest)
    # repeated items, and those outside the gallery, take up their rank but match no name
    counted = ~ranking.repeats & (items >= 0) & manifest.gallery[items]
    scores = _scores(ranking)
    # the lines of a query's list, by its id; without those of items that the query leaves out
    lines_of = _lines_by_query(ranking, manifest, queries, items)
    query_rows = np.flatnonzero(manifest.query)
    gallery_rows = np.flatnonzero(manifest.gallery)

    sequences = {}
    is_ambiguous = have_ambiguous_names(names, manifest.labels)[query_rows]  # (Q,)
    for position in np.flatnonzero(is_ambiguous).tolist():
        query = query_rows[position]
        lines = lines_of(manifest.items[query])
        # in which columns of names each listed item equals the query, (lines of this list, L); an
        # unknown item, −1, looks up the names of the last row, but is not counted
        equal = (names[items[lines]] == names[query]) & counted[lines, None]
        # the gallery items that this query's list may hold, among which its positives are counted
        listable = gallery_rows[
            ~_left_out(manifest, np.full(len(gallery_rows), query), gallery_rows)
        ]
        # the same for all items that may be listed, (listable items, L)
        sequences[position] = named_sequences(
            scores[lines], equal, names[listable] == names[query], ties
        )

    return sequences


def _scores(ranking: Ranking) -> NDArray[np.floating]:
    """The score of every line, (n,). Where the ranking has an order only, scores that fall from
    line to line stand in."""
    if ranking.scores is None:
        return -np.arange(len(ranking.items), dtype=np.float64)
    return ranking.scores


def _lines_by_query(
    ranking: Ranking, manifest: Manifest, queries: NDArray[np.int64], items: NDArray[np.int64]
) -> Callable[[str], NDArray[np.int64]]:
    """Make a function from a query's id to the indices of the lines in its list.

    Lines that are left out of the list, and those that only fill it up (`padding`), are not among
    them. Other lines of unknown items are. A query without a list has no lines.

    Args:
        queries: the query of every line, as its row in the manifest, −1 if unknown, (n,).
        items: the item of every line, as its row in the manifest, −1 if unknown, (n,).
    """
    kept = (queries >= 0) & ~_left_out(manifest, queries, items) & ~padding(ranking, items)
    bounds = zip(ranking.offsets[:-1].tolist(), ranking.offsets[1:].tolist(), strict=True)
    list_of = dict(zip(ranking.queries.tolist(), bounds, strict=True))

    def lines_of(query: str) -> NDArray[np.int64]:
        """The indices of the lines in this query's list, in the order of the ranking."""
        start, end = list_of.get(query, (0, 0))
        lines: NDArray[np.int64] = start + np.flatnonzero(kept[start:end])
        return lines

    return lines_of


def padding(ranking: Ranking, items: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each line is padding, bool (n,): the name -1, which a search index writes where it
    found no further item.

    `items` (n,) are the rows of the lines' items in the manifest or the gallery, −1 if unknown. If
    the dataset has an item called -1, that item is not unknown and therefore no padding.
    """
    return np.asarray(np.isin(ranking.names, PADDING)[ranking.items] & (items < 0))


def without_list(ranking: Ranking, manifest: Manifest) -> Ids:
    """The ids of the manifest's queries for which the ranking has no list, str (n,)."""
    query_ids = manifest.items[manifest.query]
    return query_ids[rows_in(query_ids, ranking.queries) < 0]


def is_full(ranking: Ranking, manifest: Manifest) -> bool:
    """Whether every query's list holds all its positives, so that metrics of the full ranking can
    be computed.
    """
    # a quick answer for short lists: some query has more positives than the longest list has items
    most_positives = _gallery_counts(manifest)[:, 1:].sum(axis=1).max(initial=0)
    if most_positives > np.diff(ranking.offsets).max(initial=0):
        return False
    # `ranks` are those of the positives in the list, `counts` include positives that it lacks
    return all(
        len(sequence.ranks) == sequence.counts[1:].sum()
        for sequence in levels_of(ranking, manifest)
    )


def problems(
    ranking: Ranking, manifest: Manifest, *, known: Collection[str] = ()
) -> list[SubmissionProblem]:
    """All problems of a ranking. Those for which the metrics have a rule, such as a missing list or
    a repeated item, are remarks.

    An item outside the gallery is a fault, unless it is in the manifest or among the `known` items
    of other tests and splits. Unknown queries are a fault if all queries are unknown, or if the
    unknown ones look misspelt.
    """
    return [
        *_problems_of_queries(ranking, manifest),
        *_problems_of_items(ranking, manifest, known),
        *ranking.remarks,
    ]


def _problems_of_queries(ranking: Ranking, manifest: Manifest) -> list[SubmissionProblem]:
    """Problems with queries: those without a list, and those that the test does not have. Unknown
    queries are fatal if a different spelling explains them, or if all queries are unknown."""
    query_ids = manifest.items[manifest.query]
    missing = without_list(ranking, manifest)
    unknown = ranking.queries[rows_in(ranking.queries, query_ids) < 0]
    # a difference in spelling between missing and unknown ids, in words; None if none is found
    cause = likely_cause(missing.tolist(), unknown.tolist())
    fatal = cause is not None or len(unknown) == len(ranking)

    return [
        *found("queries without a list", missing, len(missing), "they score 0", fatal=False),
        *found(
            "unknown queries",
            unknown,
            len(unknown),
            cause or (None if fatal else "they are left out"),
            fatal=fatal,
        ),
    ]


def _problems_of_items(
    ranking: Ranking, manifest: Manifest, known: Collection[str]
) -> list[SubmissionProblem]:
    """Problems with listed items that do not count, one for each cause. `known` are the items of
    other tests and splits. Only unknown items are fatal, since the metrics have a rule for each of
    the other causes."""
    # the names, each once, that are not in the gallery
    gallery = manifest.items[manifest.gallery]
    outside = ranking.names[rows_in(ranking.names, gallery) < 0]
    elsewhere = (rows_in(outside, manifest.items) >= 0) | (rows_in(outside, list(known)) >= 0)
    padded = np.isin(outside, PADDING) & ~elsewhere
    unknown = outside[~elsewhere & ~padded]
    other = outside[elsewhere]

    # (n,): whether each line is padding, an item called -1. If the dataset has such an item, its
    # name is not `padded`, and no line is padding.
    is_padding = np.asarray(np.isin(ranking.names, PADDING)[ranking.items]) & padded.any()
    list_of = ranking.list_of_line  # the list, as the index of its query in `ranking.queries`
    again = np.flatnonzero(ranking.repeats & ~is_padding)
    # the list whose query is this item; −1 if the item is no query
    own_list = rows_in(ranking.names, ranking.queries)[ranking.items]
    in_own_list = np.flatnonzero(own_list == list_of)

    remark = partial(found, fatal=False)
    return [
        *found(
            "unknown items",
            unknown,
            len(unknown),
            likely_cause(gallery.tolist(), unknown.tolist()) or _advice_on(ranking, unknown),
        ),
        *remark(
            "entries -1 instead of an item, which pad lists of an index that found too few",
            (),
            int(is_padding.sum()),
            "they are skipped",
        ),
        *remark("items that are not in the gallery", other, len(other), "they count for nothing"),
        *remark(
            "items listed again for the same query",
            ranking.queries[list_of[again]],
            len(again),
            "a repeat holds its rank and counts for nothing",
        ),
        *remark(
            "queries in their own list",
            ranking.queries[list_of[in_own_list]],
            len(in_own_list),
            "they are left out of it",
        ),
    ]


def _advice_on(ranking: Ranking, unknown: Ids) -> str | None:
    """What to do about unknown items whose spelling explains nothing, with the query whose list has
    the first of them; None without unknown items."""
    if not len(unknown):
        return None
    line = int(np.flatnonzero(ranking.names[ranking.items] == unknown[0])[0])
    query = ranking.queries[ranking.list_of_line[line]]
    return (
        f"{in_a_line(str(unknown[0]))} is in the list of {in_a_line(str(query))}: take such items "
        "out of the lists, or name by -d the dataset that has them"
    )


def _lines(ranking: Ranking, manifest: Manifest) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The query and the item of every line as rows of the manifest, -1 if the manifest does not
    have them; two arrays int64 (n,)."""
    queries = rows_in(ranking.queries, manifest.items)[ranking.list_of_line]
    return queries, rows_in(ranking.names, manifest.items)[ranking.items]


def _levels_of_lines(
    manifest: Manifest,
    queries: NDArray[np.int64],
    items: NDArray[np.int64],
    again: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """The level between every line's item and its query, uint8 (n,); 0 for repeats and for items
    outside the gallery.

    Args:
        queries: the query of every line, as its row in the manifest, −1 if unknown, (n,).
        items: the item of every line, as its row in the manifest, −1 if unknown, (n,).
        again: whether the line repeats an item of its list, (n,).
    """
    levels = np.zeros(len(items), np.uint8)
    # an unknown item, −1, looks up the last row of the mask, but `items >= 0` excludes it
    counted = np.flatnonzero(~again & (items >= 0) & (queries >= 0) & manifest.gallery[items])
    # in portions, since the labels of all lines at once would take much memory
    for start in range(0, len(counted), LINES_AT_ONCE):
        lines = counted[start : start + LINES_AT_ONCE]
        levels[lines] = manifest.paths.levels(queries[lines], items[lines])
    return levels


def _left_out(
    manifest: Manifest, queries: NDArray[np.int64], items: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each item is left out of the list of its query, bool (n,): it is the query itself, or
    of the query's ignore group.

    `queries` and `items` (n,) are rows of the manifest, −1 if unknown. The result for an unknown
    query has no meaning; callers do not use it.
    """
    out = np.asarray(queries == items)
    if manifest.ignore is None:  # there are no ignore groups
        return out
    # a query of group −1 belongs to no group, and so does an item of group −1
    group = manifest.ignore[queries]
    return np.asarray(out | ((group >= 0) & (items >= 0) & (group == manifest.ignore[items])))


def _gallery_counts(manifest: Manifest) -> NDArray[np.int64]:
    """The level counts of each query, (Q, L+1): how many gallery items it has at each level. The
    query itself and its ignore group are not counted. An item counts once, at the finest level that
    it shares with the query, or at level 0.
    """
    query_rows = np.flatnonzero(manifest.query)
    gallery = np.flatnonzero(manifest.gallery)
    counts = _counts_of_all(manifest, query_rows, gallery)
    # subtract, in place, the items that each query leaves out
    for query, query_counts in zip(query_rows, counts, strict=True):
        # without an ignore group, only the query itself can be left out
        near = np.array([query])
        if manifest.ignore is not None and manifest.ignore[query] >= 0:
            near = gallery  # the items of the group may be anywhere in it
        out = near[_left_out(manifest, np.full(len(near), query), near) & manifest.gallery[near]]
        levels = manifest.paths.levels(np.full(len(out), query), out)
        query_counts -= np.bincount(levels, minlength=len(query_counts))
    return counts


def _counts_of_all(
    manifest: Manifest, query_rows: NDArray[np.int64], gallery: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The level counts of each query, (Q, L+1), from level 0. A query that is in the gallery is
    counted, too. `query_rows` (Q,) and `gallery` (G,) are rows of the manifest."""
    # if items have further paths, `more`, an item may be in several of the ranges below
    if manifest.more is not None:
        # None: all labels are known. No query leaves out an item, so the function that `PathLists`
        # asks for left-out pairs of a query and an item returns no pairs.
        nothing = np.zeros(0, np.int64)
        queries, ranked = (
            KnownPaths(manifest.paths, items, None) for items in (query_rows, gallery)
        )
        return PathLists(queries, ranked, lambda _first, _last: (nothing, nothing)).counts

    # Sorted by labels, coarse to fine, the items that share a query's node of a level form one
    # range. The order within a class does not matter here, so all its keys are 0.
    labels = manifest.labels[gallery]
    order = canonical_order(labels, np.zeros(len(gallery), np.uint64))
    starts, ends = level_ranges(manifest.labels[query_rows], labels[order])  # (Q, L)
    all_items = np.full(len(query_rows), len(gallery), np.int64)
    beyond_finest = np.zeros(len(query_rows), np.int64)
    # counts of items of level ≥ 0, 1, … L, L + 1; their differences count items of exactly level l
    at_least = np.column_stack([all_items, ends - starts, beyond_finest])  # (Q, L + 2)
    return at_least[:, :-1] - at_least[:, 1:]
