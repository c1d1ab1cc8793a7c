"""Rows of names, coarse to fine, as tables and paths give them.

>>> stripped(("Aves", "Owls", "")), prefixes(("Aves", "Owls"))
(('Aves', 'Owls'), [('Aves',), ('Aves', 'Owls')])
"""

from __future__ import annotations

from collections.abc import Iterable

Row = tuple[str, ...]
MAX_SMALL_TABLE = 5  # a table of at most this many rows may have a class per row by chance


def stripped(row: Iterable[str]) -> Row:
    """A row of names, coarse to fine, without the empty ones at its fine end: a path that ends
    early is filled up with them."""
    names = list(row)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def prefixes(row: Row) -> list[Row]:
    """The paths to all nodes on a row's path, coarse to fine: its first name, its first two …"""
    return [row[:depth] for depth in range(1, len(row) + 1)]


def default_levels(depth: int) -> tuple[str, ...]:
    """Names for levels that have none: level1 (coarse) … levelL (fine)."""
    return tuple(f"level{number}" for number in range(1, depth + 1))
