"""A rank loss is 1 − score(ranks), averaged over the queries that have positives; the table RANK_LOSSES is all of them.

    loss = score × step for less relevant items × step for the others × relevance        ([T] §III, [E] §3.2)

A query is never an item of its own list (`released=True` keeps it there, as the papers' code does).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from hbench.losses import kernel, ranks
from hbench.losses.blocks import sum_over_blocks
from hbench.losses.lists import Lists, find_positives, relevance_table, shared_levels
from hbench.losses.ranks import Path, Ranking, Steps
from hbench.losses.references import resolve_references
from hbench.losses.scores import Ranked, Score, h_ap, per_relevance
from hbench.losses.splits import Split, split_by_relevance
from hbench.losses.surrogates import Sigmoid, SupRank
from hbench.relevance import Relevance

Extra = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]  # scores, levels, depth -> the same with columns added


class RankLoss(nn.Module):
    """Mean over queries of 1 − score; queries without positives are left out, and a batch of such is 0 with gradient 0.

    forward: embeddings (B, D), taken as they are (normalise them first), labels int64 (B, L) coarse to fine, and optionally
    references (N, D) and their labels, of which `self_index` int64 (B,) is the query itself, −1 where it is not among them.
    """

    def __init__(
        self,
        score: Score,
        steps: Steps,
        relevance: Relevance,
        *,
        split: Callable[[Tensor], Split] = split_by_relevance,
        own_level: Callable[[int], int] = lambda depth: depth + 1,
        extra: Extra | None = None,
    ) -> None:
        super().__init__()
        self.score, self.steps, self.relevance = score, steps, relevance
        self.split, self.own_level, self.extra = split, own_level, extra

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        refs = resolve_references(embeddings, labels, ref_embeddings, ref_labels, self_index)
        defined = 0

        def missing(scores: Tensor, block: slice) -> Tensor:
            nonlocal defined
            values, counted = self.per_query(scores, labels[block], refs.labels, refs.self_index[block])
            defined += int(counted.sum())
            return ((1 - values) * counted).sum()

        total = sum_over_blocks(missing, embeddings, refs.embeddings)
        return total / max(1, defined)

    def per_query(
        self, scores: Tensor, labels: Tensor, ref_labels: Tensor, self_index: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The score of each query (Q,), and whether it has positives (Q,), from its row of scores (Q, N)."""
        depth = labels.shape[1]
        levels = path_of(scores).shared_levels(labels, ref_labels)
        query = (self_index >= 0).nonzero().squeeze(1)
        levels[query, self_index[query]] = self.own_level(depth)
        return self.per_list(scores, levels, depth)

    def per_list(self, scores: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """per_query, from the level (Q, N) of every item, L+1 for those outside the list."""
        if self.extra is not None:
            scores, levels = self.extra(scores, levels, depth)
        path = path_of(scores)
        lists = path.make_lists(scores, levels, depth)
        table = relevance_table(lists.counts, self.relevance)
        return self._scored(path, lists, table), (lists.counts * table).sum(1) > 0

    def _scored(self, path: Path, lists: Lists, table: Tensor) -> Tensor:
        split, less = self.split(table), self.steps.less
        only_less = less is not None and self.steps == Steps(less, None, None, None)
        if path.ratios and self.score is h_ap and only_less and isinstance(less, Sigmoid | SupRank):
            return per_relevance(path.ratios(lists, table, split, less), lists, table)
        positives = path.find_positives(lists, table)
        ranking = Ranking(lists, positives, split, path)
        h_rank = ranks.h_ranks(ranking, self.steps) if self.score is h_ap else None
        return self.score(Ranked(lists, positives, ranks.ranks(ranking, self.steps), h_rank))


def path_of(scores: Tensor) -> Path:
    """The CPU kernel for float32 scores on a CPU, the general path for everything else."""
    if kernel.usable(scores):
        return Path(
            kernel.shared_levels,
            kernel.make_lists,
            kernel.find_positives,
            kernel.exact_sums,
            kernel.step_sums,
            kernel.ratios,
        )
    return Path(shared_levels, ranks.make_lists, find_positives, ranks.exact_sums, ranks.step_sums)
