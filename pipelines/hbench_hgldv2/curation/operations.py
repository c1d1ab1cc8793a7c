"""Defines what each kind of decision does to the places of labels, and checks its preconditions.

Nothing is moved here: the effects of a decision are (label, new place) pairs, which the caller applies while reading them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hbench_hgldv2.curation import decisions


class LabelPlace(NamedTuple):
    """The place of a label: status "group", "dropped" or "unassigned", and the group's name."""

    status: str
    group: str = ""

    @property
    def described(self) -> str:
        """The group's name in quotes, or the status."""
        return repr(self.group) if self.group else self.status


UNASSIGNED, DROPPED = LabelPlace("unassigned"), LabelPlace("dropped")


def in_group(group: str) -> LabelPlace:
    """Return the place of a label in a group."""
    return LabelPlace("group", group)


class Conflict(NamedTuple):
    """A precondition of a decision that does not hold, so that the decision was not applied to that label."""

    decision: str
    subject: str
    expected: str
    found: str


@dataclass
class World:
    """The state while decisions are applied; `whole_clusters`: whether the decisions were made about these clusters."""

    places: dict[str, LabelPlace]
    clusters: Mapping[str, int]
    kinds: dict[str, str]
    whole_clusters: bool
    conflicts: list[Conflict] = field(default_factory=list)
    decided: set[str] = field(default_factory=set)  # labels that a decision so far has placed or left open

    def members(self, group: str) -> list[str]:
        return [label for label, place in self.places.items() if place == in_group(group)]

    def expects(self, decision: str, label: str, group: str, members: Sequence[str] | None = None) -> bool:
        """Return whether a label is in a group, or in `members`, its members before the decision; add a conflict if not."""
        place = self.places[label]
        holds = place == in_group(group) if members is None else label in members
        if not holds:
            self.conflicts.append(Conflict(decision, label, group, place.group or place.status))
        return holds


def effects(decision: decisions.AnyDecision, world: World) -> Iterator[tuple[str, LabelPlace]]:
    """Yield each label that a decision places, with its new place; failed preconditions are added to the conflicts."""
    match decision:
        case decisions.Name():
            yield from _name(decision, world)
        case decisions.Move(expect_from=group, to=to):
            placed = (i for i in decision.labels if group is None or world.expects(decision.id, i, group))
            yield from ((label, in_group(to)) for label in placed)
        case decisions.Split():
            yield from _split(decision, world)
        case decisions.Merge(groups=groups, to=to):
            yield from ((label, in_group(to)) for group in groups if group != to for label in world.members(group))
        case decisions.Rename(group=group, to=to) if group != to and world.members(to):
            world.conflicts.append(Conflict(decision.id, group, f"no group {to!r} yet", "one with classes"))
        case decisions.Rename(group=group, to=to):
            yield from ((label, in_group(to)) for label in world.members(group))
        case decisions.Drop(labels=labels):
            yield from ((label, DROPPED) for label in labels)
        case decisions.Ambiguous(labels=labels, use=use):
            yield from ((label, UNASSIGNED if use is None else in_group(use)) for label in labels)
        case decisions.SetKind(group=group, kind=kind):
            world.kinds[group] = kind


def _name(decision: decisions.Name, world: World) -> Iterable[tuple[str, LabelPlace]]:
    numbers = sorted({world.clusters[label] for label in decision.members_of if label in world.clusters})
    covered = list(decision.members_of)
    if len(numbers) > 1 and world.whole_clusters:
        world.conflicts.append(Conflict(decision.id, decision.members_of[0], "one cluster", f"{len(numbers)} clusters"))
    elif world.whole_clusters:
        covered += [
            label
            for label in world.places
            if label not in world.decided and world.clusters.get(label) in numbers and label not in covered
        ]
    return [(label, in_group(decision.to)) for label in covered]


def _split(decision: decisions.Split, world: World) -> Iterable[tuple[str, LabelPlace]]:
    members = world.members(decision.group)
    taken = set()
    for target, part in decision.into.items():
        for label in () if part == decisions.REST else part:
            if world.expects(decision.id, label, decision.group, members):
                taken.add(label)
                yield label, in_group(target)
    rest = next((target for target, part in decision.into.items() if part == decisions.REST), decision.group)
    if rest != decision.group:
        yield from ((label, in_group(rest)) for label in members if label not in taken)


def unlinked(decision: decisions.MustLink | decisions.CannotLink, world: World) -> Iterable[Conflict]:
    """Yield the conflict of a link with the final places of its labels, if there is one."""
    places = [world.places[label] for label in decision.labels]
    if isinstance(decision, decisions.MustLink) and len(set(places)) > 1:
        yield Conflict(
            decision.id,
            decision.labels[0],
            "one group for all",
            ", ".join(sorted({p.group or p.status for p in places})),
        )
    groups = [place.group for place in places if place.group]
    if isinstance(decision, decisions.CannotLink) and len(set(groups)) < len(groups):
        yield Conflict(decision.id, decision.labels[0], "different groups", ", ".join(groups))
