"""Defines the record of how hbench understood a file. It is made once, when the file is read, and
shown wherever the file's content is used.

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

MOST_NAMED = 6  # at most so many left-out columns are named in a sentence; the document has all


@dataclass(frozen=True)
class Understood:
    """How a file was understood, in words for people.

    Attributes:
        source: how messages call the file.
        what: what was read and how much, such as "20 items".
        facts: further sentences, such as those on levels.
        left_out: {column that is not used: why}.
        hints: what the file could mean otherwise, with the option that says so.
        options: what the user said about the file, as arguments of `hbench.load`.
    """

    source: str
    what: str
    facts: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Write the record as one sentence, without control characters for terminals."""
        parts = [self.what, *self.facts]
        if self.left_out:
            parts.append(f"left out: {self._columns()}")
        return visible("; ".join([f"{self.source}: {parts[0]}", *parts[1:], *self.hints]))

    def _columns(self) -> str:
        """Name the first columns that are left out, each with the reason."""
        named = [
            f"{shorten(name, 40) or '(without a name)'} ({why})"
            for name, why in self.left_out.items()
        ]
        more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        return f"column{'s' if len(named) > 1 else ''} {', '.join(named[:MOST_NAMED])}{more}"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Understood:
        """Make the record from JSON values that the method `document` wrote. Its lists of sentences
        (facts, hints) become tuples. It has no `options` if the user said nothing about the file.
        """
        listed = {name: tuple(document[name]) for name in ("facts", "hints")}
        return cls(
            document["source"],
            document["what"],
            left_out=dict(document["left_out"]),
            options=dict(document.get("options", {})),
            **listed,
        )

    def document(self) -> dict[str, Any]:
        """Return the record as JSON values, with `options` only if the user said something."""
        values = {
            "source": self.source,
            "what": self.what,
            "facts": list(self.facts),
            "left_out": dict(self.left_out),
            "hints": list(self.hints),
        }
        return {**values, "options": dict(self.options)} if self.options else values
