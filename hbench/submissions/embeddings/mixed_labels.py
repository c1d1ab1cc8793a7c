"""Finds labels that were mixed into vectors: directions that tell classes apart and in which the
items of a class hardly differ.

A net sees pictures, and what makes classes differ makes the pictures of one class differ, too. So
the variance between classes, beside that within them, is of one order in all directions: of 43
honest files (pixels, principal components, nets of ImageNet, nets trained by 16 losses; glyphs,
Omniglot, groceries) nothing of it lies where the ratio is more than ten times that of all, and at
most .02 % where it is more than five times. Of the same vectors with half or a fifth of a one-hot
vector of the class behind them it is 4 % and more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.submissions.embeddings import Embeddings, align

Floats = NDArray[np.float64]
ODD_RATIO = 10  # times the ratio of all directions, above which that of a direction is odd
DOUBTFUL_SHARE = 0.02  # of the variance between classes, in odd directions
MOST_DIM = 2_048  # eigenvectors of more take longer than the evaluation
# items of a sample of classes
SAMPLED_ITEMS = 8_192
SAMPLED_PER_DIM = 4
SAMPLED_OF_CLASS = 64
ITEMS_AT_ONCE = 2_048
# of fewer the variance within classes, and between them, is known too badly in every direction
FEWEST_BEYOND = 1_000  # items beyond one of each class
FEWEST_PER_DIM = 1.5
FEWEST_CLASSES = 30
ROUNDING = 1e-9  # of the mean variance within classes: less is rounding
TINY = 1e-300  # instead of 0 where it divides


def doubt_of_labels(test: Manifest, given: Embeddings) -> Iterator[str]:
    """Yield a doubt where labels seem to be mixed into the vectors of a test's gallery: where much
    of what tells classes apart lies in directions in which the items of a class hardly differ."""
    if given.dim > MOST_DIM:  # that would take longer than the evaluation
        return
    ranked = np.flatnonzero(test.gallery)
    classes = test.labels[ranked, -1]
    chosen = _sample(classes, max(SAMPLED_ITEMS, SAMPLED_PER_DIM * given.dim))
    distinct, number = np.unique(classes[chosen], return_inverse=True)
    # of few classes, or few items beyond one of each, no direction's variance is known well
    beyond = len(chosen) - len(distinct)
    if len(distinct) < FEWEST_CLASSES or beyond < max(FEWEST_BEYOND, FEWEST_PER_DIM * given.dim):
        return
    share = odd_share(given.vectors, align(given, test.items[ranked[chosen]]), number)
    if share >= DOUBTFUL_SHARE:
        yield (
            f"{100 * share:.0f} % of what tells classes apart lies in directions in which the "
            "items of a class hardly differ, as labels that were mixed into the vectors do"
        )


def odd_share(
    vectors: NDArray[np.floating], rows: NDArray[np.int64], classes: NDArray[np.integer]
) -> float:
    """The share of the variance between classes that lies in odd directions: those in which this
    variance, beside that within classes, is ODD_RATIO times as large as in all. Of honest vectors
    hardly anything does.

    Args:
        vectors: (M, D), of any lengths.
        rows: those that count, (N,).
        classes: of these rows, (N,), 0 … C − 1, each with a row.
    """
    sizes = np.bincount(classes)  # (C,)
    order = np.argsort(classes, kind="stable")  # items of a class side by side
    means, scatter = _means_and_scatter(vectors, rows[order], sizes)

    # the directions (D, D) in which items of a class vary, and how much in each (D,)
    within, directions = np.linalg.eigh(scatter / (len(rows) - len(sizes)))
    # how much the classes' means vary in each of these (D,)
    from_mean = (means - sizes @ means / len(rows)) @ directions  # (C, D)
    between = sizes @ from_mean**2

    # odd are the directions in which classes differ far more than items of a class do
    ratio_of_all = between.sum() / max(within.sum(), TINY)
    ratio = between / np.maximum(within, ROUNDING * within.mean() + TINY)
    is_odd = ratio > ODD_RATIO * ratio_of_all
    return float(between[is_odd].sum() / max(between.sum(), TINY))


def _means_and_scatter(
    vectors: NDArray[np.floating], rows: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """The mean direction of every class (C, D), and the scatter (D, D) of the items' directions
    around the means of their classes; `rows` (N,) of the vectors (M, D) lie class by class, `sizes`
    (C,) of each.
    """
    dim = vectors.shape[1]
    means = np.empty((len(sizes), dim))
    scatter = np.zeros((dim, dim))
    # some classes at a time, so that few vectors are copied at once
    for some in _blocks(sizes):
        first = int(sizes[: some.start].sum())
        of_classes = rows[first : first + int(sizes[some].sum())]
        units = unit_vectors(vectors[of_classes], np.float64)
        starts = np.cumsum(sizes[some]) - sizes[some]  # of each class among these rows
        means[some] = np.add.reduceat(units, starts) / sizes[some, None]
        units -= np.repeat(means[some], sizes[some], axis=0)
        scatter += units.T @ units
    return means, scatter


def _blocks(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Slices of classes, so many that they have ITEMS_AT_ONCE items or hardly more; `sizes` (C,):
    the items of each class."""
    block = np.cumsum(sizes) // ITEMS_AT_ONCE  # (C,): the number of the block that a class is in
    # the classes with which another block begins, and the end
    edges = np.flatnonzero(np.diff(block, prepend=-1, append=block[-1] + 1))
    for start, stop in itertools.pairwise(edges):
        yield slice(int(start), int(stop))


def _sample(classes: NDArray[np.integer], items: int) -> NDArray[np.int64]:
    """The places of about this many items: the first SAMPLED_OF_CLASS of every class of two and
    more, or of every second, third … such class, where all of them would be too many.

    `classes` (N,): of the items. A class of one item says nothing about what varies within it.
    """
    order = np.argsort(classes, kind="stable")
    _, starts, sizes = np.unique(classes[order], return_index=True, return_counts=True)
    kept = np.minimum(sizes, SAMPLED_OF_CLASS)
    several = np.flatnonzero(sizes > 1)
    step = max(1, int(kept[several].sum() // max(items, 1)))
    parts = [order[starts[each] : starts[each] + kept[each]] for each in several[::step]]
    return np.concatenate([np.zeros(0, np.int64), *parts])
