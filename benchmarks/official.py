"""Compares hbench with a clone of the released code of HAPPIER: the same vectors, its evaluator and
its loss, values and times.

    git clone https://github.com/elias-ramzi/HAPPIER
    python benchmarks/official.py HAPPIER                    # needs its requirements: faiss, pytorch-metric-learning, hydra

hbench evaluates under `--protocol official`, which reproduces that evaluator; the difference is the
largest over all metrics. The loss takes batches with the settings for Stanford Online Products; the
difference is that of the gradients. torch has no derivative for the released loss's step function,
so it is set to 0 here, as it is almost everywhere. Both run on the processor.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from losses import batch
from peers import sample
from torch import Tensor

import hbench
from hbench.losses import build_loss

LEVELS = 2
STEP = {"tau": 0.01, "rho": 100.0, "offset": 1.44, "delta": 0.05, "start": 0.5}  # HAPPIER_SOP.yaml
NAMES = {  # of metrics, theirs and hbench's
    "H-AP_multi": "H-AP",
    "NDCG_multi": "NDCG",
    "ASI_multi": "ASI",
    "AP_level0": "AP",
    "AP_level1": "AP/level1",
    "mAP@R_level0": "mAP@R",
    "R@1_level0": "R@1",
    "R@10_level0": "R@10",
    "R@1_level1": "R@1/level1",
}


class Timed(NamedTuple):
    """The seconds that something took, and what it returned."""

    seconds: float
    value: Any


def main() -> None:
    """Print a line per size of the evaluator, then of the loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path, help="the folder of the clone")
    parser.add_argument("--items", type=int, nargs="+", default=[2000, 10000])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not (options.clone / "happier").is_dir():
        parser.error(f"{options.clone} is not a clone of HAPPIER: it has no folder happier")
    sys.path.insert(0, str(options.clone))
    os.environ["TQDM_DISABLE"] = "1"
    logging.disable(logging.INFO)
    torch.set_num_threads(options.threads)
    print("| what | size | released, seconds | hbench, seconds | times | largest difference |")
    print("|---|---|---|---|---|---|")
    for items in options.items:
        print(line("evaluation", items, *evaluations(items, options.threads)), flush=True)
    for size in options.batches:
        print(line("loss, forward and backward", size, *losses(size)), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory of this process {peak:.1f} GB")


def line(what: str, size: int, theirs: Timed, ours: Timed) -> str:
    """A line of the table from the seconds and the values of both."""
    difference = float(np.abs(np.asarray(theirs.value) - np.asarray(ours.value)).max())
    cells = [
        what,
        f"{size:,}",
        f"{theirs.seconds:.3f}",
        f"{ours.seconds:.3f}",
        f"{theirs.seconds / ours.seconds:.1f}",
        f"{difference:.0e}",
    ]
    return f"| {' | '.join(cells)} |"


def timed(function: Callable[[], Any], rounds: int) -> Timed:
    """The median seconds of a few rounds, after one that loads and compiles, and the last value."""
    value = function()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        value = function()
        seconds.append(time.perf_counter() - began)
    return Timed(statistics.median(seconds), value)


def evaluations(items: int, threads: int) -> tuple[Timed, Timed]:
    """Their evaluator and hbench's, on vectors in memory."""
    engine: Any = importlib.import_module("happier.engine")
    vectors, labels = sample(items)
    features = torch.from_numpy(vectors)
    targets = torch.from_numpy(labels[:, ::-1].copy())  # theirs begin with the finest
    calculator = engine.AccuracyCalculator(compute_for_hierarchy_levels=[0, 1], recall_rate=[1, 10])

    def theirs() -> list[float]:
        """The values of their evaluator, in the order of NAMES."""
        relevances = released_relevances(engine, targets)
        found = calculator.batch_metrics(features, targets, True, relevances)
        return [float(found[name]) for name in NAMES]

    def ours() -> list[float]:
        """The same values by hbench."""
        report = hbench.score(
            vectors, labels, metrics=list(NAMES.values()), protocol="official", threads=threads
        )
        return [float(report.scores[name]) for name in NAMES.values()]

    return timed(theirs, 1), timed(ours, 3)


def released_relevances(engine: Any, targets: Tensor) -> Tensor:
    """The relevances of all items for all queries, batch by batch as their datasets compute them;
    targets (N, L)."""
    parts = []
    for rows in targets.split(256):
        levels = (rows[:, None] == targets[None]).sum(-1)
        parts.append(
            engine.relevance_for_batch(
                levels, alpha=1.0, check_for=set(range(LEVELS + 1)), type="pop"
            )
        )
    return torch.cat(parts)


def losses(size: int) -> tuple[Timed, Timed]:
    """Their loss of H-AP and hbench's, forward and backward; the values are the gradients."""
    engine: Any = importlib.import_module("happier.engine")
    released: Any = importlib.import_module("happier.losses")
    vectors, labels = batch(size, LEVELS)
    module: Any = importlib.import_module("happier.losses.hap_loss")
    # without a derivative, which torch lacks for it
    module.heaviside = lambda tensor, val=1.0, **_: torch.heaviside(
        tensor.detach(), tensor.new_tensor(val)
    )
    loss_there = released.HAPLoss(**STEP)
    loss_here = build_loss("sup_hap", **STEP, released=True)

    def relevance(levels: Tensor) -> Tensor:
        """Their relevance of items by the levels that they share with the query."""
        found: Tensor = engine.compute_relevance_on_the_fly(
            levels, alpha=1.0, check_for={LEVELS}, type="pop"
        )
        return found

    def gradient(loss: Callable[[Tensor], Tensor]) -> np.ndarray[Any, Any]:
        """The gradient of a loss of the vectors, (B, D)."""
        inputs = vectors.clone().requires_grad_()
        loss(inputs).backward()
        assert inputs.grad is not None
        return inputs.grad.numpy()

    targets = labels.flip(1)
    theirs = timed(lambda: gradient(lambda inputs: loss_there(inputs, targets, relevance)), 3)
    return theirs, timed(lambda: gradient(lambda inputs: loss_here(inputs, labels)), 3)


if __name__ == "__main__":
    main()
