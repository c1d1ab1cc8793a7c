"""Whether a threshold keeps its promise for classes on which it was not set, and what it costs.

    python benchmarks/trust.py HALVES [DATASET EMBEDDINGS [--gallery FILE | --nodes FILE]]

Without a dataset, synthetic classes are drawn anew each time, of which all is known. With one, its
items are named by their neighbours (in the gallery, by default the file itself) or by names, and
HALVES times the threshold is set on a random half of the classes: how often less is right than
promised of what is said of the other half, and of all classes; the same by items, as a warning.
Then what fixed thresholds say at the same error, and where items stop whose class is taken out of
the gallery or the names.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hbench
from hbench.evaluation.by_name.named import NamedPictures
from hbench.submissions import embeddings
from hbench.submissions.embeddings import joined
from hbench.tree.names import class_rows
from hbench.trust.climbing import Climb
from hbench.trust.outcomes import JudgedClimb
from hbench.trust.thresholds import answers_of, said_at, threshold_for

TARGETS = (0.9, 0.95)
POPULATION = 5_000  # classes that are drawn from
GRID = np.linspace(0.05, 0.99, 12)


def synthetic(classes: int, seed: int) -> tuple[Climb, np.ndarray, np.ndarray]:
    """Items of a few large classes and many small ones, each class hard in its own way: climbs in
    two levels, what is right, and classes."""
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(classes) < 0.1, 200, 10)
    units = np.repeat(np.arange(classes), sizes)
    hard = np.repeat(rng.exponential(0.7, classes), sizes)
    fine = rng.beta(4, 1 + hard)
    coarse = fine + (1 - fine) * rng.random(len(units))
    right = rng.random((len(units), 2))
    is_right = np.cumprod(
        right < np.stack([coarse, fine], axis=1) ** (1 + hard[:, None] / 3), axis=1
    )
    nodes = np.zeros((len(units), 2), np.int32)
    return Climb(nodes, np.stack([coarse, fine], axis=1)), is_right.astype(float), units


class SharesRight:
    """The share right of what is said, of the same items, at any threshold: sorted and summed up
    once, since thousands of thresholds are asked."""

    def __init__(self, climb: Climb, right: np.ndarray) -> None:
        """`climb`: of N items; `right` (N, L): whether each node of their paths is, NaN where
        nobody knows."""
        known = ~np.isnan(right)
        falling = np.argsort(-climb.reach, axis=None, kind="stable")
        self.reach = climb.reach.ravel()[falling]
        # as the threshold falls, an item's answer moves down its path, level by level: what each
        # step changes in the numbers of answers and of right ones
        changes = [np.where(known, 1.0, 0.0), np.where(known, right, 0.0)]
        self.said, self.right = (
            np.cumsum(np.diff(each, prepend=0.0, axis=1).ravel()[falling]) for each in changes
        )

    def at(self, threshold: float) -> float:
        """The share right at a threshold; NaN where nothing is said."""
        last = int(np.searchsorted(-self.reach, -threshold, side="right")) - 1
        return float(self.right[last] / self.said[last]) if last >= 0 else math.nan


def on_synthetic(times: int, classes: int) -> None:
    """Print how often a promise fails on the population that its classes were drawn from: so many
    times, a threshold is set on so many classes drawn anew; by class, as hbench does, and by item,
    as if items of a class were independent."""
    climb, right, units = synthetic(POPULATION, 1)
    starts = np.searchsorted(units, np.arange(POPULATION + 1))
    truth = SharesRight(climb, right)
    rng = np.random.default_rng(0)
    for target in TARGETS:
        for by in ("class", "item"):
            missed = passed = 0
            for _ in range(times):
                drawn = rng.choice(POPULATION, classes, replace=False)
                rows = np.concatenate([np.arange(*starts[each : each + 2]) for each in drawn])
                of_rows = units[rows] if by == "class" else np.arange(len(rows))
                held = threshold_for(climb.of(rows), right[rows], of_rows, target)
                if math.isfinite(held.threshold):
                    passed += 1
                    missed += truth.at(held.threshold) < target
            print(
                f"synthetic, {classes} classes, {target}, by {by}: promised {passed / times:.1%}, missed {missed / times:.1%}",
                flush=True,
            )


def on_halves(name: str, judged: JudgedClimb, units: np.ndarray, times: int) -> None:
    """Print how often a promise fails on the other half of the classes, and on all of them: so many
    times, a threshold is set on a random half. `units` (N,): the class of every item."""
    climb, right, _ = judged
    truth = SharesRight(climb, right)
    rng = np.random.default_rng(0)
    number = int(units.max()) + 1
    for target in TARGETS:
        for by in ("class", "item"):
            counts = np.zeros(3)
            said = []
            for _ in range(times):
                half = np.zeros(number, bool)
                half[rng.permutation(number)[: number // 2]] = True
                own = half[units]
                of_own = units[own] if by == "class" else np.arange(own.sum())
                held = threshold_for(climb.of(own), right[own], of_own, target)
                if not math.isfinite(held.threshold):
                    continue
                other = said_at(climb.of(~own), right[~own], held.threshold)
                counts += [1, np.nanmean(other) < target, truth.at(held.threshold) < target]
                said.append(np.mean(~np.isnan(other)))
            promised, on_other, on_all = counts / times
            mean = np.mean(said) if said else math.nan
            print(
                f"{name}, {target}, by {by}: promised {promised:.1%}, missed on the other half {on_other:.1%}, on all classes {on_all:.1%}; said {mean:.1%}",
                flush=True,
            )


def against_fixed(name: str, judged: JudgedClimb) -> None:
    """Print how many answers are at the finest level, at equal errors, with one threshold for all
    levels and with the best of many triples, a threshold for each of the three finest levels."""
    climb, right, _ = judged
    depth = right.shape[1]
    levels = min(depth, 3)
    triples = np.stack(np.meshgrid(*[GRID] * levels, indexing="ij"), axis=-1).reshape(-1, levels)
    for error in (0.01, 0.02, 0.05):
        ours = max(
            (
                np.mean(climb.levels_at(each) == depth)
                for each in np.unique(climb.reach)[:: max(1, climb.reach.size // 2000)]
                if 1 - np.nanmean(said_at(climb, right, each)) <= error
            ),
            default=math.nan,
        )
        best = 0.0
        for triple in triples:
            thresholds = np.concatenate([np.full(depth - levels, triple[0]), triple])
            answers = climb.levels_by(thresholds)
            if answers.any() and 1 - np.nanmean(answers_of(answers, right)) <= error:
                best = max(best, float(np.mean(answers == depth)))
        usual = climb.levels_by(np.array([0.4] * max(depth - 2, 0) + [0.6, 0.8])[-depth:])
        print(
            f"{name}, error ≤ {error:.0%}: at the finest level {ours:.1%}, best triple {best:.1%}; .8/.6/.4: {np.mean(usual == depth):.1%} with {np.nanmean(answers_of(usual, right)):.1%} right",
            flush=True,
        )


def unseen(name: str, given: Given) -> None:
    """Where items stop whose class is not in the gallery or among the names, at the threshold set
    on the others."""
    manifest = given.named().manifest
    labels = manifest.labels[manifest.query]
    classes = np.unique(labels[:, -1])
    out = np.random.default_rng(0).permutation(classes)[: len(classes) // 5]
    hidden = np.isin(labels[:, -1], out)
    few = given.without(out)
    for target in TARGETS:
        trusted = few.trust(target, ~hidden)
        stopped = np.mean(trusted.levels[hidden] < labels.shape[1])
        print(
            f"{name}, a fifth of the classes unseen, {target}: threshold {trusted.threshold:.3f}; {stopped:.1%} stop above the finest level; among the others {np.mean(trusted.levels[~hidden] == labels.shape[1]):.1%} are answered there",
            flush=True,
        )


class Given(NamedTuple):
    """A dataset and an embedding file of it, with that of its gallery or of its names."""

    dataset: str
    file: str
    gallery: str | None
    nodes: str | None

    def named(self) -> NamedPictures:
        """All items, by all classes."""
        return hbench.name(self.file, self.dataset, self.nodes, gallery=self.gallery)

    def without(self, classes: np.ndarray) -> NamedPictures:
        """All items, without some finest classes in the gallery or among the names."""
        manifest = self.named().manifest
        source = embeddings.read(Path(self.nodes or self.gallery or self.file))
        if self.nodes:
            paths = [class_rows(manifest.tree)[each] for each in classes.tolist()]
            left_out = {form for path in paths for form in (path[-1], " > ".join(path))}
        else:
            left_out = {
                str(item) for item in manifest.items[np.isin(manifest.labels[:, -1], classes)]
            }
        kept = np.array([str(item) not in left_out for item in source.ids])
        rest = joined(source.ids[kept], np.asarray(source.vectors)[kept])
        if self.nodes:
            return hbench.name(self.file, self.dataset, rest)
        return hbench.name(self.file, self.dataset, gallery=rest)


def named_units(named: NamedPictures) -> np.ndarray:
    """The finest class of every item, numbered."""
    finest = named.manifest.labels[named.manifest.query][:, -1]
    return np.unique(finest, return_inverse=True)[1].ravel()


def main() -> None:
    """Measure synthetic classes or, with a dataset, its own, and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("halves", type=int)
    options.add_argument("dataset", nargs="?")
    options.add_argument("file", nargs="?")
    options.add_argument("--gallery")
    options.add_argument("--nodes")
    read = options.parse_args()
    if read.dataset is None:
        for classes in (200, 400):
            on_synthetic(read.halves, classes)
        return
    gallery = None if read.nodes else read.gallery or read.file
    given = Given(read.dataset, read.file, gallery, read.nodes)
    named = given.named()
    against_fixed(read.dataset, named.judged)
    unseen(read.dataset, given)
    on_halves(read.dataset, named.judged, named_units(named), read.halves)


if __name__ == "__main__":
    main()
