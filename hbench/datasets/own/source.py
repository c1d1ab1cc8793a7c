"""Builds a dataset of your own from its source: a table or a folder, and how to read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from PIL import ImageColor

from hbench.core.arguments import checked_class
from hbench.core.errors import DataError, TreeError, UnknownName, UsageError, examples
from hbench.datasets.copies import CHOICES, KEEP, MERGE, Copies, same_content
from hbench.datasets.dataset import Dataset
from hbench.datasets.manifest import name_table_of
from hbench.datasets.own import several
from hbench.datasets.own.boxes import coco_table, is_coco, with_boxes
from hbench.datasets.own.built import table_of
from hbench.datasets.own.data import (
    IMAGES,
    OnRemark,
    chosen_policies,
    mended_by,
    own_dataset,
    without_images,
)
from hbench.datasets.own.decisions import apply_decisions, in_words
from hbench.datasets.own.folder import SPLIT, folder_table
from hbench.datasets.own.in_tree import TreeFile, with_nodes_of_tree
from hbench.datasets.own.reading import check_columns, own_table_of
from hbench.datasets.own.splits import UNKNOWN_SPLIT, UNNAMED_SPLIT, split
from hbench.datasets.own.table import OwnTable
from hbench.sheets import sheet
from hbench.sheets.columns import Chosen, TableColumns, columns_of
from hbench.tree import refuse_depth
from hbench.tree.advice import mend_to_tree
from hbench.tree.names import NameTable, remarks_on

if TYPE_CHECKING:
    import pandas as pd

# choices about a table or a folder, which a dataset that is built does not leave
OF_TABLES = (
    "levels", "image_column", "depth", "split_folders", "split_column", "tree", "separator",
    "taxonomy", "edges", "several", "boxes",
)  # fmt: skip


@checked_class
@dataclass(frozen=True)
class OwnSource:
    """A CSV or parquet table, a DataFrame, a folder of images, or a dataset that is built, and how
    to read it.

    Args:
        path: the table, also as a pandas DataFrame, or the folder; or the name or folder of a
            dataset that is built, whose items with their levels and splits are taken for a table.
        levels: columns, coarse to fine, or names of the nested folders; also one text with commas.
        root: the folder of the images. Default: that of the table, of a DataFrame the one in which
            you are.
        image_column: the column of their paths below it, or of ids. Default: the one that looks so.
        depth: the number of nested folders that are levels. Default: all.
        split_column: the column that says train or test.
        split_folders: whether the outermost folders are train and test. Default: no.
        split_by: a level, of which `test_fraction` of the nodes are tested.
        test_fraction: more than 0, less than 1. Default: 0.5.
        seed: of `split_by`. Default: 0.
        policies: mend labels that do not form a tree.
        tree: the file of a tree, whose nodes the only level names.
        copies: of pictures that are there several times: "keep" (default), "first" or "merge".
        background: the colour under transparent images, or "none". Default: "white".
        separator: what stands between the names of a path in a cell.
        taxonomy: a table of taxa, whose ids a column holds.
        edges: the columns of a tree that is a list of edges, parent and child.
        several: whether an item may have several paths: in lists, in a cell between ; or |, in
            several rows, or as a node with several parents. Default: no.
        decisions: what was decided about labels, decisions.csv of an audit (docs/audit.md).
        boxes: columns of boxes, which are cut from the pictures: the corners x1, y1, x2, y2, or x,
            y, width, height, or one of COCO's bbox. Default: whole pictures. Annotations of COCO
            (.json) have theirs.

    Raises:
        UnknownName: a choice of `copies` that does not exist.
        UsageError: a background that is no colour.
    """

    path: Path | pd.DataFrame
    levels: str | Sequence[str] = ()
    root: Path | None = None
    image_column: str | None = None
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
    separator: str | None = None
    taxonomy: Path | None = None
    edges: tuple[str, ...] = ()
    several: bool = False
    decisions: Path | None = None
    boxes: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        """Take texts for paths and levels. Raises UnknownName for `copies`, UsageError for numbers
        out of range, choices that exclude each other, and a background that is not a colour.
        """
        self._take_paths()
        for field in ("levels", "boxes"):
            value = getattr(self, field)
            if isinstance(value, str):
                parts = [part.strip() for part in value.split(",") if part.strip()]
                # the record is frozen: only this way can a field be set
                object.__setattr__(self, field, parts)

        depth = 1 if self.depth is None else self.depth
        if not 0 < self.test_fraction < 1 or self.seed < 0 or depth < 1:
            raise UsageError(
                "the settings of the split or the folder are out of range",
                expected="test_fraction between 0 and 1, seed of 0 or more, depth of 1 or more",
                found=f"test_fraction {self.test_fraction}, seed {self.seed}, depth {self.depth}",
            )
        if self.copies not in CHOICES:
            raise UnknownName("choice of copies", self.copies, CHOICES)
        if self.several and self.decisions is not None:
            raise UsageError(
                "decisions are about items of one path", fix="leave --several or --decisions out"
            )
        if self.several and self.copies == MERGE:
            raise UsageError(
                "classes are not merged where items have several paths",
                expected="--copies keep or first",
            )

        try:
            if self.background != "none":
                ImageColor.getrgb(self.background)
        except ValueError:
            raise UsageError(
                f"{self.background!r} is not a colour", expected="white, #rrggbb, or none"
            ) from None

    def _take_paths(self) -> None:
        """Take texts for paths. Raises UsageError for a source that is neither a path nor a
        DataFrame, which is told by its `iloc` so that pandas need not be imported."""
        if not (hasattr(self.path, "iloc") or isinstance(self.path, str | PathLike)):
            raise UsageError("path must be a path or a DataFrame", found=type(self.path).__name__)
        for field in ("path", "root", "tree", "taxonomy", "decisions"):
            value = getattr(self, field)
            if isinstance(value, str | PathLike):
                object.__setattr__(self, field, Path(value))

    @property
    def name(self) -> str:
        """What messages call the source: its path, or "the DataFrame"."""
        return str(self.path) if isinstance(self.path, Path) else sheet.FRAME

    @property
    def folder(self) -> Path | None:
        """The folder of images that the source is; None for a table."""
        return self.path if isinstance(self.path, Path) and self.path.is_dir() else None


def build_own(
    name: str,
    source: OwnSource,
    folder: Path,
    on_remark: OnRemark,
    *,
    built: Dataset | None = None,
) -> tuple[Dataset, dict[str, bytes], Copies | None]:
    """Build the dataset of a source, to be saved in `folder`; return also the images inside the
    table, and the copies. `built`: the dataset that the source's path names, if it names one.

    Raises UsageError, DataError and TreeError for a source that does not make a dataset.
    """
    # the table, the folder of the pictures, and the bytes of pictures inside the table
    own, root, images = _read_table(source, built)
    root = folder / IMAGES if images else root
    understood = own.understood
    on_remark(str(understood))
    # before any are left out: files of items that are used for nothing are not strange
    listed = own.items

    changed: dict[str, object] = {}
    if source.policies:
        own, numbers = _mend_by_policies(own, source.policies, on_remark)
        changed |= numbers
    if source.decisions is not None:
        own, numbers = apply_decisions(own, source.decisions, root)
        on_remark(in_words(numbers))
        changed |= numbers
    # a row per path becomes an item with several paths
    if source.several:
        own = own.folded()
    # pictures that are there several times, byte for byte
    groups = same_content(root, own.items, images)
    copies = None if groups is None else Copies(own.items, own.rows, groups, own.columns.levels[-1])
    if copies is not None:
        own = _after_copies(own, copies, choice=source.copies)
        images = {image: images[image] for image in own.items if image in images}
        changed["copies"] = source.copies

    own = split(own, source.split_by, source.test_fraction, seed=source.seed, on_remark=on_remark)
    try:
        dataset = own_dataset(name, own, root, listed=listed)
    except TreeError:  # the next line raises the problems by node, with advice
        mend_to_tree(NameTable.of(own.columns.levels, own.rows), (), source.name)
        raise

    for remark in remarks_on(name_table_of(list(dataset.manifests.values()))):
        on_remark(f"note: {remark}")
    card = {
        **dataset.card,
        **own.origin,
        **changed,
        "background": source.background,
        "read": understood.document(),
    }

    return dataclasses.replace(dataset, card=card, read=understood), images, copies


def _mend_by_policies(
    own: OwnTable, policies: Sequence[str], on_remark: OnRemark
) -> tuple[OwnTable, dict[str, int]]:
    """Apply policies to a table; remark on, and return, how many rows of names each changed, by
    "changed by POLICY", for the dataset's card."""
    chosen, facts = chosen_policies(own, policies)
    for fact in facts:
        on_remark(fact)
    own, mended = mended_by(own, chosen)
    changed = {}
    for policy in chosen:
        rows = sum(change.policy == policy for change in mended.changes)
        changed[f"changed by {policy}"] = rows
        on_remark(f"{rows:,} rows of names changed by {policy}")
    return own, changed


def _after_copies(own: OwnTable, copies: Copies, *, choice: str) -> OwnTable:
    """Apply a choice of copies to a table; raises DataError where it would leave nothing of a
    split.
    """
    left = dataclasses.replace(own, table=copies.applied(own.table, own.columns.levels, choice))
    if own.columns.split is not None and (lost := {*own.splits} - {*left.splits}):
        raise DataError(
            f"--copies {choice} leaves nothing of {examples(sorted(lost))}, whose pictures are all "
            "in another split",
            fix="build with --copies keep, and decide by its copies.csv what to leave out",
        )
    return left


def _read_table(
    source: OwnSource, built: Dataset | None
) -> tuple[OwnTable, Path, dict[str, bytes]]:
    """Read the table of a source, be it a dataset that is built, a folder of images or a file;
    return it, the folder of its images, and the images that are inside of it, bytes by the name of
    the file that each is to get.
    """
    if built is not None:
        _refuse_columns(source, built.name)
        _refuse_second_split(source, built)
        return table_of(built), source.root or built.root or Path(), {}
    if source.folder is not None:
        return _with_tree_of_source(_of_folder(source, source.folder), source), source.folder, {}

    # the table, and the folder in which its file lies
    found, beside = _table_of(source)
    table = found.table
    table, item, images = without_images(table, source.image_column)
    levels = tuple(source.levels)
    # sentences for the user of how the file was read
    facts: tuple[str, ...] = (found.written,) if found.written else ()
    if source.boxes:
        table, item, of_boxes = _with_boxes_as_items(table, item, source)
        facts += (of_boxes,)
    if source.split_column is not None:  # it must be there, and hold no images
        check_columns(table, [source.split_column])
    chosen = Chosen(
        item,
        levels,
        source.separator,
        taxonomy=source.taxonomy,
        several=source.several,
        split=source.split_column,
    )
    # before the table is read as one of levels: its cells would be refused for another reason
    if source.tree is not None and len(source.levels) != 1:
        raise UsageError(
            "with --tree, one column names the node of each item", expected="--levels COLUMN"
        )

    if source.tree is not None:
        # A cell holds the name of a node of the tree, or the path to it, and the tree has its
        # levels: so cells are not cut into levels here, only into the several nodes of an item.
        if source.several:
            table = several.without_marks(
                several.without_lists(table, levels), levels, source.separator
            )
        own = OwnTable(found.name, table, columns_of(table, chosen), facts)
    else:
        # what policies will mend is not refused or cut here
        own = own_table_of(found.name, table, chosen, facts, as_it_is=bool(source.policies))

    own = _with_split(own, source.split_column)
    return _with_tree_of_source(own, source), source.root or beside, images


def _table_of(source: OwnSource) -> tuple[sheet.Sheet, Path]:
    """The table of a source, and the folder in which its images are unless the source says
    otherwise: that of the file, or of a DataFrame the one in which the user is."""
    if not isinstance(source.path, Path):
        return sheet.of_frame(source.path), Path()
    found = coco_table(source.path) if is_coco(source.path) else sheet.read(source.path)
    return found, source.path.parent


def _refuse_columns(source: OwnSource, dataset: str) -> None:
    """Raise UsageError for choices about a table or a folder, of a dataset that is built."""
    if given := [name for name in OF_TABLES if getattr(source, name)]:
        raise UsageError(
            f"{dataset} is a dataset that is built, with levels and splits of its own",
            expected="decisions, policies, or a choice of copies",
            found=", ".join(given).replace("_", " "),
            fix="leave the others out",
        )


def _refuse_second_split(source: OwnSource, built: Dataset) -> None:
    """Raise UsageError where a dataset that is built, whose items have their splits, is to be dealt
    anew."""
    if source.split_by is not None:
        has = "a training and a test" if built.train is not None else "a test of all items"
        raise UsageError(
            f"{built.name} is a dataset that is built, and has its split already",
            expected="--from it without --split-by",
            found=f"--split-by {source.split_by}; {built.name} has {has}",
            fix="leave --split-by out; to split otherwise, build from its table or folder of "
            "images again, with --split-by",
        )


def _of_folder(source: OwnSource, folder: Path) -> OwnTable:
    """The table of a folder of images, whose nested folders are the levels."""
    table = folder_table(
        folder, levels=source.levels, split_folders=source.split_folders, depth=source.depth
    )
    levels = tuple(name for name in table.column_names if name not in {"item", SPLIT})
    columns = TableColumns("item", levels, SPLIT if source.split_folders else None)
    return OwnTable(folder.name or str(folder), table, columns)


def _with_boxes_as_items(
    table: pa.Table, item: str | None, source: OwnSource
) -> tuple[pa.Table, str, str]:
    """Turn boxes of pictures into items. Return the table, the column of its items (that of the
    pictures, which now names a box of a picture in every row), and in words what the boxes were
    taken from. `item`: the column of the pictures, None to find it among the columns that hold no
    boxes."""
    others = [name for name in table.column_names if name not in source.boxes]
    path = item or columns_of(table.select(others), Chosen(None, tuple(source.levels))).item
    if path is None:
        raise UsageError("the pictures of the boxes are not known", fix="name their column: --item")
    table, said = with_boxes(table, path, source.boxes)
    return table, path, said


def _with_split(own: OwnTable, split: str | None) -> OwnTable:
    """The table of which only a column that the user names (`split`) is taken for the split: one
    that merely looks so is left out, and said."""
    left_out = dict(own.columns.left_out)
    left_out.pop(split or "", None)
    if own.columns.split is not None and split is None:
        left_out[own.columns.split] = UNKNOWN_SPLIT if own.unknown_splits else UNNAMED_SPLIT
    columns = dataclasses.replace(own.columns, split=split, left_out=left_out)
    return dataclasses.replace(own, columns=columns)


def _with_tree_of_source(own: OwnTable, source: OwnSource) -> OwnTable:
    """The table with a column per level of the tree that its source names, if it names one."""
    if source.tree is None:
        refuse_depth(len(own.columns.levels))
        return own
    tree = TreeFile(
        source.tree, tuple(source.edges), source.separator, source.policies, source.several
    )
    return with_nodes_of_tree(own, tree)
