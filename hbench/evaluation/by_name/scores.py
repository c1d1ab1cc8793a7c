"""Scores of naming: how well the path that a reader gives to a picture agrees with its true paths.

Let A_t be the nodes of a true path, without the root, down to the last known one, and A_p the nodes
of the reader's path down to the same level (nobody knows whether finer ones are right). For each
picture hP = |A_p ∩ A_t| / |A_p|, hR = |A_p ∩ A_t| / |A_t|, and hF1 is their harmonic mean. Strict
values compare with the picture's first true path, lenient ones with the path that fits best.
`hops` is the number of edges between the reader's node at that level and the last known true node.
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
    """Score a reader's nodes: {value: (N,), of the pictures}. The values are the accuracy at each
    level, hP, hR and hF1 (hierarchical precision, recall and F1), and hops.

    Args:
        tree: the label tree.
        nodes: the reader's nodes (N, L).
        labels: the true paths (E, L): the first path of each picture, then all further ones.
        items: the picture of each true path (E,).
        known: how many levels of each true path are known (E,).
    """
    depth = tree.depth
    is_known = np.arange(1, depth + 1) <= known[:, None]  # (E, L)
    same = (nodes[items] == labels) & is_known
    number = len(nodes)
    scores = {}
    for level, name in enumerate(tree.levels):
        # the first `number` rows are the first paths of the pictures
        correct = np.where(is_known[:number, level], same[:number, level], np.nan)
        scores[f"accuracy/{name}"] = correct.astype(np.float64)

    of_paths = _hierarchical(same.sum(axis=1), known)
    for measure, values in zip(HIERARCHICAL, of_paths, strict=True):
        scores[measure] = values[:number]
    if len(labels) > number:  # some pictures have several true paths
        for measure, values in zip(HIERARCHICAL, of_paths, strict=True):
            scores[f"{measure}, lenient"] = _best_of(values, items, number)

    # hops start at the reader's finest node, so they use the tree's path to it. The reader's nodes
    # at the levels above may be others
    shared = np.cumprod((tree.paths[nodes[:, -1]] == labels[:number]) & is_known[:number], axis=1)
    common = shared.sum(axis=1)
    # Both paths are cut at the last known level of the truth, so each has known − common edges
    # below the last common node: hence the factor 2.
    scores["hops"] = 2.0 * (known[:number] - common)
    # NaN for pictures of unknown truth, in all values
    return _where_known(scores, known[:number])


def scores_of_path(
    levels: Sequence[str], nodes: Nodes, labels: Labels, items: NDArray[np.int64], known: Known
) -> dict[str, Values]:
    """Score answers that may end early: {value: (N,), of the items}. The values are the accuracy at
    each level, hierarchical precision, recall and F1, hops, "too shallow" (the answer is right but
    ends above the known truth) and "too deep" (it goes on where the truth ends).

    An answer without any node has no hP. For items with several true paths, "lenient" values
    compare with the path that fits best.

    Args:
        levels: their names, coarse to fine.
        nodes: the answers (N, L), BELOW after the end of a path.
        labels: the true paths (E, L): the first path of each item, then all further ones.
        items: the item of each true path (E,).
        known: how many levels of each true path are known (E,).
    """
    number = len(nodes)
    is_known = np.arange(1, nodes.shape[1] + 1) <= known[:, None]
    said = nodes != BELOW  # (N, L): whether the answer has a node at a level
    # whether the answer is right at a level and all above: cumprod is 0 from the first error on
    same = np.cumprod((nodes[items] == labels) & is_known & said[items], axis=1).astype(bool)
    common = same.sum(axis=1)
    # (E,): how many nodes of the answer are compared with each true path. Nodes below the known end
    # of the truth are not, since nobody knows whether they are right
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
    # NaN for items of unknown truth, in all values
    return _where_known(scores, known[:number])


def _where_known(scores: dict[str, Values], known: Known) -> dict[str, Values]:
    """Set the scores to NaN for items of unknown truth. `known` (N,): the number of known levels of
    each item's first true path."""
    return {name: np.where(known > 0, values, np.nan) for name, values in scores.items()}


def _of_lengths(common: Known, of_path: Known, known: Known) -> dict[str, Values]:
    """Compute hP, hR and hF1 (E,) of answers with `of_path` (E,) nodes, of which `common` (E,) are
    right, against true paths with `known` (E,) nodes. An answer without nodes has the hP NaN. For a
    true path of 0 nodes (unknown truth) the values mean nothing, and the caller replaces them by
    NaN; divisions by 0 give no warning of numpy."""
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(of_path > 0, common / of_path, np.nan)
        # hF1, the harmonic mean of hP and hR, is 2·common / (of_path + known). Written so, it is 0
        # for an answer without nodes
        return dict(
            zip(
                HIERARCHICAL,
                (precision, common / known, 2 * common / (of_path + known)),
                strict=True,
            )
        )


def _of_ends(common: Known, of_path: Known, known: Known, lengths: Known) -> dict[str, Values]:
    """Compute values on the ends of answers, (N,) each. hops: the edges from the end of the answer
    up to where the truth branches off, and down to the end of the truth. too shallow: the answer is
    right, but ends above the truth. too deep: the answer goes on where the truth ends.

    All arguments are numbers of nodes, (N,): `common` to answer and truth, `known` of the truth,
    `lengths` of the whole answers, `of_path` of the answers without nodes below the truth's end.
    """
    ends_right = common == of_path
    values = {
        "hops": of_path + known - 2 * common,
        "too shallow": ends_right & (of_path < known),
        "too deep": ends_right & (lengths > known),
    }
    return {measure: np.asarray(each, np.float64) for measure, each in values.items()}


def _best_of(values: Values, items: NDArray[np.int64], number: int) -> Values:
    """Take the largest value of each picture over its true paths: (`number`,), NaN if all are NaN.
    `values` (E,): by true path. `items` (E,): the picture of each path."""
    best = np.full(number, np.nan)
    np.fmax.at(best, items, values)  # fmax ignores NaN
    return best


def _hierarchical(both: NDArray[np.int64], known: Known) -> tuple[Values, ...]:
    """Compute hP, hR and hF1 (E,) of paths with a node at every level, of which `both` (E,) are
    right. `known` (E,): the number of true nodes. Only as many of the reader's nodes count, so
    hP equals hR. Of unknown truth (0) all values are 0 here; callers replace them by NaN."""
    precision = both / np.maximum(known, 1)
    recall = both / np.maximum(known, 1)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(both)), where=total > 0)
    return precision, recall, f1
