"""The example package of plug-ins, installed as anybody would, and what is said of one that fails."""

import json
import os
import shutil
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import process

ROOT = Path(__file__).parents[1]
CHANGES = [
    "dataset=stripes", "model.backbone=hbench:small", "model.weights=random", "images.size=16",
    "images.resize=16", "images.workers=0", "epochs=1", "sampler.batch=4", "model.dim=8",
    "losses.centre.weight=1.0",
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder where the example package is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(ROOT / "examples" / "plugin", folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder / "site"]
    subprocess.run([*pip, source], check=True)
    return folder / "site"


def hbench(site, folder, *words, code=0):
    path = os.pathsep.join([str(site), *sys.path])
    home = {"HBENCH_HOME": folder / "home", "PYTHONPATH": path, "HBENCH_GUARD": "1"}
    return process("-m", "hbench", *words, folder=folder, code=code, **home)


def test_plug_ins_are_listed_and_tried(site, tmp_path):
    listed = json.loads(hbench(site, tmp_path, "info", "--json").stdout)["plugins"]
    names = {(each["kind"], each["name"]): each for each in listed if "example" in each["package"]}
    assert set(names) == {("metric", "first-relative"), ("loss", "centre"), ("dataset", "stripes")}
    assert all(each["problem"] is None and each["tried"] for each in names.values())


def test_a_dataset_whose_files_are_not_here_is_said_to_be_untried(site, tmp_path):
    other = shutil.copytree(site, tmp_path / "site")
    module = other / "hbench_example.py"
    module.write_text(
        module.read_text().replace("    levels=(", '    markers=("labels.csv",),\n    levels=(', 1)
    )
    shown = hbench(other, tmp_path, "info").stdout
    assert "dataset stripes" in shown
    assert "was not tried" in shown
    said = hbench(other, tmp_path, "download", "stripes", code=4).stderr
    assert "hbench build stripes --root DIR" in said


def test_a_plug_in_that_fails_is_named_with_its_package_and_cause(site, tmp_path):
    broken = shutil.copytree(site, tmp_path / "site")
    (broken / "hbench_example.py").write_text("import no_such_module\n")
    listed = json.loads(hbench(broken, tmp_path, "info", "--json").stdout)["plugins"]
    metric = next(each for each in listed if each["name"] == "first-relative")
    assert "no_such_module" in metric["problem"]
    assert "hbench-example" in metric["problem"]


NO_NUMBER = "returned no number"
LINE = "hbench_example.py, line"
FAULTS = {  # what is written in place of what, and what is said of it
    "metric": [
        ("float(ranks[0])", "str(ranks)", NO_NUMBER),
        ("sequence.ranks[", "sequence.places[", LINE),
        ("return float(", "return None and float(", NO_NUMBER),
        None,  # the metric works beside a loss and a dataset that do not
    ],
    "loss": [
        None,
        ("return to_centre +", "return embeddings +", NO_NUMBER),
        ("torch.zeros(dim)", "torch.zeros(dim + 1)", "RuntimeError"),
        ("return to_centre +", "with torch.no_grad(): return to_centre +", "no gradient"),
        ("return to_centre +", "return float('nan') * to_centre +", "is nan"),
    ],
    "dataset": [
        ('"kind": 4', '"kind": 5', "kind"),
        None,
        ("    return image", "    return None", "returns none"),
        ("Image.new(", "Image.anew(", LINE),
        ('return {"train"', 'return [1] or {"train"', "of hbench-example returned no splits"),
    ],
}


def said_of(faults):
    """A name of a test case: what is said of each fault of a package."""
    return ", ".join(fault[-1] for fault in faults if fault)


def is_said(fault, problem):
    """Whether the fault, if there is one, is what the problem tells."""
    return problem is None if fault is None else fault[2] in str(problem)


@pytest.mark.parametrize("faults", list(zip_longest(*FAULTS.values())), ids=said_of)
def test_a_plug_in_that_loads_but_does_not_work_is_said_so(site, tmp_path, faults):
    broken = shutil.copytree(site, tmp_path / "site")
    source = (broken / "hbench_example.py").read_text()
    for old, new, _ in filter(None, faults):
        assert source.count(old) == 1
        source = source.replace(old, new)
    (broken / "hbench_example.py").write_text(source)
    listed = json.loads(hbench(broken, tmp_path, "info", "--json").stdout)["plugins"]
    problems = {each["kind"]: each["problem"] for each in listed if "example" in each["package"]}
    said_otherwise = {
        kind: problems[kind]
        for kind, fault in zip(FAULTS, faults, strict=True)
        if not is_said(fault, problems[kind])
    }
    assert said_otherwise == {}


def test_recipes_of_a_package_that_fails_leave_the_others_listed(site, tmp_path):
    broken = shutil.copytree(site, tmp_path / "site")
    (described,) = broken.glob("hbench_example-*.dist-info")
    with (described / "entry_points.txt").open("a") as points:
        points.write("\n[hbench.recipes]\nbroken = no_such_module\n")
    listed = hbench(broken, tmp_path, "recipes", "glyphs-*")
    assert "glyphs-happier" in listed.stdout
    assert "no_such_module" in listed.stderr


def test_the_loss_trains_on_the_dataset_and_the_metric_scores_it(site, tmp_path):
    sets = [word for change in CHANGES for word in ("--set", change)]
    hbench(site, tmp_path, "train", "own-data", *sets, "--out", "run")
    metrics = "first-relative/direction,R@1/direction"
    scored = ("evaluate", "run/test.parquet", "-d", "stripes", "--metrics", metrics, "--json")
    scores = json.loads(hbench(site, tmp_path, *scored).stdout)["scores"]
    assert 1 <= scores["first-relative/direction"]["value"] <= 5


def test_ranks_that_are_all_1_have_no_interval_of_fractions(site, tmp_path):
    rows = "".join(f"i{n},{'ab'[n % 2]},k{n % 4}\n" for n in range(8))
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}")
    vectors = np.array([[1.0 + n % 2, 2.0 - n % 2] for n in range(8)])
    np.savez(tmp_path / "v.npz", ids=[f"i{n}" for n in range(8)], embeddings=vectors)
    scored = ("evaluate", "v.npz", "-d", "d.csv", "--metrics", "first-relative/genus", "--json")
    score = json.loads(hbench(site, tmp_path, *scored).stdout)["scores"]["first-relative/genus"]
    assert (score["value"], score["low"], score["high"]) == (1.0, None, None)


def test_an_error_of_a_plug_in_names_its_package_and_line(site, tmp_path):
    broken = shutil.copytree(site, tmp_path / "site")
    module = broken / "hbench_example.py"
    module.write_text(module.read_text().replace("sequence.ranks[", "sequence.nothing["))
    rows = "".join(f"i{n},a,a{n % 2}\n" for n in range(6))
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}")
    np.savez(tmp_path / "v.npz", ids=[f"i{n}" for n in range(6)], embeddings=np.eye(6))
    scored = ("evaluate", "v.npz", "-d", "d.csv", "--metrics", "first-relative")
    said = hbench(broken, tmp_path, *scored, code=3).stderr
    assert "the package hbench-example fails in" in said
    assert "hbench_example.py, line" in said
    assert "is a bug" not in said


def test_what_is_no_number_is_refused_with_the_package_that_returned_it(site, tmp_path):
    broken = shutil.copytree(site, tmp_path / "site")
    module = broken / "hbench_example.py"
    text = module.read_text().replace("return float(ranks[0])", "return 'last'")
    module.write_text(text.replace(".sum(1).mean()", ".sum(1)"))
    rows = "".join(f"i{n},a,a{n % 2}\n" for n in range(6))
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}")
    np.savez(tmp_path / "v.npz", ids=[f"i{n}" for n in range(6)], embeddings=np.eye(6))
    scored = ("evaluate", "v.npz", "-d", "d.csv", "--metrics", "first-relative")
    said = hbench(broken, tmp_path, *scored, code=3).stderr
    assert "the metric 'first-relative' of the package hbench-example returned no number" in said
    assert "str 'last'" in said
    sets = [word for change in CHANGES for word in ("--set", change)]
    said = hbench(broken, tmp_path, "train", "own-data", *sets, "--out", "run", code=3).stderr
    assert "the loss 'centre' of the package hbench-example returned no number" in said
    assert "a tensor (4,)" in said
