"""Composes the batches of an epoch. A sampler is a pure function of labels, settings and a seeded
generator.

    sampler(labels (N, L), settings, rng) -> rows int64 (S, B): S steps with batches of B images

S depends only on labels and settings, so that all epochs have the same number of steps. `plan`
returns the batches for a seed and an epoch. Several processes take disjoint slices of every batch.
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

GROUPS = 2  # coarse classes in a batch of the sampler `hierarchical`
samplers: Registry[Compose] = Registry("sampler")


class EpochBatches(NamedTuple):
    """The batches of an epoch. `rows` (S, B): rows of the manifest. `draws` (S, B): the seed with
    which each image is varied.
    """

    rows: Rows
    draws: Rows

    def share(self, rank: int, world: int) -> EpochBatches:
        """Return the part of each batch that the process `rank` embeds. The parts of all `world`
        processes, in order of rank, are the batch. `world` must divide B.
        """
        size = self.rows.shape[1] // world
        part = slice(rank * size, (rank + 1) * size)
        return EpochBatches(self.rows[:, part], self.draws[:, part])

    def after(self, step: int) -> EpochBatches:
        """Return the rest of the epoch, without its first `step` batches, for a resumed run."""
        return EpochBatches(self.rows[step:], self.draws[step:])


def plan(
    labels: NDArray[np.int32], settings: Sampler, *, seed: int, epoch: int, steps: int | None = None
) -> EpochBatches:
    """Compose the batches of an epoch: rows of the manifest, and a seed for each, (S, B) for S
    batches of B items. For the same arguments they are the same on every machine. Raises
    ConfigError for too few classes.

    `labels` (N, L): coarse to fine. `epoch`: from 0. `steps`: return only this number of first
    batches; None: all.
    """
    rng = np.random.default_rng([seed, epoch])
    rows = samplers[settings.name](labels, settings, rng)[:steps]
    # a seed for each use of an image: the process that loads it does not matter, and the next use
    # of the same image gets another variation
    seeds = rng.integers(2**63, size=rows.shape)
    return EpochBatches(rows, seeds)


@samplers.register("m_per_class")
def m_per_class(labels: NDArray[np.int32], settings: Sampler, rng: np.random.Generator) -> Rows:
    """Compose batches of B/m different classes with m items of each. Return the rows (S, B) of the
    items of S batches.

    Classes of fewer than `smallest` items are left out. Of a class with more than `per_epoch` items
    so many are drawn (0: all are taken); every item taken is in at least one batch of the epoch.
    The items of a class are cut into groups of m, the last filled up with other items of the class
    (repeated if it has fewer than m). A group goes to the emptiest batch without its class; free
    places get further groups.
    """
    m = settings.per_class
    classes = _classes_of_epoch(labels, settings, rng)
    width = settings.batch // m
    # the error suggests the largest batch that these C classes can fill, of m·C images
    _require_classes(len(classes), width, "in all", largest=m * len(classes), each=m)
    groups = [ceil(len(items) / m) for items in classes]
    # enough batches for all groups, and at least as many as the largest class has groups, since a
    # batch takes one group of a class
    batches = max(ceil(sum(groups) / width), max(groups))
    free = np.full(batches, width)  # (batches,): places for further groups
    taken = np.zeros((batches, len(classes)), dtype=bool)  # whether a batch has a class
    parts: list[list[Rows]] = [[] for _ in range(batches)]  # the groups of each batch, (m,) each

    # large classes first, since they need the most batches; equally large ones in random order
    for label in sorted(rng.permutation(len(classes)), key=lambda label: -groups[label]):
        # choose the emptiest batches, at random among equals (lexsort sorts by its last key first)
        chosen = np.lexsort((rng.random(batches), -free))[: groups[label]]
        of_class = _groups(classes[label], m, groups[label], rng)
        for batch, group in zip(chosen, of_class, strict=True):
            parts[batch].append(group)
        free[chosen] -= 1
        taken[chosen, label] = True

    # fill free places with further groups of classes that the batch does not have
    for batch in np.flatnonzero(free):
        for label in rng.permutation(np.flatnonzero(~taken[batch]))[: free[batch]]:
            parts[batch] += _groups(classes[label], m, 1, rng)

    return np.stack(list(map(np.concatenate, parts)))[rng.permutation(batches)]


def _classes_of_epoch(
    labels: NDArray[np.int32], settings: Sampler, rng: np.random.Generator
) -> list[Rows]:
    """Return the rows of the items of each fine class that has at least `smallest` items. From
    larger classes at most `per_epoch` items are drawn for the epoch (0: all)."""
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
    """Compose batches with equal parts from two coarse classes: `batches_per_group` batches for
    every pair of coarse classes. Return the rows (S, B) of the items of S batches of B items.

    In the batches of a pair a fine class is repeated only after all others of its coarse class
    (Cakir et al. 2019). HAPPIER samples SOP in this way: pairs of its 12 coarse classes, 5 batches
    for each.
    """
    classes = _members(labels[:, -1])
    m = settings.per_class
    width, rest = divmod(settings.batch // m, GROUPS)  # fine classes of each coarse one in a batch
    if rest:
        expected = f"sampler.batch a multiple of {GROUPS} × per_class = {GROUPS * m}"
        reason = "the batch cannot be shared among the coarse classes"
        raise ConfigError(reason, expected=expected, found=f"{settings.batch}")

    rows = []
    by_coarse = _by_coarse(labels, classes)  # for each coarse class: the indices of its fine ones
    # coarse classes with fewer than `width` fine ones cannot fill half a batch, and are left out;
    # `m` is only for the error, which names the largest batch that is possible
    for chosen in combinations(_wide_enough(by_coarse, width, m), GROUPS):
        # for each coarse class of the pair, and each batch: the indices of fine classes
        hands = [_deal(members, width, settings.batches_per_group, rng) for members in chosen]
        for hand in zip(*hands, strict=True):
            taken = np.concatenate(hand)  # the fine classes of one batch
            rows.append(np.concatenate([_groups(classes[label], m, 1, rng)[0] for label in taken]))
    return np.stack(rows)[rng.permutation(len(rows))]


def _wide_enough(coarse: Sequence[Rows], width: int, m: int) -> list[Rows]:
    """Select the coarse classes with at least `width` fine ones, the number that a batch takes of
    each of its GROUPS coarse classes. Raises ConfigError for fewer than GROUPS of them.

    `coarse`: for each coarse class the indices of its fine classes. `m`: images of each fine class.
    """
    large = [members for members in coarse if len(members) >= width]
    # each coarse class of a batch fills an equal part of it, so the largest batch that is possible
    # is limited by the smaller of the two largest coarse classes
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
    """Return, for each coarse class, the indices of its fine classes in `classes`. `labels` (N, L).
    `classes`: the rows of the items of each fine class."""
    # any item of a fine class has its coarse label
    coarse = np.array([labels[items[0], 0] for items in classes])
    return [np.flatnonzero(coarse == label) for label in np.unique(coarse)]


def _members(fine: NDArray[np.int32]) -> list[Rows]:
    """Return the rows of the items of every fine class. `fine` (N,): the fine labels."""
    order = np.argsort(fine, kind="stable")  # groups the items of a class
    begins = np.flatnonzero(np.diff(fine[order])) + 1  # positions at which the next class begins
    return np.split(order, begins)


def _groups(items: Rows, m: int, number: int, rng: np.random.Generator) -> list[Rows]:
    """Make `number` groups of m items of a class, in random order. If the class has too few items
    they are repeated from the start. `items` (n,): the rows of the class."""
    shuffled = rng.permutation(items)
    # np.resize fills an array of groups (rows, m) line by line, and starts over at the end of items
    rows = max(number, ceil(len(items) / m))
    return list(np.resize(shuffled, (rows, m))[:number])


def _deal(members: Rows, width: int, number: int, rng: np.random.Generator) -> list[Rows]:
    """Deal `number` hands of `width` different classes, like cards: all classes are dealt before
    any is repeated. `members`: indices of classes, at least `width`.
    """
    deck = rng.permutation(members)
    hands = []
    for _ in range(number):
        hand = deck[:width]
        deck = deck[width:]
        if len(hand) < width:
            # shuffle a new deck, with the classes of this hand at its end, so that the hand gets no
            # class twice
            fresh = rng.permutation(members)
            held = np.isin(fresh, hand)
            deck = np.concatenate([fresh[~held], fresh[held]])
            more = width - len(hand)
            hand = np.concatenate([hand, deck[:more]])
            deck = deck[more:]
        hands.append(hand)
    return hands


def _require_classes(number: int, needed: int, which: str, *, largest: int, each: int) -> None:
    """Raise ConfigError if there are fewer than `needed` classes for a batch. The advice is a
    smaller batch; a smaller `smallest`, which leaves fewer classes out; or a larger `per_class`,
    with which a batch needs fewer classes.

    Args:
        number: of classes.
        needed: the number of classes that a batch needs.
        which: the end of the sentence "expected: 32 …", such as "in all".
        largest: the size of the largest batch that could be filled; 0: none could.
        each: the number of images of each class in a batch.
    """
    if number < needed:
        smaller = f"--set sampler.batch={largest}, the largest that fits with {each} of a class"
        raise ConfigError(
            "the training set has too few classes for a batch",
            expected=f"{needed} {which}",
            found=f"{number}",
            fix=f"{smaller if largest else 'a smaller sampler.batch'}; or a smaller "
            "sampler.smallest, or a larger sampler.per_class",
        )
