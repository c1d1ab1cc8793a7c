"""Checks the values of a loss's arguments: labels that form a tree, and indices of references.

On a GPU these checks wait for the device, so `BatchLoss` makes them of the first batch alone there.
"""

import torch
from torch import Tensor

from hbench.core.errors import ConfigError, TreeError
from hbench.tree import check_nested


def require_tree(labels: Tensor, ref_labels: Tensor) -> None:
    """Raise TreeError, with the names of the columns, unless each class of a column of the labels
    (B, L) and (N, L) is in only one class of the column before.
    """
    own = ref_labels is labels  # the batch ranks itself
    table = (labels if own else torch.cat([labels, ref_labels])).cpu().numpy()
    for level in range(1, table.shape[1]):
        known = table[table[:, level] >= 0, level - 1 : level + 1]  # −1: unknown, not checked
        try:
            check_nested(known, [f"column-{level - 1}", f"column-{level}"])
        except TreeError as error:  # its advice is for labels of a file, which a policy can mend
            raise TreeError(
                error.problem,
                expected=error.expected,
                found=error.found,
                fix="order the columns from coarse to fine; if they are, number the classes so "
                "that each is in one class of the column before",
            ) from None


def require_self_index(self_index: Tensor, labels: Tensor, ref_labels: Tensor) -> None:
    """Raise ConfigError unless `self_index` (B,) names, for each query with labels (B, L), a
    reference with the same labels, of those with labels (N, L), or none by −1.
    """
    expected = f"for each query its place among the references, 0 … {len(ref_labels) - 1}, or −1"
    if len(self_index) and not -1 <= int(self_index.min()) <= int(self_index.max()) < len(
        ref_labels
    ):
        raise ConfigError(
            "self_index names references that do not exist",
            expected=expected,
            found=f"{int(self_index.min())} … {int(self_index.max())}",
        )
    query = (self_index >= 0).nonzero()[:, 0]  # those that are among the references
    differing = (labels[query] != ref_labels[self_index[query]]).any(1).nonzero()[:, 0]
    if len(differing):
        first = query[differing[0]]
        raise ConfigError(
            "self_index names another item than the query",
            expected=f"{expected}, where no reference is the query",
            found=f"query {int(first)} with labels {labels[first].tolist()}, reference "
            f"{int(self_index[first])} with {ref_labels[self_index[first]].tolist()}",
        )


def require_pairs(pairs: tuple[Tensor, ...], queries: int, references: int) -> None:
    """Raise ConfigError unless mined pairs, (query, positive, query, negative), or triplets,
    (query, positive, negative), are indices of the `queries` and of the `references`, one of each
    for every pair.
    """
    lengths = [tuple(each.shape) if isinstance(each, Tensor) else None for each in pairs]
    halves = [lengths] if len(pairs) == 3 else [lengths[:2], lengths[2:]]
    if not all(half[0] is not None and len(half[0]) == 1 and len({*half}) == 1 for half in halves):
        raise ConfigError(
            "the mined pairs are not indices of pairs",
            expected="4 tensors (pairs,), or 3 tensors (triplets,)",
            found=f"tensors of shape {', '.join(map(str, lengths))}",
        )
    sides = (queries, references, references) if len(pairs) == 3 else (queries, references) * 2
    for each, size in zip(pairs, sides, strict=True):
        if len(each) and not 0 <= int(each.min()) <= int(each.max()) < size:
            raise ConfigError(
                "the mined pairs name items that do not exist",
                expected=f"queries 0 … {queries - 1}, references 0 … {references - 1}",
                found=f"{int(each.min())} … {int(each.max())}",
                fix="mine the pairs of this batch, and of its references if it has any",
            )
