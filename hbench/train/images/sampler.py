"""Composes the batches of an epoch: each sampler is a pure function of labels, settings and a
seeded generator.

    sampler(labels (N, L), settings, rng) -> rows int64 (S, B): S steps of batches of B images

S depends on the labels and settings alone, so that all epochs have the same number of steps. `plan`
returns the batches of (seed, epoch); processes take disjoint slices of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import ConfigError
from hbench.core.registry import Registry
from hbench.train.recipes.recipe import Sampler

Rows = NDArray[np.int64]
Compose = Callable[[NDArray[np.int32], Sampler, np.random.Generator], Rows]

GROUPS = 2  # coarse classes in a batch of `hierarchical`
samplers: Registry[Compose] = Registry("sampler")


class EpochBatches(NamedTuple):
    """The batches of an epoch: `rows` (S, B) of the manifest, and `draws` (S, B), the seed of an
    image's variation.
    """

    rows: Rows
    draws: Rows

    def share(self, rank: int, world: int) -> EpochBatches:
        """Return the columns, images of each batch, that the process `rank` of `world` embeds;
        those of all processes, in order of rank, make the batch. `world` divides B.
        """
        size = self.rows.shape[1] // world
        part = slice(rank * size, (rank + 1) * size)
        return EpochBatches(self.rows[:, part], self.draws[:, part])

    def after(self, step: int) -> EpochBatches:
        """Return the rest of the epoch after its first `step` batches, for a resumed run."""
        return EpochBatches(self.rows[step:], self.draws[step:])


def plan(
    labels: NDArray[np.int32], settings: Sampler, *, seed: int, epoch: int, steps: int | None = None
) -> EpochBatches:
    """Compose the batches of an epoch from labels (N, L), coarse to fine. By `seed` and `epoch`, a
    number from 0, they are the same on every machine. `steps`: only so many, the first ones; None:
    all. Raises ConfigError for too few classes.
    """
    rng = np.random.default_rng([seed, epoch])
    rows = samplers[settings.name](labels, settings, rng)[:steps]
    # an image is augmented alike whichever process loads it, and unlike itself in another batch
    seeds = rng.integers(2**63, size=rows.shape)
    return EpochBatches(rows, seeds)


@samplers.register("m_per_class")
def m_per_class(labels: NDArray[np.int32], settings: Sampler, rng: np.random.Generator) -> Rows:
    """Compose batches of B/m different classes with m items of each; every item is in at least one
    batch of the epoch.

    The items of a class are cut into groups of m, the last filled up with other items of the class
    (repeated if it has fewer than m). A group goes to the emptiest batch without its class; free
    places get further groups. Classes of fewer than `smallest` items are left out; from larger
    classes `per_epoch` items are drawn.
    """
    m = settings.per_class
    classes = _classes_of_epoch(labels, settings, rng)
    width = settings.batch // m
    _require_classes(len(classes), width, "in all", largest=m * len(classes), each=m)
    groups = [ceil(len(items) / m) for items in classes]
    # room for all groups, and as many batches as the largest class has groups, one in each; `free`:
    # places for groups in each batch, `taken` (batches, classes): which have which class
    batches = max(ceil(sum(groups) / width), max(groups))
    free = np.full(batches, width)
    taken = np.zeros((batches, len(classes)), dtype=bool)
    parts: list[list[Rows]] = [[] for _ in range(batches)]

    # large classes first: they need most batches without their class; equal ones in any order
    for label in sorted(rng.permutation(len(classes)), key=lambda label: -groups[label]):
        # the emptiest batches, at random among equals: lexsort sorts by its last key first
        chosen = np.lexsort((rng.random(batches), -free))[: groups[label]]
        of_class = _groups(classes[label], m, groups[label], rng)
        for batch, group in zip(chosen, of_class, strict=True):
            parts[batch].append(group)
        free[chosen] -= 1
        taken[chosen, label] = True

    # free places: further groups of classes that the batch does not have
    for batch in np.flatnonzero(free):
        for label in rng.permutation(np.flatnonzero(~taken[batch]))[: free[batch]]:
            parts[batch] += _groups(classes[label], m, 1, rng)

    return np.stack(list(map(np.concatenate, parts)))[rng.permutation(batches)]


def _classes_of_epoch(
    labels: NDArray[np.int32], settings: Sampler, rng: np.random.Generator
) -> list[Rows]:
    """Return for each fine class of labels (N, L) that is large enough the rows of its items, at
    most `per_epoch` of them, drawn anew for the epoch (0: all)."""
    most = settings.per_epoch
    chosen = []
    for items in _members(labels[:, -1]):
        if len(items) < settings.smallest:
            continue
        if most and len(items) > most:
            chosen.append(rng.permutation(items)[:most])
        else:
            chosen.append(items)
    return chosen


@samplers.register("hierarchical")
def hierarchical(labels: NDArray[np.int32], settings: Sampler, rng: np.random.Generator) -> Rows:
    """Compose batches of classes in equal parts from two coarse classes; `batches_per_group`
    batches of every such pair.

    In the batches of a pair a class is repeated only after all others of its coarse class (Cakir et
    al. 2019; HAPPIER samples SOP so: pairs of the 12 kinds, 5 batches of each).
    """
    classes = _members(labels[:, -1])
    m = settings.per_class
    width, rest = divmod(settings.batch // m, GROUPS)
    if rest:
        expected = f"sampler.batch a multiple of {GROUPS} × per_class = {GROUPS * m}"
        reason = "the batch cannot be shared among the coarse classes"
        raise ConfigError(reason, expected=expected, found=f"{settings.batch}")

    rows = []
    for chosen in combinations(_wide_enough(_by_coarse(labels, classes), width, m), GROUPS):
        # of each coarse class of the pair, for each batch: the places of its fine classes
        hands = [_deal(members, width, settings.batches_per_group, rng) for members in chosen]
        for hand in zip(*hands, strict=True):
            taken = np.concatenate(hand)  # of one batch
            rows.append(np.concatenate([_groups(classes[label], m, 1, rng)[0] for label in taken]))
    return np.stack(rows)[rng.permutation(len(rows))]


def _wide_enough(coarse: Sequence[Rows], width: int, m: int) -> list[Rows]:
    """The coarse classes, each the places of its fine ones, that have at least the `width` of half
    a batch. Raises ConfigError for fewer than GROUPS of them; `m`: images of each fine class."""
    large = [members for members in coarse if len(members) >= width]
    # both halves are as wide as the second largest coarse class is at most
    sizes = sorted((len(members) for members in coarse), reverse=True)
    _require_classes(
        len(large),
        GROUPS,
        f"of {width} or more classes at the coarsest level",
        largest=GROUPS * m * sizes[GROUPS - 1] if len(sizes) >= GROUPS else 0,
        each=m,
    )
    return large


def _by_coarse(labels: NDArray[np.int32], classes: Sequence[Rows]) -> list[Rows]:
    """Return, for each coarse class, the places of its fine ones in `classes`, which has the rows
    of each fine class into `labels` (N, L); any item says the coarsest label of its class."""
    coarse = np.array([labels[items[0], 0] for items in classes])
    return [np.flatnonzero(coarse == label) for label in np.unique(coarse)]


def _members(fine: NDArray[np.int32]) -> list[Rows]:
    """Return the rows of every fine class, of the fine labels (N,)."""
    order = np.argsort(fine, kind="stable")  # the items of a class side by side
    begins = np.flatnonzero(np.diff(fine[order])) + 1  # where another class than the one before is
    return np.split(order, begins)


def _groups(items: Rows, m: int, number: int, rng: np.random.Generator) -> list[Rows]:
    """Make `number` groups of m items of a class, rows (n,): in random order, and repeated from the
    start where the class is too short."""
    shuffled = rng.permutation(items)
    # np.resize fills a table of groups (rows, m) line by line, and starts over where items end
    rows = max(number, ceil(len(items) / m))
    return list(np.resize(shuffled, (rows, m))[:number])


def _deal(members: Rows, width: int, number: int, rng: np.random.Generator) -> list[Rows]:
    """Deal `number` hands of `width` different members (at most as many as there are), like cards;
    all members are dealt before any is repeated. `members`: places of classes.
    """
    deck = rng.permutation(members)
    hands = []
    for _ in range(number):
        hand = deck[:width]
        deck = deck[width:]
        if len(hand) < width:
            # a new deck, with the members of this hand at its end: none is twice in a hand
            fresh = rng.permutation(members)
            held = np.isin(fresh, hand)
            deck = np.concatenate([fresh[~held], fresh[held]])
            more = width - len(hand)
            hand = np.concatenate([hand, deck[:more]])
            deck = deck[more:]
        hands.append(hand)
    return hands


def _require_classes(number: int, needed: int, which: str, *, largest: int, each: int) -> None:
    """Raise ConfigError where `number` classes are fewer than the `needed` ones of a batch; `which`
    ends the sentence "expected: 32 …", such as "in all". `largest`: the images of the largest batch
    that can be filled by `each` images of a class, 0 where none can."""
    if number < needed:
        smaller = f"--set sampler.batch={largest}, the largest that fits with {each} of a class"
        raise ConfigError(
            "the training set has too few classes for a batch",
            expected=f"{needed} {which}",
            found=f"{number}",
            fix=f"{smaller if largest else 'a smaller sampler.batch'}; or a smaller "
            "sampler.smallest, or a larger sampler.per_class",
        )
