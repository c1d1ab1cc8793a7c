"""Reads paths that are written in one cell or line, such as `Animals > Owls > Barn owl`.

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
STRICT = (";", "/", ":")  # names may contain these: all values must have them, and nest
PREFIX = re.compile(r"^([a-z])__")
NUMBER = re.compile(r"^(?:\d+ - |gid://\S+ *: *)")  # Google's and Shopify's number of a category
NEEDS_PREFIX = (";",)  # not only paths have it: names must have prefixes of ranks, such as k__


def separator_of(values: Iterable[str]) -> str | None:
    """Find the separator of the paths in a column, without blanks around it; None if the values of
    the column are plain names.

    All values contain the separator, except for the first names of paths, which may stand alone.
    Some paths begin with the same name. With `|`, no name is both first in a path and later in a
    path, as it would be if the values were several labels of an item.
    """
    different = {value.strip() for value in values if value.strip()}
    for separator in SEPARATORS:
        mark = separator.strip()
        holding = [value for value in different if separator in value]
        # at least two values must be paths; with a semicolon, they must begin with the prefix of a
        # rank, such as k__
        if len(holding) < 2 or (mark in NEEDS_PREFIX and not all(map(PREFIX.match, holding))):
            continue
        paths = [split_path(value, mark) for value in holding]
        first = {path[0] for path in paths if path}
        later = {name for path in paths for name in path[1:]}
        # Each value without the separator must be the first name of some path. Some paths must
        # begin alike, so there must be fewer first names than values.
        alone = {split_path(value, mark)[0] for value in different if separator not in value}
        if alone <= first and len(first) < len(different) and not (mark == "|" and first & later):
            return mark
    # names may contain the marks in STRICT, so all values must have the mark and form a tree
    return next((mark for mark in STRICT if _all_nest(different, mark)), None)


def _all_nest(values: Set[str], mark: str) -> bool:
    """Whether each value, split at this mark, is a path of at least two names, and all of these
    paths form a tree."""
    paths = {split_path(value, mark) for value in values}
    return all(len(path) > 1 and "" not in path for path in paths) and are_nested(paths)


def are_nested(paths: Set[Row]) -> bool:
    """Whether rows of names are paths, coarse to fine, and not several labels of an item.

    They are paths if each name has the same names before it in all rows, if no name is both first
    in a row and later in a row, and if some rows begin with the same name.
    """
    above: dict[tuple[int, str], Row] = {}  # {(depth, name): the names before it}
    for path in paths:
        for depth, name in enumerate(path):
            if above.setdefault((depth, name), path[:depth]) != path[:depth]:
                return False
    first = {path[0] for path in paths if path}
    later = {name for path in paths for name in path[1:]}
    return len(first) < len(paths) and not first & later


def split_path(text: str, separator: str) -> Row:
    """Split a text into the names of a path. A number in front of the path, prefixes of ranks
    (k__) and empty names at the end are removed."""
    names = (name.strip() for name in NUMBER.sub("", text.strip()).split(separator))
    return stripped(PREFIX.sub("", name) for name in names)


def levels_of(values: Iterable[str], separator: str) -> tuple[str, ...]:
    """Return names for the levels of paths: the ranks by the prefixes of names, or level1, level2,
    … if names have no prefixes."""
    longest = max((stripped(value.split(separator)) for value in values), key=len, default=())
    # the letters of ranks in the longest path: k__Animalia is a kingdom
    letters = [found[1] if (found := PREFIX.match(name.strip())) else "" for name in longest]
    named = tuple(RANK_OF_LETTER.get(letter, "") for letter in letters)
    return named if all(named) and len(set(named)) == len(named) else default_levels(len(longest))


def with_unique_names(rows: Sequence[Row]) -> list[Row]:
    """Make the names of paths unique at each level, by adding the parent to a name that several
    nodes share: "Cases (Phones)" and "Cases (Cameras)".

    The last name of a path that ends early counts at all levels below, too, since it may be
    repeated there to give all paths the same length.
    """
    deepest = max(map(len, rows), default=0)
    ends = set(rows)  # the nodes at which a path ends
    nodes = {node for row in rows for node in prefixes(row)}  # each as its path
    order = sorted(nodes, key=lambda path: (len(path), path))  # parents before their children
    # the levels at which each node counts: its own and, if a path ends at the node, all below.
    # `times`: how often each name occurs at each level
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
    """Remove from the names of a path the parents that `with_unique_names` added.

    >>> as_written(("Cameras", "Cases (Cameras)"))
    ('Cameras', 'Cases')
    """
    above = ("", *row)  # the parent of each name, and one more at the end, which zip leaves out
    return tuple(
        name.removesuffix(f" ({parent})") for parent, name in zip(above, row, strict=False)
    )


def leaves_among(rows: Iterable[Row]) -> list[Row]:
    """Return the paths that are not the beginning of a longer path, in order."""
    listed = list(dict.fromkeys(rows))
    # the proper beginnings of paths are inner nodes
    inner = {row[:depth] for row in listed for depth in range(1, len(row))}
    return [row for row in listed if row and row not in inner]
