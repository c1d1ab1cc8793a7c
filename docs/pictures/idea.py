"""Draws docs/pictures/idea.png: two rankings that AP calls equal and H-AP does not. Run: python
docs/pictures/idea.py."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from hbench.look.palette import color_of, mark_of
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.names import MetricName

LEVELS = ("script", "case", "base", "character")
MEANINGS = {
    4: "same character",
    3: "same base letter",
    2: "same script and case",
    1: "same script",
    0: "unrelated",
}
FONTS = ("DejaVu Sans", "DejaVu Serif", "STIXGeneral", "DejaVu Sans Mono")
FIRST = [
    ("é", 1, 4),
    ("ê", 0, 3),
    ("é", 2, 4),
    ("è", 3, 3),
    ("o", 1, 2),
    ("é", 3, 4),
    ("K", 0, 1),
    ("ж", 2, 0),
]
OTHER = [
    ("é", 1, 4),
    ("ж", 2, 0),
    ("é", 2, 4),
    ("K", 0, 1),
    ("o", 1, 2),
    ("é", 3, 4),
    ("è", 3, 3),
    ("ê", 0, 3),
]
RANKINGS = {
    "Mistakes are mild": FIRST,
    "Mistakes are severe": OTHER,
}  # letter, font, level for the query é


def scores(levels: list[int]) -> dict[str, float]:
    """AP and H-AP of a ranking given by the levels of its items."""
    ranked = np.array(levels, np.uint8)
    at = np.flatnonzero(ranked)
    sequence = LevelSequence(at + 1, ranked[at], np.bincount(ranked, minlength=len(LEVELS) + 1))
    return {name: MetricName.parse(name).bind(LEVELS)(sequence) for name in ("AP", "H-AP")}


figure = Figure(figsize=(11, 3.9))
axes = figure.add_axes((0, 0, 1, 1))
axes.set(xlim=(0, 11), ylim=(0, 3.9))
axes.axis("off")
for row, (title, items) in enumerate(RANKINGS.items()):
    bottom = 2.45 - 1.55 * row
    axes.text(1.75, bottom + 1.08, title, fontsize=12, weight="bold")
    axes.text(0.75, bottom + 0.45, "é", fontsize=34, ha="center", va="center", family=FONTS[0])
    axes.text(0.75, bottom - 0.12, "query", fontsize=9, ha="center", color="#555555")
    for column, (letter, font, level) in enumerate(items):
        left = 1.75 + 0.86 * column
        color = color_of(level, len(LEVELS))
        axes.add_patch(
            FancyBboxPatch((left, bottom), 0.66, 0.86, "round,pad=0.03", fc="white", ec=color, lw=5)
        )
        axes.text(
            left + 0.33,
            bottom - 0.19,
            mark_of(level, len(LEVELS)),
            fontsize=7.5,
            ha="center",
            color="#555555",
        )
        axes.text(
            left + 0.33,
            bottom + 0.43,
            letter,
            fontsize=27,
            ha="center",
            va="center",
            family=FONTS[font],
        )
    for line, (name, value) in enumerate(scores([level for _, _, level in items]).items()):
        weight = "bold" if name == "H-AP" else "normal"
        axes.text(
            8.95, bottom + 0.62 - 0.44 * line, f"{name}", fontsize=15, weight=weight, va="center"
        )
        axes.text(
            10.6,
            bottom + 0.62 - 0.44 * line,
            f"{100 * value:.1f}",
            fontsize=15,
            weight=weight,
            ha="right",
            va="center",
        )
for column, (level, meaning) in enumerate(MEANINGS.items()):
    left = 1.75 + 1.75 * column
    axes.add_patch(
        FancyBboxPatch(
            (left, 0.2), 0.16, 0.16, "round,pad=0.02", fc=color_of(level, len(LEVELS)), lw=0
        )
    )
    axes.text(left + 0.27, 0.37, meaning, fontsize=9.5, va="center")
    axes.text(
        left + 0.27, 0.17, mark_of(level, len(LEVELS)), fontsize=7.5, va="center", color="#555555"
    )
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
