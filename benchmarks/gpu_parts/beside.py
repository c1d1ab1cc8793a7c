"""A million items, in shares of queries as the card's memory takes them; and other packages on the
same device and the same set, in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from evaluate import peers

from gpu_parts.rows import LARGE, Row, Sizes, finish, seconds_of
from gpu_parts.sets import uneven_set
from hbench.engine.executors.gpu import on_devices
from hbench.engine.job import Execute, Job

MOST_MEMORY = 3.0  # GiB beyond the vectors
BLOCKS = 24  # of a million's, which are measured: all of them only repeat these


def of_million(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """All default metrics of some queries of a million items of 256 dimensions, beside the bare
    product of the same queries."""
    items, nodes, dim = (1_000_000, (50, 5_000, 100_000), 256)
    if sizes is not LARGE:
        items, nodes, dim = sizes.items * 5, (3, 20, 200), sizes.dim
    data = uneven_set(items, nodes, dim)
    job = data.job()
    # from the middle on: the first blocks are of the classes that come first in the tree
    first = job.ranker.blocks // 2
    numbers = list(range(first, min(first + BLOCKS, job.ranker.blocks)))
    asked = sum(len(job.ranker.rows(number)) for number in numbers)
    product = _seconds_of_product(data.vectors, asked, device)
    execute = on_devices(str(device))
    for _values in execute(job, numbers[:1]):  # warms up
        pass
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for _values in execute(job, numbers):
        pass
    taken = time.perf_counter() - began
    memory = 0.0
    if device.type == "cuda":
        memory = (torch.cuda.max_memory_allocated() - data.vectors.nbytes) / 2**30
    note = (
        f"{asked:,} queries of {items:,} items, {taken / product:.2f} × their product, with the "
        f"vectors' way to the card; all of them would take {taken * items / asked:.0f} s; "
        f"{memory:.1f} GiB beyond the vectors"
    )
    yield Row("a million, GiB beyond vectors", memory, MOST_MEMORY, taken, product, note)


def of_others(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """How long other packages, as far as they are installed, and plain designs in torch take on the
    device for the queries of a set of the size of SOP; most are measured on 64 queries."""
    items, nodes = (60_502, (12, 11_316)) if sizes is LARGE else (sizes.items * 4, (4, 300))
    data = uneven_set(items, nodes, sizes.dim)
    bare = _seconds_of_product(data.vectors, items, device)
    for name, design in peers(data.vectors, data.labels, threads=2, device=device).items():
        design()  # warms up
        finish(device)
        seconds, asked = design()
        whole = seconds * items / asked
        note = (
            f"{asked} queries in {seconds:.3f} s; all {items:,}: {whole / bare:.1f} × the product"
        )
        yield Row(f"beside: {name}", 0.0, 0.0, whole, bare, note)
    if device.type == "cuda":
        job = data.job()
        execute = on_devices(str(device))
        evaluated = partial(_all_blocks, execute, job)
        seconds = seconds_of(evaluated, device, 2)
        note = f"all default metrics of all queries, {seconds / bare:.2f} × the product"
        yield Row("beside: hbench, all metrics", 0.0, 0.0, seconds, bare, note)


def _seconds_of_product(vectors: np.ndarray, asked: int, device: torch.device) -> float:
    """The time of the inner products of the first `asked` vectors with all (N, D), which then leave
    the device."""
    gallery = torch.from_numpy(vectors).to(device)

    def product() -> None:
        for rows in gallery[:asked].split(1024):
            _ = rows @ gallery.T

    return seconds_of(product, device, 2)


def _all_blocks(execute: Execute, job: Job) -> None:
    """Rank and score all queries; the values are thrown away."""
    for _values in execute(job, range(job.ranker.blocks)):
        pass
