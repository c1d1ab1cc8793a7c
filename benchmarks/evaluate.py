"""How long an exact evaluation takes, next to the bare matrix product of the same scores and to
peers, in one run.

Synthetic sets of the sizes of the papers' benchmarks: `sop` 60,502 × 512, two levels; `inat`
136,093 × 512, seven levels. All default metrics (H-AP, wAP, ASI, NDCG; AP, mAP@R, R@1, R@10, R@100,
R@1000 at every level), or those of the finest level alone. Baseline: torch.mm of blocks of 256
queries into one buffer, on the same number of threads, and the best product that products.py finds
on this machine. Rounds are interleaved, medians printed. A peer is measured where it is installed
(pip install pytorch-metric-learning faiss-cpu torchmetrics), on fewer queries.

    python benchmarks/evaluate.py --set sop --threads 2 --share 0.1 --peers
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from gpu_parts.rows import finish
from products import TORCH, print_products, products

from hbench.__main__ import CYCLES
from hbench.engine.executors.threads import on_threads
from hbench.engine.executors.triangle import triangle_of
from hbench.engine.job import Job
from hbench.engine.kernels.best_items import raise_best
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.similarity import SelectedRows
from hbench.engine.values.plan import plan_of
from hbench.evaluation.measurement import scorers_of
from hbench.sheets.rows import default_levels
from hbench.tree import LabelTree

SETS = {
    "sop": (60_502, (12, 11_316)),
    "inat": (136_093, (5, 20, 50, 230, 700, 1500, 2452)),
    "small": (5_000, (10, 500)),
}
DIM = 512
BLOCK = 256
PROCESSOR = torch.device("cpu")
Design = Callable[[], tuple[float, int]]  # seconds, and the queries that took them


def main() -> None:
    """Print one line per design: microseconds per query, ratio to the matrix product; then peak
    memory.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, default="sop", dest="name")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of the query blocks that is timed"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="measure other packages, too")
    parser.add_argument("--json", action="store_true", help="as JSON, for benchmarks/tables.py")
    options = parser.parse_args()
    gc.set_threshold(*CYCLES)
    items, nodes = SETS[options.name]
    labels = uneven_labels(items, nodes)
    vectors = unit_vectors(items)
    load_libraries()
    # as `hbench evaluate` does with what it read
    moved = SelectedRows(vectors.copy(), np.arange(items), movable=True)
    before = peak_memory(reset=True)
    designs = own_designs(moved, labels, options.share, options.threads)
    for design in designs.values():
        design()  # compiles
    memory = peak_memory() - before
    if options.peers:
        designs |= peers(vectors, labels, options.threads)
    found = measure(
        designs,
        lambda queries: seconds_of_product(vectors, queries, options.threads),
        items,
        options.rounds,
    )
    title = f"{items:,} × {DIM}, {len(nodes)} levels"
    yardstick = products(vectors, options.threads, options.rounds)
    to_best = next(each.seconds for each in yardstick if each.way == TORCH) / yardstick[0].seconds
    if options.json:
        own = {"title": title, "threads": options.threads, "memory": memory}
        own |= {"best_product": yardstick[0].way, "torch_to_best": to_best}
        print(json.dumps([{**own, **each._asdict()} for each in found]))
        return
    print(f"{options.name}: {title}, {options.threads} threads")
    for each in found:
        spread = f"{each.low:.2f} … {each.high:.2f}"
        print(
            f"  {each.design:<34}{each.microseconds:9.0f} µs/query {each.ratio:8.2f} × torch.mm "
            f"({spread})"
            f" {each.ratio * to_best:8.2f} × the best product   whole {each.whole:8.1f} s"
        )
    print_products(yardstick, items, DIM)
    print(f"  peak memory of hbench beyond the inputs and libraries {memory:.0f} MB")


class Measured(NamedTuple):
    """The times of one design: microseconds a query, times torch.mm's (with the lowest and
    highest), seconds of the set.
    """

    design: str
    microseconds: float
    ratio: float
    low: float
    high: float
    whole: float


def measure(
    designs: dict[str, Design], product: Callable[[int], float], items: int, rounds: int
) -> list[Measured]:
    """Time every design, each time right before the bare product of as many queries, so that both
    meet the machine in the same state; the median of all rounds counts.

    `product`: the seconds of the bare product of some queries; `items`: of the whole set.
    """
    found = []
    for name, design in designs.items():
        each, ratios = [], []
        for _ in range(rounds):
            seconds, queries = design()
            # not so few that the clock is coarse, and not so many that it takes long
            multiplied = int(np.clip(queries, 8 * BLOCK, 32 * BLOCK))
            bare = product(multiplied) / multiplied
            each.append(seconds / queries)
            ratios.append(seconds / queries / bare)
        median, ratio = statistics.median(each), statistics.median(ratios)
        found.append(Measured(name, 1e6 * median, ratio, min(ratios), max(ratios), median * items))
    return found


def own_designs(
    vectors: SelectedRows, labels: np.ndarray, share: float, threads: int
) -> dict[str, Design]:
    """hbench with all default metrics, and with those of the finest level, each on a `share` of the
    blocks of queries; labels (N, L)."""
    ranker = Ranker(Side(vectors, labels))
    levels = default_levels(labels.shape[1])
    of_finest = [
        f"{metric}/{levels[-1]}" for metric in ("AP", "mAP@R", "R@1", "R@10", "R@100", "R@1000")
    ]
    # the last block is padded: among a few it would weigh more than among all
    spread = np.linspace(0, max(ranker.blocks - 2, 0), max(1, round(share * ranker.blocks)))
    blocks = np.unique(spread.astype(int)).tolist()

    def design(metrics: list[str] | None) -> Design:
        """An evaluation by these metrics, None for the default ones."""
        chosen = Settings(metrics=metrics).resolve(levels)
        job = Job(ranker, scorers_of(chosen, labels, keeps_last=True))
        # half of the products suffice only for the whole set
        halved = triangle_of(job, plan_of(job), range(ranker.blocks), threads) is not None
        own = range(ranker.blocks) if halved else blocks

        def run() -> tuple[float, int]:
            """Rank the chosen blocks; the values are thrown away."""
            began = time.perf_counter()
            for _values in on_threads(job, own, threads=threads):
                pass
            return time.perf_counter() - began, sum(len(ranker.rows(block)) for block in own)

        return run

    return {"hbench, all metrics": design(None), "hbench, finest level": design(of_finest)}


def peers(
    vectors: np.ndarray, labels: np.ndarray, threads: int, device: torch.device = PROCESSOR
) -> dict[str, Design]:
    """Other packages as far as they are installed, and plain designs in torch, by what each
    computes; on 64 queries, since most are slow. Vectors (N, D), labels (N, L); faiss alone stays
    on the processor, unless it was built for cards."""
    gallery = torch.from_numpy(vectors).to(device)
    columns = torch.from_numpy(labels).to(device)
    fine, queries = columns[:, -1], gallery[:64]

    def timed(function: Callable[[], object], asked: int = 64) -> Design:
        """A design that calls a function, which serves `asked` queries."""

        def run() -> tuple[float, int]:
            """Call it, and wait for the device; a package may have set another number of
            threads."""
            torch.set_num_threads(threads)
            finish(device)
            began = time.perf_counter()
            function()
            finish(device)
            return time.perf_counter() - began, asked

        return run

    def sort_and_gather() -> None:
        """AP of every level as it is often written: sort all scores, then look up what is right."""
        order = torch.argsort(queries @ gallery.T, dim=1, descending=True)
        ranks = torch.arange(1, len(gallery) + 1, device=device)
        for column in columns.T:
            hit = (column[order] == column[:64, None]).double()
            (hit.cumsum(1) / ranks * hit).sum(1) / hit.sum(1)

    found = {
        "torch.argsort, AP of each level": timed(sort_and_gather),
        "torch.topk, top 1000": timed(
            lambda: (queries @ gallery.T).topk(min(1000, len(gallery)), dim=1)
        ),
    }
    with suppress(ImportError):
        faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(threads)
        index, many = faiss.IndexFlatIP(vectors.shape[1]), vectors[: 4 * BLOCK]
        if device.type == "cuda" and hasattr(faiss, "index_cpu_to_all_gpus"):
            index = faiss.index_cpu_to_all_gpus(index)
        index.add(vectors)
        for k in (10, 100, 1000):
            found[f"faiss flat search, top {k}"] = timed(
                lambda k=k: index.search(many, k), len(many)
            )
    with suppress(ImportError):
        calculators = importlib.import_module("pytorch_metric_learning.utils.accuracy_calculator")
        calculator = calculators.AccuracyCalculator(
            include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
            k="max_bin_count",
        )
        of_query = fine[:64]
        found["pytorch-metric-learning, finest"] = timed(
            lambda: calculator.get_accuracy(
                queries, of_query, gallery, fine, ref_includes_query=True
            )
        )
    with suppress(ImportError):
        retrieval = importlib.import_module("torchmetrics.functional.retrieval")

        def each_level() -> None:
            """AP of every level, of 16 queries one by one, as torchmetrics computes it."""
            scores = queries[:16] @ gallery.T
            for column in columns.T:
                for row, own in zip(scores, column[:16], strict=True):
                    retrieval.retrieval_average_precision(row, column == own)

        found["torchmetrics, AP of each level"] = timed(each_level, 16)
    return found


def unit_vectors(items: int) -> np.ndarray:
    """Random vectors (items, DIM) of length 1, float32."""
    vectors = np.random.default_rng(0).standard_normal((items, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def uneven_labels(items: int, nodes: tuple[int, ...]) -> np.ndarray:
    """Nested labels (N, L) whose classes are of uneven size; `nodes`: how many each level has,
    coarse to fine."""
    rng = np.random.default_rng(1)
    weight = rng.lognormal(0, 0.5, nodes[-1])
    leaf = rng.choice(nodes[-1], size=items, p=weight / weight.sum())
    columns = [leaf]
    for above, own in zip(nodes[-2::-1], nodes[:0:-1], strict=True):
        columns.insert(0, (np.sort(rng.integers(above, size=own)))[columns[0]])
    return LabelTree.from_labels(np.stack(columns, axis=1))[1]


def seconds_of_product(vectors: np.ndarray, queries: int, threads: int) -> float:
    """The time of the bare scores of this many queries, in blocks of 256, into one buffer."""
    torch.set_num_threads(threads)
    gallery, scores = torch.from_numpy(vectors), torch.empty(BLOCK, len(vectors))
    torch.mm(gallery[:BLOCK], gallery.T, out=scores)  # touches the buffer
    began = time.perf_counter()
    rounds = -(-queries // BLOCK)
    for turn in range(rounds):
        start = turn * BLOCK % (len(vectors) - BLOCK)
        torch.mm(gallery[start : start + BLOCK], gallery.T, out=scores)
    return (time.perf_counter() - began) * queries / (rounds * BLOCK)


def load_libraries() -> None:
    """Load numba, and what it loads when compiled code is first called, for libraries are not
    counted.
    """
    raise_best(np.zeros(0, np.float32), 0, (np.zeros(0, np.int64),) * 2, np.zeros(1, np.float32))


def peak_memory(*, reset: bool = False) -> float:
    """The process's peak resident memory in MB (Linux), since the start or the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
