"""Reads paths that stand in one cell or line, such as `Animals > Owls > Barn owl`, coarse to fine.

>>> found = separator_of(["Animals > Owls", "Animals > Parrots"])
>>> found, split_path("Animals > Owls", found)
('>', ('Animals', 'Owls'))
>>> split_path("k__Animalia;p__Chordata;c__", ";"), split_path("3 - Animals > Owls", ">")
(('Animalia', 'Chordata'), ('Animals', 'Owls'))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from hbench.sheets.rows import Row, default_levels, prefixes, stripped
from hbench.sheets.words import RANK_OF_LETTER

JOINED = " > "  # how hbench writes a path as one text
SEPARATORS = (" > ", ">", " / ", "|", "; ", ";")
STRICT = (";", "/", ":")  # marks that stand in names, too: every path must have them, and nest
PREFIX = re.compile(r"^([a-z])__")
NUMBER = re.compile(r"^(?:\d+ - |gid://\S+ *: *)")  # Google's and Shopify's number of a category
NEEDS_PREFIX = (";",)  # a semicolon separates many things


def separator_of(values: Iterable[str]) -> str | None:
    """The separator of the paths in a column; None where they are plain names.

    Every path has it, but for those that another one begins with; some share a beginning, and none
    is both a first and a later name, as labels that stand side by side are.
    """
    different = {value.strip() for value in values if value.strip()}
    for separator in SEPARATORS:
        mark = separator.strip()
        holding = [value for value in different if separator in value]
        # a semicolon separates many things: it counts between names with ranks before them, k__
        if len(holding) < 2 or (mark in NEEDS_PREFIX and not all(map(PREFIX.match, holding))):
            continue
        paths = [split_path(value, mark) for value in holding]
        first = {path[0] for path in paths if path}
        later = {name for path in paths for name in path[1:]}
        # plain names beside paths must be the beginnings of paths; some paths begin alike
        alone = {split_path(value, mark)[0] for value in different if separator not in value}
        if alone <= first and len(first) < len(different) and not (mark == "|" and first & later):
            return mark
    # marks that stand in names, too: every value must have them, and nest
    return next((mark for mark in STRICT if _all_nest(different, mark)), None)


def _all_nest(values: Set[str], mark: str) -> bool:
    """Whether every value, split at this mark, is a path of two names and more, and all of them
    together are paths of one tree."""
    paths = {split_path(value, mark) for value in values}
    return all(len(path) > 1 and "" not in path for path in paths) and are_nested(paths)


def are_nested(paths: Set[Row]) -> bool:
    """Whether rows of names are paths, coarse to fine, and not labels side by side: each name has
    one path above it, none is both a first and a later one, and some paths begin alike.
    """
    above: dict[tuple[int, str], Row] = {}
    for path in paths:
        for depth, name in enumerate(path):
            if above.setdefault((depth, name), path[:depth]) != path[:depth]:
                return False
    first = {path[0] for path in paths if path}
    later = {name for path in paths for name in path[1:]}
    return len(first) < len(paths) and not first & later


def split_path(text: str, separator: str) -> Row:
    """The names of a path, without the number in front of it, prefixes of ranks, and empty names at
    its end.
    """
    names = (name.strip() for name in NUMBER.sub("", text.strip()).split(separator))
    return stripped(PREFIX.sub("", name) for name in names)


def levels_of(values: Iterable[str], separator: str) -> tuple[str, ...]:
    """The names of the levels of paths: their ranks, where they say so, else level1, level2, …"""
    longest = max((stripped(value.split(separator)) for value in values), key=len, default=())
    # of the longest path the letters of its ranks: k__Animalia is a kingdom
    letters = [found[1] if (found := PREFIX.match(name.strip())) else "" for name in longest]
    named = tuple(RANK_OF_LETTER.get(letter, "") for letter in letters)
    return named if all(named) and len(set(named)) == len(named) else default_levels(len(longest))


def with_unique_names(rows: Sequence[Row]) -> list[Row]:
    """Paths whose nodes are known by their paths, with names that are unique at each level: "Cases
    (Phones)" beside "Cases (Cameras)". A path that ends early counts at the levels below its end,
    too, to which it may be repeated."""
    deepest = max(map(len, rows), default=0)
    ends = set(rows)  # the nodes at which a path ends
    nodes = {node for row in rows for node in prefixes(row)}
    order = sorted(nodes, key=lambda path: (len(path), path))
    # the levels at which each node counts, and how often a name stands at each level
    depths = {
        path: range(len(path), deepest + 1 if path in ends else len(path) + 1) for path in order
    }
    times = Counter((depth, path[-1]) for path in order for depth in depths[path])

    shown: dict[Row, str] = {}
    for path in order:
        is_shared = any(times[depth, path[-1]] > 1 for depth in depths[path])
        shown[path] = (
            f"{path[-1]} ({shown[path[:-1]]})" if is_shared and len(path) > 1 else path[-1]
        )
    return [tuple(map(shown.__getitem__, prefixes(row))) for row in rows]


def as_written(row: Row) -> Row:
    """The names of a path without the parents by which `with_unique_names` told them apart.

    >>> as_written(("Cameras", "Cases (Cameras)"))
    ('Cameras', 'Cases')
    """
    above = ("", *row)
    return tuple(
        name.removesuffix(f" ({parent})") for parent, name in zip(above, row, strict=False)
    )


def leaves_among(rows: Iterable[Row]) -> list[Row]:
    """The paths with which no longer one begins, in order."""
    listed = list(dict.fromkeys(rows))
    # the beginnings of all paths, which are inner nodes
    inner = {row[:depth] for row in listed for depth in range(1, len(row))}
    return [row for row in listed if row and row not in inner]
