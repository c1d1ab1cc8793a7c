"""Metrics of other packages whose values are no fractions: a rank is printed as it is, not times
100.
"""

import json
import os
import shutil
import sys

import numpy as np
import pytest

from tests.command_line import process

MODULE = """
from hbench.metrics.definitions import metric

@metric("mean-rank", full=True, lower_is_better=True, factor=1)
def mean_rank(sequence):
    return float(sequence.ranks.mean())
"""


@pytest.fixture
def folder(tmp_path):
    """Twelve items of two classes, two models, and a package that brings a metric."""
    rows = "".join(f"i{n},a,a{n % 2}\n" for n in range(12))
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}", encoding="utf-8")
    ids = [f"i{n}" for n in range(12)]
    random = np.random.default_rng(3)
    for name in ("one", "two"):
        np.savez(tmp_path / f"{name}.npz", ids=ids, embeddings=random.normal(size=(12, 4)))
    (tmp_path / "plugin_rank.py").write_text(MODULE)
    about = tmp_path / "ranks-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: ranks\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[hbench.metrics]\nmean-rank = plugin_rank:mean_rank\n")
    return tmp_path


def hbench(folder, *words):
    path = os.pathsep.join([str(folder), *sys.path])
    return process("-m", "hbench", *words, folder=folder, PYTHONPATH=path).stdout


def rank_of(folder, name):
    report = json.loads(
        hbench(folder, "evaluate", f"{name}.npz", "-d", "d.csv", "--json", "--metrics", "mean-rank")
    )
    return report["scores"]["mean-rank"]["value"]


def test_a_table_prints_a_rank_as_it_is(folder):
    expected = rank_of(folder, "one")
    assert 1 < expected < 12
    shown = hbench(
        folder,
        "evaluate",
        "one.npz",
        "-d",
        "d.csv",
        "--metrics",
        "mean-rank,R@1",
        "--format",
        "markdown",
    )
    line = next(line for line in shown.splitlines() if line.startswith("| mean-rank"))
    assert f" {expected:.2f} " in line
    assert "percent, but mean-rank as it is" in shown


def test_a_comparison_prints_a_difference_of_ranks_as_it_is(folder):
    for name in ("one", "two"):
        hbench(
            folder,
            "evaluate",
            f"{name}.npz",
            "-d",
            "d.csv",
            "--metrics",
            "mean-rank,R@1",
            "-o",
            f"{name}.json",
        )
    shown = hbench(folder, "compare", "one.json", "two.json")
    assert f"{rank_of(folder, 'one') - rank_of(folder, 'two'):+.2f}" in shown


def test_a_page_shows_a_rank_as_it_is(folder):
    words = ("-d", "d.csv", "--metrics", "mean-rank,R@1", "-o", "one.json")
    hbench(folder, "evaluate", "one.npz", *words)
    hbench(folder, "report", "one.json", "-d", "d.csv", "--by", "mean-rank", "-o", "page")
    expected = rank_of(folder, "one")
    page = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert f">{expected:.2f}</span>" in page
    classes = (folder / "page" / "classes.html").read_text(encoding="utf-8")
    assert 'width="100' in classes


def test_a_row_of_a_metric_whose_package_is_not_here_blocks_nothing(folder):
    words = ("evaluate", "one.npz", "-d", "d.csv", "--method", "one")
    hbench(folder, *words, "--metrics", "mean-rank,R@1", "-o", "one.json")
    hbench(folder, "leaderboard", "add", "d", "one.json", "--to", "leaderboards/d.toml")
    (folder / "plugin_rank.py").unlink()
    shutil.rmtree(folder / "ranks-1.dist-info")
    assert "mean-rank" in hbench(folder, "leaderboard", "show", "d")
    assert "d\t1" in hbench(folder, "leaderboard", "list").replace(" ", "")
    hbench(folder, *words, "--metrics", "R@1")
    hbench(folder, "site", "--out", "site")
