"""The answers to items, as deep in the tree as a promise holds: what they are, how good they are,
and how they are written. hbench.evaluation.by_name.trusted.calibration makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core import tables
from hbench.trust.climbing import Positions, Values
from hbench.trust.outcomes import Outcome, RiskCoverage, area_under
from hbench.trust.thresholds import Promise

POINTS = 300  # the most points of a curve: more look the same


@dataclass(frozen=True)
class Trusted:
    """The answers at a threshold, and how good they are on classes on which it was not set.

    Attributes:
        target: the share of answers that should be right.
        unit: what the promise is made over: a level's classes, or "query".
        items: (N,), the ids, in the order of the naming.
        threshold: set on all items that were calibrated on, for new items; inf: nothing passes.
        halves: the thresholds of the two halves of the classes, each set on the other half; () if
            items were chosen to calibrate on.
        promise: with `units`, the number of units it was set on, and `needed`, the number that
            would be enough without any error.
        levels: (N,), the level of each answer, 1 … L; 0 without an answer.
        nodes: the paths of the answers (N,); "" without an answer.
        masses: (N,), of the answers; 1 without an answer.
        right: (N,), whether each answer is right; False without an answer, or if nobody knows.
        known: (N,), whether the truth of each answer is known.
        outcome: of the items on which no threshold was set: `said`, `right_of_said`, `risk`,
            `coverage`, `by_level`.
        interval: the 95 % interval of the share of right answers, over units; NaN with fewer than
            two units.
        curve: risk against coverage of these items.
        fixed: the outcome of these items with the common thresholds .8, .6 and .4.
        unlabelled: the outcome of the items of unknown truth; None if there are none.
        naming: the table of the whole paths, from which the answers were cut.
    """

    target: float
    unit: str
    items: NDArray[np.object_]
    threshold: float
    halves: tuple[float, ...]
    promise: Promise
    levels: Positions
    nodes: list[str]
    masses: Values
    right: NDArray[np.bool_]
    known: NDArray[np.bool_]
    outcome: Outcome
    interval: tuple[float, float]
    curve: RiskCoverage
    fixed: Outcome
    unlabelled: Outcome | None
    level_names: tuple[str, ...]
    naming: pa.Table

    @property
    def said(self) -> float:
        """The share of the measured items that got an answer; NaN if no item is measured."""
        return self.outcome.said

    @property
    def is_measured(self) -> bool:
        """Whether there are items with labels on which no threshold was set."""
        return not math.isnan(self.said)

    @property
    def right_of_said(self) -> float:
        """The share of answers that are right; NaN without any answer."""
        return self.outcome.right_of_said

    @property
    def risk(self) -> float:
        """The share of the measured items whose answer is wrong. No answer is not wrong."""
        return self.outcome.risk

    @property
    def coverage(self) -> float:
        """The mean over the measured items of 1 − log2 n / log2 F, where n fine classes are below
        the answer and F below the root: 1 for a fine class, 0 without an answer."""
        return self.outcome.coverage

    @property
    def haurc(self) -> float:
        """The area under the curve of risk (wrong answers) against coverage (how fine answers are)
        over all thresholds; smaller is better."""
        return area_under(self.curve)

    @property
    def by_level(self) -> dict[str, tuple[int, float]]:
        """{level: (number of answers that end there, share of them that is right)}."""
        return _by_level(self.outcome, self.level_names)

    @property
    def remark(self) -> str:
        """A sentence on what is promised, or why nothing is."""
        return in_words(self.target, self.unit, self.promise)

    def document(self) -> dict[str, Any]:
        """Return the document that `--json` has under the key `trust`. NaN and inf become null.

        It has the promise: the target, the units over which it is made, their number and the number
        that is needed, the threshold, and those of the two halves of the units, each set on the
        other half. Then the interval of the share of right answers, the curve of risk against
        coverage with its area (haurc), and outcomes: of the answers, with fixed thresholds
        (`fixed`), and of items without a label.
        """
        return {
            "target": self.target,
            "unit": self.unit,
            "threshold": _json(self.threshold),
            "halves": [_json(each) for each in self.halves],
            "units": self.promise.units,
            "needed": self.promise.needed,
            "interval": [_json(each) for each in self.interval],
            "haurc": _json(self.haurc),
            "curve": self._points(),
            **_outcome_document(self.outcome, self.level_names),
            "fixed": _outcome_document(self.fixed, self.level_names),
            "unlabelled": self._unlabelled_document(),
        }

    def _unlabelled_document(self) -> dict[str, Any] | None:
        """The part of the document on items of unknown truth; None if there are none."""
        if self.unlabelled is None:
            return None
        document = _outcome_document(self.unlabelled, self.level_names)
        return {name: document[name] for name in ("said", "coverage", "by_level")}

    def _points(self) -> list[list[float]]:
        """Return at most POINTS pairs of coverage and risk along the curve."""
        _, coverage, risk = self.curve.thinned(POINTS)
        points: list[list[float]] = np.stack([coverage, risk], axis=1).tolist()
        return points

    def table(self) -> pa.Table:
        """Make a table with a row for every item: item, answer, answer_level, mass, promised, then
        the whole path with its mass, and the level down to which several readers agree."""
        said = self.levels > 0
        names = np.array(["", *self.level_names], dtype=object)
        # the share of answers that should be right; "" without an answer
        promised = [f"{self.target:g}" if here else "" for here in said.tolist()]
        # {column of the naming: column here}; "mass" is that of the answer here, so the mass of the
        # whole path is renamed
        whole = {"path": "path", "mass": "path_mass", "agreed_to": "agreed_to"}
        given = {
            name: self.naming[own] for own, name in whole.items() if own in self.naming.column_names
        }
        return pa.table(
            {
                "item": pa.array(self.items.tolist()),
                "answer": pa.array(self.nodes),  # paths as texts, "" without an answer
                "answer_level": pa.array(names[self.levels].tolist()),
                "mass": pa.array(self.masses),
                "promised": pa.array(promised),
                **given,
            }
        )

    def write(self, path: str | Path) -> None:
        """Write the answers as .csv, .tsv or .parquet, whole or not at all."""
        tables.write_sheet(self.table(), Path(path))


def in_words(target: float, unit: str, promise: Promise) -> str:
    """Say in a sentence what a threshold promises, or why nothing is promised.

    `target`: the share of answers that should be right. `unit`: the level whose classes the promise
    is made over, or "query".
    """
    of = "items" if unit == "query" else f"classes ({unit})"
    if math.isfinite(promise.threshold):
        kind = "for other items of the same classes" if unit == "query" else "for new classes"
        return (
            f"from a mass of {promise.threshold:.3f} on, at least {target:.0%} of what is said is "
            f"right {kind}, with 95 % confidence ({promise.units:,} {of})"
        )
    if promise.units < promise.needed:
        return (
            f"nothing is promised: {promise.units:,} {of} are too few for {target:.0%}, which "
            f"takes {promise.needed:,} even without an error"
        )
    return (
        f"nothing is promised: of {promise.units:,} {of}, too many are wrong among the surest, or "
        f"too few speak, for {target:.0%}"
    )


def _json(value: float) -> float | None:
    """Convert a number for JSON: None, which becomes null, unless it is finite."""
    return value if math.isfinite(value) else None


def _by_level(outcome: Outcome, levels: tuple[str, ...]) -> dict[str, tuple[int, float]]:
    """Return {level: (number of answers that end there, share of them that is right)}. `levels`:
    the names of all levels, coarse to fine."""
    return {levels[each.level - 1]: (each.items, each.right) for each in outcome.by_level}


def _outcome_document(outcome: Outcome, levels: tuple[str, ...]) -> dict[str, Any]:
    """Convert an outcome for JSON. All values are shares, one number each, null for a share of
    nothing, except for "items", the number of answers at a level.

    "said": of the items that have an answer; "right_of_said": of these answers that are right.
    "risk" and "coverage" are over all items, also those without an answer: the share with a wrong
    answer, and the mean of how much of the tree an answer rules out. `levels`: the names of all
    levels, coarse to fine.
    """
    by_level = {
        level: {"items": items, "right": _json(right)}
        for level, (items, right) in _by_level(outcome, levels).items()
    }
    return {
        "said": _json(outcome.said),
        "right_of_said": _json(outcome.right_of_said),
        "risk": _json(outcome.risk),
        "coverage": _json(outcome.coverage),
        "by_level": by_level,
    }
