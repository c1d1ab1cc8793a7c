"""Every file of examples/ runs as it stands, in a folder of its own."""

import copy
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.command_line import process

ROOT = Path(__file__).parent.parent
SAYS = {
    "torchmetrics_hap": "H-AP 0.",
    "pml_accuracy": "gradient 0.",
    "timm_embedding": "AP/script",
    "trec_run": "NDCG 0.547475",
    "lightning_validation": "H-AP 0.",
    "new_dataset": "<Dataset birds-mini@1: family › species; train 4, test 4 items> RGB",
    "fiftyone_mistakes": "280 labels; the worst is a",
    "imagenet_wordnet": "4 test pictures of dogs have two paths",
    "huggingface_dataset": "['test', 'train'] (8, 8)",
    "without_pictures": "points of AP, and 12.",
}
LOOPS = ["torch_loop", "lightning_loop", "accelerate_loop"]  # which train on glyphs
ELSEWHERE = {"ask_by_name"}  # tests/scenarios/test_ask_by_name.py, which looks at its numbers


def test_every_example_is_tried():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {
        *SAYS,
        *LOOPS,
        *ELSEWHERE,
    }


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, tmp_path):
    example = ROOT / "examples" / f"{name}.py"
    assert (
        SAYS[name]
        in process(example, folder=tmp_path, HF_HUB_OFFLINE="1", HF_HOME=tmp_path / "hf").stdout
    )
    if name == "fiftyone_mistakes":
        is_what_fiftyone_reads(tmp_path / "mistakes")


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_learns(name, tmp_path):
    """Before training H-AP is 0.20."""
    example = ROOT / "examples" / f"{name}.py"
    shown = process(example, folder=tmp_path, OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES="").stdout
    assert float(shown.split("H-AP")[1]) > 0.25


def test_two_processes_run_the_loop_of_torch(tmp_path):
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    example = ROOT / "examples" / "torch_loop.py"
    environment = {"OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": ""}
    shown = process(*start, example, folder=tmp_path, **environment).stdout
    assert float(shown.split("H-AP")[1]) > 0.25


def test_the_notebook_runs_and_shows_what_it_says(tmp_path):
    """Every cell runs, in a kernel as a reader's, and what the kept notebook shows in its place is
    of the same kinds.
    """
    kept = nbformat.read(ROOT / "examples" / "compare_two_models.ipynb", as_version=4)
    run = copy.deepcopy(kept)
    NotebookClient(run, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(run) == shown(kept)
    assert {"image/png", "text/html"} <= {kind for kinds in shown(run) for kind in kinds}
    # its last words are commands, and they work on what it has written
    words = next(cell.source for cell in reversed(kept.cells) if cell.cell_type == "markdown")
    commands = [command.split() for command in re.findall(r"`hbench ([^`]+)`", words)]
    assert [command[0] for command in commands] == ["report", "compare", "leaderboard"]
    for command in commands:
        process("-m", "hbench", *command, folder=tmp_path)
    assert "Comparison" in (tmp_path / "pages" / "index.html").read_text(encoding="utf-8")


def shown(notebook):
    """The kinds of what each cell shows, as in a notebook's file; and its streams, which may come
    in pieces, once.
    """
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    of_data = [[kind for output in outputs for kind in output.get("data", ())] for outputs in cells]
    streams = [
        [output.name for output in outputs if output.output_type == "stream"] for outputs in cells
    ]
    return [sorted([*kinds, *set(names)]) for kinds, names in zip(of_data, streams, strict=True)]


def is_what_fiftyone_reads(folder):
    """The form that FiftyOne reads: {"labels": {stem of the file: {"label", "attributes"}}}, the
    files in data/.
    """
    labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["labels"]
    assert set(labels) <= {path.stem for path in (folder / "data").iterdir()}
    for each in labels.values():
        assert set(each) == {"label", "attributes"}
        # they become fields of a document
        assert all(name.isidentifier() for name in each["attributes"])
        assert 0 < each["attributes"]["h_ap"] <= 1
