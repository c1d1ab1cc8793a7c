"""Makes figures for print: one column wide, 8 pt, with embedded fonts, the conditions in small
print, and reproducible bytes.

matplotlib is imported only when a figure is made. It is used through its object-oriented interface,
so that no windows open, no state remains after a call, and the user's settings have no influence.
"""

from __future__ import annotations

import io
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbench.core.errors import UsageError
from hbench.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

COLUMN = 3.3  # inches
SUFFIXES = (".png", ".svg", ".pdf")
DPI = 300
INK = "#222222"
GREY = "#6b6b6b"
FAINT = "#dddddd"
SMALL_PRINT = 4.6  # points
LEGEND = 7.0  # points
MARK = 3.8  # ems: a line's mark in a legend, with the space around it
LETTERS = 96  # letters of small print in a line of one column
STYLE: Any = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so the same on all machines
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "text.color": INK,
    "axes.labelcolor": INK,
    "text.parse_math": False,  # so that a $ in a name does not start a formula
    "pdf.fonttype": 42,  # embedded TrueType, since publishers refuse Type 3
    "svg.fonttype": "path",  # letters as outlines, so that viewers do not need the font
    "svg.hashsalt": "hbench",
    "savefig.dpi": DPI,
}
EPOCH = "SOURCE_DATE_EPOCH"
# characters that XML does not allow, as UTF-8
NO_XML = re.compile(b"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
METADATA: dict[
    str, dict[str, Any]
] = {  # without date and version, so that the same picture is the same file
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure, which notebooks display. `about` holds the conditions in its small
    print."""

    figure: Figure
    about: str

    def write(self, path: str | Path) -> None:
        """Write the figure as .png, .svg or .pdf according to the suffix, whole or not at all.
        Raises UsageError for another suffix."""
        path = Path(path)
        refuse_suffix(path)
        with replacing(path) as temporary:
            temporary.write_bytes(self.as_bytes(path.suffix.lower()[1:]))

    def as_bytes(self, kind: str) -> bytes:
        """Return the figure as a file of type png, svg or pdf."""
        with styled():
            return bytes_of(self.figure, kind, METADATA[kind])

    def _repr_png_(self) -> bytes:
        return self.as_bytes("png")


def bytes_of(
    figure: Figure, kind: str, metadata: dict[str, Any], dpi: float | None = None
) -> bytes:
    """Return a figure as the bytes of a png, svg or pdf file. In an SVG, control characters in
    texts are replaced, so that it is valid XML.

    `dpi` defaults to that of the style. `metadata` are matplotlib's keys and values for this type
    of file.
    """
    file = io.BytesIO()
    with warnings.catch_warnings():
        # a character that the font lacks is shown as a box: no reason to warn the user
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format=kind, metadata=metadata, dpi=dpi)
    if kind == "svg":
        return NO_XML.sub("\N{REPLACEMENT CHARACTER}".encode(), file.getvalue())
    return file.getvalue()


def refuse_suffix(path: Path, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Raise UsageError unless a picture can be written by this name: the suffix must be one of
    `suffixes`, and matplotlib must be able to read the variable SOURCE_DATE_EPOCH.

    Verbs call it first, so that this error does not come only after long work.
    """
    if path.suffix.lower() not in suffixes:
        raise UsageError(
            f"{path} is not a picture", expected=f"a name that ends in {', '.join(suffixes)}"
        )
    # matplotlib takes the date of a file from this variable, and fails at another text
    epoch = os.environ.get(EPOCH, "0")
    if not epoch.isdecimal():
        raise UsageError(
            f"the variable {EPOCH} is no time", expected="whole seconds since 1970", found=epoch
        )


@contextmanager
def styled() -> Iterator[None]:
    """Set matplotlib's defaults to this style until the block ends."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def draw_figure(
    paint: Callable[[Figure], None], *, height: float, about: str, width: float = COLUMN
) -> Drawing:
    """Make a figure of this size in inches (by default one column wide), let `paint` fill it, and
    add `about`, the conditions of what it shows, in small print at the bottom."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with styled():
        figure = Figure(
            figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03)
        )
        letters = int(LETTERS * width / COLUMN)  # LETTERS fit into the width of one column
        figure.supxlabel(small_print(about, letters), fontsize=SMALL_PRINT, color=GREY)
        paint(figure)
    return Drawing(figure, about)


def small_print(text: str, most: int = LETTERS) -> str:
    """Break a text into lines of at most `most` letters, after the bars of a signature or at
    spaces.

    >>> small_print("sop@1|test|sim:cosine", 12)
    'sop@1|test|\\nsim:cosine'
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines.append("")
        for part in re.split(r"(?<=[| ])", paragraph):
            # a part that is too long for any line gets a line of its own
            if len(lines[-1]) + len(part.rstrip()) > most and lines[-1]:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def percent_axis(axes: Axes, which: str = "y") -> None:
    """Scale an axis from 0 to 100 percent, with faint grid lines."""
    own = axes.yaxis if which == "y" else axes.xaxis
    axes.set(**{f"{which}lim": (0, 100)})
    own.set_ticks([0, 25, 50, 75, 100])
    axes.grid(axis="y" if which == "y" else "x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def legend_columns(
    labels: Sequence[str], size: float = LEGEND, most: int = 4, *, width: float = COLUMN
) -> int:
    """Count how many columns of these labels, with their marks, fit into a figure of this width in
    inches.

    >>> legend_columns(["AP", "H-AP"]), legend_columns(["a rather long name of a variant"] * 2)
    (2, 1)
    """
    widest = (max(map(text_width, labels)) + MARK) * size / 72  # inches: a point is 1/72 inch
    return max(1, min(most, len(labels), int((width - 0.1) / widest)))


def legend_height(labels: Sequence[str], size: float = LEGEND) -> float:
    """Return the height of a legend above the panels, in inches. `size`: that of its letters in
    points."""
    rows = -(-len(labels) // legend_columns(labels, size))  # rounded up
    return rows * 1.5 * size / 72 + 0.06


def legend_above(
    figure: Figure, labels: Sequence[str], handles: Sequence[Any], size: float = LEGEND
) -> Legend:
    """Add a legend above the panels, in as many columns as fit. `handles`: the lines or patches
    that the labels explain. `size`: the size of its letters in points."""
    columns = legend_columns(labels, size)
    return figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, fontsize=size, columnspacing=1.2
    )


def short(text: str, most: int = 24, *, keep_end: bool = False) -> str:
    """Shorten a text to at most `most` letters. The beginning is kept or, with `keep_end`, the end,
    where image ids differ.

    >>> short("hyperbolic proxies", 10), short("species/genus/img_00001.jpg", 12, keep_end=True)
    ('hyperboli…', '…g_00001.jpg')
    """
    if len(text) <= most:
        return text
    # the ellipsis takes the place of one letter
    return "…" + text[1 - most :] if keep_end else text[: most - 1] + "…"


NARROW = frozenset("fijlrtI.,;:!'|()[]- ")
WIDE_LETTERS = frozenset("mwMWŒœÆ@%")


def text_width(text: str) -> float:
    """Estimate the width of a text in ems, on the large side, for common sans-serif fonts."""
    return sum(map(_em, text))


def _em(character: str) -> float:
    """The rough width of a character in ems (1 em is the size of the letters), estimated without a
    font, on the large side."""
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":  # wide or full width
        return 1.0
    if character in WIDE_LETTERS:
        return 0.97
    if character in NARROW:
        return 0.38
    return 0.7 if character.isupper() else 0.61
