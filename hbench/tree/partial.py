"""Handles partial labels: paths that end early, because nothing is known below their last name.

A path (order, family, "") is filled up with a name that marks the unknown, so that tables, trees
and files need no special case. Every path that ends early has its own mark:

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
NO_CLASS = "[no class]"  # the name at every level of a distractor
Known = NDArray[np.uint8]


def ended_early(row: tuple[str, ...], levels: Sequence[str]) -> tuple[str, ...]:
    """Fill up a row of names that ends early to the length of `levels`, with a mark of the unknown.
    The mark contains the last name and its level, so that different paths do not share one."""
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
    """Whether a name is a mark of the unknown."""
    return name.startswith(MARK)


def shown(name: str, levels: Sequence[str], level: int) -> str:
    """The name of a node for people; a mark of the unknown is put in words. `level` is the index of
    the node's level, from 0.

    >>> levels = ("order", "family", "genus")
    >>> shown("[unknown below family Felidae]", levels, 2), shown("Felis", levels, 2)
    ('unknown genus of Felidae', 'Felis')
    >>> shown("[unknown below order Cats] (Cats (Animals))", levels, 1)
    'unknown family of Cats'
    """
    # a mark is "[unknown below <level> <name>]", and text in brackets may follow, which makes it
    # unique
    if not is_unknown(name):
        return name
    below = name.removeprefix(MARK).partition("]")[0]
    of_level = next((each for each in levels if below.startswith(f"{each} ")), "")
    return f"unknown {levels[level]} of {below.removeprefix(f'{of_level} ')}"


def shown_along(tree: LabelTree, path: Sequence[int]) -> tuple[str, ...]:
    """The names of the nodes of a path for people, coarse to fine. The path may end early."""
    names = zip(tree.names, path, strict=False)
    return tuple(shown(of_level[node], tree.levels, n) for n, (of_level, node) in enumerate(names))


def shown_names(tree: LabelTree) -> list[list[str]]:
    """The names of all nodes for people, a list for each level, coarse to fine, in the order of the
    node ids. Marks of the unknown are put in words."""
    by_level = []
    for level, names in enumerate(tree.names):
        by_level.append([shown(name, tree.levels, level) for name in names])
    return by_level


def is_class(tree: LabelTree, level: int) -> NDArray[np.bool_]:
    """Whether each node of a level, 1 … L, is a class and does not mark the unknown, (n,)."""
    return ~np.fromiter(map(is_unknown, tree.names[level - 1]), bool, len(tree.names[level - 1]))


def classes_among(names: Iterable[str]) -> list[str]:
    """The names that are classes: neither a mark of the unknown, nor the name of distractors.

    >>> classes_among(["Felis", "[unknown below family Felidae]", "[no class]"])
    ['Felis']
    """
    return [name for name in names if not is_unknown(name) and name != NO_CLASS]


def classes_in_words(tree: LabelTree, between: str) -> str:
    """The number of classes of each level of a tree, in words, coarse to fine. `between` is the
    text between the levels."""
    sizes = [len(classes_among(names)) for names in tree.names]
    return between.join(f"{size:,} {level}" for size, level in zip(sizes, tree.levels, strict=True))


def known_levels(tree: LabelTree) -> Known:
    """Count the known levels, 1 … L, of every fine class, uint8 (C,). Without partial labels, all
    counts are L.

    Raises TreeError for a class without any known level, or with a name below an unknown one.
    """
    known = np.full(len(tree.paths), tree.depth, np.uint8)
    # from the finest level upwards, so that the coarsest mark of a class decides last
    for level in range(tree.depth, 0, -1):
        unknown = ~is_class(tree, level)  # which nodes of the level are marks of the unknown
        if not unknown.any():
            continue

        here = unknown[tree.paths[:, level - 1]]  # which fine classes have a mark at this level
        # A mark is wrong at the coarsest level, which must be known, and above a known name. A mark
        # at the next finer level has set `known` to this level, so if `known` is larger, the name
        # below this mark is known.
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
    """Whether some path of the tree ends early."""
    return bool((known_levels(tree) < tree.depth).any())
