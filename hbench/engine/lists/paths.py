"""The lists of queries where items have several right paths: each item at the largest level over
all pairs of paths.

Queries of the same paths have the same positives but for what is left out of a list, so a list is
made for each set of paths, when its queries are ranked: every range of a path is written into the
levels of the items, coarse ranges first.
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
SETS_KEPT = 16  # of paths, whose lists are in use: queries of one class follow one another


class KnownPaths:
    """All E paths of the queries or of the gallery: the first paths of all items, then the further
    ones of items that have several.

    Of each path: its `labels` (E, L); the number of its item in canonical order, `items` (E,); and
    how many of its levels are `known` (E,), None where all are. `size`: the number of items."""

    def __init__(self, paths: Paths, order: Positions, known: Known | None) -> None:
        """`paths`: of N items, in input order, the first of each and the further ones, `more`;
        `order` (N,): the items in canonical order; `known` (N,): to how many levels the first path
        of each is known, None where all are known to the finest."""
        more = None if paths.more is None else paths.more.of(order)
        self.size = len(order)
        self.labels, self.items = Paths(paths.labels[order], more).all_labels()
        self.known = None if known is None else known[order]
        if known is not None and more is not None:
            assert more.known is not None
            # `labels` holds the first paths of all items, then all further ones
            self.known = np.concatenate([known[order], more.known])

    @property
    def known_of_items(self) -> Known:
        """How many levels are known of each item's best known path; (N,)."""
        assert self.known is not None
        best = np.zeros(self.size, np.uint8)
        # .at: an item with several paths is raised by each of them
        np.maximum.at(best, self.items, self.known)
        return best


class PathLists:
    """The positives of the canonical queries by the paths of both sides.

    `out(first, last)`: pairs of a query, counted from `first`, and a column that its list leaves
    out. `size`: G, the items of the gallery; `depth`: L.

    The gallery's E paths lie in canonical order: `items` (E,): the column of each one's item. The
    queries have P different paths: `starts`, `ends` (P, L): from where to where the gallery's paths
    share at least l levels with each of them; `unknown`: starts and ends (P, L − 1) of the
    gallery's paths that may share more than l levels, None where labels are not partial. `sets`:
    the different sets of paths that queries have, as numbers of the P paths; `set_of` (Q,): which
    set each query has. `counts` (Q, K): items by code, without what is left out.
    """

    def __init__(self, queries: KnownPaths, gallery: KnownPaths, out: LeftOut) -> None:
        """List positives by ranges of the gallery, found once for each different path of a query;
        queries with the same set of paths share a list, of which the last SETS_KEPT are kept.
        `out`: what is left out of which list."""
        self.out = out
        self.size = gallery.size
        self.depth = queries.labels.shape[1]
        # sets `items`, `starts`, `ends`, `unknown` and `path_of_entry`: where the gallery's paths
        # that share levels with each different path of the queries lie
        self._make_ranges(queries, gallery)
        # the different sets of paths that queries have, and (Q,) which each has
        self.sets, self.set_of = _sets_of(queries, self.path_of_entry)
        self.counts = self._count_codes()
        # a list of a set, made when it is asked for
        self._positives_of = lru_cache(SETS_KEPT)(self._positives_of_set)

    def _make_ranges(self, queries: KnownPaths, gallery: KnownPaths) -> None:
        """Set `starts` and `ends` (P, L): the ranges of the gallery's paths, in canonical order,
        that share at least l levels with each of the queries' P different paths; `items`: whose
        these paths are; `unknown`: ranges of paths that may be finer, where labels are partial.
        """
        # columns (E,): L of labels, and, where labels are partial, how far each path is known
        by_path = (
            [*queries.labels.T] if queries.known is None else [*queries.labels.T, queries.known]
        )
        # queries share few different paths; one known less deep is another path. `first`: where
        # each stands first; `place` (E,): which of them a path is
        different, first, place = np.unique(
            np.stack(by_path, axis=1), axis=0, return_index=True, return_inverse=True
        )
        self.path_of_entry = place.reshape(-1)
        order = canonical_order(gallery.labels, gallery.items.astype(np.uint64))
        self.items = gallery.items[order]
        labels = different[:, : self.depth].astype(np.int32)  # without the depth
        ranked = gallery.labels[order]
        self.starts, self.ends = level_ranges(labels, ranked)
        self.unknown: tuple[Positions, Positions] | None = None

        if queries.known is not None and gallery.known is not None:
            known = queries.known[first]
            self.unknown = unknown_ranges(
                labels,
                ranked,
                self.starts,
                self.ends,
                known_of_queries=known,
                known_of_gallery=gallery.known[order],
            )
            # below the level to which a query is known no item is a positive
            beyond = np.arange(1, self.depth + 1) > known[:, None]
            self.starts, self.ends = (
                np.where(beyond, 0, bounds) for bounds in (self.starts, self.ends)
            )

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that the lists say, as arrays, of which the ranker's digest is made: so blocks kept
        for other lists are not taken for these."""
        of_paths = (self.items, self.starts, self.ends, *(self.unknown or ()))
        # the sets one after another, and how long each is
        paths_of_sets = np.concatenate([np.array(paths, np.int64) for paths in self.sets])
        sizes = np.array(list(map(len, self.sets)), np.int64)
        return (*of_paths, paths_of_sets, sizes, self.set_of)

    def codes(self, paths: Sequence[int]) -> Known:
        """The code (G,) of every gallery item for a query that has all of these paths, numbers
        among the queries' different ones. A code is the level of the best pair of paths; under
        partial labels two codes per level.

        `starts`, `ends` (P, L): from where to where the paths of the gallery, in canonical order,
        share at least l levels with each path of the queries; `items` (E,): the column of the item
        of each of the gallery's paths.
        """
        levels = np.zeros(self.size, np.uint8)
        # coarse ranges first: a finer one is written over them, so the best path decides
        for level in range(self.depth):
            for path in paths:
                levels[self.items[self.starts[path, level] : self.ends[path, level]]] = level + 1
        if self.unknown is None:
            return levels

        may_be_finer = np.zeros(self.size, bool)
        # `unknown`: of each path and level but the finest, the range of what may share more
        starts, ends = self.unknown
        for path in paths:
            for start, end in zip(starts[path], ends[path], strict=True):
                may_be_finer[self.items[start:end]] = True
        # an item of several paths may be known to share all levels by another one
        may_be_finer &= levels < self.depth
        # level l has the code 2l − 1, and 2l where the item may be finer (hbench.metrics.readings)
        codes: Known = np.where(levels == 0, 0, 2 * levels - 1 + may_be_finer).astype(np.uint8)
        return codes

    def _count_codes(self) -> Positions:
        """Count the items of every code in the list of each query, (Q, K).

        Codes are computed once for a set of paths, not for each of the many queries that have it.
        `sets`: the different sets, as numbers of paths; `set_of` (Q,): which of them a query has.
        """
        # levels from 0 to L, or under partial labels two codes for each but the finest, and 0
        number = self.depth + 1 if self.unknown is None else 2 * self.depth
        counts = np.empty((len(self.set_of), number), np.int64)
        # pairs of a query and a column that its list leaves out, of all queries
        rows, columns = self.out(0, len(self.set_of))
        # what is left out, and the queries, in order of their set of paths: each set is one slice
        sets = np.arange(len(self.sets) + 1)
        out_by_set = np.argsort(self.set_of[rows], kind="stable")
        out_bounds = np.searchsorted(self.set_of[rows][out_by_set], sets)
        queries_by_set = np.argsort(self.set_of, kind="stable")
        query_bounds = np.searchsorted(self.set_of[queries_by_set], sets)

        for place, paths in enumerate(self.sets):
            codes = self.codes(paths)
            queries = queries_by_set[query_bounds[place] : query_bounds[place + 1]]
            counts[queries] = np.bincount(codes, minlength=number)
            # pairs of this set's queries and what they leave out, whose codes are taken off
            out = out_by_set[out_bounds[place] : out_bounds[place + 1]]
            # .at: a query may leave out several items of one code
            np.subtract.at(counts, (rows[out], codes[columns[out]]), 1)

        return counts

    def _positives_of_set(self, place: int) -> Positions:
        """The columns of the positives for a query whose paths are set number `place`, the highest
        code first; items that single queries leave out are still among them.
        """
        codes = self.codes(self.sets[place])
        listed = np.flatnonzero(codes)
        # 255 − code: an ascending, stable sort that begins with the highest code
        return listed[np.argsort(np.uint8(255) - codes[listed], kind="stable")]

    def positives(self, query: int) -> Positions:
        """The columns of the positives of a query, given by its canonical number; the highest code
        first. The list of its set of paths is kept, for the next query mostly has the same set; so
        it is not changed here: what this query leaves out is taken from a copy."""
        # of its set of paths, by number
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
    """The different sets of paths that queries have, each sorted, and which of them each query has,
    (Q,). `path_of_entry`: for every entry of `queries.items`, the number of that path among the
    different ones."""
    of_query: list[list[int]] = [[] for _ in range(queries.size)]
    for item, path in zip(queries.items.tolist(), path_of_entry.tolist(), strict=True):
        of_query[item].append(path)
    known: dict[tuple[int, ...], int] = {}
    # a set that is met for the first time gets the next number
    set_of = [known.setdefault(tuple(sorted(set(paths))), len(known)) for paths in of_query]
    return list(known), np.array(set_of, np.int64)
