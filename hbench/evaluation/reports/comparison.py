"""A comparison: two reports of the same conditions, metric by metric, on the values of each query.

>>> first = pa.table({"query": ["a", "b"], "test": ["test"] * 2, "AP": [1.0, 0.5]})
>>> second = pa.table({"query": ["b", "a"], "test": ["test"] * 2, "AP": [0.25, 1.0]})
>>> compare(first, second)[0].difference
0.125
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import ComparisonError, UnknownName, examples
from hbench.evaluation.reports.report import Document
from hbench.metrics.significance import paired_difference

KEYS = ("query", "test")


class Difference(NamedTuple):
    """The mean over queries of first − second, its 95 % interval, and the p-value of a paired sign-flip test."""

    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    queries: int

    def record(self) -> dict[str, str | float | int | None]:
        """The fields by name, None for what no query defines."""
        return {name: None if value != value else value for name, value in self._asdict().items()}  # noqa: PLR0124


def refuse_other_conditions(first: Document, second: Document) -> None:
    """Raise ComparisonError unless both reports have one signature and one dataset digest."""
    for what, own, other in (
        ("signatures", first.signature, second.signature),
        ("dataset digests", first.dataset_digest, second.dataset_digest),
    ):
        if own != other:
            raise ComparisonError(
                f"these reports cannot be compared: their {what} differ",
                expected=own,
                found=other,
                fix="evaluate both files under the same conditions",
            )


def compare(first: pa.Table, second: pa.Table) -> list[Difference]:
    """The differences of the metrics that both per-query tables have, joined by test and query.

    Raises ComparisonError when the queries or all metrics differ.
    """
    order, other = _order(first), _order(second)
    if order.keys() != other.keys():
        lone = sorted(order.keys() ^ other.keys())
        raise ComparisonError(
            "these reports have other queries",
            found=f"{len(lone)} in only one of them: {examples(' '.join(q) for q in lone)}",
        )
    rows = np.array([other[key] for key in sorted(order)])
    own_rows = np.array([order[key] for key in sorted(order)])
    names = [name for name in first.column_names if name in second.column_names and name not in KEYS]
    if not names:
        raise ComparisonError("these reports have no metric in common", fix="evaluate both with the same --metrics")
    return [_difference(name, _values(first, name)[own_rows], _values(second, name)[rows]) for name in names]


def only(first: pa.Table, second: pa.Table, metrics: Sequence[str]) -> pa.Table:
    """The first per-query table with these metrics alone; UnknownName for one that the two tables do not share."""
    shared = [name for name in first.column_names if name in second.column_names and name not in KEYS]
    for name in metrics:
        if name not in shared:
            raise UnknownName("metric of both reports", name, shared)
    return first.select([*KEYS, *dict.fromkeys(metrics)])


def _order(table: pa.Table) -> dict[tuple[str, str], int]:
    keys = zip(table["test"].to_pylist(), table["query"].to_pylist(), strict=True)
    return {key: row for row, key in enumerate(keys)}


def _values(table: pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _difference(name: str, first: NDArray[np.float64], second: NDArray[np.float64]) -> Difference:
    both = ~np.isnan(first) & ~np.isnan(second)
    if not both.any():
        undefined = float("nan")
        return Difference(name, undefined, undefined, undefined, undefined, undefined, undefined, 0)
    difference, low, high, p = paired_difference(first, second)
    means = float(first[both].mean()), float(second[both].mean())
    return Difference(name, *means, difference, low, high, p, int(both.sum()))
