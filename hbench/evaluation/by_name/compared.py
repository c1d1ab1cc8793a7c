"""Compares two namings of the same items, value by value, with paired intervals over classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hbench.core.errors import ComparisonError, UnknownName
from hbench.core.text import points, points_range
from hbench.datasets.manifest import Manifest
from hbench.records.differences import Difference, differences_of
from hbench.records.queries import KEYS, queries_of
from hbench.trust.climbing import Values

HOPS = "hops"  # the only value that is no fraction: it counts edges of the tree
HEADER = ("difference", "95 % interval", "p", "corrected", "items", "units")


@dataclass(frozen=True)
class NamesCompared:
    """The differences first − second of two namings of the same items. Iterating yields all of
    them; indexing takes the name of a value.

    Attributes:
        unit: what intervals and tests are taken over: a level, or "query".
        signatures: of the two namings.
        differences: one for each value that both namings have, over the items for which both have
            it.
    """

    unit: str
    signatures: tuple[str, str]
    differences: tuple[Difference, ...]

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __getitem__(self, value: str) -> Difference:
        """Return the difference of one value, such as "hF1". Raises UnknownName if one of the
        namings does not have it."""
        for each in self.differences:
            if each.metric == value:
                return each
        raise UnknownName("value of both namings", value, [each.metric for each in self])

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of a table, a row for each value: its name, both means, and the columns
        of HEADER. Values are in percent, hops in edges."""
        return [_cells(each) for each in self]

    def document(self) -> dict[str, Any]:
        """Return the document that `--json` has under the key `against`."""
        records = [each.record() for each in self]
        return {"signature": self.signatures[1], "unit": self.unit, "differences": records}


def _cells(difference: Difference) -> tuple[str, ...]:
    """Format a difference as the cells of a table: fractions in percent, their difference in
    percentage points; hops as numbers of edges."""
    factor = 1 if difference.metric == HOPS else 100
    return (
        difference.metric,
        f"{factor * difference.first:.2f}",
        f"{factor * difference.second:.2f}",
        points(difference.difference, 2, factor),
        points_range(difference.low, difference.high, factor),
        difference.p_in_words,
        difference.corrected_in_words,
        f"{difference.queries:,}",
        f"{difference.units:,}",
    )


@dataclass(frozen=True)
class ValuesByItem:
    """The values of a naming: {name: (N,), of the manifest's items}, and its signature."""

    manifest: Manifest
    values: Mapping[str, Values]
    signature: str

    def table(self) -> pa.Table:
        """Make a table with a row for every item: its class at each level, and a column for each
        value. It is sorted by test and item, so that the rows of two namings correspond."""
        table = queries_of("test", self.manifest)
        for name, values in self.values.items():
            table = table.append_column(name, pa.array(values))
        return table.sort_by([(key, "ascending") for key in KEYS])


def compare_namings(one: ValuesByItem, other: ValuesByItem, unit: str) -> NamesCompared:
    """Compute the paired differences one − other between two namings of the same items, by their
    values of each item, such as hF1. `unit`: what intervals are taken over, a level or "query".

    Raises ComparisonError for different items or labels, UnknownName for an unknown unit.
    """
    first, second = one.table(), other.table()
    # first, as `differences_of` refuses tables of different items, whose labels cannot be compared
    # row by row
    found = tuple(differences_of(first, second, unit=unit))
    # the table of the queries has the columns that precede the values in both tables: the item, and
    # its class at each level
    classes = queries_of("test", one.manifest).column_names
    if second.column_names[: len(classes)] != classes or not _same(first, second, classes):
        raise ComparisonError(
            "these namings are of the same items with other labels",
            expected=one.signature,
            found=other.signature,
            fix="name both in the same dataset",
        )
    return NamesCompared(unit=unit, signatures=(one.signature, other.signature), differences=found)


def _same(first: pa.Table, second: pa.Table, names: list[str]) -> bool:
    """Whether two tables have the same texts in the columns `names`."""
    return all(first[name].to_pylist() == second[name].to_pylist() for name in names)
