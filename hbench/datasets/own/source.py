"""Turns a user's table or folder of images into a dataset: levels, tree, policies, copies and splits."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from PIL import ImageColor

from hbench.core.errors import TreeError, UnknownName, UsageError
from hbench.core.tables import read_sheet, text_rows, texts
from hbench.datasets.dataset import Dataset
from hbench.datasets.manifest import name_table_of
from hbench.datasets.own.copies import CHOICES, KEEP, Copies, copies_in
from hbench.datasets.own_data import IMAGES, SPLIT, check_columns, dealt, folder_table, own_dataset, without_images
from hbench.tree import files as tree_files
from hbench.tree import refuse_depth
from hbench.tree.names import NameTable, paths_of_nodes, remarks_on
from hbench.tree.policies import mend_to_tree
from hbench.tree.record import mend_sheet

OnRemark = Callable[[str], None]


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
    levels = _levels(table, source)
    if source.tree is not None:
        table, levels = _placed(table, levels, source.tree)
    table, item, images = without_images(table, item)
    root = folder / IMAGES if images else root
    changed: dict[str, object] = {}
    if source.policies:
        table, mended = mend_sheet(table, levels, source.policies)
        levels = list(mended.table.levels)
        for policy in source.policies:
            rows = sum(change.policy == policy for change in mended.changes)
            changed[f"changed by {policy}"] = rows
            on_remark(f"{rows:,} rows of names changed by {policy}")
    copies = None
    if {item, *levels} <= set(table.column_names):
        copies = copies_in(table, root, item=item, levels=levels, images=images)
    if copies is not None:
        table = copies.applied(table, levels, source.copies)
        images = {image: images[image] for image in texts(table, item) if image in images}
        changed["copies"] = source.copies
    table, split = _split(table, levels, split, source, on_remark)
    try:
        dataset = own_dataset(name, table, root, levels=levels, item=item, split=split)
    except TreeError:
        # this raises the problems by node, with advice
        mend_to_tree(NameTable.of(levels, text_rows(table, levels)), (), str(source.path))
        raise
    for remark in remarks_on(name_table_of(list(dataset.manifests.values()))):
        on_remark(f"note: {remark}")
    card = {**dataset.card, **changed, "background": source.background}
    return dataclasses.replace(dataset, card=card), images, copies


def _read(source: OwnSource) -> tuple[pa.Table, Path, str, str | None]:
    """Read the table of a source; return it, the folder of its images, and its columns of images and splits."""
    if not source.path.is_dir():
        return read_sheet(source.path), source.root or source.path.parent, source.image_column, source.split_column
    table = folder_table(source.path, levels=source.levels, split_folders=source.split_folders, depth=source.depth)
    return table, source.path, "item", SPLIT if source.split_folders else None


def _placed(table: pa.Table, levels: list[str], tree: Path) -> tuple[pa.Table, list[str]]:
    """Replace the column that names a node of a tree by a column per level of the tree; return the table and those levels."""
    if len(levels) != 1:
        raise UsageError("with --tree, one column names the node of each item", expected="--levels COLUMN")
    check_columns(table, levels)
    names = tree_files.read(tree)
    rows = paths_of_nodes(names, texts(table, levels[0]))
    table = table.drop_columns([level for level in (*levels, *names.levels) if level in table.column_names])
    for place, level in enumerate(names.levels):
        table = table.append_column(level, pa.array([row[place] if place < len(row) else "" for row in rows]))
    return table, list(names.levels)


def _levels(table: pa.Table, source: OwnSource) -> list[str]:
    if not source.levels and not source.path.is_dir():
        raise UsageError(
            f"the levels of {source.path} are not named", expected="--levels A,B,C: columns, coarse to fine"
        )
    chosen = list(source.levels) or [column for column in table.column_names if column not in {"item", SPLIT}]
    refuse_depth(len(chosen))
    return chosen


def _split(
    table: pa.Table, levels: list[str], split: str | None, source: OwnSource, on_remark: OnRemark
) -> tuple[pa.Table, str | None]:
    """Return the table and its column of splits, which is made here if `split_by` names a level."""
    if source.split_by is not None and split is not None:
        raise UsageError("there are two splits", expected="either --split-by, or --split-column or --split-folders")
    if source.split_by is not None:
        fraction = source.test_fraction
        return dealt(table, by=source.split_by, levels=levels, fraction=fraction, seed=source.seed), SPLIT
    if split is None and SPLIT in table.column_names and SPLIT not in levels:
        on_remark("note: the column split is not used, every row is tested; --split-column split uses it")
    return table, split
