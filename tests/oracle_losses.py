"""The rank losses' equations as double loops over the items of one list: slow, obvious, written
once.

`scores`, `levels`: the list of one query, without the query. A step is a function of t = s_j − s_k;
`before` decides ties as the metrics do: among equal scores the lower level comes first, then the
earlier item.
"""

from __future__ import annotations

import math


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def suprank_step(tau=0.01, rho=100.0, delta=0.05, offset=None, start=0.5):
    beyond = sigmoid(delta / tau) + 0.5 if offset is None else offset
    return lambda t: (
        sigmoid(t / tau)
        if t < 0
        else sigmoid(t / tau) + start
        if t <= delta
        else rho * (t - delta) + beyond
    )


def smooth_step(tau=0.01):
    return lambda t: sigmoid(t / tau)


def linear_lower_bound(beta=25.0, gamma=0.5, leak=10.0):
    return lambda t: leak * t if t <= 0 else min(beta * t + gamma, 1.0)


def before(scores, levels, j, k):
    return (-scores[j], levels[j], j) < (-scores[k], levels[k], k)


def rank(scores, levels, relevance, k, *, less, others):
    """1 + Σ steps over the other items; a step of None is exact."""
    total = 1.0
    for j in range(len(scores)):
        if j != k:
            step = less if relevance[levels[j]] < relevance[levels[k]] else others
            total += before(scores, levels, j, k) if step is None else step(scores[j] - scores[k])
    return total


def h_rank(scores, levels, relevance, k, *, above, within):
    total = relevance[levels[k]]
    for j in range(len(scores)):
        if j != k:
            step = above if relevance[levels[j]] > relevance[levels[k]] else within
            counted = before(scores, levels, j, k) if step is None else step(scores[j] - scores[k])
            total += min(relevance[levels[j]], relevance[levels[k]]) * counted
    return total


def h_ap(scores, levels, relevance, *, less=None, others=None, above=None, within=None):
    positives = [k for k in range(len(scores)) if relevance[levels[k]] > 0]
    gathered = sum(
        h_rank(scores, levels, relevance, k, above=above, within=within)
        / rank(scores, levels, relevance, k, less=less, others=others)
        for k in positives
    )
    return gathered / sum(relevance[levels[k]] for k in positives)


def ndcg(scores, levels, relevance, *, less=None, others=None):
    gain = sum(
        relevance[levels[k]]
        / math.log2(1 + rank(scores, levels, relevance, k, less=less, others=others))
        for k in range(len(scores))
    )
    best = sorted((relevance[level] for level in levels), reverse=True)
    return gain / sum(value / math.log2(2 + place) for place, value in enumerate(best))


def recall(scores, levels, relevance, at, *, temperature=1.0, clip=False, less=None, others=None):
    """Mean over k of Σ σ((k − rank)/temperature)/min(k, n); clip: no sum above k."""
    ranks = [
        rank(scores, levels, relevance, k, less=less, others=others)
        for k in range(len(scores))
        if relevance[levels[k]] > 0
    ]
    found = [sum(sigmoid((k - r) / temperature) for r in ranks) for k in at]
    kept = [min(each, k) if clip else each for k, each in zip(at, found, strict=True)]
    return sum(each / min(k, len(ranks)) for k, each in zip(at, kept, strict=True)) / len(at)
