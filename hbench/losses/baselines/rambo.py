"""Defines the RaMBO losses: AP or recall on black-box ranks, with a score margin and a memory of
past scores (RaMBO, §4).

As in the released code, `lam` is the strength for ranks divided by the number n of ranked scores,
so that it has the same meaning for every n. The rank itself is interpolated with λ = n·lam.
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
    """Make the shift of scores y to y − α/2 for positives, and y + α/2 for others, where α is the
    `margin` (RaMBO, Eq. 14)."""
    return lambda scores, positive: (
        scores + margin * (0.5 - positive.to(scores)) if margin else scores
    )


def random_margin(margin: float, draw: Callable[[Tensor], Tensor] = torch.randn_like) -> Shift:
    """Make the shift by `score_margin` times |N(0, 1)|, drawn for each score, as in the released
    code.
    """
    return lambda scores, positive: (
        scores + margin * draw(scores).abs() * (0.5 - positive.to(scores))
    )


def ap_loss(scores: Tensor, positive: Tensor, lam: float, *, smoothing: float = 0.0) -> Tensor:
    """Compute the mean of 1 − 1/|P| Σ_P rk⁺/rk over rows with positives (RaMBO, Eq. 21–22); 0
    without such rows.

    rk is the rank of an item, differentiable by black-box interpolation with strength `lam`. rk⁺ is
    its rank among the positives, without a gradient. `scores` (Q, n); `positive` bool (Q, n).
    `smoothing` is added to |P|; it is 10⁻⁵ in the released code, whose AP never reaches 1.
    """
    # `lam` is the strength for rank/n, so that it means the same for every n. These ranks are not
    # divided by n, so their strength is n·lam.
    # rank and within (P,): rk and rk⁺ of the P positives; number (Q,): the positives of each row
    rank, within, number = chosen_ranks(scores, lam * max(1, scores.shape[-1]), positive)
    # (P,): for each positive, the number of positives in its row
    row_positives = number.repeat_interleave(number).to(rank) + smoothing
    defined = (number > 0).sum()
    return (defined - (within / rank / row_positives).sum()) / defined.clamp(min=1)


def recall_loss(
    scores: Tensor, positive: Tensor, lam: float, weight: Weight, *, unit: float = 1.0
) -> Tensor:
    """Compute the mean of weight(r) over all positives, where r = rk − rk⁺ is the number of
    irrelevant items before a positive (RaMBO, Eq. 17, 20); 0 without positives.

    `scores` (Q, n); `positive` bool (Q, n). `lam`: the strength of the black-box gradient.
    `weight`: maps each r to a loss, such as log(1 + r). `unit`: r is multiplied by it; in the
    released code it is the number of rows divided by n."""
    # `lam` is for ranks divided by n, so it is multiplied by n for ranks. rank and within (P,): rk
    # and rk⁺ of the P positives
    rank, within, _ = chosen_ranks(scores, lam * max(1, scores.shape[-1]), positive)
    return weight((rank - within) * unit).sum() / max(1, len(rank))


def log_weight(ahead: Tensor) -> Tensor:
    """Compute ℓ(r) = log(1 + r), for w_K ≈ 1/K (RaMBO, Eq. 20)."""
    return torch.log1p(ahead)


def log_log_weight(ahead: Tensor) -> Tensor:
    """Compute ℓ(ℓ(r)), for w_K ≈ 1/(K log K) (RaMBO, Eq. 20)."""
    return torch.log1p(torch.log1p(ahead))


class ScoreMemory(nn.Module):
    """A memory of the scores of past batches, without gradient, which are joined to the current
    scores along `dim` (RaMBO, §4.3).

    If rows are joined, shorter rows are filled up with −∞, which ranks last. Rows (or columns) with
    NaN or ∞ are not kept. The memory is part of the module's state_dict.
    """

    def __init__(self, batches: int, dim: int) -> None:
        """`batches`: how many past batches are kept. `dim`: the dimension of scores (Q, n) that
        grows when batches are joined: 0 adds lists, 1 adds items to each list."""
        super().__init__()
        if batches < 0:
            raise ConfigError(
                "the memory is negative", expected="memory ≥ 0 batches", found=str(batches)
            )
        # scores and flags of positives of each batch, oldest first
        self.past: deque[tuple[Tensor, Tensor]] = deque(maxlen=batches)
        self.dim = dim

    def get_extra_state(self) -> list[tuple[Tensor, Tensor]]:
        """Return the past batches, oldest first; torch stores them with the module's tensors."""
        return list(self.past)

    def set_extra_state(self, state: list[tuple[Tensor, Tensor]]) -> None:
        """Restore what `get_extra_state` returned; only the newest batches, if that was longer."""
        self.past.clear()
        self.past.extend(state)

    @uncompiled
    def forward(self, scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
        """Join this batch to the past batches along `dim`, past ones first, and add it to the
        memory, which drops its oldest batch if it is full. Only the scores of this batch have a
        gradient.

        `scores` (Q, n); `positive` bool (Q, n). Returns the joined scores and flags of positives.
        """
        # oldest batch first; after resuming, the memory may be on another device than the scores
        past = [(part.to(scores.device), flag.to(scores.device)) for part, flag in self.past]
        every = [*past, (scores, positive)]
        # Rows (or columns) with NaN or ∞ are not kept: these rank first, and would spoil the ranks
        # of later batches. −∞ is allowed, as it marks items outside of a list. 1 − dim is the other
        # dimension.
        usable = (~(scores.isnan() | scores.isposinf())).all(1 - self.dim).nonzero()[:, 0]
        self.past.append(
            (
                scores.detach().index_select(self.dim, usable),
                positive.index_select(self.dim, usable),
            )
        )

        # With dim 0, the lists of past batches are added, which may have other lengths: the shorter
        # ones are filled up with −∞, which ranks last, and with flags of no positives. With dim 1,
        # the rows are always the same, such as the classes, and get more items.
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
    """A loss of rows of scores, with positives by the finest class: scores are shifted by the
    margin, then joined to those in the memory, and then the loss of the rows is computed.
    """

    takes_partial = True

    def __init__(
        self, loss: RowLoss, shift: Shift, memory: int, *, keep_self: bool = False
    ) -> None:
        """`loss`: maps scores (Q, n) and positives, bool (Q, n), to a scalar; `shift`: maps scores
        and positives to scores with the margin; `memory`: the number of past batches whose
        lists are added to the loss; `keep_self`: whether a query stays in its own list."""
        super().__init__()
        self.loss = loss
        self.shift = shift
        self.keep_self = keep_self
        self.memory = ScoreMemory(memory, dim=0)  # dim 0: past batches add lists

    def compute(self, batch: LossBatch) -> Tensor:
        """The loss of the batch's lists, joined to those in the memory. Items outside of a query's
        list, such as the query itself, get a score of −∞, which ranks them last."""
        query, others = full_precision(batch.embeddings, batch.ref_embeddings)
        # autocast would return to half precision
        with torch.autocast(query.device.type, enabled=False):
            scores = query @ others.T
            positive = batch.same_class()  # bool (B, N), by the finest class
            # bool (B, N): the items outside of a query's list, None if there are none
            outside = None if self.keep_self else batch.is_self()
            listed = batch.listed()  # None: neither mined pairs nor partial labels
            if listed is not None:
                outside = ~listed if outside is None else outside | ~listed
            if outside is not None:
                scores = scores.masked_fill(outside, -torch.inf)
                positive = positive & ~outside
            # shifted before they are stored, so the memory has scores with their margin
            return self.loss(*self.memory(self.shift(scores, positive), positive))


class RamboClasses(nn.Module):
    """(1 − c) L_mAP + c L_APC of a matrix of scores: the AP by class, and the AP of the scores of
    all classes in one list (RaMBO, Eq. 6, 23).

    forward(scores (n, C), targets bool (n, C)): n examples × C classes; the memory adds examples.
    The paper uses c = 1/3 (2 : 1).
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
        """Set the constants of the loss.

        Args:
            lam: the strength of the black-box gradient, for ranks divided by the length of a list.
            margin: between positives and others.
            memory: how many past batches are kept, whose examples count, too.
            joint: c, the weight of the AP of all classes in one list.
            shift: maps scores and positives to scores with the margin; None for
                `score_margin(margin)`.
            smoothing: is added to the number of positives in the AP.
        """
        super().__init__()
        if not 0 <= joint <= 1:
            reason = "the weight of the joint AP is out of range"
            raise ConfigError(reason, expected="joint in 0 … 1", found=f"{joint:g}")
        self.lam = lam
        self.joint = joint
        self.smoothing = smoothing
        self.shift = score_margin(margin) if shift is None else shift
        # a list is of one class; its items are the examples, to which dim=1 joins those of the past
        self.memory = ScoreMemory(memory, dim=1)

    @uncompiled
    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The AP loss of `scores` (examples, classes), where `targets` mark the classes of each
        example: (1 − `joint`) times the mean over the classes plus `joint` times the AP loss of all
        classes in one list. In each list `shift` lowers the scores of positives and raises those of
        the others by half a margin, so that positives must lead by the margin."""
        if scores.ndim != 2 or scores.shape != targets.shape:
            raise ConfigError(
                "the targets do not mark the classes of the scores",
                expected="scores (n, C) and targets bool (n, C), of n examples and C classes",
                found=f"{tuple(scores.shape)} and {tuple(targets.shape)}",
                fix="for embeddings and labels take rambo_ap",
            )
        (exact,) = full_precision(scores)
        # (C, n): a row for each class, with the examples of this batch and of past ones
        rows, positive = self.memory(exact.T, targets.T.bool())
        # autocast would return to half precision
        with torch.autocast(exact.device.type, enabled=False):
            by_class = ap_loss(
                self.shift(rows, positive), positive, self.lam, smoothing=self.smoothing
            )
            if self.joint == 0:
                return by_class
            # (1, n·C): one list of all pairs of an example and a class; the order of the pairs
            # decides only which of two equal scores ranks higher
            flat = rows.T.reshape(1, -1)
            flags = positive.T.reshape(1, -1)
            joint = ap_loss(self.shift(flat, flags), flags, self.lam, smoothing=self.smoothing)
            return (1 - self.joint) * by_class + self.joint * joint


def refuse_class_scores(loss: nn.Module) -> None:
    """Raise ConfigError for a loss that takes a matrix of class scores, or has such a loss inside,
    where a loss gets embeddings and labels."""
    if any(isinstance(part, RamboClasses) for part in loss.modules()):
        raise ConfigError(
            "the loss compares the scores of classes",
            expected="a loss of embeddings",
            found="rambo_map_classes",
            fix="call it by itself, with scores (n, C) and targets (n, C), or take rambo_ap",
        )


def rambo_ap(
    lam: float = 4.0, margin: float = 0.02, memory: int = 0, released: bool = False
) -> nn.Module:
    """Make the loss L_AP of the queries' lists (RaMBO, Eq. 22).

    Args:
        lam: λ, the strength of the black-box interpolation of rank/n, where n is the length of a
            list. The larger, the smoother.
        margin: between positives and others.
        memory: how many past batches are kept, whose lists count, too.
        released: whether to follow the released code, where a query stays in its own list, the
            margin is multiplied by |N(0, 1)|, and 10⁻⁵ is added to |P|.
    """
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
    """Make the loss L_rec of the queries' lists (RaMBO, Eq. 20).

    Args:
        lam: λ, the strength of the black-box interpolation of rank/n, where n is the length of a
            list. The larger, the smoother.
        margin: between positives and others.
        weight: of recall@K in the sum over all K: "log" for w_K ≈ 1/K, or "loglog" for
            w_K ≈ 1/(K log K).
        memory: how many past batches are kept, whose lists count, too.
        released: whether to follow the released code, which multiplies the number of irrelevant
            items before a positive by (number of lists, including those in memory) / n.
    """
    weights = {"log": log_weight, "loglog": log_log_weight}
    if weight not in weights:
        raise ConfigError(
            "the recall weight is unknown", expected="log or loglog", found=repr(weight)
        )

    def loss(scores: Tensor, positive: Tensor) -> Tensor:
        """The recall loss of lists, scores and flags of positives (Q, n)."""
        unit = scores.shape[0] / scores.shape[1] if released else 1.0
        return recall_loss(scores, positive, lam, weights[weight], unit=unit)

    return Rambo(loss, score_margin(margin), memory)
