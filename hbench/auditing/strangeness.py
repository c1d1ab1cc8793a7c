"""Says how strange an item would be in a class: how far it is from its neighbours, beside the items
of that class.

A wrong label does not change a picture: an item that belongs to the proposed class is as far from
its neighbours as the items of that class are from theirs. An item that is far from everything, as
heavy tails have many, has neighbours of some other class by chance. So the mean logarithm of the
distances 1 − cos of an item to its neighbours, in standard deviations of the proposed class above
its mean, tells the two apart. Small classes borrow from their parent, and parents from all items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.evidence import Indices, Votes

Floats = NDArray[np.float64]
BORROWED = 5  # items' worth of what is usual in the parent
SMALLEST = 1e-12  # a distance of rounding
MOST = 6.0  # standard deviations, beyond which all are equally strange
LEAST = -1.0


class Strangeness(NamedTuple):
    """`distances` (N,) of items, as logarithms; `means` and `deviations` (C,) of classes."""

    distances: Floats
    means: Floats
    deviations: Floats

    @classmethod
    def of(cls, votes: Votes, distances: Floats) -> Strangeness:
        """From the distances 1 − cos of every item to its neighbours, (N, k), and the classes of
        items in `votes`. A class of few items borrows from its parent, and a parent from all."""
        # where copies are at distance 0, neither its logarithm nor a division by 0
        logs = np.log(np.maximum(distances, SMALLEST)).mean(axis=1)
        mean, spread = np.array([logs.mean()]), np.array([logs.std()])
        of_parents = votes.parents  # (C,): the parent of every class, by number
        shape = int(of_parents.max()) + 1
        # all parents are under one root, which lends them its mean
        above = np.zeros(shape, np.int64)
        mean, spread = _means_with_borrowed_items(
            logs, of_parents[votes.classes], mean[above], spread[above]
        )
        means, deviations = _means_with_borrowed_items(
            logs, votes.classes, mean[of_parents], spread[of_parents]
        )
        return cls(logs, means, np.maximum(deviations, SMALLEST))

    def in_class(self, items: Indices, classes: Indices) -> Floats:
        """How strange items (m,) would be in classes (m,), in standard deviations."""
        strange = (self.distances[items] - self.means[classes]) / self.deviations[classes]
        return np.clip(strange, LEAST, MOST)


def _means_with_borrowed_items(
    values: Floats, groups: Indices, mean: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """The mean and standard deviation (G,) of the values (N,) of each group (N,).

    BORROWED items with the `mean` and `spread` (G,) of what a group lies in are counted with its
    own, so that a group of few items has no extreme ones.
    """
    number = len(mean)
    sizes = np.bincount(groups, minlength=number) + BORROWED
    means = (np.bincount(groups, values, number) + BORROWED * mean) / sizes
    squares = np.bincount(groups, (values - means[groups]) ** 2, number)
    return means, np.sqrt((squares + BORROWED * spread**2) / sizes)
