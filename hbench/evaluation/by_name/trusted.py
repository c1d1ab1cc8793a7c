"""Answers as deep as a promise holds: a threshold set on some classes, and what comes of it on
others.
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

POINTS = 300  # of a line, at most: an eye sees no fewer
FIXED = (0.8, 0.6, 0.4)  # thresholds in use, of the finest level and the ones above


@dataclass(frozen=True)
class NamedItems:
    """What is known of N items that are named: their ids, `items` (N,); the masses on their paths
    with whether each node is right, `judged`; whether some right path of an item is known,
    `has_truth` (N,); the unit of each, `units` (N,), such as its class; the names of the nodes,
    `numbering`; the names of the levels; and the `table` of the naming, with the whole paths."""

    items: NDArray[np.object_]
    judged: JudgedClimb
    has_truth: NDArray[np.bool_]
    units: Positions
    numbering: Numbering
    levels: tuple[str, ...]
    table: pa.Table


@dataclass(frozen=True)
class Trusted:
    """Answers at a threshold, and how good they are on classes on which it was not set.

    Attributes:
        target: the share that is to be right of what is said.
        unit: what the promise is made over: a level's classes, or "query".
        items: ids (N,), in the order of the naming.
        threshold: set on all that was calibrated on: for new items; inf where nothing passes.
        halves: the thresholds of the two halves of the classes, each set on the other one; () where
            a part was chosen to calibrate on.
        promise: `units`, how many were there, and `needed`, how many would do without an error.
        levels: of every answer (N,), 1 … L, and 0 where nothing is said.
        nodes: the paths of the answers (N,); "" where nothing is said.
        masses: of the answers (N,); 1 where nothing is said.
        right: whether each is right (N,); False where nobody knows, or nothing is said.
        known: whether the truth of each answer is known (N,).
        outcome: of the items that no threshold was set on: `said`, `right_of_said`, `risk`,
            `coverage`, `by_level`.
        interval: of the share right, 95 %, over units; NaN with fewer than two.
        curve: risk against coverage of these items.
        fixed: the outcome of the thresholds in use, .8, .6 and .4, beside it.
        unlabelled: what is said of the items of which nothing is known; None without any.
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
        """The share of the measured items of which something is said; NaN if none is measured."""
        return self.outcome.said

    @property
    def is_measured(self) -> bool:
        """Whether there are items with labels on which no threshold was set."""
        return not math.isnan(self.said)

    @property
    def right_of_said(self) -> float:
        """The share that is right of what is said; NaN where nothing is."""
        return self.outcome.right_of_said

    @property
    def risk(self) -> float:
        """The share of all measured items whose answer is wrong; to say nothing is not wrong."""
        return self.outcome.risk

    @property
    def coverage(self) -> float:
        """The mean over the measured items of 1 − log2 leaves / log2 F: `leaves` fine classes lie
        below the answer, F below the root. 1 for a fine class, 0 for nothing said."""
        return self.outcome.coverage

    @property
    def haurc(self) -> float:
        """The area under the curve of risk (wrong answers) against coverage (how fine answers are)
        over all thresholds; smaller is better."""
        return area_under(self.curve)

    @property
    def by_level(self) -> dict[str, tuple[int, float]]:
        """By level, how many items are answered there, and the share of them that is right."""
        return _by_level(self.outcome, self.level_names)

    @property
    def remark(self) -> str:
        """In words, what is promised, or why nothing is."""
        return in_words(self.target, self.unit, self.promise)

    def document(self) -> dict[str, Any]:
        """What `--json` has under `trust`: the target, the threshold (and those of the two halves),
        how many units it was set on and how many are needed, the shares of the answers, the same by
        fixed thresholds, and of items without a label. NaN and inf become null.
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
        """What is said of the items of which nothing is known; None without any."""
        if self.unlabelled is None:
            return None
        document = _outcome_document(self.unlabelled, self.level_names)
        return {name: document[name] for name in ("said", "coverage", "by_level")}

    def _points(self) -> list[list[float]]:
        """Coverage and risk along the curve, as pairs, at POINTS places at most."""
        _, coverage, risk = self.curve.thinned(POINTS)
        points: list[list[float]] = np.stack([coverage, risk], axis=1).tolist()
        return points

    def table(self) -> pa.Table:
        """item, answer, answer_level, mass, promised, then the whole path and its mass, and the
        level down to which several readers agree: a row of every item."""
        said = self.levels > 0
        names = np.array(["", *self.level_names], dtype=object)
        promised = [f"{self.target:g}" if here else "" for here in said.tolist()]
        # two masses: that of the answer, and that of the end of the whole path
        whole = {"path": "path", "mass": "path_mass", "agreed_to": "agreed_to"}
        given = {
            name: self.naming[own] for own, name in whole.items() if own in self.naming.column_names
        }
        return pa.table(
            {
                "item": pa.array(self.items.tolist()),
                "answer": pa.array(self.nodes),
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
    """What is promised of answers by a threshold, in a sentence, or why nothing is.

    `target`: the share of what is said that is to be right; `unit`: a level whose classes it is
    promised for, or "query".
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
    """A number as JSON has it: null for what is not finite."""
    return value if math.isfinite(value) else None


def _by_level(outcome: Outcome, levels: tuple[str, ...]) -> dict[str, tuple[int, float]]:
    """{name of a level: (how many answers end there, the share of them that is right)}; `levels`:
    the names of all, coarse to fine."""
    return {levels[each.level - 1]: (each.items, each.right) for each in outcome.by_level}


def _outcome_document(outcome: Outcome, levels: tuple[str, ...]) -> dict[str, Any]:
    """An outcome as JSON has it: shares, and by the name of a level the answers that end there;
    `levels`: the names of all, coarse to fine."""
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
    """Set a threshold of mass on some items, and answer every item by the deepest node whose mass
    reaches it.

    A unit is what is drawn anew when the promise is kept: a class (its items err together), or a
    single item. `target`: the share of what is said that is to be right. `calibrate`: the items to
    set the threshold on, as a mask (N,) or ids. Where it is None, the units are cut in halves, and
    each half is answered by the threshold that was set on the other. `unit`: what the promise calls
    its units, such as "species". Raises as `NamedPictures.trust`.
    """
    _refuse_target(target)
    has_truth = named.has_truth
    if calibrate is None:
        # every labelled item is measured, by the threshold that was set on the half that it is not
        # in. The threshold for new items is set on all labelled items; it also answers the items
        # without a label
        chosen = has_truth
        halves, thresholds = _thresholds_of_halves(named, target, has_truth)
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
    """Set a threshold on other items, with labels, and answer `named` down to where it lets pass.

    `target`: the share of what is said that is to be right; `unit`: how the promise calls the
    units. Raises as `NamedPictures.trust`.
    """
    _refuse_target(target)
    promise = threshold_for(*_of(others, others.has_truth), target)
    thresholds = np.full(len(named.items), promise.threshold)
    # an item of both has set the threshold, and does not judge it
    is_other = ~np.isin(named.items.astype(str), others.items.astype(str))
    tested = named.has_truth & is_other
    return _answer_at(named, tested, thresholds, _Setting(target, unit, promise, halves=()))


def _refuse_target(target: float) -> None:
    """Raise UsageError for a target, the share that is to be right, outside of 0 … 1; 0 promises
    nothing, and 1 nobody can promise."""
    if not 0 < target < 1:
        raise UsageError(
            "the target is no share", expected="more than 0, less than 1", found=f"{target}"
        )


@dataclass(frozen=True)
class _Setting:
    """What a threshold was set for, on what, and the thresholds of the halves."""

    target: float
    unit: str
    promise: Promise
    halves: tuple[float, ...]


def _answer_at(
    named: NamedItems, tested: NDArray[np.bool_], thresholds: Values, setting: _Setting
) -> Trusted:
    """The answers to N items at `thresholds` (N,), one for each item: the finest node whose mass
    reaches the threshold, and none for inf; of halves each has the threshold of the other, and that
    of `setting.promise` is reported. They are measured on the `tested` items, a mask (N,),
    alone: on the others the threshold may have been set, or their truth is not known."""
    judged = named.judged
    levels = judged.climb.levels_at(thresholds)
    answers = answers_of(levels, judged.right)  # 1, 0, or NaN: nothing said, or nobody knows
    rows = np.arange(len(levels))
    # (N, L+1): level 0, where nothing is said, has the mass 1
    masses = np.concatenate([np.ones((len(levels), 1)), judged.climb.masses], axis=1)
    of_tested = judged.of(tested)
    interval = np.full(2, np.nan)
    if tested.any():
        # numbered from 0 among the tested items
        _, units = np.unique(named.units[tested], return_inverse=True)
        # [None]: the answers as the values (1, n) of a single metric, which gives one interval
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
        known=~np.isnan(answers),
        outcome=outcome_of(of_tested, levels[tested]),
        interval=(float(interval[0]), float(interval[1])),
        curve=curve_of(of_tested),
        fixed=outcome_of(of_tested, of_tested.climb.levels_by(fixed_thresholds(len(named.levels)))),
        unlabelled=None
        if named.has_truth.all()
        else outcome_of(judged.of(~named.has_truth), levels[~named.has_truth]),
        level_names=named.levels,
        naming=named.table,
    )


def _texts_of(named: NamedItems, levels: Positions) -> list[str]:
    """The paths to the answers at levels (N,), as texts; "" where nothing is said."""
    nodes = named.judged.climb.nodes
    rows = np.arange(len(nodes))
    # many items share an answer: the path to each different node is written once
    own = np.where(levels > 0, nodes[rows, levels - 1], 0).astype(np.int64)
    # a number for each pair of a node and its level, 0 … L
    keys = own * (nodes.shape[1] + 1) + levels
    _, first, of_item = np.unique(keys, return_index=True, return_inverse=True)
    texts = [named.numbering.text(nodes[row, : levels[row]].tolist()) for row in first.tolist()]
    found: list[str] = np.array(texts, dtype=object)[of_item.ravel()].tolist()
    return found


def fixed_thresholds(depth: int) -> Values:
    """The masses (`depth`,) from which a level is trusted in works that fix them, coarse to fine:
    FIXED has them from the finest level upwards, and levels above its last have the last.

    >>> fixed_thresholds(4).tolist(), fixed_thresholds(2).tolist()
    ([0.4, 0.4, 0.6, 0.8], [0.6, 0.8])
    """
    from_finest = [FIXED[min(number, len(FIXED) - 1)] for number in range(depth)]
    return np.array(from_finest[::-1])


def _of(named: NamedItems, chosen: NDArray[np.bool_]) -> tuple[Any, Values, Positions]:
    """What a threshold is set on, of the chosen items (N,): the masses along their paths, whether
    each node of these is right, and the unit of each item."""
    return named.judged.climb.of(chosen), named.judged.right[chosen], named.units[chosen]


def _thresholds_of_halves(
    named: NamedItems, target: float, has_truth: NDArray[np.bool_]
) -> tuple[tuple[float, ...], Values]:
    """The two thresholds by which the halves of the units are answered, each set on the other half,
    and the threshold of every item (N,), that of its half.

    `target`: the share of what is said that is promised to be right. `has_truth` (N,): the items
    whose truth is known. Units, such as classes, are never cut: so no threshold is measured on a
    class that it was set on.
    """
    is_first = in_first_half(named.units)
    thresholds = np.full(len(named.items), np.inf)  # inf: nothing is said
    halves = []
    for half in (is_first, ~is_first):
        promise = threshold_for(*_of(named, has_truth & ~half), target)
        thresholds[half] = promise.threshold
        halves.append(promise.threshold)
    return tuple(halves), thresholds


def _is_to_calibrate(items: NDArray[np.object_], calibrate: ArrayLike) -> NDArray[np.bool_]:
    """Which of the `items`, ids (N,), a threshold is set on, as a mask (N,); `calibrate` says it as
    a mask or by their ids. Raises UsageError for a mask of another length, UnknownName for an id
    that is none of the items'."""
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
            # of the known ids, 50 are enough to be listed and compared with the wrong one
            raise UnknownName("item to calibrate on", item, list(place)[:50])
        chosen[place[item]] = True
    return chosen
