"""Reads a released hierarchy, {train,index}_label_to_hierarchical.csv with the five official
columns, and turns it into decisions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from hbench.cli import terminal
from hbench.core.errors import DataError, UsageError
from hbench.core.files import write_text
from hbench_hgldv2.artefact import read_rows
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.decisions import (
    Ambiguous,
    AnyDecision,
    Decisions,
    Group,
    Move,
    labels_named,
)
from hbench_hgldv2.labels.kinds import written_in_two_ways
from hbench_hgldv2.labels.label import PREFIX, Label, normalised

SAMPLE = Path(__file__).with_name("released_sample.yaml")  # decisions about 156 released classes


class Released(NamedTuple):
    """A row of a released file; the last three columns are empty for unlabelled landmarks."""

    landmark_id: int
    category: str
    supercategory: str
    hierarchical_label: str
    natural_or_human_made: str


def run(
    work: Path,
    *,
    released: Annotated[Sequence[Path], "A released five-column file; once for each split."] = (),
    sample: Annotated[
        bool, "The 156 released classes that ship with the package (CC BY 4.0)."
    ] = False,
    out: Annotated[Path | None, "decisions.yaml in the work folder by default."] = None,
) -> None:
    """Turn released super-categories into decisions: a move per group, and labels in several groups
    as ambiguous.

    If the work folder has labels, the decisions are about those that the files name; `hbench hgldv2
    agreement` shows where curators decided differently.

    \b
    hbench hgldv2 decisions --released train_label_to_hierarchical.csv \\
        --released index_label_to_hierarchical.csv
    """
    if sample == bool(released):
        raise UsageError(
            "decisions are made of released files or of the sample",
            fix="give either --released FILE or --sample",
        )

    target = out or work / "decisions.yaml"
    # a curation may hold weeks of work: an existing file is replaced only if the user names it
    if out is None and target.exists():
        raise UsageError(f"{target} is there already", fix="write another file with -o FILE")

    labels = read_rows(work / "labels.csv", Label) if (work / "labels.csv").exists() else None
    files = [_sample_rows()] if sample else [read(path) for path in released]  # rows of each
    made = decisions_of(files, labels)
    write_text(target, decisions_file.dumps(made))
    count = sum(len(labels_named(decision)) for decision in made.decisions)
    terminal.say(
        f"{target}: {count:,} labels in {len(made.groups)} groups, {len(made.decisions):,} "
        "decisions"
    )


def _sample_rows() -> list[Released]:
    """Make one landmark for each class that the shipped decisions move to a group, so that the
    steps can be tried without the release."""
    shipped = decisions_file.load(SAMPLE)
    moves = [decision for decision in shipped.decisions if isinstance(decision, Move)]
    placed = [(class_id, move.to) for move in moves for class_id in move.labels]
    # the sample has no landmark ids and categories, so the landmarks are numbered
    return [
        Released(
            landmark_id=number,
            category="",
            # In the release this column has the class, which is finer than its group. The sample
            # has classes only by id: PREFIX and the label in lower case, without qualifiers.
            supercategory=class_id.removeprefix(PREFIX),
            hierarchical_label=group,
            natural_or_human_made=shipped.groups[group].kind,
        )
        for number, (class_id, group) in enumerate(placed)
    ]


def read(path: Path) -> list[Released]:
    """Read the rows of a released file. Raises DataError for other columns, a repeated landmark, a
    landmark with only one of a group and its kind, and a kind in two spellings."""
    seen: set[int] = set()
    rows = read_rows(path, Released)
    for row in rows:
        if row.landmark_id in seen:
            raise DataError(
                f"{path} has landmark {row.landmark_id} twice", expected="each landmark_id once"
            )
        if bool(row.hierarchical_label) != bool(row.natural_or_human_made):
            problem = f"{path} has half a label for landmark {row.landmark_id}"
            label = (row.hierarchical_label, row.natural_or_human_made)  # group and kind
            raise DataError(problem, expected="both or neither", found=str(label))
        seen.add(row.landmark_id)

    kinds = sorted({row.natural_or_human_made for row in rows} - {""})
    if twice := written_in_two_ways(kinds):
        raise DataError(
            f"{path} has a kind that is written in two ways", expected=twice[0], found=twice[1]
        )
    return rows


def decisions_of(
    files: Iterable[Sequence[Released]], labels: Iterable[Label] | None = None
) -> Decisions:
    """Make decisions that reproduce released files: one move per group, and classes that occur in
    several groups as ambiguous.

    A row's `supercategory` is the landmark's class, `hierarchical_label` the class's group, and
    `natural_or_human_made` the group's kind. Landmarks with a group but without a class are left
    out; their group was assigned from images. `files` holds the rows of each file. With `labels`,
    the decisions refer to the ids of those labels whose text occurs in the files. Raises DataError
    for a group of two kinds.
    """
    groups: dict[str, Group] = {}
    # class id -> the groups in which the files have the class; the files have no ids, so the id is
    # made from the class's text
    placed: Mapping[str, set[str]] = defaultdict(set)
    for row in (row for rows in files for row in rows if row.hierarchical_label):
        group = groups.setdefault(
            row.hierarchical_label, Group.model_validate({"kind": row.natural_or_human_made})
        )
        if group.kind != row.natural_or_human_made:
            raise DataError(
                f"group {row.hierarchical_label!r} has two kinds",
                expected=group.kind,
                found=row.natural_or_human_made,
            )
        if row.supercategory:
            placed[PREFIX + normalised(row.supercategory)].add(row.hierarchical_label)

    if labels is not None:  # replace the ids made from texts by the ids of labels with this text
        placed = {
            label.class_id: placed[key]
            for label in labels
            if (key := PREFIX + normalised(label.label)) in placed
        }

    decisions: list[AnyDecision] = []
    for number, name in enumerate(sorted(groups), start=1):
        # the classes in this group alone
        ids = tuple(sorted(class_id for class_id, names in placed.items() if names == {name}))
        if ids:
            move = Move(id=f"r{number:03}", op="move", labels=ids, to=name, why="released")
            decisions.append(move)

    several = sorted(
        (class_id, tuple(sorted(names))) for class_id, names in placed.items() if len(names) > 1
    )
    for number, (class_id, choices) in enumerate(several, start=1):
        decisions.append(
            Ambiguous(
                id=f"a{number:03}",
                op="ambiguous",
                labels=(class_id,),
                choices=choices,
                why="released with several",
            )
        )

    return Decisions(groups=dict(sorted(groups.items())), decisions=tuple(decisions))
