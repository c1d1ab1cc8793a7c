"""How long an exact evaluation takes, next to the bare matrix product of the same scores in the same run.

Synthetic sets of the sizes of the papers' benchmarks: `sop` 60,502 × 512, two levels; `inat` 136,093 × 512, seven levels. All
default metrics (H-AP, wAP, ASI, NDCG; AP, mAP@R, R@1, R@10, R@100, R@1000 at every level). Baseline: torch.mm of blocks of 256
queries into one buffer, on the same number of threads. Rounds are interleaved, medians printed.

    python benchmarks/evaluate.py --set sop --threads 2 --share 0.1
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from hbench.conditions import conditions
from hbench.evaluation import scorers_of
from hbench.measure import on_threads
from hbench.ranking import Ranker, Side
from hbench.tree import LabelTree, default_levels
from hbench.values import values_of

SETS = {
    "sop": (60_502, (12, 11_316)),
    "inat": (136_093, (5, 20, 50, 230, 700, 1500, 2452)),
    "small": (5_000, (10, 500)),
}
DIM = 512
BLOCK = 256


def main() -> None:
    """Print one line per design: microseconds per query, ratio to the matrix product, peak memory beyond the inputs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, default="sop", dest="name")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.1, help="share of the query blocks that is timed")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    items, nodes = SETS[options.name]
    labels = uneven_labels(items, nodes)
    vectors = np.random.default_rng(0).standard_normal((items, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    before = peak_memory(reset=True)
    ranker, chosen = Ranker(Side(vectors, labels)), conditions(default_levels(len(nodes)))
    values = values_of(ranker, scorers_of(chosen, labels, all_pairs=True))
    spread = np.linspace(0, ranker.blocks - 1, max(1, round(options.share * ranker.blocks)))
    blocks = np.unique(spread.astype(int)).tolist()
    queries = sum(len(ranker.rows(block)) for block in blocks)
    list(on_threads(ranker, values, blocks[:1], threads=options.threads))  # compiles
    own, bare = [], []
    for _ in range(options.rounds):
        bare.append(seconds_of_product(vectors, queries, options.threads))
        began = time.perf_counter()
        for _values in on_threads(ranker, values, blocks, threads=options.threads):
            pass
        own.append(time.perf_counter() - began)
    ratio = statistics.median(a / b for a, b in zip(own, bare, strict=True))
    each = {"torch.mm": statistics.median(bare) / queries, "hbench": statistics.median(own) / queries}
    print(f"{options.name}: {items:,} × {DIM}, L = {len(nodes)}, {len(chosen.metrics)} metrics, {queries:,} queries timed, "
          f"{options.threads} threads")  # fmt: skip
    for name, seconds in each.items():
        print(f"  {name:<10}{1e6 * seconds:8.0f} µs/query   whole set {seconds * items:7.1f} s")
    print(f"  ratio {ratio:.2f}; peak memory beyond the inputs {peak_memory() - before:.0f} MB (both designs)")


def uneven_labels(items: int, nodes: tuple[int, ...]) -> np.ndarray:
    """Nested labels (N, L) whose classes are of uneven size."""
    rng = np.random.default_rng(1)
    weight = rng.lognormal(0, 0.5, nodes[-1])
    leaf = rng.choice(nodes[-1], size=items, p=weight / weight.sum())
    columns = [leaf]
    for above, own in zip(nodes[-2::-1], nodes[:0:-1], strict=True):
        columns.insert(0, (np.sort(rng.integers(above, size=own)))[columns[0]])
    return LabelTree.from_labels(np.stack(columns, axis=1))[1]


def seconds_of_product(vectors: np.ndarray, queries: int, threads: int) -> float:
    """The time of the bare scores of so many queries, in blocks of 256, into one buffer."""
    torch.set_num_threads(threads)
    gallery, scores = torch.from_numpy(vectors), torch.empty(BLOCK, len(vectors))
    began = time.perf_counter()
    rounds = -(-queries // BLOCK)
    for turn in range(rounds):
        start = turn * BLOCK % (len(vectors) - BLOCK)
        torch.mm(gallery[start : start + BLOCK], gallery.T, out=scores)
    return (time.perf_counter() - began) * queries / (rounds * BLOCK)


def peak_memory(*, reset: bool = False) -> float:
    """The process's peak resident memory in MB (Linux), since the start or the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
