"""Finds what neighbours say about names: partial labels that they complete, and siblings that they
do not tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa

from hbench.auditing.evidence import Votes
from hbench.auditing.pool import Pool
from hbench.sheets.paths import JOINED

AGREE = 0.9  # of the neighbours that are known further
TOLD_APART = 0.4  # of the votes for either, so many go to the sibling
TINY = 2  # items of a class that may be a slip of the pen, whose sibling says nothing of it


class Completion(NamedTuple):
    """An item whose label ends early, the path that its neighbours propose, and their share."""

    item: str
    split: str
    label: str
    proposed: str
    share: float


class OneClass(NamedTuple):
    """Two siblings, the shares of votes that go to the other, and their numbers of items."""

    first: str
    second: str
    first_for_second: float
    second_for_first: float
    items_of_first: int
    items_of_second: int


def completions_of(pool: Pool, votes: Votes) -> pa.Table:
    """A row per item whose label ends early and whose neighbours agree (nearly all of them) on a
    name below it, the surest first. `votes`: of every item its class and its neighbours, of every
    class its nodes (C, L) and how many of them are known (C,)."""
    found = []
    for item in np.flatnonzero(votes.known[votes.classes] < votes.depth).tolist():
        own = int(votes.classes[item])
        level = int(votes.known[own])  # counted from 0: the first that the label lacks
        # the class whose node at that level most neighbours have, and their share
        proposed, share = _class_most_agree_on(votes, item, level)
        # a node of another branch would contradict the label, not complete it
        if share >= AGREE and (votes.paths[proposed, :level] == votes.paths[own, :level]).all():
            path = JOINED.join(pool.paths[proposed][: level + 1])
            id_of, split = str(pool.manifest.items[item]), str(pool.split[item])
            found.append(Completion(id_of, split, pool.labels[own], path, share))
    found.sort(key=lambda each: -each.share)
    return _table_of_rows(Completion, found)


def _class_most_agree_on(votes: Votes, item: int, level: int) -> tuple[int, float]:
    """A class of the node at a level that most neighbours of an item have, and their share of all
    its neighbours; 0 of any class where no neighbour's label reaches that level: a share so small
    that the class is not looked at. `level`: counted from 0."""
    near = votes.classes[votes.neighbours[item]]
    further = near[votes.known[near] > level]
    if not len(further):
        return 0, 0.0
    nodes, counts = np.unique(votes.paths[further, level], return_counts=True)
    most = int(np.argmax(counts))
    of_node = further[votes.paths[further, level] == nodes[most]]
    return int(of_node[0]), float(counts[most] / len(near))


def merges_of(pool: Pool, votes: Votes) -> pa.Table:
    """A row per pair of siblings whose items vote for each other nearly as much as for
    themselves, the least told apart first; of a class of one or two items its own votes count.
    `votes.classes` (N,): of every item."""
    sizes = np.bincount(votes.classes, minlength=len(votes.paths)).tolist()
    cast = _votes_between(votes)
    found = []
    # (smaller, larger class), once whichever votes for the other
    pairs = {(min(pair), max(pair)) for pair in cast}
    for one, other in sorted(pairs):
        # items vote for their own class, too
        if one == other or not _are_siblings(votes, one, other):
            continue
        share, back = _share_of_votes(cast, one, other), _share_of_votes(cast, other, one)
        # a class of one or two items may be a slip of the pen for the other
        of_tiny = max(share if sizes[one] <= TINY else 0.0, back if sizes[other] <= TINY else 0.0)
        if min(share, back) >= TOLD_APART or of_tiny >= AGREE:
            names = (pool.labels[one], pool.labels[other])
            found.append(OneClass(*names, share, back, sizes[one], sizes[other]))
    found.sort(key=lambda each: -min(each.first_for_second, each.second_for_first))
    return _table_of_rows(OneClass, found)


def _votes_between(votes: Votes) -> dict[tuple[int, int], int]:
    """How many votes of the items of a class go to a class."""
    own = np.repeat(votes.classes, votes.k)
    voted = votes.classes[votes.neighbours].ravel()
    # a pair of classes as one number
    pairs, counts = np.unique(own * len(votes.paths) + voted, return_counts=True)
    first, second = (each.tolist() for each in np.divmod(pairs, len(votes.paths)))
    return dict(zip(zip(first, second, strict=True), counts.tolist(), strict=True))


def _are_siblings(votes: Votes, one: int, other: int) -> bool:
    """Whether two classes have one parent, and are known to the finest level."""
    is_known = min(votes.known[one], votes.known[other]) == votes.depth
    return bool(is_known and votes.parents[one] == votes.parents[other])


def _share_of_votes(cast: dict[tuple[int, int], int], one: int, other: int) -> float:
    """Of the votes of a class for itself or the other, the share for the other."""
    for_other = cast.get((one, other), 0)
    return round(for_other / max(cast.get((one, one), 0) + for_other, 1), 4)


ARROW = {str: pa.string(), float: pa.float64(), int: pa.int64()}


def _table_of_rows(kind: type[Any], rows: Sequence[Any]) -> pa.Table:
    """Named tuples as a table. `kind`: their class, whose annotations say the types of the columns,
    also of a table without rows."""
    fields = [(name, ARROW[get_type_hints(kind)[name]]) for name in kind._fields]
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=pa.schema(fields))
