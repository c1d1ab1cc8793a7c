"""Writes the pages of a report: overview, queries, classes, comparison and names, and the explorer,
tree and map with their data."""

import os
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from hbench.look.pages.folder import Pages, copy_assets, level_styles, replacing_folder
from hbench.look.report.classes import class_tables, confusions
from hbench.look.report.data import mapped_runs, metrics_of, valued_runs, write_data
from hbench.look.report.differences import comparisons_of
from hbench.look.report.names import name_tables
from hbench.look.report.overview import overview_of
from hbench.look.report.queries import chapters_of, glimpses_of, items_of
from hbench.look.report.runs import Reported
from hbench.look.report.sprites import sprite_of, write_sprites
from hbench.look.strips.retrievals import legend_of

PACKAGE = "hbench.look.report"
PICTURES = 12_000  # the pictures of all items are drawn if there are at most this many
PAGES = {
    "index": "Overview", "queries": "Queries", "classes": "Classes", "compare": "Comparison",
    "explore": "Explorer",
    "tree": "Tree", "map": "Map", "names": "Names",
}  # fmt: skip


def write_report(reported: Reported, folder: Path, *, pictures: int = PICTURES) -> Path:
    """Write the pages of a report and return the path of its first page.

    Args:
        reported: the runs, with their dataset.
        folder: the folder to write, which replaces an earlier report there.
        pictures: if a test has at most this many items, draw the pictures of all of them; else only
            those that the pages show.

    Raises UsageError if the folder has other files.
    """
    with replacing_folder(folder, "report") as temporary:
        # if all queries are names, there are no pages of queries, classes or comparison
        chapters = chapters_of(reported)
        comparisons = [] if reported.is_by_name else comparisons_of(reported)
        shown = items_of(
            [*chapters, *(chapter for comparison in comparisons for chapter in comparison.chapters)]
        )
        places = _write_pictures(reported, shown, temporary / "pictures", pictures)
        copy_assets(temporary / "assets", PACKAGE)
        styles = level_styles(len(reported.document.levels))
        (temporary / "assets" / "levels.css").write_text(styles, encoding="utf-8")
        # The address of the images in full size, relative to the final folder; unlike `places`,
        # where the small pictures of items are on the sheets that were just drawn.
        images = images_of(reported, folder)
        pages = _pages(reported, places, images)
        # for the overview: chapters cut short to a few queries, with a few results each
        glimpses = glimpses_of(chapters, len(reported.document.levels))
        pages.write(temporary, "index", glimpses=glimpses, **overview_of(reported))
        if not reported.is_by_name:
            pages.write(temporary, "queries", chapters=chapters)
            pages.write(
                temporary, "classes", tables=class_tables(reported), confusions=confusions(reported)
            )
        # runs whose queries are names; there may be others, whose queries are items (`is_by_name`)
        if reported.named:
            tables = name_tables(reported.named, reported.by)
            pages.write(temporary, "names", tables=tables, named=reported.named)

        if reported.manifest is not None:
            write_data(temporary / "data", reported, places, images)
            pages.write(temporary, "explore")
            pages.write(
                temporary, "tree", metrics=metrics_of(reported), valued=valued_runs(reported)
            )

        if mapped := mapped_runs(reported):
            pages.write(temporary, "map", mapped=mapped)
        if len(reported.runs) > 1 and not reported.is_by_name:
            pages.write(temporary, "compare", comparisons=comparisons)

    return folder / "index.html"


def _write_pictures(
    reported: Reported, shown: set[int], folder: Path, most: int
) -> NDArray[np.int32]:
    """Draw the pictures of all items of a test if there are at most `most` and the explorer needs
    them, else of the items that the pages have `shown`. Return the place (N,) of each item's
    picture on the sheets, −1 without one."""
    manifest = reported.manifest
    if manifest is None:
        return np.zeros(0, np.int32)
    # all items are needed by the explorer alone, which shows results only if a run kept them
    draws_all = len(manifest) <= most and any(run.top for run in reported.runs)
    items = np.arange(len(manifest)) if draws_all else np.array(sorted(shown), np.int64)
    return write_sprites(folder, manifest, items)


def images_of(reported: Reported, folder: Path) -> str:
    """Return the address of the dataset's folder of images, relative to the pages in `folder`; ""
    if the items are not files, or no relative path leads to them."""
    if reported.data is None or reported.manifest is None or reported.data.root is None:
        return ""
    root = reported.data.root.resolve()
    folder = folder.resolve()
    # a folder on another drive has no relative path; one item tells whether the items are files
    if root.anchor != folder.anchor or not (root / str(reported.manifest.items[0])).is_file():
        return ""
    return quote(Path(os.path.relpath(root, folder)).as_posix()) + "/"


def _pages(reported: Reported, places: NDArray[np.int32], images: str) -> Pages:
    """Return the writer of a report's pages, with the variables that all templates share.

    Args:
        reported: the runs, with their dataset.
        places: (N,) the place of each item's picture on the sheets, −1 without one; empty without
            pictures.
        images: the address of the folder with the images in full size, or "".
    """
    document = reported.document
    depth = len(reported.document.levels)
    # leave out pages that would be empty: a comparison needs two runs whose queries are items, tree
    # and explorer the dataset, and a map the vectors. If all queries are names, the page of names
    # replaces the pages of queries and classes
    absent: set[str] = set()
    if len(reported.runs) < 2 or reported.is_by_name:
        absent.add("compare")
    if reported.is_by_name:
        absent |= {"queries", "classes"}
    if not reported.named:
        absent.add("names")
    if reported.manifest is None:
        absent |= {"explore", "tree"}
    if not mapped_runs(reported):
        absent.add("map")

    return Pages(
        PACKAGE,
        {
            "version": document.hbench_version,
            "reported": reported,
            "document": document,
            "runs": reported.runs,
            "depth": depth,
            "legend": legend_of(document.levels),
            "several": len(reported.runs) > 1,
            "by": reported.by,  # the metric whose values strips show
            # sheet and corner of an item's picture by its place in the manifest; None without one
            "place_of": lambda item: sprite_of(int(places[item])) if len(places) else None,
            # address of an item's image in full size, by its id
            "image_of": lambda item: images + quote(item) if images else "",
            # (file name, heading) of the pages that are written
            "present": [page for page in PAGES.items() if page[0] not in absent],
        },
    )
