"""The queries of a report as a table: each query's id, test and classes. Functions derive the units
of intervals from it.

The columns are `query`, `test`, and `class:LEVEL` with the names of classes for each level of the
tree, coarse to fine. In the file that `--by-query` writes, the values of every metric follow, so
that anybody can recompute the intervals.
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
    """Values by the name of a metric. Any spelling of the metric can be used as a key, such as `AP`
    for `AP/<finest level>`.
    """

    def __init__(self, values: Mapping[str, Value], levels: Sequence[str]) -> None:
        """`levels` are the names of the tree's levels, coarse to fine; parsing a metric's name
        needs them."""
        self._values: dict[str, Value] = dict(values)
        self._levels = tuple(levels)

    def __getitem__(self, name: str) -> Value:
        """The value of a metric, by any spelling of its name. Raises UnknownName for a metric that
        the report does not have."""
        if not isinstance(name, str):
            raise UnknownName("metric of this report", repr(name), self._values)
        key = name if name in self._values else str(MetricName.parse(name).at(self._levels))
        if key not in self._values:
            raise UnknownName("metric of this report", name, self._values)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        """The values for notebooks: means with four digits, or the shapes of arrays."""
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
    """The table of a test's queries, with the columns `query`, `test` and a `class:LEVEL` for each
    level.

    Args:
        test: the name of the test.
        ids: of the queries, (Q,).
        classes: for each level, coarse to fine, the names of the queries' classes, (Q,).
        levels: the names of the levels, coarse to fine.
    """
    columns = [text_array(ids), text_array([test] * len(ids)), *classes]
    return pa.table(dict(zip([*KEYS, *(CLASS + level for level in levels)], columns, strict=True)))


def queries_of_tree(
    test: str, ids: NDArray[np.object_], labels: Labels, tree: LabelTree
) -> pa.Table:
    """The table of a test's queries, from their ids (Q,) and their labels (Q, L), which are node
    ids of the tree."""
    classes = [
        text_array(names).take(index_array(column))
        for names, column in zip(tree.names, labels.T, strict=True)
    ]
    return named_queries(test, ids, classes, tree.levels)


def queries_of(test: str, manifest: Manifest) -> pa.Table:
    """The table of a test's queries, in the order of the manifest."""
    return queries_of_tree(
        test, manifest.items[manifest.query], manifest.labels[manifest.query], manifest.tree
    )


def levels_of(table: pa.Table) -> list[str]:
    """The levels whose classes a table holds, coarse to fine."""
    return [name.removeprefix(CLASS) for name in table.column_names if name.startswith(CLASS)]


def metric_columns(table: pa.Table) -> list[str]:
    """The names of the columns of a per-query table that hold values of metrics: all but the query,
    its test and its classes."""
    return [name for name in table.column_names if name not in KEYS and not name.startswith(CLASS)]


def units_of(table: pa.Table, unit: str | None = None) -> NDArray[np.int64]:
    """The unit of every query, as a number (Q,): its class at the level `unit` (by default the
    finest), or the query itself if `unit` is "query".

    Units are numbered in the order of their names at the level itself; if several have the same
    name, by their parents' names. So if other trees group the same classes, the classes keep their
    numbers. Queries of several tests have the same unit if they have the same class or, for
    "query", the same id. Raises UnknownName for an unknown level.
    """
    levels = levels_of(table)
    if unit == QUERY or (unit is None and not levels):
        return _numbers_by_name(table["query"])
    if unit is not None and unit not in levels:
        raise UnknownName("unit", unit, [QUERY, *levels])
    # start at the level itself; each coarser level splits units with one name but several parents
    units = np.zeros(len(table), np.int64)
    for level in reversed(levels[: levels.index(unit) + 1] if unit else levels):
        names = _numbers_by_name(table[CLASS + level])
        # a number for each pair of a unit and a name of this level; `unique` closes the gaps
        pairs = units * (names.max(initial=0) + 1) + names
        _, units = np.unique(pairs, return_inverse=True)
    return units


def _numbers_by_name(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Number the texts of a column (Q,) from 0 in alphabetical order, so that the numbers do not
    depend on the order of the rows."""
    # the dictionary holds each text once, in the order of first appearance
    encoded = column.combine_chunks().dictionary_encode()
    names = np.array(encoded.dictionary.to_pylist(), dtype=object)
    position = np.empty(len(names), np.int64)  # of each text in the alphabet
    position[np.argsort(names)] = np.arange(len(names))
    # for each row the index of its text in the dictionary, and the position of that text
    found: NDArray[np.int64] = position[numbers(encoded.indices, np.dtype(np.int32))]
    return found


def units_in_words(unit: str, number: int, *, partial: bool = False) -> str:
    """The number and kind of the units of a confidence interval, in words: the classes of the level
    `unit`, or the queries if it is "query". Under `partial` labels, paths that end above the level
    are units, too, and are counted in `number`.

    >>> units_in_words("species", 1912), units_in_words("query", 70)
    ('1,912 classes of the level species', '70 queries')
    """
    if unit == QUERY:
        return f"{number:,} queries"
    classes = f"{number:,} classes of the level {unit}"
    return f"{classes} and ends of paths above it" if partial else classes
