"""Sums a loss over blocks of queries, with its gradient, so that only one block's rows of scores are in memory.

A batch of B queries and N references then needs memory for one block of rows, not for B × N scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

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
