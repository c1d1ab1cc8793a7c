"""Finds partial labels that the neighbours of an item complete, and siblings that neighbours do not
tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa

from hbench.auditing.evidence import Votes
from hbench.auditing.pool import Pool
from hbench.sheets.paths import JOINED

AGREE = 0.9  # the share of neighbours, or of votes, that must agree
TOLD_APART = 0.4  # siblings are told apart if a smaller share of votes goes to the other one
TINY = 2  # a class with at most so many items may be a misspelling of its sibling's name


class Completion(NamedTuple):
    """An item whose label ends early, the path that its neighbours propose, and the share of
    neighbours that agree."""

    item: str
    split: str
    label: str
    proposed: str
    share: float


class OneClass(NamedTuple):
    """Two siblings that may be one class, the shares of votes that go to the other one, and their
    numbers of items."""

    first: str
    second: str
    first_for_second: float
    second_for_first: float
    items_of_first: int
    items_of_second: int


def completions_of(pool: Pool, votes: Votes) -> pa.Table:
    """A table with a row per item whose label ends early and for which nearly all neighbours agree
    on the next name, the surest first."""
    found = []
    for item in np.flatnonzero(votes.known[votes.classes] < votes.depth).tolist():
        own = int(votes.classes[item])
        level = int(votes.known[own])  # the index of the first level that the label lacks
        proposed, share = _class_most_agree_on(votes, item, level)
        # a node of another branch would contradict the label instead of completing it
        if share >= AGREE and (votes.paths[proposed, :level] == votes.paths[own, :level]).all():
            path = JOINED.join(pool.paths[proposed][: level + 1])
            id_of, split = str(pool.manifest.items[item]), str(pool.split[item])
            found.append(
                Completion(
                    item=id_of, split=split, label=pool.labels[own], proposed=path, share=share
                )
            )
    found.sort(key=lambda each: -each.share)
    return _table_of_rows(Completion, found)


def _class_most_agree_on(votes: Votes, item: int, level: int) -> tuple[int, float]:
    """Find the node that most neighbours of an item have at a level, the index of which is `level`.
    Return one of the classes below it, and the share of all neighbours that have this node. Any
    class below will do: the caller uses only its path down to this level."""
    near = votes.classes[votes.neighbours[item]]
    further = near[votes.known[near] > level]
    if not len(further):  # with a share of 0, the caller does not use the class
        return 0, 0.0
    nodes, counts = np.unique(votes.paths[further, level], return_counts=True)
    most = int(np.argmax(counts))
    of_node = further[votes.paths[further, level] == nodes[most]]
    return int(of_node[0]), float(counts[most] / len(near))


def merges_of(pool: Pool, votes: Votes) -> pa.Table:
    """A table with a row per pair of siblings whose items vote for each other nearly as often as
    for their own class, the most similar first. For a class of one or two items, only its own votes
    count. All shares are of the votes for either of the two classes."""
    sizes = np.bincount(votes.classes, minlength=len(votes.paths)).tolist()
    cast = _votes_between(votes)  # (one, other) → the votes of the items of `one` for `other`
    found = []
    # each pair of classes once, whichever of them votes for the other
    pairs = {(min(pair), max(pair)) for pair in cast}
    for one, other in sorted(pairs):
        # a pair of equal classes has the votes of items for their own class
        if one == other or not _are_siblings(votes, one, other):
            continue
        share, back = _share_of_votes(cast, one, other), _share_of_votes(cast, other, one)
        # A tiny class may be the other one, misspelt. Only the votes of its own items show that,
        # and nearly all must agree: a larger class votes for itself in any case.
        of_tiny = max(share if sizes[one] <= TINY else 0.0, back if sizes[other] <= TINY else 0.0)
        # a pair is told apart if the share of either class is below TOLD_APART
        if min(share, back) >= TOLD_APART or of_tiny >= AGREE:
            names = (pool.labels[one], pool.labels[other])
            found.append(OneClass(*names, share, back, sizes[one], sizes[other]))
    found.sort(key=lambda each: -min(each.first_for_second, each.second_for_first))
    return _table_of_rows(OneClass, found)


def _votes_between(votes: Votes) -> dict[tuple[int, int], int]:
    """The number of votes of the items of one class for another, by the pair of both classes."""
    own = np.repeat(votes.classes, votes.k)
    voted = votes.classes[votes.neighbours].ravel()
    # one number for each pair of classes, so that `unique` can count them
    pairs, counts = np.unique(own * len(votes.paths) + voted, return_counts=True)
    first, second = (each.tolist() for each in np.divmod(pairs, len(votes.paths)))
    return dict(zip(zip(first, second, strict=True), counts.tolist(), strict=True))


def _are_siblings(votes: Votes, one: int, other: int) -> bool:
    """Whether two classes have the same parent, and both are known to the finest level."""
    is_known = min(votes.known[one], votes.known[other]) == votes.depth
    return bool(is_known and votes.parents[one] == votes.parents[other])


def _share_of_votes(cast: dict[tuple[int, int], int], one: int, other: int) -> float:
    """The share of votes for the class `other`, among the votes of the items of `one` for either of
    the two classes."""
    for_other = cast.get((one, other), 0)
    return round(for_other / max(cast.get((one, one), 0) + for_other, 1), 4)


ARROW = {str: pa.string(), float: pa.float64(), int: pa.int64()}


def _table_of_rows(kind: type[Any], rows: Sequence[Any]) -> pa.Table:
    """A table of named tuples. `kind` is their class, whose annotations give the types of the
    columns, so that a table without rows has them as well."""
    fields = [(name, ARROW[get_type_hints(kind)[name]]) for name in kind._fields]
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=pa.schema(fields))
