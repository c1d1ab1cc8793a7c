"""Builds a dataset and saves it where every command finds it. It is a published dataset, given by
name, or the user's own, from a table or folder.

A published dataset is built from its raw files; its counts and image files are checked.
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
COPIES = "copies.csv"  # a file of the dataset that lists pictures that occur several times in it


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
        name: of a published dataset, or, with `source`, of your own. Default: its file's name.
        source: an `OwnSource`, which describes a table or a folder of images.
        root: the folder of the raw files or images of a published dataset.
        out: the folder to write. Default: hbench's data folder, where `hbench.load(name)` finds it.
        unofficial: accept other counts than published, or missing images. Default: no.
        force: replace your dataset of this name. Default: no.
        cards: also describe the folder for Hugging Face datasets and Croissant. Default: no.
        on_remark: is called with every remark.

    Returns:
        The Dataset.

    Raises:
        UnknownName: a dataset, column or policy does not exist.
        UsageError: the name is taken, or options do not go together.
        DataError: raw files are missing or not as expected.
        IntegrityError: the counts differ from those published.
        TreeError: the labels do not form a tree.

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
    # `files`: how items and image files match, None if items are not files; `errors`: differences
    # from the published counts that are accepted, in words
    dataset, files, errors = build_published(specs[name], root, unofficial=unofficial)
    for line in [*errors, *([str(files)] if files else [])]:
        on_remark(line)
    save_built(dataset, out or writable_folder(dataset.name), cards=cards, on_remark=on_remark)
    return dataset


def build_published(
    spec: Spec, root: Path | None, *, unofficial: bool = False
) -> tuple[Dataset, Joined | None, list[str]]:
    """Build a published dataset from its raw files.

    `root`: the folder of the raw files or one above it; None for the folder of downloads.

    Returns the dataset; the comparison of its items with the image files, or None if its items are
    not files; and remarks for the user, such as counts that differ from those published. If counts
    differ, the version of the dataset ends in the digest of its first test.

    Unless `unofficial`, raises IntegrityError if counts differ from those published, or if some of
    the images, but not all, are missing.
    """
    raw = find_raw(spec, root) if spec.markers else None  # None: the dataset needs no files
    dataset = assemble(spec, raw)
    errors = _differences(spec, dataset)
    # publications disagree on these counts, and nobody knows who is right: they raise no error
    disputed = _unlike_any(spec, dataset)

    files = None  # items that are not files, but drawn or cut out of files, are not compared
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

    # if all images are missing, they are stored elsewhere; annotations suffice to score embeddings
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
    """Describe each count (of images, queries, or a level's classes in a split) that differs from
    the one published in `spec`. The list is empty if all are equal."""
    differing = []  # only counts that are published are compared
    for split, published in spec.counts.items():
        numbers = count_contents(dataset.manifests[split], dataset.official_names)
        differing += [
            f"{split}: {numbers[what]:,} {what}, published {number:,}"
            for what, number in published.items()
            if numbers[what] != number
        ]
    return differing


def _unlike_any(spec: Spec, dataset: Dataset) -> list[str]:
    """Describe the splits whose counts match no publication, among those on which publications
    disagree. `spec.disputed`: {split: the counts that each publication states}."""
    differing = []
    for split, variants in spec.disputed.items():
        numbers = count_contents(dataset.manifests[split], dataset.official_names)
        # a publication states only some counts: the split matches it if these are equal
        if any(published.items() <= numbers.items() for published in variants):
            continue
        # the publications state counts of the same things
        found = _in_words({what: numbers[what] for what in variants[0]})
        stated = ", or ".join(map(_in_words, variants))
        differing.append(
            f"{split}: {found}; published: {stated}. This is not the published {spec.name}, "
            "as its version says; its scores get no place"
        )
    return differing


def _in_words(counts: Mapping[str, int]) -> str:
    """Write {name of what is counted: number} for people: "93 middle, 5 coarse"."""
    return ", ".join(f"{number:,} {what}" for what, number in counts.items())


def raw_folder(spec: Spec) -> Path:
    """Return the default folder of a dataset's raw files, for downloads and builds."""
    return paths.data_home() / spec.source / "raw"


def find_raw(spec: Spec, root: Path | None) -> Path:
    """Find the folder of a dataset's raw files: the first that has one of the markers of its spec.

    It is `root` (None: the folder of downloads, or the user's copy that was adopted for it), or a
    folder at most two levels below. Raises DataError if there is none.
    """
    start = root or raw_folder(spec)
    # a file in the folder of downloads may name the folder of the user's own copy
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
    """The comparison of a folder's files with the pictures of items.

    Attributes:
        items: the number of different pictures.
        missing: the pictures without a file.
        surplus: the files that are the picture of no item.
    """

    items: int
    missing: tuple[str, ...]
    surplus: tuple[str, ...]

    def __str__(self) -> str:
        """Say how many images are there, and which are missing or without a label."""
        parts = [f"{self.items - len(self.missing):,} of {self.items:,} images are there"]
        for files, what in ((self.missing, "missing"), (self.surplus, "files without a label")):
            if files:
                parts.append(f"{len(files):,} {what} ({examples(files, most=3)})")
        return "; ".join(parts)


def compare_with_files(
    manifests: Iterable[Manifest], folder: Path, known: Iterable[str] = ()
) -> Joined:
    """Compare the pictures of all manifests' items with the image files below `folder`. A picture
    of several boxes counts once. `known`: further items, whose files are not surplus."""
    items = {file_of(str(item)) for manifest in manifests for item in manifest.items}
    files = set(images_below(folder))
    return Joined(
        items=len(items),
        missing=tuple(sorted(items - files)),
        surplus=tuple(sorted(files - items - set(map(file_of, known)))),
    )


def count_contents(
    manifest: Manifest, official: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, int]:
    """Count the images, queries, gallery items, classes of each level and, if there are any, items
    with several paths of a manifest. The result is {name of what is counted: number}.

    Names that mark an unknown class or a distractor are not counted as classes. `official`: {level:
    {name: official name}}; names with the same official name count once.
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
        counts["with several paths"] = manifest.more.owners  # their number
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
    """Build the user's dataset from its source, and save it in `out`, by default in the folder of
    its name. `name`: None for the name of the source's file. `cards`: also describe the folder for
    Hugging Face and Croissant. Raises UsageError if this name is taken and `force` is false."""
    chosen = name or Path(Path(source.name).name.removesuffix(".gz")).stem
    refuse_name(chosen)
    folder = out or writable_folder(chosen)
    # without --out, a dataset of this name in any of hbench's folders would be found by its name
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

    # the source may also be a built dataset, by its folder or name; a table in memory has no path
    built = dataset_at(source.path) if isinstance(source.path, Path) else None
    # `images`: pictures inside the table, to be written; `copies`: groups of equal pictures
    dataset, images, copies = build_own(chosen, source, folder, on_remark, built=built)
    save_built(dataset, folder, images=images, copies=copies, cards=cards, on_remark=on_remark)
    for line in _remarks_on_own_files(dataset, source, folder, copies):
        on_remark(line)
    return dataset


def dataset_at(path: Path) -> Dataset | None:
    """Load the built dataset in the folder `path`, or of that name; return None if there is none.
    Raises DataError for a published dataset that is not built yet.
    """
    if (path / "dataset.json").is_file():
        return load(path)
    # if a file or folder of that name exists, the user means that one
    is_name = len(path.parts) == 1 and not path.exists()
    if is_name and path.name in {*specs, *own_names()}:
        return load(path.name)
    return None


def _remarks_on_own_files(
    dataset: Dataset, source: OwnSource, folder: Path, copies: Copies | None
) -> Iterator[str]:
    """Yield remarks on the files of a user's dataset that are missing, of formats that hbench does
    not open, damaged, or copies of other files. `copies`: None if there are no copies."""
    root = dataset.root or Path()
    # items that were left out have a label, too: their files are not surplus
    known = [*dataset.dropped, *(copies.items if copies else ())]
    joined = compare_with_files(dataset.manifests.values(), root, known)
    yield str(joined)
    # there are pictures, but none at the path of an item: --root was probably another folder
    if joined.surplus and len(joined.missing) == joined.items:
        below = examples(sorted({file.partition("/")[0] for file in joined.surplus if "/" in file}))
        where = f", such as {below}" if below else ""
        yield f"note: --root names the folder of the images{where}: paths are below it"
    if source.folder is not None and (unopened := not_taken(source.folder)):
        yield unopened  # pictures in formats that hbench does not open, and broken links
    # said at the build, since training would only stop at a damaged picture after hours
    if damaged := _damaged(root, dataset):
        pictures = "picture" if len(damaged) == 1 else "pictures"
        yield (
            f"{len(damaged):,} {pictures} cannot be read, at which training and embedding stop: "
            f"{', '.join(damaged)}; replace them, or leave them out and build again with --force"
        )

    if copies is not None:
        yield from copies.remarks()
        tested = {item for test in dataset.tests.values() for item in test.items.tolist()}
        # a test picture that was trained on tests nothing
        if both := copies.in_both(
            set(dataset.train.items.tolist() if dataset.train else ()), tested
        ):
            yield (
                f"{len(both):,} test pictures are in the training set, too, byte for byte "
                f"({examples(both, most=3)})"
            )
        yield f"{folder / COPIES} lists the copies"
        # with copies kept: what each way to remove them would do; else what the chosen way did
        yield from map(
            copies.effect, ["merge", "first"] if source.copies == KEEP else [source.copies]
        )


def _damaged(root: Path, dataset: Dataset) -> list[str]:
    """List the pictures of a dataset that exist below the folder `root` but cannot be decoded, each
    with the reason. Threads decode them at once, since Pillow releases Python's lock meanwhile."""
    items = {str(item) for manifest in dataset.manifests.values() for item in manifest.items}
    files = [file for file in sorted(set(map(file_of, items))) if (root / file).is_file()]

    def reason_of(file: str) -> str:
        """Say why a picture cannot be decoded; "" if it can."""
        try:
            check_picture(root / file)
        except OSError as error:
            # for a file that is no image, Pillow's message only repeats the whole path
            is_no_image = isinstance(error, UnidentifiedImageError)
            return "no image" if is_no_image else str(error)
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
    """Save a dataset with the files that belong to it. DataError if the folder cannot be written.

    Args:
        dataset: the dataset.
        folder: where it is saved; a dataset that is there already is replaced.
        images: {name: bytes} of images that were inside its table.
        copies: the pictures that occur several times, to be listed in COPIES.
        cards: write the descriptions for other tools. They are also written if the folder has some,
            which would be out of date.
        on_remark: is called with every remark.
    """
    try:
        for name, content in (images or {}).items():
            with replacing(folder / IMAGES / name) as temporary:
                temporary.write_bytes(content)

        save(dataset, folder)
        (folder / COPIES).unlink(missing_ok=True)  # it may be of the dataset that is replaced
        if copies is not None:
            write_text(folder / COPIES, copies.table())
        outdated = (folder / CROISSANT).exists()  # it describes the dataset that is replaced
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
    """Choose the first folder for a build of this name that can be written; DataError if none."""
    for folder in folders(name):
        # the folder itself, or the nearest one above it that exists
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if os.access(existing, os.W_OK):
            return folder
    raise DataError(
        "neither the data folder nor the cache folder can be written",
        found=examples(folders(name)),
        fix="name a folder with --out DIR, or set HBENCH_HOME",
    )
