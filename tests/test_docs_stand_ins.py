"""The `sh` blocks of docs/ run with stand-ins: a benchmark becomes a few pictures of noise, a net
with weights from the network a small one with random weights.

What no stand-in can show is listed here with its reason (SKIPPED).
"""

import re
import shlex

import numpy as np
import pytest
from PIL import Image

from hbench.submissions import embeddings
from tests.command_line import in_folder, process
from tests.page import SHORT, commands
from tests.test_docs import PAGES, blocks

SKIPPED = {  # parts of commands, and why they do not run here
    r"hbench (download|build) (cub200|grocery|hgldv2|omniglot)": "the network: tests/datasets",
    r"hbench leaderboard (add|submit) (grocery|scores|short)": "a row: tests/boards",
    r"hbench leaderboard (verify|rerun)": "the file of a row: tests/boards",
    r"hbench run": "nets with weights: tests/cli/test_run.py",
    r"hbench hgldv2 |hbench leaderboard add voc07": "a work folder: tests/pipelines",
    r"hbench detect .*--root": "Pascal VOC: tests/detection",
    r"--scheduler|--device cuda|torchrun|train sop-happier": "a cluster, GPUs",
    r"--track": "trackers: .ci/run trackers",
    r"python -m studies run": "hours: tests/studies trains a tiny study",
    r"python -m http.server": "it does not end",
    r"^(python3 -m venv|source|pip)|hbench demo": "it installs: .ci/run stranger",
    r"hbench (info|losses centre)|stripes": "an installed plug-in: tests/test_plugins.py",
}
STAND_INS = [
    (r"(-d|--dataset) (birds|rare-species|sop|cub200|D)\b", r"\1 birds"),
    (r"embed (timm|torchvision):\S+", "embed torchvision:resnet18 --weights random --size 32"),
    (r"embed open_clip:\S+", "embed open_clip:ViT-S-32-alt --weights random"),
    (r"--models models.txt", "--models models.txt --weights random --size 32"),
    (r"--from birds\.csv", "--from birds.csv --split-column split"),
    (r"--workers 8", "--workers 2"),
    (r"(evaluate|audit) (FILE|vectors\.parquet|mine\.parquet)", r"\1 vectors.parquet"),
    (r"--trees wordnet.csv,wikidata.nwk,shuffled", "--trees wordnet.csv,shuffled"),
    (r"dataset=birds", "dataset=birds --set model.backbone=hbench:small " + shlex.join(SHORT)),
]


def lines_of(page):
    return [
        shlex.join(words) for kind, text in blocks(page) if kind == "sh" for words in commands(text)
    ]


def is_skipped(line):
    return any(re.search(part, line) for part in SKIPPED)


RUN = [page for page in PAGES if any(not is_skipped(line) for line in lines_of(page))]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with pictures of birds, their table, vectors and another tree."""
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    rows, tree = ["item,order,kind,split"], ["kind,habitat"]
    for kind in range(8):
        tree.append(f"k{kind},h{kind % 3}")
        for shot in range(4):
            name = f"pictures/k{kind}-{shot}.png"
            (tmp_path / "pictures").mkdir(exist_ok=True)
            Image.effect_noise((32, 32), 20 + 10 * kind).save(tmp_path / name)
            rows.append(f"{name},o{kind // 4},k{kind},{'test' if shot < 3 else 'train'}")
    (tmp_path / "birds.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "wordnet.csv").write_text("\n".join(tree) + "\n")
    (tmp_path / "decisions.csv").write_text("item,decision,label,path\npictures/k0-0.png,drop,,\n")
    (tmp_path / "models.txt").write_text("torchvision:resnet18\n")
    ids = [row.split(",")[0] for row in rows[1:] if row.endswith("test")]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 8)).astype(np.float32)
    embeddings.write(tmp_path / "vectors.parquet", ids, vectors)
    levels = ("--levels", "order,kind", "--split-column", "split")
    in_folder(tmp_path, "build", "birds", "--from", "birds.csv", *levels)
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_end_well_on_stand_ins(page, world):
    for line in lines_of(page):
        if is_skipped(line):
            continue
        for part, stand_in in STAND_INS:
            line = re.sub(part, stand_in, line)
        program, *words = shlex.split(line)
        if program == "python":
            process(*words, folder=world)
        else:
            assert program == "hbench"
            in_folder(world, *words)


def test_what_is_skipped_stands_on_a_page():
    every = [line for page in PAGES for line in lines_of(page)]
    for part in SKIPPED:
        assert any(re.search(part, line) for line in every), part
