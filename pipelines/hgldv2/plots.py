"""A plot of how each reference group fared, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.hgldv2.quality import Recall


def recalls(path: Path, rows: Sequence[Recall]) -> None:
    """Bars of each group's recall, worst on top, with its labels and fragments; the same rows give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "hbench", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1 + 0.22 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.barh(range(len(rows)), [row.recall for row in rows], color="#2457c5")
        names = [row.group.replace("$", "\\$") for row in rows]  # a dollar would start a formula
        texts = [f"{name} ({row.labels}; {row.fragments})" for name, row in zip(names, rows, strict=True)]
        axes.set_yticks(range(len(rows)), texts, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the group's labels in one cluster (labels; clusters they lie in)")
        figure.savefig(path, format="svg", metadata={"Date": None})
