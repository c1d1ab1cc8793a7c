"""Transfers the decisions of an earlier audit to the page of a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from hbench.core.errors import HBenchError
from hbench.datasets.own.decisions import MERGE, LabelDecision, read_decisions
from hbench.sheets.paths import JOINED

DECISIONS = "decisions.csv"


class DecidedCard(Protocol):
    """Items of one label, about which one decision is made."""

    @property
    def items(self) -> tuple[str, ...]: ...
    @property
    def label(self) -> tuple[str, ...]: ...


class DecidedSection(Protocol):
    """Cards of one kind."""

    @property
    def cards(self) -> Sequence[DecidedCard]: ...


class Earlier(NamedTuple):
    """Decisions that were made before; if they cannot be read, `remark` says why."""

    decisions: list[LabelDecision]
    remark: str


class Decided(NamedTuple):
    """The earlier decisions about items on the page. `by_item` has, by item, the decision and the
    path as the page stores them; `remark` counts the decisions that are not on the page."""

    by_item: dict[str, dict[str, str]]
    remark: str


def earlier_decisions(file: Path, depth: int) -> Earlier:
    """Read the decisions in a file, about paths of at most `depth` names. Without a file there are
    none; for a damaged file, the remark says so."""
    if not file.exists():
        return Earlier([], "")
    try:
        return Earlier(read_decisions(file, depth), "")
    except HBenchError as error:
        words = " ".join(str(error).split())
        return Earlier([], f"The decisions of {DECISIONS} are not shown, since {words}.")


def decided_on(sections: Iterable[DecidedSection], decisions: list[LabelDecision]) -> Decided:
    """Find the earlier decisions about the items of the cards in these sections.

    A decision applies only if the item still has the label that it was made for. Decisions to merge
    apply to all items of a label, other decisions to a single item.

    The result maps the id of each decided item to its decision and path, as texts, and has a remark
    on the decisions that apply to no item of these sections.
    """
    of_item = {each.item: each for each in decisions if each.decision != MERGE}
    of_label = {each.label: each for each in decisions if each.decision == MERGE}
    found = {}
    used = set()
    for section in sections:
        for card in section.cards:
            for item in card.items:
                # a label of () means that the file states none: then the decision is about the item
                # with any label
                either = (of_item.get(item), of_label.get(card.label))
                fitting = [each for each in either if each and each.label in {(), card.label}]
                if fitting:  # a decision about the item comes before one about all of its label
                    made = fitting[0]
                    found[item] = {"decision": made.decision, "path": JOINED.join(made.path)}
                    used.add(made)
    left = len(set(decisions) - used)
    if not left:
        return Decided(found, "")
    return Decided(
        found,
        f"Of {DECISIONS}, {left:,} are about labels that are not shown here: keep that file.",
    )
