"""Draws risk against coverage (hierarchical selective classification): at every threshold, the
share of the items and levels that is answered, and how often the answers are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import ComparisonError, SubmissionError, examples
from hbench.core.untrusted import read_json
from hbench.look.figures import (
    Drawing,
    draw_figure,
    legend_above,
    legend_height,
    percent_axis,
    short,
)
from hbench.look.inputs import shown_names
from hbench.look.palette import series_color
from hbench.look.plots import PlotRequest, kind
from hbench.records.other_files import ANSWERS, kind_of_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MADE_BY = "hbench name FILE -d DATASET … --trust .95 --json > answers.json"


class TrustCurve(NamedTuple):
    """The curve of one naming.

    Attributes:
        name, signature: the name in the legend, and the naming's conditions.
        line: coverage and risk at every threshold (P, 2).
        haurc: the area under the line (HAURC).
        target: the share of answers that is to be right.
        chosen: coverage and risk (2,) at the threshold chosen for the target; None if nothing is
            answered there.
        fixed: coverage and risk (2,) at the fixed thresholds.
    """

    name: str
    signature: str
    line: NDArray[np.float64]
    haurc: float
    target: float
    chosen: NDArray[np.float64] | None
    fixed: NDArray[np.float64]


def read_curve(path: Path, name: str) -> TrustCurve:
    """Read the curve of risk against coverage that `hbench name --trust … --json` printed, and call
    it `name` in the legend. Raises SubmissionError for a file without a curve."""
    try:
        content: Any = read_json(path)
        trust = content["trust"]
        return TrustCurve(
            name=name,
            signature=str(content["signature"]),
            # (P, 2), coverage and risk; the shape is kept for an empty curve
            line=np.asarray(trust["curve"], np.float64).reshape(-1, 2),
            haurc=float(trust["haurc"]),
            target=float(trust["target"]),  # the share of answers that should be right
            # `said` is the share of items that are answered: without answers there is no point
            chosen=_point(trust) if trust["said"] else None,
            # one point, of thresholds that are the same for every model, whatever the target: .8 at
            # the finest level, .6 above it, .4 at all others
            fixed=_point(trust["fixed"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        given = kind_of_json(path)
        raise SubmissionError(
            f"{path} has no curve of risk against coverage",
            expected="what hbench name --trust … --json prints",
            found=f"{type(error).__name__}: {error}" if given == ANSWERS else given,
            fix=f"{MADE_BY} makes one",
        ) from None


def _point(outcome: Any) -> NDArray[np.float64]:
    """Read the coverage and risk (2,) of an outcome in JSON."""
    return np.array([outcome["coverage"], outcome["risk"]], np.float64)


def draw_trust(curves: Sequence[TrustCurve]) -> Drawing:
    """Draw a line for each curve, with a dot at the threshold chosen for its target, the share of
    answers that should be right (no dot if nothing is answered there), and a cross at the fixed
    thresholds.

    A curve's `line` (P, 2), `chosen` and `fixed` (2,) hold coverage and risk as shares in [0, 1].
    The fixed thresholds are used together, one for each level: .8 at the finest, .6 above it, and
    .4 at all coarser ones. Raises ComparisonError for answers on several datasets.
    """
    # namings of one dataset may differ in all other conditions, such as their source
    datasets = dict.fromkeys(curve.signature.partition("|")[0] for curve in curves)
    if len(datasets) > 1:
        raise ComparisonError(
            "these answers are on several datasets",
            expected="answers on one dataset",
            found=examples(datasets),
            fix="draw a picture for each dataset",
        )
    # made before the drawing, since the figure's height depends on them
    labels = [f"{short(curve.name, 30)}   hAURC {100 * curve.haurc:.1f}" for curve in curves]

    def paint(figure: Figure) -> None:
        """Draw coverage horizontally and risk vertically, from no answer to all answers."""
        panel = figure.subplots()
        for number, curve in enumerate(curves):
            color = series_color(number, len(curves))
            coverage, risk = 100 * curve.line.T  # in percent
            panel.plot(coverage, risk, color=color, linewidth=1.2, label=labels[number])
            if curve.chosen is not None:  # some items are answered at the target
                panel.plot(*(100 * curve.chosen), "o", color=color, markersize=4, clip_on=False)
            # a single point, since the fixed thresholds, one for each level, are used together
            panel.plot(*(100 * curve.fixed), "x", color=color, markersize=4, clip_on=False)

        percent_axis(panel, "x")
        panel.set_xlim(0, 100)
        panel.set_ylim(bottom=0)
        panel.set(xlabel="coverage (%)", ylabel="risk: wrong of all (%)")
        legend_above(figure, labels, panel.get_legend_handles_labels()[0])

    targets = " / ".join(dict.fromkeys(f"{curve.target:g}" for curve in curves))
    signatures = "\n".join(dict.fromkeys(curve.signature for curve in curves))
    about = (
        f"{signatures}\ndot: promised for {targets}, if anything is; cross: thresholds .8 / .6 / .4"
    )
    return draw_figure(paint, height=2.35 + legend_height(labels), about=about)


@kind(
    "trust",
    about="risk against coverage: how often what is said is wrong, by how much is said",
    files=f"answers in JSON ({MADE_BY})",
    options="names",
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw the curves of files of answers. A curve is called by its requested name or, without one,
    by the name of its file."""
    paths = list(map(Path, request.files))
    names = shown_names(request.names, [path.stem for path in paths], paths)
    return draw_trust([read_curve(path, name) for path, name in zip(paths, names, strict=True)])
