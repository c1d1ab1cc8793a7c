"""Why a label is where it is, and what two decisions files disagree on."""

from __future__ import annotations

from typing import NamedTuple

from hbench.errors import UnknownName
from pipelines.hgldv2.decisions import Decisions
from pipelines.hgldv2.labels import normalised
from pipelines.hgldv2.operations import Place
from pipelines.hgldv2.replay import Curation


class Difference(NamedTuple):
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
        f"{row.label} ({row.class_id}): {describe(Place(row.status, row.group))}"
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


def differences(first: Curation, second: Curation) -> list[Difference]:
    """The labels that two curations of the same labels put in different places, sorted by class id."""
    places = {row.class_id: Place(row.status, row.group) for row in second.rows}
    found = [(row, Place(row.status, row.group), places[row.class_id]) for row in first.rows]
    return [Difference(row.class_id, row.label, describe(a), describe(b)) for row, a, b in found if a != b]


def describe(place: Place) -> str:
    """A place in words: the group's name in quotes, or the status.

    >>> describe(Place("group", "ocean area ")), describe(Place("dropped"))
    ("'ocean area '", 'dropped')
    """
    return repr(place.group) if place.group else place.status
