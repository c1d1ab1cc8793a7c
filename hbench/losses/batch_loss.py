"""Gives every loss one way to be called, and checks what it is called with.

    loss(embeddings, labels)                                              each query is ranked in the batch
    loss(embeddings, labels, ref_embeddings, ref_labels, self_index)      each query is ranked in references
    loss(embeddings, labels, indices_tuple, ref_embeddings, ref_labels)   pytorch-metric-learning's order

A loss subclasses BatchLoss and computes its value from a LossBatch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError

Indices = tuple[Tensor, ...]  # pairs (query, positive, query, negative) or triplets (query, positive, negative)


class LossBatch(NamedTuple):
    """Queries (B, D) with labels (B, L), the references (N, D) and (N, L) they are ranked in, and what they are told apart by.

    `self_index` int64 (B,): which reference each query is, −1 for none. `pairs`: mined pairs or triplets, None for all.
    """

    embeddings: Tensor
    labels: Tensor
    ref_embeddings: Tensor
    ref_labels: Tensor
    self_index: Tensor
    pairs: Indices | None

    def is_self(self, block: slice = slice(None)) -> Tensor:
        """bool (b, N): whether a reference is the query itself."""
        return is_self(self.self_index[block], len(self.ref_labels))

    def listed(self, block: slice = slice(None)) -> Tensor | None:
        """bool (b, N): the references that are paired with a query; None where all are."""
        if self.pairs is None:
            return None
        mask = torch.zeros(len(self.labels), len(self.ref_labels), dtype=torch.bool, device=self.labels.device)
        query, positive = self.pairs[:2]
        against, negative = self.pairs[-2:] if len(self.pairs) == 4 else (query, self.pairs[2])
        mask[query, positive] = mask[against, negative] = True
        return mask[block]

    def split_pairs(self, block: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """bool (b, N) twice: the fine positives of every query, itself apart, and its negatives."""
        same = self.labels[block, -1, None] == self.ref_labels[None, :, -1]
        positive, negative, listed = same & ~self.is_self(block), ~same, self.listed(block)
        return (positive, negative) if listed is None else (positive & listed, negative & listed)

    def to_level(self, level: int) -> LossBatch:
        """The batch with the first `level` columns of its labels."""
        return self._replace(labels=self.labels[:, :level], ref_labels=self.ref_labels[:, :level])

    def arguments(self) -> tuple[Any, ...]:
        """What a loss is called with to get this batch."""
        among_themselves = self.ref_embeddings is self.embeddings
        if self.pairs is not None:
            references = () if among_themselves else (self.ref_embeddings, self.ref_labels)
            return (self.embeddings, self.labels, self.pairs, *references)
        if among_themselves:
            return (self.embeddings, self.labels)
        return (self.embeddings, self.labels, self.ref_embeddings, self.ref_labels, self.self_index)


class BatchLoss(nn.Module):
    """A loss of a batch: `compute(batch)` -> scalar; embeddings that are not finite give a value that is not.

    `takes_pairs`: whether mined pairs have a meaning for it.
    """

    takes_pairs = True

    def compute(self, batch: LossBatch) -> Tensor:
        raise NotImplementedError

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | Indices | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        batch = as_batch(embeddings, labels, ref_embeddings, ref_labels, self_index)
        if batch.pairs is not None and not self.takes_pairs:
            raise ConfigError(
                f"{type(self).__name__} takes no mined pairs: it compares more than pairs of the batch",
                found="an indices_tuple",
                fix="call it without, or mine for a loss of pairs or a rank loss",
            )
        value = self.compute(batch)
        # A comparison with NaN is false, so a loss of comparisons could be finite where its gradient is not. Zero times a sum
        # of the vectors is 0, or NaN where one of them is not finite, and the host need not wait for the device to know.
        vectors = (batch.embeddings,) if batch.ref_embeddings is batch.embeddings else batch[0:3:2]
        for each in vectors:
            value = value + each.detach().sum(dtype=torch.float32).mul(0)
        return value


def is_self(self_index: Tensor, references: int) -> Tensor:
    """bool (b, N): whether a reference is the query itself, from the index of the latter (b,), −1 for none."""
    return torch.arange(references, device=self_index.device) == self_index[:, None]


def as_batch(
    embeddings: Tensor,
    labels: Tensor,
    third: Tensor | Indices | None = None,
    fourth: Tensor | None = None,
    fifth: Tensor | None = None,
) -> LossBatch:
    """The batch of a loss's arguments, in hbench's order or pytorch-metric-learning's. Raises ConfigError for what does not fit.

    Without references the batch is ranked among itself, where every query is its own reference.
    """
    pairs, refs, ref_labels, self_index = _sorted_out(third, fourth, fifth)
    labels = _two_dimensional(labels, embeddings, "labels", "embeddings")
    if refs is None and ref_labels is None:
        everyone = torch.arange(len(labels), device=labels.device)
        return LossBatch(embeddings, labels, embeddings, labels, everyone, pairs)
    if refs is None or ref_labels is None:
        given, absent = ("ref_embeddings", "ref_labels") if ref_labels is None else ("ref_labels", "ref_embeddings")
        raise ConfigError(f"the loss got {given} without {absent}", expected="both, or neither", fix=f"pass {absent}")
    ref_labels = _two_dimensional(ref_labels, refs, "ref_labels", "ref_embeddings")
    if ref_labels.shape[1] != labels.shape[1] or refs.shape[1:] != embeddings.shape[1:]:
        raise ConfigError(
            "the references are of another kind than the batch",
            expected=f"dimension {embeddings.shape[-1]}, {labels.shape[1]} levels",
            found=f"dimension {refs.shape[-1]}, {ref_labels.shape[1]} levels",
        )
    none = torch.full((len(labels),), -1, device=labels.device)
    return LossBatch(embeddings, labels, refs, ref_labels, none if self_index is None else self_index, pairs)


def _sorted_out(third: Any, fourth: Any, fifth: Any) -> tuple[Indices | None, Any, Any, Any]:
    """(pairs, references, their labels, self_index): a third argument of indices, or of None, is pytorch-metric-learning's."""
    if isinstance(third, tuple | list) and len(third) in {3, 4}:
        return tuple(third), fourth, fifth, None
    if isinstance(third, tuple | list):
        raise ConfigError(
            "these are no mined pairs", expected="3 or 4 tensors of indices", found=f"{len(third)} of them"
        )
    if third is None and fourth is not None and fourth.is_floating_point():
        return None, fourth, fifth, None
    return None, third, fourth, fifth


def _two_dimensional(labels: Tensor, vectors: Tensor, what: str, of: str) -> Tensor:
    """Labels (B, L); those of one level may be (B,)."""
    wide = labels[:, None] if labels.ndim == 1 else labels
    if wide.ndim != 2 or len(wide) != len(vectors):
        raise ConfigError(
            f"the {what} do not fit the {of}",
            expected=f"{what} ({len(vectors)}, L), coarse to fine",
            found=f"{what} {tuple(labels.shape)}",
        )
    return wide
