"""Works with rows of names, coarse to fine, as they come from tables and paths.

>>> stripped(("Aves", "Owls", "")), prefixes(("Aves", "Owls"))
(('Aves', 'Owls'), [('Aves',), ('Aves', 'Owls')])
"""

from __future__ import annotations

from collections.abc import Iterable

Row = tuple[str, ...]
MAX_SMALL_TABLE = 5  # a table of at most this many rows may have a class per row by chance


def stripped(row: Iterable[str]) -> Row:
    """Remove the empty names at the fine end of a row, with which a path that ends early is filled
    up."""
    names = list(row)
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def prefixes(row: Row) -> list[Row]:
    """Return the paths to all nodes on a row's path: its first name, its first two names …"""
    return [row[:depth] for depth in range(1, len(row) + 1)]


def default_levels(depth: int) -> tuple[str, ...]:
    """Make names for `depth` levels without names: level1 (coarse), level2, …"""
    return tuple(f"level{number}" for number in range(1, depth + 1))
