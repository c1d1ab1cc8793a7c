"""Lists of positives where items have several right paths. The level of a query and an item is the
largest level over all pairs of their paths.

Queries with the same set of paths have the same positives, apart from the items that each query
leaves out. So one list is made for each set of paths, when its queries are ranked. To make it, each
range of items that share a level with one of the paths is written to an array of levels, coarse
levels first.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hbench.metrics.level_sequence import canonical_order, level_ranges, unknown_ranges
from hbench.tree.several import Paths

Positions = NDArray[np.int64]
Known = NDArray[np.uint8]
LeftOut = Callable[[int, int], tuple[Positions, Positions]]
# sets of paths whose lists are kept; a few are enough, as queries of one class follow one another
SETS_KEPT = 16


class KnownPaths:
    """All E paths of the queries or of the gallery: the first paths of all items, then the further
    paths of items that have several.

    `labels` (E, L): the labels of each path. `items` (E,): the item of each path, by its number in
    canonical order. `known` (E,): how many levels of each path are known, None if labels are not
    partial. `size`: the number of items.
    """

    def __init__(self, paths: Paths, order: Positions, known: Known | None) -> None:
        """Put the paths of N items into canonical order. Sets `labels` (E, L), `items` (E,), the
        item of each path, and `known` (E,) or None, how many levels of each path are known. The E
        entries are the first paths of all items, then all further paths.

        Args:
            paths: in input order, the first path of each item and the further ones, `more`.
            order: (N,), the input positions of the items in canonical order.
            known: (N,), how many levels of each item's first path are known, in input order; None
                if labels are not partial.
        """
        # items are then numbered by their place in `order`
        more = None if paths.more is None else paths.more.of(order)
        self.size = len(order)
        self.labels, self.items = Paths(paths.labels[order], more).all_labels()
        self.known = None if known is None else known[order]
        if known is not None and more is not None:
            assert more.known is not None
            self.known = np.concatenate([known[order], more.known])

    @property
    def known_of_items(self) -> Known:
        """For each item, the number of known levels of the path of which most are known; (N,)."""
        assert self.known is not None
        best = np.zeros(self.size, np.uint8)
        # .at takes the maximum over all paths of an item
        np.maximum.at(best, self.items, self.known)
        return best


class PathLists:
    """The positives of the queries, in canonical order, where items have several paths.

    `out(first, last)`: pairs of a query, counted from `first`, and a column that its list leaves
    out. `size`: G, the number of gallery items. `depth`: L.

    The gallery's E paths are in canonical order; `items` (E,): the column of each path's item. The
    queries have P different paths. `starts`, `ends` (P, L): from where to where the gallery's paths
    share at least l levels with each of the P paths. `unknown`: starts and ends (P, L − 1) of the
    gallery's paths that may share more than l levels, None if labels are not partial.

    `sets`: the different sets of paths that queries have, each as numbers of some of the P paths.
    `set_of` (Q,): the number of each query's set. `counts` (Q, K): how many items of each code a
    query's list has, without left-out items.
    """

    def __init__(self, queries: KnownPaths, gallery: KnownPaths, out: LeftOut) -> None:
        """Find the ranges of the gallery's paths for each different path of the queries.

        Queries with the same set of paths share a list of positives. A list is made when it is
        first requested, and the lists used last, up to SETS_KEPT, are kept.

        `out(first, last)`: the pairs of a query and a column that it leaves out, of the queries
        `first` to `last` − 1. Returns two arrays: the queries, counted from `first`, and the
        columns.
        """
        self.out = out
        self.size = gallery.size
        self.depth = queries.labels.shape[1]
        # sets `items`, `starts`, `ends` and `unknown`, as the class describes them, and
        # `path_of_entry`: of each path of a query, its number among the different ones
        self._make_ranges(queries, gallery)
        # the different sets of paths that queries have, and the number of each query's set
        self.sets, self.set_of = _sets_of(queries, self.path_of_entry)
        self.counts = self._count_codes()  # (Q, K): items of each query's list by code
        self._positives_of = lru_cache(SETS_KEPT)(self._positives_of_set)

    def _make_ranges(self, queries: KnownPaths, gallery: KnownPaths) -> None:
        """Sort the gallery's paths, and find the ranges of those that share levels with each of the
        queries' P different paths. Sets `items`, `starts`, `ends` and `unknown`, as the class
        describes them, and `path_of_entry` (E,): for each path of the queries, its number among the
        P different ones. Under partial labels, `unknown` are the starts and ends (P, L − 1) of the
        gallery's paths that share l levels, from 1, and may share more, since one of the two paths
        ends there. Below its end a path has labels, too: those of a node that stands for the
        unknown.
        """
        # columns (E,): L of labels and, under partial labels, how many levels of a path are known
        by_path = (
            [*queries.labels.T] if queries.known is None else [*queries.labels.T, queries.known]
        )
        # Queries share few different paths. Paths with equal labels are different if different
        # numbers of levels are known. `first` (P,): the first entry with this path.
        different, first, place = np.unique(
            np.stack(by_path, axis=1), axis=0, return_index=True, return_inverse=True
        )
        self.path_of_entry = place.reshape(-1)
        # by path, and paths with equal labels by the number of their item
        order = canonical_order(gallery.labels, gallery.items.astype(np.uint64))
        self.items = gallery.items[order]
        labels = different[:, : self.depth].astype(np.int32)  # without the column of known levels
        ranked = gallery.labels[order]
        # (P, L) each: where the gallery's paths share at least l levels with each path
        self.starts, self.ends = level_ranges(labels, ranked)
        self.unknown: tuple[Positions, Positions] | None = None

        if queries.known is not None and gallery.known is not None:
            known = queries.known[first]
            # from the ranges of shared labels, before those at unknown levels are emptied below
            self.unknown = unknown_ranges(
                labels,
                ranked,
                self.starts,
                self.ends,
                known_of_queries=known,
                known_of_gallery=gallery.known[order],
            )
            # no item is a positive at a level at which the query's path is not known
            beyond = np.arange(1, self.depth + 1) > known[:, None]
            self.starts, self.ends = (
                np.where(beyond, 0, bounds) for bounds in (self.starts, self.ends)
            )

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The content of all lists, as arrays. They enter the ranker's digest, so that blocks that
        were kept for other lists are not used."""
        of_paths = (self.items, self.starts, self.ends, *(self.unknown or ()))
        # all sets as one array, and the size of each
        paths_of_sets = np.concatenate([np.array(paths, np.int64) for paths in self.sets])
        sizes = np.array(list(map(len, self.sets)), np.int64)
        return (*of_paths, paths_of_sets, sizes, self.set_of)

    def codes(self, paths: Sequence[int]) -> Known:
        """The code (G,) of each gallery item for a query with these `paths`, which are numbers of
        some of the queries' P different paths. A code is the largest level over all pairs of paths;
        under partial labels there are two codes per level.
        """
        levels = np.zeros(self.size, np.uint8)
        # finer levels overwrite coarser ones, so each item gets its largest level
        for level in range(self.depth):
            for path in paths:
                levels[self.items[self.starts[path, level] : self.ends[path, level]]] = level + 1
        if self.unknown is None:
            return levels

        may_be_finer = np.zeros(self.size, bool)
        # (P, L − 1) each: for each path and level l, the range of the gallery's paths that may
        # share more levels than l with it; `items` has the item of each of the gallery's paths
        starts, ends = self.unknown
        for path in paths:
            for start, end in zip(starts[path], ends[path], strict=True):
                may_be_finer[self.items[start:end]] = True
        # an item with several paths may share all levels with the query by another path: it is of
        # the finest level then
        may_be_finer &= levels < self.depth
        # level l has the code 2l − 1, and 2l where the item may be finer (hbench.metrics.readings)
        codes: Known = np.where(levels == 0, 0, 2 * levels - 1 + may_be_finer).astype(np.uint8)
        return codes

    def _count_codes(self) -> Positions:
        """Count the items of each code in the list of each query, (Q, K).

        Codes are computed once for each set of paths, and not for each of the many queries with
        that set.
        """
        # K: the levels from 0 to L; under partial labels code 0, two codes for each level but the
        # finest, and one for the finest
        number = self.depth + 1 if self.unknown is None else 2 * self.depth
        counts = np.empty((len(self.set_of), number), np.int64)
        # pairs of a query and a column that its list leaves out, of all queries: two arrays
        rows, columns = self.out(0, len(self.set_of))
        # queries, and pairs of left-out items, sorted by the query's set: each set has a slice of
        # both
        sets = np.arange(len(self.sets) + 1)
        out_by_set = np.argsort(self.set_of[rows], kind="stable")
        out_bounds = np.searchsorted(self.set_of[rows][out_by_set], sets)
        queries_by_set = np.argsort(self.set_of, kind="stable")
        query_bounds = np.searchsorted(self.set_of[queries_by_set], sets)

        for place, paths in enumerate(self.sets):
            codes = self.codes(paths)
            queries = queries_by_set[query_bounds[place] : query_bounds[place + 1]]
            counts[queries] = np.bincount(codes, minlength=number)
            # the left-out items of this set's queries are subtracted; .at counts each pair, also
            # where a query leaves out several items of one code
            out = out_by_set[out_bounds[place] : out_bounds[place + 1]]
            np.subtract.at(counts, (rows[out], codes[columns[out]]), 1)

        return counts

    def _positives_of_set(self, place: int) -> Positions:
        """The columns of the positives of queries whose set of paths has the number `place`, the
        highest code first. Items that single queries leave out are still among them.
        """
        codes = self.codes(self.sets[place])
        listed = np.flatnonzero(codes)
        # ascending by 255 − code: the highest code first, and a stable order within a code
        return listed[np.argsort(np.uint8(255) - codes[listed], kind="stable")]

    def positives(self, query: int) -> Positions:
        """The columns of a query's positives, the highest code first, without the items that it
        leaves out. `query`: its number in canonical order."""
        # queries with the same paths form a set and share this array, so it must not be changed
        listed = self._positives_of(int(self.set_of[query]))
        out = self.left_out(query)
        if not len(out):
            return listed
        is_out = np.zeros(self.size, bool)
        is_out[out] = True
        return listed[~is_out[listed]]

    def left_out(self, query: int) -> Positions:
        """The columns of the items that are left out of a query's list."""
        _, columns = self.out(query, query + 1)
        return columns


def _sets_of(
    queries: KnownPaths, path_of_entry: Positions
) -> tuple[list[tuple[int, ...]], Positions]:
    """The different sets of paths that queries have, each sorted, and the number of each query's
    set, (Q,). `path_of_entry` (E,): for each entry of `queries.items`, the number of its path among
    the different paths."""
    of_query: list[list[int]] = [[] for _ in range(queries.size)]
    for item, path in zip(queries.items.tolist(), path_of_entry.tolist(), strict=True):
        of_query[item].append(path)
    known: dict[tuple[int, ...], int] = {}
    # a set that is seen for the first time gets the next number, which is the size of `known`
    set_of = [known.setdefault(tuple(sorted(set(paths))), len(known)) for paths in of_query]
    return list(known), np.array(set_of, np.int64)
