"""Tests the claims of a study over its seeds: paired differences, intervals, and p-values corrected for being many.

A claim has a value d for every seed. Its interval is Student's, mean(d) ± t_(n−1, .975) · s(d) / √n, and its effect size
mean(d) / s(d). A claim that something is within ±w is tested against both ends (two one-sided tests). A claim that
several arms are each beaten has the largest p-value of its parts (an intersection–union test). The p-values of a family
of claims are corrected by Holm's method: a claim holds, or does not hold, where its corrected p is at most .05. The family is
all its claims, measured or not: what has yet to be measured counts in the correction as if it were open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.errors import DataError
from hbench.core.files import replacing
from hbench.core.untrusted import parquet_table
from hbench.metrics.significance import holm
from studies.study import Claim, Study

CONFIDENCE = 0.975  # of each end of a 95 % interval
SIGNIFICANT = 0.05
Values = Mapping[str, Mapping[str, NDArray[np.float64]]]  # arm -> metric -> the score of every seed, (S,)
COLUMNS = {"arm": pa.string(), "seed": pa.int64(), "metric": pa.string(), "value": pa.float64()}


class Interval(NamedTuple):
    """A mean over seeds and its 95 % interval; infinite from one seed."""

    mean: float
    low: float
    high: float


class Verdict(NamedTuple):
    """What the seeds say of a claim. `effect`: mean difference in standard deviations; `p`: of its test alone, `corrected`
    within its family; `word`: holds, does not hold, open, or not measured."""

    claim: Claim
    seeds: int
    difference: Interval
    effect: float
    p: float
    corrected: float
    word: str


def write_values(values: Values, path: Path) -> None:
    """Write every score of every seed to a parquet file, from which all intervals can be computed again."""
    rows = [
        (arm, seed, metric, float(value))
        for arm, metrics in values.items()
        for metric, scores in metrics.items()
        for seed, value in enumerate(scores)
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    table = pa.table(dict(zip(COLUMNS, map(list, columns), strict=True)), schema=pa.schema(list(COLUMNS.items())))
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_values(path: Path) -> dict[str, dict[str, NDArray[np.float64]]]:
    """What `write_values` wrote. Raises DataError."""
    try:
        table = parquet_table(path)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(f"{path} cannot be read", expected="a study's values", found=str(error)) from None
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    if types != COLUMNS or any(table[name].null_count for name in COLUMNS):
        shown = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        raise DataError(f"{path} is not a table of a study's values", expected=f"columns {shown}, without nulls")
    found: dict[str, dict[str, dict[int, float]]] = {}
    for arm, seed, metric, value in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True):
        found.setdefault(arm, {}).setdefault(metric, {})[seed] = value
    return {
        arm: {metric: np.array([scores[seed] for seed in sorted(scores)]) for metric, scores in metrics.items()}
        for arm, metrics in found.items()
    }


def contrast(differences: NDArray[np.float64]) -> Interval:
    """The mean of one number per seed and its 95 % interval by Student's t.

    >>> contrast(np.array([0.03, 0.01, 0.02])).mean
    0.02
    """
    from scipy.stats import t

    number, mean = len(differences), float(np.mean(differences))
    if number < 2:
        return Interval(mean, -np.inf, np.inf)
    half = float(t.ppf(CONFIDENCE, number - 1) * _standard_error(differences))
    return Interval(mean, mean - half, mean + half)


def judged(study: Study, values: Values) -> list[Verdict]:
    """Every claim by its paired test over the seeds that its arms share, corrected by family; or that it is not measured."""
    tested = [_tested(claim, values) for claim in study.claims]
    for family in {verdict.claim.family for verdict in tested}:
        members = [number for number, verdict in enumerate(tested) if verdict.claim.family == family]
        for number, corrected in zip(members, holm([tested[n].p for n in members]).tolist(), strict=True):
            decided = corrected <= SIGNIFICANT or not tested[number].seeds
            tested[number] = tested[number]._replace(
                corrected=corrected, word=tested[number].word if decided else "open"
            )
    return tested


def _tested(claim: Claim, values: Values) -> Verdict:
    """A claim by its own test; of a claim that beats several arms, by the part that is least sure."""
    wanted = {(arm, claim.metric) for arm in claim.arms} | {
        (arm, claim.minus_metric or claim.metric) for arm in claim.minus
    }
    if any(metric not in values.get(arm, {}) for arm, metric in wanted):
        nan = float("nan")
        return Verdict(claim, 0, Interval(nan, nan, nan), nan, 1.0, 1.0, "not measured")
    parts = [_tested_part(claim, (*claim.minus, rival), values) for rival in claim.beats]
    return max(parts or [_tested_part(claim, claim.minus, values)], key=_doubt)


def _doubt(verdict: Verdict) -> tuple[bool, float]:
    """How far a part of a claim is from holding: first those that speak against it, the surest first."""
    holds = verdict.word == "holds"
    return not holds, verdict.p if holds else -verdict.p


def _tested_part(claim: Claim, minus: Sequence[str], values: Values) -> Verdict:
    arms = (*claim.plus, *minus)
    seeds = min(len(values[arm][claim.metric]) for arm in arms)
    differences = sum((values[arm][claim.metric][:seeds] for arm in claim.plus), np.zeros(seeds))
    subtracted = claim.minus_metric or claim.metric
    differences = differences - sum((values[arm][subtracted][:seeds] for arm in minus), np.zeros(seeds))
    word, p = _p_value(differences, claim.within)
    spread = float(np.std(differences, ddof=1)) if seeds > 1 else 0.0
    effect = float(np.mean(differences)) / spread if spread > 0 else float("nan")
    return Verdict(claim, seeds, contrast(differences), effect, p, p, word)


def _p_value(differences: NDArray[np.float64], within: float | None) -> tuple[str, float]:
    """What the mean difference says of the claim, and the two-sided p-value of saying so."""
    from scipy.stats import t

    mean, error, freedom = float(np.mean(differences)), _standard_error(differences), len(differences) - 1
    if freedom < 1 or np.isnan(mean):
        return "open", 1.0
    distance = mean if within is None else within - abs(mean)  # above 0 where the claim is right
    p = 2 * float(t.sf(abs(distance) / error, freedom)) if error > 0 else float(distance == 0)
    return "holds" if distance > 0 else "does not hold", p


def _standard_error(differences: NDArray[np.float64]) -> float:
    return float(np.std(differences, ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else float("inf")
