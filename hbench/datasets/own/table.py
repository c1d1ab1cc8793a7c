"""Defines a user's table of items: its columns by their part, the split and the masks of its rows,
rows without a label.

What a table was taken for is kept with it, so that whoever uses it can say so.
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
    """A table with a row per item, its columns by their part, and what was found on the way:
    `facts` in words; `origin`: what the card of the dataset that it was made of says of its images.

    Where items may have several paths (hbench.datasets.own.several), it has a row per path until it
    is folded.
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
        """The id of every row, in the order of the table."""
        return texts(self.table, self.item)

    @cached_property
    def rows(self) -> list[Row]:
        """The names of every item, coarse to fine."""
        return text_rows(self.table, self.columns.levels)

    @cached_property
    def more_paths(self) -> list[tuple[int, Row]]:
        """The paths of items beside their first, with the place of the item."""
        return several.more_paths(self.table)

    def folded(self) -> OwnTable:
        """The table with one row for each item, which may have several paths."""
        return replace(
            self, table=several.with_row_per_item(self.table, self.item, self.columns.levels)
        )

    @cached_property
    def splits(self) -> list[str]:
        """What each item is for: train, test, query, gallery or nothing (unused); a word that says
        none of these stands as it is. Without a column of splits every item is tested."""
        split = self.columns.split
        if split is None:
            return ["test"] * len(self.table)
        written = texts(self.table, split)
        flagged = words.split_flags(split, set(written))
        named = words.split_words(set(written)) if flagged is None else flagged
        return [named.get(word, word) for word in written]

    @property
    def unknown_splits(self) -> list[str]:
        """The words in the column of splits that name no split."""
        return sorted(set(self.splits) - {*words.SPLIT_WORDS.values(), words.UNUSED})

    @cached_property
    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """The columns `query` and `gallery`, where the table has them; raises DataError for other
        texts than true and false.
        """
        found = {}
        for part, column in self.columns.masks.items():
            values = [value.strip().lower() for value in texts(self.table, column)]
            if bad := [value for value in values if value not in words.TRUTH]:
                raise DataError(
                    f"the column {column} is not a mask",
                    expected="true or false",
                    found=examples(map(repr, bad)),
                    fix=f"rename it, or leave it out: --levels {','.join(self.columns.levels)}",
                )
            found[part] = np.asarray([words.TRUTH[value] for value in values], dtype=bool)
        return found

    @cached_property
    def distractors(self) -> NDArray[np.bool_]:
        """The items of the gallery without a name at any level. A query, and an item to train with,
        needs one.
        """
        nameless = np.ones(len(self.table), bool)
        for level in self.columns.levels:
            nameless &= np.asarray(pc.equal(self.text(level), "").to_numpy()).astype(bool)
        if not nameless.any():
            return nameless
        asked = np.isin(np.array(self.splits, dtype=object), ("train", "query"))
        if "query" in self.masks:
            asked |= self.masks["query"]
        # where no row has a name at all, the column is at fault, and none is a distractor
        return np.asarray(nameless & ~asked & ~nameless.all())

    def text(self, column: str) -> pa.ChunkedArray:
        """A column as texts, "" where nothing is given."""
        return self.table[column].cast(pa.string()).fill_null("")

    def with_levels(self, levels: Sequence[str], rows: Sequence[Row]) -> OwnTable:
        """The table with these columns of names, `rows` (N,) of a name for each of `levels`, in
        place of its own."""
        table = self.table.drop_columns(
            [name for name in self.columns.levels if name in self.table.column_names]
        )
        # a column of another meaning that is called like a new level makes room, too
        table = table.drop_columns([level for level in levels if level in table.column_names])
        for place, level in enumerate(levels):
            table = table.append_column(level, pa.array([row[place] for row in rows], pa.string()))
        return replace(self, table=table, columns=replace(self.columns, levels=tuple(levels)))

    def of_rows(self, kept: NDArray[np.bool_]) -> OwnTable:
        """The table of the rows where `kept` (N,) is true."""
        return replace(self, table=self.table.filter(pa.array(kept)))

    @property
    def understood(self) -> Understood:
        """The record of what the table was taken for, in words for people: its items, levels and
        splits, which columns are left out, and what might not be as it was meant."""
        columns = self.columns
        sizes = self._nodes()  # how many nodes each level has
        facts = [*self.facts, levels_in_words(columns, sizes)]
        if columns.item != "item":  # another name was taken for it
            facts.append(f"items by {columns.item}")
        facts += self._of_several()
        facts += [f"{part} by {name}" for part, name in columns.masks.items() if part != name]
        if columns.split is not None:
            facts.append(f"split by {columns.split}")
            facts += self._of_validation(columns.split)
        if number := int(self.distractors.sum()):
            facts.append(
                f"{number:,} items without a name at any level are distractors: only ranked, and "
                "right for no query"
            )

        # of names, not of items: they are matched one by one in Python
        finest = pc.unique(self.text(columns.levels[-1])).to_pylist()
        unknown = pa.array([name for name in finest if is_unknown(name)], pa.string())
        if ends := pc.sum(pc.is_in(self.text(columns.levels[-1]), unknown)).as_py():
            facts.append(
                f"the paths of {ends:,} items end early: whole paths of uneven depth, as of a "
                "shop's categories, are scored by --policy repeat-leaf (an item is of the class "
                "where its path ends); as it is, what lies below an end is taken as not known "
                "(--policy unknown says that it is meant)"
            )

        # only where columns were chosen among others may the choice be wrong
        hints = ("--levels A,B says otherwise",) if columns.left_out or columns.notes else ()
        facts += [*columns.notes, *remark_on_single_classes(columns.levels, sizes)]
        # an item of several paths has several rows
        items = pc.count_distinct(self.table[self.item]).as_py()
        return Understood(self.source, f"{items:,} items", tuple(facts), columns.left_out, hints)

    def _of_validation(self, split: str) -> list[str]:
        """What the truth values of a column of splits mean, where it has such; else what becomes of
        the rows that it calls a validation, if any are."""
        flagged = words.split_flags(split, set(texts(self.table, split)))
        if flagged is not None:
            said = {"test": "is tested", "train": "is for training"}
            return [", ".join(f"{word} {said[flagged[word]]}" for word in sorted(flagged))]
        # {word of the column: what it means beside the others}
        named = words.split_words(set(texts(self.table, split)))
        called = [word for word in named if word.strip().lower() in words.VALIDATIONS]
        if not called:
            return []
        word = called[0]
        if named[word] == words.UNUSED:
            number = self.splits.count(words.UNUSED)
            return [
                f"the {number:,} items of {word} are neither trained on nor tested: a training "
                "holds out classes of its own; call them train to learn from them"
            ]
        return [f"{word} is the test, since nothing is called so"]

    def _nodes(self) -> list[int]:
        """How many nodes each level has: a name below another parent is another node; an empty
        name, and one that marks the unknown, is none.
        """
        # (N,): the node of each row, numbered within its level; all begin at the root
        path = np.zeros(len(self.table), np.int64)
        sizes = []
        for level in self.columns.levels:
            encoded = self.text(level).combine_chunks().dictionary_encode()
            whole = encoded if isinstance(encoded, pa.Array) else encoded.combine_chunks()
            names = whole.dictionary.to_pylist()
            codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            is_name = np.array([bool(name) and not is_unknown(name) for name in names], bool)
            # one of the nodes above each name is noted: with one alone, all rows have it
            parent = np.zeros(len(names), np.int64)
            parent[codes] = path
            if bool((parent[codes] == path).all()):  # each name has one parent: names are nodes
                path = codes
                sizes.append(int(is_name.sum()))
                continue
            # the node above and the name, as one number, numbered anew
            path = distinct(path * len(names) + codes)[1]
            sizes.append(len(np.unique(path[is_name[codes]])))
        return sizes

    def _of_several(self) -> list[str]:
        """How many items have several paths, of a table that has a row per path."""
        if pc.count_distinct(self.table[self.item]).as_py() == len(self.table):
            return []
        # a row that is there twice is one path
        paths = Counter(item for item, _ in {*zip(self.items, self.rows, strict=True)})
        with_several = sum(number > 1 for number in paths.values())
        if not with_several:
            return []
        return [
            f"{with_several:,} of {len(paths):,} items have several paths, up to "
            f"{max(paths.values())}"
        ]
