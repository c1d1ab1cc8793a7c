"""Sums a loss over blocks of queries, each together with its gradient, so that memory holds the
scores of one block instead of all B × N scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hbench.core.errors import ConfigError
from hbench.losses.batch_loss import full_precision

# scores in a block, 16 MB in float32; with fewer the matrix product is slower
BLOCK_SCORES = 1 << 22

# scores (b, N) of a block, the slice of its queries -> a sum over these queries
BlockSum = Callable[[Tensor, slice], Tensor]


def blocks(queries: int, references: int) -> Iterator[slice]:
    """Yield slices of the queries with at most BLOCK_SCORES scores each, but at least one query."""
    rows = max(1, BLOCK_SCORES // max(1, references))
    return (slice(start, min(start + rows, queries)) for start in range(0, queries, rows))


def sum_over_blocks(function: BlockSum, embeddings: Tensor, references: Tensor) -> Tensor:
    """Sum function(embeddings[block] @ references.T, block) over blocks of queries: a scalar,
    differentiable in embeddings (B, D) and references (N, D).

    The gradient is computed together with the value, so that backward only has to scale it.
    """
    among_themselves = references is embeddings
    queries, ranked = full_precision(embeddings, references)
    with torch.autocast(queries.device.type, enabled=False):  # it would return to half precision
        # None: the batch ranks itself, and gets one gradient for both of its roles
        result: Tensor = _BlockSum.apply(queries, None if among_themselves else ranked, function)
    return result


class _BlockSum(torch.autograd.Function):
    """The sum over blocks. Without references, the embeddings rank themselves, and their gradient
    is the sum of their gradients as queries and as references.
    """

    @staticmethod
    def forward(
        ctx: Any, embeddings: Tensor, references: Tensor | None, function: BlockSum
    ) -> Tensor:
        """Sum over the blocks. The gradients are computed here, too, because the scores (b, N) of a
        block are not kept for `backward`.

        `embeddings` (B, D); `references` (N, D), or None if the embeddings rank themselves;
        `function`: the sum of a block, from its scores and rows."""
        ranked = embeddings if references is None else references
        needs_grad = ctx.needs_input_grad[:2]  # of embeddings and references
        total = embeddings.new_zeros(())
        # whether a single block has all pairs: its gradient then replaces the zeros, and nothing is
        # written to their memory (`written`)
        whole = references is None and len(embeddings) ** 2 <= BLOCK_SCORES
        # gradients of the embeddings (B, D) and of the references (N, D), None if not needed;
        # without references, only the first is used
        grads = [
            _zeros_for(tensor, written=not whole) if needed else None
            for tensor, needed in zip((embeddings, ranked), needs_grad, strict=True)
        ]
        for block in blocks(embeddings.shape[0], ranked.shape[0]):
            scores = (embeddings[block] @ ranked.T).requires_grad_(any(needs_grad))
            with torch.set_grad_enabled(any(needs_grad)):
                value = function(scores, block)
            total += value.detach()
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value, scores)  # (b, N)
                if whole:
                    grads[0] = (slope + slope.T) @ ranked  # both roles in one product
                elif grads[0] is not None:
                    grads[0][block].addmm_(slope, ranked)
                to_ranked = grads[0] if references is None else grads[1]
                if to_ranked is not None and not whole:
                    to_ranked.addmm_(slope.T, embeddings[block])
        # the inputs that need a gradient, for `_FirstOrder`, which refuses second derivatives
        inputs = (
            tensor
            for tensor, needed in zip((embeddings, references), needs_grad, strict=True)
            if needed
        )
        ctx.save_for_backward(*(grad for grad in grads if grad is not None), *inputs)
        ctx.needs_grad = needs_grad
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by the embeddings and the references, None for one that needs none: those
        that `forward` has computed, times the gradient of the total, `upstream[0]`, a scalar. For
        the third argument of `forward`, the function, the gradient is None."""
        # `forward` has saved the gradients, and after them the same number of inputs. _FirstOrder
        # returns its first argument, and raises when somebody differentiates that by the `source`.
        half = len(ctx.saved_tensors) // 2
        scaled = iter(
            _FirstOrder.apply(grad * upstream[0], source)
            for grad, source in zip(ctx.saved_tensors[:half], ctx.saved_tensors[half:], strict=True)
        )
        return (*(next(scaled) if needed else None for needed in ctx.needs_grad), None)


def _zeros_for(tensor: Tensor, *, written: bool) -> Tensor:
    """Zeros in the shape of a tensor, to which gradients are added. If they are not `written` to,
    because the gradient replaces them, a single zero expanded to this shape is enough.
    """
    if written:
        return tensor.new_zeros(tensor.shape)
    return tensor.new_zeros(()).expand_as(tensor)


class _FirstOrder(torch.autograd.Function):
    """A gradient that was computed together with the value, so that it cannot be differentiated
    again: its dependence on the `source` is not recorded."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, source: Tensor) -> Tensor:
        """The gradient itself. With `source` as an input, autograd calls `backward` if the gradient
        is differentiated by what it was computed from."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Raise ConfigError, since a second derivative would silently be wrong."""
        raise ConfigError(
            "this loss has no second derivative here: its gradient is computed with its value",
            fix="differentiate it once, without create_graph",
        )
