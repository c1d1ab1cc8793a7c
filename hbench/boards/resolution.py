"""Says which rows of a leaderboard can be told apart: how far two methods' scores may differ by
chance on a test like this.

The classes of a test are a sample, so the difference of two methods depends on which they are. It
varies by τ from class to class, and by σ from query to query of one class: its 95 % interval is ±
1.96 √(τ²/C + σ²/N) for N queries of C effective classes. These are 1/Σ s² of every class's share s
of the queries: uneven classes count as fewer. Papers print no values by query, so τ and σ are those
of runs whose values are shipped (leaderboards/glyphs-study.parquet): their medians over all pairs
of losses that were trained alike. It is a rule of thumb; `hbench compare` computes the interval of
two reports.

>>> round(typical_difference("R@1", classes=100, queries=5924), 2)  # points, on CUB-200-2011
1.32
"""

import math
from pathlib import Path

from hbench.boards import Leaderboard
from hbench.datasets import folders
from hbench.datasets.dataset import TestSize, sizes_in

VARIATION = {  # metric: τ and σ of the difference of two trained nets, as fractions
    "H-AP": (0.0326, 0.1624),
    "ASI": (0.0300, 0.0788),
    "NDCG": (0.0086, 0.0374),
    "AP": (0.0537, 0.3106),
    "R@1": (0.0666, 0.0843),
}
QUANTILE = 1.959963984540054  # .975 of the normal distribution
# of tests that are not built, but drawn
SIZES = {"glyphs": TestSize(queries=11_164, effective_classes=846.6)}


def typical_difference(metric: str, *, classes: float, queries: int) -> float | None:
    """Return the half-width, in points, of the 95 % interval of a typical difference on a test of
    so many effective classes and queries; None for a metric whose variation is not known."""
    if metric not in VARIATION:
        return None
    tau, sigma = VARIATION[metric]
    return 100 * QUANTILE * math.sqrt(tau**2 / classes + sigma**2 / queries)


def resolution(board: Leaderboard, metric: str) -> float | None:
    """Return the typical difference, in points, on a leaderboard's dataset: below it two methods'
    scores are not told apart.

    It is None if the metric's variation is unknown, or the sizes of the test's classes: where the
    dataset is not built here, or has several tests.
    """
    size = SIZES.get(board.dataset) or _built_size(board.dataset)
    if size is None or not size.effective_classes:
        return None
    return typical_difference(metric, classes=size.effective_classes, queries=size.queries)


def _built_size(name: str) -> TestSize | None:
    """Return the size of the only test of a dataset that is built on this machine; None where it is
    not, or has several. `name`: of the dataset, as a leaderboard says it."""
    if name != Path(name).name or name in {"", ".", ".."}:  # a path, which no dataset is called
        return None
    sizes = next(filter(None, map(sizes_in, folders(name))), {})
    return sizes.get("test") if len(sizes) == 1 else None
