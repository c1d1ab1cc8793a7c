"""Answers items as deep in the tree as a promise holds: sets a threshold on some classes, and
measures the answers on others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hbench.core import tables
from hbench.core.arguments import as_array
from hbench.core.errors import UnknownName, UsageError
from hbench.metrics.significance import UnitSums, mean_intervals
from hbench.trust.climbing import Positions, Values
from hbench.trust.numbering import Numbering
from hbench.trust.outcomes import (
    JudgedClimb,
    Outcome,
    RiskCoverage,
    area_under,
    curve_of,
    outcome_of,
)
from hbench.trust.parts import in_first_half
from hbench.trust.thresholds import Promise, answers_of, threshold_for

POINTS = 300  # the most points of a curve: more look the same
FIXED = (0.8, 0.6, 0.4)  # thresholds in common use: for the finest level, and for those above


@dataclass(frozen=True)
class NamedItems:
    """N named items, with all that thresholds are set and measured on.

    Attributes:
        items: (N,), the ids.
        judged: the masses along the items' paths, and whether each node is right.
        has_truth: (N,), whether a right path of each item is known.
        units: (N,), the unit of each item, such as its class.
        numbering: the names of the nodes.
        levels: the names of the levels.
        table: the naming, with the whole paths.
    """

    items: NDArray[np.object_]
    judged: JudgedClimb
    has_truth: NDArray[np.bool_]
    units: Positions
    numbering: Numbering
    levels: tuple[str, ...]
    table: pa.Table


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


def trusted_of(named: NamedItems, target: float, calibrate: ArrayLike | None, unit: str) -> Trusted:
    """Set a threshold on some items, and answer every item by the deepest node on its path whose
    mass reaches the threshold.

    The promise holds for new units: single items, or classes, whose items err together. Raises
    UsageError for a target outside of 0 … 1 or a mask of another length, UnknownName for an id.

    Args:
        named: the items.
        target: the share of answers that should be right.
        calibrate: the items to set the threshold on, as a mask (N,) or ids. None: the units are
            split into halves, each of which is answered with the threshold set on the other.
        unit: the name of the units that the promise holds for, such as "species".
    """
    _refuse_target(target)
    has_truth = named.has_truth
    if calibrate is None:
        # A labelled item is measured with the threshold set on the other half (`halves` has both).
        # New items, and items without a label, are answered with one set on all labelled items
        chosen = has_truth
        halves, thresholds = _thresholds_of_halves(named, target, has_truth)
        # `_of`: masses, verdicts and units of the chosen items
        promise = threshold_for(*_of(named, chosen), target)
        thresholds = np.where(has_truth, thresholds, promise.threshold)
        tested = has_truth
    else:
        chosen = _is_to_calibrate(named.items, calibrate) & has_truth
        promise = threshold_for(*_of(named, chosen), target)
        halves = ()
        thresholds = np.full(len(named.items), promise.threshold)
        tested = has_truth & ~chosen
    return _answer_at(named, tested, thresholds, _Setting(target, unit, promise, halves))


def trusted_by_others(named: NamedItems, target: float, others: NamedItems, unit: str) -> Trusted:
    """Set a threshold on other items, with labels, and answer the items of `named` with it.

    `target`: the share of answers that should be right. `unit`: what the promise is made over, the
    classes of a level ("species") or items ("query"). Raises UsageError unless 0 < target < 1."""
    _refuse_target(target)
    # `_of`: masses, verdicts and units of the items of known truth
    promise = threshold_for(*_of(others, others.has_truth), target)
    # one threshold for all items of `named`, which are not split into two halves
    thresholds = np.full(len(named.items), promise.threshold)
    # an item that is in both was used to set the threshold, so it is not measured
    is_other = ~np.isin(named.items.astype(str), others.items.astype(str))
    tested = named.has_truth & is_other
    return _answer_at(named, tested, thresholds, _Setting(target, unit, promise, halves=()))


def _refuse_target(target: float) -> None:
    """Raise UsageError unless the target, the share of answers that should be right, is between 0
    and 1: 0 promises nothing, and 1 cannot be promised."""
    if not 0 < target < 1:
        raise UsageError(
            "the target is no share", expected="more than 0, less than 1", found=f"{target}"
        )


@dataclass(frozen=True)
class _Setting:
    """How the threshold was set. `target`: the share of answers that should be right. `unit`: what
    the promise is made over. `promise`: the threshold for new items. `halves`: the thresholds of
    the two halves of the units, or ()."""

    target: float
    unit: str
    promise: Promise
    halves: tuple[float, ...]


def _answer_at(
    named: NamedItems, tested: NDArray[np.bool_], thresholds: Values, setting: _Setting
) -> Trusted:
    """Answer N items, each by the finest node whose mass reaches its threshold, and measure the
    answers.

    `tested` (N,): the items to measure on; the others were used to set the threshold, or their
    truth is unknown. `thresholds` (N,): one for each item, inf for no answer. `setting`: how they
    were set: for which share of right answers (`target`), counted over which units; the promise for
    new items, with its own threshold; and the thresholds of two halves of the units, if used.
    """
    judged = named.judged
    levels = judged.climb.levels_at(thresholds)
    answers = answers_of(levels, judged.right)  # (N,): 1 right, 0 wrong, NaN unknown or no answer
    rows = np.arange(len(levels))
    # (N, L+1): column 0 is for items without an answer, that is at the root, whose mass is 1
    masses = np.concatenate([np.ones((len(levels), 1)), judged.climb.masses], axis=1)
    of_tested = judged.of(tested)
    interval = np.full(2, np.nan)
    if tested.any():
        # number the units of the tested items from 0
        _, units = np.unique(named.units[tested], return_inverse=True)
        # [None] makes the answers the values (1, n) of a single metric, which gives one interval
        (interval,) = mean_intervals(UnitSums.of(answers[tested][None], units.ravel()))
    return Trusted(
        target=setting.target,
        unit=setting.unit,
        items=named.items,
        threshold=setting.promise.threshold,
        halves=setting.halves,
        promise=setting.promise,
        levels=levels,
        nodes=_texts_of(named, levels),
        masses=masses[rows, levels],
        right=answers == 1,
        known=~np.isnan(answers),  # False also without an answer
        outcome=outcome_of(of_tested, levels[tested]),
        interval=(float(interval[0]), float(interval[1])),
        curve=curve_of(of_tested),
        # for comparison, with the thresholds in common use, one for each level
        fixed=outcome_of(of_tested, of_tested.climb.levels_by(fixed_thresholds(len(named.levels)))),
        unlabelled=None
        if named.has_truth.all()
        else outcome_of(judged.of(~named.has_truth), levels[~named.has_truth]),
        level_names=named.levels,
        naming=named.table,
    )


def _texts_of(named: NamedItems, levels: Positions) -> list[str]:
    """Return the paths to the answers, which end at `levels` (N,), as texts; "" without an
    answer."""
    nodes = named.judged.climb.nodes
    rows = np.arange(len(nodes))
    # (N,): the node of each answer; 0 if there is no answer (level 0), whose text is empty
    answers = np.where(levels > 0, nodes[rows, levels - 1], 0).astype(np.int64)
    # a number for each pair of a node and its level, 0 … L, so that the text of an answer that
    # many items share is made only once
    keys = answers * (nodes.shape[1] + 1) + levels
    _, first, of_item = np.unique(keys, return_index=True, return_inverse=True)
    texts = [named.numbering.text(nodes[row, : levels[row]].tolist()) for row in first.tolist()]
    found: list[str] = np.array(texts, dtype=object)[of_item.ravel()].tolist()
    return found


def fixed_thresholds(depth: int) -> Values:
    """Return the fixed thresholds (`depth`,) in common use, coarse to fine: the mass from which a
    node of each level is taken as an answer. FIXED has them from the finest level upwards; the last
    one also holds for all levels above.

    >>> fixed_thresholds(4).tolist(), fixed_thresholds(2).tolist()
    ([0.4, 0.4, 0.6, 0.8], [0.6, 0.8])
    """
    from_finest = [FIXED[min(number, len(FIXED) - 1)] for number in range(depth)]
    return np.array(from_finest[::-1])


def _of(named: NamedItems, chosen: NDArray[np.bool_]) -> tuple[Any, Values, Positions]:
    """Return what a threshold is set on, for the items in the mask `chosen` (N,): the masses along
    their paths, whether each node is right, and the unit of each item."""
    return named.judged.climb.of(chosen), named.judged.right[chosen], named.units[chosen]


def _thresholds_of_halves(
    named: NamedItems, target: float, has_truth: NDArray[np.bool_]
) -> tuple[tuple[float, ...], Values]:
    """Split the units into halves and set a threshold on each. Return the thresholds with which the
    two halves are answered, each set on the other half, and the threshold of every item (N,).

    `target`: the share of answers that should be right. `has_truth` (N,): the items of known truth.
    A unit, such as a class, belongs to one half as a whole, so no threshold is measured on a class
    on which it was set.
    """
    is_first = in_first_half(named.units)
    # the two halves together are all items, so no inf, which means no answer, is left
    thresholds = np.full(len(named.items), np.inf)
    halves = []
    for half in (is_first, ~is_first):
        # `_of`: masses, verdicts and units of the other half's items of known truth
        promise = threshold_for(*_of(named, has_truth & ~half), target)
        thresholds[half] = promise.threshold
        halves.append(promise.threshold)
    return tuple(halves), thresholds


def _is_to_calibrate(items: NDArray[np.object_], calibrate: ArrayLike) -> NDArray[np.bool_]:
    """Return the mask (N,) of the items to set the threshold on. `items` (N,): all ids.
    `calibrate`: the mask, or ids. Raises UsageError for a mask of another length, UnknownName for
    an id that is not among the items."""
    given = as_array(calibrate, "calibrate")
    if given.dtype == bool:
        if given.shape != items.shape:
            raise UsageError(
                "calibrate has another length than the items",
                expected=f"({len(items)},), in the order of naming.items",
                found=str(given.shape),
            )
        return np.asarray(given)
    place = {item: number for number, item in enumerate(items.tolist())}
    chosen = np.zeros(len(items), bool)
    for item in map(str, given.ravel().tolist()):
        if item not in place:
            # 50 of the known ids are enough to list, and to compare with the wrong one
            raise UnknownName("item to calibrate on", item, list(place)[:50])
        chosen[place[item]] = True
    return chosen
