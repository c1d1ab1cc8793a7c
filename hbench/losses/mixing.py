"""Mixing makes virtual positives: SiMix mixes the embeddings of a class, positive mixing the scores of a query's positives.

Every pair of one class or list gives one virtual item α·first + (1 − α)·second, α uniform on [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hbench.losses.blocks import full_precision

Draw = Callable[[int], Tensor]  # how many -> α of every pair, in the order of (first, second)


def uniform(number: int) -> Tensor:
    """α ~ U[0, 1] from torch's generator."""
    return torch.rand(number)


class SiMix(nn.Module):
    """A loss on the batch and its virtual embeddings, not renormalised, as queries and as items (Patel et al. 2022, §3.3)."""

    def __init__(self, loss: nn.Module, draw: Draw = uniform) -> None:
        super().__init__()
        self.loss, self.draw = loss, draw

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        (embeddings,) = full_precision(embeddings)
        first, second = (labels[:, None, -1] == labels[None, :, -1]).triu(1).nonzero(as_tuple=True)
        share = self.draw(len(first)).to(embeddings)[:, None]
        virtual = share * embeddings[first] + (1 - share) * embeddings[second]
        if self_index is not None:
            self_index = torch.cat([self_index, self_index.new_full((len(first),), -1)])
        result: Tensor = self.loss(
            torch.cat([embeddings, virtual]), torch.cat([labels, labels[first]]), ref_embeddings, ref_labels, self_index
        )
        return result


def mix_positives(draw: Draw = uniform) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    """Columns of mixed scores of every pair of a query's fine positives, themselves fine positives ([T]'s released code)."""

    def add(scores: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        fine = levels == depth
        query, first, second = (fine[:, :, None] & fine[:, None, :]).triu(1).nonzero(as_tuple=True)
        share = draw(len(query)).to(scores)
        mixed = share * scores[query, first] + (1 - share) * scores[query, second]
        number = torch.bincount(query, minlength=len(scores))
        column = torch.arange(len(query), device=query.device) - (number.cumsum(0) - number)[query]
        width = int(number.max()) if len(query) else 0
        extra = scores.new_zeros(len(scores), width).index_put((query, column), mixed)
        outside = levels.new_full((len(scores), width), depth + 1).index_put((query, column), levels.new_tensor(depth))
        return torch.cat([scores, extra], dim=1), torch.cat([levels, outside], dim=1)

    return add
