"""The table of rank losses: each is one score, one family of steps and one relevance; a line adds a loss.

name -> (score, steps, relevance)        ([T] §III–V, [E] §3.2, losses of the same name in the papers)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from hbench.errors import ConfigError
from hbench.losses import scores
from hbench.losses.entries import LossEntry, chosen, parameters_of
from hbench.losses.mixing import SiMix, mix_positives
from hbench.losses.ranking import RankLoss
from hbench.losses.ranks import Steps
from hbench.losses.scores import Score
from hbench.losses.splits import split_by_level, split_by_relevance
from hbench.losses.surrogates import LowerBound, Sigmoid, Step, SupRank
from hbench.relevance import Relevance, exponential, relevances


class RankRow(NamedTuple):
    """Factories of the three parts, whose arguments are the loss's parameters, and the loss's formula and paper."""

    score: Callable[..., Score]
    steps: Callable[..., Steps]
    relevance: Callable[..., Relevance]
    formula: str
    paper: str
    module: Callable[..., nn.Module]


def smooth(tau: float = 0.01) -> Steps:
    """ς everywhere."""
    sigmoid = Sigmoid(tau)
    return Steps(sigmoid, sigmoid, sigmoid, sigmoid)


def suprank(
    tau: float = 0.01, rho: float = 100.0, delta: float = 0.05, offset: float | None = None, start: float = 0.5
) -> Steps:
    """S for less relevant items, exact for the others and in H-rank."""
    return Steps(SupRank(tau, rho, delta, offset, start), None, None, None)


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
) -> Steps:
    """suprank, with H-rank exact or, for more relevant items, the piece-wise linear lower bound (h_rank="linear")."""
    above: dict[str, Step | None] = {"exact": None, "linear": LowerBound(beta, gamma, leak)}
    if h_rank not in above:
        raise ConfigError(f"there is no H-rank step {h_rank!r}", expected=" or ".join(above), found=h_rank)
    return suprank(tau, rho, delta, offset, start)._replace(above=above[h_rank])


def exact() -> Steps:
    """The exact step everywhere: the metric itself, without a gradient."""
    return Steps(None, None, None, None)


def fine_label() -> Relevance:
    """1 for the fine level, 0 for the others."""

    def relevance(counts: Tensor) -> Tensor:
        return (counts.new_ones(counts.shape).cumsum(-1) == counts.shape[-1]).to(counts)

    return relevance


def graded(
    relevance: str | Relevance = "alpha", alpha: float = 1.0, weights: Sequence[float] | None = None
) -> Relevance:
    """A registered relevance by name, with α or with weights per level, coarse to fine, where it takes them; or a function."""
    if callable(relevance):
        return relevance
    factory = relevances[relevance]
    offered = {"exponent": alpha, "weights": weights, "values": weights}
    return factory(
        **{name: offered[name] for name in inspect.signature(factory).parameters if offered.get(name) is not None}
    )


def h_ap() -> Score:
    """H-AP, or AP where the relevance is the fine label."""
    return scores.h_ap


def ndcg() -> Score:
    """NDCG."""
    return scores.ndcg()


def recall(at: Sequence[int] = (1, 2, 4, 8, 16), temperature: float | None = 1.0) -> Score:
    """Recall at every k of `at`, averaged, with a sigmoid of that temperature for its outer step."""
    return scores.recall(at, temperature, clip=False)


def clipped_recall(at: Sequence[int] = (1, 2, 4, 8, 16), temperature: float | None = 1.0) -> Score:
    """recall with each sum of positives clipped at k."""
    return scores.recall(at, temperature, clip=True)


def rank_loss(
    score: Score, steps: Steps, relevance: Relevance, released: bool = False, mix_scores: bool = False
) -> nn.Module:
    """released: the query is a fine positive of its own list, and levels, not relevances, say what is less relevant."""
    return RankLoss(
        score,
        steps,
        relevance,
        split=split_by_level if released else split_by_relevance,
        own_level=(lambda depth: depth) if released else (lambda depth: depth + 1),
        extra=mix_positives() if mix_scores else None,
    )


def recall_at_k(
    score: Score, steps: Steps, relevance: Relevance, released: bool = False, simix: bool = False
) -> nn.Module:
    """released: the query stays in its own list, as an item that is no positive."""
    loss = RankLoss(score, steps, relevance, own_level=(lambda depth: 0) if released else (lambda depth: depth + 1))
    return SiMix(loss) if simix else loss


AP, H_AP = "1/|Ω⁺| Σ_Ω⁺ rank⁺(k)/rank(k)", "Σ_Ω⁺ H-rank(k)/rank(k) / Σ_Ω⁺ rel(k)"
NDCG, RECALL = "Σ (2^l(k) − 1)/log2(1 + rank(k)) / ideal", "mean_K Σ_Ω⁺ σ((K − rank(k))/temperature)/min(K, |Ω⁺|)"
SMOOTH, SUP = "step σ(t/τ)", "step S(t) for less relevant items"
T, E, N = "Rank losses (TPAMI 2024)", "HAPPIER (ECCV 2022)", "ROADMAP (NeurIPS 2021)"

RANK_LOSSES: dict[str, RankRow] = {
    "smooth_ap": RankRow(h_ap, smooth, fine_label, f"1 − {AP}, {SMOOTH}", "Brown et al., ECCV 2020", rank_loss),
    "sup_ap": RankRow(h_ap, suprank, fine_label, f"1 − {AP}, {SUP}", f"{N} Eq. 5", rank_loss),
    "smooth_hap": RankRow(h_ap, smooth, graded, f"1 − {H_AP}, {SMOOTH}", f"{T} Tab. II", rank_loss),
    "sup_hap": RankRow(h_ap, suprank_with_h_rank, graded, f"1 − {H_AP}, {SUP}", f"{E} §3.2", rank_loss),
    "smooth_ndcg": RankRow(ndcg, smooth, exponential, f"1 − {NDCG}, {SMOOTH}", f"{T} §V-B", rank_loss),
    "sup_ndcg": RankRow(ndcg, suprank, exponential, f"1 − {NDCG}, {SUP}", f"{T} Eq. 24", rank_loss),
    "smooth_recall": RankRow(recall, smooth, fine_label, f"1 − {RECALL}, {SMOOTH}", f"{T} Eq. 16", rank_loss),
    "sup_recall": RankRow(recall, suprank, fine_label, f"1 − {RECALL}, {SUP}", f"{T} Eq. 17", rank_loss),
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
    """The entry of a row: its parameters are those of its parts and of its module."""
    parts = (row.score, row.steps, row.relevance)
    options = dict(list(parameters_of(row.module).items())[len(parts) :])
    parameters = parameters_of(*parts) | options

    def build(given: Mapping[str, Any]) -> nn.Module:
        score, steps, relevance = (part(**chosen(part, given)) for part in parts)
        return row.module(score, steps, relevance, **{name: given[name] for name in options})

    return LossEntry(build, row.formula, row.paper, parameters)
