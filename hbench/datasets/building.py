"""Builds a dataset and saves it where every verb finds it: a published one by name, or the user's from a table or folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from hbench.core.errors import DataError, UsageError
from hbench.core.files import write_text
from hbench.datasets import folders, save, specs
from hbench.datasets.build import build as build_published
from hbench.datasets.build import joined, unreadable, writable_folder
from hbench.datasets.dataset import Dataset
from hbench.datasets.metadata.cards import write_cards
from hbench.datasets.own.copies import KEEP, Copies
from hbench.datasets.own.source import IMAGES, OnRemark, OwnSource, build_own
from hbench.datasets.own_data import not_taken, refuse_name, write_images

COPIES = "copies.csv"  # a file of the dataset that lists the pictures that it holds several times


def ignore(_remark: str) -> None:
    """Ignore a remark."""


def build(
    name: str | None = None,
    *,
    source: OwnSource | None = None,
    root: str | Path | None = None,
    out: str | Path | None = None,
    unofficial: bool = False,
    force: bool = False,
    cards: bool = False,
    on_remark: OnRemark = ignore,
) -> Dataset:
    """Build a dataset and save it: a published one by `name` from its raw files below `root`, or your own from a `source`.

    `source`: an `OwnSource`, which describes a CSV, a parquet file or a folder of images; `name` is then the dataset's name, by
    default that of the file. `out`: the folder to write, by default hbench's data folder, where `hbench.load(name)` finds it.
    `unofficial`: accept other counts than published, or missing images. `force`: replace your dataset of this name. `cards`:
    also describe the folder for Hugging Face datasets and Croissant. `on_remark` is called with every remark. Returns the
    dataset. Raises UnknownName, UsageError, DataError, IntegrityError (counts), and TreeError (labels that do not form a tree).

    >>> import hbench, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "birds.csv").write_text("item,order,species\\na.png,owls,barn owl\\nb.png,owls,barn owl\\n")
    >>> data = hbench.build(source=OwnSource(folder / "birds.csv", ["order", "species"]), out=folder / "birds")
    >>> len(data.tests["test"]), hbench.load(folder / "birds").levels
    (2, ('order', 'species'))
    """
    root, out = None if root is None else Path(root), None if out is None else Path(out)
    if source is not None:
        return _build_own(name, source, out, force=force, cards=cards, on_remark=on_remark)
    if name is None:
        raise UsageError(
            "the dataset to build is not named",
            expected="the name of a dataset, or --from with your table or folder",
            fix="hbench datasets lists the names",
        )
    on_remark(f"building {name}: annotations, counts, then the image files")
    dataset, files, errors = build_published(specs[name], root, unofficial=unofficial)
    for line in [*errors, *([str(files)] if files else [])]:
        on_remark(line)
    save_built(dataset, out or writable_folder(dataset.name), cards=cards, on_remark=on_remark)
    return dataset


def _own_name(name: str | None, source: Path) -> str:
    """Return the name of a user's dataset: `name`, or else that of its table or folder."""
    return name or Path(source.name.removesuffix(".gz")).stem


def save_built(
    dataset: Dataset,
    folder: Path,
    *,
    images: dict[str, bytes] | None = None,
    copies: Copies | None = None,
    cards: bool = False,
    on_remark: OnRemark = ignore,
) -> None:
    """Save a dataset, the images that were inside its table, and the list of its copies; raises DataError for a read-only
    folder."""
    try:
        write_images(folder / IMAGES, images or {})
        save(dataset, folder)
        (folder / COPIES).unlink(missing_ok=True)
        if copies is not None:
            write_text(folder / COPIES, copies.table())
        if cards and not write_cards(dataset, folder):
            on_remark(f"note: {folder / 'README.md'} was not written by hbench, and is kept as it is")
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written", found=str(error.strerror), fix="choose another folder with --out DIR"
        ) from None


def _build_own(
    name: str | None, source: OwnSource, out: Path | None, *, force: bool, cards: bool, on_remark: OnRemark
) -> Dataset:
    chosen = _own_name(name, source.path)
    refuse_name(chosen)
    folder = out or writable_folder(chosen)
    if not force:
        _refuse_used(chosen, [folder] if out else [folder, *folders(chosen)])
    dataset, images, copies = build_own(chosen, source, folder, on_remark)
    save_built(dataset, folder, images=images, copies=copies, cards=cards, on_remark=on_remark)
    if dataset.root is not None:
        left_out = copies.left_out(source.copies) if copies is not None else set()
        for line in _remarks(dataset, source.path, dataset.root, left_out):
            on_remark(line)
    if copies is not None:
        effects = map(copies.effect, ["merge", "first"] if source.copies == KEEP else [source.copies])
        for line in [*copies.remarks(), f"{folder / COPIES} lists the copies", *effects]:
            on_remark(line)
    return dataset


def _remarks(dataset: Dataset, source: Path, root: Path, left_out: set[str]) -> Iterator[str]:
    """Yield remarks on the files of a user's dataset: those that are missing, not opened by hbench, or damaged.

    `left_out`: copies, whose files nobody misses.
    """
    files = joined(dataset.manifests.values(), root)
    yield str(dataclasses.replace(files, surplus=tuple(file for file in files.surplus if file not in left_out)))
    items = [item for manifest in dataset.manifests.values() for item in manifest.items.tolist()]
    yield from filter(None, (not_taken(source) if source.is_dir() else "", unreadable(root, items)))


def _refuse_used(name: str, places: list[Path]) -> None:
    """Refuse to replace a dataset without --force."""
    used = next((folder for folder in places if (folder / "dataset.json").exists()), None)
    if used is not None:
        raise UsageError(
            f"there is a dataset {name} already",
            found=str(used),
            fix="--force replaces it; another NAME or --out DIR keeps both",
        )
