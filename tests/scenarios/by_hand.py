"""H-AP and AP by their equations in double loops over all pairs, for a few dozen items."""

import numpy as np


def level_of(query, item, depth):
    """How many names two paths share from the coarsest on; an empty name is shared with nobody."""
    return next((at for at in range(depth) if not query[at] or query[at] != item[at]), depth)


def hap(vectors, labels, *, queries=None):
    """The mean H-AP of the queries (all items unless named) among all items, each left out of its
    own list; NaN for none.
    """
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = []
    for query in range(len(labels)) if queries is None else queries:
        depth = len(labels[query])
        order = sorted(
            (i for i in range(len(labels)) if i != query), key=lambda i: -(unit[query] @ unit[i])
        )
        levels = [level_of(labels[query], labels[item], depth) for item in order]
        counts = [levels.count(level) for level in range(depth + 1)]
        relevance = [level / depth / counts[level] if level else 0 for level in levels]
        if any(relevance):
            ranked = [k for k, each in enumerate(relevance) if each]
            parts = [
                sum(min(relevance[k], relevance[j]) for j in range(k + 1)) / (k + 1) for k in ranked
            ]
            values.append(sum(parts) / sum(relevance))
    return float(np.mean(values)) if values else float("nan")
