"""Value, gradient difference, time and peak memory of the losses beside their plain dense form, in
one run.

    python benchmarks/losses.py                # the table, about half an hour on one core
    python benchmarks/losses.py --quick        # B = 64 and 128, short sequences
    python benchmarks/losses.py --threads 2

Each measurement runs in a process of its own, so that its peak memory is its own; times are the
best of at least three runs and two seconds, in each of three rounds over the paths, since
neighbours on a shared machine come and go by the minute; and with one thread processor time, which
other work on the machine stretches less.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from losses_dense import dense_ap_sequence, dense_loss
from torch import Tensor

from hbench.losses import build_loss, cpu_lists
from hbench.losses.baselines.blackbox import chosen_ranks

DIM = 512
SECONDS = 2.0  # at least, of runs whose best is taken: neighbours on a shared machine come and go
ROUNDS = 3
RANK_LOSSES = [
    f"{family}_{score}" for score in ("hap", "ap", "ndcg", "recall") for family in ("sup", "smooth")
]


def batch(size: int, depth: int, references: int = 0) -> tuple[Tensor, ...]:
    """Normalised vectors (B, D) around the classes of a tree, and their labels (B, L): four per
    class; twelve super-categories as SOP has, or halves upwards. `references`: of as many more, the
    vectors and labels follow.
    """
    generator = torch.Generator().manual_seed(0)
    classes = (size + references) // 4
    paths = torch.arange(classes)[:, None].repeat(1, depth)
    for level in range(depth - 2, -1, -1):
        groups = 12 if depth == 2 else max(2, int(paths[:, level + 1].max() + 1) // 2)
        paths[:, level] = paths[:, level + 1] * groups // (int(paths[:, level + 1].max()) + 1)
    centres = torch.zeros(classes, DIM)
    for level in range(depth):
        centres += (
            torch.randn(int(paths[:, level].max()) + 1, DIM, generator=generator)[paths[:, level]]
            / depth**0.5
        )
    vectors = centres.repeat_interleave(4, 0) + 3 * torch.randn(
        classes * 4, DIM, generator=generator
    )
    shuffled = torch.randperm(classes * 4, generator=generator)
    vectors = torch.nn.functional.normalize(vectors[shuffled])
    labels = paths.repeat_interleave(4, 0)[shuffled]
    if references:
        return vectors[:size], labels[:size], vectors[size:], labels[size:]
    return vectors, labels


def peak_of(run: Callable[[], float]) -> tuple[float, int]:
    """Call `run`; return its value, and by how much the process's resident memory was larger than
    before, at most, in bytes: another thread looks every millisecond.
    """
    page = resource.getpagesize()
    done = threading.Event()

    def resident() -> int:
        """The memory of the process that is in RAM, in bytes."""
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * page

    before = resident()
    highest = 0

    def watch() -> None:
        """Keep the highest one until `run` is done."""
        nonlocal highest
        while not done.wait(0.001):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    value = run()
    done.set()
    watcher.join()
    return value, max(0, highest - before)


def measure(what: str, size: int, depth: int, path: str, repeats: int) -> dict[str, object]:
    """Measure one loss: value, milliseconds, bytes, and the file of its gradient.

    Args:
        what: the name of the loss; "xbm": sup_hap of 256 queries among `size` references.
        size: of the batch; of rambo_ap, the length of a sequence.
        depth: levels of the labels.
        path: "dense" (plain form), "general" (hbench on any device) or "kernel" (hbench).
        repeats: the least number of runs.
    """
    if path == "general":
        cpu_lists.MOST_ITEMS = 0  # nothing fits the kernel, as on another device
    if what == "rambo_ap":
        return measure_sequence(size, path, repeats)
    if what == "xbm_pairs":
        return measure_memory(size, repeats)
    data = batch(256, depth, size) if what == "xbm" else batch(size, depth)
    loss = build_loss("sup_hap" if what == "xbm" else what) if path != "dense" else None
    leaf = data[0].clone().requires_grad_()

    def run() -> float:
        """Value and gradient once."""
        leaf.grad = None
        value = dense_loss(what, leaf, data[1]) if loss is None else loss(leaf, *data[1:])
        value.backward()
        return value.item()

    return timed(run, repeats, lambda: leaf.grad)


def measure_memory(size: int, repeats: int) -> dict[str, object]:
    """Measure XBM's step of 128 against its full memory, as it replaces its oldest entries."""
    embeddings, labels, memory, of_memory = batch(128, 2, size)
    loss = build_loss("xbm", loss="xbm_pairs", size=size)
    with torch.no_grad():
        for part in torch.arange(size).split(1024):
            loss(memory[part], of_memory[part])
    leaf = embeddings.clone().requires_grad_()

    def run() -> float:
        """Value and gradient once."""
        leaf.grad = None
        value = loss(leaf, labels)
        value.backward()
        return value.item()

    return timed(run, repeats, lambda: leaf.grad)


def measure_sequence(length: int, path: str, repeats: int) -> dict[str, object]:
    """Measure the AP of one sequence with 5 % positives on black-box ranks."""
    generator = torch.Generator().manual_seed(0)
    positive = torch.rand(length, generator=generator) < 0.05
    leaf = (torch.randn(length, generator=generator) + positive).requires_grad_()

    def run() -> float:
        """Value and gradient once."""
        leaf.grad = None
        if path == "dense":
            value = dense_ap_sequence(leaf, positive, lam=4.0 * length)
        else:
            rank, within, _ = chosen_ranks(leaf[None], 4.0 * length, positive[None])
            value = 1 - (within / rank).mean()
        value.backward()
        return value.item()

    return timed(run, repeats, lambda: leaf.grad)


def timed(
    run: Callable[[], float], repeats: int, gradient: Callable[[], Tensor | None]
) -> dict[str, object]:
    """Value, milliseconds and bytes of a run, and the file of its gradient, which is read in
    another process. What is run once alone is large: it is neither warmed up nor repeated."""
    small = repeats > 1
    if small:
        run()
    value, memory = peak_of(run)
    # processor time is stretched less by other work, but adds up over threads
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = []
    while len(times) < repeats or (small and sum(times) < SECONDS):
        start = clock()
        run()
        times.append(clock() - start)
    saved = Path(f"/tmp/hbench-benchmark-{time.time_ns()}.pt")
    torch.save(gradient(), saved)
    return {"value": value, "ms": min(times) * 1e3, "bytes": memory, "gradient": str(saved)}


def in_process(*arguments: object) -> dict[str, object]:
    """What `measure` says, in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    path = Path(result["gradient"])
    result["gradient"] = torch.load(path, weights_only=True)
    path.unlink()
    return result


def row(what: str, size: int, depth: int, threads: int, paths: tuple[str, ...]) -> None:
    """One line per path: value, difference of value and relative difference of gradient from the
    first, time, memory, ratio.
    """
    found_of: dict[str, dict[str, object]] = {}
    for _round in range(ROUNDS if len(paths) > 1 else 1):
        for path in paths:
            repeats = 1 if path == "dense" and size > 256 else 3
            found = in_process(what, size, depth, path, repeats, threads)
            found_of[path] = min(found, found_of.get(path, found), key=lambda each: each["ms"])
    first = found_of[paths[0]]
    for path, found in found_of.items():
        reference, gradient = first["gradient"], found["gradient"]
        difference = ((gradient - reference).norm() / reference.norm()).item()
        print(
            f"{what:<14}{size:>9} L={depth} {path:<8} value {found['value']:.7f}  Δvalue "
            f"{found['value'] - first['value']:+.1e}"
            f"  Δgradient {difference:.1e} {found['ms']:>10.2f} ms {found['bytes'] / 1e6:>9.1f} MB"
            f"  ×{first['ms'] / found['ms']:.1f}",
            flush=True,
        )


def main() -> None:
    """Print a line for every measurement or, with --one, make a single one and print it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="hap, others, large, memory, rambo")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        what, size, depth, path, repeats, threads = given.one
        torch.set_num_threads(int(threads))
        print(json.dumps(measure(what, int(size), int(depth), path, int(repeats))))
        return
    every, sizes = ("dense", "general", "kernel"), (64, 128) if given.quick else (256, 512)
    parts: dict[str, list[tuple[str, int, int, tuple[str, ...]]]] = {
        "hap": [("sup_hap", size, depth, every) for size in sizes for depth in (2, 7)],
        "others": [(name, sizes[0], 2, every) for name in RANK_LOSSES[1:]],
        "large": [("sup_hap", 512 if given.quick else 4096, depth, ("kernel",)) for depth in (2, 7)]
        + [("xbm", 4000 if given.quick else 60_000, 2, ("kernel",))],
        "memory": [("roadmap", 128, 2, ("kernel",)), ("roadmap", 256, 2, ("kernel",))]
        + [("xbm_pairs", length, 2, ("kernel",)) for length in (1024, 10_000, 59_552)],
        "rambo": [
            ("rambo_ap", 10**power, 1, ("dense", "kernel"))
            for power in ((4, 5) if given.quick else (5, 6, 7))
        ],
    }
    for part, rows in parts.items():
        for what, size, depth, paths in rows if given.only in {None, part} else []:
            row(what, size, depth, given.threads, paths)


if __name__ == "__main__":
    main()
