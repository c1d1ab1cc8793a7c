"""Items with several right paths, such as a picture with two labels, or a node with two parents.

The first path of an item is its row of labels; `MorePaths` has the others. The level of a pair of
items is the largest level over all pairs of their paths:

>>> labels = np.array([[0, 0], [1, 1], [1, 2]])  # of three items
>>> both = Paths(
...     labels, MorePaths(np.array([0]), np.array([[1, 2]]))
... )  # the first is at home in two places
>>> both.levels(np.array([0, 0, 1]), np.array([1, 2, 2])).tolist()
[1, 2, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.tree import Labels

Positions = NDArray[np.int64]


class MorePaths(NamedTuple):
    """All paths of items besides their first ones."""

    items: Positions  # the position of each path's item, ascending, (E,)
    labels: Labels  # the paths, (E, L)
    known: NDArray[np.uint8] | None = None  # under partial labels, a path's known levels, (E,)

    @property
    def owners(self) -> int:
        """The number of items that have several paths."""
        return len(np.unique(self.items))

    def of(self, chosen: Positions) -> MorePaths:
        """The further paths of some items, given by their positions `chosen` (n,). In the result,
        an item's position is its index in `chosen`. `known`, the number of known levels of each
        path, is taken along if there is any.

        For example, if `items` is [0, 2, 2, 5], then `of([2, 5])` has the paths 1, 2 and 3, and its
        `items` are [0, 0, 1].
        """
        # the paths of an item are adjacent, from a start to an end
        starts, ends = (
            np.searchsorted(self.items, chosen, side=side) for side in ("left", "right")
        )
        numbers = ends - starts
        # for each path, the index of its item in `chosen`, and its index among the item's paths
        owners = np.repeat(np.arange(len(chosen)), numbers)
        # (cumsum − numbers is the number of paths of the items before)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        rows = starts[owners] + within
        known = None if self.known is None else self.known[rows]
        return MorePaths(items=owners, labels=self.labels[rows], known=known)

    def numbers(self, items: int) -> Positions:
        """The number of further paths of each item, (items,); `items` is the number of items."""
        return np.bincount(self.items, minlength=items)


class Paths(NamedTuple):
    """All paths of N items."""

    labels: Labels  # the first path of each item, (N, L)
    more: MorePaths | None = None  # further paths; None if every item has one path

    @property
    def most(self) -> int:
        """The largest number of paths of an item, including its first one."""
        return (
            1 if self.more is None else 1 + int(self.more.numbers(len(self.labels)).max(initial=0))
        )

    def of(self, chosen: Positions) -> Paths:
        """All paths of some items, given by their positions `chosen` (n,). In the result, an item's
        position is its index in `chosen`."""
        return Paths(self.labels[chosen], None if self.more is None else self.more.of(chosen))

    def of_item(self, item: int) -> Labels:
        """The paths of one item, (p, L), beginning with its first one."""
        first = self.labels[item : item + 1]
        if self.more is None:
            return first
        start, end = np.searchsorted(self.more.items, [item, item + 1])
        return np.concatenate([first, self.more.labels[start:end]])

    def all_labels(self) -> tuple[Labels, Positions]:
        """All paths, (N + E, L), and the positions of their items, (N + E,). The first path of each
        of the N items comes first, then their E further paths."""
        items = np.arange(len(self.labels))
        if self.more is None:
            return self.labels, items
        return np.concatenate([self.labels, self.more.labels]), np.concatenate(
            [items, self.more.items]
        )

    def nth(self, items: Positions, n: int) -> Labels:
        """The n-th path of each item, counted from 0, (len(items), L). An item with fewer paths has
        its first one there.
        """
        labels: Labels = self.labels[items]  # a copy, which is changed below
        if n == 0 or self.more is None:
            return labels
        # an item's further paths are adjacent, so path n is n − 1 rows after the first of them; the
        # item has no such path if this row belongs to another item
        place = np.searchsorted(self.more.items, items) + n - 1
        inside = np.flatnonzero(place < len(self.more.items))
        has_nth = inside[self.more.items[place[inside]] == items[inside]]
        labels[has_nth] = self.more.labels[place[has_nth]]
        return labels

    def levels(self, first: Positions, second: Positions) -> NDArray[np.uint8]:
        """The level of each pair of items, (n,). `first` and `second` (n,) are their positions."""
        # The pair of paths that shares most levels counts. An item has at most `most` paths; for
        # one with fewer, `nth` repeats the first path, which changes no maximum.
        best = np.zeros(len(first), np.uint8)
        for one in range(self.most):
            of_first = self.nth(first, one)
            for other in range(self.most):
                # (n, L); its cumprod along the levels is 1 up to the first difference
                equal = of_first == self.nth(second, other)
                np.maximum(
                    best,
                    np.cumprod(equal, axis=1, dtype=np.uint8).sum(axis=1, dtype=np.uint8),
                    out=best,
                )
        return best

    def shared(self, first: int, second: int) -> Labels:
        """The path of the item `second` that shares most levels with some path of the item `first`,
        (L,)."""
        paths = self.of_item(second)  # (p, L), each path of the item
        # the largest level of each of these paths with any path of `first`
        levels = [
            np.cumprod(path == self.of_item(first), axis=1).sum(axis=1).max() for path in paths
        ]
        best: Labels = paths[int(np.argmax(levels))]
        return best


def split_first_paths(
    paths_of_items: Sequence[Sequence[object]],
) -> tuple[list[object], list[object], Positions]:
    """Separate the first path of every item from the further ones. Return the first paths, the
    further paths, and the positions of the further paths' items.

    >>> split_first_paths([["a"], ["b", "c", "b"]])  # a path that an item names twice is one
    (['a', 'b'], ['c'], array([1]))
    """
    different = [list(dict.fromkeys(paths)) for paths in paths_of_items]
    further = [(item, path) for item, paths in enumerate(different) for path in paths[1:]]
    owners = np.array([item for item, _ in further], np.int64)
    return [paths[0] for paths in different], [path for _, path in further], owners
