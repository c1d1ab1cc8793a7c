"""Defines a user's table of items: the role of its columns, the split and the masks of its rows,
and which rows are distractors.

A record of how the table was understood is kept with it, so that users can be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import DataError, examples
from hbench.core.tables import text_rows, texts
from hbench.core.text import counted
from hbench.datasets.own import several
from hbench.sheets import words
from hbench.sheets.columns import (
    TableColumns,
    levels_in_words,
    remark_on_single_classes,
)
from hbench.sheets.rows import Row
from hbench.sheets.understood import Understood
from hbench.tree import distinct
from hbench.tree.partial import is_unknown

MASKED = ("query", "gallery")


@dataclass(frozen=True)
class OwnTable:
    """A table with a row per item, and the role of each column.

    If items may have several paths (hbench.datasets.own.several), it has a row per path until it is
    folded.

    Attributes:
        source: how messages call the table.
        table: the table.
        columns: the role of each column.
        facts: sentences about how the table was read.
        origin: if the table was made of a built dataset, what that dataset's card says about its
            images; else empty.
    """

    source: str
    table: pa.Table
    columns: TableColumns
    facts: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def item(self) -> str:
        """The column of the items' ids, which a table of items always has."""
        assert self.columns.item is not None
        return self.columns.item

    @cached_property
    def items(self) -> list[str]:
        """The id of each row's item, in the order of the table."""
        return texts(self.table, self.item)

    @cached_property
    def rows(self) -> list[Row]:
        """The names of each row, coarse to fine."""
        return text_rows(self.table, self.columns.levels)

    @cached_property
    def more_paths(self) -> list[tuple[int, Row]]:
        """The further paths of items: (row of the item, names). Empty before the table is
        folded."""
        return several.more_paths(self.table)

    def folded(self) -> OwnTable:
        """Fold the table to one row per item, which may have several paths."""
        return replace(
            self, table=several.with_row_per_item(self.table, self.item, self.columns.levels)
        )

    @cached_property
    def splits(self) -> list[str]:
        """The split of each row: train, test, query, gallery or unused. An unknown word is kept
        unchanged. Without a column of splits, all rows are in the test."""
        split = self.columns.split
        if split is None:
            return ["test"] * len(self.table)
        written = texts(self.table, split)
        # {word of the column: its split}, from truth values if the column is a flag, such as
        # is_test; otherwise from words such as train
        flagged = words.split_flags(split, set(written))
        named = words.split_words(set(written)) if flagged is None else flagged
        return [named.get(word, word) for word in written]

    @property
    def unknown_splits(self) -> list[str]:
        """The words in the column of splits that are not known as splits."""
        return sorted(set(self.splits) - {*words.SPLIT_WORDS.values(), words.UNUSED})

    @cached_property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """The columns of truth values that the table has: {"query": (N,), "gallery": (N,)}, or only
        some of these. Raises DataError for other texts than true and false."""
        found = {}
        for part, column in self.columns.masks.items():
            values = [value.strip().lower() for value in texts(self.table, column)]
            if bad := [value for value in values if value not in words.TRUTH]:
                raise DataError(
                    f"the column {column} is not a mask",
                    expected="true or false",
                    found=examples(map(repr, bad)),
                    fix="write true or false in each row, or take the column out of the file",
                )
            found[part] = np.asarray([words.TRUTH[value] for value in values], dtype=bool)
        return found

    @cached_property
    def distractors(self) -> NDArray[np.bool_]:
        """Whether each row is a distractor, (N,): an item of the gallery without a name at any
        level. Queries and training items need names, so they are never distractors."""
        nameless = np.ones(len(self.table), bool)
        for level in self.columns.levels:
            nameless &= np.asarray(pc.equal(self.text(level), "").to_numpy()).astype(bool)
        if not nameless.any():
            return nameless
        needs_name = np.isin(np.array(self.splits, dtype=object), ("train", "query"))
        if "query" in self.masks:
            needs_name |= self.masks["query"]
        # if no row has a name, the columns were chosen wrongly: none is a distractor
        return np.asarray(nameless & ~needs_name & ~nameless.all())

    def text(self, column: str) -> pa.ChunkedArray:
        """Return a column as texts, with "" for missing values."""
        return self.table[column].cast(pa.string()).fill_null("")

    def with_levels(self, levels: Sequence[str], rows: Sequence[Row]) -> OwnTable:
        """Return the table with other columns of names. `rows` (N,): the names of each row at these
        `levels`."""
        table = self.table.drop_columns(
            [name for name in self.columns.levels if name in self.table.column_names]
        )
        # another column that is called like a new level is dropped, too
        table = table.drop_columns([level for level in levels if level in table.column_names])
        for place, level in enumerate(levels):
            table = table.append_column(level, pa.array([row[place] for row in rows], pa.string()))
        return replace(self, table=table, columns=replace(self.columns, levels=tuple(levels)))

    def of_rows(self, kept: NDArray[np.bool_]) -> OwnTable:
        """Return the table of the rows where `kept` (N,) is true."""
        return replace(self, table=self.table.filter(pa.array(kept)))

    @property
    def understood(self) -> Understood:
        """How the table was understood, in words for people: its items, levels and splits, which
        columns are left out, and what the user may have meant differently."""
        columns = self.columns
        sizes = self._nodes()  # the number of nodes of each level
        facts = [*self.facts, levels_in_words(columns, sizes)]
        if self.item != "item":  # a guess or choice that the user should know
            facts.append(f"items by {self.item}")
        facts += self._of_several()
        facts += [f"{part} by {name}" for part, name in columns.masks.items() if part != name]
        facts += self._of_masks()
        if columns.split is not None:
            facts.append(f"split by {columns.split}")
            facts += self._of_validation(columns.split)
        if number := int(self.distractors.sum()):
            facts.append(
                f"{number:,} items without a name at any level are distractors: only ranked, and "
                "right for no query"
            )

        # How many rows end early: their finest name is a mark of the unknown. The empty name of a
        # distractor is no such mark. Python looks at names one by one, so only at different ones.
        finest = pc.unique(self.text(columns.levels[-1])).to_pylist()
        unknown = pa.array([name for name in finest if is_unknown(name)], pa.string())
        if ends := pc.sum(pc.is_in(self.text(columns.levels[-1]), unknown)).as_py():
            facts.append(
                f"the paths of {ends:,} items end early: whole paths of uneven depth, as of a "
                "shop's categories, are scored by --policy repeat-leaf (an item is of the class "
                "where its path ends); as it is, what lies below an end is taken as not known "
                "(--policy unknown says that it is meant)"
            )

        # the choice of levels can only be wrong if there were other columns
        hints = ("--levels A,B says otherwise",) if columns.left_out or columns.notes else ()
        facts += [*columns.notes, *remark_on_single_classes(columns.levels, sizes)]
        # an item of several paths has several rows
        items = pc.count_distinct(self.table[self.item]).as_py()
        return Understood(
            source=self.source,
            what=f"{items:,} items",
            facts=tuple(facts),
            left_out=columns.left_out,
            hints=hints,
        )

    def _of_masks(self) -> list[str]:
        """Make a remark on how many rows are queries and how many are in the gallery, for a table
        whose columns say so. Otherwise empty."""
        called = {"query": ("query", "queries"), "gallery": ("in the gallery", "in the gallery")}
        said = [counted(int(mask.sum()), *called[part]) for part, mask in self.masks.items()]
        return [", ".join(said)] if said else []

    def _of_validation(self, split: str) -> list[str]:
        """Make a remark on the column `split`. If it holds truth values, the remark says what they
        mean; if it holds a word for validation, what happens to those rows. Otherwise empty."""
        flagged = words.split_flags(split, set(texts(self.table, split)))
        if flagged is not None:
            said = {"test": "is tested", "train": "is for training"}
            return [", ".join(f"{word} {said[flagged[word]]}" for word in sorted(flagged))]
        # {word of the column: the split that it means}; for "val" this depends on the other words
        named = words.split_words(set(texts(self.table, split)))
        called = [word for word in named if word.strip().lower() in words.VALIDATIONS]
        if not called:
            return []
        word = called[0]
        if named[word] == words.UNUSED:
            number = self.splits.count(words.UNUSED)  # only words for validation have this meaning
            return [
                f"the {number:,} items of {word} are neither trained on nor tested: a training "
                "holds out classes of its own; call them train to learn from them"
            ]
        return [f"{word} is the test, since nothing is called so"]

    def _nodes(self) -> list[int]:
        """Count the nodes of each level. A name under several parents is several nodes; empty names
        and those that mark an unknown class are not counted."""
        # (N,): the node of each row at the level above, as a number; first all are at the root
        path = np.zeros(len(self.table), np.int64)
        sizes = []
        for level in self.columns.levels:
            encoded = self.text(level).combine_chunks().dictionary_encode()
            whole = encoded if isinstance(encoded, pa.Array) else encoded.combine_chunks()
            names = whole.dictionary.to_pylist()
            codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            is_name = np.array([bool(name) and not is_unknown(name) for name in names], bool)
            # `codes` (N,): the number of each row's name, its place in `names`. `parent` gets, for
            # each name, the node above it in its last row. If that is the node above in all rows of
            # every name, no name has several parents, and the names are the nodes
            parent = np.zeros(len(names), np.int64)
            parent[codes] = path
            if bool((parent[codes] == path).all()):
                path = codes
                sizes.append(int(is_name.sum()))
                continue
            # a node is a pair of the node above and the name, as one number; `distinct` numbers the
            # different pairs without gaps: its second result has the number for each row
            path = distinct(path * len(names) + codes)[1]
            sizes.append(len(np.unique(path[is_name[codes]])))
        return sizes

    def _of_several(self) -> list[str]:
        """Make a remark on how many items have several paths, for a table with a row per path.
        Empty if none has."""
        if pc.count_distinct(self.table[self.item]).as_py() == len(self.table):
            return []
        # in a set, so that equal rows count as one path
        paths = Counter(item for item, _ in {*zip(self.items, self.rows, strict=True)})
        with_several = sum(number > 1 for number in paths.values())
        if not with_several:
            return []
        return [
            f"{with_several:,} of {len(paths):,} items have several paths, up to "
            f"{max(paths.values())}"
        ]
