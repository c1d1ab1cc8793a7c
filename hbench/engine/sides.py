"""The two sides of a retrieval, queries and gallery: their vectors and labels, the copies of
vectors among the items, and the items that each query leaves out of its list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.engine.lists.paths import KnownPaths, LeftOut
from hbench.engine.scan import equal_rows
from hbench.engine.similarity import SelectedRows
from hbench.tree import Labels
from hbench.tree.several import MorePaths, Paths


@dataclass(frozen=True)
class Side:
    """Vectors (N, D) and labels (N, L), coarse to fine, of the queries or of the gallery.

    `ignore` (N,): the ignore group of each item, -1 for no group; None if there are no groups. A
    gallery item is left out of the list of every query of its group. `known` uint8 (N,): how many
    levels of each item are known, under partial labels (hbench.tree.partial); None if labels are
    not partial, which is then so for queries and gallery alike. `more`: the further paths of items
    that have several, while `labels` has the first path of every item; None if all have one.
    """

    vectors: NDArray[np.floating]
    labels: Labels
    ignore: NDArray[np.int64] | None = None
    known: NDArray[np.uint8] | None = None
    more: MorePaths | None = None

    def of(self, items: NDArray[np.int64]) -> Side:
        """The side that consists of some of the items, given by their positions (n,)."""
        # a selection of rows of a larger array is narrowed down without a copy of the rows
        vectors: Any = (
            self.vectors.of(items)
            if isinstance(self.vectors, SelectedRows)
            else self.vectors[items]
        )
        ignore = None if self.ignore is None else self.ignore[items]
        known = None if self.known is None else self.known[items]
        return Side(
            vectors=vectors,
            labels=self.labels[items],
            ignore=ignore,
            known=known,
            more=None if self.more is None else self.more.of(items),
        )

    def paths(self, order: NDArray[np.int64]) -> KnownPaths:
        """All paths of the items, sorted by `order` (N,): the items' positions in the new order."""
        return KnownPaths(Paths(self.labels, self.more), order, self.known)


def duplicates(
    vectors: NDArray[np.floating], order: NDArray[np.int64], keys: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the gallery items that have the same vector as an item before them in canonical order.

    Args:
        vectors: (G, D), in input order.
        order: (G,), the input positions of the items in canonical order.
        keys: (G,), hashes of the vectors, in input order.

    Returns:
        Two arrays (n,) of positions in canonical order: the copies, and for each copy the first
        item that has exactly the same vector. A copy gets the score of that item.
    """
    sorted_keys = keys[order]  # in canonical order
    # a stable sort: among equal keys, the item that is first in canonical order stays first
    by_key = np.argsort(sorted_keys, kind="stable")
    # The places where a run of equal keys begins. The complement of the first key is prepended:
    # it differs from the first key, so the first item begins a run, too.
    starts = np.flatnonzero(np.diff(sorted_keys[by_key], prepend=~sorted_keys[by_key[:1]]))
    # (G,): for each item in order of the keys, the first item of its run
    first = by_key[np.repeat(starts, np.diff(starts, append=len(by_key)))]
    copies = by_key[first != by_key]
    originals = first[first != by_key]
    # different vectors may have the same hash, so the vectors themselves are compared
    equal = equal_rows(vectors, order[copies], order[originals])
    return copies[equal], originals[equal]


def left_out_of(
    queries: Side,
    gallery: Side,
    *,
    asked: NDArray[np.int64],
    columns: NDArray[np.int64],
    self_rows: NDArray[np.int64] | None,
) -> LeftOut:
    """Return a function that lists, for a range of queries in canonical order, the items that each
    query leaves out of its list: the query itself, and the members of its ignore group.

    Args:
        queries: the queries, of which the ignore groups are used.
        gallery: the gallery items, of which the ignore groups are used.
        asked: (Q,), the input positions of the queries in canonical order.
        columns: (G,), the input positions of the gallery items in canonical order.
        self_rows: (Q,), in input order: the position of the query itself in the gallery, −1 if it
            is not there. None if no query is in the gallery.
    """
    # the array has one element more than the gallery, which stays −1: index −1, of a query that is
    # not in the gallery, reads that last element
    column_of = np.full(len(columns) + 1, -1)
    column_of[columns] = np.arange(len(columns))
    self_columns = np.full(len(asked), -1) if self_rows is None else column_of[self_rows[asked]]

    def itself(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The queries from `first` to `last` that are in the gallery, counted from `first`, and
        the column of each in the gallery."""
        rows = np.flatnonzero(self_columns[first:last] >= 0)
        return rows, self_columns[first:last][rows]

    if queries.ignore is None or gallery.ignore is None:
        return itself
    groups = queries.ignore[asked]  # (Q,): the group of each query, −1 for none
    members = gallery.ignore[columns]  # (G,): the group of each column, −1 for none
    # sorted by group, the members of a query's group are the items from its start to its end
    by_group = np.argsort(members, kind="stable")
    starts, ends = (
        np.searchsorted(members[by_group], groups, side=side) for side in ("left", "right")
    )

    def with_group(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The items that the queries from `first` to `last` leave out: the members of their groups,
        and the queries themselves. Returned as pairs of a query, counted from `first`, and a
        column: two arrays."""
        left_out = []
        for q in range(first, last):
            # a query of group −1 has no group; the gallery items of group −1 are not left out
            group = by_group[starts[q] : ends[q]] if groups[q] >= 0 else by_group[:0]
            # unique, because the query itself may be a member of its group
            own = np.unique(np.append(group, self_columns[q]))
            left_out.append(own[own >= 0])  # −1: the query is not in the gallery
        rows = np.repeat(np.arange(last - first), list(map(len, left_out)))
        return rows, np.concatenate(left_out)

    return with_group
