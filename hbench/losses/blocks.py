"""A block is a run of queries whose score rows are held at once; sums over queries and their gradients are made block by block.

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
    embeddings, references = full_precision(embeddings, references)
    with torch.autocast(embeddings.device.type, enabled=False):
        result: Tensor = _BlockSum.apply(embeddings, references, function)
    return result


class _BlockSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, references: Tensor, function: BlockSum) -> Tensor:
        wanted = (ctx.needs_input_grad[0], ctx.needs_input_grad[1])
        total = embeddings.new_zeros(())
        grads = [
            torch.zeros_like(t) if need else None for t, need in zip((embeddings, references), wanted, strict=True)
        ]
        for block in blocks(embeddings.shape[0], references.shape[0]):
            scores = (embeddings[block] @ references.T).requires_grad_(any(wanted))
            with torch.set_grad_enabled(any(wanted)):
                value = function(scores, block)
            total += value.detach()
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value, scores)
                if grads[0] is not None:
                    torch.mm(slope, references, out=grads[0][block])
                if grads[1] is not None:
                    grads[1].addmm_(slope.T, embeddings[block])
        ctx.save_for_backward(*(grad for grad in grads if grad is not None))
        ctx.wanted = wanted
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        return (*(next(saved) * upstream[0] if need else None for need in ctx.wanted), None)
