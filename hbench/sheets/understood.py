"""A record of what hbench took a file for, made once where the file is read, and shown wherever its
content is used.

>>> read = Understood(
...     "birds.csv", "20 items", ("levels order (2) › species (5)",), {"Unnamed: 0": "an index"}
... )
>>> print(read)
birds.csv: 20 items; levels order (2) › species (5); left out: column Unnamed: 0 (an index)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hbench.core.errors import shorten, visible

MOST_NAMED = 6  # columns that are left out and named in the sentence; the document has all


@dataclass(frozen=True)
class Understood:
    """What was read from `source`: `what` and how much of it, in words; `facts`, such as its
    levels; the columns that are `left_out` and why; `hints`: what else it could have been, with the
    option that says so; `options`: what the user said about it, as `hbench.load` takes it."""

    source: str
    what: str
    facts: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The record as one sentence for people, without letters that a terminal would obey."""
        parts = [self.what, *self.facts]
        if self.left_out:
            parts.append(f"left out: {self._columns()}")
        return visible("; ".join([f"{self.source}: {parts[0]}", *parts[1:], *self.hints]))

    def _columns(self) -> str:
        """The first columns that are left out, each with the reason, in words. `left_out`: {title
        of a column: why}."""
        named = [
            f"{shorten(name, 40) or '(without a name)'} ({why})"
            for name, why in self.left_out.items()
        ]
        more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        return f"column{'s' if len(named) > 1 else ''} {', '.join(named[:MOST_NAMED])}{more}"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Understood:
        """The record that the JSON values `document` hold, as the method `document` writes them: it
        leaves `options` out where the user said nothing."""
        listed = {name: tuple(document[name]) for name in ("facts", "hints")}
        return cls(
            document["source"],
            document["what"],
            left_out=dict(document["left_out"]),
            options=dict(document.get("options", {})),
            **listed,
        )

    def document(self) -> dict[str, Any]:
        """The record as JSON values; `options` only where the user said something."""
        values = {
            "source": self.source,
            "what": self.what,
            "facts": list(self.facts),
            "left_out": dict(self.left_out),
            "hints": list(self.hints),
        }
        return {**values, "options": dict(self.options)} if self.options else values
