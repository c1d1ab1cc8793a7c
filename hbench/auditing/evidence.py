"""Weighs what the neighbours of an item say about its label, against what is usual for a class.

The votes of an item are the classes of its k nearest neighbours, at every level. Classes that look
alike vote for each other all the time: the model of a class is therefore how the neighbours of its
own items are labelled, not the class alone. With n(c, v) votes for the node v among the items of
class c,

    P_l(v | c) = (n(c, v) + w · Q_l(v)) / (n(c) + w),    w = k / 2,

without the votes of the item itself and its copies (hbench/auditing/repeats.py). Q is the share of
v among all items, and for far alternatives P of the parent of c in its place, which small classes
need. The evidence for another class d is

    Σ_l mean_j log P_l(v_j | d) − log P_l(v_j | c),

in nats. An alternative is near where it has the parent of c, far where it has not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
PRIOR = 0.5  # weight of what is usual for all items, in lists of k votes
PAIRS_AT_ONCE = 1 << 16  # pairs of an item and a class
NOTHING = -1


class Best(NamedTuple):
    """The best alternative of some items: the `evidence` for it (m,), −inf without one, and the
    `classes` (m,), NOTHING without one."""

    evidence: Floats
    classes: Indices


class Alternatives(NamedTuple):
    """The best far and near alternatives of some items."""

    far: Best
    near: Best


@dataclass(frozen=True)
class Votes:
    """The classes of items and of their neighbours.

    Attributes:
        paths: (C, L), the nodes of every class, coarse to fine.
        known: (C,), how many levels of a class are known.
        classes: (N,), the class of every item.
        neighbours: (N, k), items.
        weights: (N,), 1 over the number of an item's copies under its own label and itself.
    """

    paths: Indices
    known: Indices
    classes: Indices
    neighbours: Indices
    weights: Floats

    @property
    def k(self) -> int:
        return int(self.neighbours.shape[1])

    @property
    def depth(self) -> int:
        return int(self.paths.shape[1])

    @property
    def parents(self) -> Indices:
        """A number for the parent of every class, (C,)."""
        if self.depth == 1:
            return np.zeros(len(self.paths), np.int64)
        return self.paths[:, -2]

    def common(self, one: Indices | int, other: Indices | int) -> Indices:
        """How many levels pairs of classes (m,) share from the top, (m,)."""
        same = self.paths[one] == self.paths[other]
        # a node that two paths share counts only while all above it are shared
        shared: Indices = np.cumprod(same, axis=-1).sum(axis=-1)
        return shared


class VoteCounts:
    """How often the items of each group have a vote for each node: pairs that occur, sorted. An
    item that comes several times counts once."""

    def __init__(
        self, groups: Indices, votes: NDArray[np.int32], nodes: int, weights: Floats
    ) -> None:
        """Count the votes (m, k) of items, as nodes below the number `nodes`, by the group (m,) of
        each item; `weights` (m,): how much each item's votes count, less for copies."""
        self.nodes = nodes
        # a pair of a group and a node as one number (m, k), so that pairs are counted by sorting
        keys = groups[:, None] * nodes + votes
        self.keys, place = np.unique(keys, return_inverse=True)
        self.counts = np.bincount(place.ravel(), np.repeat(weights, votes.shape[1]))
        self.totals = np.bincount(groups, weights) * votes.shape[1]  # (groups,), of all nodes

    def of(self, groups: Indices, votes: NDArray[np.int32]) -> Floats:
        """The counts of votes (m, k) among the items of groups (m,). `keys`: each pair of a group
        and a node that occurs, as one number, ascending; `counts`: how often; `nodes`: how many
        nodes the level has. (m, k)."""
        wanted = groups[:, None] * self.nodes + votes
        # a pair that never occurred is sorted beside another one, or behind the last
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0)


class Evidence:
    """What the neighbours of items say about their classes."""

    def __init__(self, votes: Votes) -> None:
        """Count, at every level, which nodes the items of each class, and of each parent, have
        among their neighbours. `votes`: of every item (N,) its class, and its neighbours (N, k), as
        places among the items; of every class (C,) its nodes, coarse to fine (C, L)."""
        self.votes = votes
        classes = votes.classes
        self.levels = []
        for level in range(votes.depth):
            nodes = votes.paths[:, level]
            number = int(nodes.max()) + 1
            # (N, k): the node that each neighbour of each item votes for; int32 is half the memory
            cast = nodes.astype(np.int32)[classes[votes.neighbours]]
            self.levels.append(
                Level(
                    cast,
                    np.bincount(nodes[classes], minlength=number) / len(classes),
                    VoteCounts(classes, cast, number, votes.weights),
                    VoteCounts(votes.parents[classes], cast, number, votes.weights),
                )
            )

    def alternatives(self, items: Indices, classes: Indices) -> Alternatives:
        """The best far and near alternatives of items (m,), were they of these classes (m,); their
        own class is among the alternatives then. Taken in parts, so that memory stays bounded."""
        parts = []
        # pairs of an item: the classes of k neighbours, its own, and the one it is taken to have
        step = max(1, PAIRS_AT_ONCE // (self.votes.k + 2))
        for start in range(0, max(len(items), 1), step):  # of no items, a part without any
            some = slice(start, start + step)
            parts.append(self._alternatives(items[some], classes[some]))
        far, near = zip(*parts, strict=True)
        return Alternatives(_concatenated(far), _concatenated(near))

    def _alternatives(self, items: Indices, classes: Indices) -> tuple[Best, Best]:
        """The best other class of every item that contradicts its label: of those far away in the
        tree, and of siblings. `items` (m,): places among all items; `classes` (m,): the class that
        each is taken to have, which need not be its own."""
        votes = self.votes
        # (pairs,) each: the place in `items`, and another class that it may have
        row, other = self._candidates(items)
        common = votes.common(other, classes[row])
        known = votes.known[classes[row]]
        # a class that extends the other, or is one with it, contradicts nothing
        differs = common < np.minimum(known, votes.known[other])
        is_near = common == known - 1  # they part at the label's last known level: siblings

        # evidence for a class is the logarithm of a ratio of likelihoods. Of each there are two,
        # for far alternatives and for near ones: siblings share the parent, by which the first is
        # smoothed. `of_own` (m,) twice, `of_other` (pairs,) twice
        of_own = self.log_likelihood(items, classes)
        of_other = self.log_likelihood(items[row], other)
        best = []
        for own, others, kind in zip(of_own, of_other, (~is_near, is_near), strict=True):
            at = differs & kind
            best.append(_best(len(items), row[at], other[at], (others - own[row])[at]))
        return best[0], best[1]

    def _candidates(self, items: Indices) -> tuple[Indices, Indices]:
        """Pairs of a place among the items (m,) and a class: of their neighbours, and their own; as
        two arrays (pairs,), each pair once."""
        votes = self.votes
        named = votes.classes[votes.neighbours[items]]
        classes = np.concatenate([named, votes.classes[items][:, None]], axis=1)
        # a pair as one number, so that each comes once, in the order of the items
        keys = np.unique(np.arange(len(items))[:, None] * len(votes.paths) + classes)
        return np.divmod(keys, len(votes.paths))

    def log_likelihood(self, items: Indices, classes: Indices) -> tuple[Floats, Floats]:
        """The log-likelihoods of the votes of items (m,) under classes (m,), in nats, without the
        items' own votes: (m,) for far alternatives, and (m,) for near ones. Levels are added up; of
        the k votes at a level the mean counts."""
        far = np.zeros(len(items))
        near = np.zeros(len(items))
        parents = self.votes.parents
        is_own = self.votes.classes[items] == classes
        in_parent = parents[self.votes.classes[items]] == parents[classes]
        # a class of few items borrows some items' worth of votes: for far alternatives from its
        # parent, for near ones, which share the parent, from all items
        weight = PRIOR * self.votes.k
        for level in self.levels:
            cast = level.cast[items]
            # (m, k): what the item itself gave to the counts of each node it votes for, which is
            # taken away again wherever it was counted: in its own class, and in that one's parent
            own = (cast[:, :, None] == cast[:, None, :]).sum(axis=2)
            usual = level.shares[cast]
            in_class = level.of_class.of(classes, cast) - np.where(is_own[:, None], own, 0)
            in_class = np.maximum(in_class, 0)  # copies vote nearly alike, not quite
            of_parent = level.of_parent.of(parents[classes], cast)
            of_parent = np.maximum(of_parent - np.where(in_parent[:, None], own, 0), 0)
            total = level.of_class.totals[classes] - np.where(is_own, self.votes.k, 0)
            total_of_parent = level.of_parent.totals[parents[classes]]
            total_of_parent = total_of_parent - np.where(in_parent, self.votes.k, 0)

            in_parents = (of_parent + weight * usual) / (total_of_parent[:, None] + weight)
            far += np.log((in_class + weight * in_parents) / (total[:, None] + weight)).mean(axis=1)
            near += np.log((in_class + weight * usual) / (total[:, None] + weight)).mean(axis=1)
        return far, near


class Level(NamedTuple):
    """The votes at one level: `cast` (N, k) int32, the nodes of the neighbours; `shares` (V,) of
    each node among all items; counts by class and by parent."""

    cast: NDArray[np.int32]
    shares: Floats
    of_class: VoteCounts
    of_parent: VoteCounts


def _best(number: int, rows: Indices, classes: Indices, evidence: Floats) -> Best:
    """The best alternative of each of a `number` of items; of equal ones the first class. Of pairs
    (m,) of an item (`rows`) and a class (`classes`), with the evidence for it. An item without a
    pair has −∞ and NOTHING."""
    order = np.lexsort((classes, -evidence, rows))
    # the first of each row in the order of evidence
    first = order[np.unique(rows[order], return_index=True)[1]]
    best = Best(np.full(number, -np.inf), np.full(number, NOTHING))
    best.evidence[rows[first]] = evidence[first]
    best.classes[rows[first]] = classes[first]
    return best


def _concatenated(parts: tuple[Best, ...]) -> Best:
    """The best alternatives of parts of the items, one after another."""
    return Best(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
