"""Gives every loss one way to be called, and checks what it is called with.

    loss(embeddings, labels)                                              each query is ranked in the batch
    loss(embeddings, labels, ref_embeddings, ref_labels, self_index)      each query is ranked in references
    loss(embeddings, labels, indices_tuple, ref_embeddings, ref_labels)   pytorch-metric-learning's order

A loss subclasses BatchLoss and computes its value from a LossBatch. A value that is a sum over queries may be summed over blocks
of them (`sum_over_blocks`), with its gradient: B queries and N references then need memory for one block of rows, not for
B × N scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError
from hbench.tree import check_nested

Indices = tuple[Tensor, ...]  # pairs (query, positive, query, negative) or triplets (query, positive, negative)


class LossBatch(NamedTuple):
    """Queries (B, D) with labels (B, L), the references (N, D) and (N, L) they are ranked in, and what they are told apart by.

    `self_index` int64 (B,): which reference each query is, −1 for none. `pairs`: mined pairs or triplets, None for all.
    `partial`: whether labels may end early, in −1 (hbench.losses.partial).
    """

    embeddings: Tensor
    labels: Tensor
    ref_embeddings: Tensor
    ref_labels: Tensor
    self_index: Tensor
    pairs: Indices | None
    partial: bool = False

    def is_self(self, block: slice = slice(None)) -> Tensor:
        """bool (b, N): whether a reference is the query itself."""
        return is_self(self.self_index[block], len(self.ref_labels))

    def listed(self, block: slice = slice(None)) -> Tensor | None:
        """bool (b, N): the references that are paired with a query; None where all are. Of partial labels those whose level is
        known, and the query itself."""
        if self.partial:
            return ~unknown_pairs(self.labels[block], self.ref_labels) | self.is_self(block)
        if self.pairs is None:
            return None
        mask = torch.zeros(len(self.labels), len(self.ref_labels), dtype=torch.bool, device=self.labels.device)
        query, positive = self.pairs[:2]
        against, negative = self.pairs[-2:] if len(self.pairs) == 4 else (query, self.pairs[2])
        mask[query, positive] = mask[against, negative] = True
        return mask[block]

    def split_pairs(self, block: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """bool (b, N) twice: the fine positives of every query, itself apart, and its negatives."""
        same = self.labels[block, -1, None] == self.ref_labels[None, :, -1]
        positive, negative, listed = same & ~self.is_self(block), ~same, self.listed(block)
        return (positive, negative) if listed is None else (positive & listed, negative & listed)

    def to_level(self, level: int) -> LossBatch:
        """The batch with the first `level` columns of its labels."""
        return self._replace(labels=self.labels[:, :level], ref_labels=self.ref_labels[:, :level])

    def arguments(self) -> tuple[Any, ...]:
        """What a loss is called with to get this batch."""
        among_themselves = self.ref_embeddings is self.embeddings
        if self.pairs is not None:
            references = () if among_themselves else (self.ref_embeddings, self.ref_labels)
            return (self.embeddings, self.labels, self.pairs, *references)
        if among_themselves:
            return (self.embeddings, self.labels)
        return (self.embeddings, self.labels, self.ref_embeddings, self.ref_labels, self.self_index)


class BatchLoss(nn.Module):
    """A loss of a batch: `compute(batch)` -> scalar; embeddings that are not finite give a value that is not.

    Labels that do not form a tree, such as columns in the wrong order, are refused.

    `spelling`: the name and the parameters that it was built by, which it prints. `takes_pairs`: whether mined pairs have a
    meaning for it. `takes_partial`: whether it can leave pairs out, by `LossBatch.listed`; `partial`: whether it does, where
    labels end early (hbench.losses.partial).
    """

    spelling = ""
    takes_pairs = True
    takes_partial = False
    partial = False
    labels_checked = False

    def compute(self, batch: LossBatch) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return self.spelling

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | Indices | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        batch = as_batch(embeddings, labels, ref_embeddings, ref_labels, self_index)
        if batch.pairs is not None and not self.takes_pairs:
            raise ConfigError(
                f"{type(self).__name__} takes no mined pairs: it compares more than pairs of the batch",
                found="an indices_tuple",
                fix="call it without, or mine for a loss of pairs or a rank loss",
            )
        if self.partial and batch.pairs is not None:
            raise ConfigError(
                "mined pairs say themselves what is known", fix="call a loss of partial labels without them"
            )
        # A GPU is waited for once: labels in the wrong order show it in nearly every batch.
        if batch.labels.device.type == "cpu" or not self.labels_checked:
            require_tree(batch)
            self.labels_checked = True
        value = self.compute(batch._replace(partial=self.partial))
        # A comparison with NaN is false, so a loss of comparisons could be finite where its gradient is not. Zero times a sum
        # of the vectors is 0, or NaN where one of them is not finite, and the host need not wait for the device to know.
        vectors = (batch.embeddings,) if batch.ref_embeddings is batch.embeddings else batch[0:3:2]
        for side in vectors:
            value = value + side.detach().sum(dtype=torch.float32).mul(0)
        return value


def require_tree(batch: LossBatch) -> None:
    """Raise TreeError, naming the columns, unless each class of a column lies in one class of the column before it."""
    alone = batch.ref_labels is batch.labels
    table = (batch.labels if alone else torch.cat([batch.labels, batch.ref_labels])).cpu().numpy()
    for level in range(1, table.shape[1]):
        known = table[table[:, level] >= 0, level - 1 : level + 1]
        check_nested(known, [f"column-{level - 1}", f"column-{level}"])


def is_self(self_index: Tensor, references: int) -> Tensor:
    """bool (b, N): whether a reference is the query itself, from the index of the latter (b,), −1 for none."""
    return torch.arange(references, device=self_index.device) == self_index[:, None]


def unknown_pairs(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """bool (B, N): whether the level of a pair is unknown: labels (B, L) and (N, L) agree until one of them ends, in −1."""
    agree = torch.ones(len(labels), len(ref_labels), dtype=torch.bool, device=labels.device)
    unknown = torch.zeros_like(agree)
    for column in range(labels.shape[1]):
        own, other = labels[:, column, None], ref_labels[None, :, column]
        ends = (own < 0) | (other < 0)
        unknown |= agree & ends
        agree &= (own == other) & ~ends
    return unknown


def as_batch(
    embeddings: Tensor,
    labels: Tensor,
    third: Tensor | Indices | None = None,
    fourth: Tensor | None = None,
    fifth: Tensor | None = None,
) -> LossBatch:
    """The batch of a loss's arguments, in hbench's order or pytorch-metric-learning's. Raises ConfigError for what does not fit.

    Without references the batch is ranked among itself, where every query is its own reference.
    """
    pairs, refs, ref_labels, self_index = _sorted_out(third, fourth, fifth)
    labels = _two_dimensional(labels, embeddings, "labels", "embeddings")
    if refs is None and ref_labels is None:
        everyone = torch.arange(len(labels), device=labels.device)
        return LossBatch(embeddings, labels, embeddings, labels, everyone, pairs)
    if refs is None or ref_labels is None:
        given, absent = ("ref_embeddings", "ref_labels") if ref_labels is None else ("ref_labels", "ref_embeddings")
        raise ConfigError(f"the loss got {given} without {absent}", expected="both, or neither", fix=f"pass {absent}")
    ref_labels = _two_dimensional(ref_labels, refs, "ref_labels", "ref_embeddings")
    if ref_labels.shape[1] != labels.shape[1] or refs.shape[1:] != embeddings.shape[1:]:
        raise ConfigError(
            "the references are of another kind than the batch",
            expected=f"dimension {embeddings.shape[-1]}, {labels.shape[1]} levels",
            found=f"dimension {refs.shape[-1]}, {ref_labels.shape[1]} levels",
        )
    none = torch.full((len(labels),), -1, device=labels.device)
    return LossBatch(embeddings, labels, refs, ref_labels, none if self_index is None else self_index, pairs)


def _sorted_out(third: Any, fourth: Any, fifth: Any) -> tuple[Indices | None, Any, Any, Any]:
    """(pairs, references, their labels, self_index): a third argument of indices, or of None, is pytorch-metric-learning's."""
    if isinstance(third, tuple | list) and len(third) in {3, 4}:
        return tuple(third), fourth, fifth, None
    if isinstance(third, tuple | list):
        raise ConfigError("invalid mined pairs", expected="3 or 4 tensors of indices", found=f"{len(third)} of them")
    if third is None and fourth is not None and fourth.is_floating_point():
        return None, fourth, fifth, None
    return None, third, fourth, fifth


def _two_dimensional(labels: Tensor, vectors: Tensor, what: str, of: str) -> Tensor:
    """Labels (B, L); those of one level may be (B,)."""
    wide = labels[:, None] if labels.ndim == 1 else labels
    if wide.ndim != 2 or len(wide) != len(vectors):
        raise ConfigError(
            f"the {what} do not fit the {of}",
            expected=f"{what} ({len(vectors)}, L), coarse to fine",
            found=f"{what} {tuple(labels.shape)}",
        )
    return wide


BLOCK_SCORES = 1 << 22  # scores in one block: 16 MB in float32; smaller ones starve the matrix product

BlockSum = Callable[
    [Tensor, slice], Tensor
]  # scores (rows, N) and which queries they belong to -> a sum over these queries


def full_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in float32, or in float64 where they are: half precision loses the order of close scores."""
    return tuple(tensor.float() if tensor.dtype in {torch.float16, torch.bfloat16} else tensor for tensor in tensors)


def blocks(queries: int, references: int) -> Iterator[slice]:
    """Slices of the queries, each of at most BLOCK_SCORES scores, and at least one query."""
    rows = max(1, BLOCK_SCORES // max(1, references))
    return (slice(start, min(start + rows, queries)) for start in range(0, queries, rows))


def sum_over_blocks(function: BlockSum, embeddings: Tensor, references: Tensor) -> Tensor:
    """Σ over blocks of function(embeddings[block] @ references.T, block): a scalar, differentiable in both.

    embeddings (B, D), references (N, D). The gradient is made along with the value, so backward only scales it.
    """
    alike = references is embeddings
    embeddings, references = full_precision(embeddings, references)
    with torch.autocast(embeddings.device.type, enabled=False):
        result: Tensor = _BlockSum.apply(embeddings, None if alike else references, function)
    return result


class _BlockSum(torch.autograd.Function):
    """Without references the embeddings are ranked among themselves, and have the gradient of both roles."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, references: Tensor | None, function: BlockSum) -> Tensor:
        ranked, wanted = embeddings if references is None else references, ctx.needs_input_grad[:2]
        total, whole = embeddings.new_zeros(()), references is None and len(embeddings) ** 2 <= BLOCK_SCORES
        zeros = _unwritten_zeros if whole else torch.zeros_like  # of one block the gradient is set, not added to
        grads = [zeros(t) if w else None for t, w in zip((embeddings, ranked), wanted, strict=True)]
        for block in blocks(embeddings.shape[0], ranked.shape[0]):
            scores = (embeddings[block] @ ranked.T).requires_grad_(any(wanted))
            with torch.set_grad_enabled(any(wanted)):
                value = function(scores, block)
            total += value.detach()
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value, scores)
                if whole:
                    grads[0] = (slope + slope.T) @ ranked  # both roles in one product
                elif grads[0] is not None:
                    grads[0][block].addmm_(slope, ranked)
                to_ranked = grads[0] if references is None else grads[1]
                if to_ranked is not None and not whole:
                    to_ranked.addmm_(slope.T, embeddings[block])
        ctx.save_for_backward(*(grad for grad in grads if grad is not None))
        ctx.wanted = wanted
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        return (*(next(saved) * upstream[0] if need else None for need in ctx.wanted), None)


def _unwritten_zeros(like: Tensor) -> Tensor:
    return like.new_zeros(()).expand_as(like)
