"""What grows how: time with the size of the gallery, the parts of a whole process, and 64 workers as a simulation.

python benchmarks/scale.py exponent          # N = 15k, 30k, 60k, 136k, all pairs; the fitted exponent
python benchmarks/scale.py landmarks         # 1,129 queries, 761,757 items of 2,048 dimensions, three levels
python benchmarks/scale.py process           # `hbench evaluate` on 1,000, 20,000 and 60,000 items, beside the evaluation alone
python benchmarks/scale.py bootstrap         # 2,000 resamples of 136,093 queries, 20 metrics
python benchmarks/scale.py simulate          # load balance and stragglers; touches no data
"""

from __future__ import annotations

import argparse
import heapq
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
from hbench.engine.job import Job, conditions
from hbench.engine.measure import measure
from hbench.engine.ranker import Ranker, Side
from hbench.evaluation.measurement import Retrieval, job_of, scorers_of
from hbench.metrics.significance import mean_of_tests_interval
from hbench.tree import default_levels

WORKERS = 64


def exponent() -> None:
    """Seconds of a whole evaluation by a sample of its blocks, the best of three rounds over the sizes, and the slope of its
    logarithm."""
    sizes = (15_000, 30_000, 60_000, 136_000)
    jobs = [all_pairs_job(unit_vectors(items, DIM), uneven_labels(items, (12, items // 5))) for items in sizes]
    rounds = np.array([[seconds_of_all(job) for job in jobs] for _ in range(4)])
    whole = rounds[1:].min(axis=0)  # the first compiles
    for items, seconds in zip(sizes, whole, strict=True):
        print(f"N = {items:>7,}: {1e6 * seconds / items:7.0f} µs/query, whole {seconds:7.1f} s")
    print(f"time ~ N^{np.polyfit(np.log(sizes), np.log(whole), 1)[0]:.2f}")


def seconds_of_all(job: Job) -> float:
    """Of all queries, by the time of four blocks."""
    blocks = np.unique(np.linspace(0, job.ranker.blocks - 2, 4).astype(int)).tolist()
    began = time.perf_counter()
    list(on_threads(job, blocks))
    return (time.perf_counter() - began) * job.ranker.blocks / len(blocks)


def landmarks() -> None:
    """The shape of Google Landmarks v2, in float16 as such files come."""
    queries, items, dim = 1_129, 761_757, 2_048
    labels = uneven_labels(items, (2, 78, 55_000))
    vectors = np.empty((items, dim), np.float16)
    rng = np.random.default_rng(0)
    for start in range(0, items, 1 << 14):
        vectors[start : start + (1 << 14)] = rng.standard_normal((min(1 << 14, items - start), dim), np.float32)
    asked = np.sort(rng.choice(items, queries, replace=False))
    test = Retrieval(Side(vectors[asked], labels[asked]), Side(vectors, labels), asked, asked.astype(object))
    chosen = conditions(default_levels(3))
    load_libraries()
    print(f"{queries:,} × {items:,} × {dim:,} in float16")
    for memory in (None, 2 << 30):
        before, began = peak_memory(reset=True), time.perf_counter()
        job = job_of(test, chosen, memory=memory)
        ready = time.perf_counter()
        measure(job)
        seconds, peak = time.perf_counter() - ready, peak_memory() - before
        block = job.ranker.scores.block_size
        print(
            f"  {block} queries in a block: ordered in {ready - began:.1f} s, measured in {seconds:.1f} s, {peak:.0f} MB"
        )
        del job


def process() -> None:
    """The whole command beside the evaluation in it."""
    for items in (1_000, 20_000, 60_000):
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
            command = [*hbench, str(folder / "vectors.parquet"), "--dataset", str(folder / "set.parquet"), "--json"]
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
        whole = f"{min(each[1:]):.2f} s (first {each[0]:.2f} s)"
        print(
            f"{items:,} items: whole process {whole}, evaluation alone {min(alone[1:]):.2f} s (first {alone[0]:.2f} s)"
        )


def bootstrap() -> None:
    """The intervals of a large test."""
    values = np.random.default_rng(0).random((20, 136_093))
    began = time.perf_counter()
    mean_of_tests_interval([values])
    print(f"20 metrics × 136,093 queries, 2,000 resamples: {time.perf_counter() - began:.2f} s")


def simulate() -> None:
    """How long 64 workers take, as a multiple of an even share, when blocks are tasks and when each has a fixed part.

    A block's cost: the product, plus what its queries' positives cost, in the measured proportions. A worker's speed is
    lognormal (σ = 0.1, neighbours on the same host); some run at a quarter, as a throttled or shared machine does.
    """
    rng = np.random.default_rng(0)
    share = np.repeat(np.sort(rng.dirichlet(np.full(12, 1.5))), 3_000 // 12 + 1)[
        :3_000
    ]  # of positives, canonical order
    cost = 1 + 0.35 + 1.6 * share
    print(f"{'slow workers':>14}{'blocks as tasks':>18}{'fixed parts':>14}   (64 workers, {len(cost):,} blocks)")
    for slow in (0, 1, 4, 8):
        speed = rng.lognormal(0, 0.1, WORKERS)
        speed[:slow] /= 4
        even = cost.sum() / speed.sum()
        parts = [part.sum() / own for part, own in zip(np.array_split(cost, WORKERS), speed, strict=True)]
        print(f"{slow:>14}{tasks(cost, speed) / even:>18.2f}{max(parts) / even:>14.2f}")


def tasks(cost: np.ndarray, speed: np.ndarray) -> float:
    """When the last worker ends, each taking the next block as soon as it is free."""
    free = [(0.0, worker) for worker in range(len(speed))]
    for block in cost:
        ended, worker = heapq.heappop(free)
        heapq.heappush(free, (ended + block / speed[worker], worker))
    return max(ended for ended, _ in free)


def all_pairs_job(vectors: np.ndarray, labels: np.ndarray) -> Job:
    chosen = conditions(default_levels(labels.shape[1]))
    return Job(Ranker(Side(vectors, labels)), scorers_of(chosen, labels, all_pairs=True))


def unit_vectors(items: int, dim: int) -> np.ndarray:
    vectors = np.random.default_rng(0).standard_normal((items, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = {each.__name__: each for each in (exponent, landmarks, process, bootstrap, simulate)}
    parser.add_argument("what", choices=what)
    what[parser.parse_args().what]()
