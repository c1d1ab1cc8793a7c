"""The queries of a report as a table: the id, the test and the classes of each, and the units by
which their values vary.

Columns `query`, `test`, then `class:LEVEL` for every level of the tree, coarse to fine, holding
names. In the file that `--by-query` writes the values of every metric stand behind them, so that
anybody can compute intervals again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import UnknownName
from hbench.core.tables import index_array, numbers, text_array
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import QUERY
from hbench.metrics.names import MetricName
from hbench.tree import Labels, LabelTree

KEYS = ("query", "test")
CLASS = "class:"
Value = TypeVar("Value", float, NDArray[np.float64])


class MetricValues(Mapping[str, Value]):
    """Values by metric name; any spelling of the same metric finds them (`AP` is `AP/<finest
    level>`).
    """

    def __init__(self, values: Mapping[str, Value], levels: Sequence[str]) -> None:
        """`levels`: of the tree, coarse to fine, by which spellings are understood."""
        self._values: dict[str, Value] = dict(values)
        self._levels = tuple(levels)

    def __getitem__(self, name: str) -> Value:
        """The value of a metric, by any spelling of its name; UnknownName for a metric that the
        report does not have."""
        if not isinstance(name, str):
            raise UnknownName("metric of this report", repr(name), self._values)
        key = name if name in self._values else str(MetricName.parse(name).at(self._levels))
        if key not in self._values:
            raise UnknownName("metric of this report", name, self._values)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        """The values for notebooks: means in four digits, of arrays only their shapes."""
        shown = [
            f"{name}: {value:.4f}"
            if isinstance(value, float)
            else f"{name}: {np.asarray(value).shape}"
            for name, value in self._values.items()
        ]
        return "{" + ", ".join(shown) + "}"

    def __len__(self) -> int:
        return len(self._values)


def named_queries(
    test: str, ids: NDArray[np.object_], classes: Sequence[pa.Array], levels: Sequence[str]
) -> pa.Table:
    """The table of a test's queries: their ids (Q,), the test's name, and for each level, coarse to
    fine, a column of the names of their classes (Q,)."""
    columns = [text_array(ids), text_array([test] * len(ids)), *classes]
    return pa.table(dict(zip([*KEYS, *(CLASS + level for level in levels)], columns, strict=True)))


def queries_of_tree(
    test: str, ids: NDArray[np.object_], labels: Labels, tree: LabelTree
) -> pa.Table:
    """The table of a test's queries, with a column of class names for each level, from their ids
    (Q,) and their labels (Q, L), numbers of nodes in a tree."""
    classes = [
        text_array(names).take(index_array(column))
        for names, column in zip(tree.names, labels.T, strict=True)
    ]
    return named_queries(test, ids, classes, tree.levels)


def queries_of(test: str, manifest: Manifest) -> pa.Table:
    """The table of the queries of a test, in the manifest's order: ids, and classes by level."""
    return queries_of_tree(
        test, manifest.items[manifest.query], manifest.labels[manifest.query], manifest.tree
    )


def levels_of(table: pa.Table) -> list[str]:
    """The levels whose classes a table holds, coarse to fine."""
    return [name.removeprefix(CLASS) for name in table.column_names if name.startswith(CLASS)]


def metric_columns(table: pa.Table) -> list[str]:
    """The columns of a per-query table that hold the values of metrics: all but the query, its
    test and its classes."""
    return [name for name in table.column_names if name not in KEYS and not name.startswith(CLASS)]


def units_of(table: pa.Table, unit: str | None = None) -> NDArray[np.int64]:
    """The unit of every query, as a number (Q,): its class at the level `unit`, by default the
    finest, or, for "query", the query itself.

    Numbers follow the order of names, the finest first, so that they are the same under other trees
    of the same classes. Queries of several tests are of one unit where their class, or id, is the
    same. Raises UnknownName for another level.
    """
    levels = levels_of(table)
    if unit == QUERY or (unit is None and not levels):
        return _numbers_by_name(table["query"])
    if unit is not None and unit not in levels:
        raise UnknownName("unit", unit, [QUERY, *levels])
    # finest level first: every coarser one divides what is still one unit
    units = np.zeros(len(table), np.int64)
    for level in reversed(levels[: levels.index(unit) + 1] if unit else levels):
        names = _numbers_by_name(table[CLASS + level])
        # one number for each pair of a unit so far and a name of this level, then without gaps
        pairs = units * (names.max(initial=0) + 1) + names
        _, units = np.unique(pairs, return_inverse=True)
    return units


def _numbers_by_name(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """The texts of a column (Q,) as numbers from 0, in the order of the alphabet, so that the order
    of the rows changes no number."""
    # each different text once, in the order in which they come, and for each row its place there
    encoded = column.combine_chunks().dictionary_encode()
    names = np.array(encoded.dictionary.to_pylist(), dtype=object)
    rank = np.empty(len(names), np.int64)  # of each text in the alphabet
    rank[np.argsort(names)] = np.arange(len(names))
    ranks: NDArray[np.int64] = rank[numbers(encoded.indices, np.dtype(np.int32))]
    return ranks


def units_in_words(unit: str, number: int, *, partial: bool = False) -> str:
    """Say how many of which units an interval is taken over; of `partial` labels, the ends of paths
    above the level count, too.

    >>> units_in_words("species", 1912), units_in_words("query", 70)
    ('1,912 classes of the level species', '70 queries')
    """
    if unit == QUERY:
        return f"{number:,} queries"
    classes = f"{number:,} classes of the level {unit}"
    return f"{classes} and ends of paths above it" if partial else classes
