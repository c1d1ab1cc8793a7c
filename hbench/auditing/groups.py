"""Finds classes that lose many items to one other class: one decision for all of them.

If a class is always taken for another one, the mistakes of its items are usual for the wrong label,
and none of them stands out. Together they do. Of the items labelled A, those whose neighbours say B
are a group where they lie among the items of B as these do themselves (as many of their neighbours
are B, and none is strange in B), where the other items of A have hardly a neighbour in B, and where
B sends no such group to A. That a kind of A merely looks like B cannot be excluded by vectors, so
nothing is said of how sure that is.

How many such mistakes there are at most is known where groups are found: classes are relabelled on
purpose, 30 % of their items, or a batch of items that are near each other; the smaller share that
comes back in groups counts.
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
FEWEST = 5  # items of a group, copies counted once
AT_HOME = 0.8  # of the share of B among the neighbours of B's own items
RECOGNISED = 0.4  # the least such share: else B is no class to be taken for
ELSEWHERE = 0.15  # of a group's share of B, at most, among the other items of A
STRANGE = 1.0  # mean of a group, in standard deviations
LOST = 0.3  # of the items of a class, on purpose
SOURCES = 60  # classes that lose items on purpose, at most
FEWEST_SOURCES = 8
ROUNDED = 1e-9  # what rounding may take from a sum of weights: five copies of weight .2 are 1
OF_CLASSES = 6  # of so many classes one loses items


class Contradicted(NamedTuple):
    """Items (m,) whose neighbours propose other classes (m,)."""

    items: Indices
    proposed: Indices


class SuspectGroup(NamedTuple):
    """Items (m,) of one class whose neighbours say one other class."""

    label: int
    proposed: int
    items: Indices


def contradicted(found: Alternatives, items: Indices) -> Contradicted:
    """Those of some items (m,) for whose best alternative, far or near, there is evidence."""
    # the alternative with more evidence; evidence of 0 or less speaks for the label
    is_far = found.far.evidence >= found.near.evidence
    against = np.where(is_far, found.far.evidence, found.near.evidence)
    proposed = np.where(is_far, found.far.classes, found.near.classes)
    return Contradicted(items[against > 0], proposed[against > 0])


def groups_of(votes: Votes, found: Contradicted, strangeness: Strangeness) -> list[SuspectGroup]:
    """The groups among items whose neighbours contradict their labels, the largest first.

    A group is kept if it has FEWEST items or more, if at most half as many go the other way, from
    the proposed class to theirs, and if it lies among the items of the proposed class as these do
    themselves (`_is_at_home`). Copies of one picture count as one item: their weights add up to 1.
    `votes`: of every item its class and weight; `found`: the items, and the class proposed to each.
    """
    pairs = _items_by_pair(votes, found)
    sizes = [float(votes.weights[each.items].sum()) for each in pairs]
    size_of = {(e.label, e.proposed): size for e, size in zip(pairs, sizes, strict=True)}
    by_class = _items_by_class(votes)
    groups = []
    for group, size in zip(pairs, sizes, strict=True):
        # where two classes are taken for each other both ways they overlap: no label is wrong
        back = size_of.get((group.proposed, group.label), 0.0)
        is_large = size >= FEWEST - ROUNDED and back <= size / 2  # sizes are sums of fractions
        if is_large and _is_at_home(votes, group, strangeness, by_class):
            groups.append(group)
    return sorted(groups, key=lambda each: (-len(each.items), each.label, each.proposed))


def _items_by_pair(votes: Votes, found: Contradicted) -> list[SuspectGroup]:
    """Items by their class and the proposed one: one SuspectGroup per pair that occurs."""
    if not len(found.items):  # np.split would make one part of nothing
        return []
    # a pair of classes as one number, so that its items are found by sorting
    keys = votes.classes[found.items] * len(votes.paths) + found.proposed
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    members = np.split(found.items[order], starts[1:])
    ends = [divmod(pair, len(votes.paths)) for pair in pairs.tolist()]
    return [SuspectGroup(a, b, items) for (a, b), items in zip(ends, members, strict=True)]


def _is_at_home(
    votes: Votes, group: SuspectGroup, strangeness: Strangeness, by_class: list[Indices]
) -> bool:
    """Whether a group lies among the items of the proposed class as these do, and the rest of its
    own class elsewhere. `by_class`: the items of every class, by its number. Shares are of the
    neighbours that are of the proposed class.
    """
    own = by_class[group.label]
    rest = own[~np.isin(own, group.items)]
    if len(rest) < SMALLEST:  # too few to say where the class lies without the group
        return False
    of_proposed = _share(votes, by_class[group.proposed], group.proposed)
    of_group = _share(votes, group.items, group.proposed)
    strange = strangeness.in_class(group.items, np.full(len(group.items), group.proposed))
    return bool(
        of_proposed >= RECOGNISED  # else its own items are not found by their neighbours either
        and of_group >= AT_HOME * of_proposed  # nearly as much as its own items
        # else the whole class looks so, and no label is wrong
        and _share(votes, rest, group.proposed) <= ELSEWHERE * of_group
        and strange.mean() <= STRANGE  # in standard deviations of the proposed class's items
    )


def _share(votes: Votes, items: Indices, of_class: int) -> float:
    """The share of a class among the neighbours of items. `items`: places (m,); 0 of none."""
    return float((votes.classes[votes.neighbours[items]] == of_class).mean()) if len(items) else 0.0


def _items_by_class(votes: Votes) -> list[Indices]:
    """The items of every class, as C arrays of their places, each ascending; empty for a class
    without items."""
    order = np.argsort(votes.classes, kind="stable")
    bounds = np.searchsorted(votes.classes[order], np.arange(1, len(votes.paths)))
    return list(np.split(order, bounds))


class GroupRecall(NamedTuple):
    """The shares of labels, wrong by classes that lose items to another one on purpose, that come
    back in groups; NaN where too few classes could lose any."""

    far: float
    near: float


def recall_of_groups(votes: Votes, strangeness: Strangeness) -> GroupRecall:
    """Relabel items of some classes and look for groups again.

    Each class loses items drawn at random, and then neighbours, as where a batch was labelled at
    once: the smaller share counts. NaN, of far or of near labels, where too few classes can lose
    any to measure a share.
    """
    rng = np.random.default_rng(0)  # one seed, so that an audit says the same each time
    shares = []
    for is_far in (True, False):
        flows = _relabel_some(votes, rng, is_far=is_far)
        batches = [_batch_of_neighbours(votes, flow) for flow in flows]
        both = (_share_found_again(votes, strangeness, lost) for lost in (flows, batches))
        shares.append(min(both) if len(flows) >= FEWEST_SOURCES else np.nan)
    return GroupRecall(*shares)


def _share_found_again(votes: Votes, strangeness: Strangeness, lost: list[SuspectGroup]) -> float:
    """The share of items, relabelled on purpose, that come back in groups.

    `lost`: of each class that loses items, these and the wrong class, `label`, that they get; only
    items of these wrong classes are looked at, since no other group can hold them.
    """
    classes = votes.classes.copy()
    for group in lost:
        classes[group.items] = group.label
    changed = replace(votes, classes=classes)
    targets = np.unique([group.label for group in lost])
    looked_at = np.flatnonzero(np.isin(classes, targets))
    best = Evidence(changed).alternatives(looked_at, classes[looked_at])
    found = groups_of(changed, contradicted(best, looked_at), strangeness)
    # beginning with no item, since nothing may be found
    in_groups = np.concatenate([np.zeros(0, np.int64), *(each.items for each in found)])
    wrong = np.concatenate([each.items for each in lost])
    return float(np.isin(wrong, in_groups).mean())


def _batch_of_neighbours(votes: Votes, flow: SuspectGroup) -> SuspectGroup:
    """The first item of a class that loses some, and its nearest neighbours in that class: a batch
    that was labelled at once. `flow`: items of one class (`proposed`), relabelled as another one
    (`label`)."""
    first = flow.items[0]
    near = votes.neighbours[first]
    batch = [first, *near[votes.classes[near] == flow.proposed][: FEWEST - 1].tolist()]
    return SuspectGroup(flow.label, flow.proposed, np.unique(np.array(batch, np.int64)))


def _relabel_some(votes: Votes, rng: np.random.Generator, *, is_far: bool) -> list[SuspectGroup]:
    """Items of some classes, each with the wrong class that they get: one of another parent
    (`is_far`), or a sibling. Nothing is relabelled here: `label` of a group is the wrong class,
    `proposed` the right one, as neighbours will say."""
    by_class = _items_by_class(votes)
    # only of large classes the share that is lost makes a group
    fewest = int(np.ceil(FEWEST / LOST))
    large = [label for label, items in enumerate(by_class) if len(items) >= fewest]
    enough = np.array([len(items) > SMALLEST for items in by_class])  # to be taken for another's
    # one of OF_CLASSES loses items, so that most stay as they are; but as many as a share can be
    # taken of, and no more than SOURCES, for speed
    sources = rng.permutation(large)[: max(FEWEST_SOURCES, min(SOURCES, len(large) // OF_CLASSES))]
    # a class that loses items, or got some, gets none: flows must not blur each other
    taken = set(sources.tolist())
    flows = []
    for source in sources.tolist():
        is_sibling = votes.parents == votes.parents[source]
        # of full paths alone: a label that ends early contradicts none below it
        others = np.flatnonzero((is_sibling != is_far) & enough & (votes.known == votes.depth))
        others = np.array([other for other in others.tolist() if other not in taken], np.int64)
        if not len(others):
            continue
        label = int(rng.choice(others))
        taken.add(label)
        items = by_class[source]
        number = round(LOST * len(items))
        flows.append(SuspectGroup(label, source, np.sort(rng.choice(items, number, replace=False))))
    return flows
