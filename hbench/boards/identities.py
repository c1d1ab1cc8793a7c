"""Finds scores of a row that contradict each other, by relations that hold for every ranking.

R@k grows with k, and at a coarser level it is at least that of the finer level. P@1, MRR@1 and R@1
are equal. mAP@R sums a part of the terms of AP, so it is at most AP. wAP is the weighted mean of
the APs of the levels, so it is between them. Scores are printed rounded, so each may be off by half
a unit of its last digit.

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

FIRST = ("R@1", "P@1", "MRR@1")  # equal, since only the first item counts


def impossible(row: Row, levels: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for every two scores of a row that no ranking can have together.

    `levels` are those of the leaderboard, coarse to fine, if all levels are scored on one test. If
    they are not, `levels` is empty, and only relations at the finest level are checked.
    """
    # the endings of metrics' names by level, coarse to fine, such as /genus; the finest level has
    # none
    endings = [*(f"/{level}" for level in levels[:-1]), ""]
    # each helper yields a sentence if the scores break its relation, and nothing if one is missing
    for level in endings:
        yield from _falling_recalls(row, level)
        # mAP@R sums a part of the terms of AP
        yield from _below(row, higher=f"AP{level}", lower=f"mAP@R{level}")
    # FIRST are the metrics that only depend on the first item of a ranking. Their scores are equal,
    # so neither of two may be below the other.
    for one, other in pairwise(metric for metric in FIRST if metric in row.scores):
        yield from _below(row, higher=one, lower=other)
        yield from _below(row, higher=other, lower=one)
    # an item that shares the fine class with a query also shares the coarse one
    for coarse, fine in pairwise(endings):
        for metric in [metric for metric in row.scores if _is_recall(metric, fine)]:
            yield from _below(row, higher=metric.removesuffix(fine) + coarse, lower=metric)
    # wAP is a weighted mean of the APs
    yield from _between(row, [f"AP{level}" for level in endings])


def _falling_recalls(row: Row, level: str) -> Iterator[str]:
    """Yield a sentence for every two recalls of a level that fall with k, such as R@10 below R@1.
    `level` is "/NAME", or "" for the finest level."""
    metrics = [metric for metric in row.scores if _is_recall(metric, level)]
    metrics.sort(key=lambda metric: MetricName.parse(metric).cut or 0)
    for fewer, more in pairwise(metrics):
        yield from _below(row, more, fewer)


def _between(row: Row, aps: Sequence[str]) -> Iterator[str]:
    """Yield a sentence if wAP is not between the APs of all levels. `aps` are the names of these
    metrics. Nothing is yielded if the row lacks one of them."""
    if len(aps) < 2 or not all(metric in row.scores for metric in ("wAP", *aps)):
        return
    by_score = sorted(aps, key=lambda metric: row.scores[metric])
    yield from _below(row, "wAP", by_score[0])
    yield from _below(row, by_score[-1], "wAP")


def _below(row: Row, higher: str, lower: str) -> Iterator[str]:
    """Yield a sentence if the score of the metric `higher` is below that of `lower`, which no
    ranking gives. Yield nothing if the row lacks one of the two metrics, or if rounding can explain
    the difference: each score may be off by half a unit of its last printed digit."""
    scores = row.scores
    if higher not in scores or lower not in scores:
        return
    if scores[lower] - scores[higher] > _half(scores[lower]) + _half(scores[higher]):
        below = f"{higher} {scores[higher]} is below {lower} {scores[lower]}"
        yield f"{below}, which no ranking gives"


def _half(score: Decimal) -> Decimal:
    """Half a unit of a score's last printed digit, the largest error by rounding: 0.05 for 80.5."""
    # the exponent of a Decimal is minus the number of digits after the point
    return Decimal("0.5").scaleb(int(score.as_tuple().exponent))


def _is_recall(metric: str, level: str) -> bool:
    """Whether a metric is R@k of a level, which is "/NAME", or "" for the finest level. False for
    metrics that hbench does not know."""
    try:
        name = MetricName.parse(metric)
    except HBenchError:
        return False
    return name.base == "R" and name.cut is not None and name.level == (level[1:] or None)
