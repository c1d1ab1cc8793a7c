"""Carries the decisions of an earlier audit over to the page of a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from hbench.core.errors import HBenchError
from hbench.datasets.own.decisions import MERGE, LabelDecision, read_decisions
from hbench.sheets.paths import JOINED

DECISIONS = "decisions.csv"


class DecidedCard(Protocol):
    """Items of one label that are decided about."""

    @property
    def items(self) -> tuple[str, ...]: ...
    @property
    def label(self) -> tuple[str, ...]: ...


class DecidedSection(Protocol):
    """Cards of one kind."""

    @property
    def cards(self) -> Sequence[DecidedCard]: ...


class Earlier(NamedTuple):
    """Decisions that were made before, and a remark on why a damaged file gave none, or ""."""

    decisions: list[LabelDecision]
    remark: str


class Decided(NamedTuple):
    """The decisions about items of the page: `by_item`, {"decision": …, "path": …} as the page
    keeps them; and a remark on decisions about items that are not on it, or ""."""

    by_item: dict[str, dict[str, str]]
    remark: str


def earlier_decisions(file: Path, depth: int) -> Earlier:
    """Read the decisions in a file, if it exists; of a damaged one, say so in the remark: an audit
    takes long, and should not fail for it. `depth`: the most names in a path."""
    if not file.exists():
        return Earlier([], "")
    try:
        return Earlier(read_decisions(file, depth), "")
    except HBenchError as error:
        words = " ".join(str(error).split())
        return Earlier([], f"The decisions of {DECISIONS} are not shown, since {words}.")


def decided_on(sections: Iterable[DecidedSection], decisions: list[LabelDecision]) -> Decided:
    """Find the earlier decisions about the items of the cards. One that was made about a label
    which the item no longer has is left out.

    A merge is of all items of a label; every other decision is of one item.
    """
    of_item = {each.item: each for each in decisions if each.decision != MERGE}
    of_label = {each.label: each for each in decisions if each.decision == MERGE}
    found = {}
    used = set()
    for section in sections:
        for card in section.cards:
            for item in card.items:
                made = of_item.get(item) or of_label.get(card.label)
                # () is a decision that names no label
                if made and made.label in {(), card.label}:
                    found[item] = {"decision": made.decision, "path": JOINED.join(made.path)}
                    used.add(made)
    left = len(set(decisions) - used)
    if not left:
        return Decided(found, "")
    return Decided(
        found,
        f"Of {DECISIONS}, {left:,} are about labels that are not shown here: keep that file.",
    )
