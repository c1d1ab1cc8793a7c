"""A replay: decisions applied in order to labels and their clusters; the same inputs give the same mapping, byte for byte.

Every label ends in exactly one place: a group, dropped, or unassigned. A label that no decision speaks of stays unassigned and needs
review; it is never swept along by the cluster it happens to fall into.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hbench.errors import ComparisonError
from pipelines.hgldv2.decisions import (
    REST,
    Ambiguous,
    CannotLink,
    Decisions,
    Drop,
    Merge,
    Move,
    MustLink,
    Name,
    Rename,
    SetKind,
    Split,
    check_known,
)
from pipelines.hgldv2.labels import Label, digest, partition_digest


class Place(NamedTuple):
    """Where a label is: status "group", "dropped" or "unassigned", and the group's name."""

    status: str
    group: str = ""


UNASSIGNED, DROPPED = Place("unassigned"), Place("dropped")


class Placed(NamedTuple):
    """One row of mapping.csv: where a label ended, why, by which decisions, and up to three suggestions when unassigned."""

    class_id: str
    label: str
    status: str
    group: str
    kind: str
    parent: str
    reason: str
    decided_by: tuple[str, ...]
    suggestions: tuple[str, ...]


class Conflict(NamedTuple):
    """A precondition of a decision that does not hold; the decision was not applied to that label."""

    decision: str
    subject: str
    expected: str
    found: str


class Step(NamedTuple):
    """One change in a label's history."""

    decision: str
    before: Place
    after: Place


@dataclass
class World:
    """The state while decisions are applied; `whole_clusters`: the decisions were made over these very clusters."""

    places: dict[str, Place]
    clusters: Mapping[str, int]
    kinds: dict[str, str]
    whole_clusters: bool
    conflicts: list[Conflict] = field(default_factory=list)

    def members(self, group: str) -> list[str]:
        return [label for label, place in self.places.items() if place == Place("group", group)]


@dataclass(frozen=True)
class Curation:
    """The result of a replay."""

    rows: tuple[Placed, ...]
    conflicts: tuple[Conflict, ...]
    stale: tuple[str, ...]  # "reviewer: group" of approvals whose group has changed
    history: Mapping[str, tuple[Step, ...]]

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
    labels: Sequence[Label], clusters: Mapping[str, int], decisions: Decisions,
    *, suggestions: Mapping[str, Sequence[str]] | None = None,
) -> Curation:
    """Where the decisions put each label, rows sorted by class id.

    Raises UnknownName when a decision names a class that is not among the labels.
    """
    ids = sorted(label.class_id for label in labels)
    check_known(decisions, ids)
    made_here = (decisions.inputs.labels_sha256, decisions.inputs.clusters_sha256) == (digest(ids), partition_digest(clusters))
    world = World(dict.fromkeys(ids, UNASSIGNED), clusters, {name: group.kind for name, group in decisions.groups.items()}, made_here)
    history: dict[str, list[Step]] = {label: [] for label in ids}
    for decision in decisions.decisions:
        for label, place in _OPERATIONS[type(decision)](decision, world):
            history[label].append(Step(decision.id, world.places[label], place))
            world.places[label] = place
    for decision in decisions.decisions:
        if isinstance(decision, MustLink | CannotLink):
            world.conflicts += _unlinked(decision, world)
    by_id = {label.class_id: label for label in labels}
    rows = tuple(_placed(by_id[i], world, decisions, history[i], (suggestions or {}).get(i, ())) for i in ids)
    stale = tuple(f"{approval.reviewer}: {approval.group}" for approval in decisions.approvals
                  if approval.sha256_of_members != digest(world.members(approval.group)))
    return Curation(rows, tuple(world.conflicts), stale, {i: tuple(steps) for i, steps in history.items()})


def require_clean(curation: Curation) -> None:
    """Raise ComparisonError when a precondition failed or an approval is stale: the strict mode."""
    problems = [f"{c.decision} on {c.subject}: expected {c.expected}, found {c.found}" for c in curation.conflicts]
    problems += [f"stale approval of {name}" for name in curation.stale]
    if problems:
        raise ComparisonError(f"the decisions do not fit these labels in {len(problems)} places", found="; ".join(problems[:8]),
                              fix="look at each with: python -m pipelines.hgldv2 explain LABEL")


def _placed(
    label: Label, world: World, decisions: Decisions, steps: Sequence[Step], suggestions: Sequence[str]
) -> Placed:
    status, group = world.places[label.class_id]
    reason = {"group": "assigned", "dropped": "dropped"}.get(status, "ambiguous" if steps else "needs_review")
    return Placed(
        label.class_id, label.label, status, group, world.kinds.get(group, ""), (decisions.groups[group].parent or "") if group else "",
        reason, tuple(step.decision for step in steps), tuple(suggestions[:3]) if status == "unassigned" else (),
    )


Effects = Iterable[tuple[str, Place]]


def _name(decision: Name, world: World) -> Effects:
    numbers = sorted({world.clusters[label] for label in decision.members_of if label in world.clusters})
    covered = list(decision.members_of)
    if len(numbers) > 1 and world.whole_clusters:
        world.conflicts.append(Conflict(decision.id, decision.members_of[0], "one cluster", f"{len(numbers)} clusters"))
    elif world.whole_clusters:
        covered += [label for label, place in world.places.items()
                    if place == UNASSIGNED and world.clusters.get(label) in numbers and label not in decision.members_of]
    return [(label, Place("group", decision.to)) for label in covered]


def _move(decision: Move, world: World) -> Effects:
    for label in decision.labels:
        found = world.places[label]
        if decision.expect_from is None or found == Place("group", decision.expect_from):
            yield label, Place("group", decision.to)
        else:
            world.conflicts.append(Conflict(decision.id, label, decision.expect_from, found.group or found.status))


def _split(decision: Split, world: World) -> Effects:
    members, taken = dict.fromkeys(world.members(decision.group)), set()
    for target, part in decision.into.items():
        for label in () if part == REST else part:
            if label in members:
                taken.add(label)
                yield label, Place("group", target)
            else:
                place = world.places[label]
                world.conflicts.append(Conflict(decision.id, label, decision.group, place.group or place.status))
    rest = next((target for target, part in decision.into.items() if part == REST), decision.group)
    if rest != decision.group:
        yield from ((label, Place("group", rest)) for label in members if label not in taken)


def _merge(decision: Merge, world: World) -> Effects:
    for group in decision.groups:
        if group != decision.to:
            yield from ((label, Place("group", decision.to)) for label in world.members(group))


def _rename(decision: Rename, world: World) -> Effects:
    if decision.to != decision.group and world.members(decision.to):
        world.conflicts.append(Conflict(decision.id, decision.group, f"no group {decision.to!r} yet", "one with classes"))
        return
    yield from ((label, Place("group", decision.to)) for label in world.members(decision.group))


def _drop(decision: Drop, world: World) -> Effects:
    return [(label, DROPPED) for label in decision.labels]


def _ambiguous(decision: Ambiguous, world: World) -> Effects:
    place = UNASSIGNED if decision.use is None else Place("group", decision.use)
    return [(label, place) for label in decision.labels]


def _set_kind(decision: SetKind, world: World) -> Effects:
    world.kinds[decision.group] = decision.kind
    return ()


def _nothing(decision: MustLink | CannotLink, world: World) -> Effects:
    return ()


def _unlinked(decision: MustLink | CannotLink, world: World) -> Iterable[Conflict]:
    places = [world.places[label] for label in decision.labels]
    if isinstance(decision, MustLink) and len(set(places)) > 1:
        yield Conflict(decision.id, decision.labels[0], "one group for all", ", ".join(sorted({p.group or p.status for p in places})))
    groups = [place.group for place in places if place.group]
    if isinstance(decision, CannotLink) and len(set(groups)) < len(groups):
        yield Conflict(decision.id, decision.labels[0], "different groups", ", ".join(groups))


_OPERATIONS: Mapping[type, Callable[[Any, World], Effects]] = {
    Name: _name, Move: _move, Split: _split, Merge: _merge, Rename: _rename, Drop: _drop, Ambiguous: _ambiguous,
    SetKind: _set_kind, MustLink: _nothing, CannotLink: _nothing,
}
