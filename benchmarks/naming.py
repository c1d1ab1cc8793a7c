"""How long `hbench name` reads 10,000 pictures among 350,000 classes of 7 levels, 512 dimensions.

The time is also given as a multiple of the product of all pictures with all classes, measured in
the same run, in the same blocks; memory is that of the whole process.

    python benchmarks/naming.py [PICTURES]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
from numpy.typing import NDArray

from hbench.evaluation.by_name.naming import NodeVectors
from hbench.tree import LabelTree

BELOW = (35_000, 3_500, 700, 70, 10, 2, 1)  # classes below a node of each level
CLASSES = 350_000
DIMENSIONS = 512
PRODUCT = 93  # pictures at once


def unit_vectors(number: int, seed: int) -> NDArray[np.float32]:
    """Random vectors of length 1."""
    vectors = np.random.default_rng(seed).standard_normal((number, DIMENSIONS), dtype=np.float32)
    vectors /= np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]  # without a copy
    return vectors


def main(pictures: int) -> None:
    """Multiply, then name, and print the seconds of both."""
    labels = np.stack([np.arange(CLASSES) // below for below in BELOW], axis=1)
    tree, _ = LabelTree.from_labels(labels)
    # only classes have vectors: no nodes of the levels above
    none = np.zeros(0, np.int64)
    nodes = [none] * (tree.depth - 1) + [np.arange(CLASSES)]
    no_vectors = np.zeros((0, DIMENSIONS), np.float32)
    classes = unit_vectors(CLASSES, 0)
    of_pictures = unit_vectors(pictures, 1)

    began = time.perf_counter()
    for start in range(0, pictures, PRODUCT):
        of_pictures[start : start + PRODUCT] @ classes.T
    product = time.perf_counter() - began

    vectors = NodeVectors(tree, nodes, [no_vectors] * (tree.depth - 1) + [classes])
    began = time.perf_counter()
    vectors.read(of_pictures)
    reading = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"product {product:.1f} s, naming {reading:.1f} s: {reading / product:.2f} times")
    print(f"{peak:.2f} GB at most, of which the classes' vectors are {classes.nbytes / 1e9:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
