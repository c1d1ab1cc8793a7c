"""Why a label is where it is."""

from __future__ import annotations

from hbench.core.errors import UnknownName
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.curation.operations import LabelPlace
from hbench_hgldv2.curation.replay import Curation
from hbench_hgldv2.labels.label import normalised


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


def describe(place: LabelPlace) -> str:
    """A place in words: the group's name in quotes, or the status.

    >>> describe(LabelPlace("group", "ocean area ")), describe(LabelPlace("dropped"))
    ("'ocean area '", 'dropped')
    """
    return repr(place.group) if place.group else place.status
