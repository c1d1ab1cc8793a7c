"""Turns a submitted ranking into level sequences: its queries and items are joined to a manifest by
id.

A query's own id is left out of its list, as are the items of its ignore group and -1, the mark of
an index that found too few (unless the dataset has an item of that name), and what is below moves
up. An item that is not in the gallery, or stands in the list a second time, holds its rank and
counts for nothing (Google Landmarks).

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
from hbench.submissions.problems import SubmissionProblem, found
from hbench.submissions.rankings.files import Ranking
from hbench.tree import Labels
from hbench.tree.names import have_ambiguous_names

LINES_AT_ONCE = 1 << 20
PADDING = ("-1", "-1.0")  # what faiss and others write where they found no further item


def levels_of(
    ranking: Ranking, manifest: Manifest, *, ties: Ties = pessimistic
) -> list[LevelSequence]:
    """One level sequence per query of the manifest, in its order; equal scores are ordered by
    `ties`.

    The `counts` of a sequence are of the whole gallery, so that a positive that the list does not
    hold is counted and has no rank; a query without a list has no ranks at all.
    """
    tie_key = ties(manifest.tree.depth)
    # one line for each listed item: (n,), as rows of the manifest, −1 for what it does not have
    queries, items = _lines(ranking, manifest)
    levels = _levels_of_lines(manifest, queries, items, repeats(ranking))
    scores = _scores(ranking)
    lines_of = _lines_by_query(ranking, manifest, queries, items)
    asked = manifest.items[manifest.query].tolist()
    lists = zip(map(lines_of, asked), _gallery_counts(manifest), strict=True)
    return [
        level_sequence(scores[lines], levels[lines], counts, tie_key) for lines, counts in lists
    ]


def named_levels_of(
    ranking: Ranking, manifest: Manifest, names: Labels, *, ties: Ties = pessimistic
) -> dict[int, NamedSequences]:
    """Return the sequences of lists whose items are compared by name, column by column, for the
    queries whose names stand for several nodes of the tree, by their position among the queries.

    `names` (N, L): the labels of the manifest's items by name, numbered.
    """
    # one line for each listed item: (n,), as rows of the manifest, −1 for what it does not have
    queries, items = _lines(ranking, manifest)
    # a repeat, and an item outside of the gallery, hold their rank and count for nothing
    counted = ~repeats(ranking) & (items >= 0) & manifest.gallery[items]
    scores = _scores(ranking)
    lines_of = _lines_by_query(ranking, manifest, queries, items)
    asked = np.flatnonzero(manifest.query)
    gallery = np.flatnonzero(manifest.gallery)

    sequences = {}
    for position in np.flatnonzero(have_ambiguous_names(names, manifest.labels)[asked]).tolist():
        query = asked[position]
        lines = lines_of(manifest.items[query])
        # an unknown item, −1, has the names of the last row here, and is not counted
        equal = (names[items[lines]] == names[query]) & counted[lines, None]
        # what could stand in this query's list, by which positives are counted
        listable = gallery[~_left_out(manifest, np.full(len(gallery), query), gallery)]
        sequences[position] = named_sequences(
            scores[lines], equal, names[listable] == names[query], ties
        )

    return sequences


def _scores(ranking: Ranking) -> NDArray[np.floating]:
    """A score of every line (n,): its own, or, where the file states an order alone, one that falls
    from line to line."""
    if ranking.scores is None:
        return -np.arange(len(ranking.items), dtype=np.float64)
    return ranking.scores


def _lines_by_query(
    ranking: Ranking, manifest: Manifest, queries: NDArray[np.int64], items: NDArray[np.int64]
) -> Callable[[str], NDArray[np.int64]]:
    """Make a function from a query's id to the numbers of the lines of its list, without what is
    left out of it; no lines for a query without a list.

    `queries`, `items` (n,): of every line, as rows of the manifest, −1 for unknown ones.
    """
    kept = (queries >= 0) & ~_left_out(manifest, queries, items) & ~padding(ranking, items)
    # the lines of list i are those from offsets[i] to offsets[i + 1]
    bounds = zip(ranking.offsets[:-1].tolist(), ranking.offsets[1:].tolist(), strict=True)
    list_of = dict(zip(ranking.queries.tolist(), bounds, strict=True))

    def lines_of(query: str) -> NDArray[np.int64]:
        """The numbers of the lines of this query's list, from 0, in their order."""
        start, end = list_of.get(query, (0, 0))
        lines: NDArray[np.int64] = start + np.flatnonzero(kept[start:end])
        return lines

    return lines_of


def padding(ranking: Ranking, items: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Find the lines (n,), bool, that say −1 where an index found no further item.

    `items` (n,): of every line, as rows of the manifest, −1 for unknown ones: a dataset may have an
    item called -1, which then is no padding.
    """
    return np.asarray(np.isin(ranking.names, PADDING)[ranking.items] & (items < 0))


def without_list(ranking: Ranking, manifest: Manifest) -> Ids:
    """The queries of a test that the ranking has no list for; (n,) str."""
    asked = manifest.items[manifest.query]
    return asked[rows_in(asked, ranking.queries) < 0]


def is_full(ranking: Ranking, manifest: Manifest) -> bool:
    """Whether every query's list holds all its positives, so that metrics of the full ranking can
    be computed.
    """
    # quicker than looking at the lists: some query has more positives than the
    # longest list has entries
    if _gallery_counts(manifest)[:, 1:].sum(axis=1).max(initial=0) > ranking.depth:
        return False
    return all(
        len(sequence.ranks) == sequence.counts[1:].sum()
        for sequence in levels_of(ranking, manifest)
    )


def problems(
    ranking: Ranking, manifest: Manifest, *, known: Collection[str] = ()
) -> list[SubmissionProblem]:
    """Every problem of a ranking at once; what the metrics define (a missing list, a repeat) is a
    remark.

    Items outside the gallery are a fault unless they are in the manifest or `known` elsewhere.
    Unknown queries are a fault when all are unknown, or when they look misspelt.
    """
    return [
        *_problems_of_queries(ranking, manifest),
        *_problems_of_items(ranking, manifest, known),
        *ranking.remarks,
    ]


def _problems_of_queries(ranking: Ranking, manifest: Manifest) -> list[SubmissionProblem]:
    """Queries that the ranking lacks or that the test lacks. Where one cause explains both, or
    nothing fits, it cannot be scored."""
    asked = manifest.items[manifest.query]
    missing = without_list(ranking, manifest)
    unknown = ranking.queries[rows_in(ranking.queries, asked) < 0]
    # such as another spelling of the ids; None where none is seen
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
    """Listed items that do not count, by their cause; `known`: items of other tests and splits.
    Only unknown ones are fatal: the others have a plain meaning."""
    # `names`: every listed name once; `items` (lines,): the name of each line, as its place there
    gallery = manifest.items[manifest.gallery]
    outside = ranking.names[rows_in(ranking.names, gallery) < 0]
    elsewhere = (rows_in(outside, manifest.items) >= 0) | (rows_in(outside, list(known)) >= 0)
    padded = np.isin(outside, PADDING) & ~elsewhere
    unknown = outside[~elsewhere & ~padded]
    other = outside[elsewhere]
    # -1 may be the name of an item of the dataset, which then is no padding
    is_padding = np.asarray(np.isin(ranking.names, PADDING)[ranking.items]) & padded.any()
    list_of = _list_of_line(ranking)  # (n,): the number of the list that each line is in
    again = np.flatnonzero(repeats(ranking) & ~is_padding)
    own_list = rows_in(ranking.names, ranking.queries)[ranking.items]  # −1: the item asks nothing
    in_own_list = np.flatnonzero(own_list == list_of)

    remark = partial(found, fatal=False)
    return [
        *found(
            "unknown items", unknown, len(unknown), likely_cause(gallery.tolist(), unknown.tolist())
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


def _list_of_line(ranking: Ranking) -> NDArray[np.int64]:
    """The list that each line is in, int64 (n,): the place of its query, as often as the list is
    long."""
    return np.repeat(np.arange(len(ranking)), np.diff(ranking.offsets))


def repeats(ranking: Ranking) -> NDArray[np.bool_]:
    """Find the lines (n,), bool, whose item stands in the same list before."""
    # one number for each pair of a list and an item
    pairs = _list_of_line(ranking) * len(ranking.names) + ranking.items
    _, first_lines = np.unique(pairs, return_index=True)
    again = np.ones(len(pairs), bool)
    again[first_lines] = False
    return again


def _lines(ranking: Ranking, manifest: Manifest) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Query and item of every line as rows of the manifest, -1 for none; two int64 (n,)."""
    queries = rows_in(ranking.queries, manifest.items)[_list_of_line(ranking)]
    return queries, rows_in(ranking.names, manifest.items)[ranking.items]


def _levels_of_lines(
    manifest: Manifest,
    queries: NDArray[np.int64],
    items: NDArray[np.int64],
    again: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """The level (n,), uint8, of every line's item for its query; 0 for repeats, and for items
    outside of the gallery. `queries`, `items` (n,): rows of the manifest, −1 for unknown ones;
    `again` (n,): the repeats. LINES_AT_ONCE at a time, for their labels are gathered.
    """
    levels = np.zeros(len(items), np.uint8)
    # an unknown item, −1, looks the last row of the mask up here, which `items >= 0` outvotes
    counted = np.flatnonzero(~again & (items >= 0) & (queries >= 0) & manifest.gallery[items])
    for start in range(0, len(counted), LINES_AT_ONCE):
        lines = counted[start : start + LINES_AT_ONCE]
        levels[lines] = manifest.paths.levels(queries[lines], items[lines])
    return levels


def _left_out(
    manifest: Manifest, queries: NDArray[np.int64], items: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Find the pairs (n,), bool, of a query and an item that is left out of its list: itself, or
    one of its ignore group. `queries`, `items` (n,): rows of the manifest, −1 for unknown ones;
    what is found for an unknown query means nothing."""
    out = np.asarray(queries == items)
    if manifest.ignore is None:  # no groups are ignored
        return out
    # −1: of no group, whose members are not left out
    group = manifest.ignore[queries]
    return np.asarray(out | ((group >= 0) & (items >= 0) & (group == manifest.ignore[items])))


def _gallery_counts(manifest: Manifest) -> NDArray[np.int64]:
    """How many gallery items each query has at each level, (Q, L+1), without itself and its ignore
    group. An item counts once, at the finest level that it shares with the query; at 0 if it shares
    none.
    """
    asked = np.flatnonzero(manifest.query)
    gallery = np.flatnonzero(manifest.gallery)
    counts = _counts_of_all(manifest, asked, gallery)
    # each query's counts, in place, less those of what it leaves out
    for query, levels in zip(asked, counts, strict=True):
        # without an ignore group only the query itself can be left out
        near = np.array([query])
        if manifest.ignore is not None and manifest.ignore[query] >= 0:
            near = gallery
        out = near[_left_out(manifest, np.full(len(near), query), near) & manifest.gallery[near]]
        levels -= np.bincount(
            manifest.paths.levels(np.full(len(out), query), out), minlength=len(levels)
        )
    return counts


def _counts_of_all(
    manifest: Manifest, asked: NDArray[np.int64], gallery: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many gallery items each query has at each level, (Q, L+1), from level 0, itself counted.
    `asked` (Q,), `gallery` (G,): rows of the manifest."""
    # items of several paths are at no range of an order; None: all paths are known to the finest
    if manifest.more is not None:
        nothing = np.zeros(0, np.int64)
        queries, ranked = (KnownPaths(manifest.paths, items, None) for items in (asked, gallery))
        return PathLists(queries, ranked, lambda _first, _last: (nothing, nothing)).counts

    # in the canonical order the items of a level or finer are a range, whose length is their number
    labels = manifest.labels[gallery]
    order = canonical_order(labels, np.zeros(len(gallery), np.uint64))
    starts, ends = level_ranges(manifest.labels[asked], labels[order])  # (Q, L)
    all_items = np.full(len(asked), len(gallery), np.int64)
    beyond_finest = np.zeros(len(asked), np.int64)
    # items of level ≥ 0, 1, … L, L + 1; those of exactly l are the differences
    at_least = np.column_stack([all_items, ends - starts, beyond_finest])  # (Q, L + 2)
    return at_least[:, :-1] - at_least[:, 1:]
