"""Tells what the values of one column have in common: whether they are numbers, count the rows, or
lie within other classes; and which names two columns share.

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
SAMPLE = 1000  # values that tell most columns apart, before all are looked at
FLOAT_OF_WHOLE = re.compile(r"([+-]?\d+)\.0+")  # what pandas makes of ids beside a missing one


class ColumnValues:
    """The values of a column of texts, as codes (N,) of its different ones; −1 where a cell is
    empty.
    """

    def __init__(self, name: str, column: pa.ChunkedArray) -> None:
        """`dictionary`: the different values; `codes` (N,): of every cell its place there, −1 where
        the cell is empty or missing; `size`: how many different values are not empty."""
        self.name = name
        text = column if pa.types.is_string(column.type) else column.cast(pa.string())
        whole = text.combine_chunks()
        encoded = (
            whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
        ).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        empty = pc.index(encoded.dictionary, "").as_py()  # its place, −1 where no cell is empty
        self.codes: NDArray[np.int64] = np.where(codes == empty, -1, codes) if empty >= 0 else codes
        self.dictionary = encoded.dictionary
        self.size = len(encoded.dictionary) - (empty >= 0)

    @cached_property
    def filled(self) -> list[str]:
        """The different values that are not empty."""
        return [value for value in self.dictionary.to_pylist() if value]

    @cached_property
    def is_unique(self) -> bool:
        """Whether every row has a value of its own."""
        return bool(self.size == len(self.codes))

    @cached_property
    def is_numeric(self) -> bool:
        """Whether all values are numbers, of which there is one at least."""
        return self._all(_is_number)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers, as codes of classes are."""
        return self._all(INTEGER.fullmatch)

    @cached_property
    def names_pictures(self) -> bool:
        """Whether all values end as files of pictures do."""
        return self._all(lambda value: value.lower().endswith(PICTURES))

    def _all(self, holds: Callable[[str], object]) -> bool:
        """Whether `holds` is true of every different value, and there is one. The first SAMPLE are
        asked before the others are even read: they tell most columns apart. `dictionary`: the
        different values, "" among them; `filled`: those that are not empty."""
        first = [value for value in self.dictionary[:SAMPLE].to_pylist() if value]
        return self.size > 0 and all(map(holds, first)) and all(map(holds, self.filled))

    @property
    def counts_rows(self) -> bool:
        """Whether the rows are numbered: n, n + 1, …"""
        if not (self.is_unique and self.is_whole):
            return False
        numbers = [int(float(value)) for value in self.filled]  # "3" and "3.0" alike
        return numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    def is_within(self, coarse: ColumnValues) -> bool:
        """Whether every class of this column lies in one class of the `coarse` one, in the rows
        where both have a class. A code is the number of a row's class, −1 for an empty cell."""
        both = (coarse.codes >= 0) & (self.codes >= 0)
        fine = self.codes[both]
        above = coarse.codes[both]
        # one of the parents of each class is noted: with one alone, all rows have it
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
    """An id without the decimals that pandas gave it.

    >>> plain_id("12.0"), plain_id(" a1 ")
    ('12', 'a1')
    """
    stripped = text.strip()
    whole = FLOAT_OF_WHOLE.fullmatch(stripped)
    return whole[1] if whole else stripped


def sharing_a_name(levels: Sequence[ColumnValues]) -> list[tuple[int, int]]:
    """The pairs of levels that have a name in common, by their numbers, in order: of thousands of
    columns, as in a table that is transposed, comparing all pairs would take minutes."""
    holders = defaultdict(list)
    for number, level in enumerate(levels):
        for name in {*level.filled}:
            holders[name].append(number)
    pairs = {pair for numbers in holders.values() for pair in itertools.combinations(numbers, 2)}
    return sorted(pairs)


def names_at_both(coarse: ColumnValues, fine: ColumnValues) -> list[str]:
    """The names that stand at two levels, a coarse and a fine one, though they are most likely
    other classes there: without those that are repeated below themselves on purpose, and without
    numbers. A code is the number of a row's class, −1 for an empty cell.
    """
    if coarse.is_numeric or fine.is_numeric:
        return []
    shared = {*coarse.filled} & {*fine.filled}
    if not shared:
        return []
    # a leaf that is repeated down to the finest level stands at both in its row
    repeated = set()
    names = fine.dictionary.to_pylist()
    for code in np.unique(fine.codes[fine.codes >= 0]):
        if names[code] in shared:
            # the classes of the coarser level in whose rows this name stands
            above = np.unique(coarse.codes[fine.codes == code])
            parents = {coarse.dictionary[int(one)].as_py() for one in above if one >= 0}
            if names[code] in parents:
                repeated.add(names[code])
    return sorted(shared - repeated)
