"""A split says which items of a list are less and which more relevant than a positive, by relevance or by level."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Split(NamedTuple):
    """Which items are less and which more relevant than k: bool (Q, L+1, L+1), [query, level of k, level of j]."""

    less: Tensor
    above: Tensor


def split_by_relevance(table: Tensor) -> Split:
    """Items compared by relevance, as [E] Eq. 5 has it; the same as by level wherever relevance rises with the level."""
    of_k, of_j = table[:, :, None], table[:, None, :]
    return Split(of_j < of_k, of_j > of_k)


def split_by_level(table: Tensor) -> Split:
    """Items compared by level, as the released code does even where relevances are inverted."""
    level = torch.arange(table.shape[1], device=table.device)
    shape = (table.shape[0], -1, -1)
    return Split((level[None, :] < level[:, None]).expand(shape), (level[None, :] > level[:, None]).expand(shape))
