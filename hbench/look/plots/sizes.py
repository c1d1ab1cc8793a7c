"""Draws what smaller vectors cost: the score of every metric by the bytes of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hbench.core.errors import SubmissionError, UnknownName, UsageError
from hbench.core.untrusted import read_json
from hbench.look.figures import (
    Drawing,
    draw_figure,
    legend_above,
    legend_height,
    percent_axis,
)
from hbench.look.palette import GROUPS, group_color, series_color
from hbench.look.plots import PlotRequest, kind
from hbench.metrics.names import factor_of, goodness
from hbench.records.other_files import SIZES, kind_of_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MADE_BY = "hbench evaluate FILE -d DATASET --dims 64,128 --bits 1,8 -o sizes.json"
MARKS = {  # bits of a coordinate -> matplotlib's mark, and its description
    64: ("p", "64 bits pentagon"),
    32: ("o", "32 bits circle"),
    16: ("s", "16 bits square"),
    8: ("^", "8 bits triangle"),
    1: ("x", "1 bit cross"),
}


class SizeScores(NamedTuple):
    """The scores at one size: the bytes of a vector, the bits of a coordinate, and the scores by
    metric, as printed."""

    bytes: int
    bits: int
    scores: dict[str, float]


def read_sizes(path: Path) -> tuple[str, list[SizeScores]]:
    """Read the signature and the sizes that `hbench evaluate --dims … -o` wrote. Raises
    SubmissionError for a file without them."""
    try:
        content: Any = read_json(path)
        sizes = [size_of(size) for size in content["sizes"]]
        return str(content["sizes"][0]["signature"]), sizes
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        given = kind_of_json(path)
        raise SubmissionError(
            f"{path} has no scores by size",
            expected="sizes and their scores, in JSON",
            found=f"{type(error).__name__}: {error}" if given == SIZES else given,
            fix=f"{MADE_BY} makes one",
        ) from None


def size_of(size: Any) -> SizeScores:
    """Read one size of the document that `hbench evaluate --dims … -o` writes: a dict with the
    bytes of a vector, the bits of a coordinate, and the scores by metric. Scores are as printed:
    fractions become percent. Undefined scores are left out."""
    scores = {
        metric: factor_of(metric) * float(score["value"])
        for metric, score in size["scores"].items()
        if score["value"] is not None
    }
    return SizeScores(bytes=int(size["bytes"]), bits=_known_bits(size["bits"]), scores=scores)


def _known_bits(bits: Any) -> int:
    """Return the bits of a coordinate if there is a mark for them; raise ValueError for others."""
    if bits not in MARKS:
        raise ValueError(f"{bits!r} bits")
    return int(bits)


def draw_sizes(signature: str, sizes: Sequence[SizeScores], metrics: Sequence[str]) -> Drawing:
    """Draw scores against the bytes of a vector: for each of the `metrics` a mark for every size,
    and a line of the best score of all sizes with at most so many bytes.

    The kind of a mark tells the bits of a coordinate. `signature` is that of the evaluation, for
    the small print.
    """

    # metrics have no order, so their hues differ; only so many hues can be told apart
    color_of = group_color if len(metrics) <= len(GROUPS) else series_color

    def paint(figure: Figure) -> None:
        """Draw the bytes horizontally, doubling from tick to tick, and the scores vertically."""
        panel = figure.subplots()
        for number, metric in enumerate(metrics):
            draw_metric(panel, metric, sizes, color_of(number, len(metrics)))

        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        percent_axis(panel)
        panel.set_ylim(bottom=0)
        panel.set(xlabel="bytes of a vector", ylabel="score (%)")
        legend_above(figure, list(metrics), panel.get_legend_handles_labels()[0])

    used = {size.bits for size in sizes}
    marks = ", ".join(words for bits, (_, words) in MARKS.items() if bits in used)
    about = f"{signature}\nline: the best score of at most so many bytes; marks: {marks}"
    # the height is in inches
    return draw_figure(paint, height=2.35 + legend_height(list(metrics)), about=about)


def draw_metric(panel: Axes, metric: str, sizes: Sequence[SizeScores], color: str) -> None:
    """Draw the marks of one metric, whose kinds tell the bits of a coordinate, and its line: the
    best value with this number of bytes or fewer."""
    scored = sorted(
        (size.bytes, size.scores[metric], size.bits) for size in sizes if metric in size.scores
    )
    # of several sizes of one number of bytes, only the best one is a corner of the line. For a
    # distance that is the smallest: its goodness is its negation
    best_of: dict[int, float] = {}
    for size, value, _ in scored:
        good = goodness(metric, value)
        best_of[size] = max(good, best_of.get(size, good))
    # the best value so far; the second call of `goodness` turns a goodness back into a value
    best = [goodness(metric, good) for good in accumulate(best_of.values(), max)]
    panel.plot(
        list(best_of),
        best,
        color=color,
        linewidth=1.2,
        drawstyle="steps-post",
        label=metric,
    )
    for size, value, bits in scored:
        mark, _ = MARKS[bits]
        panel.plot(size, value, mark, color=color, markersize=3.5, clip_on=False)


@kind(
    "sizes",
    about="what smaller vectors cost: scores by the bytes of a vector",
    files=f"sizes in JSON ({MADE_BY})",
    options="metrics",
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw one file of sizes by the requested metrics, by default all of them."""
    if len(request.files) != 1:
        raise UsageError("plot sizes draws one file", found=f"{len(request.files)}")
    signature, sizes = read_sizes(Path(request.files[0]))
    known = list(sizes[0].scores)
    for metric in request.metrics:
        if metric not in known:
            raise UnknownName("metric of these sizes", metric, known)
    return draw_sizes(signature, sizes, request.metrics or known)
