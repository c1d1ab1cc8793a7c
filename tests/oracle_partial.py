"""Partial labels as double loops over all pairs: the bounds of their levels, and every metric of
the ranked lists.

A path is the list of the names that are known, coarse to fine; a query's list is its gallery's
(lowest level, highest level).
"""

from __future__ import annotations

from tests import oracle


def bounds(path, other, depth):
    """The lowest and the highest level of a pair."""
    level = 0
    for mine, theirs in zip(path, other, strict=False):
        if mine != theirs:
            return level, level
        level += 1
    return level, depth  # as far as both are known they agree: the shorter may be anything below


def ranked_bounds(scores, paths, path, depth, *, pessimistic=True):
    """The bounds of a query's gallery in ranked order. Equal scores are ordered by the lowest
    level; of the same one, the items of unknown level come behind those of known, or before them in
    optimistic order."""
    sign = 1 if pessimistic else -1
    pairs = [bounds(path, other, depth) for other in paths]
    keyed = zip(scores, pairs, strict=True)
    return [
        pair
        for _, pair in sorted(
            keyed, key=lambda each: (-each[0], sign * each[1][0], sign * (each[1][1] - each[1][0]))
        )
    ]


def known(ranked):
    return [low for low, high in ranked if low == high]


def wrong(ranked):
    return [low for low, _ in ranked]


def right(ranked):
    return [high for _, high in ranked]


def at_level(ranked, level):
    """1 and 0 of the items that are known to be positives at a level, or not to be."""
    found = []
    for low, high in ranked:
        if low >= level:
            found.append(1)
        elif high < level:
            found.append(0)
    return found


def graded(name, levels, depth):
    """A metric of all levels; the name as hbench spells it."""
    alpha = oracle.alpha_relevance(levels, depth)
    uniform = [1 / depth] * depth
    return {
        "H-AP": lambda: oracle.h_ap(levels, alpha),
        "H-AP(relevance=exponential)": lambda: oracle.h_ap(
            levels, [2.0**level - 1 for level in range(depth + 1)]
        ),
        "wAP": lambda: oracle.w_ap(levels, uniform),
        "ASI": lambda: oracle.asi(levels, depth),
        "NDCG": lambda: oracle.ndcg(levels),
        "NDCG@3": lambda: oracle.ndcg(levels, 3),
        "H-P@3": lambda: oracle.h_precision(levels, alpha, 3),
        "H-R@4": lambda: oracle.h_recall(levels, alpha, 4),
        "HD@2": lambda: oracle.hierarchical_distance(levels, depth, 2),
        "HD-mistake": lambda: oracle.distance_of_first_wrong(levels, depth, 1),
        "HD-first-mistake": lambda: oracle.distance_of_first_wrong(levels, depth, len(levels)),
    }[name]()


GRADED = (
    "H-AP", "H-AP(relevance=exponential)", "wAP", "ASI", "NDCG", "NDCG@3", "H-P@3", "H-R@4", "HD@2",
    "HD-mistake",
    "HD-first-mistake",
)  # fmt: skip
OF_LEVEL = ("AP", "mAP@R", "mAP@3", "R@1", "R@4", "P@2", "TR@3", "ASI", "AP#")


def of_level(base, ranked, level, asked):
    """A metric at one level, of a query that is known to `asked` levels."""
    if asked < level:
        return oracle.NAN
    if base == "AP#":
        return oracle.ap_exclusive(known(ranked), level)
    found = at_level(ranked, level)
    return {
        "AP": lambda: oracle.ap_at(found, 1),
        "mAP@R": lambda: oracle.map_at(found, 1, sum(found), lambda total: total),
        "mAP@3": lambda: oracle.map_at(found, 1, 3, lambda total: min(total, 3)),
        "R@1": lambda: oracle.recall(found, 1, 1),
        "R@4": lambda: oracle.recall(found, 1, 4),
        "P@2": lambda: oracle.precision(found, 1, 2),
        "TR@3": lambda: oracle.true_recall(found, 1, 3),
        "ASI": lambda: oracle.asi(found, 1),
    }[base]()


def spelled(base, level):
    """A metric at a level, as hbench spells it."""
    return f"AP#{level}" if base == "AP#" else f"{base}/{level}"
