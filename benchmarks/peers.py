"""Compares hbench with other packages on one file: the same metrics, each package in a process of
its own.

Items are drawn around the centres of their classes (two levels, 128 dimensions) and ranked among
themselves by cosine; the metrics are those of the finest level that a package has. Reported are the
seconds of the metrics alone (imports and reading left out), the peak memory beyond both, and the
largest difference from hbench's values. A package that needs more than `--limit` gigabytes or
`--timeout` seconds is left out there. `--python PACKAGE=PATH` runs a package by the Python of
another environment, such as one with numpy below 2.

    python benchmarks/peers.py --items 2000 10000 60000 --python oml=/envs/oml/bin/python
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

DIM, PER_CLASS, GENERA = 128, 10, 8
Values = dict[str, float]  # by the names that hbench gives to metrics
Arrays = np.ndarray[Any, Any]

# The functions below are called as their package is, and measure by it: of vectors (N, D) of length
# 1, labels (N, 2), coarse to fine, and a number of threads.


def hbench(vectors: Arrays, labels: Arrays, threads: int) -> Values:
    """Our own values, to which the others are compared."""
    import hbench as package

    names = ["R@1", "R@10", "AP", "mAP@R", "P@R", "MRR", "NDCG", "H-AP"]
    report = package.score(vectors, labels, metrics=names, threads=threads)
    return {name: float(report.scores[name]) for name in names}


def pytorch_metric_learning(vectors: Arrays, labels: Arrays, threads: int) -> Values:
    """Its accuracy calculator, over all other items as neighbours."""
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    names = {
        "precision_at_1": "R@1",
        "mean_average_precision": "AP",
        "mean_average_precision_at_r": "mAP@R",
        "r_precision": "P@R",
        "mean_reciprocal_rank": "MRR",
    }
    calculator = AccuracyCalculator(
        include=tuple(names),
        k=len(vectors) - 1,
        knn_func=CustomKNN(CosineSimilarity(), batch_size=256),
    )
    found = calculator.get_accuracy(vectors, labels[:, -1])
    return {ours: float(found[theirs]) for theirs, ours in names.items()}


def torchmetrics(vectors: Arrays, labels: Arrays, threads: int) -> Values:
    """Its retrieval metrics, which take all pairs of a query and an item as one long list."""
    import torch
    from torchmetrics.retrieval import (
        RetrievalMAP,
        RetrievalMRR,
        RetrievalNormalizedDCG,
        RetrievalRPrecision,
    )

    scores = (torch.from_numpy(vectors @ vectors.T) + 1) / 2  # there 0 or less is not retrieved
    fine = torch.from_numpy(labels[:, -1])
    others = ~torch.eye(len(vectors), dtype=torch.bool)
    queries = torch.arange(len(vectors)).repeat_interleave(len(vectors) - 1)
    of_pairs = scores[others]  # (N · (N − 1),), as the next two
    is_positive = (fine[:, None] == fine)[others]
    metrics = {
        "AP": RetrievalMAP(),
        "MRR": RetrievalMRR(),
        "P@R": RetrievalRPrecision(),
        "binary NDCG": RetrievalNormalizedDCG(),
    }
    return {
        name: float(metric(of_pairs, is_positive, indexes=queries))
        for name, metric in metrics.items()
    }


def ranx(vectors: Arrays, labels: Arrays, threads: int) -> Values:
    """Its evaluation, which takes dictionaries of texts: positives and scores by query."""
    from ranx import Qrels, Run, evaluate

    scores, fine = vectors @ vectors.T, labels[:, -1]
    ids = [str(item) for item in range(len(vectors))]
    relevant: dict[str, dict[str, int]] = {}
    results: dict[str, dict[str, float]] = {}
    for query, row in enumerate(scores):
        positives = np.flatnonzero(fine == fine[query])
        relevant[ids[query]] = {ids[item]: 1 for item in positives if item != query}
        results[ids[query]] = {
            ids[item]: float(score) for item, score in enumerate(row) if item != query
        }
    names = {
        "map": "AP",
        "mrr": "MRR",
        "r-precision": "P@R",
        "hit_rate@1": "R@1",
        "hit_rate@10": "R@10",
    }
    found = evaluate(Qrels(relevant), Run(results), list(names), threads=threads)
    return {ours: float(found[theirs]) for theirs, ours in names.items()}


def faiss(vectors: Arrays, labels: Arrays, threads: int) -> Values:
    """Search the first results alone: R@k and mAP@R need no more."""
    import faiss as package

    package.omp_set_num_threads(threads)
    fine = labels[:, -1]
    index = package.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    first = max(10, int(np.bincount(fine).max()))
    _, neighbours = index.search(vectors, first + 1)
    itself = neighbours == np.arange(len(vectors))[:, None]
    # of an item that is not among its own neighbours, as copies may come first, the last one goes
    itself[:, -1] |= ~itself.any(axis=1)
    right = fine[neighbours[~itself].reshape(len(vectors), first)] == fine[:, None]  # (N, first)
    positives = np.bincount(fine)[fine] - 1  # (N,), without the item itself
    inside = right & (np.arange(first) < positives[:, None])  # among the first R
    precision = np.cumsum(right, axis=1) / np.arange(1, first + 1)
    return {
        "R@1": float(right[:, 0].mean()),
        "R@10": float(right[:, :10].any(axis=1).mean()),
        "mAP@R": float(((precision * inside).sum(axis=1) / positives).mean()),
        "P@R": float((inside.sum(axis=1) / positives).mean()),
    }


def oml(vectors: Arrays, labels: Arrays, threads: int) -> Values:
    """Its metrics of retrieval, which take the sorted items of every query."""
    import torch
    from oml.functional.metrics import calc_retrieval_metrics

    distances = torch.from_numpy(1 - vectors @ vectors.T)
    fine = torch.from_numpy(labels[:, -1])
    retrieved, right = [], []
    # infinitely far from itself, each item comes last in its own list, and is cut off
    order = distances.fill_diagonal_(float("inf")).argsort(dim=1)[:, :-1]
    for query, row in enumerate(order):
        retrieved.append(row)
        positive = fine == fine[query]
        positive[query] = False
        right.append(torch.nonzero(positive).flatten())
    found = calc_retrieval_metrics(
        retrieved_ids=retrieved,
        gt_ids=right,
        cmc_top_k=(1, 10),
        precision_top_k=(),
        map_top_k=(len(vectors) - 1,),
    )
    average = next(iter(found["map"].values()))
    return {"R@1": float(found["cmc"][1]), "R@10": float(found["cmc"][10]), "AP": float(average)}


PACKAGES: dict[str, tuple[str, Callable[[Arrays, Arrays, int], Values]]] = {
    "hbench": ("hbench", hbench),
    "faiss": ("faiss-cpu", faiss),
    "pytorch_metric_learning": ("pytorch-metric-learning", pytorch_metric_learning),
    "oml": ("open-metric-learning", oml),
    "torchmetrics": ("torchmetrics", torchmetrics),
    "ranx": ("ranx", ranx),
}


def sample(items: int) -> tuple[Arrays, Arrays]:
    """Draw unit vectors (N, D) float32 around the centres of their classes, and labels (N, 2),
    coarse to fine.
    """
    rng = np.random.default_rng(0)
    fine = np.arange(items) // PER_CLASS
    classes = np.arange(fine[-1] + 1)
    of_classes = rng.normal(size=(len(classes), DIM))
    of_coarse = rng.normal(size=(classes[-1] // GENERA + 1, DIM))
    centres = of_classes + of_coarse[classes // GENERA]
    vectors = (centres[fine] + 1.2 * rng.normal(size=(items, DIM))).astype(np.float32)
    labels = np.stack([fine // GENERA, fine], axis=1)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


def measured_here(name: str, path: str, threads: int, limit: float) -> dict[str, Any]:
    """Run a package on a file of vectors and labels, after a small run that loads and compiles what
    it needs; `limit`: gigabytes that it may take, beyond which it fails to allocate more."""
    with np.load(path) as file:
        vectors, labels = file["vectors"], file["labels"]
    package, function = PACKAGES[name]
    with suppress(ImportError):
        import torch

        torch.set_num_threads(threads)
    few = np.arange(400)
    function(vectors[few], labels[few], threads)
    if name == "hbench":
        function(vectors[:5000], labels[:5000], threads)  # the kernels of larger sets
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit * 2**30), int(limit * 2**30)))
    began = time.perf_counter()
    values = function(vectors, labels, threads)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "seconds": seconds,
        "memory": memory / 1024,
        "values": values,
        "version": version(package),
    }


def run(name: str, path: Path, options: argparse.Namespace) -> dict[str, Any] | str:
    """Run a package in a process of its own; the reason where it gave no values."""
    pythons = dict(entry.split("=", 1) for entry in options.python)
    command = [pythons.get(name, sys.executable), __file__, "--here", name, str(path)]
    command += ["--threads", str(options.threads), "--limit", str(options.limit)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"over {options.timeout} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"])[-1]
        memory = done.returncode < 0 or any(
            word in done.stderr
            for word in ("MemoryError", "allocate", "bad_alloc", "dict.__setitem__")
        )
        return f"over {options.limit:g} GB" if memory else last[:60]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table for every size: seconds, megabytes and the largest difference from hbench's
    values.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=[2000, 10000, 60000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=12, help="gigabytes a package may take")
    parser.add_argument("--timeout", type=int, default=900, help="seconds a package may take")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PATH")
    parser.add_argument("--only", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measured_here(*options.here, options.threads, options.limit)))
        return
    print("| items | package | seconds | MB | metrics of it | largest difference |")
    print("|---|---|---|---|---|---|")
    for items in options.items:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sample.npz"
            vectors, labels = sample(items)
            np.savez(path, vectors=vectors, labels=labels)
            found = {
                name: run(name, path, options) for name in dict.fromkeys(["hbench", *options.only])
            }
        reference = found["hbench"]
        assert not isinstance(reference, str), reference
        for name, result in found.items():
            print(
                f"| {items:,} | {' | '.join(row(name, result, reference['values']))} |", flush=True
            )


def row(name: str, result: dict[str, Any] | str, reference: Values) -> list[str]:
    """The cells of a package's line: version, seconds, megabytes, its metrics, and the largest
    difference from hbench's values, `reference`; `result`: a text says why it gave none."""
    title = PACKAGES[name][0]
    if isinstance(result, str):
        return [title, result, "", "", ""]
    shared = {
        metric: abs(value - reference[metric])
        for metric, value in result["values"].items()
        if metric in reference
    }
    largest = max(shared.values())
    difference = f"{largest:.0e}" if largest else "0"
    if name == "hbench":  # it is the reference
        difference = ""
    cells = [f"{title} {result['version']}", f"{result['seconds']:.2f}", f"{result['memory']:,.0f}"]
    return [*cells, ", ".join(result["values"]), difference]


if __name__ == "__main__":
    try:
        main()
    except PackageNotFoundError as error:
        sys.exit(f"{error} is not installed")
