"""Writes the folder of pages: beside the place where it will be, and renamed into it when it is whole.

`index.html` and its sisters; `assets/`: style and scripts; `data/`: what the explorer shows, in scripts of a few hundred
queries; `pictures/`: sheets of small pictures. Nothing is loaded from elsewhere, and a policy in every page forbids it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.look.palette import color_of, mark_of, text_color_on
from hbench.look.report.classes import class_tables, confusions
from hbench.look.report.differences import comparisons_of
from hbench.look.report.explorer import write_data
from hbench.look.report.overview import overview_of
from hbench.look.report.queries import chapters_of, items_of
from hbench.look.report.runs import Reported
from hbench.look.report.sprites import sprite_of, write_sprites
from hbench.look.retrievals import level_name

MARK = ".hbench-report"  # in every folder that was written here, so that no other is ever replaced
PICTURES = 12_000


def refuse_folder(folder: Path) -> None:
    """Raise UsageError, before any work, for a folder that is not a report's and not empty."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise UsageError(f"{folder} holds other files", expected="a new folder, or a report's", fix="choose another -o")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", expected="a folder to make")


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of `folder` when the block ends well and vanishes when it does not."""
    refuse_folder(folder)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    temporary.mkdir()
    try:
        yield temporary
        (temporary / MARK).write_text("made by hbench report; replaced as a whole\n", encoding="utf-8")
        if folder.exists():
            folder.replace(old)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def write_report(reported: Reported, folder: Path, *, pictures: int = PICTURES) -> Path:
    """Write the pages and give the path of the first one. `pictures`: draw those of all items where a test has no more,
    else of those that the pages show. Raises UsageError for a folder that holds something else."""
    with replacing_folder(folder) as temporary:
        chapters, comparisons = chapters_of(reported), comparisons_of(reported)
        shown = items_of([*chapters, *(chapter for each in comparisons for chapter in each.chapters)])
        places = _write_pictures(reported, shown, temporary / "pictures", pictures)
        _copy_assets(temporary / "assets", len(reported.document.levels))
        pages = Pages(reported, places)
        pages.write(temporary, "index", **overview_of(reported))
        pages.write(temporary, "queries", chapters=chapters)
        pages.write(temporary, "classes", tables=class_tables(reported), confusions=confusions(reported))
        if reported.manifest is not None:
            write_data(temporary / "data", reported, places)
            pages.write(temporary, "explore")
        if len(reported.runs) > 1:
            pages.write(temporary, "compare", comparisons=comparisons)
    return folder / "index.html"


def _write_pictures(reported: Reported, shown: set[int], folder: Path, most: int) -> NDArray[np.int32]:
    manifest = reported.manifest
    if manifest is None:
        return np.zeros(0, np.int32)
    some = len(manifest) > most or not any(run.top for run in reported.runs)
    items = np.array(sorted(shown), np.int64) if some else np.arange(len(manifest))
    return write_sprites(folder, manifest, items)


def _copy_assets(folder: Path, depth: int) -> None:
    folder.mkdir()
    for file in resources.files("hbench.look.report").joinpath("static").iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    rules = [
        f".level-{level} {{ --level: {color_of(level, depth)}; --on-level: {text_color_on(color_of(level, depth))}; }}"
        for level in range(depth + 1)
    ]
    (folder / "levels.css").write_text("\n".join(rules) + "\n", encoding="utf-8")


class Pages:
    """Renders the templates with what all pages share."""

    def __init__(self, reported: Reported, places: NDArray[np.int32]) -> None:
        loader = jinja2.PackageLoader("hbench.look.report", "templates")
        self.environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self.environment.filters |= {"percent": percent, "points": points, "exact": exact}
        document, depth = reported.document, len(reported.document.levels)
        absent = {"compare" if len(reported.runs) < 2 else "", "explore" if reported.manifest is None else ""}
        legend = [(level, mark_of(level, depth), level_name(level, document.levels)) for level in range(depth, -1, -1)]
        self.shared: dict[str, Any] = {
            "reported": reported,
            "document": document,
            "runs": reported.runs,
            "depth": depth,
            "legend": legend,
            "sprite": lambda item: sprite_of(int(places[item])) if len(places) else None,
            "present": [page for page in PAGES if page[0] not in absent],
        }

    def write(self, folder: Path, name: str, **content: Any) -> None:
        """Render NAME.html."""
        page = self.environment.get_template(f"{name}.html.jinja").render(page=name, **self.shared, **content)
        (folder / f"{name}.html").write_text(page + "\n", encoding="utf-8")


PAGES = (
    ("index", "Overview"),
    ("queries", "Queries"),
    ("classes", "Classes"),
    ("compare", "Comparison"),
    ("explore", "Explorer"),
)


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction in percent; an en dash for none.

    >>> percent(0.53124), percent(None)
    ('53.12', '–')
    """
    return "–" if value is None or np.isnan(value) else f"{100 * value:.{digits}f}"


def points(value: float, digits: int = 2) -> str:
    """A difference of fractions in points of percent, with its sign.

    >>> points(0.0123), points(-0.5, 1)
    ('+1.23', '−50.0')
    """
    return "–" if np.isnan(value) else f"{100 * value:+.{digits}f}".replace("-", "−")


def exact(value: float | None) -> str:
    """A fraction in full, for scripts and tests that read a page."""
    return "" if value is None or np.isnan(value) else repr(float(value))
