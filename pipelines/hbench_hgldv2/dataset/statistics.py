"""Counts landmarks per super-category and images per landmark, and draws both.

>>> rows = [Released(1, "", "abbey", "church", "human-made"), Released(2, "", "", "", "")]
>>> counts_of_hierarchy({"index": rows}, {})
{'super-categories': 1, 'human-made': 1, 'natural': 0, 'index landmarks': 1}
"""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from hbench.cli import terminal
from hbench.core.errors import DataError, UsageError
from hbench.core.files import replacing
from hbench.datasets.benchmarks import gldv2
from hbench_hgldv2.artefact import open_table
from hbench_hgldv2.dataset.assemble import file_of
from hbench_hgldv2.labels.kinds import usual_kinds_first
from hbench_hgldv2.labels.label import SPLITS, Split
from hbench_hgldv2.labels.released import Released, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FORMATS = (".svg", ".png", ".pdf")
COLOURS = ("#2457c5", "#2c7a4b", "#b06000", "#7a45b0", "#b02a72", "#00707a")  # of the kinds
SPLIT_FILLS = (1.0, 0.45)  # the opacity of the bars of the first and the second split
PUBLISHED = {  # the paper has the first of them only
    "super-categories": 78,
    # counted in the released files
    "human-made": 60,
    "natural": 18,
    "index landmarks": 55_529,
    # in a configuration of the authors' code, gldv2_hier.yaml
    "train landmarks with images": 46_593,
    "train images": 970_981,
}


def run(
    work: Path,
    *,
    released: Annotated[
        Sequence[tuple[Split, Path]],
        "A five-column file, instead of those of assemble.",
        "SPLIT FILE",
    ] = (),
    raw: Annotated[Path | None, "Folder of GLDv2's metadata: with it images are counted."] = None,
    out: Annotated[Path | None, "statistics.svg in the work folder, or .png, .pdf."] = None,
    as_json: Annotated[bool, "Print it as JSON."] = False,
) -> None:
    """Count a hierarchy's landmarks and images next to the counts of the release, and draw them.

    \b
    hbench hgldv2 statistics --raw gldv2/raw
    hbench hgldv2 statistics --released index index_label_to_hierarchical.csv -o index.png
    """
    target = out or work / "statistics.svg"
    if target.suffix not in FORMATS:
        raise UsageError(
            f"{target} is not a picture", expected="a name that ends in " + ", ".join(FORMATS)
        )

    # the files that the user gave, otherwise those that `assemble` has written
    paths: dict[str, Path] = dict(released) or {
        split: path for split in SPLITS if (path := file_of(work, split)).exists()
    }
    splits = {split: read(path) for split, path in paths.items()}
    if not any(row.hierarchical_label for rows in splits.values() for row in rows):
        raise DataError(
            "no landmark has a super-category",
            fix="hbench hgldv2 assemble, or --released SPLIT FILE",
        )

    # split -> landmark -> number of images; empty without the metadata
    images = {split: images_of(raw, split) for split in splits} if raw else {}
    numbers = counts_of_hierarchy(splits, images)
    target.parent.mkdir(parents=True, exist_ok=True)
    # drawn to a temporary file first, so that the picture appears whole or not at all
    with replacing(target) as temporary:
        draw(temporary, splits, images, target.suffix.removeprefix("."))
    _show(numbers, as_json=as_json)
    if not as_json:
        terminal.say(str(target))


def _show(numbers: Mapping[str, int], *, as_json: bool) -> None:
    """Print the counts next to those of the published dataset, which has only some of them.
    `numbers` maps the name of a count to its value."""
    header = ("what", "found", "published")
    rows = [(what, n, PUBLISHED.get(what)) for what, n in numbers.items()]
    if as_json:
        terminal.show_json([dict(zip(header, row, strict=True)) for row in rows])
        return

    table = [
        (what, f"{number:,}", "" if known is None else f"{known:,}") for what, number, known in rows
    ]
    terminal.show_table("counts", header, table)


def counts_of_hierarchy(
    splits: Mapping[str, Sequence[Released]], images: Mapping[str, Mapping[int, int]]
) -> dict[str, int]:
    """Count the super-categories per kind and, in each split, the labelled landmarks and their
    images.

    `images` maps split -> landmark -> number of images; images are counted only in the splits that
    it has.
    """
    labelled: dict[str, list[Released]] = {}
    kinds: dict[str, str] = {}  # super-category -> its kind, human-made or natural
    for split, rows in splits.items():
        labelled[split] = [row for row in rows if row.hierarchical_label]
        kinds |= {row.hierarchical_label: row.natural_or_human_made for row in labelled[split]}
    # each kind once: first the usual ones, also those without a super-category, then others in use
    numbers = {"super-categories": len(kinds)} | {
        kind: list(kinds.values()).count(kind) for kind in usual_kinds_first(sorted(kinds.values()))
    }

    for split, rows in labelled.items():
        numbers[f"{split} landmarks"] = len(rows)
        if split in images:
            seen = [
                images[split][row.landmark_id] for row in rows if row.landmark_id in images[split]
            ]
            numbers |= {f"{split} landmarks with images": len(seen), f"{split} images": sum(seen)}

    return numbers


def images_of(raw: Path, split: str) -> dict[int, int]:
    """Count the images of each landmark, from train_clean.csv for train and from
    index_image_to_landmark.csv for index."""
    with open_table(
        gldv2.metadata_file(raw, gldv2.TRAIN if split == "train" else gldv2.INDEX)
    ) as lines:
        rows = csv.DictReader(lines)
        if split == "train":
            return {int(row["landmark_id"]): len(row["images"].split()) for row in rows}
        return dict(Counter(int(row["landmark_id"]) for row in rows))


def draw(
    path: Path,
    splits: Mapping[str, Sequence[Released]],
    images: Mapping[str, Mapping[int, int]],
    kind: str,
) -> None:
    """Draw the number of landmarks per super-category as bars, largest first, on a log scale. Below
    them, draw the number of landmarks by their number of images, if images were counted.

    `images`: split -> landmark -> number of images. `kind` is svg, png or pdf. The same rows give
    the same bytes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The salt makes the ids in an SVG the same in every run. Text stays text, not outlines, and a
    # dollar sign in the name of a group starts no formula.
    with mpl.rc_context(
        {"svg.hashsalt": "hbench", "svg.fonttype": "none", "text.parse_math": False}
    ):
        figure = Figure(figsize=(14, 9 if images else 5), dpi=120, layout="constrained")
        axes = figure.subplots(2 if images else 1, squeeze=False)[:, 0]
        _landmarks(axes[0], splits)
        if images:
            _images(axes[1], splits, images)
        # None leaves out the time of writing; a PNG has none
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        figure.savefig(path, format=kind, metadata=undated)


def _landmarks(axes: Axes, splits: Mapping[str, Sequence[Released]]) -> None:
    """Draw the landmarks of every super-category as bars, one bar per split side by side."""
    sizes: dict[str, Counter[str]] = {}  # split -> super-category -> number of landmarks
    kinds: dict[str, str] = {}  # super-category -> its kind, human-made or natural
    for split, rows in splits.items():
        sizes[split] = Counter(row.hierarchical_label for row in rows)
        kinds |= {row.hierarchical_label: row.natural_or_human_made for row in rows}
    kinds.pop("", None)  # "" stands for landmarks without a super-category
    # largest first, over all splits
    names = sorted(kinds, key=lambda name: (-sum(size[name] for size in sizes.values()), name))
    # the bars of a super-category, one per split, together fill 0.8 of the distance between two
    # ticks
    width = 0.8 / len(sizes)

    for number, (split, size) in enumerate(sizes.items()):
        shift = (number - (len(sizes) - 1) / 2) * width  # of the split's bars from their ticks
        # each kind once, with a colour of its own
        for kind, colour in zip(
            usual_kinds_first(sorted(kinds.values())), itertools.cycle(COLOURS)
        ):
            # the positions of the super-categories of this kind; a kind has a colour, a split an
            # opacity
            at = np.asarray([place for place, name in enumerate(names) if kinds[name] == kind], int)
            heights = [size[names[place]] for place in at]
            axes.bar(
                at + shift,
                heights,
                width,
                color=colour,
                alpha=SPLIT_FILLS[number],
                label=f"{split}, {kind}",
            )

    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_xlim(-1, len(names))
    _finish(axes, f"Landmarks per super-category ({len(names)})")


def _images(
    axes: Axes, splits: Mapping[str, Sequence[Released]], images: Mapping[str, Mapping[int, int]]
) -> None:
    """Draw the labelled landmarks of each split: for each number of images (horizontal axis), the
    number of landmarks that have so many (vertical axis).

    `images` maps split -> landmark -> number of images.
    """
    for split, images_of_landmark in images.items():
        labelled = (row.landmark_id for row in splits[split] if row.hierarchical_label)
        # number of images -> number of landmarks that have so many
        landmarks = Counter(images_of_landmark[i] for i in labelled if i in images_of_landmark)
        sizes = sorted(landmarks)
        axes.plot(sizes, [landmarks[size] for size in sizes], ".", markersize=4, label=split)
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.set_xlabel("images of a landmark")
    _finish(axes, "Images per landmark")


def _finish(axes: Axes, title: str) -> None:
    """Make the axis of landmarks logarithmic, and add the title and the legend of a panel."""
    axes.set_yscale("log")
    _plain_numbers(axes.yaxis)
    axes.set_ylabel("landmarks")
    axes.set_title(title)
    axes.legend(frameon=False)


def _plain_numbers(axis: Axis) -> None:
    """Label ticks as plain numbers such as 1,000. By default matplotlib labels log ticks as powers
    of ten, which are formulas, and formulas are switched off for the sake of group names with a
    dollar sign."""
    axis.set_major_formatter("{x:,.0f}")
    axis.set_minor_formatter("")
