"""Every file of examples/ runs as it stands, in a folder of its own."""

import json
from pathlib import Path

import pytest

from tests.command_line import process

ROOT = Path(__file__).parent.parent
SAYS = {
    "torchmetrics_hap": "H-AP 0.",
    "pml_accuracy": "gradient 0.",
    "timm_embedding": "AP/script",
    "trec_run": "NDCG 0.547475",
    "lightning_validation": "H-AP 0.",
    "fiftyone_mistakes": "280 labels; the worst is a",
    "huggingface_dataset": "['test', 'train'] (8, 8)",
}


def test_every_example_is_tried():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, tmp_path):
    example = ROOT / "examples" / f"{name}.py"
    assert SAYS[name] in process(example, folder=tmp_path, HF_HUB_OFFLINE="1", HF_HOME=tmp_path / "hf").stdout
    if name == "fiftyone_mistakes":
        is_what_fiftyone_reads(tmp_path / "mistakes")


def is_what_fiftyone_reads(folder):
    """As its documentation has it: {"labels": {stem of the file: {"label", "attributes"}}}, the files in data/."""
    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["labels"]
    assert set(labels) <= {path.stem for path in (folder / "data").iterdir()}
    for each in labels.values():
        assert set(each) == {"label", "attributes"}
        assert all(name.isidentifier() for name in each["attributes"])  # they become fields of a document
        assert 0 < each["attributes"]["h_ap"] <= 1
