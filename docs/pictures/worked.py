"""Draws docs/pictures/worked.png: two rankings, and what each rank adds to each metric. Run: python
docs/pictures/worked.py.

The summands are the formulas of docs/metrics.md on the example there; their sums are checked
against hbench's own values.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from hbench.look.palette import color_of, mark_of
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.names import MetricName

LEVELS = ("owl", "kind")
RANKINGS = {"model A": (2, 1, 2, 0, 1, 0), "model B": (2, 0, 2, 1, 1, 0)}  # levels of the results
WORDS = {2: "barn owl", 1: "other owl", 0: "teapot"}
GREY = "#555555"


def precision(least: int) -> Callable[[list[int]], list[float]]:
    """AP: precision at every positive, over the number of positives."""

    def summands(levels: list[int]) -> list[float]:
        positive = np.array(levels) >= least
        return list(
            np.where(positive, np.cumsum(positive) / (1 + np.arange(len(levels))), 0)
            / positive.sum()
        )

    return summands


def hierarchical(levels: list[int]) -> list[float]:
    """H-AP: H-rank over rank at every positive, over the sum of the relevances."""
    counts = {level: levels.count(level) for level in (1, 2)}
    relevance = np.array([level / 2 / counts[level] if level else 0 for level in levels])
    ranks = [
        np.minimum(relevance[: at + 1], own).sum() / (at + 1) for at, own in enumerate(relevance)
    ]
    return list(np.array(ranks) / relevance.sum())


def gain(levels: list[int]) -> list[float]:
    """NDCG: 2^level − 1 over log2(1 + rank), over that of the ideal order."""
    discount = np.log2(2 + np.arange(len(levels)))
    ideal = ((2.0 ** np.sort(levels)[::-1] - 1) / discount).sum()
    return list((2.0 ** np.array(levels) - 1) / discount / ideal)


def distance(levels: list[int]) -> list[float]:
    """HD@3: mean distance of the first three."""
    return [(2 - level) / 2 / 3 if at < 3 else 0.0 for at, level in enumerate(levels)]


METRICS = {
    "AP": precision(2),
    "AP/owl": precision(1),
    "H-AP": hierarchical,
    "NDCG": gain,
    "HD@3": distance,
}


def value(name: str, levels: list[int]) -> float:
    """The metric by hbench."""
    ranked = np.array(levels, np.uint8)
    at = np.flatnonzero(ranked)
    sequence = LevelSequence(at + 1, ranked[at], np.bincount(ranked, minlength=3))
    return float(MetricName.parse(name).bind(LEVELS)(sequence))


def draw(axes, title: str, levels: list[int], top: float) -> None:
    """One ranking: its results in frames, below them a row per metric with a bar as long as what
    the rank adds.
    """
    axes.text(0.1, top - 0.42, title, fontsize=13, weight="bold", va="center")
    for column, level in enumerate(levels):
        left = 2.0 + 1.25 * column
        axes.add_patch(
            FancyBboxPatch(
                (left, top - 0.7),
                0.95,
                0.5,
                "round,pad=0.04",
                fc="white",
                ec=color_of(level, 2),
                lw=4,
            )
        )
        axes.text(left + 0.47, top - 0.38, WORDS[level], fontsize=9.5, ha="center", va="center")
        axes.text(
            left + 0.47,
            top - 0.6,
            mark_of(level, 2),
            fontsize=8,
            ha="center",
            va="center",
            color=GREY,
        )
    for row, (name, summands) in enumerate(METRICS.items()):
        middle = top - 1.1 - 0.36 * row
        parts = summands(levels)
        assert abs(sum(parts) - value(name, levels)) < 1e-9, name
        weight = "bold" if name == "H-AP" else "normal"
        axes.text(0.1, middle, name, fontsize=12, va="center", weight=weight)
        for column, (part, level) in enumerate(zip(parts, levels, strict=True)):
            left = 2.0 + 1.25 * column
            if part > 0:
                axes.barh(
                    middle, 0.9 * part / 0.55, height=0.2, left=left, color=color_of(level, 2)
                )
                axes.text(
                    left + 0.9 * part / 0.55 + 0.06,
                    middle,
                    f"{part:.2f}",
                    fontsize=8.5,
                    va="center",
                    color=GREY,
                )
        axes.text(
            10.4, middle, f"{sum(parts):.3f}", fontsize=12, va="center", ha="right", weight=weight
        )


figure = Figure(figsize=(10.6, 6.1))
axes = figure.add_axes((0, 0, 1, 1))
axes.set(xlim=(0, 10.6), ylim=(0, 6.1))
axes.axis("off")
axes.text(
    2.0,
    5.95,
    "query: a barn owl    (rank 1 … 6, from left to right; a bar is what the rank adds)",
    fontsize=10,
    va="center",
    color=GREY,
)
axes.text(10.4, 5.95, "sum", fontsize=10, va="center", ha="right", color=GREY)
for row, (title, levels) in enumerate(RANKINGS.items()):
    draw(axes, title, list(levels), 5.85 - 2.95 * row)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
