"""Defines a manifest: the items of one split, their labels, and which items are queries and which
are in the gallery.

On disk it is a parquet file with the columns `item`, one per level (names, coarse to fine), `query`
and `gallery`. There may be two more columns: `ignore`, if queries leave items out of their
rankings, and `more_paths`, lists of lists of names, if items have several paths. The file's
metadata holds the level names and the digest.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from hbench.core.arguments import checked, checked_class
from hbench.core.errors import DataError, IntegrityError, UsageError, examples
from hbench.core.tables import bytes_of_texts, numbers, text_array, write_parquet
from hbench.core.text import first_line
from hbench.core.untrusted import open_parquet, parquet_table, parse_json
from hbench.sheets.rows import Row
from hbench.tree import MORE_PATHS, RESERVED, Labels, LabelTree
from hbench.tree.names import NameTable, class_rows
from hbench.tree.partial import classes_in_words
from hbench.tree.refusals import refuse_other_paths
from hbench.tree.several import MorePaths, Paths

if TYPE_CHECKING:
    import pandas as pd


# patterns of bad items: without a name; or neither a plain id nor a POSIX path below a folder
NAMELESS = r"^$|\x00"
OUTSIDE = r"^$|^/|(^|/)\.\.(/|$)|[\\\x00]"


@checked_class
@dataclass(frozen=True, repr=False)
class Manifest:
    """The items of one split, each with its labels in a tree.

    Attributes:
        items: (N,) unique ids or relative POSIX paths.
        labels: int32 (N, L), nodes of `tree`, coarse to fine.
        tree: the label tree.
        query: bool (N,), which items are queries.
        gallery: bool (N,), which items are ranked.
        ignore: the ignore groups, int64 (N,), or None: a gallery item is left out of the rankings
            of the queries with the same number; -1 means no group.
        picture: opens the image of an item; None if the images are not on this disk. It is not part
            of the content.
        text: the items as an Arrow array, if the caller has one; this saves a conversion.
        more: the further paths of items with several; their first path is in `labels`.

    Raises:
        DataError: columns differ in length, items occur twice or, where pictures are opened, leave
            their folder, or levels have reserved names.
        TreeError: labels are no paths of the tree.
    """

    items: NDArray[np.object_]
    labels: Labels
    tree: LabelTree
    query: NDArray[np.bool_]
    gallery: NDArray[np.bool_]
    ignore: NDArray[np.int64] | None = None
    picture: Callable[[str], Image.Image] | None = field(default=None, compare=False, repr=False)
    text: InitVar[pa.Array | None] = None
    more: MorePaths | None = None

    def __repr__(self) -> str:
        """Show the manifest in one line: how many items, queries and classes it has."""
        classes = classes_in_words(self.tree, ", ")
        queries = int(self.query.sum())
        gallery = int(self.gallery.sum())
        return (
            f"<Manifest: {len(self):,} items, {queries:,} queries, {gallery:,} in the gallery; "
            f"{classes}>"
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with a row per item: item, its class at each level, query, gallery,
        and, if there are any, ignore groups and the paths of an item besides its first one.
        """
        table = self.table()
        # plain texts, since pandas would turn dictionaries into categories
        texts = {level: table[level].cast(pa.string()) for level in self.levels}
        frame: pd.DataFrame = pa.table(
            {n: texts.get(n, table[n]) for n in table.column_names}
        ).to_pandas()
        return frame

    def __post_init__(self, text: pa.Array | None) -> None:
        """Raise DataError if columns differ in length, items occur twice, are empty or hold a zero
        byte, or levels have reserved names. `text`: the items in Arrow; None: not there yet."""
        # the labels are one array (N, L): its first column has the length of all
        columns = (self.items, self.labels[:, 0], self.query, self.gallery)
        if {np.shape(column) for column in columns} != {(len(self.labels),)}:
            lengths = ", ".join(str(np.shape(column)) for column in columns)
            raise DataError(
                "the columns of a manifest differ in length",
                expected="items, labels, query and gallery of one length",
                found=lengths,
            )
        refuse_other_paths(self.labels, self.tree.paths)
        if text is not None:
            if not isinstance(text, pa.Array) or len(text) != len(self.items):
                raise DataError("the text of a manifest is no arrow array of its items")
            # fills the cached property, so that a million ids need not be converted to Arrow again
            self.__dict__["_item_array"] = text
        if clash := set(self.tree.levels) & set(RESERVED):
            raise DataError(
                f"{examples(sorted(clash))} cannot be the name of a level",
                expected=f"none of {', '.join(RESERVED)}",
            )

        # after sorting, equal items are neighbours
        twice = self._sorted_items[1:].filter(
            pc.equal(self._sorted_items[1:], self._sorted_items[:-1])
        )
        if len(twice):
            found = examples(twice.unique().to_pylist())
            raise DataError(
                "the items of a manifest are not unique",
                expected="each item once",
                found=found,
                fix="leave out all rows of an item but one",
            )

        nameless = self._item_array.filter(pc.match_substring_regex(self._item_array, NAMELESS))
        if len(nameless):
            raise DataError(
                f"{len(nameless):,} items of a manifest have no name that files can hold",
                expected="an id for each item",
                found=examples(map(repr, nameless.to_pylist())),
            )
        if self.picture is not None:  # items name files to open: none may lead out of the folder
            self.refuse_outside()

    @cached_property
    def _outside(self) -> pa.Array:
        """The items that cannot be files below a folder, as an Arrow array."""
        return self._item_array.filter(pc.match_substring_regex(self._item_array, OUTSIDE))

    @property
    def stays_in_folder(self) -> bool:
        """Whether all items are plain ids or relative paths that stay below a folder."""
        return len(self._outside) == 0

    def refuse_outside(self) -> None:
        """Raise DataError if some items cannot be files below a folder, such as "../a". The error
        suggests an item without "..", with "/" for a backslash, and no "/" or "." in front."""
        if not self.stays_in_folder:
            first = str(self._outside[0])
            below = first.replace("\\", "/").replace("/../", "/").lstrip("/.")
            raise DataError(
                "the items of a manifest leave its folder",
                expected="relative POSIX paths or plain ids, where pictures are opened",
                found=examples(map(repr, self._outside.to_pylist())),
                fix=f"{first!r} should be {below!r}, below the folder that --root names",
            )

    @cached_property
    def _item_array(self) -> pa.Array:
        """The items as an Arrow array (N,)."""
        return text_array(self.items)

    @cached_property
    def _order(self) -> pa.Array:
        """The permutation that sorts the rows by item."""
        return pc.sort_indices(self._item_array)

    @cached_property
    def _sorted_items(self) -> pa.Array:
        """The items as an Arrow array (N,), sorted."""
        return self._item_array.take(self._order)

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the tree's levels, coarse to fine."""
        return self.tree.levels

    @property
    def paths(self) -> Paths:
        """All paths of the items: the first ones (`labels`) and the further ones of items with
        several paths (`more`)."""
        return Paths(self.labels, self.more)

    @checked
    def of(self, chosen: NDArray[np.int64]) -> Manifest:
        """Return the manifest of the items at the positions `chosen` (n,), in that order. The tree
        keeps all of its classes. `more`, the further paths, is numbered anew by `chosen`."""
        columns = {
            name: getattr(self, name)[chosen] for name in ("items", "labels", "query", "gallery")
        }
        ignore = None if self.ignore is None else self.ignore[chosen]
        more = None if self.more is None else self.more.of(chosen)
        return replace(self, **columns, ignore=ignore, more=more)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def digest(self) -> str:
        """The sha256 of the content, which does not depend on the order of the rows or the
        numbering of the nodes.

        It covers the level names, the sorted paths of the fine classes, and of each row, sorted by
        item, the item, its class, whether it is a query and in the gallery, and its ignore group;
        and the further paths of items, if any.
        """
        paths = class_rows(self.tree)
        # (C,): the place of each fine class among the sorted paths; its number in the tree may vary
        place = np.empty(len(paths), np.int32)
        place[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
        hasher = hashlib.sha256(json.dumps([self.levels, sorted(paths)]).encode())
        # ids as bytes and lengths: by bytes alone, "a", "bc" would be the same as "ab", "c"
        offsets, text = bytes_of_texts(self._sorted_items)
        rows = numbers(self._order, np.dtype(np.uint64))  # (N,): the rows, sorted by item
        roles: list[NDArray[Any]] = [self.query, self.gallery]
        if self.ignore is not None:
            roles.append(self.ignore)
        # "<", little-endian: the same bytes on every machine
        classes = place[self.labels[:, -1]][rows].astype("<i4")
        for column in (np.diff(offsets), text, classes, *(role[rows] for role in roles)):
            hasher.update(np.ascontiguousarray(column).data)
        if self.more is not None:
            # the further paths, sorted by item, then by class; `more.items` are places in `rows`
            more = self.more.of(rows.astype(np.int64))
            classes_of_more = place[more.labels[:, -1]]
            order = np.lexsort((classes_of_more, more.items))
            for column in (more.items[order].astype("<i8"), classes_of_more[order].astype("<i4")):
                hasher.update(np.ascontiguousarray(column).data)

        return hasher.hexdigest()

    def table(self) -> pa.Table:
        """Return the manifest as an Arrow table; the labels are dictionary-encoded names."""
        columns: dict[str, pa.Array] = {"item": self._item_array}
        for level, names, ids in zip(self.levels, self.tree.names, self.labels.T, strict=True):
            columns[level] = pa.DictionaryArray.from_arrays(
                pa.array(ids), pa.array(names, pa.string())
            )
        columns |= {"query": pa.array(self.query), "gallery": pa.array(self.gallery)}
        if self.ignore is not None:
            columns["ignore"] = pa.array(self.ignore)
        if self.more is not None:
            columns[MORE_PATHS] = self._more_names(self.more)  # a list of paths for each item
        return pa.table(columns)

    def _more_names(self, more: MorePaths) -> pa.Array:
        """Return the further paths of each item as an Arrow array (N,) of lists of paths; a path is
        a list of names, coarse to fine. Items with one path have an empty list. `more` has the
        position of its item and the node ids for each further path."""
        paths: list[list[list[str]]] = [[] for _ in self.items]
        for item, nodes in zip(more.items.tolist(), more.labels.tolist(), strict=True):
            paths[item].append(
                [names[node] for names, node in zip(self.tree.names, nodes, strict=True)]
            )
        return pa.array(paths, pa.list_(pa.list_(pa.string())))

    @checked
    def write(self, path: Path) -> None:
        """Write a parquet file at `path`, whole or not at all."""
        meta = {"hbench.levels": json.dumps(list(self.levels)), "hbench.digest": self.digest}
        write_parquet(self.table().replace_schema_metadata(meta), path)


def from_names(
    items: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    levels: Sequence[str],
    query: NDArray[np.bool_] | None = None,
    gallery: NDArray[np.bool_] | None = None,
    more: Sequence[tuple[int, Sequence[str]]] = (),
) -> Manifest:
    """Make a manifest from the names of each item.

    Args:
        items: (N,) ids.
        rows: (N,) the names along the path of each item, coarse to fine.
        levels: the names of the levels, coarse to fine.
        query: bool (N,), which items are queries; None: all.
        gallery: bool (N,), which items are in the gallery; None: all.
        more: further paths, in the order of the items: (place of the item, names).
    """
    tree, labels = LabelTree.from_names([*rows, *(row for _, row in more)], levels=levels)
    everyone = np.ones(len(items), dtype=bool)
    queries, ranked = (everyone if mask is None else mask for mask in (query, gallery))
    further = (
        MorePaths(np.array([item for item, _ in more], np.int64), labels[len(items) :])
        if more
        else None
    )
    return Manifest(
        np.asarray(items, dtype=object), labels[: len(items)], tree, queries, ranked, more=further
    )


def levels_in(path: Path) -> list[str]:
    """Read the level names, coarse to fine, from the metadata of a manifest. The list is empty for
    any other parquet file. Raises ValueError, OSError or an ArrowException for a damaged file.
    """
    with open_parquet(path) as file:
        levels = parse_json((file.schema_arrow.metadata or {}).get(b"hbench.levels", b"[]"))
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise ValueError("its levels are not a list of names")
    return levels


def read(path: Path, *, digest: str | None = None) -> Manifest:
    """Read a manifest from a parquet file.

    `digest`: the one that dataset.json states; None: not compared. Raises DataError if the file is
    missing or not a manifest, IntegrityError if the digest of its content is not this one, or not
    the one in its metadata.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", fix="hbench build NAME makes it")

    try:
        levels = levels_in(path)
        table = parquet_table(path, dictionaries=levels)
        meta = {
            key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()
        }
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError) as error:
        raise DataError(
            f"{path} cannot be read", expected="a parquet manifest", found=first_line(error)
        ) from None

    _refuse_columns(path, table, levels)
    manifest = _from_table(table, levels)
    for expected in filter(None, (meta.get("hbench.digest"), digest)):
        if manifest.digest != expected:
            raise IntegrityError(
                f"{path} has other content than recorded",
                expected=f"digest {expected[:12]}…",
                found=f"digest {manifest.digest[:12]}…",
                fix="build the dataset again",
            )

    return manifest


def _refuse_columns(path: Path, table: pa.Table, levels: Sequence[str]) -> None:
    """Raise DataError if a table lacks a column of a manifest, or has empty cells. `levels`: what
    the file's metadata name; empty for a file that is no manifest."""
    types = {name: table.schema.field(name).type for name in table.column_names}
    fixed = {"item": pa.string(), "query": pa.bool_(), "gallery": pa.bool_()}
    if not levels or not set(levels) <= set(types) or not fixed.items() <= types.items():
        raise DataError(
            f"{path} is not a manifest",
            expected="columns item, one per level, query, gallery and the levels in its metadata",
            found=f"columns {', '.join(table.column_names)}",
            fix="make one with: hbench build --from FILE --levels …",
        )

    for name in ("item", *levels, *RESERVED[1:]):  # query, gallery, ignore, more_paths
        if name in table.column_names and table[name].null_count:
            raise DataError(
                f"{path} has empty cells in the column {name}",
                expected="a value in every row",
                found=f"{table[name].null_count} of {len(table)} rows without a value",
                fix="fill them in, or leave these rows out",
            )


def _ignore_groups(table: pa.Table) -> NDArray[np.int64] | None:
    """Return the ignore groups of the items (N,), None if the table has none. Raises DataError if
    they are not whole numbers."""
    if "ignore" not in table.column_names:
        return None
    column = table["ignore"]
    if not pa.types.is_integer(column.type) or column.null_count:
        kind = f"{column.type}, {column.null_count} of {len(column)} missing"
        raise DataError(
            "the column ignore has no groups", expected="a whole number for every item", found=kind
        )
    return np.asarray(column.to_numpy(), np.int64)


def _from_table(table: pa.Table, levels: list[str]) -> Manifest:
    """Make the manifest that a table holds. The table has a dictionary column of names for each of
    the `levels`, the masks query and gallery, and perhaps ignore groups and further paths."""
    names = []
    columns = []
    for level in levels:
        # the chunks of a file may number names differently: one numbering for all of them
        column = table[level].unify_dictionaries().combine_chunks()
        # parquet reads only texts as dictionaries: a level of numbers is encoded here
        column = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
        names.append([str(name) for name in column.dictionary.to_pylist()])
        columns.append(numbers(column.indices.cast(pa.int32()), np.dtype(np.int32)))

    first = np.stack(columns, axis=1)
    owners, further = _further_paths(table, names)  # extends `names` by names of further paths
    tree, labels = LabelTree.from_labels(
        np.concatenate([first, further]), levels=levels, names=names
    )
    more = MorePaths(owners, labels[len(table) :]) if len(owners) else None
    # query and gallery; by uint8, since Arrow holds truth values as bits and numpy as bytes
    masks = [
        numbers(table[mask].cast(pa.uint8()).combine_chunks(), np.dtype(np.bool_))
        for mask in RESERVED[1:3]
    ]
    text = table["item"].combine_chunks()
    items = np.array(text.to_pylist(), dtype=object)
    ignore = _ignore_groups(table)

    return Manifest(
        items, labels[: len(table)], tree, masks[0], masks[1], ignore, text=text, more=more
    )


def _further_paths(table: pa.Table, names: list[list[str]]) -> tuple[NDArray[np.int64], Labels]:
    """Return the E further paths of items: the row of each one's item (E,), and the numbers of its
    names (E, L). Names that no first path has are added to `names`, in place.
    `names`: for each level, the names by number. Raises DataError for a path of another length.
    """
    rows = table[MORE_PATHS].to_pylist() if MORE_PATHS in table.column_names else []
    paths = [(item, path) for item, of_item in enumerate(rows) for path in of_item]
    if any(len(path) != len(names) for _, path in paths):
        raise DataError(
            f"the column {MORE_PATHS} has no paths", expected=f"lists of {len(names)} names each"
        )
    # for each level {name: number}; a name that no first path has gets the next number
    numbered = [dict(zip(of_level, range(len(of_level)), strict=True)) for of_level in names]
    labels = []
    for _, path in paths:
        at_levels = zip(numbered, path, strict=True)
        labels.append([known.setdefault(name, len(known)) for known, name in at_levels])
    names[:] = [list(known) for known in numbered]
    owners = np.array([item for item, _ in paths], np.int64)
    return owners, np.array(labels, np.int32).reshape(len(paths), len(names))


def name_table_of(manifests: Sequence[Manifest]) -> NameTable:
    """Collect the classes of several manifests, such as train and test, in one table of names with
    their numbers of items. Raises UsageError if the levels differ."""
    rows: Counter[Row] = Counter()
    for manifest in manifests:
        if manifest.levels != manifests[0].levels:
            raise UsageError(
                "the splits have different levels",
                found=f"{', '.join(manifests[0].levels)}; {', '.join(manifest.levels)}",
                fix="choose one by --split",
            )
        # the items of each fine class (the last level of `counts`), over all paths
        labels, _ = manifest.paths.all_labels()
        counts = manifest.tree.counts(labels)[-1].tolist()
        for row, items in zip(class_rows(manifest.tree), counts, strict=True):
            rows[row] += items
    return NameTable(manifests[0].levels, dict(rows))
