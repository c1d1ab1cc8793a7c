"""Checks and times on a GPU what hbench computes there, and prints one table. On a machine without
one it says so, and checks losses and training through torch's processor device; the kernels that
rank are checked by the tests, in a simulator.

    python benchmarks/gpu.py                   # about seven minutes on a GPU
    python benchmarks/gpu.py --quick           # small sizes, for a look
    python benchmarks/gpu.py --out DIR         # also gpu.json and gpu.md
    python benchmarks/gpu.py --parts losses    # only some: similarities views sets losses training speed million others

similarities every similarity, all metrics: the device's values against the processors'
views        items of several paths, listed pairs, other trees, names as queries: against the processors' threads
sets         sets of the size of SOP and iNaturalist, whole and with partial labels: values, ranks, kept blocks; time beside the
             processors' and beside the bare matrix product; what the device does with its time
losses       value and gradient in float32 on the device against float64 on the processor, under autocast and compiled; time
training     a step on the device against the processor's, in two passes, compiled, under DistributedDataParallel; a run that is
             resumed; two processes that share the device
speed        training and embedding beside a bare loop with the same net, loss and optimiser; decoding by numbers of workers
million      some queries of a million items: time beside their product, and memory beyond the vectors
others       torch's sort and top 1,000, faiss, pytorch-metric-learning and torchmetrics on the set of SOP's size, beside hbench

A check that fails for another reason than its difference is a line of the table, too; the others go
on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from gpu_parts.beside import of_million, of_others
from gpu_parts.of_losses import of_losses
from gpu_parts.ranking import of_sets, of_similarities
from gpu_parts.rows import LARGE, QUICK, SMALL, Row, Sizes, failed
from gpu_parts.speed import of_speed
from gpu_parts.training import of_training
from gpu_parts.views import of_views

import hbench
from hbench.core import compiled
from hbench.losses import cpu_lists

PARTS = {
    "similarities": of_similarities,
    "views": of_views,
    "sets": of_sets,
    "losses": of_losses,
    "training": of_training,
    "speed": of_speed,
    "million": of_million,
    "others": of_others,
}


def guarded(name: str, sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """The rows of a part; one more where it ended in an error."""
    try:
        yield from PARTS[name](sizes, device)
    except Exception as error:
        yield failed(f"part {name}", error)


OF_CARDS = {"similarities", "views", "sets", "million"}  # parts that need a GPU
HEAD = f"| {'check':<28} | difference | allowed |       | seconds | bare    | note |\n|{'---|' * 7}"


def line(row: Row) -> str:
    """A row as Markdown."""
    times = [
        f"{value:7.4f}" if math.isfinite(value) else "      -" for value in (row.seconds, row.bare)
    ]
    verdict = "ok   " if row.is_good else "APART"
    return (
        f"| {row.what:<28} | {row.difference:10.1e} | {row.allowed:7.0e} | {verdict} | "
        f"{' | '.join(times)} | {row.note} |"
    )


def write(folder: Path, title: str, rows: Sequence[Row]) -> None:
    """The table so far, as JSON and as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(
        json.dumps({"title": title, "rows": [row._asdict() for row in rows]}, indent=1)
    )
    (folder / "gpu.md").write_text("\n".join([title, "", HEAD, *map(line, rows), ""]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    where = "no GPU here: torch's processor device in its place"
    if has_gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        where = torch.cuda.get_device_name(device)
    title = (
        f"hbench {hbench.__version__}, torch {torch.__version__}, {where}, {os.cpu_count()} "
        "processors"
    )
    print(title, flush=True)
    # threads go by the kernels, whose last bits are the device's, however few the items
    compiled.MIN_COMPILED = -1
    if not has_gpu:
        print("Losses and training are checked alike; the times say nothing about a GPU.")
        # no compiled kernels of the processor: the losses as they are on any other device
        cpu_lists.MOST_ITEMS = 0
    sizes = LARGE if has_gpu else SMALL
    if chosen.quick:
        sizes = QUICK
    parts = [part for part in chosen.parts if has_gpu or part not in OF_CARDS]
    print(f"\n{HEAD}")
    rows: list[Row] = []
    for part in parts:
        began = time.perf_counter()
        for row in guarded(part, sizes, device):
            rows.append(row)
            print(line(row), flush=True)
            if chosen.out:
                write(chosen.out, title, rows)
        print(f"{part}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    bad = sum(not row.is_good for row in rows)
    print(f"\n{bad} of the checks are apart" if bad else "\nall agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
