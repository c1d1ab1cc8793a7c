"""The known values that `hbench info --check` computes again are those of the equations as double loops."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hbench.core.compiled import pays
from hbench.evaluation import self_check
from tests import oracle
from tests.command_line import call

DEPTH = 3
BY_LOOPS = {
    "H-AP": lambda ranked: oracle.h_ap(ranked, oracle.alpha_relevance(ranked, DEPTH)),
    "wAP": lambda ranked: oracle.w_ap(ranked, [1 / DEPTH] * DEPTH),
    "ASI": lambda ranked: oracle.asi(ranked, DEPTH),
    "NDCG": oracle.ndcg,
    "AP#coarse": lambda ranked: oracle.ap_exclusive(ranked, 1),
    "AP#middle": lambda ranked: oracle.ap_exclusive(ranked, 2),
    "AP": lambda ranked: oracle.ap_at(ranked, 3),
    "R@1": lambda ranked: oracle.recall(ranked, 3, 1),
    "R@10": lambda ranked: oracle.recall(ranked, 3, 10),
}


def lists_of(case):
    """The levels of every query's list, ranked in float64 by double loops."""
    queries, labels = np.asarray(case["vectors"], np.float64), case["labels"]
    alone = "gallery" not in case
    items = queries if alone else np.asarray(case["gallery"], np.float64)
    names = labels if alone else case["gallery_labels"]
    if case["similarity"] == "cosine":
        queries, items = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, items))
    scores = queries @ items.T
    return [
        oracle.rank_levels(
            [scores[q, i] for i in range(len(items)) if not (alone and i == q)],
            [oracle.level_of(labels[q], names[i]) for i in range(len(items)) if not (alone and i == q)],
        )
        for q in range(len(queries))
    ]


@pytest.mark.parametrize("name", ["ties, paper", "cosine, paper", "cosine, gallery"])
def test_the_known_values_are_those_of_double_loops(name):
    known = json.loads((Path(self_check.__file__).parent / "self_check.json").read_text("utf-8"))[name]
    lists = lists_of(self_check.cases()[name])
    for metric, by_loops in BY_LOOPS.items():
        values = [value for value in map(by_loops, lists) if not math.isnan(value)]
        assert known[metric] == pytest.approx(sum(values) / len(values), abs=1e-12), metric


def test_the_similarities_are_far_enough_apart_for_any_processor():
    vectors = self_check.smooth_vectors(120)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.diff(np.sort(vectors @ vectors.T, axis=1), axis=1).min() > 1e-6


def test_the_command_says_what_it_found():
    values = json.loads(call("info", "--check", "--json").stdout)
    assert values["sound"] is True
    assert values["largest_deviation"] <= 1e-9
    assert {"versions", "processor", "folders", "variables"} <= set(values)
    assert "55 of 55 known values are right" in call("info", "--check").stdout
    assert [pays(queries * self_check.MANY) for queries in (self_check.FEW, self_check.MANY)] == [False, True]


def test_a_wrong_value_ends_it_with_7():
    spoilt = (
        "import sys, hbench.evaluation.self_check as s; real = s.values_of\n"
        "s.values_of = lambda case: {k: v + 1e-6 * (k == 'ASI') for k, v in real(case).items()}\n"
        "from hbench.cli.info import command; command(['--check'], standalone_mode=False)"
    )
    ran = subprocess.run([sys.executable, "-c", spoilt], capture_output=True, text=True, check=False)
    assert ran.returncode == 7
    assert "ASI" in ran.stdout
    assert "51 of 55 known values are right" in ran.stdout


def test_info_names_folders_and_those_who_write_to_them(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "hbench", "info", "--json"],
        capture_output=True, text=True, check=True, env={"HBENCH_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    output = json.loads(ran.stdout)
    assert output["variables"] == {"HBENCH_HOME": str(tmp_path)}
    assert output["folders"]["data"]["path"] == str(tmp_path / "data")
    assert output["versions"]["numpy"] == np.__version__


def test_kernels_are_compiled_ahead(tmp_path):
    def info(*options):
        words = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-m", "hbench", "info", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=words).stdout

    before, after = (json.loads(info(*options, "--json"))["processor"] for options in ((), ("--compile",)))
    assert (before["kernels"], after["kernels"]) == ("compiled when first needed", "compiled")
