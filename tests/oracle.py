"""The papers' equations as double loops over the levels of the gallery in ranked order: slow,
obvious, written once.

`ranked`: the level (0 … L) of every gallery item, best first. A metric that is undefined is NaN.
"""

from __future__ import annotations

import math

NAN = float("nan")


def rank_levels(scores, levels, *, pessimistic=True):
    """The levels in ranked order: higher score first; among equal scores the lower level first, or
    the higher one.
    """
    sign = 1 if pessimistic else -1
    return [
        level
        for _, level in sorted(
            zip(scores, levels, strict=True), key=lambda pair: (-pair[0], sign * pair[1])
        )
    ]


def level_of(path, other):
    """The depth of the lowest common ancestor of two paths, coarse to fine."""
    depth = 0
    while depth < len(path) and path[depth] == other[depth]:
        depth += 1
    return depth


def alpha_relevance(ranked, depth, alpha=1.0):
    return [0.0] + [
        (level / depth) ** alpha / max(1, ranked.count(level)) for level in range(1, depth + 1)
    ]


def sum_wap_relevance(ranked, depth, weights):
    relevance = [0.0]
    for level in range(1, depth + 1):
        at_least = sum(1 for other in ranked if other >= level)
        relevance.append(relevance[-1] + (weights[level - 1] / at_least if at_least else 0.0))
    return relevance


def h_ap(ranked, relevance):
    total = sum(relevance[level] for level in ranked)
    if total == 0:
        return NAN
    result = 0.0
    for k, level in enumerate(ranked):
        if level > 0:
            h_rank = relevance[level]
            for before in ranked[:k]:
                if before > 0:
                    h_rank += min(relevance[level], relevance[before])
            result += h_rank / (k + 1)
    return result / total


def ap(positive):
    """AP of a list of booleans."""
    if not any(positive):
        return NAN
    result = 0.0
    for k, hit in enumerate(positive):
        if hit:
            result += sum(positive[: k + 1]) / (k + 1)
    return result / sum(positive)


def ap_at(ranked, level):
    return ap([other >= level for other in ranked])


def ap_exclusive(ranked, level):
    return ap([other == level for other in ranked if other <= level])


def w_ap(ranked, weights):
    pairs = [(w, ap_at(ranked, level)) for level, w in enumerate(weights, start=1)]
    pairs = [(w, value) for w, value in pairs if not math.isnan(value)]
    total = sum(w for w, _ in pairs)
    return sum(w * value for w, value in pairs) / total if total else NAN


def asi(ranked, depth):
    ideal = sorted(ranked, reverse=True)
    positives = sum(1 for level in ranked if level > 0)
    if positives == 0:
        return NAN
    result = 0.0
    for n in range(1, positives + 1):
        shared = 0
        for level in range(1, depth + 1):
            shared += min(ranked[:n].count(level), ideal[:n].count(level))
        result += shared / n
    return result / positives


def ndcg(ranked, cut=None):
    def dcg(levels):
        return sum((2**level - 1) / math.log2(2 + k) for k, level in enumerate(levels[:cut]))

    ideal = dcg(sorted(ranked, reverse=True))
    return dcg(ranked) / ideal if ideal else NAN


def recall(ranked, level, cut):
    return float(any(other >= level for other in ranked[:cut]))


def true_recall(ranked, level, cut, norm=lambda cut, total: total):
    total = sum(1 for other in ranked if other >= level)
    return sum(1 for other in ranked[:cut] if other >= level) / norm(cut, total) if total else NAN


def precision(ranked, level, cut):
    if not any(other >= level for other in ranked):
        return NAN
    return sum(1 for other in ranked[:cut] if other >= level) / cut


def modified_mean_precision(ranked, level, cut):
    first = min(cut, sum(1 for other in ranked if other >= level))
    if not first:
        return NAN
    return sum(1 for other in ranked[:first] if other >= level) / first


def hops(ranked, depth, cut):
    if not any(other == depth for other in ranked):
        return NAN
    first = ranked[:cut]
    return sum((depth - other) + (depth - other) for other in first) / len(first)


def consistency(ranked, level):
    total = sum(1 for other in ranked if other >= level)
    if level == 1 or not total:
        return NAN
    return sum(1 for other in ranked[:total] if other >= level - 1) / total


def map_at(ranked, level, cut, divisor):
    positive = [other >= level for other in ranked]
    if not any(positive):
        return NAN
    result = 0.0
    for k, hit in enumerate(positive[:cut]):
        if hit:
            result += sum(positive[: k + 1]) / (k + 1)
    return result / divisor(sum(positive))


def h_recall(ranked, relevance, cut):
    total = sum(relevance[level] for level in ranked)
    return sum(relevance[level] for level in ranked[:cut]) / total if total else NAN


def h_precision(ranked, relevance, cut):
    """Eq. 31 at rank `cut`, with rel(k) → 0 at a distractor taken literally as a tiny number."""
    if not any(ranked):
        return NAN
    values = [relevance[level] for level in ranked[:cut]]
    own = values[-1] if len(values) == cut and values[-1] > 0 else 1e-300
    return sum(min(own, value) for value in values) / (cut * own)


def hierarchical_distance(ranked, depth, cut):
    """Mean height of the lowest common ancestors of the first k, over the height of the tree."""
    if depth not in ranked:
        return NAN
    heights = [(depth - level) / depth for level in ranked[:cut]]
    return sum(heights) / len(heights)


def distance_of_first_wrong(ranked, depth, within):
    """The height where the first item of another fine class among the first `within` meets the
    query.
    """
    if depth not in ranked:
        return NAN
    for level in ranked[:within]:
        if level != depth:
            return (depth - level) / depth
    return NAN
