"""Handles partial labels: paths that end early, because nothing is known below their last name.

A path (order, family, "") is filled up with a name that marks the unknown, so that tables, trees
and files need no special case; every ending has its own mark:

>>> ended_early(("Carnivora", "Felidae"), ("order", "family", "genus"))
('Carnivora', 'Felidae', '[unknown below family Felidae]')
>>> rows = [
...     ("Carnivora", "Felidae", "Felis"),
...     ended_early(("Carnivora", "Felidae"), ("order", "family", "genus")),
... ]
>>> tree, labels = LabelTree.from_names(rows, levels=["order", "family", "genus"])
>>> known = known_levels(tree)[labels[:, -1]]
>>> known.tolist()
[3, 2]
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import TreeError, examples
from hbench.tree import LabelTree

MARK = "[unknown below "
NO_CLASS = "[no class]"  # stands at every level of an item that is right for no query
Known = NDArray[np.uint8]


def ended_early(row: tuple[str, ...], levels: Sequence[str]) -> tuple[str, ...]:
    """A row of names, below whose last name nothing is known, filled up to the length of `levels`
    with a mark of the unknown, which tells what it is below, so that no two endings share one."""
    if not row:
        return row
    name = row[-1] if is_unknown(row[-1]) else f"{MARK}{levels[len(row) - 1]} {row[-1]}]"
    return row + (name,) * (len(levels) - len(row))


def known_part(row: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a path down to the last known one.

    >>> known_part(("Owls", "[unknown below order Owls]")), known_part(("Owls", ""))
    (('Owls',), ('Owls',))
    """
    return tuple(name for name in row if name and not is_unknown(name))


def is_unknown(name: str) -> bool:
    """Whether a name is no name, but marks that nothing is known there."""
    return name.startswith(MARK)


def shown(name: str, levels: Sequence[str], level: int) -> str:
    """The name of a node of the level number `level` (from 0) as people read it: what marks the
    unknown is said in words, without what tells it apart.

    >>> levels = ("order", "family", "genus")
    >>> shown("[unknown below family Felidae]", levels, 2), shown("Felis", levels, 2)
    ('unknown genus of Felidae', 'Felis')
    >>> shown("[unknown below order Cats] (Cats (Animals))", levels, 1)
    'unknown family of Cats'
    """
    if not is_unknown(name):
        return name
    below = name.removeprefix(MARK).partition("]")[0]
    of_level = next((each for each in levels if below.startswith(f"{each} ")), "")
    return f"unknown {levels[level]} of {below.removeprefix(f'{of_level} ')}"


def shown_along(tree: LabelTree, path: Sequence[int]) -> tuple[str, ...]:
    """The names of the nodes of a path as people read them, coarse to fine; it may end early."""
    names = zip(tree.names, path, strict=False)
    return tuple(shown(of_level[node], tree.levels, n) for n, (of_level, node) in enumerate(names))


def shown_names(tree: LabelTree) -> list[list[str]]:
    """The names of all nodes as people read them, a list for each level, coarse to fine, by the
    nodes' numbers; marks of the unknown are said in words."""
    by_level = []
    for level, names in enumerate(tree.names):
        by_level.append([shown(name, tree.levels, level) for name in names])
    return by_level


def is_class(tree: LabelTree, level: int) -> NDArray[np.bool_]:
    """Which nodes of a level, 1 … L, are classes (n,): those that do not mark the unknown."""
    return ~np.fromiter(map(is_unknown, tree.names[level - 1]), bool, len(tree.names[level - 1]))


def classes_among(names: Iterable[str]) -> list[str]:
    """Those names of a level that are classes: neither a mark of the unknown nor that of
    distractors.

    >>> classes_among(["Felis", "[unknown below family Felidae]", "[no class]"])
    ['Felis']
    """
    return [name for name in names if not is_unknown(name) and name != NO_CLASS]


def classes_in_words(tree: LabelTree, between: str) -> str:
    """How many classes each level of a tree has, in words, coarse to fine, with `between` between
    the levels."""
    sizes = [len(classes_among(names)) for names in tree.names]
    return between.join(f"{size:,} {level}" for size, level in zip(sizes, tree.levels, strict=True))


def known_levels(tree: LabelTree) -> Known:
    """Count the known levels, 1 … L, of every fine class, uint8 (C,); without partial labels all
    are L.

    Raises TreeError for a class without any known level, or with a name below an unknown one.
    """
    known = np.full(len(tree.paths), tree.depth, np.uint8)
    # from the finest level upwards: a class is known to the level above its highest mark
    for level in range(tree.depth, 0, -1):
        unknown = ~is_class(tree, level)
        if not unknown.any():
            continue

        here = unknown[tree.paths[:, level - 1]]
        # marked here, but not at the level below; or at the coarsest, so that nothing is known
        bad = np.flatnonzero(here & (known > level) | (level == 1) & here).tolist()
        if bad:
            raise TreeError(
                f"{len(bad)} paths of partial labels begin with an unknown name, or have a name "
                "below one",
                expected="known names from the coarsest level on, then unknown ones down to the "
                "finest",
                found=examples(tree.names[-1][i] for i in bad),
                fix="take the names from the source again, by --policy unknown",
            )

        known[here] = level - 1

    return known


def is_partial(tree: LabelTree) -> bool:
    """Whether a path of the tree ends early."""
    return bool((known_levels(tree) < tree.depth).any())
