"""Why a label is where it is, and what two decisions files disagree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hbench.core.errors import ComparisonError, UnknownName
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.curation.operations import LabelPlace
from hbench_hgldv2.curation.replay import Curation, Placed
from hbench_hgldv2.labels.label import Label, normalised


class LabelDispute(NamedTuple):
    """A label that two curations put in different places."""

    class_id: str
    label: str
    first: str
    second: str


def explain(curation: Curation, decisions: Decisions, label: str) -> list[str]:
    """The chain of decisions that put a label, given by class id or name, where it is; raises UnknownName."""
    row = next((r for r in curation.rows if label == r.class_id), None) or next(
        (r for r in curation.rows if normalised(label) == normalised(r.label)), None
    )
    if row is None:
        raise UnknownName("label", label, [r.label for r in curation.rows])
    by_id = {decision.id: decision for decision in decisions.decisions}
    lines = [
        f"{row.label} ({row.class_id}): {describe(LabelPlace(row.status, row.group))}"
        + (f", {row.kind}" if row.kind else "")
    ]
    for step in curation.history[row.class_id]:
        decision = by_id[step.decision]
        said = "".join(f", {what}" for what in (decision.by, decision.at, decision.why) if what)
        lines.append(f"  {step.decision} {decision.op}: {describe(step.before)} → {describe(step.after)}{said}")
    if not curation.history[row.class_id]:
        lines.append("  no decision speaks of it: it needs review")
    lines += [
        f"  conflict in {c.decision}: expected {c.expected}, found {c.found}"
        for c in curation.conflicts
        if c.subject == row.class_id
    ]
    if row.suggestions:
        lines.append(f"  suggestions: {', '.join(row.suggestions)}")
    return lines


def differences(first: Curation, second: Curation) -> list[LabelDispute]:
    """The labels that two curations of the same labels put in different places, sorted by class id."""
    places = {row.class_id: LabelPlace(row.status, row.group) for row in second.rows}
    found = [(row, LabelPlace(row.status, row.group), places[row.class_id]) for row in first.rows]
    return [LabelDispute(row.class_id, row.label, describe(a), describe(b)) for row, a, b in found if a != b]


def describe(place: LabelPlace) -> str:
    """A place in words: the group's name in quotes, or the status.

    >>> describe(LabelPlace("group", "ocean area ")), describe(LabelPlace("dropped"))
    ("'ocean area '", 'dropped')
    """
    return repr(place.group) if place.group else place.status


class Disagreement(NamedTuple):
    """A label two curators put in different places."""

    class_id: str
    label: str
    landmarks: int
    first: str
    second: str


class Agreement(NamedTuple):
    """`observed` is the share of equal places, `kappa` Cohen's (nan when chance alone gives 1), weighted ones count
    landmarks.
    """

    labels: int
    observed: float
    kappa: float
    weighted_observed: float
    weighted_kappa: float
    queue: list[Disagreement]


def compare(first: Sequence[Placed], second: Sequence[Placed], labels: Sequence[Label]) -> Agreement:
    """The agreement of two mappings over the labels both curators placed (in a group or dropped).

    Raises ComparisonError when they share none.
    """
    ours, theirs = (
        {row.class_id: LabelPlace(row.status, row.group) for row in rows if row.status != "unassigned"}
        for rows in (first, second)
    )
    shared = [label for label in labels if label.class_id in ours and label.class_id in theirs]
    if not shared:
        raise ComparisonError(
            "the two curators placed no label in common",
            expected="labels placed by both",
            found=f"{len(ours)} and {len(theirs)} placed labels",
        )
    pairs = [(ours[label.class_id], theirs[label.class_id]) for label in shared]
    plain, weighted = [1] * len(pairs), [label.landmarks for label in shared]
    queue = [
        Disagreement(label.class_id, label.label, label.landmarks, describe(a), describe(b))
        for label, (a, b) in zip(shared, pairs, strict=True)
        if a != b
    ]
    queue.sort(key=lambda row: (-row.landmarks, row.class_id))
    return Agreement(
        len(shared),
        _observed(pairs, plain),
        kappa(pairs, plain),
        _observed(pairs, weighted),
        kappa(pairs, weighted),
        queue,
    )


def kappa(pairs: Sequence[tuple[object, object]], weights: Sequence[int]) -> float:
    """Cohen's κ = (p_o − p_e) / (1 − p_e), p_e = Σ_g p_first(g)·p_second(g), each pair counted with its weight; nan
    when p_e = 1.
    """
    total = sum(weights)
    if not total:
        return float("nan")
    first, second = Counter[object](), Counter[object]()
    for (a, b), weight in zip(pairs, weights, strict=True):
        first[a] += weight
        second[b] += weight
    chance = sum(first[group] * second[group] for group in first) / total**2
    return float("nan") if chance == 1 else (_observed(pairs, weights) - chance) / (1 - chance)


def _observed(pairs: Sequence[tuple[object, object]], weights: Sequence[int]) -> float:
    total = sum(weights)
    return (
        sum(weight for (a, b), weight in zip(pairs, weights, strict=True) if a == b) / total if total else float("nan")
    )
