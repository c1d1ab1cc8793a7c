"""Computes the evidence of an item's neighbours against its label, compared with what is usual for
a class.

The votes of an item are the classes of its k nearest neighbours, at every level. Classes that look
alike always vote for each other. So the model of a class is the distribution of the votes of its
own items, not the class itself. With n(c, v) votes for the node v among the items of class c,

    P_l(v | c) = (n(c, v) + w · Q_l(v)) / (n(c) + w),    w = k / 2,

without the votes of the item itself and its copies (hbench/auditing/repeats.py). Q is the share of
v among all items. For far alternatives, Q is replaced by P of the parent of c, which helps small
classes. The evidence for another class d is

    Σ_l mean_j log P_l(v_j | d) − log P_l(v_j | c),

in nats. An alternative is near if it has the same parent as c, and far otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
PRIOR = 0.5  # weight of Q, in units of one item's k votes
PAIRS_AT_ONCE = 1 << 16  # pairs of an item and a class that are processed together
NOTHING = -1  # in place of a class, where there is no alternative


class Best(NamedTuple):
    """The best alternative class of each of m items."""

    evidence: Floats  # for the alternative, (m,); −inf without one
    classes: Indices  # (m,); NOTHING without one


class Alternatives(NamedTuple):
    """The best far and near alternatives of some items."""

    far: Best
    near: Best


@dataclass(frozen=True)
class Votes:
    """The classes of items and of their neighbours.

    Attributes:
        paths: the nodes of every class, coarse to fine, (C, L).
        known: the number of known levels of every class, (C,).
        classes: the class of every item, (N,).
        neighbours: the k nearest neighbours of every item, as indices of items, (N, k).
        weights: 1 / the size of each item's burst, (N,): the item and its copies under the same
            label.
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
        """The parent of every class, (C,), as a node id of the second finest level."""
        if self.depth == 1:  # the root
            return np.zeros(len(self.paths), np.int64)
        return self.paths[:, -2]

    def common(self, one: Indices | int, other: Indices | int) -> Indices:
        """The number of levels that pairs of classes share from the top, (m,). `one` and `other`
        are classes (m,)."""
        same = self.paths[one] == self.paths[other]
        # cumprod is 1 up to the first level that differs
        shared: Indices = np.cumprod(same, axis=-1).sum(axis=-1)
        return shared


class VoteCounts:
    """The weighted number of votes for each node among the items of each group. Only the pairs of a
    group and a node that occur are stored."""

    def __init__(
        self, groups: Indices, votes: NDArray[np.int32], nodes: int, weights: Floats
    ) -> None:
        """Count the votes of m items.

        Args:
            groups: the group of each item, a class or a parent, as a number from 0, (m,).
            votes: the nodes for which each item votes, (m, k).
            nodes: the number of nodes of the level.
            weights: the weight of each item's votes, (m,), which is smaller for copies.
        """
        self.nodes = nodes
        # one number for each pair of a group and a node, (m, k), so that `unique` can count them
        keys = groups[:, None] * nodes + votes
        self.keys, place = np.unique(keys, return_inverse=True)
        # the weighted number of votes of each key
        self.counts = np.bincount(place.ravel(), np.repeat(weights, votes.shape[1]))
        self.totals = np.bincount(groups, weights) * votes.shape[1]  # of each group

    def of(self, groups: Indices, votes: NDArray[np.int32]) -> Floats:
        """Look up the counts of nodes, `votes` (m, k), in groups (m,). The result is (m, k), and 0
        for a pair that never occurred."""
        wanted = groups[:, None] * self.nodes + votes
        # for a pair that never occurred, searchsorted returns the place of another key, or the end
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0)


class Evidence:
    """The evidence of neighbours for and against the classes of items."""

    def __init__(self, votes: Votes) -> None:
        """Count the votes of the items of each class, and of each parent, at every level."""
        self.votes = votes
        classes = votes.classes
        self.levels = []
        for level in range(votes.depth):
            nodes = votes.paths[:, level]  # (C,): the node of each class
            number = int(nodes.max()) + 1
            # (N, k): each neighbour votes for its own node; int32 halves the memory
            nodes_of_votes = nodes.astype(np.int32)[classes[votes.neighbours]]
            parents = votes.parents[classes]  # (N,): of each item, by the parents (C,) of classes
            weights = votes.weights  # (N,): an item and its copies of the same label add up to 1
            self.levels.append(
                Level(
                    cast=nodes_of_votes,
                    # (V,): for each of the level's V nodes its share of the items. So many of the
                    # votes are expected to be for it where nothing else is known;
                    # `log_likelihood` adds such votes for classes with few items
                    shares=np.bincount(nodes[classes], minlength=number) / len(classes),
                    of_class=VoteCounts(classes, nodes_of_votes, number, weights),
                    of_parent=VoteCounts(parents, nodes_of_votes, number, weights),
                )
            )

    def alternatives(self, items: Indices, classes: Indices) -> Alternatives:
        """The best far and near alternatives of items (m,), if their labels were `classes` (m,):
        the other classes with most evidence, and this evidence. A near alternative is a sibling of
        the assumed class, a far one has another parent. An item's own class is among the
        alternatives if another class is assumed."""
        parts = []
        # in parts, to bound the memory; an item is compared with at most k + 2 classes: those of
        # its k neighbours, its own, and the assumed one
        step = max(1, PAIRS_AT_ONCE // (self.votes.k + 2))
        for start in range(0, max(len(items), 1), step):  # without items there is one empty part
            some = slice(start, start + step)
            parts.append(self._alternatives(items[some], classes[some]))
        far, near = zip(*parts, strict=True)
        return Alternatives(_concatenated(far), _concatenated(near))

    def _alternatives(self, items: Indices, classes: Indices) -> tuple[Best, Best]:
        """The best far and the best near alternative of each item, among the classes that
        contradict its label.

        Args:
            items: indices of items, (m,).
            classes: the assumed label of each item, (m,), which may differ from its own.
        """
        votes = self.votes
        # (pairs,) each: an index into `items`, and another class that the item may have
        row, other = self._candidates(items)
        # (pairs,): the number of known levels of the label, and of levels shared from the top
        known = votes.known[classes[row]]
        common = votes.common(other, classes[row])
        # classes contradict each other if they differ at a level that both know
        differs = common < np.minimum(known, votes.known[other])
        is_near = common == known - 1  # they share all levels above the label's last one: siblings

        # The evidence is the logarithm of a ratio of likelihoods. Far and near alternatives have
        # different likelihoods: the ones for far alternatives are smoothed with the parent, which
        # cannot tell siblings apart. Both kinds, far and near, are computed under the labels,
        # `of_own` (m,) each, and under the other classes, `of_other` (pairs,) each.
        of_own = self.log_likelihood(items, classes)
        of_other = self.log_likelihood(items[row], other)
        best = []
        for own, others, kind in zip(of_own, of_other, (~is_near, is_near), strict=True):
            at = differs & kind
            best.append(_best(len(items), row[at], other[at], (others - own[row])[at]))
        return best[0], best[1]

    def _candidates(self, items: Indices) -> tuple[Indices, Indices]:
        """The pairs of an index into `items` (m,) and a class of a neighbour, or of the item
        itself. Returns two arrays (pairs,), with each pair once, in the order of the items."""
        votes = self.votes
        named = votes.classes[votes.neighbours[items]]
        classes = np.concatenate([named, votes.classes[items][:, None]], axis=1)
        # one number for each pair, so that `unique` removes repetitions
        keys = np.unique(np.arange(len(items))[:, None] * len(votes.paths) + classes)
        return np.divmod(keys, len(votes.paths))

    def log_likelihood(self, items: Indices, classes: Indices) -> tuple[Floats, Floats]:
        """The log-likelihoods of the votes of items (m,) under classes (m,), in nats: one array
        (m,) for far alternatives, and one for near ones.

        They are the sum over levels of the mean over the k votes, which are the nodes of the item's
        neighbours. In the counts of votes by class and by parent (`level.of_class`,
        `level.of_parent`), the item's own votes are left out, as if it were not labelled.
        """
        far = np.zeros(len(items))
        near = np.zeros(len(items))
        parents = self.votes.parents
        is_own = self.votes.classes[items] == classes
        in_parent = parents[self.votes.classes[items]] == parents[classes]
        # So many votes are added to those of each class, which matters if it has few items. In
        # `far` they are shared out like the votes of the parent, in `near` like those of all items:
        # a near alternative has the label's parent, whose votes would make both look alike.
        weight = PRIOR * self.votes.k
        for level in self.levels:
            cast = level.cast[items]
            # (m, k): how many votes the item itself gave to each of these nodes; they are
            # subtracted where they were counted, in its own class and that class's parent
            own = (cast[:, :, None] == cast[:, None, :]).sum(axis=2)
            usual = level.shares[cast]  # (m, k): the share of each node among all items
            in_class = level.of_class.of(classes, cast) - np.where(is_own[:, None], own, 0)
            # below 0 if copies do not vote exactly alike: counts are weighted, but `own` is not
            in_class = np.maximum(in_class, 0)
            of_parent = level.of_parent.of(parents[classes], cast)
            of_parent = np.maximum(of_parent - np.where(in_parent[:, None], own, 0), 0)
            # an item and its copies under the same label have k votes together, as their weights
            # add up to 1; so k can be subtracted from a total, which has at least these
            total = level.of_class.totals[classes] - np.where(is_own, self.votes.k, 0)
            total_of_parent = level.of_parent.totals[parents[classes]]
            total_of_parent = total_of_parent - np.where(in_parent, self.votes.k, 0)

            in_parents = (of_parent + weight * usual) / (total_of_parent[:, None] + weight)
            far += np.log((in_class + weight * in_parents) / (total[:, None] + weight)).mean(axis=1)
            near += np.log((in_class + weight * usual) / (total[:, None] + weight)).mean(axis=1)
        return far, near


class Level(NamedTuple):
    """The votes at one level."""

    cast: NDArray[np.int32]  # the nodes of each item's neighbours, (N, k)
    shares: Floats  # the share of each node among all items, (V,)
    of_class: VoteCounts
    of_parent: VoteCounts


def _best(number: int, rows: Indices, classes: Indices, evidence: Floats) -> Best:
    """The best alternative of each item; of equal ones, the first class.

    Args:
        number: the number of items.
        rows: the item of each pair of an item and a class, (pairs,).
        classes: the class of each pair, (pairs,).
        evidence: for this class, (pairs,).
    """
    order = np.lexsort((classes, -evidence, rows))
    # `unique` returns the first pair of each item, which has most evidence
    first = order[np.unique(rows[order], return_index=True)[1]]
    best = Best(np.full(number, -np.inf), np.full(number, NOTHING))
    best.evidence[rows[first]] = evidence[first]
    best.classes[rows[first]] = classes[first]
    return best


def _concatenated(parts: tuple[Best, ...]) -> Best:
    """Concatenate the best alternatives of several parts of the items."""
    return Best(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
