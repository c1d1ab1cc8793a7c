"""Builds a dataset and saves it where every verb finds it: a published one by name, or the user's
from a table or folder.

A published dataset is built from its raw files, and its counts and image files are checked.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import UnidentifiedImageError

from hbench.core import paths
from hbench.core.arguments import checked
from hbench.core.errors import DataError, IntegrityError, UsageError, examples
from hbench.core.files import replacing, write_text
from hbench.core.untrusted import check_picture
from hbench.datasets import assemble, folders, load, own_names, save, specs
from hbench.datasets.copies import KEEP, Copies
from hbench.datasets.dataset import Dataset
from hbench.datasets.manifest import Manifest
from hbench.datasets.metadata.cards import CROISSANT, write_cards
from hbench.datasets.own.data import IMAGES, OnRemark, refuse_name
from hbench.datasets.own.folder import not_taken
from hbench.datasets.own.source import OwnSource, build_own
from hbench.datasets.pictures import file_of, images_below
from hbench.datasets.spec import Spec
from hbench.tree.partial import classes_among

ADOPTED = "adopted.txt"  # a file in the raw folder that names the folder of the user's copy
COPIES = "copies.csv"  # a file of the dataset that lists the pictures that it holds several times


@checked
def build(
    name: str | None = None,
    *,
    source: OwnSource | None = None,
    root: str | Path | None = None,
    out: str | Path | None = None,
    unofficial: bool = False,
    force: bool = False,
    cards: bool = False,
    on_remark: OnRemark = lambda remark: None,
) -> Dataset:
    """Build a dataset and save it: a published one from its raw files, or your own from a source.

    Args:
        name: of a published dataset; with `source`, the name of yours. Default: that of the file.
        source: an `OwnSource`, which describes a table or a folder of images.
        root: the folder of the raw files or images.
        out: the folder to write. Default: hbench's data folder, where `hbench.load(name)` finds it.
        unofficial: accept other counts than published, or missing images. Default: no.
        force: replace your dataset of this name. Default: no.
        cards: also describe the folder for Hugging Face datasets and Croissant. Default: no.
        on_remark: is called with every remark.

    Returns:
        The Dataset.

    Raises:
        UnknownName: a dataset, column or policy that does not exist.
        UsageError: a name that is taken, or options that do not go together.
        DataError: raw files that are missing or not as expected.
        IntegrityError: other counts than published.
        TreeError: labels that do not form a tree.

    Example:
        >>> import hbench, tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "birds.csv").write_text(
        ...     "item,order,species\\na.png,owls,barn owl\\nb.png,owls,barn owl\\n"
        ... )
        >>> data = hbench.build(
        ...     source=hbench.OwnSource(folder / "birds.csv", ["order", "species"]),
        ...     out=folder / "birds",
        ... )
        >>> len(data.tests["test"]), hbench.load(folder / "birds").levels
        (2, ('order', 'species'))
    """
    root = None if root is None else Path(root)
    out = None if out is None else Path(out)
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


def build_published(
    spec: Spec, root: Path | None, *, unofficial: bool = False
) -> tuple[Dataset, Joined | None, list[str]]:
    """Build a dataset from its raw files, which are below `root`, None for the folder of downloads;
    return it, its items compared with the image files (None where these are no files), and what is
    to be said: the counts that differ, or that none are published.

    Unless `unofficial`, raises IntegrityError for other counts than published, and where some of
    the images, but not all, are missing. The version of an unofficial dataset ends in its digest.
    """
    raw = find_raw(spec, root) if spec.markers else None
    dataset = assemble(spec, raw)
    errors = _differences(spec, dataset)
    # where publications disagree, nobody knows which counts are right: these refuse nothing
    disputed = _unlike_any(spec, dataset)

    files = None  # not compared: drawn, or cut out of other files
    if dataset.root is not None and raw is not None and spec.on_disk:
        files = compare_with_files(dataset.manifests.values(), dataset.root)
    if errors and not unofficial:
        raise IntegrityError(
            f"{raw or 'what its module makes'} is not the published {spec.name}",
            found=examples(errors, most=8),
            expected="the counts of the papers",
            fix="download the files again, or build with --unofficial (the version will say so)",
        )
    if errors or disputed:
        digest = next(iter(dataset.tests.values())).digest
        dataset = dataclasses.replace(dataset, version=f"{spec.version}+{digest[:8]}")

    # all of them missing: the images are elsewhere, and annotations alone are scored, too
    if files is not None and 0 < len(files.missing) < files.items and not unofficial:
        raise IntegrityError(
            f"images of {spec.name} are missing in {raw}",
            expected=f"{files.items:,} images",
            found=str(files),
            fix=f"hbench download {spec.name} --repair, or build with --unofficial",
        )

    remarks = [*errors, *disputed]
    if not spec.is_compared:
        remarks.append(
            f"no counts of the tests of {spec.name} are at hand, so they were not compared"
        )
    return dataset, files, remarks


def _differences(spec: Spec, dataset: Dataset) -> list[str]:
    """The counts of a dataset that are not those published in its `spec`, in words, of each split;
    none where all are equal."""
    differing = []  # whatever else was counted, only what is published is compared
    for split, published in spec.counts.items():
        numbers = count_contents(dataset.manifests[split], dataset.official_names)
        differing += [
            f"{split}: {numbers[what]:,} {what}, published {number:,}"
            for what, number in published.items()
            if numbers[what] != number
        ]
    return differing


def _unlike_any(spec: Spec, dataset: Dataset) -> list[str]:
    """The splits whose counts no publication has, of those that publications disagree on, in words.
    `disputed`: {split: the counts that publications state, each a variant}."""
    differing = []
    for split, variants in spec.disputed.items():
        numbers = count_contents(dataset.manifests[split], dataset.official_names)
        # a variant holds only some of the counts: all of these must be found
        if any(published.items() <= numbers.items() for published in variants):
            continue
        found = _in_words({what: numbers[what] for what in variants[0]})
        published = ", or ".join(map(_in_words, variants))
        differing.append(
            f"{split}: {found}; published: {published}. This is not the published {spec.name}, "
            "as its version says; its scores get no place"
        )
    return differing


def _in_words(counts: Mapping[str, int]) -> str:
    """Counts by what is counted, as people read them: "93 middle, 5 coarse"."""
    return ", ".join(f"{number:,} {what}" for what, number in counts.items())


def raw_folder(spec: Spec) -> Path:
    """The default folder of a dataset's raw files, for downloads and builds."""
    return paths.data_home() / spec.source / "raw"


def find_raw(spec: Spec, root: Path | None) -> Path:
    """Find the folder of a dataset's raw files: the one with a file or folder that its spec names
    as a marker, in `root`, by default the folder of downloads, or at most two levels below. Raises
    DataError where there is none.
    """
    start = root or raw_folder(spec)
    # the user's own copy, which this file in the folder of downloads names
    adopted = start / ADOPTED
    if root is None and adopted.exists():
        start = Path(adopted.read_text(encoding="utf-8").strip())
    for candidates in ([start], start.glob("*/"), start.glob("*/*/")):
        for folder in sorted(candidates):
            if any((folder / marker).exists() for marker in spec.markers):
                return folder.absolute()
    raise DataError(
        f"the raw files of {spec.name} are not in {start}",
        expected=f"{' or '.join(spec.markers)} there, or at most two folders below",
        fix=spec.manual or spec.advice,
    )


@dataclass(frozen=True)
class Joined:
    """The comparison of a folder's files with the pictures of items: `missing` ones have no file,
    `surplus` files no item.
    """

    items: int
    missing: tuple[str, ...]
    surplus: tuple[str, ...]

    def __str__(self) -> str:
        """In words, how many images are there, and which are missing or without a label."""
        parts = [f"{self.items - len(self.missing):,} of {self.items:,} images are there"]
        for files, what in ((self.missing, "missing"), (self.surplus, "files without a label")):
            if files:
                parts.append(f"{len(files):,} {what} ({examples(files, most=3)})")
        return "; ".join(parts)


def compare_with_files(
    manifests: Iterable[Manifest], folder: Path, known: Iterable[str] = ()
) -> Joined:
    """Compare the pictures of all manifests' items with the image files below `folder`; a file of a
    `known` item is not surplus. A picture of several boxes counts once.
    """
    items = {file_of(str(item)) for manifest in manifests for item in manifest.items}
    files = set(images_below(folder))
    return Joined(
        len(items),
        tuple(sorted(items - files)),
        tuple(sorted(files - items - set(map(file_of, known)))),
    )


def count_contents(
    manifest: Manifest, official: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, int]:
    """Count the images, queries and gallery items of a manifest, and the classes of each level,
    among which what marks the unknown, or a distractor, is none.

    Names with the same name in `official` ({level: {name: official name}}) count once.
    """
    counts = {
        "images": len(manifest),
        "queries": int(manifest.query.sum()),
        "gallery": int(manifest.gallery.sum()),
    }
    for level, names in zip(manifest.levels, manifest.tree.names, strict=True):
        renamed = (official or {}).get(level, {})
        counts[level] = len({renamed.get(name, name) for name in classes_among(names)})
    if manifest.more is not None:
        counts["with several paths"] = manifest.more.owners
    return counts


def _build_own(
    name: str | None,
    source: OwnSource,
    out: Path | None,
    *,
    force: bool,
    cards: bool,
    on_remark: OnRemark,
) -> Dataset:
    """Build a dataset from what somebody brings, and save it in the folder of its name, or in
    `out`. `name`: by default that of the source's file. Raises UsageError for a name that is taken,
    unless forced."""
    chosen = name or Path(Path(source.name).name.removesuffix(".gz")).stem
    refuse_name(chosen)
    folder = out or writable_folder(chosen)
    # by its name a dataset is found in any of hbench's folders, at --out in that one alone
    used = [
        place
        for place in ([folder] if out else [folder, *folders(chosen)])
        if (place / "dataset.json").exists()
    ]
    if used and not force:
        raise UsageError(
            f"there is a dataset {chosen} already",
            found=str(used[0]),
            fix="--force replaces it; another NAME or --out DIR keeps both",
        )

    # a path may be that of a built dataset, which is built anew; a table in memory is none
    built = dataset_at(source.path) if isinstance(source.path, Path) else None
    dataset, images, copies = build_own(chosen, source, folder, on_remark, built=built)
    save_built(dataset, folder, images=images, copies=copies, cards=cards, on_remark=on_remark)
    for line in _remarks_on_own_files(dataset, source, folder, copies):
        on_remark(line)
    return dataset


def dataset_at(path: Path) -> Dataset | None:
    """The dataset in a folder, or under a name; None where there is neither. Raises DataError for a
    published one that is not built yet.
    """
    if (path / "dataset.json").is_file():
        return load(path)
    is_name = len(path.parts) == 1 and not path.exists()  # a table or folder of that name is meant
    if is_name and path.name in {*specs, *own_names()}:
        return load(path.name)
    return None


def _remarks_on_own_files(
    dataset: Dataset, source: OwnSource, folder: Path, copies: Copies | None
) -> Iterator[str]:
    """Yield remarks on a user's files: those that are missing, not opened by hbench, damaged, or
    copies of others.
    """
    root = dataset.root or Path()
    # files of copies, and of items that are used for nothing, are none without a label
    known = [*dataset.dropped, *(copies.items if copies else ())]
    # which pictures are missing, and which files are of no item
    joined = compare_with_files(dataset.manifests.values(), root, known)
    yield str(joined)
    # there are pictures, but not one where an item says: the folder is another one
    if joined.surplus and len(joined.missing) == joined.items:
        below = examples(sorted({file.partition("/")[0] for file in joined.surplus if "/" in file}))
        where = f", such as {below}" if below else ""
        yield f"note: --root names the folder of the images{where}: paths are below it"
    if source.folder is not None and (others := not_taken(source.folder)):
        yield others
    # before training, which would stop at the first damaged one after hours
    if damaged := _damaged(root, dataset):
        pictures = "picture" if len(damaged) == 1 else "pictures"
        yield (
            f"{len(damaged):,} {pictures} cannot be read, at which training and embedding stop: "
            f"{', '.join(damaged)}; replace them, or leave them out and build again with --force"
        )

    if copies is not None:
        yield from copies.remarks()
        tested = {item for test in dataset.tests.values() for item in test.items.tolist()}
        # a picture that is trained on is no test
        if both := copies.in_both(
            set(dataset.train.items.tolist() if dataset.train else ()), tested
        ):
            yield (
                f"{len(both):,} test pictures are in the training set, too, byte for byte "
                f"({examples(both, most=3)})"
            )
        yield f"{folder / COPIES} lists the copies"
        # where they were kept, what either way of removing them would do; else what was done
        yield from map(
            copies.effect, ["merge", "first"] if source.copies == KEEP else [source.copies]
        )


def _damaged(root: Path, dataset: Dataset) -> list[str]:
    """The pictures of a dataset that are below the folder `root` and cannot be decoded, with the
    reason of each. They are decoded by a thread per processor: Pillow waits for no other thread
    meanwhile."""
    items = {str(item) for manifest in dataset.manifests.values() for item in manifest.items}
    files = [file for file in sorted(set(map(file_of, items))) if (root / file).is_file()]

    def reason_of(file: str) -> str:
        """Why a picture cannot be decoded; "" where it can."""
        try:
            check_picture(root / file)
        except OSError as error:
            # of what is no image Pillow's text says nothing but the whole path
            is_none = isinstance(error, UnidentifiedImageError)
            return "no image" if is_none else str(error)
        return ""

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        reasons = threads.map(reason_of, files)
        return [f"{file} ({reason})" for file, reason in zip(files, reasons, strict=True) if reason]


def save_built(
    dataset: Dataset,
    folder: Path,
    *,
    images: dict[str, bytes] | None = None,
    copies: Copies | None = None,
    cards: bool = False,
    on_remark: OnRemark,
) -> None:
    """Save a dataset, the images that were inside its table (bytes by name), the list of its
    copies, and the `cards` that describe it to other tools, if asked for, or where those of the
    dataset that it replaces would be out of date. Raises DataError for a read-only folder."""
    try:
        for name, content in (images or {}).items():
            with replacing(folder / IMAGES / name) as temporary:
                temporary.write_bytes(content)

        save(dataset, folder)
        (folder / COPIES).unlink(missing_ok=True)  # of a dataset that this one replaces, too
        if copies is not None:
            write_text(folder / COPIES, copies.table())
        outdated = (folder / CROISSANT).exists()  # of the dataset that this one replaces
        if (cards or outdated) and not write_cards(dataset, folder):
            on_remark(
                f"note: {folder / 'README.md'} was not written by hbench, and is kept as it is"
            )
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written",
            found=str(error.strerror),
            fix="choose another folder with --out DIR",
        ) from None


def writable_folder(name: str) -> Path:
    """Choose the folder for a build of this name: the first that can be written."""
    for folder in folders(name):
        # the folder itself, or the nearest one above it that is there
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if os.access(existing, os.W_OK):
            return folder
    raise DataError(
        "neither the data folder nor the cache folder can be written",
        found=examples(folders(name)),
        fix="name a folder with --out DIR, or set HBENCH_HOME",
    )
