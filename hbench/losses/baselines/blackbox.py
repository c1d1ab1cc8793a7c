"""Differentiates exact ranks as a black box: the gradient is that of an interpolation of the ranks
with strength λ ([R]).

    forward   rk(y)_i = 1 + #{j : y_j > y_i}, equal scores in column order        ([R] Eq. 2)
    backward  dL/dy  = −(rk(y) − rk(y + λ dL/drk)) / λ                            ([R] Algorithm 1)

>>> import torch
>>> y = torch.tensor([0.3, 0.9, 0.5], requires_grad=True)
>>> rank = blackbox_rank(y, lam=1.0)
>>> rank.tolist()
[3.0, 1.0, 2.0]
>>> (
...     rank[0] * 0.4
... ).backward()  # perturbed scores .7, .9, .5: item 0 would rise by one rank, item 2 fall
>>> y.grad.tolist()
[-1.0, 0.0, 1.0]
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hbench.core.arguments import checked
from hbench.core.errors import ConfigError
from hbench.losses.batch_loss import FLOATS


@checked
def blackbox_rank(scores: Tensor, lam: float) -> Tensor:
    """Compute the ranks rk(y) along the last dimension, from 1 for the highest score, with the
    black-box gradient of strength λ: the change of the ranks, divided by λ, when the scores are
    moved by λ times the incoming gradient.

    Args:
        scores: (…, n). Equal scores are ranked in order of column.
        lam: λ, more than 0.

    Returns:
        (…, n), whole numbers in the dtype of the scores, or in float64 if that dtype cannot hold
        them.

    Raises:
        ConfigError: λ that is not more than 0.

    Source:
        RaMBO (CVPR 2020), Alg. 1.
    """
    if scores.dtype not in FLOATS or scores.layout is not torch.strided or scores.is_nested:
        raise ConfigError(
            "scores are no dense floats", expected="(Q, N)", found=f"{scores.dtype} {scores.layout}"
        )
    if not lam > 0:
        raise ConfigError(
            "the strength of the black-box interpolation is not positive",
            expected="lam > 0",
            found=f"{lam:g}",
        )
    # a float type holds all whole numbers up to 2/eps; larger ranks need float64
    exact = scores.double() if scores.shape[-1] > 2 / torch.finfo(scores.dtype).eps else scores
    result: Tensor = _BlackboxRank.apply(exact, lam)
    return result


def chosen_ranks(scores: Tensor, lam: float, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the black-box ranks of some items among all items of their rows.

    Args:
        scores: (Q, n).
        lam: the strength λ.
        chosen: bool (Q, n), marks P items.

    Returns:
        (rank, place, number). For the P chosen items, sorted by row and then by rank: their
        differentiable ranks (P,), and their places among the chosen items of the row (P,), from 1.
        `number` (Q,): how many items are chosen in each row.
    """
    rank = blackbox_rank(scores, lam)[chosen]
    number = chosen.sum(-1)
    # (P,): the row of each chosen item
    row = torch.arange(len(number), device=scores.device).repeat_interleave(number)
    # one sort by row and then by rank: row · (n + 1) + rank, as a rank is at most n
    best_first = (row * (scores.shape[-1] + 1) + rank.detach().long()).argsort()
    # for each item, where its row begins, from which places count
    first = (number.cumsum(0) - number).repeat_interleave(number)
    place = torch.arange(1, len(rank) + 1, device=rank.device) - first
    return rank[best_first], place, number


def descending_ranks(scores: Tensor) -> Tensor:
    """The ranks along the last dimension, from 1 for the highest score: int64 (…, n). Equal scores
    are ranked in order of column.
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    place = torch.arange(1, scores.shape[-1] + 1, device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter(-1, order, place)


class _BlackboxRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lam: float) -> Tensor:
        """The ranks of scores (Q, n), from 1 for the highest, as floats. `lam`: λ, by which the
        gradient moves scores to see how ranks change."""
        rank = descending_ranks(scores)
        ctx.save_for_backward(scores, rank)
        ctx.lam = lam
        return rank.to(scores)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the scores by black-box interpolation: the scores are moved by λ times
        the incoming gradient, `upstream[0]`, and the change of their ranks is divided by λ. None
        for λ itself."""
        scores, rank = ctx.saved_tensors
        perturbed = descending_ranks(scores + ctx.lam * upstream[0])
        return (perturbed - rank).to(scores) / ctx.lam, None
