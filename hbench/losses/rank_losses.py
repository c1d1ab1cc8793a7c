"""Defines the rank losses in the table RANK_LOSSES. A rank loss is 1 − score(ranks), averaged over
the queries that have positives.

    loss = score × step for less relevant items × step for the others × relevance

A query is not in its own list, unless `released=True`, which follows the papers' code.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError
from hbench.losses import cpu_lists, rank_scores, rank_sums
from hbench.losses.batch_loss import BatchLoss, LossBatch
from hbench.losses.batch_loss.block_sums import sum_over_blocks
from hbench.losses.entry import LossEntry, chosen, parameters_of
from hbench.losses.rank_scores import RankEstimates, Score
from hbench.losses.rank_sums import (
    RankSteps,
    RelevanceSplit,
    shared_levels,
    split_by_level,
    split_by_relevance,
)
from hbench.losses.steps import LowerBound, Sigmoid, Step, SupRank
from hbench.losses.wrappers import SiMix, mix_positives
from hbench.metrics.relevance import Relevance, exponential, relevances

# scores (Q, N), levels (Q, N), depth -> scores and levels with columns added
Extra = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


class RankLoss(BatchLoss):
    """The mean of 1 − score over the queries with positives; 0, with gradient 0, for a batch
    without positives.

    Embeddings are not normalised here. With mined pairs, a query's list has only the references
    that are paired with the query.
    """

    takes_partial = True

    def __init__(
        self,
        score: Score,
        steps: RankSteps,
        relevance: Relevance,
        *,
        split: Callable[[Tensor], RelevanceSplit] = split_by_relevance,
        own_level: Callable[[int], int] = lambda depth: depth + 1,
        extra: Extra | None = None,
    ) -> None:
        """Combine the parts of a loss.

        Args:
            score: computes the score of each query from ranks.
            steps: the surrogates of the step function in the sums of rank and H-rank; None stands
                for the exact step.
            relevance: computes the relevance of each level.
            split: maps the relevance of each level, (Q, L+1), to flags (Q, L+1, L+1), which tell
                for a positive of each level which levels are less, and which are more relevant.
            own_level: maps the depth L to the level that a query has in its own list; L + 1 leaves
                the query out of the list.
            extra: maps scores (Q, N), levels (Q, N) and L to scores and levels with columns added;
                None for no added columns.
        """
        super().__init__()
        self.score = score
        self.steps = steps
        self.relevance = relevance
        self.split = split
        self.own_level = own_level
        self.extra = extra

    def compute(self, batch: LossBatch) -> Tensor:
        """The mean of 1 − score over the queries that have a positive, block by block."""
        defined = torch.zeros((), dtype=torch.int64, device=batch.labels.device)

        def missing(scores: Tensor, block: slice) -> Tensor:
            """The sum of 1 − score over the queries of a block that have a positive, from their
            scores (b, N). Adds the number of these queries to `defined`."""
            values, counted = self.per_list(
                scores, self.levels(batch, block), batch.labels.shape[1]
            )
            defined.add_(counted.sum())
            return ((1 - values) * counted).sum()

        total = sum_over_blocks(missing, batch.embeddings, batch.ref_embeddings)
        return total / defined.clamp(min=1)  # clamp: 0, not NaN, for a batch without positives

    def levels(self, batch: LossBatch, block: slice) -> Tensor:
        """The levels (Q, N) of all items for a block of Q queries. Items outside of a query's list
        have level L + 1.
        """
        depth = batch.labels.shape[1]
        listed = batch.listed(block)
        levels = shared_levels(batch.labels[block], batch.ref_labels)
        if listed is not None:  # with mined pairs or partial labels, lists lack some references
            levels = levels.masked_fill_(~listed, depth + 1)
        # by default the query itself is outside of its list, too; in the papers' released code it
        # is a positive or a distractor
        return levels.masked_fill_(batch.is_self(block), self.own_level(depth))

    def per_list(self, scores: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The score of each query (Q,), and whether it has positives (Q,). `scores`, `levels`
        (Q, N): of its items; levels are 0 … `depth`, or depth + 1 outside of the query's list."""
        # some losses add columns to their lists, such as the mixed positives of SupRank's code
        if self.extra is not None:
            scores, levels = self.extra(scores, levels, depth)
        lists = cpu_lists.make_lists(scores, levels, depth)
        table = rank_sums.relevance_table(lists.counts, self.relevance)  # (Q, L+1)
        positives = lists.find_positives(table)
        # which levels are less, and which are more relevant than that of a positive
        split = self.split(table)
        arguments = lists, positives, split, self.steps
        # computing H-rank takes as long as computing the rank, and only H-AP needs it
        h_rank = rank_sums.h_ranks(*arguments) if self.score is rank_scores.h_ap else None
        score = self.score(RankEstimates(lists, positives, rank_sums.ranks(*arguments), h_rank))
        return score, (lists.counts * table).sum(1) > 0


class RankRow(NamedTuple):
    """A row of the table: factories of the three parts of a loss, formula, paper, and the function
    (`module`) that makes the loss of its parts. The arguments of all functions are the loss's
    parameters.
    """

    score: Callable[..., Score]
    steps: Callable[..., RankSteps]
    relevance: Callable[..., Relevance]
    formula: str
    paper: str
    module: Callable[..., nn.Module]


def smooth(tau: float = 0.01) -> RankSteps:
    """Replace every step by a sigmoid of temperature `tau` (Brown et al. 2020)."""
    sigmoid = Sigmoid(tau)
    return RankSteps(less=sigmoid, others=sigmoid, above=sigmoid, within=sigmoid)


def suprank(
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    offset: float | None = None,
    start: float = 0.5,
) -> RankSteps:
    """The steps of SupRank. In the rank, less relevant items have the surrogate S, and the others
    the exact step (None). In H-rank all items have the exact step: more relevant ones (`above`) and
    equally relevant ones (`within`).

    S(t), for a difference of scores t, is σ(t/τ), plus `start` for t ≥ 0. Above δ (`delta`) it is a
    line of slope `rho`, which begins there at `offset` (None: σ(δ/τ) + ½).
    """
    surrogate = SupRank(tau, rho, delta, offset, start)
    return RankSteps(less=surrogate, others=None, above=None, within=None)


def suprank_with_h_rank(
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    offset: float | None = None,
    start: float = 0.5,
    *,
    h_rank: str = "exact",
    beta: float = 25.0,
    gamma: float = 0.5,
    leak: float = 10.0,
) -> RankSteps:
    """The steps of `suprank`, which gets the first five parameters, with another step for more
    relevant items in H-rank: the exact step, or, for h_rank="linear", a piece-wise linear lower
    bound of the exact step: `leak`·t for t ≤ 0, and min(`beta`·t + `gamma`, 1) for t > 0."""
    # the step for more relevant items in H-rank; None is the exact step
    above: dict[str, Step | None] = {"exact": None, "linear": LowerBound(beta, gamma, leak)}
    if h_rank not in above:
        raise ConfigError("h_rank is unknown", expected=" or ".join(above), found=repr(h_rank))
    return suprank(tau, rho, delta, offset, start)._replace(above=above[h_rank])


def fine_label() -> Relevance:
    """Make the relevance that is 1 for the finest level and 0 for all others."""

    def relevance(counts: Tensor) -> Tensor:
        """The relevance of each level in each list, (Q, L+1): 1 in the last column, 0 elsewhere.
        Of `counts` (Q, L+1), only shape, dtype and device are used."""
        # the cumulative sum of ones numbers the columns 1 … L+1; the last one is the finest level
        return (counts.new_ones(counts.shape).cumsum(-1) == counts.shape[-1]).to(counts)

    return relevance


def graded(
    relevance: str | Relevance = "alpha", alpha: float = 1.0, weights: Sequence[float] | None = None
) -> Relevance:
    """Make the relevance with this name, with the exponent `alpha` or the `weights` of the levels,
    coarse to fine, if it has such parameters. A function is returned unchanged.
    """
    if callable(relevance):
        return relevance
    factory = relevances[relevance]
    # `chosen` selects the parameters that the factory has
    offered: dict[str, Any] = {"exponent": alpha}
    if weights is not None:
        # the parameter is called weights by some relevances, and values by others
        offered |= {"weights": weights, "values": weights}
    return factory(**chosen(factory, offered))


def h_ap() -> Score:
    """Score by H-AP, which is AP if the relevance is that of `fine_label`."""
    return rank_scores.h_ap


def ndcg() -> Score:
    """Score by NDCG."""
    return rank_scores.ndcg()


def recall(at: Sequence[int] = (1, 2, 4, 8, 16), temperature: float = 1.0) -> Score:
    """Score by the mean of the recall at each k in `at`. Whether a rank is at most k is replaced by
    a sigmoid with this temperature."""
    return rank_scores.recall(at, temperature, clip=False)


def clipped_recall(at: Sequence[int] = (1, 2, 4, 8, 16), temperature: float = 1.0) -> Score:
    """Like `recall`, but the sum of positives among the first k is clipped at k."""
    return rank_scores.recall(at, temperature, clip=True)


def rank_loss(
    score: Score,
    steps: RankSteps,
    relevance: Relevance,
    released: bool = False,
    mix_scores: bool = False,
) -> nn.Module:
    """Make a rank loss from its three parts.

    `released` follows the papers' released code, in which a query is a positive of the finest level
    in its own list, and items are compared by level instead of by relevance. `mix_scores` also
    ranks mixtures of positives.
    """
    split = split_by_level if released else split_by_relevance
    extra = mix_positives() if mix_scores else None
    # The level that a query has in its own list: L, the finest one, or L + 1. Items of level L + 1
    # are outside of the list, so the query is not ranked then.
    own_level = (lambda depth: depth) if released else (lambda depth: depth + 1)
    return RankLoss(score, steps, relevance, split=split, own_level=own_level, extra=extra)


def recall_at_k(
    score: Score,
    steps: RankSteps,
    relevance: Relevance,
    released: bool = False,
    simix: bool = False,
) -> nn.Module:
    """Make the loss recall_at_k from its three parts.

    `released` follows the paper's released code, in which a query is a distractor of its own list.
    `simix` also mixes embeddings of the same class.
    """
    # the level that a query has in its own list: 0 makes it a distractor, L + 1 leaves it out
    own_level = (lambda depth: 0) if released else (lambda depth: depth + 1)
    loss = RankLoss(score, steps, relevance, own_level=own_level)
    return SiMix(loss) if simix else loss


AP = "1/|Ω⁺| Σ_Ω⁺ rank⁺(k)/rank(k)"
H_AP = "Σ_Ω⁺ H-rank(k)/rank(k) / Σ_Ω⁺ rel(k)"
NDCG = "Σ (2^l(k) − 1)/log2(1 + rank(k)) / ideal"
RECALL = "mean_K Σ_Ω⁺ σ((K − rank(k))/temperature)/min(K, |Ω⁺|)"
SMOOTH = "step σ(t/τ)"
SUP = "step S(t) for less relevant items"
T = "Rank losses (TPAMI 2025)"
E = "HAPPIER (ECCV 2022)"
N = "ROADMAP (NeurIPS 2021)"

RANK_LOSSES: dict[str, RankRow] = {
    "smooth_ap": RankRow(
        h_ap, smooth, fine_label, f"1 − {AP}, {SMOOTH}", "Brown et al., ECCV 2020", rank_loss
    ),
    "sup_ap": RankRow(h_ap, suprank, fine_label, f"1 − {AP}, {SUP}", f"{N} Eq. 5", rank_loss),
    "smooth_hap": RankRow(h_ap, smooth, graded, f"1 − {H_AP}, {SMOOTH}", f"{E} Tab. 5", rank_loss),
    "sup_hap": RankRow(
        h_ap, suprank_with_h_rank, graded, f"1 − {H_AP}, {SUP}", f"{E} §3.2", rank_loss
    ),
    "smooth_ndcg": RankRow(
        ndcg, smooth, exponential, f"1 − {NDCG}, {SMOOTH}", f"{T} §V-B", rank_loss
    ),
    "sup_ndcg": RankRow(ndcg, suprank, exponential, f"1 − {NDCG}, {SUP}", f"{T} Eq. 24", rank_loss),
    "smooth_recall": RankRow(
        recall, smooth, fine_label, f"1 − {RECALL}, {SMOOTH}", f"{T} Eq. 16", rank_loss
    ),
    "sup_recall": RankRow(
        recall, suprank, fine_label, f"1 − {RECALL}, {SUP}", f"{T} Eq. 17", rank_loss
    ),
    "recall_at_k": RankRow(
        clipped_recall,
        smooth,
        fine_label,
        f"1 − {RECALL}, sums clipped at K, {SMOOTH}",
        "Patel et al., CVPR 2022",
        recall_at_k,
    ),
}


def rank_entry(row: RankRow) -> LossEntry:
    """Make the entry of a row of RANK_LOSSES. The parameters of the loss are those of the row's
    three parts, each a function, and of `row.module`, the function that joins the parts."""
    parts = (row.score, row.steps, row.relevance)
    # the module's first three parameters are the parts; the others, {name: default}, are parameters
    # of the loss
    options = dict(list(parameters_of(row.module).items())[len(parts) :])
    parameters = parameters_of(*parts) | options

    def build(params: Mapping[str, Any]) -> nn.Module:
        """Build the loss; each part gets those of the parameters that it has."""
        score, steps, relevance = (part(**chosen(part, params)) for part in parts)
        return row.module(score, steps, relevance, **{name: params[name] for name in options})

    return LossEntry(build, row.formula, row.paper, parameters)
