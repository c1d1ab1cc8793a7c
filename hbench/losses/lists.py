"""A list is one query's retrieval set with its scores and levels; here a block of lists of equal length, and their positives.

An item outside a list (the query itself, padding) keeps its column and has level L+1, so that every table over levels has one
more column, of zeros, and no item ever needs a masked score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hbench.relevance import Relevance


class Lists(NamedTuple):
    """scores float (Q, N); levels int (Q, N) in 0 … L+1, where L+1 is outside; counts float (Q, L+1); order: the path's own."""

    scores: Tensor
    levels: Tensor
    counts: Tensor
    order: Any


class Positives(NamedTuple):
    """The items of positive relevance, query by query: query, item, level int64 (P,); relevance float (P,).

    `table` float (Q, L+1) is the relevance of every level of every list, 0 for the distractors.
    """

    query: Tensor
    item: Tensor
    level: Tensor
    relevance: Tensor
    table: Tensor


def shared_levels(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """The number of leading columns that labels (Q, L) and ref_labels (N, L), coarse to fine, share: int64 (Q, N)."""
    level = torch.zeros(labels.shape[0], ref_labels.shape[0], dtype=torch.uint8, device=labels.device)
    shared = torch.ones_like(level, dtype=torch.bool)
    for column in range(labels.shape[1]):
        shared = shared & (labels[:, column, None] == ref_labels[None, :, column])
        level += shared
    return level.long()


def level_counts(levels: Tensor, depth: int) -> Tensor:
    """How many items of every list (Q, N) have level 0 … L: int64 (Q, L+1)."""
    row = torch.arange(len(levels), device=levels.device)[:, None] * (depth + 2)
    counts = torch.bincount((levels + row).flatten(), minlength=len(levels) * (depth + 2))
    return counts.view(-1, depth + 2)[:, :-1]


def relevance_table(counts: Tensor, relevance: Relevance) -> Tensor:
    """The relevance of every level of every list, a function of its level counts, 0 for the distractors: float (Q, L+1)."""
    table: Tensor = relevance(counts).to(counts)
    return torch.cat([torch.zeros_like(table[:, :1]), table[:, 1:]], dim=1)


def find_positives(lists: Lists, table: Tensor) -> Positives:
    """The items whose relevance is positive."""
    is_positive = torch.cat([table > 0, torch.zeros_like(table[:, :1], dtype=torch.bool)], dim=1)
    query, item = is_positive.gather(1, lists.levels).nonzero(as_tuple=True)
    level = lists.levels[query, item]
    return Positives(query, item, level, table[query, level], table)


def sum_by_query(values: Tensor, positives: Positives, lists: Lists) -> Tensor:
    """Σ over each query's positives of values (P,): (Q,), summed in item order, so that it is the same on every run."""
    spread = values.new_zeros(lists.scores.shape).index_put((positives.query, positives.item), values)
    return spread.sum(1)
