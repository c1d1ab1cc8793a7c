"""Scores of naming: how far the path that a reader gives to a picture agrees with its true paths.

A_t are the nodes of a true path without the root, as far as it is known; A_p those of the reader
down to the same level, for of a finer one nobody knows whether it is right: hP = |A_p ∩ A_t| /
|A_p|, hR = |A_p ∩ A_t| / |A_t|, hF1 their harmonic mean, each of one picture. Strict values are of
the picture's first path, lenient ones of the path that fits best. `hops`: the edges between the
reader's node at that level and the last known one of the truth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.evaluation.by_name.naming import Nodes
from hbench.tree import Labels, LabelTree

Values = NDArray[np.float64]
Known = NDArray[np.int64]
HIERARCHICAL = ("hP", "hR", "hF1")


def scores_of(
    tree: LabelTree, nodes: Nodes, labels: Labels, items: NDArray[np.int64], known: Known
) -> dict[str, Values]:
    """The values (N,) of a reader's nodes (N, L), by name.

    Args:
        tree: of the labels.
        nodes: what the reader says.
        labels: every true path (E, L), the first ones of the pictures before all others.
        items: whose path each is (E,).
        known: to how many levels each is known (E,).
    """
    depth = tree.depth
    is_known = np.arange(1, depth + 1) <= known[:, None]
    same = (nodes[items] == labels) & is_known
    number = len(nodes)
    scores = {}
    for level, name in enumerate(tree.levels):
        correct = np.where(is_known[:number, level], same[:number, level], np.nan)
        scores[f"accuracy/{name}"] = correct.astype(np.float64)

    of_paths = _hierarchical(same.sum(axis=1), known)
    for measure, values in zip(HIERARCHICAL, of_paths, strict=True):
        scores[measure] = values[:number]
    if len(labels) > number:  # some pictures have several true paths
        for measure, values in zip(HIERARCHICAL, of_paths, strict=True):
            scores[f"{measure}, lenient"] = _best_of(values, items, number)

    # the finest node's own path counts here, whatever a reader says above it
    shared = np.cumprod((tree.paths[nodes[:, -1]] == labels[:number]) & is_known[:number], axis=1)
    common = shared.sum(axis=1)
    scores["hops"] = 2.0 * (known[:number] - common)
    return scores


def _best_of(values: Values, items: NDArray[np.int64], number: int) -> Values:
    """The largest of the values (E,) of each of a `number` of pictures."""
    best = np.zeros(number)
    np.maximum.at(best, items, values)
    return best


def _hierarchical(both: NDArray[np.int64], known: Known) -> tuple[Values, ...]:
    """hP, hR and hF1 of paths of which `both` (E,) nodes are right, of `known` (E,) true ones, and
    of as many of the reader's: it has one a level."""
    precision = both / known
    recall = both / known
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(both)), where=total > 0)
    return precision, recall, f1
