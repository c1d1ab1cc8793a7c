"""Defines the RaMBO losses: AP or recall on black-box ranks, with a score margin and a memory of
past scores (RaMBO, §4).

Like in the released code, `lam` applies to ranks divided by the number n of ranked scores, so that
it means the same for every n; the rank itself is interpolated with λ = n·lam.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError
from hbench.losses.baselines.blackbox import chosen_ranks
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision, uncompiled

Shift = Callable[[Tensor, Tensor], Tensor]  # scores, positive -> scores
RowLoss = Callable[[Tensor, Tensor], Tensor]  # scores (Q, n), positive (Q, n) -> scalar
Weight = Callable[[Tensor], Tensor]


def score_margin(margin: float) -> Shift:
    """Make the shift to y − α/2 for positives, y + α/2 for the others (RaMBO, Eq. 14)."""
    return lambda scores, positive: (
        scores + margin * (0.5 - positive.to(scores)) if margin else scores
    )


def random_margin(margin: float, draw: Callable[[Tensor], Tensor] = torch.randn_like) -> Shift:
    """Make the shift by score_margin times |N(0, 1)|, drawn for every score, like the released
    code.
    """
    return lambda scores, positive: (
        scores + margin * draw(scores).abs() * (0.5 - positive.to(scores))
    )


def ap_loss(scores: Tensor, positive: Tensor, lam: float, *, smoothing: float = 0.0) -> Tensor:
    """Compute the mean of 1 − 1/|P| Σ_P rk⁺/rk over rows with positives (RaMBO, Eq. 21–22); 0
    without such rows.

    rk is an item's rank, differentiable by black-box interpolation of strength `lam`; rk⁺ its rank
    among the positives, without a gradient. scores (Q, n), positive bool (Q, n). `smoothing` is
    added to |P|: 10⁻⁵ in the released code, whose AP thus never reaches 1.
    """
    # `lam` is of ranks divided by n, so that it means the same for every n
    rank, within, number = chosen_ranks(scores, lam * max(1, scores.shape[-1]), positive)
    rows = number.repeat_interleave(number).to(rank) + smoothing  # (P,): |P| of each one's row
    defined = (number > 0).sum()
    return (defined - (within / rank / rows).sum()) / defined.clamp(min=1)


def recall_loss(
    scores: Tensor, positive: Tensor, lam: float, weight: Weight, *, unit: float = 1.0
) -> Tensor:
    """Compute the mean of weight(r) over all positives, r = rk − rk⁺ being the irrelevant items
    ahead (RaMBO, Eq. 17, 20).

    scores (Q, n), positive bool (Q, n); `lam`: the strength of the black-box gradient. `unit`
    multiplies r; in the released code it is the number of rows over n. Without positives the loss
    is 0."""
    # `lam` is of ranks divided by n, so that it means the same for every n
    rank, within, _ = chosen_ranks(scores, lam * max(1, scores.shape[-1]), positive)
    return weight((rank - within) * unit).sum() / max(1, len(rank))


def log_weight(ahead: Tensor) -> Tensor:
    """Compute ℓ(r) = log(1 + r), for w_K ≈ 1/K (RaMBO, Eq. 20)."""
    return torch.log1p(ahead)


def log_log_weight(ahead: Tensor) -> Tensor:
    """Compute ℓ(ℓ(r)), for w_K ≈ 1/(K log K) (RaMBO, Eq. 20)."""
    return torch.log1p(torch.log1p(ahead))


class ScoreMemory(nn.Module):
    """A memory of the last batches' scores, without gradient, which are joined to the current ones
    along `dim` (RaMBO, §4.3).

    Where rows are joined, shorter ones are filled up with −∞, which ranks last. Rows (or columns)
    with NaN or ∞ are not kept. The memory is part of the module's state_dict.
    """

    def __init__(self, batches: int, dim: int) -> None:
        """`batches`: how many past ones are kept; `dim`: along which they are joined."""
        super().__init__()
        if batches < 0:
            raise ConfigError(
                "the memory is negative", expected="memory ≥ 0 batches", found=str(batches)
            )
        self.past: deque[tuple[Tensor, Tensor]] = deque(maxlen=batches)
        self.dim = dim

    def get_extra_state(self) -> list[tuple[Tensor, Tensor]]:
        """Return the past batches, oldest first; torch stores them with the module's tensors."""
        return list(self.past)

    def set_extra_state(self, state: list[tuple[Tensor, Tensor]]) -> None:
        """Restore what get_extra_state returned; from a longer memory, the newest batches."""
        self.past.clear()
        self.past.extend(state)

    @uncompiled
    def forward(self, scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and flags with those of past batches before them along `dim`, 0 for rows, that is
        lists, or 1 for columns, that is items; only those of this batch carry a gradient."""
        # scores and flags (Q, n) of each past batch, oldest first; after a resume the memory may be
        # on another device than the scores
        past = [(part.to(scores.device), flag.to(scores.device)) for part, flag in self.past]
        every = [*past, (scores, positive)]
        # the rows (or columns) without NaN and ∞; −∞ is allowed, for it stands for an item outside
        # of its list. `1 - self.dim` is the other one of the two dimensions
        usable = (~(scores.isnan() | scores.isposinf())).all(1 - self.dim).nonzero()[:, 0]
        self.past.append(
            (
                scores.detach().index_select(self.dim, usable),
                positive.index_select(self.dim, usable),
            )
        )

        # batches can differ in the length of their lists; the shorter ones are filled up with −∞,
        # which ranks last, and no positives
        if self.dim == 0:
            width = max(part.shape[1] for part, _ in every)
            pad = nn.functional.pad
            lacking = [(0, width - part.shape[1]) for part, _ in every]
            every = [
                (pad(part, n, value=-torch.inf), pad(flag, n))
                for (part, flag), n in zip(every, lacking, strict=True)
            ]

        parts, flags = zip(*every, strict=True)
        return torch.cat(parts, dim=self.dim), torch.cat(flags, dim=self.dim)


class Rambo(BatchLoss):
    """A loss of rows of scores with fine labels: first the margin, then the memory, then the loss
    of the rows.
    """

    takes_partial = True

    def __init__(
        self, loss: RowLoss, shift: Shift, memory: int, *, keep_self: bool = False
    ) -> None:
        """`loss`: of rows of scores; `shift`: puts the margin in; `memory`: how many past batches
        are kept; `keep_self`: whether a query stays in its own list."""
        super().__init__()
        self.loss = loss
        self.shift = shift
        self.keep_self = keep_self
        self.memory = ScoreMemory(memory, dim=0)

    def compute(self, batch: LossBatch) -> Tensor:
        """The rank loss of the batch's lists, joined to those that the memory holds. The query
        itself, and what is in no pair with it, are outside of its list: −∞ ranks them last."""
        query, others = full_precision(batch.embeddings, batch.ref_embeddings)
        with torch.autocast(query.device.type, enabled=False):
            scores = query @ others.T
            positive = batch.same_class()
            # bool (B, N): what is not in a query's list; None: nothing is left out
            outside = None if self.keep_self else batch.is_self()
            listed = batch.listed()  # None: mined pairs and partial labels leave nothing out
            if listed is not None:
                outside = ~listed if outside is None else outside | ~listed
            if outside is not None:
                scores = scores.masked_fill(outside, -torch.inf)
                positive = positive & ~outside
            # scores are remembered with their margin
            return self.loss(*self.memory(self.shift(scores, positive), positive))


class RamboClasses(nn.Module):
    """(1 − c) L_mAP + c L_APC of a score matrix: AP by class, and AP of all classes' scores as one
    list (RaMBO, Eq. 6, 23).

    forward(scores (n, C), targets bool (n, C)): examples × classes; the memory adds examples. The
    paper has c = 1/3 (2 : 1).
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
        """`lam`, `smoothing`: as of `ap_loss`; `margin`: between positives and others, or `shift`
        in its place; `memory`: past batches whose examples count; `joint`: c, the share of the AP
        of all classes' scores in one list."""
        super().__init__()
        if not 0 <= joint <= 1:
            reason = "the weight of the joint AP is out of range"
            raise ConfigError(reason, expected="joint in 0 … 1", found=f"{joint:g}")
        self.lam = lam
        self.joint = joint
        self.smoothing = smoothing
        self.shift = score_margin(margin) if shift is None else shift
        self.memory = ScoreMemory(memory, dim=1)

    @uncompiled
    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The AP loss of scores and targets (detections, classes): class by class and, by the share
        `joint`, of all classes in one list. `shift`: moves scores by the margin; `memory`: keeps
        examples of earlier batches; `lam`: the strength of the gradient of ranks; `smoothing`:
        what is added to the number of positives."""
        (exact,) = full_precision(scores)
        # a row for each class, with the examples of this batch and of those before: (C, n)
        rows, positive = self.memory(exact.T, targets.T.bool())
        with torch.autocast(exact.device.type, enabled=False):
            by_class = ap_loss(
                self.shift(rows, positive), positive, self.lam, smoothing=self.smoothing
            )
            if self.joint == 0:
                return by_class
            # one list of all pairs of an example and a class, example by example
            flat = rows.T.reshape(1, -1)
            flags = positive.T.reshape(1, -1)
            joint = ap_loss(self.shift(flat, flags), flags, self.lam, smoothing=self.smoothing)
            return (1 - self.joint) * by_class + self.joint * joint


def rambo_ap(
    lam: float = 4.0, margin: float = 0.02, memory: int = 0, released: bool = False
) -> nn.Module:
    """Make L_AP of the queries' lists (RaMBO, Eq. 22). `lam`: λ, of ranks divided by n; `memory`:
    how many past batches are ranked, too; `released`: as in the released code, where a query stays
    in its own list, the margin is multiplied by |N(0, 1)|, and 10⁻⁵ is added to |P|."""
    shift = random_margin(margin) if released else score_margin(margin)
    loss = partial(ap_loss, lam=lam, smoothing=1e-5 if released else 0.0)
    return Rambo(loss, shift, memory, keep_self=released)


def rambo_recall(
    lam: float = 4.0,
    margin: float = 0.02,
    weight: str = "log",
    memory: int = 0,
    released: bool = False,
) -> nn.Module:
    """Make L_rec of the queries' lists with w_K ≈ 1/K ("log") or 1/(K log K) ("loglog") (RaMBO, Eq.
    20).

    `released`: irrelevant items ahead are counted in units of n over the number of lists, including
    those in memory. `lam`: λ, of ranks divided by n; `margin`: between positives and others;
    `memory`: how many past batches are ranked, too.
    """
    weights = {"log": log_weight, "loglog": log_log_weight}
    if weight not in weights:
        raise ConfigError(
            "the recall weight is unknown", expected="log or loglog", found=repr(weight)
        )

    def loss(scores: Tensor, positive: Tensor) -> Tensor:
        """The recall loss of lists (Q, n)."""
        unit = scores.shape[0] / scores.shape[1] if released else 1.0
        return recall_loss(scores, positive, lam, weights[weight], unit=unit)

    return Rambo(loss, score_margin(margin), memory)
