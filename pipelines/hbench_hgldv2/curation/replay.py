"""Replays decisions: applies them in order to labels and their clusters. The same inputs give the
same mapping, byte for byte.

The effects of a decision are (label, new place) pairs, which `replay` applies as soon as they are
yielded. Every label ends in exactly one place: a group, dropped, or unassigned. A label that no
decision names stays unassigned and needs review, whatever its cluster.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from hbench.cli import terminal
from hbench.core.errors import ComparisonError
from hbench_hgldv2.artefact import counts_text, made_by, read_rows, write_rows
from hbench_hgldv2.curation import decisions as ops
from hbench_hgldv2.curation.decisions import CannotLink, Decisions, Inputs, MustLink, check_known
from hbench_hgldv2.curation.decisions_file import DecisionsFile, load
from hbench_hgldv2.grouping import encode
from hbench_hgldv2.grouping.cluster import read_clusters
from hbench_hgldv2.labels.label import GROUP, Label, digest, partition_digest

SUGGESTED = 3  # most groups that are suggested for a label


class LabelPlace(NamedTuple):
    """The place of a label. `status`: "group", "dropped" or "unassigned". `group`: the name of the
    group; "" unless the status is "group"."""

    status: str
    group: str = ""

    @property
    def described(self) -> str:
        """The group's name in quotes, or the status."""
        return repr(self.group) if self.group else self.status


UNASSIGNED = LabelPlace("unassigned")
DROPPED = LabelPlace("dropped")


def in_group(group: str) -> LabelPlace:
    """Return the place of a label in a group."""
    return LabelPlace("group", group)


class Conflict(NamedTuple):
    """A failed precondition: the id of the decision, the class id or group that the precondition is
    about (`subject`), and in words what should hold and what does."""

    decision: str
    subject: str
    expected: str
    found: str


@dataclass
class World:
    """The state while decisions are applied.

    `places` maps each label to its current place, `clusters` each label to its cluster, and `kinds`
    each group to its kind. `whole_clusters` says whether the curators saw exactly these clusters.
    Only then does a group that they made from a cluster take all labels of the cluster, and not
    just the labels they named.
    """

    places: dict[str, LabelPlace]
    clusters: Mapping[str, int]
    kinds: dict[str, str]
    whole_clusters: bool
    conflicts: list[Conflict] = field(default_factory=list)
    # the labels that the decisions applied so far have placed or left open
    decided: set[str] = field(default_factory=set)

    def members(self, group: str) -> list[str]:
        """The labels that are in a group at this point."""
        return [label for label, place in self.places.items() if place == in_group(group)]

    def expects(
        self, decision: str, label: str, group: str, members: Sequence[str] | None = None
    ) -> bool:
        """Return whether a label, given by its class id, is in a group; add a conflict if not.

        `members`: the class ids in the group before the decision; None: compare the label's present
        place with the group. `decision` is the id of the decision, for the conflict.
        """
        place = self.places[label]
        holds = place == in_group(group) if members is None else label in members
        if not holds:
            self.conflicts.append(Conflict(decision, label, group, place.group or place.status))
        return holds


def effects(decision: ops.AnyDecision, world: World) -> Iterator[tuple[str, LabelPlace]]:
    """Yield (label, new place) for each label, a class id, that a decision places. Failed
    preconditions are added to the conflicts of `world`. Links (must-link, cannot-link) place
    nothing and are checked elsewhere."""
    match decision:
        case ops.Name():
            yield from _name_group(decision, world)
        case ops.Move():
            yield from _move_labels(decision, world)
        case ops.Split():
            yield from _split_group(decision, world)
        case ops.Merge(groups=groups, to=to):
            yield from (
                (label, in_group(to))
                for group in groups
                if group != to  # the labels of `to` itself stay
                for label in world.members(group)
            )
        # renaming to an existing group would merge two groups unnoticed
        case ops.Rename(group=group, to=to) if group != to and world.members(to):
            world.conflicts.append(
                Conflict(decision.id, group, f"no group {to!r} yet", "one with classes")
            )
        case ops.Rename(group=group, to=to):
            yield from ((label, in_group(to)) for label in world.members(group))
        case ops.Drop(labels=labels):
            yield from ((label, DROPPED) for label in labels)
        case ops.Ambiguous(labels=labels, use=use):
            yield from ((label, UNASSIGNED if use is None else in_group(use)) for label in labels)
        case ops.SetKind(group=group, kind=kind):  # places no label
            world.kinds[group] = kind


def _move_labels(decision: ops.Move, world: World) -> Iterable[tuple[str, LabelPlace]]:
    """The labels that move to another group. Labels that are not in the group where the curator saw
    them are left out."""
    for label in decision.labels:
        group = decision.expect_from
        if group is None or world.expects(decision.id, label, group):
            yield label, in_group(decision.to)


def _name_group(decision: ops.Name, world: World) -> Iterable[tuple[str, LabelPlace]]:
    """Return (class id, place) of the labels that a new group receives.

    They are the labels that the decision names (`members_of`). If the curators saw exactly these
    clusters (`world.whole_clusters`), the labels of the same cluster that no decision has placed so
    far are added.
    """
    covered = list(decision.members_of)
    numbers = {world.clusters[label] for label in covered if label in world.clusters}

    # the curator made the group from one cluster; named labels in several clusters cannot say which
    # one was meant: a conflict, and only the named labels are placed
    if world.whole_clusters and len(numbers) > 1:
        world.conflicts.append(
            Conflict(decision.id, covered[0], "one cluster", f"{len(numbers)} clusters")
        )
    elif world.whole_clusters:
        in_cluster = (label for label in world.places if world.clusters.get(label) in numbers)
        undecided = (label for label in in_cluster if label not in world.decided)
        covered += [label for label in undecided if label not in decision.members_of]

    return [(label, in_group(decision.to)) for label in covered]


def _split_group(decision: ops.Split, world: World) -> Iterable[tuple[str, LabelPlace]]:
    """The labels of a group that go to its parts: first the named labels, then the remaining ones,
    if a part takes them."""
    # listed before any label moves: `replay` moves each label as soon as it is yielded
    members = world.members(decision.group)
    taken = set()
    for target, part in decision.into.items():
        if part == ops.REST:
            continue
        for label in part:
            # a label that is not in the group is left where it is, and `expects` adds a conflict
            if world.expects(decision.id, label, decision.group, members):
                taken.add(label)
                yield label, in_group(target)
    # the part that takes the remaining labels; without one they stay in the group
    rest = next(
        (target for target, part in decision.into.items() if part == ops.REST), decision.group
    )
    if rest != decision.group:
        yield from ((label, in_group(rest)) for label in members if label not in taken)


def conflicts_with_link(decision: MustLink | CannotLink, world: World) -> Iterable[Conflict]:
    """Yield the conflict of a link, if there is one. A must-link fails where the final places of
    its labels differ, a cannot-link where two of its labels are in the same group."""
    places = [world.places[label] for label in decision.labels]
    if isinstance(decision, MustLink) and len(set(places)) > 1:
        yield Conflict(
            decision.id,
            decision.labels[0],
            "one group for all",
            ", ".join(sorted({p.group or p.status for p in places})),
        )
    # a label without a group shares a group with no other label
    groups = [place.group for place in places if place.group]
    if isinstance(decision, CannotLink) and len(set(groups)) < len(groups):
        yield Conflict(decision.id, decision.labels[0], "different groups", ", ".join(groups))


class Placed(NamedTuple):
    """A row of mapping.csv: the place of a label, the reason for it, the decisions about it, and
    suggested groups if it is unassigned."""

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
    """The result of a replay.

    Attributes:
        rows: the place of every label, sorted by class id.
        conflicts: the preconditions that did not hold.
        stale: "reviewer: group" of the approvals whose group has changed since.
        kinds: {group: its kind}.
    """

    rows: tuple[Placed, ...]
    conflicts: tuple[Conflict, ...]
    stale: tuple[str, ...]
    kinds: Mapping[str, str]

    def groups(self) -> dict[str, list[str]]:
        """Return {group: ids of its labels}, both sorted."""
        result = defaultdict(list)
        for class_id, group in self.placed().items():
            result[group].append(class_id)
        return dict(sorted(result.items()))

    def placed(self) -> dict[str, str]:
        """Return {class: group} for the classes in a group."""
        return {row.class_id: row.group for row in self.rows if row.status == "group"}

    def problems(self) -> list[str]:
        """List the conflicts and the stale approvals, one line each."""
        conflicts = (
            f"conflict in {c.decision} on {c.subject}: expected {c.expected}, found {c.found}"
            for c in self.conflicts
        )
        return [*conflicts, *(f"stale approval of {name}" for name in self.stale)]

    def labels_per_reason(self) -> dict[str, int]:
        """Count the labels per reason: "assigned", "needs_review"…"""
        return dict(Counter(row.reason for row in self.rows))


def run(
    work: Path,
    *,
    decisions: DecisionsFile = None,
    strict: Annotated[
        bool, "Fail when a precondition does not hold or an approval is stale."
    ] = False,
) -> None:
    """Apply decisions.yaml to the labels and clusters.

    \b
    hbench hgldv2 replay --strict
    """
    path = decisions or work / "decisions.yaml"
    labels = read_rows(work / "labels.csv", Label)
    clusters = read_clusters(work)
    decided = load(path)
    # replayed twice: the first replay gives {class id: group} of the labels in a group, since the
    # suggestions for the remaining labels depend on them
    placed = replay(labels, clusters, decided).placed()
    curation = replay(labels, clusters, decided, suggestions=suggestions_for(work, labels, placed))
    record = made_by("replay", [work / "labels.csv", work / "clusters.csv", path], {})
    if strict:  # before anything is written
        require_clean(curation)
    numbers = curation.labels_per_reason()
    write_rows(work / "mapping.csv", curation.rows, Placed, record=record, counts=numbers)
    for problem in curation.problems():
        terminal.say(problem)
    terminal.say(counts_text(f"{len(curation.groups())} groups; labels", numbers))
    if groups := curation.groups():
        kinds = Counter(curation.kinds[group] for group in groups)
        terminal.say(counts_text("groups by kind", kinds))


def groups_in(mapping: Path) -> dict[str, str]:
    """Read {class: group} from a mapping.csv, for the classes in a group."""
    return {row.class_id: row.group for row in read_rows(mapping, Placed) if row.status == "group"}


def suggestions_for(
    work: Path, labels: Sequence[Label], decided: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return {class id: up to three suggested groups, the best first}; {} where the work folder has
    no embeddings.

    `suggest` chooses, for every label, also a decided one, the groups whose name or members have
    the nearest vectors. `decided` maps the classes that are in a group to the group.
    """
    path = work / "embeddings.npz"
    if not path.exists():
        return {}
    # the embeddings hold names of groups, too; their ids are the names with the prefix GROUP
    names = [name.removeprefix(GROUP) for name in encode.ids_of(path) if name.startswith(GROUP)]
    known = [label.class_id for label in labels if label.class_id in decided]
    # the vectors of the names and then of the decided labels, and the group that each represents
    anchors = encode.rows_of(path, [*(GROUP + name for name in names), *known])
    represented = [*names, *(decided[class_id] for class_id in known)]
    nearest = suggest(encode.load(path, labels), anchors, represented)
    return {label.class_id: groups for label, groups in zip(labels, nearest, strict=True)}


def suggest(
    vectors: encode.Vectors, anchors: encode.Vectors, groups: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return for each of n labels the three groups with the most similar anchors, best first.

    `vectors` (n, D) are those of the labels. The `anchors` (m, D) are the vectors of group names
    and of members of groups, and `groups` (m,) names the group of each anchor. All are unit
    vectors, so that a product is a cosine. A group with several anchors counts once, with its most
    similar one. Ties are broken by name.
    """
    names = sorted(set(groups))
    group_of_anchor = np.asarray(groups)  # (m,)
    similar = vectors @ anchors.T  # (n, m)
    best = np.zeros((len(vectors), len(names)), similar.dtype)  # each group's most similar anchor
    for column, name in enumerate(names):
        best[:, column] = similar[:, group_of_anchor == name].max(axis=1)
    nearest = np.argsort(-best, axis=1, kind="stable")[:, :SUGGESTED]  # (n, 3), of the names
    suggested = np.asarray(names, object)[nearest]
    return [tuple(row) for row in suggested.tolist()]


def replay(
    labels: Sequence[Label],
    clusters: Mapping[str, int],
    decisions: Decisions,
    *,
    suggestions: Mapping[str, Sequence[str]] | None = None,
) -> Curation:
    """Apply the decisions in order and return the place of every label, sorted by class id.

    `clusters` maps each class to its cluster. `suggestions` maps a class to the groups that are
    suggested if it ends without a place. Raises UnknownName when a decision names a class that is
    not one of the labels.
    """
    ids = sorted(label.class_id for label in labels)
    check_known(decisions, ids)
    kinds = {name: group.kind for name, group in decisions.groups.items()}
    # the state that decisions change: the places of labels, which are `decided`, kinds, conflicts
    world = World(
        dict.fromkeys(ids, UNASSIGNED),
        clusters,
        kinds,
        # True where the decisions were made on exactly these labels and clusters. Only then does a
        # group made from a cluster take the whole cluster, and not just the labels that it names.
        whole_clusters=_are_of(decisions.inputs, ids, clusters),
    )
    # class id -> the ids of the decisions that named it
    decided_by: dict[str, list[str]] = {label: [] for label in ids}

    for decision in decisions.decisions:
        # a later decision replaces the place that an earlier one gave
        for label, place in effects(decision, world):
            decided_by[label].append(decision.id)
            world.places[label] = place
            world.decided.add(label)

    # links place nothing; they are checked when all labels are placed
    for decision in decisions.decisions:
        if isinstance(decision, MustLink | CannotLink):
            world.conflicts += conflicts_with_link(decision, world)

    by_id = {label.class_id: label for label in labels}
    rows = tuple(
        _placed(by_id[i], world, decisions, decided_by[i], (suggestions or {}).get(i, ()))
        for i in ids
    )
    # an approval is stale if the members of its group have changed since
    return Curation(rows, tuple(world.conflicts), _stale_approvals(decisions, world), world.kinds)


def _are_of(inputs: Inputs, ids: Sequence[str], clusters: Mapping[str, int]) -> bool:
    """Whether the decisions were made on exactly these labels and clusters. Only then does a
    cluster that a decision names mean the whole cluster."""
    same_labels = inputs.labels_sha256 == digest(ids)
    return same_labels and inputs.clusters_sha256 == partition_digest(clusters)


def _stale_approvals(decisions: Decisions, world: World) -> tuple[str, ...]:
    """Return reviewer and group of each approval whose group has other members than at the time of
    the approval."""
    return tuple(
        f"{approval.reviewer}: {approval.group}"
        for approval in decisions.approvals
        if approval.sha256_of_members != digest(world.members(approval.group))
    )


def require_clean(curation: Curation) -> None:
    """Raise ComparisonError, which quotes the first eight problems, when a precondition failed or
    an approval is stale. This is the option `--strict`."""
    problems = curation.problems()
    if problems:
        raise ComparisonError(
            f"the decisions do not fit these labels in {len(problems)} places",
            found="; ".join(problems[:8]),
            fix="hbench hgldv2 review makes a page that shows each of them",
        )


def _placed(
    label: Label,
    world: World,
    decisions: Decisions,
    decided_by: Sequence[str],
    suggestions: Sequence[str],
) -> Placed:
    """Make the row of a label: its place, and the reason for it.

    `decided_by` are the ids of the decisions that placed the label or left it open. `suggestions`
    are groups, the nearest first.
    """
    status, group = world.places[label.class_id]
    if status == "group":
        reason = "assigned"
    elif status == "dropped":
        reason = "dropped"
    else:  # no decision names the label, or one names it and leaves it open
        reason = "ambiguous" if decided_by else "needs_review"
    return Placed(
        class_id=label.class_id,
        label=label.label,
        status=status,
        group=group,
        kind=world.kinds.get(group, ""),
        parent=(decisions.groups[group].parent or "") if group else "",
        reason=reason,
        decided_by=tuple(decided_by),
        suggestions=tuple(suggestions[:SUGGESTED]) if status == "unassigned" else (),
    )
