"""Turns a user's table into a dataset: applies policies, and makes its tree and its splits.

A table has one row per image: its path, its names, coarse to fine, and perhaps its split. The table
of a folder of images has the nested folders as levels.
"""

import dataclasses
import io
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import DataError, TreeError, UsageError, examples
from hbench.core.text import counted
from hbench.core.untrusted import load_picture
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import DROPPED, TEST, Dataset, Protocol
from hbench.datasets.manifest import Manifest
from hbench.datasets.own.reading import read_own_table
from hbench.datasets.own.table import OwnTable
from hbench.datasets.spec import specs
from hbench.sheets.columns import Chosen
from hbench.sheets.dialect import suffix_of
from hbench.sheets.rows import MAX_SMALL_TABLE, Row
from hbench.sheets.sheet import SUFFIXES as TABLES
from hbench.sheets.words import PICTURES, SPLIT_WORDS, UNUSED
from hbench.tree import LabelTree, refuse_depth
from hbench.tree.advice import advice, effect, mend_to_tree, recommended
from hbench.tree.names import NameTable
from hbench.tree.partial import NO_CLASS
from hbench.tree.policies import RECOMMENDED, Mended

OnRemark = Callable[[str], None]
IMAGES = "images"  # a folder of the dataset, for the images that were inside its table


def read_single(path: Path, policies: Sequence[str] = (), chosen: Chosen | None = None) -> Dataset:
    """Read a dataset from one file: a parquet manifest, whose metadata name its levels, or a table.

    A table has a row per item: its id, its levels, and perhaps its split (train, test) and whether
    it is a query and in the gallery.

    Args:
        path: the file.
        policies: the names of the policies that mend a table whose names form no tree. They may
            leave items out.
        chosen: what the user said about the columns of a table; None if nothing.
    """
    # the levels that a built manifest names in its metadata; empty for a table
    built: Sequence[str] = ()
    if suffix_of(path) == ".parquet":
        # a file that cannot be read raises an error below
        with suppress(pa.ArrowException, ValueError, OSError):
            built = manifests.levels_in(path)

    if built:
        if policies or chosen:
            raise UsageError(
                f"{path} is a built manifest",
                expected="a policy, or columns, for a table of names",
                fix="leave --policy, --item and --levels out",
            )
        manifest = manifests.read(path)
        # a single manifest is a test; its version is its digest
        return Dataset(
            name=path.stem,
            version=manifest.digest[:12],
            protocol=Protocol(),
            train=None,
            tests={TEST: manifest},
        )

    # with policies, paths that end early stay as they are, since a policy mends them
    own = read_own_table(path, chosen or Chosen(), as_it_is=bool(policies))
    # the column would hold ignore groups, which would be taken for names of classes
    if "ignore" in own.columns.levels:
        raise DataError(
            f"{path} has a column ignore, as only built manifests may",
            fix="rename it, or leave it out",
        )

    refuse_depth(len(own.columns.levels))
    understood = own.understood
    # The items before policies leave some out: an embedding file may have all of these, and none of
    # them is unknown. Without policies none is left out, so none is listed.
    listed = own.items if policies else ()
    if policies:
        policies, facts = chosen_policies(own, policies)
        understood = dataclasses.replace(understood, facts=(*understood.facts, *facts))
        own, _ = mended_by(own, policies)
    if chosen is not None and chosen.several:  # a row per path becomes a row per item
        own = own.folded()
    try:
        data = own_dataset(path.stem, own, path.parent, listed=listed)
    except TreeError:  # the next line raises a better error: the problems by node, with advice
        mend_to_tree(NameTable.of(own.columns.levels, own.rows), (), path.name)
        raise
    return dataclasses.replace(data, read=understood)


def chosen_policies(
    own: OwnTable, policies: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the policies to apply to a table, where "recommended" is replaced by the policies that
    it stands for. The second result has one sentence, with these policies and what they do to the
    names; it is empty if "recommended" was not chosen.
    """
    if RECOMMENDED not in policies:
        return tuple(policies), ()
    # distractors have no names to mend
    names = NameTable.of(own.columns.levels, own.of_rows(~own.distractors).rows)
    chosen = recommended(names, policies)
    what = effect(names, chosen) if chosen else "nothing is to be mended"
    return chosen, (f"recommended: {' '.join(chosen) or 'no policy'} ({what})",)


def mended_by(own: OwnTable, policies: Sequence[str]) -> tuple[OwnTable, Mended]:
    """Apply policies to a table; return it, and the mended names with the changes. Policies may
    change the levels, too. Distractors have no names to mend: they follow after the other rows,
    with empty names at the new levels."""
    from hbench.tree.record import mend_sheet  # loads networkx

    named = own.of_rows(~own.distractors)
    table, mended = mend_sheet(named.table, own.columns.levels, policies)
    levels = mended.table.levels
    if own.distractors.any():
        rest = own.of_rows(own.distractors).with_levels(
            levels, [("",) * len(levels)] * int(own.distractors.sum())
        )
        table = pa.concat_tables(
            [table, rest.table.select(table.column_names)], promote_options="permissive"
        )
    return dataclasses.replace(
        own, table=table, columns=dataclasses.replace(own.columns, levels=tuple(levels))
    ), mended


def _rows_of(own: OwnTable) -> list[Row]:
    """Return the names of each row, coarse to fine. A distractor, whose cells are empty, is called
    NO_CLASS at every level.

    Raises DataError for a missing name, and for a finest level whose texts are not classes.
    """
    levels = own.columns.levels
    rows = own.rows
    if own.distractors.any():
        nothing = (NO_CLASS,) * len(levels)
        named = zip(rows, own.distractors, strict=True)
        rows = [nothing if is_distractor else row for row, is_distractor in named]

    _refuse_gaps(own, rows)
    # for each level, how many different names its column has
    classes = [pc.count_distinct(own.text(level)).as_py() for level in levels]
    # if each item has another text at the finest level, but items share coarser classes, the texts
    # are captions or the like; in a small table classes of one item are plausible
    if MAX_SMALL_TABLE < len(rows) == classes[-1] and min(classes) < classes[-1]:
        raise DataError(
            f"no two items share a name of the level {levels[-1]}, so that no query has a positive "
            "at the finest level",
            expected="levels of classes, coarse to fine",
            found=f"{len(rows):,} rows, {len(rows):,} different texts in the column {levels[-1]}",
            fix=f"name the levels without it: --levels {shlex.quote(','.join(levels[:-1]))} (of "
            "paths in one column, take the last name out of the file)",
        )

    return rows


def _refuse_gaps(own: OwnTable, rows: Sequence[Row]) -> None:
    """Raise DataError if an item has no name at some level, with advice. `rows`: the names of each
    item; a distractor is called NO_CLASS at every level, so it has no gap."""
    levels = own.columns.levels
    # Checking whole columns first is quick. Empty names that it finds may be those of distractors,
    # which are no gaps, so `rows` decides below. `more_paths` has the further paths of items with
    # several.
    has_gaps = any(pc.any(pc.equal(own.text(level), "")).as_py() for level in levels)
    has_gaps |= any("" in row for _, row in own.more_paths)
    if not has_gaps:
        return

    items = own.items
    of_items: list[tuple[str, Row]] = [*zip(items, rows, strict=True)]
    of_items += [(items[place], row) for place, row in own.more_paths]
    incomplete = [item for item, row in of_items if "" in row]
    if not incomplete:
        return

    all_rows = [row for _, row in of_items]
    empty = [
        level
        for level, names in zip(levels, zip(*all_rows, strict=True), strict=True)
        if "" in names
    ]
    # advice is about policies, which do not apply to distractors
    classed = [row for row in all_rows if row[0] != NO_CLASS]
    # each piece of advice has its own line, indented like the first line of the fix
    raise DataError(
        f"{own.source} has {counted(len(incomplete), 'item')} without a name at some level",
        expected=f"a name for each of {', '.join(levels)}",
        found=f"no name at the level {', '.join(empty)}: {examples(incomplete)}",
        fix="\n            ".join(
            ["fill them in, or choose what they mean:", *advice(NameTable.of(levels, classed))]
        ),
    )


def without_images(
    table: pa.Table, column: str | None
) -> tuple[pa.Table, str | None, dict[str, bytes]]:
    """Replace the images inside a table (Hugging Face's Image: bytes and path) by paths.

    Returns the table, the name of the column that was looked at, and the files to write, {name:
    bytes}. A table without images is returned unchanged, and without files.

    `column`: the column to look at. If it is None or absent, "image" is taken, the usual name in
    datasets of the Hugging Face hub.
    """
    fields = {name: table.schema.field(name).type for name in table.column_names}
    if column not in fields and "image" in fields:
        column = "image"
    kind = fields.get(column or "")
    if (
        column is None
        or kind is None
        or not pa.types.is_struct(kind)
        or kind.get_field_index("bytes") < 0
    ):
        return table, column, {}

    values = [value or {} for value in table[column].to_pylist()]
    if missing := [row for row, value in enumerate(values) if not value.get("bytes")]:
        raise DataError(
            f"the table has {counted(len(missing), 'row')} without an image",
            expected="bytes in every row",
            found=f"rows {examples(missing)}",
        )

    # named by the row's number, since the paths inside a table may be missing, or repeat
    files = {f"{row:08}{_suffix_of(value)}": value["bytes"] for row, value in enumerate(values)}
    return (
        table.set_column(table.column_names.index(column), column, pa.array(list(files))),
        column,
        files,
    )


def _suffix_of(value: Mapping[str, Any]) -> str:
    """Return the suffix for the file of an image in a table's cell, {"bytes", "path"}. The path's
    suffix is taken if hbench opens such files; otherwise the suffix follows from the format of the
    bytes. Raises DataError if the bytes are no image."""
    suffix = PurePosixPath(str(value.get("path") or "")).suffix.lower()
    if suffix in PICTURES:
        return suffix
    try:
        return f".{(load_picture(io.BytesIO(value['bytes'])).format or 'png').lower()}"
    except OSError as error:
        raise DataError("the table holds an image of an unknown format", found=str(error)) from None


def refuse_name(name: str) -> None:
    """Raise UsageError if a user's dataset cannot have this name. The name becomes that of a
    folder, and `load` must be able to tell it from a published dataset and a table's file."""
    if name in specs:
        raise UsageError(
            f"{name} is the name of a published dataset",
            fix="choose another: hbench build NAME --from …",
        )
    # the folder `leaderboards` next to those of the datasets holds the user's own rows
    if (
        not re.fullmatch(r"\w[\w.+-]*", name)
        or suffix_of(Path(name)) in TABLES
        or name == "leaderboards"
    ):
        raise UsageError(
            f"{name!r} cannot be the name of a dataset",
            expected="one plain word of letters, digits, _, -, + and . (not leaderboards, not a "
            "table's file name)",
            fix="choose another: hbench build NAME --from … (--out names the folder to write)",
        )


def own_dataset(name: str, own: OwnTable, root: Path, *, listed: Sequence[str] = ()) -> Dataset:
    """Make a dataset of a table's rows. Without a column of splits, all rows are tested.

    Args:
        name: of the dataset.
        own: the table.
        root: the folder of the images. Absolute paths below it become relative to it.
        listed: all items of the table, with those that policies, or the choice about copies, left
            out of `own`. Items that are in no split are recorded in the dataset's card.

    Raises:
        DataError: a name is missing.
        TreeError: the names do not form a tree.
    """
    root = root.absolute()
    items = _below(root, own.items)
    rows = _rows_of(own)
    trains = _is_for_training(own)
    is_used = np.asarray(own.splits, dtype=object) != UNUSED  # (N,)
    masks = _masks(own)  # which rows are queries, and which are in the gallery
    if trains.any():
        # only to raise TreeError: training and test may each be a tree, but none together
        more = (row for _, row in own.more_paths)
        LabelTree.from_names([*rows, *more], levels=own.columns.levels)
    test = _manifest_of_rows(own, items, rows, masks, is_used & ~trains)
    train = _manifest_of_rows(own, items, rows, masks, trains) if trains.any() else None
    card: dict[str, Any] = {"title": name}
    # an embedding file may have items that were listed, but are in no split
    if dropped := {*items, *_below(root, listed)} - {*compress(items, is_used)}:
        card[DROPPED] = sorted(dropped)
    data = Dataset(
        name=name,
        version=test.digest[:12],
        protocol=Protocol(),
        train=train,
        tests={TEST: test},
        card=card,
    )
    return _with_pictures(data, root)


def _below(root: Path, paths: Sequence[str]) -> list[str]:
    """Make absolute paths below the folder of the images relative to it; others are unchanged."""
    start = f"{root.as_posix().rstrip('/')}/"
    return [path.removeprefix(start) for path in paths]


def _with_pictures(data: Dataset, root: Path) -> Dataset:
    """Return the dataset with its pictures below `root`. If some ids cannot be files below a
    folder, such as /data/1.jpg, it stays without pictures and can still be scored."""
    parts = [*data.tests.values(), *([data.train] if data.train else [])]
    return data.rooted(root) if all(part.stays_in_folder for part in parts) else data


def _is_for_training(own: OwnTable) -> NDArray[np.bool_]:
    """Whether each row is for training, (N,). Raises DataError if the column of splits has unknown
    values, or leaves no row to test."""
    splits = np.asarray(own.splits, dtype=object)
    # `own.splits` has the split of each row; an unknown word is kept unchanged in it
    if unknown := sorted(set(splits) - {*SPLIT_WORDS.values(), UNUSED}):
        raise DataError(
            f"the column {own.columns.split} has unknown values",
            expected="train and test, train, query and gallery, or validation beside these",
            found=examples(
                f"{repr(word) if word else 'an empty cell'} in "
                f"{counted(own.splits.count(word), 'row')}"
                for word in unknown
            ),
            fix="write one of these words there, such as validation for rows that are neither "
            "trained on nor tested; or take the column out of the file, as hbench build NAME "
            "--from FILE does unless --split-column names it; --split-by LEVEL makes another split "
            "there",
        )
    trains: NDArray[np.bool_] = splits == "train"
    if trains.all():
        raise DataError(
            f"the column {own.columns.split} has no test rows",
            expected="train and test",
            found="train",
        )
    return trains


def _masks(own: OwnTable) -> dict[str, NDArray[np.bool_]]:
    """Whether each row is a query and whether it is in the gallery: {"query": (N,), "gallery":
    (N,)}. The table's columns for these go before its split; a distractor is never a query."""
    splits = np.asarray(own.splits, dtype=object)
    masks = {"query": splits != "gallery", "gallery": splits != "query"} | own.masks
    masks["query"] = masks["query"] & ~own.distractors
    return masks


def _manifest_of_rows(
    own: OwnTable,
    items: Sequence[str],
    rows: Sequence[Row],
    masks: Mapping[str, NDArray[np.bool_]],
    chosen: NDArray[np.bool_],
) -> Manifest:
    """Make the manifest of the rows where `chosen` (N,) is true. The other arguments are about all
    N rows: their items, their names (`rows`), and whether they are queries and in the gallery
    (`masks`: {"query": (N,), "gallery": (N,)})."""
    # (N,): the place of each chosen row among the chosen ones; meaningless for other rows
    place = np.cumsum(chosen) - 1
    of_items = Counter(compress(items, chosen))
    if repeated := [item for item, number in of_items.items() if number > 1]:
        raise DataError(
            f"{own.source} has {counted(len(repeated), 'item')} in several rows",
            expected="one row of each item",
            found=examples(f"{item} in {of_items[item]} rows" for item in repeated),
            fix="leave out all rows of an item but one",
        )
    more = [(int(place[at]), row) for at, row in own.more_paths if chosen[at]]
    return manifests.from_names(
        [*compress(items, chosen)],
        [*compress(rows, chosen)],
        levels=own.columns.levels,
        more=more,
        **{mask: values[chosen] for mask, values in masks.items()},
    )
