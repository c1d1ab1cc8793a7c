"""Defines the steps: how much an item j counts as ranked before item k, as a function of t = s_j −
s_k, and the slopes of these functions.

`None` stands for the exact step of the metrics, which has no slope. It is counted in the sorted
list, including ties, instead of pair by pair.

>>> import torch
>>> value = SupRank().value(torch.tensor([-1.0, 0.0, 0.02, 0.06]))
>>> [round(v, 3) for v in value.tolist()]  # 0; σ(0)+½; σ(2)+½; ρ·(.06−δ)+σ(5)+½
[0.0, 1.0, 1.381, 2.493]
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hbench.core.errors import ConfigError
from hbench.losses.batch_loss import require_positive


class Step(Protocol):
    """A step with a slope: `value`, and its derivative `slope`, are elementwise functions of
    differences t of scores.
    """

    def value(self, t: Tensor) -> Tensor: ...

    def slope(self, t: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Sigmoid:
    """ς(t) = σ(t/τ), the step of Smooth-AP. It is neither an upper nor a lower bound of the exact
    step.
    """

    tau: float = 0.01

    def __post_init__(self) -> None:
        require_positive(tau=self.tau)

    def value(self, t: Tensor) -> Tensor:
        """σ(t/τ), elementwise."""
        return (t / self.tau).sigmoid_()

    def slope(self, t: Tensor) -> Tensor:
        """The derivative of `value`, elementwise."""
        return _sigmoid_slope(t, self.tau)


@dataclass(frozen=True)
class SupRank:
    """S(t) = σ(t/τ) for t < 0; σ(t/τ) + ½ for 0 ≤ t ≤ δ; ρ(t−δ) + σ(δ/τ) + ½ for t > δ (rank
    losses, Eq. 4).

    S(0) = 1, the upper of the two values that the equation allows, so that S is an upper bound of
    the exact step at ties, too. The released configurations replace two constants: `start` is the ½
    of the middle piece, and `offset` the σ(δ/τ) + ½ of the last piece (SOP: offset 1.44, start .5;
    iNat: offset 1, start 0, which is not an upper bound).
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    offset: float | None = None
    start: float = 0.5

    def __post_init__(self) -> None:
        """Raise ConfigError for constants with which the step would not increase with t: τ of 0 or
        less, or a negative ρ or δ."""
        require_positive(tau=self.tau)
        for name, value in (("rho", self.rho), ("delta", self.delta)):
            if value < 0:
                raise ConfigError(
                    f"the step's {name} is negative", expected=f"{name} ≥ 0", found=f"{value:g}"
                )

    @property
    def jump(self) -> float:
        """What is added to σ(δ/τ) + start + ρ(t−δ) for t > δ, so that the step just above δ is
        `offset`, or without an `offset` σ(δ/τ) + ½, whatever `start` is.
        """
        sigmoid_at_delta = 1 / (1 + math.exp(-self.delta / self.tau))
        continuous = sigmoid_at_delta + 0.5  # what the paper's equation has just above δ
        return (continuous if self.offset is None else self.offset) - continuous + 0.5 - self.start

    def value(self, t: Tensor) -> Tensor:
        """The step at differences t of scores, elementwise: σ(t/τ), plus `start` for t ≥ 0. For
        t > δ it is σ(δ/τ) + start + ρ(t−δ) + `jump`."""
        capped = t.clamp(max=self.delta)  # t − capped is t − δ above δ, 0 elsewhere
        value = (capped / self.tau).sigmoid_().add_(t - capped, alpha=self.rho)
        # 1 where t ≥ 0, else 0, from the sign; torch.heaviside is ten times slower on a CPU
        reached = capped.sign_().add_(1).clamp_(max=1)
        value.add_(reached, alpha=self.start)
        return value.add_(t > self.delta, alpha=self.jump) if self.jump else value

    def slope(self, t: Tensor) -> Tensor:
        """The derivative of `value`: that of σ(t/τ), and ρ above δ. Jumps have no derivative, and
        are ignored."""
        return _sigmoid_slope(t, self.tau).masked_fill(t > self.delta, self.rho)


@dataclass(frozen=True)
class LowerBound:
    """leak·t for t ≤ 0, min(βt + γ, 1) for t > 0: a piece-wise linear lower bound of the exact step
    for H-rank^> (HAPPIER, §3.2).

    It has no lower limit, so H-rank can become negative and the loss can exceed 1.
    """

    beta: float = 25.0
    gamma: float = 0.5
    leak: float = 10.0

    def __post_init__(self) -> None:
        """Raise ConfigError for constants with which the step, leak·t for t ≤ 0 and min(βt + γ, 1)
        for t > 0, would be above the exact step, which is 0 for t ≤ 0 (a negative leak), would fall
        (a negative β, or at t = 0 a negative γ), or would be 1 for all t > 0, without a slope (γ
        above 1)."""
        if not (self.beta >= 0 and self.leak >= 0 and 0 <= self.gamma <= 1):
            raise ConfigError(
                "the piece-wise linear step is not a lower bound",
                expected="beta ≥ 0, leak ≥ 0, 0 ≤ gamma ≤ 1",
                found=f"beta {self.beta:g}, leak {self.leak:g}, gamma {self.gamma:g}",
            )

    def value(self, t: Tensor) -> Tensor:
        """min(βt + γ, 1) for t > 0, leak·t else: elementwise, of differences t of scores."""
        return torch.where(t > 0, (self.beta * t + self.gamma).clamp(max=1), self.leak * t)

    def slope(self, t: Tensor) -> Tensor:
        """The derivative of `value` at differences t of scores: leak for t ≤ 0, then β up to where
        βt + γ reaches 1, and 0 beyond."""
        rising = torch.where(self.beta * t + self.gamma < 1, float(self.beta), 0.0)
        return torch.where(t > 0, rising, float(self.leak)).to(t)


def _sigmoid_slope(t: Tensor, tau: float) -> Tensor:
    """The derivative of σ(t/τ) at differences t, elementwise."""
    value = (t / tau).sigmoid_()
    return value.addcmul_(value, value, value=-1).div_(tau)  # σ − σ²
