"""Finds groups of items of one class that look like one other class, so that one decision settles
all of them.

If a class is often taken for another one, such mistakes are usual for the wrong label, and none of
them stands out alone. Together they do. Items labelled A whose neighbours propose B are a group if
three conditions hold. They fit into B as well as the items of B: they have as many neighbours in B,
and are not strange in B. The other items of A have hardly any neighbours in B. And there is no
comparable group of items of B that look like A. Vectors cannot exclude that some items of A merely
look like B, so no sureness is stated for groups.

To bound the number of such mistakes, classes are relabelled on purpose: 30 % of their items, or a
batch of items that are near each other. The smaller share of these that is found again in groups
is the recall.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.evidence import Alternatives, Evidence, Indices, Votes
from hbench.auditing.strangeness import Strangeness
from hbench.auditing.swaps import SMALLEST

Floats = NDArray[np.float64]
# in a group of items labelled A that look like B, "share" is that of B among the neighbours
FEWEST = 5  # smallest number of items in a group, with copies counted as one
AT_HOME = 0.8  # smallest share of the group, relative to the share of B's own items
RECOGNISED = 0.4  # smallest share of B's own items; below it, B is not recognised by neighbours
ELSEWHERE = 0.15  # largest share of the other items of A, relative to the share of the group
STRANGE = 1.0  # largest mean strangeness of a group, in standard deviations
# relabelling on purpose
LOST = 0.3  # share of the items of a class that is relabelled
SOURCES = 60  # largest number of classes that lose items
FEWEST_SOURCES = 8
ROUNDED = 1e-9  # tolerance for sums of weights, such as five copies of weight .2
OF_CLASSES = 6  # one of so many classes loses items


class Contradicted(NamedTuple):
    """Items whose neighbours propose another class."""

    items: Indices  # (m,)
    proposed: Indices  # the proposed classes, (m,)


class SuspectGroup(NamedTuple):
    """Items of one class whose neighbours propose one other class."""

    label: int  # the class of the items
    proposed: int  # the other class
    items: Indices  # (m,)


def contradicted(found: Alternatives, items: Indices) -> Contradicted:
    """The items, among `items` (m,), whose best alternative, far or near, has positive evidence.
    `found` has the alternatives of these items."""
    # take the alternative with more evidence; evidence of 0 or less supports the label
    is_far = found.far.evidence >= found.near.evidence
    against = np.where(is_far, found.far.evidence, found.near.evidence)
    proposed = np.where(is_far, found.far.classes, found.near.classes)
    return Contradicted(items[against > 0], proposed[against > 0])


def groups_of(votes: Votes, found: Contradicted, strangeness: Strangeness) -> list[SuspectGroup]:
    """The groups among items whose neighbours contradict their labels, the largest first.

    A group is kept if it has at least FEWEST items, if its opposite (the items of the proposed
    class that look like the class of the group's labels) is at most half as large, and if its items
    fit into the proposed class (`_is_at_home`). Copies of one picture count as one item, since
    their weights add up to 1.

    Args:
        votes: the classes of all items and of their neighbours.
        found: the items whose neighbours contradict their labels, with the proposed classes.
        strangeness: how far items are from their neighbours, compared with the items of a class.
    """
    pairs = _items_by_pair(votes, found)
    sizes = [float(votes.weights[each.items].sum()) for each in pairs]
    size_of = {(e.label, e.proposed): size for e, size in zip(pairs, sizes, strict=True)}
    by_class = _items_by_class(votes)
    groups = []
    for group, size in zip(pairs, sizes, strict=True):
        # the size of the opposite group: if items of each class look like the other class, the two
        # overlap, and no label is wrong
        back = size_of.get((group.proposed, group.label), 0.0)
        # ROUNDED, since a sum of weights such as 5 · .2 may be below 1
        is_large = size >= FEWEST - ROUNDED and back <= size / 2
        if is_large and _is_at_home(votes, group, strangeness, by_class):
            groups.append(group)
    return sorted(groups, key=lambda each: (-len(each.items), each.label, each.proposed))


def _items_by_pair(votes: Votes, found: Contradicted) -> list[SuspectGroup]:
    """Group items by their class and the proposed class: one SuspectGroup for each such pair."""
    if not len(found.items):  # np.split would return one empty part
        return []
    # one number for each pair of classes, so that sorting makes its items adjacent
    keys = votes.classes[found.items] * len(votes.paths) + found.proposed
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    members = np.split(found.items[order], starts[1:])
    groups = []
    for pair, items in zip(pairs.tolist(), members, strict=True):
        label, proposed = divmod(pair, len(votes.paths))
        groups.append(SuspectGroup(label, proposed, items))
    return groups


def _is_at_home(
    votes: Votes, group: SuspectGroup, strangeness: Strangeness, by_class: list[Indices]
) -> bool:
    """Whether a group fits into the proposed class as well as that class's own items, while the
    rest of its own class does not.

    `by_class` has the items of each class. All shares are those of the proposed class among the
    neighbours of some items.
    """
    own = by_class[group.label]
    rest = own[~np.isin(own, group.items)]
    if len(rest) < SMALLEST:  # too few to show what the class looks like without the group
        return False
    of_proposed = _share(votes, by_class[group.proposed], group.proposed)
    of_group = _share(votes, group.items, group.proposed)
    # (m,): how strange each item would be in the proposed class, in standard deviations
    strange = strangeness.in_class(group.items, np.full(len(group.items), group.proposed))
    return bool(
        of_proposed >= RECOGNISED  # neighbours recognise the proposed class's own items
        and of_group >= AT_HOME * of_proposed  # and the group nearly as well
        # if the rest looked like the proposed class as well, no label would be wrong
        and _share(votes, rest, group.proposed) <= ELSEWHERE * of_group
        and strange.mean() <= STRANGE
    )


def _share(votes: Votes, items: Indices, of_class: int) -> float:
    """The share of a class among the neighbours of items (m,); 0 if there are no items."""
    return float((votes.classes[votes.neighbours[items]] == of_class).mean()) if len(items) else 0.0


def _items_by_class(votes: Votes) -> list[Indices]:
    """The items of each class, as a list of C arrays of indices, each ascending."""
    order = np.argsort(votes.classes, kind="stable")
    # the first class is the part before the first bound, so that C − 1 bounds give C parts
    bounds = np.searchsorted(votes.classes[order], np.arange(1, len(votes.paths)))
    return list(np.split(order, bounds))


class GroupRecall(NamedTuple):
    """The share of labels that `groups_of` finds again after they were made wrong on purpose, for
    far and near wrong labels. NaN if too few classes could be relabelled."""

    far: float
    near: float


def recall_of_groups(votes: Votes, strangeness: Strangeness) -> GroupRecall:
    """Relabel items of some classes on purpose, and measure how many are found again in groups.

    Each of these classes loses items that are drawn at random, and in a second experiment a batch
    of neighbours, as if the batch had been labelled together. The smaller share counts. It is NaN
    if fewer than FEWEST_SOURCES classes could lose items.

    All of this is done for far wrong labels, classes with another parent, and then for near ones,
    siblings. `strangeness`: how far items are from their neighbours, by which groups are judged.
    """
    rng = np.random.default_rng(0)  # a fixed seed, so that an audit can be repeated exactly
    shares = []
    for is_far in (True, False):
        # a group of items for each class that loses some, with the true and the wrong class
        flows = _relabel_some(votes, rng, is_far=is_far)
        batches = [_batch_of_neighbours(votes, flow) for flow in flows]
        both = (_share_found_again(votes, strangeness, lost) for lost in (flows, batches))
        shares.append(min(both) if len(flows) >= FEWEST_SOURCES else np.nan)
    return GroupRecall(*shares)


def _share_found_again(votes: Votes, strangeness: Strangeness, lost: list[SuspectGroup]) -> float:
    """The share of items, relabelled on purpose, that are found again in groups.

    `lost` has the relabelled items of each class, with the wrong class that they get as their
    `label`. `strangeness`: how far each item is from its neighbours, compared with what is usual in
    a class, since only items that look at home in the other class form a group.
    """
    classes = votes.classes.copy()
    for group in lost:
        classes[group.items] = group.label
    changed = replace(votes, classes=classes)
    # only items that have one of the wrong classes are examined, as every relabelled item has
    targets = np.unique([group.label for group in lost])
    looked_at = np.flatnonzero(np.isin(classes, targets))
    best = Evidence(changed).alternatives(looked_at, classes[looked_at])
    # `contradicted` keeps the items whose best alternative has more evidence than their label
    found = groups_of(changed, contradicted(best, looked_at), strangeness)
    # with an empty array first, since concatenate fails for an empty list
    in_groups = np.concatenate([np.zeros(0, np.int64), *(each.items for each in found)])
    wrong = np.concatenate([each.items for each in lost])
    return float(np.isin(wrong, in_groups).mean())


def _batch_of_neighbours(votes: Votes, flow: SuspectGroup) -> SuspectGroup:
    """Replace the relabelled items of a class by a batch of neighbours: the first of them, and its
    nearest neighbours in that class. Of both groups, `proposed` is the true class, which the
    neighbours propose, and `label` the wrong one, which the items get."""
    first = flow.items[0]
    near = votes.neighbours[first]
    batch = [first, *near[votes.classes[near] == flow.proposed][: FEWEST - 1].tolist()]
    return SuspectGroup(flow.label, flow.proposed, np.unique(np.array(batch, np.int64)))


def _relabel_some(votes: Votes, rng: np.random.Generator, *, is_far: bool) -> list[SuspectGroup]:
    """Choose items of some classes, and for each class the wrong class that they get: one with
    another parent if `is_far`, else a sibling.

    The result has a group for each class. Its `label` is the wrong class, and `proposed` the true
    one, which the neighbours will propose.
    """
    by_class = _items_by_class(votes)
    # a class must have this size, so that the share LOST of its items is large enough for a group
    fewest = int(np.ceil(FEWEST / LOST))
    large = [label for label, items in enumerate(by_class) if len(items) >= fewest]
    enough = np.array([len(items) > SMALLEST for items in by_class])  # large enough to gain items
    # one of OF_CLASSES classes loses items, so that most classes stay unchanged; at most SOURCES,
    # for speed, and at least FEWEST_SOURCES, below which the caller does not use the result
    sources = rng.permutation(large)[: max(FEWEST_SOURCES, min(SOURCES, len(large) // OF_CLASSES))]
    # a class that loses items, or has gained some, gains no others, so that groups do not mix
    taken = set(sources.tolist())
    flows = []
    for source in sources.tolist():
        is_sibling = votes.parents == votes.parents[source]
        # Only classes with full paths: a label that ends early might not contradict the true one.
        # The condition is_sibling != is_far is `is_sibling`, or its negation if `is_far`: classes
        # of other parents. The source, its own sibling, is in `taken`.
        others = np.flatnonzero((is_sibling != is_far) & enough & (votes.known == votes.depth))
        others = np.array([other for other in others.tolist() if other not in taken], np.int64)
        if not len(others):
            continue
        label = int(rng.choice(others))
        taken.add(label)
        items = by_class[source]
        number = round(LOST * len(items))
        flows.append(
            SuspectGroup(
                label=label,
                proposed=source,
                items=np.sort(rng.choice(items, number, replace=False)),
            )
        )
    return flows
