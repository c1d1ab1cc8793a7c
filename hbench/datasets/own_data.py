"""Turns a user's table or folder of images into a dataset: levels, tree, policies, copies and splits.

A table has one row per image: its path, its names, coarse to fine, and perhaps its split. In a folder of images the nested
folders are the levels: `order/family/species/image.jpg`.
"""

import dataclasses
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import ImageColor

from hbench.core.errors import DataError, TreeError, UnknownName, UsageError, examples
from hbench.core.tables import SUFFIXES as TABLES
from hbench.core.tables import kind_of, read_sheet, text_rows, texts
from hbench.core.untrusted import load_picture
from hbench.datasets import manifest as manifests
from hbench.datasets.copies import CHOICES, KEEP, Copies, same_content
from hbench.datasets.dataset import DROPPED, TEST, Dataset, Protocol
from hbench.datasets.manifest import SUFFIXES, Manifest, images_below, name_table_of
from hbench.datasets.spec import held_out, specs
from hbench.tree import NOT_LEVELS, LabelTree, default_levels, refuse_depth
from hbench.tree.names import NameTable, Row, paths_of_nodes, refuse, remarks_on
from hbench.tree.policies import advice, mend_to_tree

OnRemark = Callable[[str], None]
SPLIT, SPLITS = "split", {"train", TEST, "query", "gallery"}
IMAGES = "images"  # a folder of the dataset, for the images that were inside its table
TRUTH = {"true": True, "1": True, "false": False, "0": False}
FEW = 5  # a table of at most this many rows may have a class per row by chance
OTHER_PICTURES = (
    ".heic", ".heif", ".avif", ".jxl", ".jp2", ".j2k", ".svg", ".psd", ".tga", ".ico", ".dng", ".cr2", ".nef", ".arw",
)  # fmt: skip


def read_single(path: Path, policies: Sequence[str] = ()) -> Dataset:
    """Read a dataset from one file: a parquet manifest, or a table (hbench.core.tables).

    A table has the columns `item`, the levels, coarse to fine, and optionally `split` (train, test), `query` and `gallery`
    (true, false); `policies` mend its names.
    """
    built: Sequence[str] = ()
    if kind_of(path) == ".parquet":
        with suppress(pa.ArrowException, ValueError, OSError):  # a file that cannot be read is refused below
            built = manifests.levels_in(path)
    if built:
        if policies:
            raise UsageError(
                f"{path} is a built manifest", expected="a policy for a table of names", fix="leave --policy out"
            )
        manifest = manifests.read(path)
        return Dataset(path.stem, manifest.digest[:12], Protocol(), None, {TEST: manifest})
    table = read_sheet(path)
    if "item" not in table.column_names:  # a column of ids with another title would count as a level
        raise DataError(
            f"{path} has no column of ids",
            expected="a column item, and next to it the levels, coarse to fine",
            found=", ".join(table.column_names),
            fix="rename the column with the ids of the embeddings to item",
        )
    if "ignore" in table.column_names:
        raise DataError(f"{path} has a column ignore, as only built manifests may", fix="rename it, or leave it out")
    levels = [name for name in table.column_names if name not in NOT_LEVELS]
    listed = texts(table, "item") if policies else ()
    if policies:
        from hbench.tree.record import mend_sheet  # loads networkx

        table, mended = mend_sheet(table, levels, policies)
        levels = list(mended.table.levels)
    split = SPLIT if SPLIT in table.column_names else None
    return own_dataset(path.stem, table, path.parent, levels=levels, split=split, listed=listed)


def _rows_of(table: pa.Table, items: Sequence[str], levels: Sequence[str]) -> list[Row]:
    """Read the names of every row, coarse to fine.

    Raises DataError for a missing name and for texts that are not classes, TreeError for too many levels.
    """
    refuse_depth(len(levels))
    if not levels:
        raise DataError(
            "the table has no levels",
            expected="columns next to item, coarse to fine",
            found=", ".join(table.column_names),
        )
    rows = text_rows(table, levels)
    if incomplete := [item for item, row in zip(items, rows, strict=True) if "" in row]:
        empty = [level for level, names in zip(levels, zip(*rows, strict=True), strict=True) if "" in names]
        raise DataError(
            f"{len(incomplete)} items have no name at some level",
            expected=f"a name for each of {', '.join(levels)}",
            found=f"no name at the level {', '.join(empty)}: {examples(incomplete)}",
            fix="\n            ".join(["fill them in, or choose what they mean:", *advice(NameTable.of(levels, rows))]),
        )
    classes = [len(set(names)) for names in zip(*rows, strict=True)]
    if FEW < len(rows) == classes[-1] and min(classes) < classes[-1]:  # texts, such as captions, below classes
        raise DataError(
            f"no two items share a {levels[-1]}, so that no query has a positive at the finest level",
            expected="levels of classes, coarse to fine",
            found=f"{len(rows):,} rows, {len(rows):,} different texts in the column {levels[-1]}",
            fix=f"leave the column {levels[-1]} out, or name the levels: hbench build NAME --from FILE --levels …",
        )
    return rows


def check_columns(table: pa.Table, names: list[str]) -> None:
    """Raise UnknownName for the first of `names` that is not a column, DataError for one of images or lists."""
    columns = table.column_names
    for name in names:
        if name not in columns:
            raise UnknownName("column", name, columns)
        kind = table.schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise DataError(
                f"the column {name} holds no names",
                expected="texts or numbers",
                found=str(kind),
                fix=f"hbench build NAME --from FILE --levels … --image-column {name} takes images out of a table",
            )


def without_images(table: pa.Table, column: str) -> tuple[pa.Table, str, dict[str, bytes]]:
    """Replace the images in a column (Hugging Face's Image: bytes and path) by paths; return also the column and the files.

    The files to write are {name: bytes}; a table without images is returned unchanged.
    """
    fields = {name: table.schema.field(name).type for name in table.column_names}
    column = column if column in fields or "image" not in fields else "image"
    kind = fields.get(column)
    if kind is None or not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return table, column, {}
    values = [value or {} for value in table[column].to_pylist()]
    if missing := [row for row, value in enumerate(values) if not value.get("bytes")]:
        raise DataError(
            f"{len(missing)} rows have no image", expected="bytes in every row", found=f"rows {examples(missing)}"
        )
    files = {f"{row:08}{_suffix_of(value)}": value["bytes"] for row, value in enumerate(values)}
    return table.set_column(table.column_names.index(column), column, pa.array(list(files))), column, files


def _suffix_of(value: Mapping[str, Any]) -> str:
    """Choose the suffix of an image in a table: that of its recorded path, else that of its format."""
    suffix = PurePosixPath(str(value.get("path") or "")).suffix.lower()
    if suffix in SUFFIXES:
        return suffix
    try:
        return f".{(load_picture(io.BytesIO(value['bytes'])).format or 'png').lower()}"
    except OSError as error:
        raise DataError("the table holds an image of an unknown format", found=str(error)) from None


def refuse_name(name: str) -> None:
    """Raise UsageError for a name that a user's dataset cannot have, since it names a folder and is what `load` takes."""
    if name in specs:
        raise UsageError(f"{name} is the name of a published dataset", fix="choose another: hbench build NAME --from …")
    if not re.fullmatch(r"\w[\w.+-]*", name) or kind_of(Path(name)) in TABLES or name == "leaderboards":
        raise UsageError(
            f"{name!r} cannot be the name of a dataset",
            expected="one plain word of letters, digits, _, -, + and . (not leaderboards, not a table's file name)",
            fix="choose another: hbench build NAME --from … (--out names the folder to write)",
        )


def own_dataset(
    name: str, table: pa.Table, root: Path, *, levels: Sequence[str], item: str = "item", split: str | None = None,
    listed: Sequence[str] = (),
) -> Dataset:  # fmt: skip
    """Make a dataset of a table's rows; without a column `split` all rows are tested.

    Absolute paths below `root` become relative to it. `listed`: the items of the table before policies and copies left some
    out. Raises DataError for a missing name, TreeError for names that do not form a tree.
    """
    if item not in table.column_names:
        raise UsageError(
            f"the table has no column {item!r} for the images",
            expected=f"one of {', '.join(table.column_names)}",
            fix="name the column with --image-column",
        )
    check_columns(table, [item, *levels, *([split] if split else [])])
    root = root.absolute()
    start = f"{root.as_posix().rstrip('/')}/"
    items = [path.removeprefix(start) for path in texts(table, item)]
    dropped = sorted({path.removeprefix(start) for path in listed} - {*items})
    rows = _rows_of(table, items, levels)
    splits = np.asarray(texts(table, split) if split else [TEST] * len(items), dtype=object)
    if unknown := sorted(set(splits) - SPLITS):
        raise DataError(
            f"the column {split} has unknown values",
            expected="train, test (or query and gallery)",
            found=examples(map(repr, unknown)),
        )
    trains = splits == "train"
    if trains.all():
        raise DataError(f"the column {split} has no test rows", expected="train and test", found="train")
    masks = {"query": splits != "gallery", "gallery": splits != "query"} | _masks(table)

    def part(chosen: NDArray[np.bool_]) -> Manifest:
        of_part = {mask: values[chosen] for mask, values in masks.items()}
        return manifests.from_names([*compress(items, chosen)], [*compress(rows, chosen)], levels=levels, **of_part)

    if trains.any():
        LabelTree.from_names(rows, levels=levels)  # the parts may be trees where the whole is none
    test, train = part(~trains), part(trains) if trains.any() else None
    card = {"title": name} | ({DROPPED: dropped} if dropped else {})
    return Dataset(name, test.digest[:12], Protocol(), train, {TEST: test}, card=card).rooted(root)


def _masks(table: pa.Table) -> dict[str, NDArray[np.bool_]]:
    """The columns `query` and `gallery` of a table, where it has them; raises DataError for other texts than true and false."""
    masks = {}
    for mask in {"query", "gallery"} & {*table.column_names}:
        values = [value.lower() for value in texts(table, mask)]
        if bad := [value for value in values if value not in TRUTH]:
            raise DataError(
                f"the column {mask} is not a mask", expected="true or false", found=examples(map(repr, bad))
            )
        masks[mask] = np.asarray([TRUTH[value] for value in values], dtype=bool)
    return masks


def folder_table(
    folder: Path, *, levels: Sequence[str] = (), split_folders: bool = False, depth: int | None = None
) -> pa.Table:
    """Make a table with a row per image below `folder`: `item`, and a column per level of nested folders, "" below the last.

    `levels` names the levels, coarse to fine. With `split_folders` the outermost folder is the split. Only the first
    `depth` folders are levels.
    """
    items = sorted(images_below(folder))
    if not items:
        expected = f"files ending in {', '.join(SUFFIXES)}"
        raise DataError(f"no images below {folder}", expected=expected, found=not_taken(folder) or None)
    parts = [item.split("/")[:-1] for item in items]
    columns = {"item": pa.array(items)}
    if split_folders:
        outermost = [folders[0] if folders else "" for folders in parts]
        if other := sorted(set(outermost) - SPLITS):
            raise DataError(
                f"the outermost folders of {folder} are not a split",
                expected="train and test (or train, query and gallery)",
                found=examples(map(repr, other)),
                fix="leave --split-folders out; --split-by LEVEL makes a split",
            )
        columns[SPLIT] = pa.array(outermost)
        parts = [folders[1:] for folders in parts]
    parts = [folders[:depth] for folders in parts]
    depth = max(map(len, parts))
    levels = list(levels or default_levels(depth))
    if len(levels) != depth or depth == 0:
        raise DataError(
            f"the folders below {folder} are {depth} deep",
            expected=f"one folder per level: {', '.join(levels)}",
            found=examples(item for item, folders in zip(items, parts, strict=True) if len(folders) == depth),
            fix=f"take only the outermost folders: --depth {len(levels)}" if len(levels) < depth else None,
        )
    padded = np.asarray([folders + [""] * (depth - len(folders)) for folders in parts], dtype=object)
    return pa.table(columns | {level: pa.array(padded[:, i]) for i, level in enumerate(levels)})


def not_taken(folder: Path) -> str:
    """Name the pictures below a folder in formats that hbench does not open, by format; "" where there are none."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for item in sorted(images_below(folder, suffixes=OTHER_PICTURES)):
        by_kind[PurePosixPath(item).suffix.lower()].append(item)
    kinds = [f"{len(items):,} {kind} ({examples(items)})" for kind, items in by_kind.items()]
    how = "make PNG or JPEG of them first (Pillow opens JP2, with pillow-heif also HEIC; cairosvg draws SVG)"
    return f"not taken: {', '.join(kinds)}; {how}" if kinds else ""


@dataclass(frozen=True)
class OwnSource:
    """A CSV or parquet table, or a folder of images, and how to read it.

    `levels`: columns, coarse to fine, or names of the nested folders; also as one text with commas. `root`: the folder of the
    images, by default that of the table; `image_column`: the column of their paths below it. `depth`: the number of nested
    folders that are levels. The split is in `split_column`, or in the outermost folders (`split_folders`), or `split_by` names
    a level of which `test_fraction` of the nodes are tested, by `seed`. `policies` mend labels that do not form a tree.
    `tree`: the file of a tree whose nodes the only level names. `copies`: "keep", "first" or "merge". `background`: the colour
    under transparent images, or "none".
    """

    path: Path
    levels: Sequence[str] = ()
    root: Path | None = None
    image_column: str = "item"
    depth: int | None = None
    split_column: str | None = None
    split_folders: bool = False
    split_by: str | None = None
    test_fraction: float = 0.5
    seed: int = 0
    policies: Sequence[str] = ()
    tree: Path | None = None
    copies: str = KEEP
    background: str = "white"

    def __post_init__(self) -> None:
        """Take texts for paths and levels. Raises UnknownName for `copies`, UsageError for a background that is not a colour."""
        for field in ("path", "root", "tree"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else Path(value))
        if isinstance(self.levels, str):
            object.__setattr__(self, "levels", [level.strip() for level in self.levels.split(",") if level.strip()])
        if self.copies not in CHOICES:
            raise UnknownName("choice of copies", self.copies, CHOICES)
        try:
            if self.background != "none":
                ImageColor.getrgb(self.background)
        except ValueError:
            raise UsageError(f"{self.background!r} is not a colour", expected="white, #rrggbb, or none") from None


def build_own(
    name: str, source: OwnSource, folder: Path, on_remark: OnRemark
) -> tuple[Dataset, dict[str, bytes], Copies | None]:
    """Build the dataset of a source, to be saved in `folder`; return also the images inside the table, and the copies.

    Raises UsageError, DataError and TreeError for a source that does not make a dataset.
    """
    table, root, item, split = _read(source)
    levels = list(source.levels) or [column for column in table.column_names if column not in {"item", SPLIT}]
    refuse_depth(len(levels))
    if source.tree is not None:
        table, levels = _placed(table, levels, source.tree)
    table, item, images = without_images(table, item)
    root = folder / IMAGES if images else root
    changed: dict[str, object] = {}
    listed = texts(table, item) if item in table.column_names else ()
    if source.policies:
        from hbench.tree.record import mend_sheet  # loads networkx

        table, mended = mend_sheet(table, levels, source.policies)
        levels = list(mended.table.levels)
        for policy in source.policies:
            rows = sum(change.policy == policy for change in mended.changes)
            changed[f"changed by {policy}"] = rows
            on_remark(f"{rows:,} rows of names changed by {policy}")
    copies = None
    if {item, *levels} <= set(table.column_names):
        items = texts(table, item)
        groups = same_content(root, items, images)
        copies = None if groups is None else Copies(items, text_rows(table, levels), groups, levels[-1])
    if copies is not None:
        table = _after_copies(table, copies, levels, split=split, choice=source.copies)
        images = {image: images[image] for image in texts(table, item) if image in images}
        changed["copies"] = source.copies
    table, split = _split(table, levels, split, source, on_remark)
    try:
        dataset = own_dataset(name, table, root, levels=levels, item=item, split=split, listed=listed)
    except TreeError:  # the next line raises the problems by node, with advice
        mend_to_tree(NameTable.of(levels, text_rows(table, levels)), (), str(source.path))
        raise
    for remark in remarks_on(name_table_of(list(dataset.manifests.values()))):
        on_remark(f"note: {remark}")
    card = {**dataset.card, **changed, "background": source.background}
    return dataclasses.replace(dataset, card=card), images, copies


def _after_copies(
    table: pa.Table, copies: Copies, levels: Sequence[str], *, split: str | None, choice: str
) -> pa.Table:
    """Apply a choice of copies to a table; raises DataError where it would leave nothing of a split."""
    left = copies.applied(table, levels, choice)
    if split in table.column_names and (lost := {*table[split].to_pylist()} - {*left[split].to_pylist()}):
        raise DataError(
            f"--copies {choice} leaves nothing of {examples(sorted(lost))}, whose pictures are all in another split",
            fix="build with --copies keep, and decide by its copies.csv what to leave out",
        )
    return left


def _read(source: OwnSource) -> tuple[pa.Table, Path, str, str | None]:
    """Read the table of a source; return it, the folder of its images, and its columns of images and splits."""
    if not source.path.is_dir():
        if not source.levels and source.path.exists():
            expected = "--levels A,B,C: columns, coarse to fine"
            raise UsageError(f"the levels of {source.path} are not named", expected=expected)
        return read_sheet(source.path), source.root or source.path.parent, source.image_column, source.split_column
    table = folder_table(source.path, levels=source.levels, split_folders=source.split_folders, depth=source.depth)
    return table, source.path, "item", SPLIT if source.split_folders else None


def _placed(table: pa.Table, levels: list[str], tree: Path) -> tuple[pa.Table, list[str]]:
    """Replace the column that names a node of a tree by a column per level of the tree; return the table and those levels."""
    if len(levels) != 1:
        raise UsageError("with --tree, one column names the node of each item", expected="--levels COLUMN")
    check_columns(table, levels)
    from hbench.tree import files as tree_files  # loads networkx

    names = tree_files.read(tree)
    refuse([problem for problem in names.broken if problem.kind == "cycle"], str(tree))
    rows = paths_of_nodes(names, texts(table, levels[0]))
    table = table.drop_columns([level for level in (*levels, *names.levels) if level in table.column_names])
    for place, level in enumerate(names.levels):
        table = table.append_column(level, pa.array([row[place] if place < len(row) else "" for row in rows]))
    return table, list(names.levels)


def _split(
    table: pa.Table, levels: list[str], split: str | None, source: OwnSource, on_remark: OnRemark
) -> tuple[pa.Table, str | None]:
    """Return the table and its column of splits.

    If `split_by` names a level, the column puts every node of that level as a whole into test or into train.
    """
    by, fraction = source.split_by, source.test_fraction
    if by is None:
        if split is None and SPLIT in table.column_names and SPLIT not in levels:
            on_remark("note: the column split is not used, every row is tested; --split-column split uses it")
        return table, split
    if split is not None:
        raise UsageError("there are two splits", expected="either --split-by, or --split-column or --split-folders")
    if SPLIT in levels:
        raise UsageError(f"a level is called {SPLIT}, as the column that --split-by makes", fix="rename that column")
    if by not in levels:
        raise UnknownName("level to split by", by, levels)
    if not 0 < fraction < 1:
        raise UsageError("the test fraction is out of range", expected="more than 0, less than 1", found=f"{fraction}")
    nodes = ["/".join(names) for names in text_rows(table, levels[: levels.index(by) + 1])]
    tested = held_out(nodes, fraction=fraction, seed=source.seed)
    if not 0 < len(tested) < len(set(nodes)):
        raise UsageError(
            f"too few nodes to split by {by}", expected="some for train and some for test", found=examples(set(nodes))
        )
    splits = pa.array([TEST if node in tested else "train" for node in nodes])
    return table.drop_columns([SPLIT] if SPLIT in table.column_names else []).append_column(SPLIT, splits), SPLIT
