"""Finds pictures that occur several times in a dataset, byte for byte, and removes the copies on
request.

| choice | what happens to copies |
|---|---|
| keep | all items stay |
| first | the first item of each picture stays |
| merge | classes with exactly the same pictures become one; one item of each picture stays |
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
    """Group items (N,) whose pictures have the same bytes. Return the number of each item's group
    (N,), or None if there are no copies at all.

    An item without a copy or a file has the group -1. Only files of equal size are read.

    Args:
        root: the folder below which the items are files.
        items: paths, which may end in a box (@x,y,width,height), which `file_of` removes.
        images: {item: bytes} of items that are not files yet.
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
            # the same bytes with another box are another picture
            box = item.removeprefix(path)
            by_content[hashlib.sha256(content).hexdigest() + box].append(place)

    # a group has the place of its first item as its number
    groups = np.full(len(items), -1, dtype=np.int64)
    for group in by_content.values():
        groups[group] = group[0] if len(group) > 1 else -1
    return groups if (groups >= 0).any() else None


@dataclass(frozen=True)
class Copies:
    """The N items of a dataset, and which of them are copies of each other.

    Attributes:
        items: (N,) their ids.
        rows: (N,) their names, coarse to fine.
        groups: int64 (N,): items with the same bytes have the same number; -1: without a copy.
        level: the name of the finest level.
    """

    items: Sequence[str]
    rows: Sequence[Row]
    groups: NDArray[np.int64]
    level: str

    def _places(self) -> list[list[int]]:
        """List the places of the items that share a picture, for each such picture, in the order of
        the items: [[0, 4], [2, 3, 9]]."""
        places: dict[int, list[int]] = defaultdict(list)
        for place, group in enumerate(self.groups.tolist()):
            places[group].append(place)
        return [places[group] for group in places if group >= 0]

    def remarks(self) -> Iterator[str]:
        """Yield a sentence on the copies with different labels, and one on those with the same
        label, if there are any."""
        # For pictures whose copies have different labels: {these labels, by their names at the
        # finest level (`self.level`): the number of copies of all pictures with these labels}
        across: Counter[Row] = Counter()
        # if all copies of a picture have the same label: all but the first item
        within: list[str] = []
        for places in self._places():
            labels = dict.fromkeys(self.rows[place] for place in places)  # the different ones
            if len(labels) > 1:
                # all of these items count, since nobody knows which label is the right one
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
        """List the items of `tests` whose picture is also that of an item of `train`."""
        found = []
        for places in self._places():
            items = [self.items[place] for place in places]
            if train & {*items}:
                found += [item for item in items if item in tests]
        return found

    def table(self) -> str:
        """Return a CSV with a row per copy: the first item with this picture, the copy, and the
        paths of these two items in the tree."""
        # a place is an index of `items`; `places` are those of one picture
        pairs = [(places[0], place) for places in self._places() for place in places[1:]]
        shown = [" > ".join(row) for row in self.rows]
        cells = [
            (self.items[one], self.items[other], shown[one], shown[other]) for one, other in pairs
        ]
        return lines(["item", "copy", "item_path", "copy_path"], cells)

    def after(self, choice: str) -> list[Row | None]:
        """Return the names of each item (N,) after a choice of what becomes of copies; None for an
        item that is left out.

        "keep": all items stay. "first": the first item of each picture stays. "merge": classes with
        exactly the same pictures become one, and then the first item of the most frequent class of
        each picture stays.
        """
        rows = self._names_after_merging() if choice == MERGE else list(self.rows)
        result: list[Row | None] = list(rows)
        if choice == KEEP:
            return result

        for places in self._places():
            kept = places[0]
            if choice != FIRST:
                # the names that most of these items have, and the first item with these names
                ((most_common, _),) = Counter(rows[place] for place in places).most_common(1)
                kept = next(place for place in places if rows[place] == most_common)
            for place in set(places) - {kept}:
                result[place] = None

        return result

    def _names_after_merging(self) -> list[Row]:
        """Return the names of each item after merging: classes with exactly the same set of
        pictures get the names of the largest of them."""
        pictures_of: dict[Row, set[int]] = defaultdict(set)
        for place, row in enumerate(self.rows):
            group = int(self.groups[place])
            alone = -1 - place  # a negative number identifies a picture that occurs only once
            pictures_of[row].add(group if group >= 0 else alone)

        # {pictures: the classes with exactly these pictures}
        classes_with: dict[frozenset[int], list[Row]] = defaultdict(list)
        for row, pictures in pictures_of.items():
            classes_with[frozenset(pictures)].append(row)

        sizes = Counter(self.rows)  # {class: its number of items}
        name_of: dict[Row, Row] = {}
        for same in classes_with.values():
            largest = max(same, key=sizes.__getitem__)
            name_of |= dict.fromkeys(same, largest)
        return [name_of[row] for row in self.rows]

    def effect(self, choice: str) -> str:
        """Say how many items and classes are left with a choice for copies, "first" or "merge", by
        which one item of each picture stays."""
        after = [row for row in self.after(choice) if row is not None]
        before = _number_of_classes(self.rows)
        left = _number_of_classes(after)
        classes = f"{left:,} {self.level}"
        if left != before:
            classes += f" instead of {before:,}"
        places = self._places()
        lost = len(self.items) - len(after)
        return (
            f"--copies {choice}: of the {sum(map(len, places)):,} items that share "
            f"{len(places):,} pictures, {len(places):,} stay and {lost:,} are left out; {classes}"
        )

    def applied(self, table: pa.Table, levels: Sequence[str], choice: str) -> pa.Table:
        """Apply a choice of what becomes of copies to a table whose rows are these items, in the
        same order. Items that are left out lose their row; the columns `levels` get the names of
        merged classes."""
        after = self.after(choice)
        table = table.filter(pa.array([row is not None for row in after]))
        columns = zip(*filter(None, after), strict=True)  # one per level, of the rows that stay
        for level, names in zip(levels, columns, strict=True):
            table = table.set_column(table.column_names.index(level), level, pa.array(names))
        return table


def _number_of_classes(rows: Sequence[Row]) -> int:
    """Count the finest classes of rows of names; a name that marks an unknown class is not one."""
    return sum(not is_unknown(row[-1]) for row in set(rows))
