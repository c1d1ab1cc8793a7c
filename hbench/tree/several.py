"""Several right paths of an item, as of a picture with two labels or a node with two parents.

The first path of an item is its row of labels; `MorePaths` are the others. The level of a pair is
the largest over all pairs of their paths:

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
    """The paths of items beside their first: `items` (E,), positions, ascending, and `labels` (E,
    L). `known` (E,): under partial labels, how many of a path's levels are known."""

    items: Positions
    labels: Labels
    known: NDArray[np.uint8] | None = None

    @property
    def owners(self) -> int:
        """How many items have several paths: those that own some beside their first."""
        return len(np.unique(self.items))

    def of(self, chosen: Positions) -> MorePaths:
        """The further paths of some items, given by their positions `chosen` (n,), in that order;
        the items are from then on numbered by their place in it.

        With the items [0, 2, 2, 5] of four paths, the chosen [2, 5] give the paths 1, 2 and 3,
        whose items are [0, 0, 1].
        """
        # the paths of an item lie side by side, from a start to an end
        starts, ends = (
            np.searchsorted(self.items, chosen, side=side) for side in ("left", "right")
        )
        numbers = ends - starts
        # of each path its owner's place in `chosen`, and its number among the owner's paths
        owners = np.repeat(np.arange(len(chosen)), numbers)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        rows = starts[owners] + within
        known = None if self.known is None else self.known[rows]
        return MorePaths(owners, self.labels[rows], known)

    def numbers(self, items: int) -> Positions:
        """How many further paths each of this many items has, (items,); 0 for most."""
        return np.bincount(self.items, minlength=items)


class Paths(NamedTuple):
    """All paths of N items: the first ones, `labels` (N, L), and `more`, where some have
    several."""

    labels: Labels
    more: MorePaths | None = None

    @property
    def most(self) -> int:
        """How many paths the item has that has most of them, its first one counted."""
        return (
            1 if self.more is None else 1 + int(self.more.numbers(len(self.labels)).max(initial=0))
        )

    def of(self, chosen: Positions) -> Paths:
        """All paths of some items, given by their positions `chosen` (n,), in that order; the items
        are from then on numbered by their place in it."""
        return Paths(self.labels[chosen], None if self.more is None else self.more.of(chosen))

    def of_item(self, item: int) -> Labels:
        """The paths of one item (p, L), its first one first. `labels` (N, L): the first paths;
        `more`: further ones, with their items in ascending order."""
        first = self.labels[item : item + 1]
        if self.more is None:
            return first
        start, end = np.searchsorted(self.more.items, [item, item + 1])
        return np.concatenate([first, self.more.labels[start:end]])

    def all_labels(self) -> tuple[Labels, Positions]:
        """Every path and whose it is: the first ones, then the others; (N + E, L) and (N + E,)."""
        items = np.arange(len(self.labels))
        if self.more is None:
            return self.labels, items
        return np.concatenate([self.labels, self.more.labels]), np.concatenate(
            [items, self.more.items]
        )

    def nth(self, items: Positions, n: int) -> Labels:
        """The path number n, from 0, of each of the items, or the first of one that has fewer;
        (len(items), L).
        """
        labels: Labels = self.labels[items]  # a copy
        if n == 0 or self.more is None:
            return labels
        # more.items ascend, an item once for each path beside its first: the n-th path stands n − 1
        # behind the first of these, unless the paths of another item stand there
        place = np.searchsorted(self.more.items, items) + n - 1
        inside = np.flatnonzero(place < len(self.more.items))
        has_nth = inside[self.more.items[place[inside]] == items[inside]]
        labels[has_nth] = self.more.labels[place[has_nth]]
        return labels

    def levels(self, first: Positions, second: Positions) -> NDArray[np.uint8]:
        """The level of each pair of a `first` and a `second` item; (n,)."""
        # of all pairs of their paths the one that shares most counts
        best = np.zeros(len(first), np.uint8)
        for one in range(self.most):
            of_first = self.nth(first, one)
            for other in range(self.most):
                # cumprod is 1 as long as all levels down to here are equal
                equal = of_first == self.nth(second, other)
                np.maximum(
                    best,
                    np.cumprod(equal, axis=1, dtype=np.uint8).sum(axis=1, dtype=np.uint8),
                    out=best,
                )
        return best

    def shared(self, first: int, second: int) -> Labels:
        """The path of the `second` item that has most in common with one of the `first`; (L,)."""
        paths = self.of_item(second)
        # of each of its paths the largest level with any path of the first item
        levels = [
            np.cumprod(path == self.of_item(first), axis=1).sum(axis=1).max() for path in paths
        ]
        best: Labels = paths[int(np.argmax(levels))]
        return best


def split_first_paths(
    paths_of_items: Sequence[Sequence[object]],
) -> tuple[list[object], list[object], Positions]:
    """The first path of every item, all further ones, and whose these are.

    >>> split_first_paths([["a"], ["b", "c", "b"]])  # a path that an item names twice is one
    (['a', 'b'], ['c'], array([1]))
    """
    different = [list(dict.fromkeys(paths)) for paths in paths_of_items]
    further = [(item, path) for item, paths in enumerate(different) for path in paths[1:]]
    owners = np.array([item for item, _ in further], np.int64)
    return [paths[0] for paths in different], [path for _, path in further], owners
