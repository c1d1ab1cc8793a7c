"""Finds doubts about a submission: signs that its vectors did not come from looking at pictures.

A score is computed all the same; the doubts stand in its report, on stderr, and in its leaderboard
row.

| doubt | said where |
|---|---|
| constant vectors | 99 % of the items have exactly the vector of an item of another class |
| nearly constant | all lie within 0.3 % of their mean |
| copies across classes | 5 % of the items have exactly the vector of an item of another class |
| labels as vectors | half of the items have exactly the vector of another item of their own class |
| labels with noise | within classes of some level lies under 0.1 % of the directions' variance |
| labels mixed in | classes differ where their items do not (mixed_labels.py, beside this file) |
| queries inside the gallery | 5 % of the queries have exactly the vector of a gallery item |
| items of the training set | any test item is one |
| all right at rank 1 | every query's first result is of its finest class, of 100 queries or more |

Pictures that a dataset holds twice have equal vectors honestly, so shares of a few percent are let
pass; a query whose own picture stands in the gallery under the same id is not a copy.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import examples
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.submissions.embeddings import Embeddings, align
from hbench.submissions.embeddings.arrow_files import blocks
from hbench.submissions.embeddings.mixed_labels import doubt_of_labels

# shares of the items
COPIES = 0.05
SAME_CLASS = 0.5
ALL = 0.99
NEAR = 1e-5  # share of the vectors' mean square that is not their mean's: within 0.3 % of it
# share of the variance that lies within classes; of trained nets on new classes a tenth and more
# does
WITHIN = 1e-3
CLASSES_AT_ONCE = 256
MIN_ITEMS = 100  # items or queries, below which anything may be chance
MIN_SAME = 10  # items, of which it is no chance that all lie within 0.3 % of their mean


def doubts_of(queries: Embeddings, gallery: Embeddings, data: Dataset) -> tuple[str, ...]:
    """Return the doubts about embeddings that can be seen before they are scored, one sentence
    each.

    One pass over the vectors, class by class, besides their scan: about 1 % of an evaluation's
    time.
    """
    are_near = _are_nearly_the_same(queries)
    sentences = [*trained_on(data)]  # of the dataset, whatever the vectors
    if are_near:
        sentences.append("all vectors are nearly the same: a net that trained has collapsed")
    for name, test in data.tests.items():
        doubts = list(_doubts_of_copies(test, queries, gallery))
        # one doubt says it: what is a copy, or near all others, is near those of its class, too
        if not (doubts or are_near):
            doubts = list(_doubts_of_collapse(test, gallery))
        if not (doubts or are_near):
            doubts = list(doubt_of_labels(test, gallery))
        sentences += [f"{name}: {doubt}" for doubt in doubts]
    return tuple(sentences)


def _are_nearly_the_same(given: Embeddings) -> bool:
    """Whether the vectors lie, in the root mean square, within 0.3 % of their length around their
    mean.

    The sum of squared distances from the blocks' own means is a lower bound of that from the mean
    of all. So one block that exceeds the limit settles it: vectors of a net that works do so in the
    first, and the others are not read.
    """
    if len(given) < MIN_SAME:
        return False
    parts = [given.vectors[block] for block in blocks(len(given), given.dim)]
    allowed = NEAR * float(given.scan.squares.sum())
    mean = np.zeros(given.dim)
    apart = 0.0  # Σ |v − mean of its block|²
    for part in parts:
        values = part.astype(np.float64)
        mean += values.sum(axis=0) / len(given)
        values -= values.mean(axis=0)
        apart += float(np.vdot(values, values))
        if apart > allowed:
            return False
    # blocks may each lie close together, and apart from each other
    return sum(float(np.square(part - mean).sum()) for part in parts) <= allowed


def trained_on(data: Dataset) -> Iterator[str]:
    """Yield a doubt for every test that shares items with the dataset's training set."""
    if data.train is None:
        return
    known = set(data.train.items.tolist())
    for name, test in data.tests.items():
        shared = sum(item in known for item in test.items.tolist())
        if shared:
            yield (
                f"{name}: {shared:,} of {len(test):,} test items are in the dataset's training set"
            )


def _doubts_of_copies(test: Manifest, queries: Embeddings, gallery: Embeddings) -> Iterator[str]:
    """Remarks on equal vectors: across classes, as constant vectors and copies have; within
    classes, as labels have that were taken for vectors; and between queries and gallery.

    Vectors are equal where the keys of their content are, which the scan has. Pictures that a
    dataset holds twice have equal vectors honestly: shares of a few percent are let pass.
    """
    asked = np.flatnonzero(test.query)
    ranked = np.flatnonzero(test.gallery)
    items = gallery.scan.keys[align(gallery, test.items[ranked])]  # (G,)
    finest = test.labels[ranked, -1]  # (G,)
    # (G,): how many items have the same vector as each, and how many of these its class, too
    _, group = np.unique(items, return_inverse=True)
    size = np.bincount(group)[group]
    _, pair = np.unique(np.stack([group, finest]), axis=1, return_inverse=True)
    pair = pair.reshape(-1)
    alike = np.bincount(pair)[pair]

    if len(ranked) >= MIN_ITEMS:
        across = float((size > alike).mean())
        within = float((alike > 1).mean())
        if across >= COPIES:
            same = "of the items have exactly the vector of an item of another class"
            origin = ": the vectors are constant"
            if across < ALL:
                origin = _copies_in_words(finest[size > alike], test.tree.names[-1])
            yield f"{100 * across:.0f} % {same}{origin}"
        elif within >= SAME_CLASS:
            yield (
                f"{100 * within:.0f} % of the items have exactly the vector of another item of "
                "their class, as labels have"
            )

    # queries that are in the gallery find themselves there, which says nothing
    if len(asked) >= MIN_ITEMS and not (test.query & test.gallery).any():
        of_queries = queries.scan.keys[align(queries, test.items[asked])]  # (Q,)
        inside = float(np.isin(of_queries, items).mean())
        if inside >= COPIES:
            yield f"{100 * inside:.0f} % of the queries have exactly the vector of a gallery item"


def _copies_in_words(classes: NDArray[np.integer], names: tuple[str, ...]) -> str:
    """Where items with equal vectors and other labels come from, and the classes that most of them
    are of, each with how many; `classes` (n,) are those of these items, numbers into `names`."""
    items = np.bincount(classes, minlength=len(names))
    order = np.argsort(-items, kind="stable")[: np.count_nonzero(items)]
    largest = examples((f"{names[i]} ({items[i]:,})" for i in order.tolist()), most=4)
    return (
        f", as copies of a picture with another label have: {len(order):,} classes: {largest}; "
        "hbench audit lists them"
    )


def _doubts_of_collapse(test: Manifest, given: Embeddings) -> Iterator[str]:
    """Yield a doubt where the vectors of a class are nearly one, for the coarsest level at which
    they are: by the share of the variance of directions that lies within classes.
    """
    ranked = np.flatnonzero(test.gallery)
    labels = test.labels[ranked]
    rows = align(given, test.items[ranked])
    if len(ranked) < MIN_ITEMS:
        return

    # sums of directions (C, D) and numbers of items (C,) of the fine classes; their nodes (L, C),
    # which are those of any item of the class
    sums, finest = _class_sums(given, rows, labels[:, -1])
    node = _nodes_of_classes(labels)

    for level, name in enumerate(test.levels):
        # added up by node: in this order the classes of a node lie side by side
        by_class = np.argsort(node[level], kind="stable")
        first = np.flatnonzero(np.diff(node[level][by_class], prepend=-1))
        items = np.add.reduceat(finest[by_class], first)
        class_sums = np.add.reduceat(sums[by_class], first)
        several = items > 1  # of one item the mean is the item itself
        number = items[several].sum()
        if number < MIN_ITEMS or several.sum() < 2:
            continue
        squares = _sums_of_squares(class_sums[several], items[several])
        # of nets that were trained on other classes, a tenth and more lies within
        if squares.within < WITHIN * squares.total:
            yield (
                f"the vectors of one {name} are nearly the same: "
                f"{100 * squares.within / squares.total:.2f} % of their variance "
                "lies within it, as of labels with noise"
            )
            return


def _nodes_of_classes(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """The nodes (L, C) of the fine classes, which are those of any item of the class; `labels`
    (N, L)."""
    _, item_of_class = np.unique(labels[:, -1], return_index=True)
    return labels[item_of_class].T


class SumsOfSquares(NamedTuple):
    """The squared distances of directions from the means of their classes, and from the mean of
    all, added up."""

    within: float
    total: float


def _sums_of_squares(sums: NDArray[np.float64], items: NDArray[np.int64]) -> SumsOfSquares:
    """The squared distances of the directions of some classes: `sums` (K, D) of the directions, and
    `items` (K,), how many, of every class.

    Every direction has length 1, so that Σ|x|² is the number of items; around means it is less by
    Σ|sum|² / items, of each class, or of all together.
    """
    number = int(items.sum())
    between = float((sums**2).sum(axis=1) @ (1 / items))
    total = number - float((sums.sum(axis=0) ** 2).sum()) / number
    return SumsOfSquares(number - between, total)


def _class_sums(
    given: Embeddings, rows: NDArray[np.int64], classes: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The sum of the directions (vectors at length 1) of every class (C, D), in the order of the
    classes' numbers, and how many items each has (C,).

    `rows` (N,): of the items in the file; `classes` (N,): of the items. CLASSES_AT_ONCE at a time,
    so that few vectors are held as float64.
    """
    order = np.argsort(classes, kind="stable")  # items of a class side by side
    sizes = np.unique(classes, return_counts=True)[1]
    ends = np.cumsum(sizes)  # of the items of each class in this order
    sums = np.empty((len(sizes), given.dim))
    for first_class in range(0, len(sizes), CLASSES_AT_ONCE):
        some = slice(first_class, first_class + CLASSES_AT_ONCE)
        starts = ends[some] - sizes[some]
        # the vectors of these classes' items, class by class
        part = given.vectors[rows[order[starts[0] : ends[some][-1]]]].astype(np.float64)
        length = np.sqrt(np.einsum("nd,nd->n", part, part))
        directions = part / np.maximum(length, 1e-300)[:, None]  # a zero vector stays zero
        sums[some] = np.add.reduceat(directions, starts - starts[0])
    return sums, sizes
