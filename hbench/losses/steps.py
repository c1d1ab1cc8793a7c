"""Defines the steps: how much item j counts as ranked before item k, for t = s_j − s_k, and the
slopes of surrogates.

`None` stands for the exact step of the metrics, which has no slope; it is counted in the sorted
list, ties included, instead of pair by pair.

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
    """A step with a slope: `value` and its derivative `slope` are elementwise functions of
    differences t.
    """

    def value(self, t: Tensor) -> Tensor: ...

    def slope(self, t: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Sigmoid:
    """ς(t) = σ(t/τ), the step of Smooth-AP; it bounds the exact step neither from above nor from
    below.
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

    S(0) = 1, the upper of the two values that the equation allows, so that S bounds the exact step
    from above at ties too. The released configurations replace constants: `start` is the ½ of the
    middle piece, `offset` the σ(δ/τ)+½ of the last (SOP: offset 1.44, start .5; iNat: offset 1,
    start 0, which is not an upper bound).
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    offset: float | None = None
    start: float = 0.5

    def __post_init__(self) -> None:
        """Raise ConfigError for constants with which the step would fall somewhere: τ of 0 or less,
        a negative ρ or δ."""
        require_positive(tau=self.tau)
        for name, value in (("rho", self.rho), ("delta", self.delta)):
            if value < 0:
                raise ConfigError(
                    f"the step's {name} is negative", expected=f"{name} ≥ 0", found=f"{value:g}"
                )

    @property
    def jump(self) -> float:
        """What is added to σ(δ/τ) + start + ρ(t−δ) for t > δ, so that the step is `offset` just
        above δ; without an `offset`, so that it is σ(δ/τ) + ½ there, whatever `start` is.
        """
        sigmoid_at_delta = 1 / (1 + math.exp(-self.delta / self.tau))
        continuous = sigmoid_at_delta + 0.5  # what the paper's equation has just above δ
        return (continuous if self.offset is None else self.offset) - continuous + 0.5 - self.start

    def value(self, t: Tensor) -> Tensor:
        """The step at differences t of scores, elementwise: σ(t/τ), with `start` added from 0 on,
        and above δ also ρ(t−δ) and the `jump` there."""
        capped = t.clamp(max=self.delta)  # t − capped is t − δ above δ, 0 elsewhere
        value = (capped / self.tau).sigmoid_().add_(t - capped, alpha=self.rho)
        # 1 where t ≥ 0, 0 elsewhere, by the sign; torch.heaviside is ten times slower on a CPU
        reached = capped.sign_().add_(1).clamp_(max=1)
        value.add_(reached, alpha=self.start)
        return value.add_(t > self.delta, alpha=self.jump) if self.jump else value

    def slope(self, t: Tensor) -> Tensor:
        """The derivative of `value` where it has one: that of σ(t/τ), and ρ above δ; its jumps have
        none."""
        return _sigmoid_slope(t, self.tau).masked_fill(t > self.delta, self.rho)


@dataclass(frozen=True)
class LowerBound:
    """leak·t for t ≤ 0, min(βt + γ, 1) for t > 0: a piece-wise linear lower bound of the exact step
    for H-rank^> (HAPPIER, §3.2).

    It is not bounded below, so that H-rank can become negative and the loss can exceed 1.
    """

    beta: float = 25.0
    gamma: float = 0.5
    leak: float = 10.0

    def __post_init__(self) -> None:
        """Raise ConfigError for constants with which the function falls somewhere, or exceeds the
        exact step."""
        if not (self.beta >= 0 and self.leak >= 0 and self.gamma <= 1):
            raise ConfigError(
                "the piece-wise linear step is not a lower bound",
                expected="beta ≥ 0, leak ≥ 0, gamma ≤ 1",
                found=f"beta {self.beta:g}, leak {self.leak:g}, gamma {self.gamma:g}",
            )

    def value(self, t: Tensor) -> Tensor:
        """min(βt + γ, 1) for t > 0, leak·t else: elementwise, of differences t of scores."""
        return torch.where(t > 0, (self.beta * t + self.gamma).clamp(max=1), self.leak * t)

    def slope(self, t: Tensor) -> Tensor:
        """The derivative of `value` at differences t of scores: β where βt + γ rises, 0 where it is
        cut at 1, and leak for t ≤ 0."""
        rising = torch.where(self.beta * t + self.gamma < 1, float(self.beta), 0.0)
        return torch.where(t > 0, rising, float(self.leak)).to(t)


def _sigmoid_slope(t: Tensor, tau: float) -> Tensor:
    """The derivative of σ(t/τ) at differences t, elementwise."""
    value = (t / tau).sigmoid_()
    return value.addcmul_(value, value, value=-1).div_(tau)  # σ − σ²
