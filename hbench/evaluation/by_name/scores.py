"""Scores of naming: how far the path that a reader gives to a picture agrees with its true paths.

A_t are the nodes of a true path without the root, as far as it is known; A_p those of the reader
down to the same level, for of a finer one nobody knows whether it is right: hP = |A_p ∩ A_t| /
|A_p|, hR = |A_p ∩ A_t| / |A_t|, hF1 their harmonic mean, each of one picture. Strict values are of
the picture's first path, lenient ones of the path that fits best. `hops`: the edges between the
reader's node at that level and the last known one of the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hbench.evaluation.by_name.naming import Nodes
from hbench.tree import Labels, LabelTree
from hbench.trust.climbing import BELOW

Values = NDArray[np.float64]
Known = NDArray[np.int64]
HIERARCHICAL = ("hP", "hR", "hF1")


def scores_of(
    tree: LabelTree, nodes: Nodes, labels: Labels, items: NDArray[np.int64], known: Known
) -> dict[str, Values]:
    """The values (N,) of a reader's nodes (N, L), by name: whether each level is right, hP, hR and
    hF1 (hierarchical precision, recall and their mean, of the nodes of a path), and hops, the edges
    of the tree between the finest node and the truth.

    Args:
        tree: of the labels.
        nodes: what the reader says.
        labels: every true path (E, L), the first ones of the pictures before all others.
        items: the picture that each true path belongs to (E,).
        known: how many levels of each true path are known (E,).
    """
    depth = tree.depth
    is_known = np.arange(1, depth + 1) <= known[:, None]  # (E, L)
    same = (nodes[items] == labels) & is_known
    number = len(nodes)
    scores = {}
    for level, name in enumerate(tree.levels):
        # the first `number` paths are the pictures' first ones
        correct = np.where(is_known[:number, level], same[:number, level], np.nan)
        scores[f"accuracy/{name}"] = correct.astype(np.float64)

    of_paths = _hierarchical(same.sum(axis=1), known)
    for measure, values in zip(HIERARCHICAL, of_paths, strict=True):
        scores[measure] = values[:number]
    if len(labels) > number:  # some pictures have several true paths
        for measure, values in zip(HIERARCHICAL, of_paths, strict=True):
            scores[f"{measure}, lenient"] = _best_of(values, items, number)

    # hops lead from the finest node, so its own path counts here, whatever nodes the reader gives
    # at the levels above
    shared = np.cumprod((tree.paths[nodes[:, -1]] == labels[:number]) & is_known[:number], axis=1)
    common = shared.sum(axis=1)
    # The reader's path is cut at the last known level of the truth. From there it has as many edges
    # up to the last common node as the truth has down from it, hence 2
    scores["hops"] = 2.0 * (known[:number] - common)
    return _where_known(scores, known[:number])


def scores_of_path(
    levels: Sequence[str], nodes: Nodes, labels: Labels, items: NDArray[np.int64], known: Known
) -> dict[str, Values]:
    """The values (N,), by name, of the answers to N items: `nodes` (N, L), paths that may end
    early, BELOW from there on. They are accuracies at the `levels`, hierarchical precision, recall
    and F1, and where the path ends.

    `labels` (E, L), `items` (E,), `known` (E,): the true paths, the item that each belongs to, and
    to how many levels it is known; the first N are the items' first ones, and of several the best
    one counts as "lenient". "too shallow": the path ends right, but above what is known; "too
    deep": it goes on below a truth that ends there. An answer without any node has no hP.
    """
    number = len(nodes)
    is_known = np.arange(1, nodes.shape[1] + 1) <= known[:, None]
    said = nodes != BELOW
    # right from the top on: cumprod ends at the first level that differs
    same = np.cumprod((nodes[items] == labels) & is_known & said[items], axis=1).astype(bool)
    common = same.sum(axis=1)
    # (E,): nodes of the answer that can be judged: nobody knows whether one below the known end of
    # the truth is right
    of_path = np.minimum(said.sum(axis=1)[items], known)

    scores = {}
    for level, name in enumerate(levels):
        scores[f"accuracy/{name}"] = np.where(
            is_known[:number, level], same[:number, level], np.nan
        )
    for measure, values in _of_lengths(common, of_path, known).items():
        scores[measure] = values[:number]
        if len(labels) > number:
            scores[f"{measure}, lenient"] = _best_of(values, items, number)
    scores |= _of_ends(common[:number], of_path[:number], known[:number], said.sum(axis=1))
    return _where_known(scores, known[:number])


def _where_known(scores: dict[str, Values], known: Known) -> dict[str, Values]:
    """The scores with NaN for the items of which nothing is known; `known` (N,): the levels of the
    first true path of each."""
    return {name: np.where(known > 0, values, np.nan) for name, values in scores.items()}


def _of_lengths(common: Known, of_path: Known, known: Known) -> dict[str, Values]:
    """hP, hR and hF1 (E,), hierarchical precision, recall and their harmonic mean, of answered
    paths with `of_path` (E,) nodes, of which `common` (E,) are right, against true paths with
    `known` (E,) nodes. A path without a node has no hP, and its NaN is no warning."""
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(of_path > 0, common / of_path, np.nan)
        return dict(
            zip(
                HIERARCHICAL,
                (precision, common / known, 2 * common / (of_path + known)),
                strict=True,
            )
        )


def _of_ends(common: Known, of_path: Known, known: Known, lengths: Known) -> dict[str, Values]:
    """How paths end, (N,) each: hops, the edges of the tree from the path's end up to where the
    truth branches off, and down to its end; too shallow, right but above the truth's end; too deep,
    below a truth that ends there.

    In nodes: `common` of path and truth, `of_path` as far as the truth is known, `known` of the
    truth, `lengths` of the whole paths.
    """
    ends_right = common == of_path
    values = {
        "hops": of_path + known - 2 * common,
        "too shallow": ends_right & (of_path < known),
        "too deep": ends_right & (lengths > known),
    }
    return {measure: np.asarray(each, np.float64) for measure, each in values.items()}


def _best_of(values: Values, items: NDArray[np.int64], number: int) -> Values:
    """The largest value of each picture, (`number`,), which is by the true path that fits best, of
    values (E,) by all true paths, NaN where it has none by any; `items` (E,): the picture that each
    path belongs to."""
    best = np.full(number, np.nan)
    np.fmax.at(best, items, values)  # a path without a value is none that fits
    return best


def _hierarchical(both: NDArray[np.int64], known: Known) -> tuple[Values, ...]:
    """hP, hR and hF1 (E,), hierarchical precision, recall and their harmonic mean, of paths of
    which `both` (E,) nodes are right, of `known` (E,) true ones. The reader has a node at every
    level, so as many of its nodes count, and hP equals hR."""
    precision = both / np.maximum(known, 1)
    recall = both / np.maximum(known, 1)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(both)), where=total > 0)
    return precision, recall, f1
