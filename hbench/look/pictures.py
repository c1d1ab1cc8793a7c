"""Pictures of a report: AP per level with its intervals, and how severe the mistakes at rank 1 are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hbench.core.files import replacing
from hbench.evaluation.reports.report import Document, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, GREY, RED = "#0072b2", "#8a8a8a", "#d55e00"  # tell apart also for the colour-blind (Okabe and Ito)


def draw(document: Document, path: Path) -> None:
    """Write the picture of a report (.png, .svg or .pdf by its suffix), whole or not at all."""
    from matplotlib.figure import Figure

    tests = list(document.mistakes)
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    _draw_levels(left, document)
    _draw_mistakes(right, document.mistakes[tests[0]], document.levels)
    subject = document.method or (document.embedding.file if document.embedding else "")
    figure.suptitle(f"{subject} on {document.dataset}", fontweight="bold")
    figure.supxlabel(document.signature, fontsize=7, color=GREY)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=_undated(path.suffix))


def _draw_levels(axes: Axes, document: Document) -> None:
    """One horizontal bar per level, coarse above fine."""
    found = [(level, _ap(document, level)) for level in document.levels]
    scores = [(level, score) for level, score in found if score is not None and score.value is not None]
    values = [100 * (score.value or 0) for _, score in scores]
    ends = [((score.value or 0) - (score.low or 0), (score.high or 0) - (score.value or 0)) for _, score in scores]
    errors = [[100 * abs(end) for end in side] for side in zip(*ends, strict=True)] if ends else None
    axes.barh([level for level, _ in scores], values, xerr=errors, color=BLUE, ecolor="black", capsize=3, height=0.6)
    for row, value in enumerate(values):
        axes.annotate(f"{value:.1f}", (value, row), xytext=(8, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.set(title="AP at each level", xlabel="AP, percent (95 % interval)", xlim=(0, 109))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_mistakes(axes: Axes, counts: dict[str, int], levels: Sequence[str]) -> None:
    """What the item ranked first shares with the query: everything, or less and less."""
    total = max(1, sum(counts.values()))
    names = [f"same\n{name}" if name in levels else name for name in counts]
    shares = [100 * count / total for count in counts.values()]
    colors = [BLUE, *[GREY] * (len(shares) - 2), RED]
    axes.bar(names, shares, color=colors, width=0.7)
    for column, (share, count) in enumerate(zip(shares, counts.values(), strict=True)):
        axes.annotate(
            f"{share:.1f} %\n{count:,}",
            (column, share),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set(
        title="The first item found: right, mildly wrong … unrelated",
        ylabel="queries, percent",
        ylim=(0, 118 * max(shares) / 100 + 4),
    )
    axes.spines[["top", "right"]].set_visible(False)


def _ap(document: Document, level: str) -> Score | None:
    return document.scores.get("AP" if level == document.levels[-1] else f"AP/{level}")


def _undated(suffix: str) -> dict[str, None]:
    """The same report gives the same bytes: no date in the file."""
    return {"Date": None} if suffix == ".svg" else {"CreationDate": None} if suffix == ".pdf" else {}
