"""Estimates which rows of a leaderboard can be told apart: how far the scores of two methods may
differ by chance on its test.

The classes of a test are a sample, so the difference of two methods depends on which classes these
are. It varies with standard deviation τ between classes, and σ between the queries of one class.
Its 95 % interval is ± 1.96 √(τ²/C + σ²/N) for N queries of C effective classes. C is 1/Σ s², where
s is the share of each class in the queries, so that uneven classes count as fewer.

Papers print no per-query values. So τ and σ are taken from runs whose values are shipped
(leaderboards/glyphs-study.parquet), as medians over all pairs of losses that were trained alike.
This is a rule of thumb; `hbench compare` computes the interval for two reports.

>>> round(typical_difference("R@1", classes=100, queries=5924), 2)  # points, on CUB-200-2011
1.32
"""

import math
from pathlib import Path

from hbench.boards import Leaderboard
from hbench.datasets import folders
from hbench.datasets.dataset import TestSize, sizes_in

VARIATION = {  # by metric, τ and σ of the difference of two trained nets, as fractions
    "H-AP": (0.0326, 0.1624),
    "ASI": (0.0300, 0.0788),
    "NDCG": (0.0086, 0.0374),
    "AP": (0.0537, 0.3106),
    "R@1": (0.0666, 0.0843),
}
QUANTILE = 1.959963984540054  # .975 of the normal distribution
# the sizes of tests that are drawn by hbench itself and need not be built
SIZES = {"glyphs": TestSize(queries=11_164, effective_classes=846.6)}


def typical_difference(metric: str, *, classes: float, queries: int) -> float | None:
    """Return half the width, in points, of the 95 % interval of the difference of two methods.
    None for a metric whose variation is not known.

    `classes` is the effective number of the test's classes, in which uneven classes count as fewer.
    `queries` is the number of queries.
    """
    if metric not in VARIATION:
        return None
    # the standard deviations of the difference, as fractions: between classes, and within a class
    tau, sigma = VARIATION[metric]
    # a mean over many classes or queries varies less; QUANTILE is 1.96, of the normal distribution
    return 100 * QUANTILE * math.sqrt(tau**2 / classes + sigma**2 / queries)


def resolution(board: Leaderboard, metric: str) -> float | None:
    """Return the difference, in points, by which two methods may differ by chance on a
    leaderboard's dataset. If the scores of two methods differ by less, they cannot be told apart.

    None if the variation of the metric is unknown, or if the size of the test is unknown, since the
    dataset is not built on this machine or has several tests. None also for a test without queries
    that have a positive: it has 0 effective classes (the number of equal classes that vary as much
    as its unequal ones).
    """
    # SIZES are those of datasets that need no build
    size = SIZES.get(board.dataset) or _built_size(board.dataset)
    if size is None or not size.effective_classes:
        return None
    return typical_difference(metric, classes=size.effective_classes, queries=size.queries)


def _built_size(name: str) -> TestSize | None:
    """Return the size of the only test of a dataset; None if the dataset is not built on this
    machine, or has several tests. `name` is the dataset's name in a leaderboard."""
    # the name may be anybody's: one that is a path would lead out of the folders of datasets
    if name != Path(name).name or name in {"", ".", ".."}:
        return None
    sizes = next(filter(None, map(sizes_in, folders(name))), {})
    return sizes.get("test") if len(sizes) == 1 else None
