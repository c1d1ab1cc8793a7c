"""Finds pictures that a dataset holds several times, byte for byte, and removes the copies on
request.

| choice | what happens to copies |
|---|---|
| keep | all items stay |
| first | the first item of every picture stays |
| merge | classes with exactly the same pictures become one; of every picture one item stays |
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import examples
from hbench.core.tables import lines
from hbench.datasets.pictures import file_of
from hbench.sheets.rows import Row
from hbench.tree.partial import is_unknown

KEEP, FIRST, MERGE = CHOICES = ("keep", "first", "merge")


def same_content(
    root: Path, items: Sequence[str], images: Mapping[str, bytes]
) -> NDArray[np.int64] | None:
    """Return a number (N,) for each group of items (N,), files below the folder `root`, with the
    same bytes, -1 for items without a copy or a file; None without copies.

    `images` holds the bytes of items that are not files yet. Only files of equal size are read.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        if item in images:
            by_size[len(images[item])].append(place)
        elif (file := root / file_of(item)).is_file():
            by_size[file.stat().st_size].append(place)

    by_content: dict[str, list[int]] = defaultdict(list)
    for places in by_size.values():
        if len(places) == 1:
            continue
        for place in places:
            item = items[place]
            path = file_of(item)
            content = images[item] if item in images else (root / path).read_bytes()
            # boxes of one picture are no copies of each other
            box = item.removeprefix(path)
            by_content[hashlib.sha256(content).hexdigest() + box].append(place)

    # a group is called by the place of its first item
    groups = np.full(len(items), -1, dtype=np.int64)
    for group in by_content.values():
        groups[group] = group[0] if len(group) > 1 else -1
    return groups if (groups >= 0).any() else None


@dataclass(frozen=True)
class Copies:
    """The items of a dataset that are copies: items (N,), their names, coarse to fine, and `groups`
    int64 (N,).

    Items of the same bytes have the same group; an item without a copy has -1. `level` is the name
    of the finest level.
    """

    items: Sequence[str]
    rows: Sequence[Row]
    groups: NDArray[np.int64]
    level: str

    def _places(self) -> list[list[int]]:
        """The places of the items of each picture that several items have, in the order of the
        items: [[0, 4], [2, 3, 9]]."""
        places: dict[int, list[int]] = defaultdict(list)
        for place, group in enumerate(self.groups.tolist()):
            places[group].append(place)
        return [places[group] for group in places if group >= 0]

    def remarks(self) -> Iterator[str]:
        """Yield sentences on the copies under other labels, by their classes, and on those under
        the same label.
        """
        across: Counter[Row] = Counter()
        within: list[str] = []
        for places in self._places():
            labels = dict.fromkeys(self.rows[place] for place in places)  # the different ones
            if len(labels) > 1:
                # all of them: which label is the right one is not known
                across[tuple(label[-1] for label in labels)] += len(places)
            else:
                within += [self.items[place] for place in places[1:]]

        if across:
            number = across.total()
            classes = (
                f"{' and '.join(map(repr, names))} ({items:,})"
                for names, items in across.most_common()
            )
            share = (
                f"{number:,} of {len(self.items):,} pictures "
                f"({100 * number / len(self.items):.0f} %)"
            )
            yield (
                f"{share} are copies, byte for byte, of a picture with another label: "
                f"{self.level} {examples(classes)}"
            )

        if within:
            yield (
                f"{len(within):,} pictures are copies of one with the same label, byte for byte "
                f"({examples(within, most=3)})"
            )

    def in_both(self, train: Set[str], tests: Set[str]) -> list[str]:
        """List the items of the tests whose picture is in the training set, too."""
        found = []
        for places in self._places():
            items = [self.items[place] for place in places]
            if train & {*items}:
                found += [item for item in items if item in tests]
        return found

    def table(self) -> str:
        """Return a CSV with a row per copy: the first item of the picture, the copy, and the paths
        of both in the tree.
        """
        pairs = [(places[0], place) for places in self._places() for place in places[1:]]
        shown = [" > ".join(row) for row in self.rows]
        cells = [
            (self.items[one], self.items[other], shown[one], shown[other]) for one, other in pairs
        ]
        return lines(["item", "copy", "item_path", "copy_path"], cells)

    def after(self, choice: str) -> list[Row | None]:
        """The names of every item after a choice of what becomes of copies; None for an item that
        is left out.

        "keep": all stay; "first": the first item of each picture; "merge": of classes with exactly
        the same pictures one remains, and of each picture the first item of its most frequent
        class.
        """
        rows = self._names_after_merging() if choice == MERGE else list(self.rows)
        result: list[Row | None] = list(rows)
        if choice == KEEP:
            return result

        for places in self._places():
            kept = places[0]
            if choice != FIRST:
                ((most_common, _),) = Counter(rows[place] for place in places).most_common(1)
                kept = next(place for place in places if rows[place] == most_common)
            for place in set(places) - {kept}:
                result[place] = None

        return result

    def _names_after_merging(self) -> list[Row]:
        """Return the names of every item after classes with the same pictures took the name of the
        largest of them. `rows`: the names along the path of each item; `groups` (N,): a number for
        items of equal bytes, −1 for others."""
        # classes are merged where both have the same set of pictures, not where they share some
        pictures_of: dict[Row, set[int]] = defaultdict(set)
        for place, row in enumerate(self.rows):
            group = int(self.groups[place])
            alone = -1 - place  # a number of its own, of a picture that occurs once
            pictures_of[row].add(group if group >= 0 else alone)

        classes_with: dict[frozenset[int], list[Row]] = defaultdict(list)
        for row, pictures in pictures_of.items():
            classes_with[frozenset(pictures)].append(row)

        sizes = Counter(self.rows)
        name_of: dict[Row, Row] = {}
        for same in classes_with.values():
            largest = max(same, key=sizes.__getitem__)
            name_of |= dict.fromkeys(same, largest)
        return [name_of[row] for row in self.rows]

    def effect(self, choice: str) -> str:
        """Say in numbers what a choice of what becomes of copies changes: how many items and
        classes are left."""
        # the path of every item, None for one that is left out
        after = [row for row in self.after(choice) if row is not None]
        before = _number_of_classes(self.rows)
        left = _number_of_classes(after)
        classes = f"{left:,} {self.level}"
        if left != before:
            classes += f" instead of {before:,}"
        places = self._places()  # of the items of each group of equal bytes
        lost = len(self.items) - len(after)
        return (
            f"--copies {choice}: of the {sum(map(len, places)):,} items that share "
            f"{len(places):,} pictures, {len(places):,} stay and {lost:,} are left out; {classes}"
        )

    def applied(self, table: pa.Table, levels: Sequence[str], choice: str) -> pa.Table:
        """The table whose rows these items are, in the same order, after a choice of what becomes
        of copies: without the items left out, and with the names of merged classes in the columns
        `levels`."""
        after = self.after(choice)
        table = table.filter(pa.array([row is not None for row in after]))
        for level, names in zip(levels, zip(*filter(None, after), strict=True), strict=True):
            table = table.set_column(table.column_names.index(level), level, pa.array(names))
        return table


def _number_of_classes(rows: Sequence[Row]) -> int:
    """How many finest classes rows have; what marks the unknown is none."""
    return sum(not is_unknown(row[-1]) for row in set(rows))
