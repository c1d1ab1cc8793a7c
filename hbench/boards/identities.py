"""Tries on a row what holds for the scores of any ranking, and says which cells none can have.

R@k grows with k; at a coarser level it is at least the finer one's; P@1, MRR@1 and R@1 are equal;
mAP@R, which counts a part of what AP counts, is at most AP; wAP, their weighted mean, lies between
the APs of the levels. Scores are printed rounded: two may be off by half of their last digits.

>>> from hbench.boards import Paper
>>> paper = Paper(citation="Me", table="Tab. 1")
>>> swapped = Row(method="a", scores={"R@1": 80.5, "R@10": 79.4}, paper=paper)
>>> list(impossible(swapped, ()))
['R@10 79.4 is below R@1 80.5, which no ranking gives']
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise

from hbench.boards.rows import Row
from hbench.core.errors import HBenchError
from hbench.metrics.names import MetricName

FIRST = ("R@1", "P@1", "MRR@1")  # equal, since one item is looked at


def impossible(row: Row, levels: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for every two scores of a row that no ranking has together. `levels`: those
    of its leaderboard, coarse to fine, if all are scored on one test; else none, and only what
    holds at the finest level is tried.
    """
    # what the names of metrics end in, coarse to fine; of the finest level they end in nothing
    endings = [*(f"/{level}" for level in levels[:-1]), ""]
    for level in endings:
        yield from _falling_recalls(row, level)  # R@k grows with k
        # mAP@R sums a part of what AP sums
        yield from _below(row, f"AP{level}", f"mAP@R{level}")
    # equal: neither is below the other
    for one, other in pairwise(metric for metric in FIRST if metric in row.scores):
        yield from _below(row, one, other)
        yield from _below(row, other, one)
    # who shares the fine class shares the coarse one
    for coarse, fine in pairwise(endings):
        for metric in [metric for metric in row.scores if _is_recall(metric, fine)]:
            yield from _below(row, metric.removesuffix(fine) + coarse, metric)
    # wAP is their weighted mean
    yield from _between(row, [f"AP{level}" for level in endings])


def _falling_recalls(row: Row, level: str) -> Iterator[str]:
    """Yield a sentence for every two recalls of a level that fall though more items are looked at,
    such as R@10 below R@1. `level`: "/NAME", or "" for the finest."""
    metrics = [metric for metric in row.scores if _is_recall(metric, level)]
    metrics.sort(key=lambda metric: MetricName.parse(metric).cut or 0)
    for fewer, more in pairwise(metrics):
        yield from _below(row, more, fewer)


def _between(row: Row, aps: Sequence[str]) -> Iterator[str]:
    """Yield a sentence where wAP, the weighted mean of the APs of all levels, lies outside of them;
    `aps`: the names of these metrics. If the row lacks one of them, nothing can be said."""
    if len(aps) < 2 or not all(metric in row.scores for metric in ("wAP", *aps)):
        return
    by_score = sorted(aps, key=lambda metric: row.scores[metric])
    yield from _below(row, "wAP", by_score[0])
    yield from _below(row, by_score[-1], "wAP")


def _below(row: Row, higher: str, lower: str) -> Iterator[str]:
    """Yield a sentence if the score of `higher` is below that of `lower` by more than rounding may
    explain: half of the last printed digit of each. For these two metrics no ranking gives that."""
    scores = row.scores
    if higher not in scores or lower not in scores:
        return
    if scores[lower] - scores[higher] > _half(scores[lower]) + _half(scores[higher]):
        below = f"{higher} {scores[higher]} is below {lower} {scores[lower]}"
        yield f"{below}, which no ranking gives"


def _half(score: Decimal) -> Decimal:
    """Half of a unit of a score's last printed digit, which rounding may have moved it by: 0.05 of
    80.5. Its exponent is minus the number of digits behind the point."""
    return Decimal("0.5").scaleb(int(score.as_tuple().exponent))


def _is_recall(metric: str, level: str) -> bool:
    """Whether a metric is R@k of a level, "/NAME" or, of the finest, ""; metrics that hbench does
    not know are none."""
    try:
        name = MetricName.parse(metric)
    except HBenchError:
        return False
    return name.base == "R" and name.cut is not None and name.level == (level[1:] or None)
