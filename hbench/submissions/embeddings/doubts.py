"""Finds doubts about a submission: signs that its vectors were not computed from the pictures.

A score is computed all the same. The doubts are shown in the report, on stderr, and in the
leaderboard row.

| doubt | raised if |
|---|---|
| constant vectors | 99 % of the items have exactly the vector of an item of another class |
| nearly constant | all vectors are within 0.3 % of their mean |
| copies across classes | 5 % of the items have exactly the vector of an item of another class |
| labels as vectors | half of the items have exactly the vector of another item of their own class |
| labels with noise | at some level, under 0.1 % of the directions' variance is within classes |
| labels mixed in | classes differ in directions in which their items do not (`mixed_labels`) |
| queries inside the gallery | 5 % of the queries have exactly the vector of a gallery item |
| items of the training set | any test item is in the training set |
| all right at rank 1 | every query's first result is of its finest class, of 100 queries or more |

If a dataset holds a picture twice, honest vectors of both are equal, so shares of a few percent
raise no doubt. A query that is in the gallery itself, under the same id, is not a copy.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import examples
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.submissions.embeddings import Embeddings, align
from hbench.submissions.embeddings.arrow_files import blocks
from hbench.submissions.embeddings.mixed_labels import doubt_of_labels
from hbench.tree.partial import known_levels, shown_names

# shares of the items
COPIES = 0.05
SAME_CLASS = 0.5
ALL = 0.99
NEAR = 1e-5  # share of the vectors' mean square that is around their mean: (0.3 %)² of it
# share of the variance that is within classes; for trained nets on new classes, 10 % and more
WITHIN = 1e-3
CLASSES_AT_ONCE = 256
MIN_ITEMS = 100  # with fewer items or queries, anything may be chance
MIN_SAME = 10  # with fewer items, it may be chance that all are within 0.3 % of their mean


def doubts_of(queries: Embeddings, gallery: Embeddings, data: Dataset) -> tuple[str, ...]:
    """Return the doubts about embeddings that can be found before they are scored, one sentence
    each.

    This takes one pass over the vectors, class by class: about 1 % of the time of an evaluation.
    Keys of equal vectors and squared lengths come from the scan that was made when the file was
    read (`Embeddings.scan`). `queries` and `gallery` are the same object if one file holds both.
    """
    are_near = _are_nearly_the_same(queries)
    # test items that are in the training set: a doubt about the dataset, not about the vectors
    sentences = [*trained_on(data)]
    if are_near:
        sentences.append("all vectors are nearly the same: a net that trained has collapsed")
    for name, test in data.tests.items():
        doubts = list(_doubts_of_copies(test, queries, gallery))
        # One doubt is enough: if vectors are copies, or all nearly the same, they are also near the
        # others of their class.
        if not (doubts or are_near):
            doubts = list(_doubts_of_collapse(test, gallery))
        if not (doubts or are_near):
            doubts = list(doubt_of_labels(test, gallery))
        sentences += [f"{name}: {doubt}" for doubt in doubts]
    return tuple(sentences)


def _are_nearly_the_same(given: Embeddings) -> bool:
    """Whether the vectors differ from their mean by at most 0.3 % of their length, in the root mean
    square.

    The vectors are read in blocks. Squared distances from a block's own mean add up to no more than
    those from the mean of all vectors, so the answer is no as soon as they exceed the limit. With
    the vectors of a working net, the first block does so, and the others are not read.
    """
    if len(given) < MIN_SAME:
        return False
    # views: a part of a memory-mapped file is read only when it is used
    parts = [given.vectors[block] for block in blocks(len(given), given.dim)]
    # NEAR is about the square of 0.3 %; `squares` are the squared lengths of the vectors
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
    # each block may be close to its own mean, although the blocks differ from each other
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
    """Yield doubts about equal vectors. Items of different classes have equal vectors if vectors
    are constant, or pictures are copies; items of one class have them if labels are in place of
    vectors. Equal vectors of queries and gallery items are doubted, too.

    Two vectors are equal if their keys from the scan are. If a dataset holds a picture twice,
    honest vectors of both are equal, so shares of a few percent raise no doubt.
    """
    query_rows = np.flatnonzero(test.query)
    gallery_rows = np.flatnonzero(test.gallery)
    # `align` returns the row of each item among the embeddings
    keys = gallery.scan.keys[align(gallery, test.items[gallery_rows])]  # (G,)
    labels = test.labels[gallery_rows]  # (G, L)
    # for each item, (G,): how many items have its vector, and how many have its vector and class
    _, group = np.unique(keys, return_inverse=True)
    size = np.bincount(group)[group]
    alike = _same_in_group(group, labels[:, -1])
    # under partial labels, an item of unknown class may be of the class of another
    differs = size > _maybe_alike(group, labels, known_levels(test.tree)[labels[:, -1]])

    if len(gallery_rows) >= MIN_ITEMS:
        across = float(differs.mean())
        within = float((alike > 1).mean())
        if across >= COPIES:
            same = "of the items have exactly the vector of an item of another class"
            origin = ": the vectors are constant"
            if across < ALL:
                origin = _copies_in_words(labels[differs, -1], shown_names(test.tree)[-1])
            yield f"{100 * across:.0f} % {same}{origin}"
        elif within >= SAME_CLASS:
            yield (
                f"{100 * within:.0f} % of the items have exactly the vector of another item of "
                "their class, as labels have"
            )

    # skipped if queries are in the gallery themselves: their vectors must be there
    if len(query_rows) >= MIN_ITEMS and not (test.query & test.gallery).any():
        of_queries = queries.scan.keys[align(queries, test.items[query_rows])]  # (Q,)
        inside = float(np.isin(of_queries, keys).mean())
        if inside >= COPIES:
            yield f"{100 * inside:.0f} % of the queries have exactly the vector of a gallery item"


def _same_in_group(
    group: NDArray[np.integer], nodes: NDArray[np.integer], counted: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """For each item, how many items have its group and its node, (G,). Only `counted` items (G,)
    are counted; None: all."""
    pairs = group.astype(np.int64) * (int(nodes.max(initial=0)) + 1) + nodes
    _, pair = np.unique(pairs, return_inverse=True)
    return np.bincount(pair if counted is None else pair[counted], minlength=len(pair))[pair]


def _maybe_alike(
    group: NDArray[np.integer], labels: NDArray[np.integer], known: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """For each item, how many items of its group, itself among them, are not known to be of another
    class, (G,). Items are known to differ if they do at a level that is known of both.

    `labels` (G, L) are the nodes of the items, `known` (G,) the number of their known levels.
    """
    alike = np.zeros(len(group), np.int64)
    for level in np.unique(known).tolist():
        ends = known == level
        nodes = labels[:, level - 1]
        # an item that is known down to this level may be of any class below its node, and an item
        # that is known further down may be of the class of those whose path ends above it
        alike[ends] += _same_in_group(group, nodes)[ends]
        if (known > level).any():
            alike[known > level] += _same_in_group(group, nodes, ends)[known > level]
    return alike


def _copies_in_words(classes: NDArray[np.integer], names: Sequence[str]) -> str:
    """The end of a sentence about items that have exactly the vector of an item of another class.
    It says that copies of a picture with another label have equal vectors, and names the classes
    of the items. `classes` (n,): the classes of these items, as indices into `names`."""
    items = np.bincount(classes, minlength=len(names))
    order = np.argsort(-items, kind="stable")[: np.count_nonzero(items)]
    largest = examples((f"{names[i]} ({items[i]:,})" for i in order.tolist()), most=4)
    return (
        f", as copies of a picture with another label have: {len(order):,} classes: {largest}; "
        "hbench audit lists them"
    )


def _doubts_of_collapse(test: Manifest, given: Embeddings) -> Iterator[str]:
    """Yield a doubt if the vectors of each class are nearly the same, for the coarsest level at
    which they are. The measure is the share of the variance of directions (vectors at length 1)
    that is within classes.
    """
    ranked = np.flatnonzero(test.gallery)
    labels = test.labels[ranked]
    rows = align(given, test.items[ranked])  # in which rows of `given` the items' vectors are
    if len(ranked) < MIN_ITEMS:
        return

    # for the fine classes: sums of directions (C, D), numbers of items (C,), and nodes (L, C): the
    # label of each class at each level
    sums, items_of_class = _class_sums(given, rows, labels[:, -1])
    node = _nodes_of_classes(labels)

    for level, name in enumerate(test.levels):
        # Add up the fine classes of each node of this level. Sorted by node, the classes of a node
        # are adjacent, and `first` has the position at which each node begins. No node has the
        # number −1, so position 0 always begins a node.
        by_node = np.argsort(node[level], kind="stable")
        first = np.flatnonzero(np.diff(node[level][by_node], prepend=-1))
        items = np.add.reduceat(items_of_class[by_node], first)
        class_sums = np.add.reduceat(sums[by_node], first)
        several = items > 1  # a class of one item has no variance
        number = items[several].sum()
        # too few items, or a single class, which has all the variance within it
        if number < MIN_ITEMS or several.sum() < 2:
            continue
        squares = _sums_of_squares(class_sums[several], items[several])
        # nets that were trained on other classes have 10 % and more within classes
        if squares.within < WITHIN * squares.total:
            yield (
                f"the vectors of one {name} are nearly the same: "
                f"{100 * squares.within / squares.total:.2f} % of their variance "
                "lies within it, as of labels with noise"
            )
            return


def _nodes_of_classes(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """The nodes of the C fine classes at each level, (L, C), in the order of the classes' numbers.
    `labels` (N, L) are the nodes of the items."""
    # all items of a class have the same nodes, so one item of each is enough
    _, item_of_class = np.unique(labels[:, -1], return_index=True)
    return labels[item_of_class].T


class SumsOfSquares(NamedTuple):
    """Sums of squared distances of directions from a mean."""

    within: float  # from the mean of their class
    total: float  # from the mean of all


def _sums_of_squares(sums: NDArray[np.float64], items: NDArray[np.int64]) -> SumsOfSquares:
    """The sums of squared distances for K classes, computed from the sum of each class's
    directions.

    The sum of squared distances of n vectors x from their mean is Σ|x|² − |Σx|² / n. Every
    direction has length 1, so Σ|x|² is the number of items.

    Args:
        sums: the sum of the directions of each class, (K, D).
        items: the number of items of each class, (K,).
    """
    number = int(items.sum())
    of_means = float(((sums**2).sum(axis=1) / items).sum())  # |Σx|² / n, added up over classes
    total = number - float((sums.sum(axis=0) ** 2).sum()) / number
    return SumsOfSquares(within=number - of_means, total=total)


def _class_sums(
    given: Embeddings, rows: NDArray[np.int64], classes: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The sum of the directions (vectors at length 1) of each class, (C, D), and the number of its
    items, (C,); both in the order of the classes' numbers.

    Args:
        given: the embeddings.
        rows: the row of each item among the embeddings, (N,).
        classes: the class of each item, (N,).
    """
    order = np.argsort(classes, kind="stable")  # the items of a class are adjacent
    sizes = np.unique(classes, return_counts=True)[1]
    ends = np.cumsum(sizes)  # where each class ends in this order
    sums = np.empty((len(sizes), given.dim))
    # some classes at a time, so that only few vectors are copied to float64 at once
    for first_class in range(0, len(sizes), CLASSES_AT_ONCE):
        some = slice(first_class, first_class + CLASSES_AT_ONCE)
        starts = ends[some] - sizes[some]
        # the vectors of these classes' items, class by class
        part = given.vectors[rows[order[starts[0] : ends[some][-1]]]].astype(np.float64)
        length = np.sqrt(np.einsum("nd,nd->n", part, part))
        directions = part / np.maximum(length, 1e-300)[:, None]  # a zero vector stays zero
        sums[some] = np.add.reduceat(directions, starts - starts[0])
    return sums, sizes
