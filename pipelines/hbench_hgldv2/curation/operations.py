"""An operation: what one kind of decision does to the places of labels, and the preconditions it checks.

An operation yields (label, new place) and adds to the world's conflicts; it never moves anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hbench_hgldv2.curation.decisions import (
    REST,
    Ambiguous,
    CannotLink,
    Drop,
    Merge,
    Move,
    MustLink,
    Name,
    Rename,
    SetKind,
    Split,
)


class LabelPlace(NamedTuple):
    """Where a label is: status "group", "dropped" or "unassigned", and the group's name."""

    status: str
    group: str = ""

    @property
    def described(self) -> str:
        """The group's name in quotes, or the status."""
        return repr(self.group) if self.group else self.status


UNASSIGNED, DROPPED = LabelPlace("unassigned"), LabelPlace("dropped")


class Conflict(NamedTuple):
    """A precondition of a decision that does not hold; the decision was not applied to that label."""

    decision: str
    subject: str
    expected: str
    found: str


@dataclass
class World:
    """The state while decisions are applied; `whole_clusters`: the decisions were made over these very clusters."""

    places: dict[str, LabelPlace]
    clusters: Mapping[str, int]
    kinds: dict[str, str]
    whole_clusters: bool
    conflicts: list[Conflict] = field(default_factory=list)
    spoken_of: set[str] = field(default_factory=set)  # labels that some decision so far has placed, or left open

    def members(self, group: str) -> list[str]:
        return [label for label, place in self.places.items() if place == LabelPlace("group", group)]


Effects = Iterable[tuple[str, LabelPlace]]


def _name(decision: Name, world: World) -> Effects:
    numbers = sorted({world.clusters[label] for label in decision.members_of if label in world.clusters})
    covered = list(decision.members_of)
    if len(numbers) > 1 and world.whole_clusters:
        world.conflicts.append(Conflict(decision.id, decision.members_of[0], "one cluster", f"{len(numbers)} clusters"))
    elif world.whole_clusters:
        covered += [
            label
            for label in world.places
            if label not in world.spoken_of and world.clusters.get(label) in numbers and label not in covered
        ]
    return [(label, LabelPlace("group", decision.to)) for label in covered]


def _move(decision: Move, world: World) -> Effects:
    for label in decision.labels:
        found = world.places[label]
        if decision.expect_from is None or found == LabelPlace("group", decision.expect_from):
            yield label, LabelPlace("group", decision.to)
        else:
            world.conflicts.append(Conflict(decision.id, label, decision.expect_from, found.group or found.status))


def _split(decision: Split, world: World) -> Effects:
    members, taken = dict.fromkeys(world.members(decision.group)), set()
    for target, part in decision.into.items():
        for label in () if part == REST else part:
            if label in members:
                taken.add(label)
                yield label, LabelPlace("group", target)
            else:
                place = world.places[label]
                world.conflicts.append(Conflict(decision.id, label, decision.group, place.group or place.status))
    rest = next((target for target, part in decision.into.items() if part == REST), decision.group)
    if rest != decision.group:
        yield from ((label, LabelPlace("group", rest)) for label in members if label not in taken)


def _merge(decision: Merge, world: World) -> Effects:
    for group in decision.groups:
        if group != decision.to:
            yield from ((label, LabelPlace("group", decision.to)) for label in world.members(group))


def _rename(decision: Rename, world: World) -> Effects:
    if decision.to != decision.group and world.members(decision.to):
        world.conflicts.append(
            Conflict(decision.id, decision.group, f"no group {decision.to!r} yet", "one with classes")
        )
        return
    yield from ((label, LabelPlace("group", decision.to)) for label in world.members(decision.group))


def _drop(decision: Drop, world: World) -> Effects:
    return [(label, DROPPED) for label in decision.labels]


def _ambiguous(decision: Ambiguous, world: World) -> Effects:
    place = UNASSIGNED if decision.use is None else LabelPlace("group", decision.use)
    return [(label, place) for label in decision.labels]


def _set_kind(decision: SetKind, world: World) -> Effects:
    world.kinds[decision.group] = decision.kind
    return ()


def _nothing(decision: MustLink | CannotLink, world: World) -> Effects:
    return ()


def unlinked(decision: MustLink | CannotLink, world: World) -> Iterable[Conflict]:
    """The conflict of a link with where its labels ended, once all decisions are applied."""
    places = [world.places[label] for label in decision.labels]
    if isinstance(decision, MustLink) and len(set(places)) > 1:
        yield Conflict(
            decision.id,
            decision.labels[0],
            "one group for all",
            ", ".join(sorted({p.group or p.status for p in places})),
        )
    groups = [place.group for place in places if place.group]
    if isinstance(decision, CannotLink) and len(set(groups)) < len(groups):
        yield Conflict(decision.id, decision.labels[0], "different groups", ", ".join(groups))


OPERATIONS: Mapping[type, Callable[[Any, World], Effects]] = {
    Name: _name,
    Move: _move,
    Split: _split,
    Merge: _merge,
    Rename: _rename,
    Drop: _drop,
    Ambiguous: _ambiguous,
    SetKind: _set_kind,
    MustLink: _nothing,
    CannotLink: _nothing,
}
