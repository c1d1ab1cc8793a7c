"""The differences that may be chance: their constants come from the shipped runs, and hold for the
intervals of these.
"""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

import hbench
from hbench.boards import read_board
from hbench.boards.resolution import SIZES, VARIATION, resolution, typical_difference
from hbench.datasets import folders
from hbench.datasets.dataset import TestSize
from hbench.metrics.significance import UnitSums, difference_intervals
from studies.values import read as read_values

pytestmark = pytest.mark.fast

VALUES, _ = read_values(Path(__file__).parents[2] / "leaderboards/glyphs-study.parquet")


def differences(metric):
    """The differences (C,) of every class between two losses of one seed, and the queries (C,) of
    every class.
    """
    for first, second in combinations(VALUES.values(), 2):
        for seed, other in zip(first[metric].values, second[metric].values, strict=True):
            yield seed - other, first[metric].queries


@pytest.mark.parametrize("metric", VARIATION)
def test_the_variation_is_that_of_the_shipped_runs(metric):
    fits = []
    for difference, queries in differences(metric):
        errors = (difference - np.average(difference, weights=queries)) ** 2
        weights = np.minimum(queries, 50)  # a class of hundreds of queries is still one class
        fits.append(nnls(np.stack([weights, weights / queries], axis=1), errors * weights)[0])
    np.testing.assert_allclose(VARIATION[metric], np.sqrt(np.median(fits, axis=0)), atol=5e-5)


@pytest.mark.parametrize("metric", VARIATION)
def test_it_is_about_the_interval_that_the_runs_have(metric):
    halves = []
    for difference, queries in differences(metric):
        values, units = (
            np.repeat(difference, queries)[None],
            np.repeat(np.arange(len(queries)), queries),
        )
        low, high = difference_intervals(UnitSums.of(values, units))[0]
        halves.append(100 * (high - low) / 2)
        effective = queries.sum() ** 2 / (queries**2).sum()
    expected = typical_difference(metric, classes=int(effective), queries=int(queries.sum()))
    assert 0.6 < expected / np.median(halves) < 1.5


def test_it_needs_the_sizes_of_the_classes_and_a_metric_whose_variation_is_known(empty_home):
    assert resolution(read_board("sop"), "R@1") is None  # which is not built here
    assert resolution(read_board("dyml-animal"), "ASI") is None
    of_glyphs = TestSize.of(hbench.load("glyphs").tests["test"])
    assert of_glyphs.queries == SIZES["glyphs"].queries
    assert of_glyphs.effective_classes == pytest.approx(SIZES["glyphs"].effective_classes, abs=0.05)
    assert resolution(read_board("glyphs"), "R@1") == typical_difference(
        "R@1", classes=846.6, queries=11164
    )
    assert resolution(read_board("glyphs"), "R@1000") is None


def test_a_dataset_that_is_built_says_how_large_its_classes_are(empty_home, tmp_path):
    """Where one class has most of the queries, there is hardly more than one."""
    names = [0] * 90 + [1] * 6 + [2] * 4
    lines = [f"{number}.png,g{name // 2},s{name}" for number, name in enumerate(names)]
    (tmp_path / "uneven.csv").write_text("\n".join(["item,genus,species", *lines]))
    hbench.build("uneven", source=hbench.OwnSource(tmp_path / "uneven.csv", ["genus", "species"]))
    board = read_board("glyphs").model_copy(update={"dataset": "uneven"})
    effective = 100**2 / (90**2 + 6**2 + 4**2)
    assert resolution(board, "R@1") == typical_difference("R@1", classes=effective, queries=100)
    path = folders("uneven")[0] / "dataset.json"
    description = json.loads(path.read_text())
    description.pop("sizes")  # as an older version wrote it
    path.write_text(json.dumps(description))
    assert resolution(board, "R@1") is None


@pytest.mark.parametrize("seed", range(3))
def test_it_holds_the_truth_on_classes_of_any_sizes(seed):
    """The differences of a simulated pair vary as much as it says, on equal classes and on
    Pareto's.
    """
    rng = np.random.default_rng(seed)
    tau, sigma = VARIATION["R@1"]
    for counts in (np.full(200, 30), np.ceil(5 * (1 + rng.pareto(1.1, 2000))).astype(int)):
        classes = counts.sum() ** 2 / (counts.astype(float) ** 2).sum()
        of_classes = rng.normal(size=(2000, len(counts))) * np.sqrt(tau**2 + sigma**2 / counts)
        means = of_classes @ counts / counts.sum()
        expected = typical_difference("R@1", classes=classes, queries=int(counts.sum()))
        assert 93 < 100 * (np.abs(100 * means) <= expected).mean() < 97
