"""Every file of examples/ runs as it stands, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAYS = {
    "torchmetrics_hap": "H-AP 0.",
    "pml_accuracy": "gradient 0.",
    "timm_embedding": "AP/script",
    "trec_run": "NDCG 0.547475",
    "huggingface_dataset": "['test', 'train'] (8, 8)",
}


def test_every_example_is_tried():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, tmp_path):
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
    )
    assert run.returncode == 0, run.stderr
    assert SAYS[name] in run.stdout
