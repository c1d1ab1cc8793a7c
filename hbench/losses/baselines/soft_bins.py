"""Computes AP over soft bins: evenly spaced values of similarity. Each score is shared between the
two nearest bins.

(Revaud et al., Learning with Average Precision: training image retrieval with a listwise loss.)
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.errors import ConfigError
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision
from hbench.losses.batch_loss.block_sums import sum_over_blocks

MOST_BINS = 10_000  # each bin takes a pass over all scores


class SoftBinAP(BatchLoss):
    """The mean over queries of 1 − Σ_m Prec(m) ΔRec(m), over bins m from the highest similarity
    down, with positives by the finest class.

    The share of a score s in bin m is h_m(s) = max(0, 1 − |s − b_m|/Δ), where b_m = upper − (m−1)Δ.
    Scores outside of [lower, upper] are in the first or last bin. Prec(m) = Σ_{m' ≤ m} positives /
    Σ_{m' ≤ m} items, and ΔRec(m) = positives in m / |P|.
    """

    takes_partial = True

    def __init__(
        self,
        bins: int = 20,
        lower: float = -1.0,
        upper: float = 1.0,
        *,
        normalise: bool = False,
        released: bool = False,
    ) -> None:
        """`bins`: the number of bins, whose middles are evenly spaced from `lower` to `upper`.
        `normalise`: whether embeddings are scaled to length 1. `released`: whether a query is in
        its own list, as in the released code."""
        super().__init__()
        if not 2 <= bins <= MOST_BINS or not lower < upper:
            found = f"bins {bins}, lower {lower:g}, upper {upper:g}"
            raise ConfigError(
                "the bins are invalid",
                expected=f"bins ≥ 2, at most {MOST_BINS:,}, and lower < upper",
                found=found,
            )
        self.bins = bins
        self.lower = lower
        self.upper = upper
        self.normalise = normalise
        self.released = released

    def compute(self, batch: LossBatch) -> Tensor:
        """The mean of 1 − AP over the queries that have a positive, with AP computed over bins."""
        defined = torch.zeros((), dtype=torch.int64, device=batch.labels.device)

        def missing(scores: Tensor, block: slice) -> Tensor:
            """The sum of 1 − AP over the queries of a block that have a positive, from their scores
            (b, N). Adds the number of these queries to `defined`."""
            # bool (b, N): the items in a query's list; with `released`, a query is in its own list
            present = ~batch.is_self(block) | self.released
            listed = batch.listed(block)
            if listed is not None:  # mined pairs, or partial labels
                present = present & listed
            positive = present & batch.same_class(block)
            counted = positive.any(1)
            defined.add_(counted.sum())
            return ((1 - self._ap(scores, present, positive)) * counted).sum()

        vectors = full_precision(batch.embeddings, batch.ref_embeddings)
        total = sum_over_blocks(
            missing, *(map(functional.normalize, vectors) if self.normalise else vectors)
        )
        return total / defined.clamp(min=1)  # clamp: 0, not NaN, for a batch without positives

    def _ap(self, scores: Tensor, present: Tensor, positive: Tensor) -> Tensor:
        """The AP over bins, (Q,), of scores (Q, N). `present`, `positive` bool (Q, N): which items
        are in a query's list, and which of them are positives."""
        # (Q,) for each bin: the sum of the shares of a query's items, and of its positives
        items = []
        hits = []
        for share in self._shares(scores):
            items.append((share * present).sum(1))
            hits.append((share * positive).sum(1))
        # (Q, bins), the highest scores first
        total = torch.stack(items, dim=1)
        positives = torch.stack(hits, dim=1)
        # tiny avoids a division by 0, before the first item and for a query without positives
        precision = positives.cumsum(1) / (total.cumsum(1) + torch.finfo(total.dtype).tiny)
        return (precision * positives).sum(1) / positives.sum(1).clamp(
            min=torch.finfo(total.dtype).tiny
        )

    def _shares(self, scores: Tensor) -> Iterator[Tensor]:
        """Yield the share (Q, N) of each item in each bin, from the bin of the highest scores down.
        The share is a triangle function of the score around the middle of the bin, so that it has
        a gradient."""
        # The triangle is the minimum of two lines, so that the subgradient at a score of exactly 1
        # is that of the released code. For a score s, the distance Δ = 1/slope between bins, and
        # the middle b = upper − bin_·Δ, `falling` is 1 − (s − b)/Δ, and `rising` 1 + (s − b)/Δ.
        # The first bin has all scores above its middle, and the last bin all scores below, so these
        # two have only one of the lines.
        slope = (self.bins - 1) / (self.upper - self.lower)
        one = torch.ones_like(scores)
        for bin_ in range(self.bins):
            falling = (
                one if bin_ == 0 else -slope * scores + (slope * self.lower + self.bins - bin_)
            )
            rising = (
                one
                if bin_ == self.bins - 1
                else slope * scores + (2 - self.bins + bin_ - slope * self.lower)
            )
            yield torch.minimum(falling, rising).clamp(min=0)


def fast_ap(bins: int = 10) -> nn.Module:
    """Make SoftBinAP of normalised vectors, over `bins` + 1 evenly spaced values of the squared
    distance 2 − 2s (Cakir et al. 2019). Raises ConfigError for less than 1 or too many.
    """
    if not 1 <= bins < MOST_BINS:
        raise ConfigError(
            "the bins are invalid",
            expected=f"bins ≥ 1, less than {MOST_BINS:,}",
            found=f"bins {bins}",
        )
    return SoftBinAP(bins + 1, normalise=True)
