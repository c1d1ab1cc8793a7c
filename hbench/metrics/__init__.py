"""Metrics as pure functions of one query's level sequence, with their names, relevances, protocols
and significance tests.

The functions of two arrays, scores and levels, are those of `hbench.metrics.functions`:

>>> import hbench
>>> hbench.metrics.ap([0.9, 0.8, 0.7], [1, 0, 1]).tolist()
[0.8333333333333333]
"""

from hbench.metrics.classes import knn_accuracy, nmi
from hbench.metrics.functions import (
    ap,
    asi,
    evaluate,
    h_ap,
    hierarchical_distance_at_k,
    map_at_k,
    map_at_r,
    ndcg,
    precision_at_k,
    r_precision,
    recall_at_k,
    reciprocal_rank,
    true_recall_at_k,
    w_ap,
)

__all__ = [
    "ap", "asi", "evaluate", "h_ap", "hierarchical_distance_at_k", "knn_accuracy", "map_at_k",
    "map_at_r", "ndcg",
    "nmi", "precision_at_k", "r_precision", "recall_at_k", "reciprocal_rank", "true_recall_at_k",
    "w_ap",
]  # fmt: skip
