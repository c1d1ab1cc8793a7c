"""Defines the RaMBO losses: AP or recall on black-box ranks, with a score margin and a memory of past scores ([R] §4).

The losses take `lam` for ranks divided by the number n of ranked scores, as the released code does: it then means the same at
every length, and the rank itself is interpolated with λ = n·lam.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError
from hbench.losses.baselines.blackbox import chosen_ranks
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision

Shift = Callable[[Tensor, Tensor], Tensor]  # scores, positive -> scores
RowLoss = Callable[[Tensor, Tensor], Tensor]  # scores (Q, n), positive (Q, n) -> scalar
Weight = Callable[[Tensor], Tensor]


def score_margin(margin: float) -> Shift:
    """y − α/2 for positives, y + α/2 for the others ([R] Eq. 14)."""
    return lambda scores, positive: scores + margin * (0.5 - positive.to(scores)) if margin else scores


def random_margin(margin: float, draw: Callable[[Tensor], Tensor] = torch.randn_like) -> Shift:
    """score_margin times |N(0, 1)|, drawn for every score, as the released code does."""
    return lambda scores, positive: scores + margin * draw(scores).abs() * (0.5 - positive.to(scores))


def ap_loss(scores: Tensor, positive: Tensor, lam: float, *, smoothing: float = 0.0) -> Tensor:
    """Mean over rows with positives of 1 − 1/|P| Σ_P rk⁺/rk ([R] Eq. 21–22), rk⁺ without slope; 0 if there is no such row.

    scores (Q, n), positive bool (Q, n). `smoothing` is added to |P|: 10⁻⁵ in the released code, so that 1 is never reached.
    """
    ranked = chosen_ranks(scores, lam * max(1, scores.shape[-1]), positive)
    rows = ranked.number.repeat_interleave(ranked.number).to(ranked.rank) + smoothing
    defined = (ranked.number > 0).sum()
    return (defined - (ranked.within / ranked.rank / rows).sum()) / defined.clamp(min=1)


def recall_loss(scores: Tensor, positive: Tensor, lam: float, weight: Weight, *, unit: float = 1.0) -> Tensor:
    """Mean over all positives of all rows of weight(r), r = rk − rk⁺ the irrelevant items ahead ([R] Eq. 17, 20).

    `unit` multiplies r: the released code has the number of rows over n there. 0 without positives.
    """
    ranked = chosen_ranks(scores, lam * max(1, scores.shape[-1]), positive)
    return weight((ranked.rank - ranked.within) * unit).sum() / max(1, len(ranked.rank))


def log_weight(ahead: Tensor) -> Tensor:
    """ℓ(r) = log(1 + r), for w_K ≈ 1/K ([R] Eq. 20)."""
    return torch.log1p(ahead)


def log_log_weight(ahead: Tensor) -> Tensor:
    """ℓ(ℓ(r)), for w_K ≈ 1/(K log K) ([R] Eq. 20)."""
    return torch.log1p(torch.log1p(ahead))


class ScoreMemory(nn.Module):
    """The scores of the last τ batches, without gradient, joined to the current ones along a dimension ([R] §4.3).

    Joined as rows, shorter rows are filled with −∞, which ranks last. Rows (or columns) with NaN or ∞ are joined to no later
    batch. The memory is part of the module's state_dict.
    """

    def __init__(self, batches: int, dim: int) -> None:
        super().__init__()
        if batches < 0:
            raise ConfigError("a memory cannot be negative", expected="memory ≥ 0 batches", found=str(batches))
        self.past: deque[tuple[Tensor, Tensor]] = deque(maxlen=batches)
        self.dim = dim

    def get_extra_state(self) -> list[tuple[Tensor, Tensor]]:
        """The past batches, oldest first; torch stores them with the module's tensors."""
        return list(self.past)

    def set_extra_state(self, state: list[tuple[Tensor, Tensor]]) -> None:
        """Take over what get_extra_state gave; of a longer memory, the newest batches."""
        self.past.clear()
        self.past.extend(state)

    def forward(self, scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
        # A resumed memory may have been loaded to another device than the scores'.
        past = [(part.to(scores.device), flag.to(scores.device)) for part, flag in self.past]
        every = [*past, (scores, positive)]
        usable = (~(scores.isnan() | scores.isposinf())).all(1 - self.dim).nonzero()[:, 0]
        self.past.append((scores.detach().index_select(self.dim, usable), positive.index_select(self.dim, usable)))
        if self.dim == 0:
            width = max(part.shape[1] for part, _ in every)
            every = [(_widen(part, width, -torch.inf), _widen(flag, width, False)) for part, flag in every]
        parts, flags = zip(*every, strict=True)
        return torch.cat(parts, dim=self.dim), torch.cat(flags, dim=self.dim)


class Rambo(BatchLoss):
    """A loss of score rows on the fine labels of a batch or of references: margin, then memory, then the loss of the rows."""

    takes_partial = True

    def __init__(self, loss: RowLoss, shift: Shift, memory: int, *, keep_self: bool = False) -> None:
        super().__init__()
        self.loss, self.shift, self.keep_self = loss, shift, keep_self
        self.memory = ScoreMemory(memory, dim=0)

    def compute(self, batch: LossBatch) -> Tensor:
        query, others = full_precision(batch.embeddings, batch.ref_embeddings)
        with torch.autocast(query.device.type, enabled=False):
            scores = query @ others.T
            positive = batch.labels[:, -1, None] == batch.ref_labels[None, :, -1]
            outside, listed = None if self.keep_self else batch.is_self(), batch.listed()
            if listed is not None:
                outside = ~listed if outside is None else outside | ~listed
            if outside is not None:
                scores, positive = scores.masked_fill(outside, -torch.inf), positive & ~outside
            return self.loss(*self.memory(self.shift(scores, positive), positive))


class RamboClasses(nn.Module):
    """(1 − c) L_mAP + c L_APC over a score matrix: AP of every class, and of all classes' scores as one list ([R] Eq. 6, 23).

    forward(scores (n, C), targets bool (n, C)): examples × classes; the memory adds examples. c = 1/3 is the paper's 2 : 1.
    """

    def __init__(
        self,
        lam: float = 0.5,
        margin: float = 0.15,
        memory: int = 7,
        joint: float = 1 / 3,
        *,
        shift: Shift | None = None,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= joint <= 1:
            raise ConfigError(
                "the weight of the joint AP is not a share", expected="joint in 0 … 1", found=f"{joint:g}"
            )
        self.lam, self.joint, self.smoothing = lam, joint, smoothing
        self.shift = score_margin(margin) if shift is None else shift
        self.memory = ScoreMemory(memory, dim=1)

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        (scores,) = full_precision(scores)
        rows, positive = self.memory(scores.T, targets.T.bool())
        with torch.autocast(scores.device.type, enabled=False):
            each = ap_loss(self.shift(rows, positive), positive, self.lam, smoothing=self.smoothing)
            if self.joint == 0:
                return each
            flat, flags = rows.T.reshape(1, -1), positive.T.reshape(1, -1)
            joint = ap_loss(self.shift(flat, flags), flags, self.lam, smoothing=self.smoothing)
            return (1 - self.joint) * each + self.joint * joint


def rambo_ap(lam: float = 4.0, margin: float = 0.02, memory: int = 0, released: bool = False) -> nn.Module:
    """L_AP of every query's list ([R] Eq. 22); released: the query in its list, the margin times |N(0, 1)|, |P| + 10⁻⁵."""
    shift = random_margin(margin) if released else score_margin(margin)
    return Rambo(
        lambda scores, positive: ap_loss(scores, positive, lam, smoothing=1e-5 if released else 0.0),
        shift,
        memory,
        keep_self=released,
    )


def rambo_recall(
    lam: float = 4.0, margin: float = 0.02, weight: str = "log", memory: int = 0, released: bool = False
) -> nn.Module:
    """L_rec of every query's list with w_K ≈ 1/K ("log") or 1/(K log K) ("loglog") ([R] Eq. 20).

    released: irrelevant items ahead are counted in units of n over the number of lists, memory included.
    """
    weights = {"log": log_weight, "loglog": log_log_weight}
    if weight not in weights:
        raise ConfigError(f"there is no recall weight {weight!r}", expected="log or loglog", found=weight)

    def loss(scores: Tensor, positive: Tensor) -> Tensor:
        unit = scores.shape[0] / scores.shape[1] if released else 1.0
        return recall_loss(scores, positive, lam, weights[weight], unit=unit)

    return Rambo(loss, score_margin(margin), memory)


def _widen(tensor: Tensor, width: int, value: float) -> Tensor:
    return nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=value)
