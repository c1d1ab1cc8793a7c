"""A replay: decisions applied in order to labels and their clusters; the same inputs give the same mapping, byte for
byte.

Every label ends in exactly one place: a group, dropped, or unassigned. A label that no decision speaks of stays
unassigned and needs review; it is never swept along by the cluster it happens to fall into.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hbench.core.errors import ComparisonError
from hbench_hgldv2.curation.decisions import CannotLink, Decisions, MustLink, check_known
from hbench_hgldv2.curation.operations import OPERATIONS, UNASSIGNED, Conflict, World, unlinked
from hbench_hgldv2.labels.label import Label, digest, partition_digest


class Placed(NamedTuple):
    """One row of mapping.csv: where a label ended, why, by which decisions, and up to three suggestions when
    unassigned.
    """

    class_id: str
    label: str
    status: str
    group: str
    kind: str
    parent: str
    reason: str
    decided_by: tuple[str, ...]
    suggestions: tuple[str, ...]


@dataclass(frozen=True)
class Curation:
    """The result of a replay."""

    rows: tuple[Placed, ...]
    conflicts: tuple[Conflict, ...]
    stale: tuple[str, ...]  # "reviewer: group" of approvals whose group has changed
    kinds: Mapping[str, str]  # group -> natural or human-made

    def groups(self) -> dict[str, list[str]]:
        """Group -> its labels' ids, both sorted."""
        result = defaultdict(list)
        for row in self.rows:
            if row.status == "group":
                result[row.group].append(row.class_id)
        return dict(sorted(result.items()))

    def counts(self) -> dict[str, int]:
        """Labels per reason."""
        result: dict[str, int] = defaultdict(int)
        for row in self.rows:
            result[row.reason] += 1
        return dict(result)


def replay(
    labels: Sequence[Label],
    clusters: Mapping[str, int],
    decisions: Decisions,
    *,
    suggestions: Mapping[str, Sequence[str]] | None = None,
) -> Curation:
    """Where the decisions put each label, rows sorted by class id.

    Raises UnknownName when a decision names a class that is not among the labels.
    """
    ids = sorted(label.class_id for label in labels)
    check_known(decisions, ids)
    made_here = (decisions.inputs.labels_sha256, decisions.inputs.clusters_sha256) == (
        digest(ids),
        partition_digest(clusters),
    )
    world = World(
        dict.fromkeys(ids, UNASSIGNED),
        clusters,
        {name: group.kind for name, group in decisions.groups.items()},
        made_here,
    )
    decided_by: dict[str, list[str]] = {label: [] for label in ids}
    for decision in decisions.decisions:
        for label, place in OPERATIONS[type(decision)](decision, world):
            decided_by[label].append(decision.id)
            world.places[label] = place
            world.spoken_of.add(label)
    for decision in decisions.decisions:
        if isinstance(decision, MustLink | CannotLink):
            world.conflicts += unlinked(decision, world)
    by_id = {label.class_id: label for label in labels}
    rows = tuple(_placed(by_id[i], world, decisions, decided_by[i], (suggestions or {}).get(i, ())) for i in ids)
    stale = tuple(
        f"{approval.reviewer}: {approval.group}"
        for approval in decisions.approvals
        if approval.sha256_of_members != digest(world.members(approval.group))
    )
    return Curation(rows, tuple(world.conflicts), stale, world.kinds)


def require_clean(curation: Curation) -> None:
    """Raise ComparisonError when a precondition failed or an approval is stale: the strict mode."""
    problems = [f"{c.decision} on {c.subject}: expected {c.expected}, found {c.found}" for c in curation.conflicts]
    problems += [f"stale approval of {name}" for name in curation.stale]
    if problems:
        raise ComparisonError(
            f"the decisions do not fit these labels in {len(problems)} places",
            found="; ".join(problems[:8]),
            fix="look at each on the page of: hbench hgldv2 review",
        )


def _placed(
    label: Label, world: World, decisions: Decisions, decided_by: Sequence[str], suggestions: Sequence[str]
) -> Placed:
    status, group = world.places[label.class_id]
    reason = {"group": "assigned", "dropped": "dropped"}.get(status, "ambiguous" if decided_by else "needs_review")
    return Placed(
        label.class_id,
        label.label,
        status,
        group,
        world.kinds.get(group, ""),
        (decisions.groups[group].parent or "") if group else "",
        reason,
        tuple(decided_by),
        tuple(suggestions[:3]) if status == "unassigned" else (),
    )
