"""Prepares what a page shows of a dataset: the card, the published counts, and, if the dataset is
on this disk, the label tree."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import HBenchError
from hbench.datasets import Dataset, card, load, specs
from hbench.look.pages.tree_data import tree_data
from hbench.tree import LabelTree
from hbench.tree.statistics import LevelStatistics, items_of_level, statistics

MOST_NODES = 12_000  # nodes of a tree in a page, about 300 KB
TEXTS = {
    "citation": "paper",
    "licence": "licence",
    "size": "size",
    "manual": "fetched by hand",
    "pixels": "pixels",
}


class DatasetCard(NamedTuple):
    """The card of a dataset.

    Attributes:
        facts: pairs (name, text).
        counts: the published counts as (split, what is counted, number).
        levels: statistics of the levels of the label tree.
        tree: the data of the label tree for the page's script; None if the dataset is not on this
            disk.
        why: why the tree, or a part of it, is not shown; "" if all is shown.
    """

    title: str
    homepage: str
    facts: list[tuple[str, str]]
    counts: list[tuple[str, str, int]]
    levels: list[LevelStatistics]
    tree: dict[str, Any] | None
    why: str


def card_of(name: str) -> DatasetCard:
    """Make the card of a dataset that a leaderboard names. The dataset may be unknown or not on
    this disk; the card then has no tree and says why."""
    spec = specs[name] if name in specs else None  # noqa: SIM401 - a registry has no get
    # the fields of the dataset's card; none of an unknown dataset
    about: dict[str, Any] = dict(card(spec)) if spec else {}
    facts = [(label, str(about[key])) for key, label in TEXTS.items() if key in about]
    facts += [("known defect", str(text)) for text in about.get("defects", ())]
    # (split, what is counted, number), as published
    counts = (
        [(split, what, number) for split, of in spec.counts.items() for what, number in of.items()]
        if spec
        else []
    )
    homepage = str(about.get("homepage", ""))
    if not homepage.startswith(("https://", "http://")):  # other addresses are not safe to link to
        homepage = ""
    # without statistics of the levels and without a tree, which are added below
    made = DatasetCard(
        title=str(about.get("title", name)),
        homepage=homepage,
        facts=facts,
        counts=counts,
        levels=[],
        tree=None,
        why="",
    )
    # the label tree can only be read from the dataset itself, which may not be on this disk
    try:
        data = load(name)
    except HBenchError as error:
        fix = f" ({error.fix})" if error.fix else ""
        return made._replace(why=f"Its tree is not shown: {error.problem}{fix}")

    return _with_tree(made, data)


def _with_tree(made: DatasetCard, data: Dataset) -> DatasetCard:
    """Add the label tree of the dataset's first test, and the statistics of its levels, to a
    card."""
    test = next(iter(data.tests.values()))
    # (C,): the number of items of each finest class
    items = np.bincount(test.labels[:, -1], minlength=len(test.tree.paths))
    levels = statistics(test.tree, items)
    # keep as many of the coarsest levels as have at most MOST_NODES nodes together
    tree, items_of_nodes = cut_to(test.tree, items, MOST_NODES)
    left_out = test.tree.levels[tree.depth :]
    why = f"Its finest levels are left out here: {', '.join(left_out)}." if left_out else ""
    # without the ids of nodes, which serve only scripts that look nodes up
    shown = {
        name: part for name, part in tree_data(tree, items_of_nodes).items() if name != "nodes"
    }
    return made._replace(levels=levels, tree=shown, why=why)


def cut_to(
    tree: LabelTree, items: NDArray[np.int64], most: int
) -> tuple[LabelTree, NDArray[np.int64]]:
    """Remove the finest levels of a tree until it has at most `most` nodes, or one level.

    Args:
        tree: the label tree.
        items: (C,) number of items of each class.
        most: the largest number of nodes.

    Returns the smaller tree, and the number of items of each of its classes.

    >>> tree, _ = LabelTree.from_names(
    ...     [("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine")
    ... )
    >>> small, items = cut_to(tree, np.array([5, 1, 2]), 4)
    >>> small.levels, items.tolist()
    (('coarse',), [6, 2])
    """
    depth = tree.depth
    while depth > 1 and sum(map(len, tree.names[:depth])) > most:
        depth -= 1
    if depth == tree.depth:
        return tree, items
    paths = np.unique(tree.paths[:, :depth], axis=0)
    smaller = LabelTree(levels=tree.levels[:depth], names=tree.names[:depth], paths=paths)
    # nodes keep their numbers; each path of the smaller tree ends in a node of its finest level
    return smaller, items_of_level(tree, items, depth)[paths[:, -1]]
