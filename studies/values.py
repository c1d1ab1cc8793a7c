"""Keeps the scores of a study's runs, class by class, and how each run was trained: all that its
page is computed from.

A score is the mean over queries; of every class of the study's unit the kept table has the mean
over its queries. So intervals can be taken over seeds and over classes without the runs. The
table's metadata (`About`) has the settings, the rates that were tried, the digest of the dataset
and the version of hbench.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from hbench.core.errors import DataError
from hbench.core.files import replacing
from hbench.core.schema import Strict
from hbench.core.untrusted import parquet_table
from hbench.train.records.trials import Trial

Floats = NDArray[np.float64]
COLUMNS = {
    "arm": pa.string(), "seed": pa.int64(), "metric": pa.string(), "unit": pa.string(),
    "value": pa.float64(),
    "queries": pa.int64(),
}  # fmt: skip
KEY = b"study"


class ArmRecord(Strict):
    """The training of an arm: the recipe of its seed 0 as TOML, the chosen settings, and the trials
    that they were chosen by.
    """

    recipe: str
    chosen: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()


class About(Strict):
    """What the scores of a study rest on; `unit`: the level whose classes the table has, `by`: the
    metric of the trials.
    """

    dataset: str
    dataset_digest: str
    hbench: str
    unit: str
    by: str = ""
    arms: dict[str, ArmRecord] = Field(default_factory=dict)


@dataclass(frozen=True)
class Scores:
    """A metric of an arm: `values` (S, C), for every seed the mean over the `queries` (C,) of every
    class; `units`: their names.
    """

    values: Floats
    queries: NDArray[np.int64]
    units: tuple[str, ...]

    @property
    def of_seeds(self) -> Floats:
        """The score of every seed (S,): the mean over all queries."""
        scores: Floats = self.values @ (self.queries / self.queries.sum())
        return scores


Values = Mapping[str, Mapping[str, Scores]]  # arm -> metric -> its scores


def whole(scores: Floats) -> Scores:
    """Make Scores of scores (S,) by seed that are not known class by class, such as gaps: as if
    there were a single class."""
    return Scores(np.asarray(scores, float)[:, None], np.ones(1, np.int64), ("",))


def with_means(values: Values, means: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Scores]]:
    """Add the metrics that are means of others and that values of earlier runs lack, such as wAP of
    the levels' APs; `means`: the others by the name of their mean.

    Raises DataError where these are not of the same queries, so that their mean says nothing.
    """
    found = {arm: dict(metrics) for arm, metrics in values.items()}
    for arm, metrics in found.items():
        for name, others in means.items():
            parts = [metrics[other] for other in others if other in metrics]
            if name not in metrics and len(parts) == len(others):
                metrics[name] = _mean_of(parts, f"{name} of {arm}")
    return found


def _mean_of(parts: Sequence[Scores], what: str) -> Scores:
    """The mean of several metrics of an arm, seed by seed and class by class; `what` names it in
    the DataError for metrics of other queries."""
    first = parts[0]
    for part in parts:
        if part.units != first.units or not np.array_equal(part.queries, first.queries):
            raise DataError(
                f"{what} is no mean of what was kept", expected="metrics of the same queries"
            )
    return Scores(np.mean([part.values for part in parts], axis=0), first.queries, first.units)


def write(values: Values, about: About, path: Path) -> None:
    """Write every score to a parquet file, whole or not at all."""
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for arm, metrics in values.items():
        for metric, scores in metrics.items():
            for seed, row in enumerate(scores.values):
                columns["arm"] += [arm] * len(row)
                columns["seed"] += [seed] * len(row)
                columns["metric"] += [metric] * len(row)
                columns["unit"] += scores.units
                columns["value"] += row.tolist()
                columns["queries"] += scores.queries.tolist()
    schema = pa.schema(list(COLUMNS.items()), metadata={KEY: about.model_dump_json()})
    with replacing(path) as temporary:
        pq.write_table(pa.table(columns, schema=schema), temporary, compression="zstd")


def read(path: Path) -> tuple[dict[str, dict[str, Scores]], About]:
    """Read the scores of a study, and what they rest on, from a file that `write` wrote. Raises
    DataError for any other file."""
    try:
        table = parquet_table(path)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(
            f"{path} cannot be read", expected="a study's values", found=str(error)
        ) from None

    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    if types != COLUMNS or any(table[name].null_count for name in COLUMNS):
        shown = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        raise DataError(
            f"{path} is not a table of a study's values", expected=f"columns {shown}, without nulls"
        )

    try:
        about = About.model_validate_json((table.schema.metadata or {}).get(KEY, b"{}"))
    except ValidationError as error:
        raise DataError(f"{path} does not say what its values rest on", found=str(error)) from None

    found: dict[str, dict[str, Scores]] = {}
    arms = np.array(table["arm"].to_pylist(), object)
    metrics = np.array(table["metric"].to_pylist(), object)
    for arm in dict.fromkeys(arms):
        for metric in dict.fromkeys(metrics[arms == arm]):
            rows = np.flatnonzero((arms == arm) & (metrics == metric))
            found.setdefault(arm, {})[metric] = _scores_in(table, rows, path)
    return found, about


def _scores_in(table: pa.Table, rows: NDArray[np.int64], path: Path) -> Scores:
    """The scores in those rows (S · C,) of a table that are of one arm and metric: seed by seed,
    and in each the same classes in the same order, as `write` puts them."""
    part = table.take(pa.array(rows))
    number = len(np.unique(part["seed"].to_numpy()))
    if len(rows) % number:
        arm = part["arm"][0].as_py()
        metric = part["metric"][0].as_py()
        raise DataError(
            f"{path} lacks values", expected=f"the same classes for every seed of {arm}, {metric}"
        )
    classes = len(rows) // number
    return Scores(
        part["value"].to_numpy().reshape(number, classes),
        part["queries"].to_numpy()[:classes],
        tuple(part["unit"].to_pylist()[:classes]),
    )
