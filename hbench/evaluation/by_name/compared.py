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

HOPS = "hops"  # edges of the tree, and no share
HEADER = ("difference", "95 % interval", "p", "corrected", "items", "units")


@dataclass(frozen=True)
class NamesCompared:
    """The differences first − second of two namings of the same items: iterable, and by the name of
    a value.

    Attributes:
        unit: what the intervals and the test go by: a level, or "query".
        signatures: of both.
        differences: one of each value that both have; of items where both have one.
    """

    unit: str
    signatures: tuple[str, str]
    differences: tuple[Difference, ...]

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __getitem__(self, value: str) -> Difference:
        """The difference of one value, such as "hF1"; UnknownName for one that not both have."""
        for each in self.differences:
            if each.metric == value:
                return each
        raise UnknownName("value of both namings", value, [each.metric for each in self])

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of a table: the value, both means, and what HEADER names; in percent, hops in
        edges."""
        return [_cells(each) for each in self]

    def document(self) -> dict[str, Any]:
        """What `--json` has under `against`."""
        records = [each.record() for each in self]
        return {"signature": self.signatures[1], "unit": self.unit, "differences": records}


def _cells(difference: Difference) -> tuple[str, ...]:
    """A difference as the cells of a table: shares in percent and their difference in points; hops,
    the edges of the tree, as they are."""
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
    """The values (N,) of the items of a manifest, by name, and the signature of the naming."""

    manifest: Manifest
    values: Mapping[str, Values]
    signature: str

    def table(self) -> pa.Table:
        """A row of every item, in the order of the keys (test and item): its classes by level, and
        a column of each value. So the tables of two namings have the same rows side by side."""
        table = queries_of("test", self.manifest)
        for name, values in self.values.items():
            table = table.append_column(name, pa.array(values))
        return table.sort_by([(key, "ascending") for key in KEYS])


def compare_namings(one: ValuesByItem, other: ValuesByItem, unit: str) -> NamesCompared:
    """The paired differences one − other of two namings of the same items; `unit`: what intervals
    go by, a level or "query".

    Raises ComparisonError for other items or labels, UnknownName for the unit.
    """
    first, second = one.table(), other.table()
    found = tuple(differences_of(first, second, unit=unit))
    # the columns before the values: the item, and its class of each level
    classes = queries_of("test", one.manifest).column_names
    if second.column_names[: len(classes)] != classes or not _same(first, second, classes):
        raise ComparisonError(
            "these namings are of the same items with other labels",
            expected=one.signature,
            found=other.signature,
            fix="name both in the same dataset",
        )
    return NamesCompared(unit, (one.signature, other.signature), found)


def _same(first: pa.Table, second: pa.Table, names: list[str]) -> bool:
    """Whether two tables have the same texts in the columns of these `names`."""
    return all(first[name].to_pylist() == second[name].to_pylist() for name in names)
