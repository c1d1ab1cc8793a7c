"""Writes the page of smaller vectors: what every size loses at every level, in sentences, as a
picture and as a table."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from hbench.core.files import write_text
from hbench.evaluation.variants.smaller import SmallerScore, losses_in_words
from hbench.look.pages.folder import SHARED, Pages
from hbench.look.plots.sizes import draw_sizes, size_of
from hbench.metrics.names import goodness
from hbench.records.differences import Difference
from hbench.records.shown import shown, shown_difference_range


class SizeCell(NamedTuple):
    """A printed score with the 95 % interval of its difference from the whole vector ("" for the
    whole vector itself). The verdict is "worse" or "better" if the whole interval is, otherwise
    ""."""

    score: str
    difference: str
    verdict: str


class SizeRow(NamedTuple):
    """A size, its number of bytes, and a cell for every metric."""

    size: str
    bytes: int
    cells: list[SizeCell]


def write_sizes_page(
    scores: Sequence[SmallerScore], path: Path, *, file: str, dataset: str
) -> None:
    """Write the page as one self-contained file, whole or not at all.

    `scores` are the reports of the sizes (dimensions and bits of a coordinate), and start with the
    whole vectors. `file` and `dataset` say what was scored, for the heading.
    """
    whole, *smaller = scores
    # taken from the whole vectors, since all sizes have the same metrics
    metrics = list(whole.report.document.scores)
    drawing = draw_sizes(
        whole.report.signature, [size_of(score.record()) for score in scores], metrics
    )
    style = resources.files(SHARED).joinpath("static/pages.css").read_text("utf-8")
    shared = {
        "file": file,
        "dataset": dataset,
        "signature": whole.report.signature,
        "metrics": metrics,
        "losses": [losses_in_words(score) for score in smaller],
        "rows": [
            SizeRow(size=str(s.size), bytes=s.size.bytes, cells=_cells(s, metrics)) for s in scores
        ],
        # with 1 bit, a coordinate is only its sign
        "has_signs": any(score.size.bits == 1 for score in scores),
        "picture": base64.b64encode(drawing.as_bytes("svg")).decode("ascii"),
        "style": style,
    }
    # {}: a single page needs no variables for all pages
    write_text(path, Pages(SHARED, {}).text("sizes", **shared))


def _cells(score: SmallerScore, metrics: Sequence[str]) -> list[SizeCell]:
    """Make the cells of one size, one for each of the metrics: the score, the interval of its
    difference from the whole vectors, and the verdict on this difference ("worse", "better" or
    "")."""
    of_metric = {each.metric: each for each in score.differences}
    cells = []
    for metric in metrics:
        value = shown(metric, score.report.document.scores[metric].value)
        difference = of_metric.get(metric)
        if difference is None:  # the whole vectors have no difference from themselves
            cells.append(SizeCell(score=value, difference="", verdict=""))
            continue
        interval = shown_difference_range(metric, difference.low, difference.high)
        cells.append(SizeCell(score=value, difference=interval, verdict=_verdict(difference)))
    return cells


def _verdict(ends: Difference) -> str:
    """Return "worse" or "better" if the whole interval of a difference is, otherwise "". Below 0 is
    worse, but for a metric that is a distance it is better."""
    worst, best = sorted(goodness(ends.metric, end) for end in (ends.low, ends.high))
    if best < 0:
        return "worse"
    return "better" if worst > 0 else ""
