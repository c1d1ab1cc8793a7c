"""Defines the decisions of curators about classes. They are stored in a file (decisions.yaml) that
anyone can replay.

A decision identifies classes by id and groups by name, and never identifies clusters by number.
decisions_file.py reads and writes the file.

>>> move = Move(id="d1", op="move", labels=("Q16970",), to="church")
>>> Decisions(groups={"church": Group(kind="human-made")}, decisions=(move,)).decisions[0].to
'church'
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from hbench.core.errors import UnknownName, closest, examples
from hbench.core.schema import Strict
from hbench_hgldv2.labels.kinds import written_in_two_ways

REST = "*"  # stands for the other classes of a group that is split


def _not_a_number(class_id: object) -> object:
    """Return an id unchanged. Raises ValueError for an id that YAML reads as a number, such as 007,
    since its digits are lost."""
    if isinstance(class_id, int | float):
        raise ValueError(f"{class_id} is a number for YAML; an id of digits stands in quotes")
    return class_id


def _day_as_text(day: object) -> object:
    """Return a day as text. YAML turns 2024-05-01 into a date, which JSON cannot represent."""
    return day.isoformat() if isinstance(day, datetime.date) else day


# A QID, "label:…", or an id from a curator's own table. Ids must not contain "|", which separates
# ids in the files of the steps.
ClassId = Annotated[str, BeforeValidator(_not_a_number), StringConstraints(pattern=r"^[^|\r\n]+$")]
GroupName = Annotated[str, StringConstraints(min_length=1)]
ClassIds = Annotated[tuple[ClassId, ...], Field(min_length=1)]
Kind = Annotated[str, StringConstraints(pattern=r"^\S([^\r\n]*\S)?$")]
Day = Annotated[str, BeforeValidator(_day_as_text)]


class Decision(Strict):
    """The fields of every decision: a unique id and, optionally, who decided, when and why."""

    id: Annotated[str, StringConstraints(min_length=1)]
    by: str | None = None
    at: Day | None = None
    why: str | None = None


class Name(Decision):
    """Make a group from the cluster that contains these classes."""

    op: Literal["name"]
    members_of: ClassIds
    to: GroupName


class Move(Decision):
    op: Literal["move"]
    labels: ClassIds
    to: GroupName
    expect_from: GroupName | None = None


class Split(Decision):
    """Divide a group into parts. "*" stands for the classes that no other part lists; without it
    these classes stay in the group."""

    op: Literal["split"]
    group: GroupName
    into: dict[GroupName, ClassIds | Literal["*"]]


class Merge(Decision):
    op: Literal["merge"]
    groups: Annotated[tuple[GroupName, ...], Field(min_length=1)]
    to: GroupName


class Rename(Decision):
    op: Literal["rename"]
    group: GroupName
    to: GroupName


class Drop(Decision):
    op: Literal["drop"]
    labels: ClassIds


class Ambiguous(Decision):
    """Mark classes that fit several groups. `use` chooses one of the groups by the stated rule;
    without `use` the classes stay unassigned."""

    op: Literal["ambiguous"]
    labels: ClassIds
    choices: Annotated[tuple[GroupName, ...], Field(min_length=2)]
    use: GroupName | None = None
    rule: str | None = None


class SetKind(Decision):
    op: Literal["set_kind"]
    group: GroupName
    kind: Kind


class MustLink(Decision):
    op: Literal["must_link"]
    labels: Annotated[tuple[ClassId, ...], Field(min_length=2)]


class CannotLink(Decision):
    op: Literal["cannot_link"]
    labels: Annotated[tuple[ClassId, ...], Field(min_length=2)]


AnyDecision = Annotated[
    Name | Move | Split | Merge | Rename | Drop | Ambiguous | SetKind | MustLink | CannotLink,
    Field(discriminator="op"),
]


class Group(Strict):
    """A super-category of the target taxonomy. Its `kind` is the level above it, in H-GLDv2
    human-made or natural. `parent` is an optional heading for readers."""

    kind: Kind
    parent: str | None = None


class Approval(Strict):
    """A reviewer's approval of a group. It becomes stale when the group's members, and so their
    hash, change."""

    reviewer: str
    group: GroupName
    sha256_of_members: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Inputs(Strict):
    """What the curators saw: the hashes of the classes and of their partition, and the settings of
    the encoder and the clustering."""

    labels_sha256: str | None = None
    clusters_sha256: str | None = None
    encoder: str | None = None
    weights_sha256: str | None = None
    prompt: str | None = None
    algorithm: str | None = None
    k: int | None = None
    seed: int | None = None


class Decisions(Strict):
    """The content of a decisions file: the groups, the decisions in order, and the approvals."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    inputs: Inputs = Inputs()
    groups: dict[GroupName, Group] = Field(default_factory=dict)
    decisions: tuple[AnyDecision, ...] = ()
    approvals: tuple[Approval, ...] = ()

    @model_validator(mode="after")
    def _coherent(self) -> Decisions:
        """Return the decisions unchanged. Raises ValueError for decisions that contradict each
        other or name something undeclared; pydantic turns the error into a refusal of the file."""
        ids = [decision.id for decision in self.decisions]
        if len(set(ids)) != len(ids):
            raise ValueError(
                "decision ids occur twice: "
                f"{examples(sorted({i for i in ids if ids.count(i) > 1}))}"
            )

        # groups with the same kind share a label of level 1; two spellings would make two labels
        if two_spellings := written_in_two_ways(kinds_named(self)):
            known, other = two_spellings
            raise ValueError(f"kind {other!r} is {known!r}, written in another way")

        for decision in self.decisions:
            for group in groups_named(decision):
                if group not in self.groups:
                    near = closest(group, self.groups)
                    raise ValueError(
                        f"{decision.id}: group {group!r} is not declared in `groups`"
                        + (f"; did you mean {near[0]!r}?" if near else "")
                    )
            if isinstance(decision, Ambiguous) and decision.use not in (None, *decision.choices):
                raise ValueError(f"{decision.id}: {decision.use!r} is not one of its choices")
            # `into` of a split maps each part, a group, to its class ids, or to REST ("*") for the
            # classes that no other part lists
            parts = decision.into.values() if isinstance(decision, Split) else ()
            if sum(part == REST for part in parts) > 1:
                raise ValueError(f"{decision.id}: only one part can take the rest, '*'")

        return self


def groups_named(decision: AnyDecision) -> Iterator[str]:
    """Yield every group that a decision names, whatever its operation. Each type of decision has
    some of the fields listed here."""
    values = dict(decision)
    # fields that hold one group
    yield from (values[name] for name in ("group", "to") if name in values)
    # fields that hold several; the keys of the mapping `into` are groups
    for name in ("into", "groups", "choices"):
        yield from values.get(name, ())


def kinds_named(decisions: Decisions) -> Iterator[str]:
    """Yield the kinds of all groups, as declared and as set by later decisions."""
    yield from (group.kind for group in decisions.groups.values())
    yield from (each.kind for each in decisions.decisions if isinstance(each, SetKind))


def labels_named(decision: AnyDecision) -> tuple[str, ...]:
    """Return the id of every class that a decision names. REST, which stands for the remaining
    classes of a group that is split, is not included."""
    values = dict(decision)
    # each type of decision has some of these fields: class ids, and `into`, which maps groups to
    # class ids or to REST
    parts = [
        values.get("labels", ()),
        values.get("members_of", ()),
        *values.get("into", {}).values(),
    ]
    return tuple(label for part in parts if part != REST for label in part)


def check_known(decisions: Decisions, class_ids: Iterable[str]) -> None:
    """Raise UnknownName for the first class in a decision that is not among `class_ids`."""
    known = set(class_ids)
    for decision in decisions.decisions:
        for label in labels_named(decision):
            if label not in known:
                raise UnknownName(f"class in decision {decision.id!r}", label, sorted(known))
