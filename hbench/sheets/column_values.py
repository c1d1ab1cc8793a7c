"""Tells what the values of a column have in common: whether they are numbers, number the rows, or
are nested in the classes of another column. Also finds names that two columns share.

>>> order = ColumnValues("order", pa.chunked_array([["o", "o", "p", ""]]))
>>> species = ColumnValues("species", pa.chunked_array([["1", "2", "3", "3"]]))
>>> order.filled, species.is_whole, species.is_within(order), order.is_within(species)
(['o', 'p'], True, True, False)
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.sheets.words import PICTURES

INTEGER = re.compile(r"[+-]?\d+(\.0*)?")
SAMPLE = 1000  # a test first looks at so many values, which is enough for most columns
FLOAT_OF_WHOLE = re.compile(r"([+-]?\d+)\.0+")  # pandas writes "12.0" if some ids are missing


class ColumnValues:
    """The N values of a column of texts.

    Attributes:
        name: of the column.
        dictionary: the different values, as an Arrow array; one may be "".
        codes: int64 (N,), the place of each cell's value in `dictionary`; −1 for an empty cell.
        size: the number of different values that are not empty.
    """

    def __init__(self, name: str, column: pa.ChunkedArray) -> None:
        """Encode a column: `dictionary` has its different values, `codes` the place in it of each
        cell's value, −1 for an empty or missing cell. `size` counts the values except for ""."""
        self.name = name
        text = column if pa.types.is_string(column.type) else column.cast(pa.string())
        encoded = text.combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        empty = pc.index(encoded.dictionary, "").as_py()  # the code of "", −1 if no cell has it
        self.codes: NDArray[np.int64] = np.where(codes == empty, -1, codes) if empty >= 0 else codes
        self.dictionary = encoded.dictionary
        self.size = len(encoded.dictionary) - (empty >= 0)

    @cached_property
    def filled(self) -> list[str]:
        """The different values that are not empty."""
        return [value for value in self.dictionary.to_pylist() if value]

    @cached_property
    def is_unique(self) -> bool:
        """Whether each row has another value, and none is empty."""
        return bool(self.size == len(self.codes))

    @cached_property
    def is_numeric(self) -> bool:
        """Whether all values are numbers, and there is at least one value."""
        return self._all(_is_number)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers, as codes of classes are."""
        return self._all(INTEGER.fullmatch)

    @cached_property
    def names_pictures(self) -> bool:
        """Whether all values end like the names of picture files."""
        return self._all(lambda value: value.lower().endswith(PICTURES))

    def _all(self, holds: Callable[[str], object]) -> bool:
        """Whether `holds` is true for all different values that are not empty, and there is one.
        The first SAMPLE values are tested before the others are even converted, since they decide
        for most columns."""
        first = [value for value in self.dictionary[:SAMPLE].to_pylist() if value]
        return self.size > 0 and all(map(holds, first)) and all(map(holds, self.filled))

    @property
    def counts_rows(self) -> bool:
        """Whether the values number the rows: n, n + 1, …"""
        if not (self.is_unique and self.is_whole):
            return False
        numbers = [int(float(value)) for value in self.filled]  # "3" and "3.0" alike
        return numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    def is_within(self, coarse: ColumnValues) -> bool:
        """Whether each class of this column occurs with only one class of `coarse`, a column of the
        same table. Rows with an empty cell in either column are ignored."""
        both = (coarse.codes >= 0) & (self.codes >= 0)
        fine = self.codes[both]
        above = coarse.codes[both]
        # of the coarse classes of a fine class, `parent` keeps the one of some row; it is the only
        # one if all rows agree with it
        parent = np.zeros(len(self.dictionary), np.int64)
        parent[fine] = above
        return bool((parent[fine] == above).all())


def _is_number(text: str) -> bool:
    """Whether a text is a finite number, perhaps with a decimal comma."""
    try:
        return math.isfinite(float(text.replace(",", ".", 1)))
    except ValueError:
        return False


def plain_id(text: str) -> str:
    """Return an id without surrounding blanks and the decimals that pandas may have added.

    >>> plain_id("12.0"), plain_id(" a1 ")
    ('12', 'a1')
    """
    stripped = text.strip()
    whole = FLOAT_OF_WHOLE.fullmatch(stripped)
    return whole[1] if whole else stripped


def sharing_a_name(levels: Sequence[ColumnValues]) -> list[tuple[int, int]]:
    """Find the pairs of levels that have a name in common, as sorted pairs of indices in `levels`.

    Comparing all pairs would take minutes for thousands of columns, as in a transposed table.
    """
    holders = defaultdict(list)  # {name: the levels that have it}
    for number, level in enumerate(levels):
        for name in {*level.filled}:  # the names that are not empty
            holders[name].append(number)
    pairs = {pair for numbers in holders.values() for pair in itertools.combinations(numbers, 2)}
    return sorted(pairs)


def names_at_both(coarse: ColumnValues, fine: ColumnValues) -> list[str]:
    """Find the names that occur at a coarse and at a fine level, but most likely mean different
    classes there. Both columns have the same rows.

    A name that stands at both levels in the same row does not count: there a leaf is repeated on
    purpose, down to the finest level. Nor do numbers: each level is usually numbered from 0 or 1,
    so equal numbers are no sign of anything.
    """
    if coarse.is_numeric or fine.is_numeric:
        return []
    shared = {*coarse.filled} & {*fine.filled}
    if not shared:
        return []
    repeated = set()  # names that stand at both levels in some row
    names = fine.dictionary.to_pylist()
    for code in np.unique(fine.codes[fine.codes >= 0]):
        if names[code] in shared:
            # the coarse classes of the rows that have this name at the fine level
            above = np.unique(coarse.codes[fine.codes == code])
            parents = {coarse.dictionary[int(one)].as_py() for one in above if one >= 0}
            if names[code] in parents:
                repeated.add(names[code])
    return sorted(shared - repeated)
