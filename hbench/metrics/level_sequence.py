"""The level sequence of one query: the ranks and levels of its positives, all that any metric needs
to know.

Equal scores are ordered by a ties policy, so that a metric never depends on the order of the items.
Items have a canonical order, by their path of labels and then by content: in it the items that
share a label with a query are one contiguous range.

>>> scores, levels = np.array([0.9, 0.5, 0.5, 0.1], np.float32), np.array([2, 0, 1, 0], np.uint8)
>>> sequence = level_sequence(scores, levels, np.array([2, 1, 1]), pessimistic(2))
>>> sequence.ranks.tolist(), sequence.levels.tolist(), sequence.tied
([1, 3], [2, 1], True)
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.registry import Registry
from hbench.tree import Labels


class LevelSequence(NamedTuple):
    """The ranks and levels of one query's positives: all that any metric needs.

    Attributes:
        ranks: int64 (P,), 1-based, increasing.
        levels: uint8 (P,), 1 … L.
        counts: int64 (L+1,), the items per level in the query's whole gallery, the query itself
            excluded.
        tied: whether another order of equal scores would give other levels.
    """

    ranks: NDArray[np.int64]
    levels: NDArray[np.uint8]
    counts: NDArray[np.int64]
    tied: bool = False


Ties = Callable[[int], NDArray[np.uint8]]
ties: Registry[Ties] = Registry("ties policy")


@ties.register("pessimistic")
def pessimistic(depth: int) -> NDArray[np.uint8]:
    """The key (depth + 1,) of each level from 0, by which equal scores are ordered, smaller first:
    the lower level, so that a constant embedding gets the worst score its ties allow."""
    return np.arange(depth + 1, dtype=np.uint8)


@ties.register("optimistic")
def optimistic(depth: int) -> NDArray[np.uint8]:
    """The key (depth + 1,) of each level from 0, by which equal scores are ordered, smaller first:
    the higher level."""
    return np.arange(depth, -1, -1, dtype=np.uint8)


def level_sequence(
    scores: NDArray[np.floating],
    levels: NDArray[np.uint8],
    counts: NDArray[np.int64],
    tie_key: NDArray[np.uint8],
) -> LevelSequence:
    """Rank one row of scores (G,), of items of these levels (G,); `counts` (L+1,): the items per
    level; `tie_key` (L+1,): of equal scores the level with the smaller key comes first.
    """
    # lexsort takes its last key first: the highest score, then the tie key
    order = np.lexsort((tie_key[levels], -scores))
    ordered = levels[order]
    # place 0 is rank 1; level 0 are the items that are no positives
    positives = np.flatnonzero(ordered)
    tied = _are_tied(scores[order], ordered, positives)
    return LevelSequence(positives + 1, ordered[positives], counts, tied)


def _are_tied(
    scores: NDArray[np.generic], levels: NDArray[np.uint8], positives: NDArray[np.int64]
) -> bool:
    """Whether an item of another level has the same score as a positive: then another order of
    equal scores would change the sequence. `scores`, `levels` (G,): in ranked order; `positives`
    (P,): the places of the positives in it.
    """
    # equal scores stand side by side, so a look at either neighbour is enough
    before = positives[positives > 0]
    after = positives[positives < len(scores) - 1]
    return bool(
        ((scores[before] == scores[before - 1]) & (levels[before] != levels[before - 1])).any()
        or ((scores[after] == scores[after + 1]) & (levels[after] != levels[after + 1])).any()
    )


def canonical_order(labels: Labels, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The positions of the items (N,) ordered by their labels (N, L), coarse to fine, then by the
    key (N,) of their content. So items of a class lie side by side, whatever the input's order was.
    """
    # lexsort sorts by its last key first: the coarsest level stands last
    return np.lexsort((keys, *labels.T[::-1]))


def level_ranges(queries: Labels, gallery: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ranges of the canonical gallery (G, L) in which the items of level ≥ l of every
    query (Q, L) lie: their starts and ends, two (Q, L) arrays."""
    starts = np.zeros(queries.shape, np.int64)
    ends = np.zeros(queries.shape, np.int64)
    for level in range(queries.shape[1]):
        labels = gallery[:, level]
        # where the run of each label begins; runs are in the order of the tree, labels need not be.
        # What is prepended differs from the first label, which so begins a run
        first = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
        # the runs ordered by their label, in which each query's label is looked up
        of_label = np.argsort(labels[first])
        places = np.searchsorted(labels[first], queries[:, level], sorter=of_label)
        run = of_label[np.minimum(places, len(first) - 1)]  # behind all labels: the last run
        # a label that the gallery lacks is sorted beside another one, and gets an empty range
        present = labels[first][run] == queries[:, level]
        starts[:, level] = np.where(present, first[run], 0)
        ends[:, level] = np.where(present, np.append(first[1:], len(labels))[run], 0)
    return starts, ends


def unknown_ranges(
    queries: Labels,
    gallery: Labels,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    *,
    known_of_queries: NDArray[np.uint8],
    known_of_gallery: NDArray[np.uint8],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the items that may be finer than they are known to be: starts and ends, (Q, L − 1) each,
    of the range of the canonical gallery whose items share level l = 1 … L − 1 with a query, and
    may share more.

    Where the query is known to l, these are all that share its node there; where it is known
    further, the items that end at its node, which lie side by side under a node for the unknown.

    `queries` (Q, L), `gallery` (G, L): labels; `starts`, `ends` (Q, L): the ranges of the items
    known to share each level; `known_of_queries` (Q,), `known_of_gallery` (G,): how many levels of
    each label are known.
    """
    ranges = np.zeros((2, len(queries), queries.shape[1] - 1), np.int64)
    for level in range(1, queries.shape[1]):
        column = level - 1
        # items whose labels end at this level, by the node at which they end
        here = np.flatnonzero(known_of_gallery == level)
        nodes, first, count = np.unique(
            gallery[here, column], return_index=True, return_counts=True
        )
        # the node of each query's label, if any item ends there; a label behind the last node is
        # looked up at the last, which is then not equal
        place = np.searchsorted(nodes, queries[:, column]).clip(max=max(len(nodes) - 1, 0))
        meets_ending = known_of_queries > level

        if len(nodes):
            meets_ending &= nodes[place] == queries[:, column]
            ranges[:, meets_ending, column] = (
                here[first][place[meets_ending]],
                (here[first] + count)[place[meets_ending]],
            )

        # a query that ends here itself: any item of its node may be finer
        whole = known_of_queries == level
        ranges[:, whole, column] = starts[whole, column], ends[whole, column]

    return ranges[0], ranges[1]
