"""A cross-batch memory is a queue of the embeddings of past batches, which a loss ranks besides the batch (Wang et al. 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hbench.errors import ConfigError


class CrossBatchMemory(nn.Module):
    """(w_b · loss(batch) + w_m · loss(batch, memory)) / (w_b + w_m), once `warm_up` batches have passed; before, loss(batch).

    The memory holds the last `size` embeddings without gradient, the batch itself among them; a query is told which of
    them it is, so that it never ranks itself. A full queue drops its oldest entries. `loss` must take references.
    """

    embeddings: Tensor
    labels: Tensor
    stored: Tensor
    batches: Tensor

    def __init__(
        self, loss: nn.Module, size: int, *, warm_up: int = 0, batch_weight: float = 1.0, memory_weight: float = 1.0
    ) -> None:
        super().__init__()
        if size < 1 or warm_up < 0 or min(batch_weight, memory_weight) < 0 or batch_weight + memory_weight == 0:
            raise ConfigError(
                "the memory's settings do not fit",
                expected="size ≥ 1, warm_up ≥ 0, weights ≥ 0 and not both 0",
                found=f"size {size}, warm_up {warm_up}, weights {batch_weight:g} and {memory_weight:g}",
            )
        self.loss, self.size, self.warm_up = loss, size, warm_up
        self.batch_weight, self.memory_weight = batch_weight, memory_weight
        self.register_buffer("embeddings", torch.empty(0, 0))
        self.register_buffer("labels", torch.empty(0, 0, dtype=torch.int64))
        self.register_buffer("stored", torch.zeros((), dtype=torch.int64))  # embeddings seen so far
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        place = self._enqueue(embeddings.detach(), labels)
        within: Tensor = self.loss(embeddings, labels)
        if int(self.batches) <= self.warm_up:
            return within
        held = min(int(self.stored), self.size)
        across: Tensor = self.loss(embeddings, labels, self.embeddings[:held], self.labels[:held], place)
        return (self.batch_weight * within + self.memory_weight * across) / (self.batch_weight + self.memory_weight)

    def _enqueue(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Store the batch over the oldest entries, and say where: int64 (B,), −1 for what did not fit."""
        if self.embeddings.shape[0] == 0:
            self.embeddings = embeddings.new_zeros(self.size, embeddings.shape[1])
            self.labels = labels.new_zeros(self.size, labels.shape[1])
        kept = min(len(labels), self.size)
        place = (int(self.stored) + torch.arange(kept, device=labels.device)) % self.size
        self.embeddings[place], self.labels[place] = embeddings[-kept:].to(self.embeddings), labels[-kept:]
        self.stored += kept
        self.batches += 1
        return torch.cat([place.new_full((len(labels) - kept,), -1), place])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        # The queue takes its width from the first batch, so a fresh module takes over the stored shapes.
        for name in ("embeddings", "labels"):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *rest)
