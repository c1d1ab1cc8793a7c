"""How fast the bare scores of a set can be had here, by every product at hand: the yardstick of
benchmarks/evaluate.py.

torch.mm of a few rows is half as fast as numpy's product on some processors, so a ratio to it alone
flatters. Each way makes scores of the same queries with all items, in blocks, into one buffer, on
as many threads; the ways take turns, and the best time of each counts.

    python benchmarks/products.py --set sop --threads 2
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits

BLOCK = 864  # queries, as many as hbench takes at once
PIECE = 4096  # items: 8 MB of 512 float32
TORCH = "torch.mm, 256 queries"
Way = Callable[[], object]


class Product(NamedTuple):
    """One way of multiplying, and its seconds for a block of queries."""

    way: str
    seconds: float

    def gigaflops(self, items: int, dim: int) -> float:
        """Billions of operations a second: a multiplication and an addition for each coordinate of
        each pair."""
        return 2e-9 * BLOCK * items * dim / self.seconds


def products(vectors: np.ndarray, threads: int, rounds: int = 5) -> list[Product]:
    """Every way, the fastest first."""
    best: dict[str, float] = {}
    for name, way in [*_ways(vectors)] * rounds:
        seconds = _seconds(way, threads)
        best[name] = min(seconds, best.get(name, seconds))
    return sorted((Product(*each) for each in best.items()), key=lambda each: each.seconds)


def _ways(vectors: np.ndarray) -> Iterator[tuple[str, Way]]:
    """The name of every way, and a function that multiplies so: a block of queries with all vectors
    (N, D)."""
    queries = vectors[:BLOCK]
    scores = np.zeros((BLOCK, len(vectors)), np.float32)
    # torch's views of the same memory
    gallery = torch.from_numpy(vectors)
    buffer = torch.from_numpy(scores)

    def in_pieces() -> None:
        """All queries with PIECE items at a time, which fit into a processor's cache."""
        for at in range(0, len(vectors), PIECE):
            np.matmul(queries, vectors[at : at + PIECE].T, out=scores[:, at : at + PIECE])

    def of_few() -> None:
        """256 queries at a time, as others do it."""
        for at in range(0, BLOCK, 256):
            some = slice(at, min(at + 256, BLOCK))
            torch.mm(gallery[some], gallery.T, out=buffer[some])

    yield "numpy, in one piece", lambda: np.matmul(queries, vectors.T, out=scores)
    yield f"numpy, in pieces of {PIECE} items", in_pieces
    yield f"torch.mm, {BLOCK} queries", lambda: torch.mm(gallery[:BLOCK], gallery.T, out=buffer)
    yield TORCH, of_few
    with suppress(ImportError):
        faiss = importlib.import_module("faiss")
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        yield "faiss flat search, top 1", lambda: index.search(queries, 1)


def _seconds(way: Way, threads: int) -> float:
    """How long a way takes, with as many threads in every library."""
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        began = time.perf_counter()
        way()
        return time.perf_counter() - began


def print_products(found: list[Product], items: int, dim: int) -> None:
    """Print a line per way; `found` begins with the fastest."""
    for each in found:
        times = each.seconds / found[0].seconds
        print(
            f"  {each.way:<34}{each.gigaflops(items, dim):9.0f} GFLOP/s {times:7.2f} × the best "
            "product"
        )


def main() -> None:
    """Print one line per way, the fastest first."""
    from evaluate import DIM, SETS, unit_vectors

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, default="sop", dest="name")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    items, _ = SETS[options.name]
    print(f"{options.name}: {items:,} × {DIM}, {options.threads} threads")
    print_products(products(unit_vectors(items), options.threads), items, DIM)


if __name__ == "__main__":
    main()
