"""Builds a dataset of your own from its source: a table or a folder, with the choices of how to
read it."""

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

# choices about a table or a folder, which do not apply to a built dataset
OF_TABLES = (
    "levels", "image_column", "depth", "split_folders", "split_column", "tree", "separator",
    "taxonomy", "edges", "several", "boxes",
)  # fmt: skip


@checked_class
@dataclass(frozen=True)
class OwnSource:
    """A CSV or parquet table, a DataFrame, a folder of images, or a built dataset, and how to read
    it.

    Args:
        path: the table, also as a pandas DataFrame, or the folder; or the name or folder of a
            built dataset, whose items with their levels and splits are read like a table.
        levels: columns, coarse to fine, or names of the nested folders; also one text with commas.
        root: the folder of the images. Default: the folder of the table; for a DataFrame, the
            current folder.
        image_column: the column of paths below `root`, or of ids. Default: it is guessed.
        depth: the number of nested folders that are levels. Default: all.
        split_column: the column that says train or test.
        split_folders: whether the outermost folders are train and test. Default: no.
        split_by: a level; the share `test_fraction` of its nodes is for testing, the rest for
            training.
        test_fraction: more than 0, less than 1. Default: 0.5.
        seed: of `split_by`. Default: 0.
        policies: mend labels that do not form a tree.
        tree: the file of a tree; the only level has the node of each item.
        copies: what happens to pictures that occur several times: "keep" (default), "first" or
            "merge".
        background: the colour under transparent images, or "none". Default: "white".
        separator: the text between the names of a path in a cell.
        taxonomy: a table of taxa; a column of the table holds their ids.
        edges: the columns parent and child of a `tree` that is a list of edges.
        several: whether an item may have several paths: in lists, in a cell between ; or |, in
            several rows, or as a node with several parents. Default: no.
        decisions: the decisions.csv of an audit, decisions about labels (docs/audit.md).
        boxes: columns of boxes, which are cut out of the pictures: the corners x1, y1, x2, y2, or
            x, y, width, height, or one column like COCO's bbox. Default: whole pictures. COCO's
            annotations (.json) need no such choice.

    Raises:
        UnknownName: the choice of `copies` does not exist.
        UsageError: the background is not a colour, or choices exclude each other.
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
        """Convert texts to paths and lists of names, and check the choices. Raises UnknownName for
        `copies`; UsageError for numbers out of range, choices that exclude each other, and a
        background that is not a colour."""
        self._take_paths()
        # one text, "a, b", is two names
        for field in ("levels", "boxes"):
            value = getattr(self, field)
            if isinstance(value, str):
                parts = [part.strip() for part in value.split(",") if part.strip()]
                # the dataclass is frozen, so a field can only be set in this way
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
        """Convert texts to paths. Raises UsageError for a source that is neither a path nor a
        DataFrame. A DataFrame is recognised by its `iloc`, so that pandas need not be imported."""
        if not (hasattr(self.path, "iloc") or isinstance(self.path, str | PathLike)):
            raise UsageError("path must be a path or a DataFrame", found=type(self.path).__name__)
        for field in ("path", "root", "tree", "taxonomy", "decisions"):
            value = getattr(self, field)
            if isinstance(value, str | PathLike):
                object.__setattr__(self, field, Path(value))

    @property
    def name(self) -> str:
        """How messages call the source: its path, or "the DataFrame"."""
        return str(self.path) if isinstance(self.path, Path) else sheet.FRAME

    @property
    def folder(self) -> Path | None:
        """The source's folder of images; None if the source is not a folder."""
        return self.path if isinstance(self.path, Path) and self.path.is_dir() else None


def build_own(
    name: str,
    source: OwnSource,
    folder: Path,
    on_remark: OnRemark,
    *,
    built: Dataset | None = None,
) -> tuple[Dataset, dict[str, bytes], Copies | None]:
    """Build the dataset of a source.

    Args:
        name: of the dataset.
        source: the source.
        folder: where the caller will save the dataset.
        on_remark: is called with every remark.
        built: the dataset, if the source is one that is built already; None for other sources.

    Returns:
        The dataset; the images that were inside the table, {name: bytes}; and the copies, None if
        there are none.

    Raises UsageError, DataError and TreeError if the source does not make a dataset.
    """
    # the table, the folder of its images, and {item: bytes} of images that were inside the table
    own, root, images = _read_table(source, built)
    # the caller writes those images into the dataset's folder
    root = folder / IMAGES if images else root
    understood = own.understood
    on_remark(str(understood))
    # All items, before policies, decisions and copies leave some out. An embedding file may have
    # vectors of all of them, so the card lists those that end up in no split.
    listed = own.items

    # for the card: how many rows policies and decisions changed, and the choice of copies
    changed: dict[str, object] = {}
    if source.policies:
        own, numbers = _mend_by_policies(own, source.policies, on_remark)
        changed |= numbers
    if source.decisions is not None:
        own, numbers = apply_decisions(own, source.decisions, root)
        on_remark(in_words(numbers))
        changed |= numbers
    if source.several:  # from a row per path to a row per item
        own = own.folded()
    # (N,): the group of pictures with the same bytes, -1 for none; None if there are no copies
    groups = same_content(root, own.items, images)
    copies = None if groups is None else Copies(own.items, own.rows, groups, own.columns.levels[-1])
    if copies is not None:
        own = _after_copies(own, copies, choice=source.copies)
        images = {image: images[image] for image in own.items if image in images}
        changed["copies"] = source.copies

    own = split(own, source.split_by, source.test_fraction, seed=source.seed, on_remark=on_remark)
    try:
        dataset = own_dataset(name, own, root, listed=listed)
    except TreeError:
        # with no policies to apply, `()`, this call usually raises a better TreeError, which lists
        # the problems by node, with advice
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
    """Apply policies to a table. Return it, and how many rows of names each policy changed,
    {"changed by POLICY": number}, for the dataset's card. Remarks say the same, and which policies
    "recommended" stands for."""
    # "recommended" is replaced by the policies that it stands for; a fact names them
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
    """Apply a choice of what becomes of copies to a table: "keep", "first" (only the first item of
    each picture stays) or "merge" (classes with exactly the same pictures become one, and one item
    of each picture stays). Raises DataError if nothing would be left of a split."""
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
    """Read the table of a source: of a built dataset, a folder of images, a file or a DataFrame.

    Returns the table; the folder of its images; and the images inside the table, {name of the file
    to write: bytes}.
    """
    if built is not None:
        _refuse_columns(source, built.name)
        _refuse_second_split(source, built)
        return table_of(built), source.root or built.root or Path(), {}
    if source.folder is not None:
        return _with_tree_of_source(_of_folder(source, source.folder), source), source.folder, {}

    # a Sheet, which says how its file is `written`, and its folder; `source.root` overrides that
    found, beside = _table_of(source)
    table = found.table
    # `item`: the column that was looked at for images, else None; if there are images inside, it
    # has their new names, which are the items' ids
    table, item, images = without_images(table, source.image_column)
    levels = tuple(source.levels)
    # for the user: how the file was read
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
    if source.tree is not None:
        # checked here, since reading several columns as levels could raise a less helpful error
        if len(source.levels) != 1:
            raise UsageError(
                "with --tree, one column names the node of each item", expected="--levels COLUMN"
            )
        # A cell has the name of a node of the tree, or the path to it: it is not split into levels,
        # but, if an item has several nodes (a list, or a mark between names), into a row for each
        if source.several:
            table = several.without_marks(
                several.without_lists(table, levels), levels, source.separator
            )
        own = OwnTable(
            source=found.name, table=table, columns=columns_of(table, chosen), facts=facts
        )
    else:
        # paths that policies will mend are left unchanged here
        own = own_table_of(found.name, table, chosen, facts, as_it_is=bool(source.policies))

    own = _with_split(own, source.split_column)
    return _with_tree_of_source(own, source), source.root or beside, images


def _table_of(source: OwnSource) -> tuple[sheet.Sheet, Path]:
    """Read the table of a source that is a file or a DataFrame. Return also the default folder of
    its images: that of the file, or, for a DataFrame, the current folder."""
    if not isinstance(source.path, Path):
        return sheet.of_frame(source.path), Path()
    found = coco_table(source.path) if is_coco(source.path) else sheet.read(source.path)
    return found, source.path.parent


def _refuse_columns(source: OwnSource, dataset: str) -> None:
    """Raise UsageError if a source that is a built dataset has choices about tables or folders.
    `dataset`: its name."""
    if given := [name for name in OF_TABLES if getattr(source, name)]:
        raise UsageError(
            f"{dataset} is a dataset that is built, with levels and splits of its own",
            expected="decisions, policies, or a choice of copies",
            found=", ".join(given).replace("_", " "),
            fix="leave the others out",
        )


def _refuse_second_split(source: OwnSource, built: Dataset) -> None:
    """Raise UsageError if --split-by would split a built dataset again, which has its splits."""
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
    """Make the table of a folder of images, whose nested folders are the levels."""
    table = folder_table(
        folder, levels=source.levels, split_folders=source.split_folders, depth=source.depth
    )
    levels = tuple(name for name in table.column_names if name not in {"item", SPLIT})
    columns = TableColumns(
        item="item", levels=levels, split=SPLIT if source.split_folders else None
    )
    return OwnTable(folder.name or str(folder), table, columns)


def _with_boxes_as_items(
    table: pa.Table, item: str | None, source: OwnSource
) -> tuple[pa.Table, str, str]:
    """Turn boxes of pictures into items. `source.boxes` are the columns of the boxes; `item` is the
    column of the pictures' paths, None to find it among the other columns.

    Returns the table, the column of its items (that of the pictures, whose cells now name boxes),
    and a sentence on how the boxes were read.
    """
    others = [name for name in table.column_names if name not in source.boxes]
    path = item or columns_of(table.select(others), Chosen(None, tuple(source.levels))).item
    if path is None:
        raise UsageError("the pictures of the boxes are not known", fix="name their column: --item")
    table, said = with_boxes(table, path, source.boxes)
    return table, path, said


def _with_split(own: OwnTable, split: str | None) -> OwnTable:
    """Return the table with the column `split`, which the user named, as its split; None: the user
    named none, and the table has no split. Then a column that looks like a split is left out, with
    the reason. (If the user named one, `columns_of` looked for no other.)"""
    left_out = dict(own.columns.left_out)  # {column that is not used: why}
    left_out.pop(split or "", None)  # the column that the user named is used
    if own.columns.split is not None and split is None:
        # a column with words such as "fold3", which name no split, or one that could be used
        left_out[own.columns.split] = UNKNOWN_SPLIT if own.unknown_splits else UNNAMED_SPLIT
    columns = dataclasses.replace(own.columns, split=split, left_out=left_out)
    return dataclasses.replace(own, columns=columns)


def _with_tree_of_source(own: OwnTable, source: OwnSource) -> OwnTable:
    """Return the table with a column per level of the source's tree. Without a tree, the table is
    returned unchanged; TreeError is raised if it has too many levels."""
    if source.tree is None:
        refuse_depth(len(own.columns.levels))
        return own
    tree = TreeFile(
        path=source.tree,
        edges=tuple(source.edges),
        separator=source.separator,
        policies=source.policies,
        several=source.several,
    )
    return with_nodes_of_tree(own, tree)
