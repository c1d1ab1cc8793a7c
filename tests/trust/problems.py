"""Random problems of answers on trees, and what is to come out of them, as double loops."""

import math
from typing import NamedTuple

import numpy as np

from hbench.trust.climbing import BELOW


class Problem(NamedTuple):
    """A tree by the paths of its classes, shares of every class for every item, and true paths of
    every item, each with the number of its levels that are known."""

    paths: list
    shares: np.ndarray
    truths: list


def problem(seed):
    """A problem with ties, one-child nodes, leaves that are repeated down, partial labels, and
    several paths."""
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, 5))
    paths = [()]
    for _ in range(depth):
        longer = []
        for path in paths:
            ends = path and rng.random() < 0.15
            children = 1 if ends else int(rng.integers(1, 4))
            longer += [(*path, f"{path[-1] if path else ''}{child}") for child in range(children)]
        paths = longer
    items = int(rng.integers(1, 30))
    shares = rng.dirichlet(np.full(len(paths), 0.4), items)
    if seed % 3 == 0:  # ties
        shares = np.round(shares * 8) + 1
        shares /= shares.sum(axis=1, keepdims=True)
    truths = []
    for row in shares:
        count = 1 + int(rng.random() < 0.2)
        near = rng.choice(len(paths), size=count, p=0.7 * row / row.sum() + 0.3 / len(paths))
        truths.append(
            [
                (paths[one], depth if rng.random() < 0.8 else int(rng.integers(0, depth + 1)))
                for one in near
            ]
        )
    return Problem(paths, shares, truths)


def below(paths, node):
    return [number for number, path in enumerate(paths) if path[: len(node)] == node]


def answer(problem, item, threshold):
    """The deepest node along the path of the largest share whose mass reaches the threshold."""
    row = problem.shares[item]
    best = problem.paths[max(range(len(row)), key=lambda number: (row[number], -number))]
    for depth in range(len(best), 0, -1):
        if mass(problem, item, best[:depth]) >= threshold:
            return best[:depth]
    return ()


def mass(problem, item, node):
    return sum(problem.shares[item][number] for number in below(problem.paths, node))


def is_right(problem, item, node):
    """True, False, or None, where nobody knows."""
    found = []
    for path, known in problem.truths[item]:
        if node == path[: len(node)] and len(node) <= known:
            return True
        found.append(None if node[:known] == path[:known] and len(node) > known else False)
    return None if None in found else False


def coverage(problem, node):
    leaves = len(problem.paths)
    if not node or leaves == 1:
        return float(bool(node))
    return 1 - math.log2(len(below(problem.paths, node))) / math.log2(leaves)


def risk_and_coverage(problem, threshold):
    wrong = judged = 0
    covered = 0.0
    for item in range(len(problem.shares)):
        node = answer(problem, item, threshold)
        right = is_right(problem, item, node) if node else True
        if right is not None:
            judged += 1
            wrong += not right
        covered += coverage(problem, node)
    return wrong / judged if judged else math.nan, covered / len(problem.shares)


def rows_of(problem, tree_paths):
    """Shares as rows of nodes: owners, paths and shares of every class of every item."""
    items, classes = problem.shares.shape
    return (
        np.repeat(np.arange(items), classes),
        np.tile(tree_paths, (items, 1)),
        problem.shares.ravel(),
    )


__all__ = [
    "BELOW",
    "Problem",
    "answer",
    "coverage",
    "is_right",
    "mass",
    "problem",
    "risk_and_coverage",
    "rows_of",
]
