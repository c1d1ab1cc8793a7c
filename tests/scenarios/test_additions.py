"""What CONTRIBUTING says under "How to add …": one file each makes a metric, a dataset and a plot
known everywhere, in a copy of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
METRIC = '''

@metric("unrelated-first", "cut", lower_is_better=True)
def unrelated_first(sequence: LevelSequence, *, cut: int) -> float:
    """The share of the first k items that share nothing with the query."""
    related = int((sequence.ranks <= cut).sum())
    return 1 - related / cut
'''
PLOT = '''"""Draws the number of files."""

from hbench.look.figures import draw_figure
from hbench.look.plots import PlotRequest, kind


@kind("number", "how many files there are", "any files", "")
def draw_number(request: PlotRequest):
    return draw_figure(
        lambda figure: figure.subplots().bar([0], [len(request.files)]), height=2, about="files"
    )
'''

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package."""
    folder = tmp_path_factory.mktemp("scratch")
    without = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    shutil.copytree(ROOT / "hbench", folder / "hbench", ignore=without)
    return folder


def said(folder, *words):
    """What a command says that runs in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "HBENCH_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_definition_is_a_metric_of_arrays_of_scores_and_of_the_list(copy):
    with (copy / "hbench" / "metrics" / "definitions.py").open("a", encoding="utf-8") as file:
        file.write(METRIC)
    program = (
        "import hbench\n"
        "print(hbench.metrics.evaluate('unrelated-first@2', [[3, 2, 1.0]], [[0, 2, 1]]))\n"
        "vectors, labels = [[1, 0.1], [1, 0], [0, 1.0]], [[0, 0], [0, 0], [1, 1]]\n"
        "print(hbench.score(vectors, labels, metrics='unrelated-first@1').scores)\n"
        "print(hbench.list_metrics('unrelated*'), hbench.__file__)\n"
    )
    of_arrays, of_vectors, listed = said(copy, "-c", program).splitlines()
    assert "0.5" in of_arrays
    assert "unrelated-first@1: 0.3333" in of_vectors  # that of the query without a relative
    assert "unrelated-first@k" in listed
    assert str(copy) in listed


def test_a_module_with_a_spec_is_a_dataset_that_can_be_built(copy):
    program = (ROOT / "examples" / "new_dataset.py").read_text(encoding="utf-8")
    (copy / "hbench" / "datasets" / "benchmarks" / "birds_mini.py").write_text(
        program.partition("\ndef write_raw")[0], encoding="utf-8"
    )
    shutil.copy(ROOT / "examples" / "new_dataset.py", copy / "raw_files.py")
    said(copy, "-c", "import pathlib, raw_files; raw_files.write_raw(pathlib.Path('raw'))")
    said(copy, "-m", "hbench", "build", "birds-mini", "--root", "raw")
    assert "birds-mini" in said(copy, "-m", "hbench", "datasets")
    assert "Four birds" in said(copy, "-m", "hbench", "datasets", "birds-mini")
    assert "example.org/birds/images.zip" in said(
        copy, "-m", "hbench", "download", "birds-mini", "--dry-run"
    )
    assert "@misc{me2026birds," in said(copy, "-m", "hbench", "cite", "birds-mini")


def test_a_module_that_registers_a_kind_is_a_plot(copy):
    (copy / "hbench" / "look" / "plots" / "number.py").write_text(PLOT, encoding="utf-8")
    said(copy, "-m", "hbench", "plot", "number", "a", "b", "-o", "number.svg")
    assert (copy / "number.svg").stat().st_size
    assert "how many files there are" in said(copy, "-m", "hbench", "plot", "--help")
