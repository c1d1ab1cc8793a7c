"""How long clustering takes for 20,000 labels, and the review page an action, as multiples of one
similarity matrix.

python benchmarks/pipeline.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from hbench_hgldv2.curation import review
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.grouping import cluster, encode
from hbench_hgldv2.grouping.algorithms import ClusterSettings, algorithms
from hbench_hgldv2.grouping.fit import details
from hbench_hgldv2.labels.label import Label
from playwright.sync_api import sync_playwright

T = TypeVar("T")
LABELS, GROUPS, K = 20_000, 300, 160
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
ACTIONS = {
    "name a cluster": "nameCard('a')",
    "drop a label": "drop(chosen())",
    "mark as ambiguous": "setAmbiguous(chosen(), {choices: ['a', 'b'], use: '', rule: ''})",
    "undo": "stepBack()",
    "next card": "turn(1)",
    "next label": "step(1)",
    "search": "$('search').value = 'label 77'; $('search').oninput()",
    "end the search": "$('search').value = ''; $('search').oninput()",
}
TIMED = (
    "async () => {const t = performance.now(); %s; document.body.offsetHeight; return "
    "performance.now() - t}"
)


def main() -> None:
    """Time a similarity matrix, then the steps as multiples of it, then the actions of the page."""
    rng = np.random.default_rng(0)
    vectors = encode.unit(
        rng.normal(size=(GROUPS, 384))[rng.integers(GROUPS, size=LABELS)]
        + rng.normal(size=(LABELS, 384))
    )
    labels = [Label(f"Q{i + 1}", f"label {i}", i % 50, 1, 0, ("Somewhere",)) for i in range(LABELS)]
    ids, names = (
        [label.class_id for label in labels],
        {label.class_id: label.label for label in labels},
    )
    unit = timed("similarity matrix", lambda: vectors @ vectors.T, None)
    for name in ("faiss", "ward", "average"):
        run = partial(cluster.cluster, ids, vectors, ClusterSettings(K), algorithms[name])
        found = timed_value(f"cluster, {name}", run, unit)
    rows = details(names, vectors, found)
    page = timed_value(
        "page", lambda: review.page(review.Material(labels, rows, {}, {}, Decisions())), unit
    )
    drive(page)


def drive(page: str) -> None:
    """Open the review page in a browser, and print the milliseconds of every action: the median of
    five."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "review.html"
        file.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        tab = browser.new_page()
        tab.goto(file.as_uri())
        for name, script in ACTIONS.items():
            print(f"{name:24}{np.median([tab.evaluate(TIMED % script) for _ in range(5)]):8.0f} ms")
        browser.close()


def timed(name: str, run: Callable[[], object], unit: float | None) -> float:
    """Call `run` and print its seconds, also as a multiple of `unit`, the seconds of the similarity
    matrix, if that is known; return them."""
    began = time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    print(f"{name:24}{seconds:8.1f} s" + (f"{seconds / unit:8.1f} ×" if unit else ""))
    return seconds


def timed_value(name: str, run: Callable[[], T], unit: float) -> T:
    """Like `timed`, but return what `run` does."""
    kept: list[T] = []
    timed(name, lambda: kept.append(run()), unit)
    return kept[0]


if __name__ == "__main__":
    main()
