"""Sets a threshold on some classes, so that a promised share of answers is right, and answers the
items with it: each as deep in the tree as the promise holds. The answers are measured on other
classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array
from hbench.core.errors import UnknownName, UsageError
from hbench.evaluation.by_name.trusted import Trusted
from hbench.metrics.significance import UnitSums, mean_intervals
from hbench.trust.climbing import Positions, Values
from hbench.trust.numbering import Numbering
from hbench.trust.outcomes import JudgedClimb, curve_of, outcome_of
from hbench.trust.parts import in_first_half
from hbench.trust.thresholds import Promise, answers_of, threshold_for

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
