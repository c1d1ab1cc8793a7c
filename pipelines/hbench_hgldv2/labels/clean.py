"""A selection: which landmarks keep a class, which are ambiguous, which are dropped, and by which rule.

Rules look at the classes of one landmark in a fixed order; a landmark with several classes left is ambiguous and kept
apart, because curation may send all of them to one group. Classes are keyed by QID; labels are attributes that drift
with time.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from hbench.core.errors import ConfigError
from hbench_hgldv2.artefact import open_table
from hbench_hgldv2.labels.label import Label, normalised
from hbench_hgldv2.labels.scrape import ClassName, Link
from hbench_hgldv2.wikimedia.facts import title_of

RULES = Path(__file__).with_name("irrelevant.csv")
EXAMPLES = 3


class Rule(NamedTuple):
    """A class that says nothing visual: "drop" rejects its landmarks, "too_generic" ignores it beside
    a better class.
    """

    label: str
    qid: str
    action: Literal["drop", "too_generic", "relabel"]
    why: str


class CleanedLandmark(NamedTuple):
    """A landmark after cleaning: status "kept" (one class), "ambiguous" (several) or "dropped", by `reason`.

    `raw_label` is how a released file spells the landmark's class, with case and qualifiers; "" for scraped ones.
    """

    split: str
    landmark_id: int
    category: str
    status: str
    reason: str
    classes: tuple[str, ...]
    raw_label: str = ""


def read_rules(path: Path = RULES) -> list[Rule]:
    """The rules in a CSV with columns label, qid, action, why; raises ConfigError naming the line at fault."""
    adapter = TypeAdapter(Rule)
    with open_table(path) as lines:
        reader = csv.DictReader(lines)
        rules = []
        for row in reader:
            try:
                rules.append(adapter.validate_python(row))
            except ValidationError as error:
                raise ConfigError(
                    f"{path}, line {reader.line_num}: {error.errors()[0]['msg']}",
                    expected="label,qid,action,why",
                    found=",".join(map(str, row.values())),
                ) from None
    return rules


def select(links: Sequence[Link], names: Sequence[ClassName], rules: Sequence[Rule]) -> list[CleanedLandmark]:
    """What becomes of each landmark, in order.

    Reasons: those of scraping; "irrelevant", all classes dropped by rule; "too_generic", none but generic classes;
    "no_label", no class with a label in any language; "several_classes", more than one left.
    """
    labels = {name.class_id: name.label for name in names}
    actions = _actions(rules, labels)
    return [_selected(link, labels, actions) for link in links]


def labels_of(selection: Iterable[CleanedLandmark], names: Sequence[ClassName]) -> list[Label]:
    """One label per class of a kept or ambiguous landmark, most landmarks first, then by id."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    shown: dict[str, list[str]] = defaultdict(list)
    for row in selection:
        for class_id in row.classes if row.status != "dropped" else ():
            counted[class_id][row.split if row.status == "kept" else row.status] += 1
            if row.category and len(shown[class_id]) < EXAMPLES:
                shown[class_id].append(title_of(row.category).partition(":")[2])
    text = {name.class_id: name.label for name in names}
    labels = [
        Label(i, text.get(i) or i, count["train"], count["index"], count["ambiguous"], tuple(shown[i]))
        for i, count in counted.items()
    ]
    return sorted(labels, key=lambda label: (-label.landmarks, label.class_id))


def counts(selection: Iterable[CleanedLandmark]) -> dict[str, int]:
    """Landmarks per split and status, and per reason."""
    result: Counter[str] = Counter()
    for row in selection:
        result[f"{row.split} {row.status}"] += 1
        if row.reason:
            result[row.reason] += 1
    return dict(result)


def _selected(link: Link, labels: Mapping[str, str], actions: Mapping[str, str]) -> CleanedLandmark:
    status, reason, classes = _verdict(link, labels, actions)
    return CleanedLandmark(link.split, link.landmark_id, link.category, status, reason, classes)


def _verdict(link: Link, labels: Mapping[str, str], actions: Mapping[str, str]) -> tuple[str, str, tuple[str, ...]]:
    if link.reason:
        return "dropped", link.reason, ()
    relevant = [i for i in link.classes if actions.get(i) != "drop"]
    if not relevant:
        return "dropped", "irrelevant", link.classes
    specific = [i for i in relevant if actions.get(i) != "too_generic"]
    if not specific:
        return "dropped", "too_generic", link.classes
    named = tuple(i for i in specific if labels.get(i))
    if not named:
        return "dropped", "no_label", link.classes
    return ("kept", "", named) if len(named) == 1 else ("ambiguous", "several_classes", named)


def _actions(rules: Sequence[Rule], labels: Mapping[str, str]) -> Mapping[str, str]:
    """Class id -> action: by QID, or by label where the rule has no QID."""
    by_text = {normalised(rule.label): rule.action for rule in rules if not rule.qid}
    found = {class_id: by_text[normalised(label)] for class_id, label in labels.items() if normalised(label) in by_text}
    return found | {rule.qid: rule.action for rule in rules if rule.qid}
