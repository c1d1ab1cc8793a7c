"""Rows of names, coarse to fine, as tables and paths give them.

>>> stripped(("Aves", "Owls", "")), prefixes(("Aves", "Owls"))
(('Aves', 'Owls'), [('Aves',), ('Aves', 'Owls')])
"""

from __future__ import annotations

from collections.abc import Iterable

Row = tuple[str, ...]


def stripped(row: Iterable[str]) -> Row:
    """Remove the empty names at the fine end of a row."""
    names = list(row)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def prefixes(row: Row) -> list[Row]:
    """The paths of the nodes of a row, coarse to fine."""
    return [row[:depth] for depth in range(1, len(row) + 1)]


def default_levels(depth: int) -> tuple[str, ...]:
    """Names for levels that have none: level1 (coarse) … levelL (fine)."""
    return tuple(f"level{number}" for number in range(1, depth + 1))
