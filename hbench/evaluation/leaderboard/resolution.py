"""Says which rows of a leaderboard can be told apart: how far two methods' scores may differ by chance on a test like this.

The classes of a test are a sample, so the difference of two methods depends on which they are. It varies by τ from class to class,
and by σ from query to query of one class: on C classes of n queries each its 95 % interval is ± 1.96 √((τ² + σ²/n)/C). Papers print
no values by query, so τ and σ are those of runs whose values are shipped (leaderboards/glyphs-study.parquet): their medians over
all pairs of losses that were trained alike. It is a rule of thumb; `hbench compare` computes the interval of two reports.

>>> round(typical_difference("R@1", classes=100, queries=5924), 2)  # points, on CUB-200-2011
1.32
"""

import math

from hbench.datasets import specs
from hbench.evaluation.leaderboard import Leaderboard

VARIATION = {  # metric: τ and σ of the difference of two trained nets
    "H-AP": (0.0326, 0.1624), "ASI": (0.0300, 0.0788), "NDCG": (0.0086, 0.0374), "AP": (0.0537, 0.3106), "R@1": (0.0666, 0.0843),
}  # fmt: skip
QUANTILE = 1.959963984540054  # .975 of the normal distribution


def typical_difference(metric: str, *, classes: int, queries: int) -> float | None:
    """Return the half-width, in points, of the 95 % interval of a typical difference on a test of this many classes and queries;
    None for a metric whose variation is not known."""
    if metric not in VARIATION:
        return None
    tau, sigma = VARIATION[metric]
    return 100 * QUANTILE * math.sqrt((tau**2 + sigma**2 * classes / queries) / classes)


def resolution(board: Leaderboard, metric: str) -> float | None:
    """Return the typical difference, in points, on a leaderboard's dataset; None if the metric, or the test's size, is unknown."""
    counts = specs[board.dataset].counts.get("test", {}) if board.dataset in specs else {}
    queries = counts.get("queries", counts.get("images"))
    classes = counts.get(board.levels[-1]) if board.levels else None
    return typical_difference(metric, classes=classes, queries=queries) if classes and queries else None
