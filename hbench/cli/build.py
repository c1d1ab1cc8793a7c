"""hbench build: turn raw annotations, or your own table or folder, into a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli import terminal
from hbench.cli.names import DATASET
from hbench.core.errors import DataError, TreeError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from hbench.datasets import Dataset, Spec
    from hbench.datasets.copies import Copies

FOLDER = click.Path(path_type=Path, file_okay=False)
COPIES = "copies.csv"  # in a dataset's folder: the pictures that it holds several times
IMAGES = "images"  # in a dataset's folder: the images that lay inside its table


def _colour(_context: click.Context, _option: click.Parameter, value: str) -> str:
    from PIL import ImageColor

    try:
        if value != "none":
            ImageColor.getrgb(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a colour; write it as white or #rrggbb, or none") from None
    return value


@click.command(short_help="turn raw annotations, or your own table, into a dataset")
@click.argument("name", type=DATASET, required=False)
@click.option("--root", type=FOLDER, help="Folder of the raw files or images; it may be read-only.")
@click.option(
    "--out", "-o", type=FOLDER, help="Folder to write; by default hbench's data folder, where every verb finds it."
)
@click.option("--unofficial", is_flag=True, help="Accept other counts than published, or missing images.")
@click.option("--from-scratch", type=FOLDER, metavar="WORK", help="hgldv2: rebuild its labels from Wikimedia, in WORK.")
@click.option(
    "--contact", metavar="MAIL", help="Your address, which Wikimedia asks for; without it nothing is fetched."
)
@click.option("--from", "source", type=click.Path(path_type=Path), help="Your own CSV, parquet, or folder of images.")
@click.option("--levels", metavar="A,B,C", help="Your levels, coarse to fine: columns, or names of nested folders.")
@click.option("--image-column", default="item", show_default=True, help="Column of the images' paths below --root.")
@click.option("--depth", type=click.IntRange(1), help="Only so many nested folders are levels.")
@click.option("--force", is_flag=True, help="Replace your dataset of this name.")
@click.option(
    "--background",
    default="white",
    show_default=True,
    callback=_colour,
    help="Under transparent images; none: ignore it, and EXIF.",
)
@click.option("--split-column", help="Column that says train or test (or train, query, gallery).")
@click.option("--split-folders", is_flag=True, help="The outermost folders are train and test.")
@click.option("--split-by", metavar="LEVEL", help="Open set: deal whole nodes of this level to train and test.")
@click.option("--test-fraction", default=0.5, show_default=True, help="Share of those nodes that test.")
@click.option("--seed", default=0, show_default=True, help="Seed of --split-by.")
@click.option("--policy", metavar="NAME", multiple=True, help="Mend labels that form no tree: hbench tree validate.")
@click.option("--tree", type=click.Path(path_type=Path), help="A tree, whose nodes the one column of --levels names.")
@click.option(
    "--copies",
    type=click.Choice(["keep", "first", "merge"]),
    default="keep",
    show_default=True,
    help="Of pictures that are there several times: keep all, the first, or make them (and classes of the same pictures) one.",
)
@click.option("--cards", is_flag=True, help="Describe the folder for Hugging Face datasets and Croissant, too.")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def command(name: str | None, *, source: Path | None, out: Path | None, as_json: bool, **options: Any) -> None:
    """Build the dataset NAME from its raw files, or your own from --from, under NAME.

    \b
    hbench build sop --root /data/sop
    hbench build birds --from birds.csv --levels order,family,species --image-column path --split-by species
    """
    from hbench.core.files import write_text
    from hbench.datasets import folders, save
    from hbench.datasets.build import writable_folder
    from hbench.datasets.metadata.cards import write_cards
    from hbench.datasets.own_data import refuse_name, write_images

    images: dict[str, bytes] = {}
    copies: Copies | None = None
    if source is None:
        dataset = _published(name, options)
        folder = out or writable_folder(dataset.name)
    else:
        own = name or Path(source.name.removesuffix(".gz")).stem
        refuse_name(own)
        folder = out or writable_folder(own)
        if not options["force"]:
            _refuse_used(own, [folder] if out else [folder, *folders(own)])
        dataset, images, copies = _own(own, source, folder, options)
    try:
        write_images(folder / IMAGES, images)
        save(dataset, folder)
        (folder / COPIES).unlink(missing_ok=True)
        if copies is not None:
            write_text(folder / COPIES, copies.table())
        if options["cards"] and not write_cards(dataset, folder):
            terminal.say(f"note: {folder / 'README.md'} is not hbench's, and stays as it is")
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written", found=str(error.strerror), fix="choose another folder with --out DIR"
        ) from None
    if source is not None and dataset.root is not None:
        for line in _remarks(dataset, source, dataset.root):
            terminal.say(line)
    if copies is not None:
        effects = map(copies.effect, ["merge", "first"] if options["copies"] == "keep" else [options["copies"]])
        for line in [*copies.remarks(), f"{folder / COPIES} lists the copies", *effects]:
            terminal.say(line)
    _tell(dataset, folder, as_json=as_json)


def _remarks(dataset: Dataset, source: Path, root: Path) -> Iterator[str]:
    """What to know of the files of a dataset of one's own: those that are missing, not taken, or cannot be read."""
    from hbench.datasets.build import joined, unreadable
    from hbench.datasets.own_data import not_taken

    yield str(joined(dataset.manifests.values(), root))
    items = [item for manifest in dataset.manifests.values() for item in manifest.items.tolist()]
    yield from filter(None, (not_taken(source) if source.is_dir() else "", unreadable(root, items)))


def _refuse_used(name: str, places: list[Path]) -> None:
    """Refuse to replace a dataset that nobody asked to replace."""
    used = next((folder for folder in places if (folder / "dataset.json").exists()), None)
    if used is not None:
        raise UsageError(
            f"there is a dataset {name} already",
            found=str(used),
            fix="--force replaces it; another NAME or --out DIR keeps both",
        )


def _published(name: str | None, options: dict[str, Any]) -> Dataset:
    from hbench.datasets import specs
    from hbench.datasets.build import build

    if name is None:
        raise UsageError(
            "build what?",
            expected="a dataset's name, or --from with a table or folder of yours",
            fix="hbench datasets lists the names",
        )
    if options["from_scratch"] is not None:
        return _from_scratch(specs[name], options["root"], options["from_scratch"], options["contact"])
    terminal.say(f"building {name}: annotations, counts, then the image files")
    dataset, found, errors = build(specs[name], options["root"], unofficial=options["unofficial"])
    for line in [*errors, *([str(found)] if found else [])]:
        terminal.say(line)
    return dataset


def _from_scratch(spec: Spec, root: Path | None, work: Path, contact: str | None) -> Dataset:
    """The dataset with its labels made anew by the pipeline of its name, if there is one."""
    from importlib.metadata import entry_points

    from hbench.datasets import read
    from hbench.datasets.build import find_raw

    pipelines = entry_points(group="hbench.pipelines")
    if spec.name not in pipelines.names:
        raise UsageError(
            f"the labels of {spec.name} cannot be made from scratch",
            expected=f"one of {', '.join(sorted(pipelines.names))}",
        )
    pipelines[spec.name].load()(find_raw(spec, root), work, contact)
    return read(work / "dataset")


def _own(
    name: str, source: Path, folder: Path, options: dict[str, Any]
) -> tuple[Dataset, dict[str, bytes], Copies | None]:
    """The dataset of a table or a folder of images, the images that lie inside a table, for `folder`, and the copies among
    them."""
    from hbench.core.tables import texts
    from hbench.datasets.copies import copies_in
    from hbench.datasets.manifest import name_table_of
    from hbench.datasets.own_data import own_dataset, without_images
    from hbench.tree.names import remarks_on

    table, root, item, split = _source(source, options)
    levels = _levels(table, source, options["levels"])
    if options["tree"] is not None:
        table, levels = _placed(table, levels, options["tree"])
    table, item, images = without_images(table, item)
    root = folder / IMAGES if images else root
    mended: dict[str, Any] = {}
    if options["policy"]:
        table, levels, mended = _mended(table, levels, options["policy"])
    copies = None
    if {item, *levels} <= set(table.column_names):
        copies = copies_in(table, root, item=item, levels=levels, images=images)
    if copies is not None:
        table = copies.applied(table, levels, options["copies"])
        images = {image: images[image] for image in texts(table, item) if image in images}
        mended |= {"copies": options["copies"]}
    table, split = _split(table, levels, split, options)
    try:
        dataset = own_dataset(name, table, root, levels=levels, item=item, split=split)
    except TreeError:
        _refuse_no_tree(table, levels, str(source))
        raise
    for remark in remarks_on(name_table_of(list(dataset.manifests.values()))):
        terminal.say(f"note: {remark}")
    return (
        dataclasses.replace(dataset, card={**dataset.card, **mended, "background": options["background"]}),
        images,
        copies,
    )


def _source(source: Path, options: dict[str, Any]) -> tuple[pa.Table, Path, str, str | None]:
    """The table of a source, the folder of its images, and its columns of images and splits."""
    from hbench.core.tables import read_sheet
    from hbench.datasets.own_data import SPLIT, folder_table

    if not source.is_dir():
        return read_sheet(source), options["root"] or source.parent, options["image_column"], options["split_column"]
    split = options["split_folders"]
    table = folder_table(source, levels=_named(options["levels"]), split_folders=split, depth=options["depth"])
    return table, source, "item", SPLIT if split else None


def _placed(table: pa.Table, levels: list[str], tree: Path) -> tuple[pa.Table, list[str]]:
    """The table with a column per level of a tree in place of the one that names a node of it, and those levels."""
    import pyarrow as pa

    from hbench.core.tables import texts
    from hbench.datasets.own_data import check_columns
    from hbench.tree import files as tree_files
    from hbench.tree.names import paths_of_nodes

    if len(levels) != 1:
        raise UsageError("with --tree one column says which node an item is", expected="--levels COLUMN")
    check_columns(table, levels)
    names = tree_files.read(tree)
    rows = paths_of_nodes(names, texts(table, levels[0]))
    table = table.drop_columns([level for level in (*levels, *names.levels) if level in table.column_names])
    for place, level in enumerate(names.levels):
        table = table.append_column(level, pa.array([row[place] if place < len(row) else "" for row in rows]))
    return table, list(names.levels)


def _named(levels: str | None) -> list[str]:
    return [level.strip() for level in levels.split(",")] if levels else []


def _levels(table: pa.Table, source: Path, levels: str | None) -> list[str]:
    from hbench.datasets.own_data import SPLIT
    from hbench.tree import refuse_depth

    if not levels and not source.is_dir():
        raise UsageError(f"which columns of {source} are the levels?", expected="--levels A,B,C, coarse to fine")
    chosen = _named(levels) or [column for column in table.column_names if column not in {"item", SPLIT}]
    refuse_depth(len(chosen))
    return chosen


def _split(
    table: pa.Table, levels: list[str], split: str | None, options: dict[str, Any]
) -> tuple[pa.Table, str | None]:
    """The table, and the column that says train or test; dealt where --split-by asks for it."""
    from hbench.datasets.own_data import SPLIT, dealt

    by = options["split_by"]
    if by is not None and split is not None:
        raise UsageError("two splits are given", expected="either --split-by or a split of your own")
    if by is not None:
        fraction, seed = options["test_fraction"], options["seed"]
        return dealt(table, by=by, levels=levels, fraction=fraction, seed=seed), SPLIT
    if split is None and SPLIT in table.column_names and SPLIT not in levels:
        terminal.say("note: the column split is not used, every row is of the test; --split-column split takes it")
    return table, split


def _refuse_no_tree(table: pa.Table, levels: list[str], source: str) -> None:
    from hbench.core.tables import texts
    from hbench.tree.names import NameTable
    from hbench.tree.policies import mend_to_tree

    rows = zip(*(texts(table, level) for level in levels), strict=True)
    mend_to_tree(NameTable.of(levels, rows), (), source)


def _mended(
    table: pa.Table, levels: list[str], policies: tuple[str, ...]
) -> tuple[pa.Table, list[str], dict[str, int]]:
    """The table and its levels after the policies, and, for the dataset's card, how many rows of names each changed."""
    from hbench.tree.record import mend_sheet

    table, mended = mend_sheet(table, levels, policies)
    changed = {f"changed by {policy}": sum(change.policy == policy for change in mended.changes) for policy in policies}
    for text, rows in changed.items():
        terminal.say(f"{rows:,} rows of names {text}")
    return table, list(mended.table.levels), changed


def _tell(dataset: Dataset, folder: Path, *, as_json: bool) -> None:
    from hbench.datasets.build import counted

    numbers = {split: counted(manifest) for split, manifest in dataset.manifests.items()}
    if as_json:
        digests = {split: manifest.digest for split, manifest in dataset.manifests.items()}
        terminal.show_json(
            {
                "name": dataset.name,
                "version": dataset.version,
                "folder": str(folder),
                "counts": numbers,
                "digests": digests,
            }
        )
        return
    header = [f"{dataset.name}@{dataset.version}", *next(iter(numbers.values()))]
    rows = [[split, *(f"{number:,}" for number in counts.values())] for split, counts in numbers.items()]
    terminal.show_table(None, header, rows, caption=str(folder))
