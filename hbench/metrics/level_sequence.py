"""The level sequence of one query: the ranks and levels of its positives. Every metric is computed
from it.

Equal scores are ordered by a ties policy, so that a metric never depends on the order of the input.
The canonical order of items sorts them by their path of labels, and then by content. In it the
items that share a label with a query form one contiguous range.

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
    """The ranks and levels of one query's positives, with the level counts of its gallery.

    Attributes:
        ranks: int64 (P,), from 1, increasing.
        levels: uint8 (P,), 1 … L, of the positives in the order of their ranks.
        counts: int64 (L+1,), how many items of each level 0 … L are in the query's whole gallery,
            the query itself excluded.
        tied: whether another order of equal scores would give another sequence.
    """

    ranks: NDArray[np.int64]
    levels: NDArray[np.uint8]
    counts: NDArray[np.int64]
    tied: bool = False


Ties = Callable[[int], NDArray[np.uint8]]
ties: Registry[Ties] = Registry("ties policy")


@ties.register("pessimistic")
def pessimistic(depth: int) -> NDArray[np.uint8]:
    """Return the sort keys (depth + 1,) of the levels 0 … depth. Among equal scores the smaller key
    comes first: here the lower level, so that a constant embedding gets the worst score."""
    return np.arange(depth + 1, dtype=np.uint8)


@ties.register("optimistic")
def optimistic(depth: int) -> NDArray[np.uint8]:
    """Return the sort keys (depth + 1,) of the levels 0 … depth. Among equal scores the smaller key
    comes first: here the higher level."""
    return np.arange(depth, -1, -1, dtype=np.uint8)


def level_sequence(
    scores: NDArray[np.floating],
    levels: NDArray[np.uint8],
    counts: NDArray[np.int64],
    tie_key: NDArray[np.uint8],
) -> LevelSequence:
    """Rank the items of one query's list. Returns the ranks (P,), from 1, and the levels (P,) of
    its P positives, best first; `counts` unchanged; and `tied`, one bool for the whole list:
    whether a positive has the same score as an item of another level.

    `scores`, `levels` (G,): of the items. `counts` (L+1,): how many items of each level are in the
    query's gallery. `tie_key` (L+1,): among equal scores the level with the smaller key comes
    first.
    """
    # lexsort sorts by its last key first: by falling score, then by the tie key
    order = np.lexsort((tie_key[levels], -scores))
    ordered = levels[order]
    # the positives are the items with a level other than 0; index 0 is rank 1
    positives = np.flatnonzero(ordered)
    tied = _are_tied(scores[order], ordered, positives)
    return LevelSequence(ranks=positives + 1, levels=ordered[positives], counts=counts, tied=tied)


def _are_tied(
    scores: NDArray[np.generic], levels: NDArray[np.uint8], positives: NDArray[np.int64]
) -> bool:
    """Whether a positive has the same score as an item of another level, so that another order of
    equal scores would change the sequence. `scores`, `levels` (G,): in ranked order. `positives`
    (P,): the indices of the positives in them.
    """
    # equal scores are adjacent, so comparing each positive with its two neighbours is enough
    before = positives[positives > 0]
    after = positives[positives < len(scores) - 1]
    return bool(
        ((scores[before] == scores[before - 1]) & (levels[before] != levels[before - 1])).any()
        or ((scores[after] == scores[after + 1]) & (levels[after] != levels[after + 1])).any()
    )


def canonical_order(labels: Labels, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the positions (N,) that sort items by their labels (N, L), coarse to fine, and then by
    `keys` (N,), derived from their content. Items of a class become adjacent, and the order does
    not depend on that of the input.
    """
    # lexsort sorts by its last key first, so the coarsest level has to be the last
    return np.lexsort((keys, *labels.T[::-1]))


def level_ranges(queries: Labels, gallery: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every query and level l, find the range of gallery items whose level is l or higher.

    `queries` (Q, L), `gallery` (G, L): labels, those of the gallery in canonical order, which sorts
    items by their labels, coarse to fine. Returns two arrays (Q, L): the first place of each range
    and the place after its last; 0 and 0 if it is empty.
    """
    starts = np.zeros(queries.shape, np.int64)
    ends = np.zeros(queries.shape, np.int64)
    for level in range(queries.shape[1]):
        labels = gallery[:, level]
        # The start of each run of equal labels. The labels need not rise from run to run, since
        # items are sorted by coarser labels first. A value other than the first label is
        # prepended, so that index 0 is a start.
        first = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
        # sort the runs by label, and look up the label of each query among them
        of_label = np.argsort(labels[first])
        places = np.searchsorted(labels[first], queries[:, level], sorter=of_label)
        # a label greater than all others would be looked up beyond the end: take the last run
        run = of_label[np.minimum(places, len(first) - 1)]
        # a label that the gallery lacks finds the run of another label: give it an empty range
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
    """For partial labels: for every query and level l = 1 … L − 1, find the range of gallery items
    that share level l with the query and may, or may not, share a finer one.

    If the label of the query ends at level l, these are all items of its node at l. If it goes on,
    these are the items whose labels end at that node. Labels that end at one node are equal, also
    at the unknown levels, so such items are adjacent in canonical order, which sorts by label.

    Args:
        queries: labels (Q, L).
        gallery: labels (G, L), in canonical order.
        starts: (Q, L), the first places of the ranges of items that share each level.
        ends: (Q, L), the places after the last items of these ranges.
        known_of_queries: (Q,), how many levels of each query's label are known.
        known_of_gallery: (G,), how many levels of each gallery item's label are known.

    Returns:
        The first place of each range and the place after its last, (Q, L − 1) each; 0 and 0 if it
        is empty.
    """
    ranges = np.zeros((2, len(queries), queries.shape[1] - 1), np.int64)
    for level in range(1, queries.shape[1]):
        column = level - 1
        # the items whose labels end at this level, grouped by the node at which they end
        here = np.flatnonzero(known_of_gallery == level)
        nodes, first, count = np.unique(
            gallery[here, column], return_index=True, return_counts=True
        )
        # look up the node of each query among these nodes. A node greater than all of them is
        # looked up at the last one, and found to be unequal below
        place = np.searchsorted(nodes, queries[:, column]).clip(max=max(len(nodes) - 1, 0))
        meets_ending = known_of_queries > level

        if len(nodes):
            meets_ending &= nodes[place] == queries[:, column]
            ranges[:, meets_ending, column] = (
                here[first][place[meets_ending]],
                (here[first] + count)[place[meets_ending]],
            )

        # a query whose own label ends at this level: all items of its node may share more
        whole = known_of_queries == level
        ranges[:, whole, column] = starts[whole, column], ends[whole, column]

    return ranges[0], ranges[1]
