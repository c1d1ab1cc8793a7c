"""Finds labels that were mixed into vectors: directions that tell classes apart, but in which the
items of a class hardly differ.

A net sees pictures, and what makes classes differ makes the pictures of one class differ, too. So
the ratio of the variance between classes to that within classes has the same order of magnitude in
all directions. This was measured on 43 honest files (pixels, principal components, nets of
ImageNet, nets trained with 16 losses; glyphs, Omniglot, groceries): none of the variance between
classes was in directions where the ratio is more than ten times that of all directions, and at
most .02 % where it is more than five times. For the same vectors with half or a fifth of a one-hot
vector of the class appended, it was 4 % and more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import one_blas_thread
from hbench.datasets.manifest import Manifest
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.submissions.embeddings import Embeddings, align

Floats = NDArray[np.float64]
ODD_RATIO = 10  # a direction is odd if its ratio is this many times that of all directions
DOUBTFUL_SHARE = 0.02  # of the variance between classes, in odd directions
MOST_DIM = 2_048  # for more dimensions, eigenvectors take longer than the evaluation
# the size of the sample of items: in all, at least per dimension, and at most per class
SAMPLED_ITEMS = 8_192
SAMPLED_PER_DIM = 4
SAMPLED_OF_CLASS = 64
ITEMS_AT_ONCE = 2_048
# with fewer items or classes, the variances are not estimated well in every direction
FEWEST_BEYOND = 1_000  # items besides one of each class
FEWEST_PER_DIM = 1.5
FEWEST_CLASSES = 30
ROUNDING = 1e-9  # of the mean variance within classes: less is rounding
TINY = 1e-300  # instead of 0 where it divides


def doubt_of_labels(test: Manifest, given: Embeddings) -> Iterator[str]:
    """Yield a doubt if labels seem to be mixed into the vectors of a test's gallery: if much of the
    variance between classes is in directions in which the items of a class hardly differ. Vectors
    of more than MOST_DIM dimensions are not examined, since that would take too long."""
    if given.dim > MOST_DIM:
        return
    ranked = np.flatnonzero(test.gallery)
    classes = test.labels[ranked, -1]
    chosen = _sample(classes, max(SAMPLED_ITEMS, SAMPLED_PER_DIM * given.dim))
    distinct, class_of_item = np.unique(classes[chosen], return_inverse=True)
    # enough classes, and enough items besides one of each class, to estimate the variances
    beyond = len(chosen) - len(distinct)
    if len(distinct) < FEWEST_CLASSES or beyond < max(FEWEST_BEYOND, FEWEST_PER_DIM * given.dim):
        return
    share = odd_share(given.vectors, align(given, test.items[ranked[chosen]]), class_of_item)
    if share >= DOUBTFUL_SHARE:
        yield (
            f"{100 * share:.0f} % of what tells classes apart lies in directions in which the "
            "items of a class hardly differ, as labels that were mixed into the vectors do"
        )


def odd_share(
    vectors: NDArray[np.floating], rows: NDArray[np.int64], classes: NDArray[np.integer]
) -> float:
    """The share of the variance between classes that is in odd directions. It is next to 0 unless
    labels were mixed into the vectors.

    A direction is odd if its ratio of the variance between classes to that within classes is more
    than ODD_RATIO times the ratio of all directions together.

    Args:
        vectors: (M, D); they need not have length 1.
        rows: the vectors to use, as rows of `vectors`, (N,).
        classes: the class of each of these rows, (N,), numbered 0 … C − 1 without a gap.
    """
    sizes = np.bincount(classes)  # (C,)
    order = np.argsort(classes, kind="stable")  # the items of a class are adjacent
    means, scatter = _means_and_scatter(vectors, rows[order], sizes)

    # The principal directions of the variance within classes, (D, D), and this variance, (D,). Each
    # class has its own mean, which takes one degree of freedom.
    # One thread: several are no faster for vectors of this length, and slow beside other work.
    with one_blas_thread():
        within, directions = np.linalg.eigh(scatter / (len(rows) - len(sizes)))
    # the variance between classes in these directions, (D,)
    from_mean = (means - sizes @ means / len(rows)) @ directions  # (C, D)
    between = sizes @ from_mean**2

    ratio_of_all = between.sum() / max(within.sum(), TINY)
    # a variance below the limit is rounding: raised to it, it does not make a ratio infinite
    ratio = between / np.maximum(within, ROUNDING * within.mean() + TINY)
    is_odd = ratio > ODD_RATIO * ratio_of_all
    return float(between[is_odd].sum() / max(between.sum(), TINY))


def _means_and_scatter(
    vectors: NDArray[np.floating], rows: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """The mean direction of each class, (C, D), and the scatter matrix (D, D) of the items'
    directions around the means of their classes.

    Args:
        vectors: (M, D).
        rows: the vectors to use, as rows of `vectors`, class by class, (N,).
        sizes: the number of these rows in each class, (C,).
    """
    dim = vectors.shape[1]
    means = np.empty((len(sizes), dim))
    scatter = np.zeros((dim, dim))
    # some classes at a time, so that only few vectors are copied at once
    for some in _blocks(sizes):
        first = int(sizes[: some.start].sum())
        of_classes = rows[first : first + int(sizes[some].sum())]
        units = unit_vectors(vectors[of_classes], np.float64)
        starts = np.cumsum(sizes[some]) - sizes[some]  # where each class begins in these rows
        means[some] = np.add.reduceat(units, starts) / sizes[some, None]
        units -= np.repeat(means[some], sizes[some], axis=0)
        scatter += units.T @ units
    return means, scatter


def _blocks(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Slices of classes that have about ITEMS_AT_ONCE items each. `sizes` (C,) are the numbers of
    items of the classes."""
    block = np.cumsum(sizes) // ITEMS_AT_ONCE  # (C,): the number of the block of each class
    # the classes at which a block begins, and C; the values before and after differ from all blocks
    edges = np.flatnonzero(np.diff(block, prepend=-1, append=block[-1] + 1))
    for start, stop in itertools.pairwise(edges):
        yield slice(int(start), int(stop))


def _sample(classes: NDArray[np.integer], items: int) -> NDArray[np.int64]:
    """Choose a sample of about `items` items and return their indices in `classes`.

    The sample has the first SAMPLED_OF_CLASS items of each class of two or more. If these are too
    many, only every second, third … such class is sampled. `classes` (N,) has the class of each
    item.
    """
    order = np.argsort(classes, kind="stable")
    _, starts, sizes = np.unique(classes[order], return_index=True, return_counts=True)
    kept = np.minimum(sizes, SAMPLED_OF_CLASS)
    several = np.flatnonzero(sizes > 1)  # a class of one item has no variance within it
    step = max(1, int(kept[several].sum() // max(items, 1)))
    parts = [order[starts[each] : starts[each] + kept[each]] for each in several[::step]]
    return np.concatenate([np.zeros(0, np.int64), *parts])  # empty if no class has two items
