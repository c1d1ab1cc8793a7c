"""A verb whose extra is not installed says so in one line; the module it misses and the extra that has it agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from hbench.core import extras

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {"sklearn": "scikit-learn", "yaml": "pyyaml", "faiss": "faiss-cpu", "dask": "distributed"}
CODE = "import sys; sys.modules[{module!r}] = None; sys.argv = {argv!r}; from hbench.cli import main; main()"


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("torch", "losses", "train"),
        ("torch", "losses sup_hap", "train"),
        ("torch", "train glyphs-happier --out run", "train"),
        ("torch", "embed torchvision:resnet50 --dataset glyphs --out x.parquet", "train"),
        ("torch", "study glyphs", "train"),
        ("distributed", "evaluate e.npz --dataset t.csv --workers 2", "cluster"),
        ("pandas", "leaderboard export sop --format latex", "look"),
        ("yaml", "hgldv2 --work w review", "pipelines"),
    ],
)
def test_a_missing_extra_is_one_message(module, command, extra, tmp_path):
    (tmp_path / "t.csv").write_text("item,class\na,x\nb,x\n")
    np.savez(tmp_path / "e.npz", ids=["a", "b"], embeddings=np.eye(2))
    code = CODE.format(module=module, argv=["hbench", *command.split()])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert f"{module} is not installed\n  next:     pip install 'hbench[{extra}]'" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_defect_of_our_own_is_shown_whole():
    assert extras.missing(ModuleNotFoundError("No module named 'hbench.nothing'", name="hbench.nothing")) is None


@pytest.mark.parametrize(
    ("extra", "module"), [(extra, each) for extra, all_ in extras.MODULES.items() for each in all_]
)
def test_the_extra_that_is_named_installs_the_module(extra, module):
    listed = [re.match(r"[\w.-]+", each)[0] for each in PROJECT["optional-dependencies"][extra]]
    assert PACKAGES.get(module, module) in [name.replace("-", "_") if "_" in module else name for name in listed] or (
        f"{module}_torch" in listed
    )


def test_nothing_that_scoring_does_without_is_installed_with_it():
    core = {re.match(r"[\w.-]+", each)[0] for each in PROJECT["dependencies"]}
    assert not core & {PACKAGES.get(module, module) for all_ in extras.MODULES.values() for module in all_}
