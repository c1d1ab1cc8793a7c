"""Computes kNN accuracy, and the NMI of a clustering, for the classes of one level.

Both need the classes of all items. Reports have neither: their metrics are computed from the levels
in a query's list, which do not tell apart the classes of unrelated items.

>>> scores = [[0.9, 0.8, 0.7, -np.inf], [0.1, 0.9, -np.inf, 0.2]]
>>> knn_accuracy(scores, ["owl", "cat", "cat", "dog"], ["cat", "dog"], k=3).tolist()
[1.0, 0.0]
>>> round(nmi([[0.0], [0.1], [5.0], [5.1]], ["owl", "owl", "cat", "cat"]), 6)
1.0
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array, checked
from hbench.core.errors import UsageError
from hbench.metrics.functions import Values
from hbench.metrics.functions.arrays import real_scores

# kinds of numpy's types
NUMBERS = "iufb"
TEXTS = "US"


@checked
def knn_accuracy(scores: ArrayLike, classes: ArrayLike, of_queries: ArrayLike, k: int) -> Values:
    """kNN accuracy: 1 if the first k items vote for the query's class, else 0.

    The class with the most items among the first k wins. If several classes have as many, the one
    whose first item comes first wins. Equal scores are ordered against the query's class: its items
    come last, and the others in the order that helps another class most. With k = 1 this is R@1.

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out, such as the query itself.
        classes: (G,) of the items, numbers or names, at any one level.
        of_queries: (Q,) of the queries.
        k: how many items of the list count, 1 or more.

    Returns:
        float64 (Q,), NaN for queries without an item of their class.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN.
    """
    rows = real_scores(as_array(scores, "scores"))
    of_items = _as_classes(classes, "classes")
    query_classes = _as_classes(of_queries, "of_queries")
    if (
        rows.shape != (*query_classes.shape, *of_items.shape)
        or rows.ndim != 2
        or k < 1
        or np.isnan(rows).any()
    ):
        raise UsageError(
            "scores and classes do not fit together",
            expected="scores (Q, G) without NaN, classes (G,) and (Q,), k of 1 or more",
            found=f"{rows.shape}, {of_items.shape} and {query_classes.shape}, k {k}",
        )

    if (of_items.dtype.kind in NUMBERS) != (query_classes.dtype.kind in NUMBERS):
        raise UsageError(
            "classes and of_queries are of different kinds, so that none is the same",
            expected="numbers, or names, on both sides",
            found=f"{of_items.dtype} and {query_classes.dtype}",
        )

    # number the classes of both sides together, from 0
    numbers = np.unique(np.concatenate([of_items, query_classes]), return_inverse=True)[1]
    item_numbers = numbers[: len(of_items)]
    query_numbers = numbers[len(of_items) :]
    values = np.full(len(rows), np.nan)
    for query, row in enumerate(rows):
        own = query_numbers[query]
        listed = np.flatnonzero(row > -np.inf)  # −inf leaves an item out
        classes_listed = item_numbers[listed]
        if (classes_listed == own).any():  # otherwise the query's class could never win: NaN
            first = _classes_of_first(classes_listed, row[listed], own, k)
            votes = np.bincount(first)
            # votes[first] (k,): the votes for the class of each item; argmax returns the first item
            # among those with the most votes
            values[query] = first[np.argmax(votes[first])] == own

    return values


def _as_classes(given: ArrayLike, name: str) -> NDArray[Any]:
    """Convert classes that a user gave to an array (N,) of numbers or texts. `name`: the argument,
    for messages. Raises UsageError for other types and for missing values (NaN, None)."""
    array = as_array(given, name)
    # Such as a pandas column of texts: let numpy infer the type. A mixture is left of type object,
    # which is refused below: numpy would turn numbers among texts into texts
    if array.dtype == object:
        kinds = {type(each).__name__ for each in array.ravel().tolist()}
        array = np.array(array.tolist()) if len(kinds) == 1 else array
        found = ", ".join(sorted(kinds))
    else:
        found = str(array.dtype)
    is_missing = array.dtype.kind == "f" and bool(np.isnan(array).any())
    if array.dtype.kind not in NUMBERS + TEXTS or is_missing:
        raise UsageError(
            f"{name} must be numbers, or names, for every item",
            found="NaN" if is_missing else found,
        )
    return array


def _classes_of_first(
    classes: NDArray[np.int64], scores: NDArray[Any], own: int, k: int
) -> NDArray[np.int64]:
    """Return the classes (k,) of the first k items of a list, which vote for a class. Among classes
    with equal votes, the one whose first item comes first wins. Equal scores are put in the order
    in which the class `own` is least likely to win, whatever the order of the input.

    `classes`, `scores` (n,): of the items.
    """
    # lexsort sorts by its last key first: by falling score, then items of other classes first
    order = np.lexsort((classes == own, -scores))
    ranked = classes[order]
    falling = scores[order]
    # If more items share the k-th score than fit into the first k, only some of them can vote.
    # Choose them so that another class gets as many votes as possible.
    if k < len(ranked) and falling[k - 1] == falling[k]:
        above = ranked[falling > falling[k]]
        tied = ranked[falling == falling[k]]
        # (C,): the most votes that each class can get
        votes, more = (np.bincount(part, minlength=ranked.max() + 1) for part in (above, tied))
        votes += np.minimum(more, k - len(above))
        # (C,): the position of each class's first item, which decides among equal votes; k for a
        # class that has only tied items. Assigned in reverse, so that the first item of a class
        # overwrites its later ones
        earliest = np.full(len(votes), k)
        earliest[above[::-1]] = np.arange(len(above))[::-1]
        # Sort the tied items, by the last key first: those of other classes before those of the own
        # class, then those of the class with the most votes, then those of the class whose first
        # item comes first. By the first key, the class itself, its items stay together.
        ranked[falling == falling[k]] = tied[
            np.lexsort((tied, earliest[tied], -votes[tied], tied == own))
        ]

    return ranked[:k]


@checked
def nmi(
    vectors: ArrayLike, classes: ArrayLike, *, clusters: int | None = None, seed: int = 0
) -> float:
    """NMI = 2 I(K; C)/(H(K) + H(C)): how much the clusters K that k-means finds say about the
    classes C (Manning et al. 2008).

    Args:
        vectors: (N, D). They are not normalised: scale them to length 1 for cosine.
        classes: (N,), numbers or names, at any one level.
        clusters: the number of clusters. NMI grows with it, so compare only equal numbers. Default:
            the number of classes.
        seed: of k-means, which takes minutes for ten thousand clusters. Default: 0.

    Returns:
        A fraction in [0, 1].

    Raises:
        UsageError: arrays that do not fit together, or hold NaN.
    """
    from sklearn.cluster import KMeans  # imported here, since it takes half a second
    from sklearn.metrics import normalized_mutual_info_score

    rows = as_array(vectors, "vectors")
    of_items = _as_classes(classes, "classes")
    if not 0 <= seed < 2**32:
        raise UsageError("the seed must be from 0 to 2³² − 1", found=str(seed))
    number = len(np.unique(of_items)) if clusters is None else clusters
    fit = (
        rows.ndim == 2
        and rows.size
        and of_items.shape == rows.shape[:1]
        and 1 <= number <= len(rows)
    )
    if not fit or rows.dtype.kind not in "fiub" or not np.isfinite(rows).all():
        raise UsageError(
            "vectors and classes cannot be clustered",
            expected="finite vectors (N, D), classes (N,), at most N clusters",
            found=f"{rows.dtype} of shape {rows.shape}, classes of shape {of_items.shape}, "
            f"{number} clusters",
        )
    found: NDArray[np.int32] = KMeans(number, n_init=1, random_state=seed).fit_predict(rows)
    return float(normalized_mutual_info_score(of_items, found))
