"""Decides for each landmark whether it keeps a class, is ambiguous, or is dropped, and by which
rule. The labels of a curator's own table need no such selection.

The rules look at the classes of a landmark in a fixed order. A landmark with several classes left
is ambiguous and is kept apart, because curation may put all of these classes into one group.
Classes are identified by QID, since their labels change over time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from hbench.cli import terminal
from hbench.core.errors import ConfigError, UsageError
from hbench_hgldv2.artefact import (
    ArtefactRecord,
    counts_text,
    is_done,
    made_by,
    read_rows,
    write_rows,
)
from hbench_hgldv2.labels import own_table
from hbench_hgldv2.labels.label import PREFIX, Label, Split, normalised
from hbench_hgldv2.labels.released import Released, read
from hbench_hgldv2.labels.scrape import ClassName, Link
from hbench_hgldv2.wikimedia.facts import title_of

RULES = Path(__file__).with_name("irrelevant.csv")
ACTIONS = ("drop", "too_generic", "relabel")
EXAMPLES = 3


class Rule(NamedTuple):
    """A rule for a class without visual meaning, which is ignored where a landmark has other
    classes. A landmark without others is dropped, as "irrelevant" if the action is "drop", or as
    "too_generic" if it is that.

    The action "relabel" only notes that a class needs a label in English: without one it is ignored
    anyway, and a landmark without others is dropped as "no_label".
    """

    label: str
    qid: str
    action: str
    why: str


class CleanedLandmark(NamedTuple):
    """A landmark after cleaning: its status is "kept" (one class), "ambiguous" (several) or
    "dropped"; `reason` says why it was not kept.

    `raw_label` is the class as a released file spells it, with case and qualifiers; "" for scraped
    landmarks.
    """

    split: str
    landmark_id: int
    category: str
    status: str
    reason: str
    classes: tuple[str, ...]
    raw_label: str = ""


def run(
    work: Path,
    *,
    rules: Annotated[Path, "CSV label,qid,action,why."] = RULES,
    released: Annotated[
        Sequence[tuple[Split, Path]],
        "Start from a released five-column file instead of scraped links.",
        "SPLIT FILE",
    ] = (),
    labels: Annotated[
        Path | None,
        "Start from a table of your own with an id, a label and a count in each row: CSV, TSV or "
        "parquet.",
        "FILE",
    ] = None,
    columns: Annotated[
        str | None,
        f"Columns of --labels, where their titles do not say it: {own_table.EXAMPLE}.",
        "PART=COLUMN,…",
    ] = None,
) -> None:
    """Select landmarks and list their classes, or take the labels of a table of your own.

    \b
    hbench hgldv2 clean
    hbench hgldv2 clean --released train train_label_to_hierarchical.csv
    hbench hgldv2 clean --labels birds.csv
    """
    _refuse_two_starts(rules, released, labels)
    if columns is not None and labels is None:
        raise UsageError("--columns names those of a table", fix="give --labels FILE, too")
    if labels is not None:
        _take_own(work, labels, own_table.chosen_columns(columns))
        return

    inputs = [path for _, path in released] or [work / "links.csv", work / "classes.csv", rules]
    record = made_by("clean", inputs, {"splits": [split for split, _ in released]})
    if is_done(record, *_outputs(work)):
        return

    # a CleanedLandmark per landmark, and the id and label of each class
    if released:
        selection, names = selection_of({split: read(path) for split, path in released})
    else:
        names = read_rows(work / "classes.csv", ClassName)
        selection = select(read_rows(work / "links.csv", Link), names, read_rules(rules))
    _write(work, record, selection, labels_of(selection, names))


def _refuse_two_starts(
    rules: Path, released: Sequence[tuple[Split, Path]], labels: Path | None
) -> None:
    """Raise UsageError where --rules, --released and --labels are combined, or a split is given
    twice."""
    if released and labels is not None:
        raise UsageError("there are two starts", expected="either --released or --labels")
    if rules != RULES and (released or labels is not None):
        raise UsageError(
            "the rules are for scraped links", expected="either --released or --rules, or --labels"
        )
    splits = [split for split, _ in released]
    if len(set(splits)) != len(splits):
        raise UsageError("a split is given twice", expected="one released file per split")


def _outputs(work: Path) -> tuple[Path, Path]:
    """The files that the step writes: the selection, then the labels."""
    return work / "selection.csv", work / "labels.csv"


def _write(
    work: Path, record: ArtefactRecord, selection: Sequence[CleanedLandmark], labels: list[Label]
) -> None:
    """Write the selection and the labels. Print how many landmarks each split keeps, and why the
    other landmarks were not kept."""
    selection_file, labels_file = _outputs(work)
    counted = counts_of_selection(selection)
    write_rows(selection_file, selection, CleanedLandmark, record=record, counts=counted)
    write_rows(labels_file, labels, Label, record=record, counts={"labels": len(labels)})

    # keys such as "train kept" have a space; the others are reasons, such as "irrelevant"
    kept = {name: count for name, count in counted.items() if " " in name}
    terminal.say(counts_text(f"{len(labels):,} classes; landmarks", kept))
    if reasons := {name: count for name, count in counted.items() if " " not in name}:
        terminal.say(counts_text("why not kept", reasons))


def _take_own(work: Path, path: Path, chosen: Mapping[str, str]) -> None:
    """Write the labels of a curator's own table, and print how the table was read. The selection is
    written without landmarks, since the table only counts them.

    `chosen` maps a part ("id", "label" or "count") to the column that the user named for it.
    """
    selection_file, labels_file = _outputs(work)
    # the labels that are written would replace the curator's table
    if path.resolve() in (selection_file.resolve(), labels_file.resolve()):
        raise UsageError(
            f"{path} is a file that this step writes",
            expected="a table of your own outside of the work folder",
            fix="move it, or name another --work",
        )

    table = own_table.read(path, chosen)
    terminal.say(f"read: {table.understood}")
    record = made_by("clean", [path], {"columns": table.columns})
    if is_done(record, selection_file, labels_file):
        return

    numbers = {"labels": len(table.labels), "no_label": table.unlabelled}
    write_rows(selection_file, [], CleanedLandmark, record=record, counts={})
    write_rows(labels_file, table.labels, Label, record=record, counts=numbers)


def read_rules(path: Path = RULES) -> list[Rule]:
    """Read rules from a CSV file with the columns label, qid, action and why. Raises ConfigError
    that names the wrong line."""
    rules = read_rows(path, Rule)
    for line, rule in enumerate(rules, start=2):  # line 1 is the header
        if rule.action not in ACTIONS:
            raise ConfigError(
                f"{path}, line {line}: unknown action",
                expected=" or ".join(ACTIONS),
                found=rule.action,
            )
    return rules


def select(
    links: Sequence[Link], names: Sequence[ClassName], rules: Sequence[Rule]
) -> list[CleanedLandmark]:
    """Decide for each landmark, in order, whether it is kept, ambiguous or dropped. A rule applies
    to the class with its QID or, if the rule has no QID, to the classes with its label.

    `links` are the landmarks with their scraped classes; `names` are the labels of the classes.

    The reason of a landmark for which scraping found no class is the reason that scraping gave. The
    other reasons are "irrelevant" (rules drop all classes), "too_generic" (rules call all classes
    that they do not drop too generic), "no_label" (no other class has a label in any language) and
    "several_classes" (more than one class is left).
    """
    labels = {name.class_id: name.label for name in names}  # "" for a class without a label
    action_of_text = {normalised(rule.label): rule.action for rule in rules if not rule.qid}
    # class -> action; rules by QID come last and replace rules by label, because a label may be
    # shared by classes
    actions = {
        class_id: action_of_text[normalised(label)]
        for class_id, label in labels.items()
        if normalised(label) in action_of_text
    }
    actions |= {rule.qid: rule.action for rule in rules if rule.qid}
    return [_cleaned(link, labels, actions) for link in links]


def selection_of(
    splits: Mapping[str, Iterable[Released]],
) -> tuple[list[CleanedLandmark], list[ClassName]]:
    """Make a selection from released files, in which a class is known only by its text. Returns the
    landmarks, and the classes with their labels, sorted by id.

    The id of a class is PREFIX and its text, without "(…)" at the end and in lower case, so that
    "Shinto shrine" and "shinto shrine" are one class; the landmark keeps the released text. A
    landmark without a text is dropped. `splits` maps a split to its rows.
    """
    selection: list[CleanedLandmark] = []
    for split, rows in splits.items():
        for row in rows:
            has_class = bool(row.supercategory)
            selection.append(
                CleanedLandmark(
                    split=split,
                    landmark_id=row.landmark_id,
                    category=row.category,
                    status="kept" if has_class else "dropped",
                    reason="" if has_class else "no_class",
                    classes=(PREFIX + normalised(row.supercategory),) if has_class else (),
                    raw_label=row.supercategory,
                )
            )
    class_ids = sorted({class_id for row in selection for class_id in row.classes})
    return selection, [
        ClassName(class_id=i, label=i.removeprefix(PREFIX), language="en") for i in class_ids
    ]


def labels_of(selection: Iterable[CleanedLandmark], names: Sequence[ClassName]) -> list[Label]:
    """Make a label for each class of a kept or ambiguous landmark. Labels are sorted by their
    number of landmarks, without ambiguous ones, largest first, then by id. A class that has no name
    in `names` is labelled with its id."""
    # class -> its number of landmarks in train, in index, and of ambiguous landmarks in both
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    # class -> the names of some of its landmarks, as examples
    shown: dict[str, list[str]] = defaultdict(list)
    for row in selection:
        if row.status == "dropped":
            continue
        for class_id in row.classes:
            # an ambiguous landmark is counted separately: it may belong to any of its classes
            counted[class_id][row.split if row.status == "kept" else row.status] += 1
            if row.category and len(shown[class_id]) < EXAMPLES:
                # the title of its Commons category, without "Category:"
                shown[class_id].append(title_of(row.category).partition(":")[2])

    text = {name.class_id: name.label for name in names}
    labels = [
        Label(
            class_id=i,
            label=text.get(i) or i,
            n_train=count["train"],
            n_index=count["index"],
            n_ambiguous=count["ambiguous"],
            examples=tuple(shown[i]),
        )
        for i, count in counted.items()
    ]

    return sorted(labels, key=lambda label: (-label.landmarks, label.class_id))


def counts_of_selection(selection: Iterable[CleanedLandmark]) -> dict[str, int]:
    """Count the landmarks per split and status (keys such as "train kept") and per reason (keys
    such as "irrelevant"). Only keys of the first form contain a space."""
    result: Counter[str] = Counter()
    for row in selection:
        result[f"{row.split} {row.status}"] += 1
        if row.reason:
            result[row.reason] += 1
    return dict(result)


def _cleaned(link: Link, labels: Mapping[str, str], actions: Mapping[str, str]) -> CleanedLandmark:
    """Decide about one landmark: its status, the reason, and the classes that are left.

    A landmark that is dropped for its classes keeps them. `labels` maps a class to its label, ""
    without one. `actions` maps a class to the action of its rule.
    """

    def made(status: str, reason: str, classes: tuple[str, ...]) -> CleanedLandmark:
        """The cleaned landmark with this status, reason and classes."""
        return CleanedLandmark(link.split, link.landmark_id, link.category, status, reason, classes)

    # the first reason that applies is reported, from classes that are no place at all to too many
    # classes
    if link.reason:  # why it has no class, such as a category without an item
        return made("dropped", link.reason, ())
    relevant = [i for i in link.classes if actions.get(i) != "drop"]
    if not relevant:
        return made("dropped", "irrelevant", link.classes)
    specific = [i for i in relevant if actions.get(i) != "too_generic"]
    if not specific:
        return made("dropped", "too_generic", link.classes)
    named = tuple(i for i in specific if labels.get(i))
    if not named:
        return made("dropped", "no_label", link.classes)
    if len(named) > 1:
        return made("ambiguous", "several_classes", named)
    return made("kept", "", named)
