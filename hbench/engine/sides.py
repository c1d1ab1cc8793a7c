"""The two sides of a retrieval, queries and gallery: their vectors and labels, copies among them,
and which items each query leaves out of its list."""

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

    `ignore` (N,): a gallery item is left out of the list of every query of its group; -1 means no
    group. `known` uint8 (N,): under partial labels (hbench.tree.partial), how many levels are
    known, of both sides or of none. `more`: the paths of items that have several, beside their
    first, which is in `labels`.
    """

    vectors: NDArray[np.floating]
    labels: Labels
    ignore: NDArray[np.int64] | None = None
    known: NDArray[np.uint8] | None = None
    more: MorePaths | None = None

    def of(self, items: NDArray[np.int64]) -> Side:
        """The side that consists of some of the items, by their positions (n,)."""
        # rows selected from a larger array are selected once more, and not copied yet. None stands
        # for no groups, for labels that are not partial, and where no item has several paths
        vectors: Any = (
            self.vectors.of(items)
            if isinstance(self.vectors, SelectedRows)
            else self.vectors[items]
        )
        ignore = None if self.ignore is None else self.ignore[items]
        known = None if self.known is None else self.known[items]
        return Side(
            vectors,
            self.labels[items],
            ignore,
            known,
            None if self.more is None else self.more.of(items),
        )

    def paths(self, order: NDArray[np.int64]) -> KnownPaths:
        """All paths of the items, which are put in this `order` (N,) of their positions."""
        return KnownPaths(Paths(self.labels, self.more), order, self.known)


def duplicates(
    vectors: NDArray[np.floating], order: NDArray[np.int64], keys: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the gallery items whose vector stands earlier in the canonical order, too.

    `vectors` (G, D) and `keys` (G,), their hashes, in input order; `order` (G,): the canonical
    order. Returns canonical positions (n,): of the copies and, for each, of the first item with
    exactly the same vector, whose score it gets.
    """
    sorted_keys = keys[order]  # in canonical order
    # stable: of equal keys the item that stands first in that order comes first
    by_key = np.argsort(sorted_keys, kind="stable")
    # where a run of equal keys begins; ~ of the first key makes the first item begin one
    starts = np.flatnonzero(np.diff(sorted_keys[by_key], prepend=~sorted_keys[by_key[:1]]))
    # (G,): of each item in order of the keys, the first item of its run
    first = by_key[np.repeat(starts, np.diff(starts, append=len(by_key)))]
    copies = by_key[first != by_key]
    originals = first[first != by_key]
    # a key is a hash: equal ones are compared
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

    `asked` (Q,), `columns` (G,): the canonical orders of both sides. `self_rows` (Q,): the gallery
    row that is the query itself, −1 for none, in input order.
    """
    # one longer, so that −1, a query that is not in the gallery, finds −1
    column_of = np.full(len(columns) + 1, -1)
    column_of[columns] = np.arange(len(columns))
    self_columns = np.full(len(asked), -1) if self_rows is None else column_of[self_rows[asked]]

    def itself(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of the queries from `first` to `last` those that are in the gallery, counted from
        `first`, and their own columns."""
        rows = np.flatnonzero(self_columns[first:last] >= 0)
        return rows, self_columns[first:last][rows]

    if queries.ignore is None or gallery.ignore is None:
        return itself
    groups = queries.ignore[asked]  # (Q,): the group of each query, −1 for none
    members = gallery.ignore[columns]
    # the members of a group lie side by side in this order, from a start to an end
    by_group = np.argsort(members, kind="stable")
    starts, ends = (
        np.searchsorted(members[by_group], groups, side=side) for side in ("left", "right")
    )

    def with_group(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The items that the queries from `first` to `last` leave out: those of their group, and
        themselves. As pairs: the query, counted from `first`, and the column."""
        left_out = []
        for q in range(first, last):
            # −1 stands for no group, whose members are not left out
            group = by_group[starts[q] : ends[q]] if groups[q] >= 0 else by_group[:0]
            # unique: the query itself may be of the group
            own = np.unique(np.append(group, self_columns[q]))
            left_out.append(own[own >= 0])  # −1: the query is not in the gallery
        rows = np.repeat(np.arange(last - first), list(map(len, left_out)))
        return rows, np.concatenate(left_out)

    return with_group
