"""Wrappers of a loss: with a memory of past batches (Wang et al. 2020), summed over all levels of
the tree, or with mixed items (Patel et al.).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hbench.core.arguments import checked, checked_class
from hbench.core.errors import ConfigError
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision, uncompiled, wide_labels
from hbench.losses.batch_loss.checks import require_tree


@checked_class
class CrossBatchMemory(nn.Module):
    """A loss over the batch and a memory of earlier embeddings (XBM).

    The loss is (w_b · loss(batch) + w_m · loss(batch, memory)) / (w_b + w_m), but loss(batch) in
    the first `warm_up` batches. The memory is a queue of the last `size` embeddings, without
    gradient, including the batch. Embeddings that are not finite are not stored: one bad batch
    would spoil all losses while it is in the memory.

    Args:
        loss: a loss that takes references. It gets the places of the queries among them, so that no
            query ranks itself.
        size: of the memory, in embeddings, ≥ 1.
        warm_up: batches before the memory is used, ≥ 0.
        batch_weight: w_b, ≥ 0.
        memory_weight: w_m, ≥ 0; not both weights are 0.

    Raises:
        ConfigError: a setting out of range.
    """

    embeddings: Tensor
    labels: Tensor
    stored: Tensor
    batches: Tensor

    def __init__(
        self,
        loss: nn.Module,
        size: int,
        *,
        warm_up: int = 0,
        batch_weight: float = 1.0,
        memory_weight: float = 1.0,
    ) -> None:
        """Begin with an empty queue. The first batch determines the widths D and L, and the device,
        of `embeddings` (size, D) and `labels` (size, L).

        `size`: of the queue, in embeddings. `warm_up`: the batches before the queue is used.
        `batch_weight`, `memory_weight`: of the losses over the batch and over the queue."""
        super().__init__()
        if (
            size < 1
            or warm_up < 0
            or min(batch_weight, memory_weight) < 0
            or batch_weight + memory_weight == 0
        ):
            raise ConfigError(
                "the settings of the memory are out of range",
                expected="size ≥ 1, warm_up ≥ 0, weights ≥ 0 and not both 0",
                found=f"size {size}, warm_up {warm_up}, weights {batch_weight:g} and "
                f"{memory_weight:g}",
            )

        self.loss = loss
        self.size = size
        self.warm_up = warm_up
        self.batch_weight = batch_weight
        self.memory_weight = memory_weight
        # buffers, so that checkpoints keep the queue, and .to() moves it
        self.register_buffer("embeddings", torch.empty(0, 0))
        self.register_buffer("labels", torch.empty(0, 0, dtype=torch.int64))
        # how many embeddings were stored so far, including overwritten ones, and how many batches
        self.register_buffer("stored", torch.zeros((), dtype=torch.int64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @uncompiled
    def forward(
        self, embeddings: Tensor, labels: Tensor, *references: Any, **by_name: Any
    ) -> Tensor:
        """The loss of a batch of embeddings (B, D) with labels (B, L). After the warm-up, it is the
        weighted mean of loss(batch) and loss(batch, memory). Further arguments, which other losses
        take, must be None."""
        if any(each is not None for each in (*references, *by_name.values())):
            raise ConfigError(
                "a memory of past batches has references of its own",
                expected="embeddings and labels alone",
                found="references or mined pairs",
                fix="call it without them, or take the loss inside of it, which `xbm` names",
            )
        wide = wide_labels(labels, embeddings, "labels", "embeddings")  # (B, L)
        # a batch that the loss or the memory refuses must not be stored, so it is checked before
        within: Tensor = self.loss(embeddings, wide)
        self._refuse_unlike(embeddings, wide)
        # (B,): the place of each query in the memory, so that it does not rank itself there
        place = self._enqueue(embeddings.detach(), wide)
        if int(self.batches) <= self.warm_up:  # `batches` counts this batch
            return within
        filled = min(int(self.stored), self.size)  # the rows behind are not filled yet
        across: Tensor = self.loss(
            embeddings, wide, self.embeddings[:filled], self.labels[:filled], place
        )
        return (self.batch_weight * within + self.memory_weight * across) / (
            self.batch_weight + self.memory_weight
        )

    def _refuse_unlike(self, embeddings: Tensor, labels: Tensor) -> None:
        """Raise an error for a batch, `embeddings` (B, D) and `labels` (B, L), that does not fit
        what is in the memory: ConfigError for other widths, TreeError for another tree."""
        filled = min(int(self.stored), self.size)
        if not filled:
            return
        widths = (self.embeddings.shape[1], self.labels.shape[1])
        if (embeddings.shape[1], labels.shape[1]) != widths:
            raise ConfigError(
                "the batch does not fit the memory of past batches",
                expected=f"dimension {widths[0]}, {widths[1]} levels",
                found=f"dimension {embeddings.shape[1]}, {labels.shape[1]} levels",
                fix="build the loss anew for other embeddings or labels",
            )
        if labels.device.type == "cpu":  # a GPU would have to wait
            require_tree(labels, self.labels[:filled])

    def _enqueue(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Store a batch, `embeddings` (B, D) and `labels` (B, L), in place of the oldest entries of
        the queue. Return the place of each item in the queue, int64 (B,), −1 for an item that is
        not stored.
        """
        if self.embeddings.shape[0] == 0:  # the first batch determines dimension and levels
            try:
                self.embeddings = embeddings.new_zeros(self.size, embeddings.shape[1])
                self.labels = labels.new_zeros(self.size, labels.shape[1])
            except (RuntimeError, TypeError):  # torch's errors for too large sizes
                raise ConfigError(
                    "the memory of past batches does not fit into this machine's",
                    expected="a smaller size",
                    found=f"{self.size:,} embeddings of {embeddings.shape[1]} numbers",
                ) from None

        # (K,): the finite rows, since others would spoil all losses while they are in the queue;
        # only the last ones, if the batch is larger than the queue
        kept = embeddings.isfinite().all(1).nonzero()[:, 0][-self.size :]
        # the queue is a ring: behind its end, storing goes on at its start, over the oldest entries
        place = (int(self.stored) + torch.arange(len(kept), device=labels.device)) % self.size
        self.embeddings[place] = embeddings[kept].to(self.embeddings)
        self.labels[place] = labels[kept]
        self.stored += len(kept)
        self.batches += 1
        return torch.full((len(labels),), -1, device=labels.device).index_put((kept,), place)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Load the queue, whatever its shape; torch calls this with the saved tensors, whose names
        begin with the prefix."""
        # a new module's queue has no widths yet, so buffers of the saved shapes replace it
        for name in ("embeddings", "labels"):
            if prefix + name in state_dict:
                setattr(
                    self,
                    name,
                    torch.empty_like(state_dict[prefix + name], device=getattr(self, name).device),
                )
        super()._load_from_state_dict(state_dict, prefix, *rest)


class PerLevel(BatchLoss):
    """Σ_l loss_l(embeddings, labels[:, :l], …): the l-th loss gets the first l columns of the
    labels, so that level l is its finest level.

    A single loss, which must have no proxies, is used at each level of any tree.
    """

    takes_partial = True

    def __init__(self, losses: nn.Module | Sequence[nn.Module]) -> None:
        """`losses`: a single loss for all levels, however many there are, or one for each level."""
        super().__init__()
        self.every = losses if isinstance(losses, nn.Module) else None
        self.losses = nn.ModuleList([] if isinstance(losses, nn.Module) else losses)

    def compute(self, batch: LossBatch) -> Tensor:
        """The sum of the losses of all levels. The loss of level l gets the first l columns of the
        labels."""
        depth = batch.labels.shape[1]
        # `every`: one loss for all levels, None if each level has its own loss
        losses = list(self.losses) if self.every is None else [self.every] * depth
        if depth != len(losses):
            raise ConfigError(
                "the levels of the labels and of the loss differ",
                expected=f"labels of {len(losses)} levels",
                found=f"{depth} levels",
            )
        terms = [
            loss(*batch.to_level(level).arguments()) for level, loss in enumerate(losses, start=1)
        ]
        return torch.stack(terms).sum()


@checked
def per_level(losses: nn.Module | Sequence[nn.Module]) -> nn.Module:
    """Sum a loss over the levels.

    Args:
        losses: one loss for all levels, or a sequence with a loss for each level, coarse to fine.

    Returns:
        A loss of embeddings and labels (N, L).

    Raises:
        ConfigError: what are no losses.
    """
    several = [losses] if isinstance(losses, nn.Module) else losses
    if not isinstance(several, Sequence) or not all(
        isinstance(each, nn.Module) for each in several
    ):
        raise ConfigError(
            "losses are no losses",
            expected="what build_loss returns, or a list of it, one of each level",
            found=f"{losses!r:.60}",
        )
    return PerLevel(losses)


# number of pairs -> for each, the share α ~ U[0, 1] of its first item in the mixture
Draw = Callable[[int], Tensor]


class SiMix(BatchLoss):
    """A loss of the batch and of mixtures of its embeddings, which are queries, too (Patel et al.
    2022, §3.3). Mixtures are not normalised.
    """

    takes_pairs = False

    def __init__(self, loss: nn.Module, draw: Draw = torch.rand) -> None:
        """`loss`: the loss that gets the batch with its mixtures; `draw`: the random shares of n
        mixtures."""
        super().__init__()
        self.loss = loss
        self.draw = draw

    def compute(self, batch: LossBatch) -> Tensor:
        """The loss of the batch with a random mixture of each pair of items of one finest class.
        Mixtures are queries, and also items if the batch ranks itself."""
        (embeddings,) = full_precision(batch.embeddings)
        labels = batch.labels
        # triu(1): each pair once, and no item with itself; a mixture is a virtual item of the class
        first, second = (labels[:, None, -1] == labels[None, :, -1]).triu(1).nonzero(as_tuple=True)
        share = self.draw(len(first)).to(embeddings)[:, None]
        virtual = share * embeddings[first] + (1 - share) * embeddings[second]
        # the place of each query among the references, −1 for mixtures, which are not among them
        index = torch.cat([batch.self_index, batch.self_index.new_full((len(first),), -1)])
        every = torch.cat([embeddings, virtual])
        # both items of a mixture have the same finest class, and so the same labels
        classes = torch.cat([labels, labels[first]])
        among_themselves = batch.ref_embeddings is batch.embeddings
        references = () if among_themselves else (batch.ref_embeddings, batch.ref_labels, index)
        result: Tensor = self.loss(every, classes, *references)
        return result


def mix_positives(
    draw: Draw = torch.rand,
) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    """Make a function that adds a column for each pair of a query's positives of the finest level.
    The column has a mixture of their two scores, and counts as another such positive (SupRank's
    released code).
    """

    def add(scores: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Add virtual positives to the lists, scores and levels (Q, N). Each has a random mixture
        of the scores of two positives of the finest level, `depth`."""
        fine = levels == depth
        # triu(1): each pair once, and no item with itself
        query, first, second = (fine[:, :, None] & fine[:, None, :]).triu(1).nonzero(as_tuple=True)
        share = draw(len(query)).to(scores)  # a random share for each pair
        mixed = share * scores[query, first] + (1 - share) * scores[query, second]
        number = torch.bincount(query, minlength=len(scores))  # (Q,): pairs of each query
        # (pairs,): the added column of each pair: pairs are sorted by query, and those of a query
        # are numbered from 0
        first_pair = number.cumsum(0) - number  # (Q,): where the pairs of each query begin
        column = torch.arange(len(query), device=query.device) - first_pair[query]
        width = int(number.max()) if len(query) else 0
        extra = scores.new_zeros(len(scores), width).index_put((query, column), mixed)
        # rows with fewer pairs are filled up with items outside of their lists, level L+1
        extra_levels = levels.new_full((len(scores), width), depth + 1).index_put(
            (query, column), levels.new_tensor(depth)
        )
        return torch.cat([scores, extra], dim=1), torch.cat([levels, extra_levels], dim=1)

    return add
