"""What grows how: time with the size of the gallery, the parts of a whole process, and 64 workers
as a simulation.

python benchmarks/scale.py exponent          # N = 15k, 30k, 60k, 136k, all pairs; the fitted exponent
python benchmarks/scale.py landmarks         # 1,129 queries, 761,757 items of 2,048 dimensions, three levels
python benchmarks/scale.py process           # `hbench evaluate` on 1,000, 20,000 and 60,000 items, beside the evaluation alone
python benchmarks/scale.py intervals         # of 136,093 queries, 8,142 classes, 20 metrics
python benchmarks/scale.py simulate          # load balance and stragglers; touches no data
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from evaluate import DIM, load_libraries, peak_memory, uneven_labels

from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.evaluation.measurement import Retrieval, job_of, measure, scorers_of
from hbench.metrics.significance import UnitSums, difference_intervals, mean_intervals, sign_flip_p
from hbench.sheets.rows import default_levels

WORKERS, BLOCKS = 64, 3_000
Rows = list[tuple[str, ...]]  # cells: what, then what was measured


def exponent(*, quick: bool) -> Rows:
    """Seconds of a whole evaluation by a sample of its blocks, the best of three rounds over the
    sizes, and the slope of its logarithm."""
    sizes = (1_000, 2_000, 4_000) if quick else (15_000, 30_000, 60_000, 136_000)
    jobs = [
        all_pairs_job(unit_vectors(items, DIM), uneven_labels(items, (12, items // 5)))
        for items in sizes
    ]
    rounds = np.array([[seconds_of_all(job) for job in jobs] for _ in range(4)])
    whole = rounds[1:].min(axis=0)  # the first compiles
    slope = np.polyfit(np.log(sizes), np.log(whole), 1)[0]
    pairs = "; ".join(
        f"{1e9 * seconds / items**2:.1f} ns a pair at {items:,}"
        for items, seconds in ((sizes[0], whole[0]), (sizes[-1], whole[-1]))
    )
    return [
        (
            f"time over N = {sizes[0]:,} … {sizes[-1]:,}, all pairs, d = {DIM}, two levels",
            f"N^{slope:.2f}; {pairs}",
        )
    ]


def seconds_of_all(job: Job) -> float:
    """Return the seconds of all queries, from the time of four blocks."""
    blocks = np.unique(np.linspace(0, job.ranker.blocks - 2, 4).astype(int)).tolist()
    began = time.perf_counter()
    list(on_threads(job, blocks))
    return (time.perf_counter() - began) * job.ranker.blocks / len(blocks)


def landmarks(*, quick: bool) -> Rows:
    """The shape of Google Landmarks v2, in float16 as such files come."""
    queries, items, dim = (100, 5_000, 2_048) if quick else (1_129, 761_757, 2_048)
    labels = uneven_labels(items, (2, 78, items // 13))
    vectors = np.empty((items, dim), np.float16)
    rng = np.random.default_rng(0)
    for start in range(0, items, 1 << 14):
        vectors[start : start + (1 << 14)] = rng.standard_normal(
            (min(1 << 14, items - start), dim), np.float32
        )
    asked = np.sort(rng.choice(items, queries, replace=False))
    test = Retrieval(
        Side(vectors[asked], labels[asked]), Side(vectors, labels), asked, asked.astype(object)
    )
    chosen = Settings().resolve(default_levels(3))
    load_libraries()
    rows = []
    for memory, words in ((None, ""), (2 << 30, ", --max-memory 2G")):
        before, began = peak_memory(reset=True), time.perf_counter()
        job = job_of(test, chosen, memory=memory)
        ready = time.perf_counter()
        measure(job)
        seconds, peak = time.perf_counter() - ready, peak_memory() - before
        found = (
            f"{job.ranker.scores.block_size} queries a block: ordered in {ready - began:.1f} "
            f"s, measured in {seconds:.1f} s"
        )
        rows.append(
            (f"{queries:,} × {items:,} × {dim:,} in float16{words}", f"{found}, {peak:.0f} MB")
        )
        del job
    return rows


def process(*, quick: bool) -> Rows:
    """The seconds of the whole command beside those of the evaluation in it, by the number of
    items."""
    return [process_of(items) for items in ((1_000,) if quick else (1_000, 20_000, 60_000))]


def process_of(items: int) -> tuple[str, str]:
    """The seconds of `hbench evaluate` on so many items in files, and those of the evaluation."""
    labels = uneven_labels(items, (10, items // 10))
    vectors = unit_vectors(items, DIM)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = [f"i{i}" for i in range(items)]
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
        pq.write_table(pa.table({"id": ids, "embedding": flat}), folder / "vectors.parquet")
        names = [np.array([f"{level}{label}" for label in labels[:, level]]) for level in range(2)]
        everyone = np.ones(items, bool)
        columns = {"coarse": names[0], "fine": names[1], "query": everyone, "gallery": everyone}
        pq.write_table(pa.table({"item": ids, **columns}), folder / "set.parquet")
        hbench = [sys.executable, "-m", "hbench", "evaluate"]
        command = [
            *hbench,
            str(folder / "vectors.parquet"),
            "--dataset",
            str(folder / "set.parquet"),
            "--json",
        ]
        each = []
        for _ in range(4):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            each.append(time.perf_counter() - began)
    alone = []
    for _ in range(3):  # the first loads the compiled code
        began = time.perf_counter()
        measure(all_pairs_job(vectors, labels))
        alone.append(time.perf_counter() - began)
    return (
        f"`hbench evaluate` as a process, {items:,} items",
        f"{min(each[1:]):.1f} s; the evaluation in it {min(alone[1:]):.1f} s",
    )


def intervals(*, quick: bool) -> Rows:
    """The seconds of the intervals and of the sign-flip test of a large test."""
    queries = 1_000 if quick else 136_093
    rng = np.random.default_rng(0)
    values, units = rng.random((20, queries)), rng.integers(8_142, size=queries)
    began = time.perf_counter()
    mean_intervals(UnitSums.of(values, units))
    sums = UnitSums.of(values - values[::-1], units)
    difference_intervals(sums), sign_flip_p(sums)
    what = f"intervals and paired tests of {queries:,} queries of 8,142 classes and 20 metrics"
    return [(what, f"{time.perf_counter() - began:.1f} s")]


def simulate(*, quick: bool) -> Rows:
    """How long 64 workers take, as a multiple of an even share, when blocks are tasks and when each
    has a fixed part.

    A block's cost: the product, plus what its queries' positives cost, in the measured proportions.
    A worker's speed is lognormal (σ = 0.1, neighbours on the same host); some run at a quarter, as
    a throttled or shared machine does.
    """
    del quick  # it takes no time
    rng = np.random.default_rng(0)
    # (blocks,): how many positives their queries have, in the order of the classes
    share = np.repeat(np.sort(rng.dirichlet(np.full(12, 1.5))), BLOCKS // 12 + 1)[:BLOCKS]
    cost = 1 + 0.35 + 1.6 * share  # the product is 1
    rows: Rows = []
    for slow in (0, 1, 4, 8):
        speed = rng.lognormal(0, 0.1, WORKERS)
        speed[:slow] /= 4
        even = cost.sum() / speed.sum()
        parts = [
            part.sum() / own for part, own in zip(np.array_split(cost, WORKERS), speed, strict=True)
        ]
        rows.append((str(slow), f"{tasks(cost, speed) / even:.2f}", f"{max(parts) / even:.2f}"))
    return rows


def tasks(cost: np.ndarray, speed: np.ndarray) -> float:
    """When the last worker ends, each taking the next block as soon as it is free: `cost` (blocks,)
    at the `speed` (workers,) of each."""
    free = [(0.0, worker) for worker in range(len(speed))]
    for block in cost:
        ended, worker = heapq.heappop(free)
        heapq.heappush(free, (ended + block / speed[worker], worker))
    return max(ended for ended, _ in free)


def all_pairs_job(vectors: np.ndarray, labels: np.ndarray) -> Job:
    """Rank all items among themselves: vectors (N, D), labels (N, L)."""
    chosen = Settings().resolve(default_levels(labels.shape[1]))
    return Job(Ranker(Side(vectors, labels)), scorers_of(chosen, labels, keeps_last=True))


def unit_vectors(items: int, dim: int) -> np.ndarray:
    """Random vectors (items, dim) of length 1."""
    vectors = np.random.default_rng(0).standard_normal((items, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = {each.__name__: each for each in (exponent, landmarks, process, intervals, simulate)}
    parser.add_argument("what", choices=what)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", action="store_true", help="as JSON, for benchmarks/tables.py")
    options = parser.parse_args()
    rows = what[options.what](quick=options.quick)
    print(json.dumps(rows) if options.json else "\n".join(": ".join(row) for row in rows))
