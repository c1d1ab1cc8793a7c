"""From the names of models to reports by one command, which is made of the other verbs."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import hbench
from hbench import boards as leaderboard
from hbench.boards.proof.reruns import command_of
from hbench.train.embedding.embed_dataset import EmbedOptions, embedder
from tests.command_line import call, refusal

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 8, stride=8)

    def forward(self, images):
        return self.conv(images).flatten(1)

class Greedy(Net):
    "Has memory for eight images at a time."

    def forward(self, images):
        if len(images) > 8:
            raise MemoryError
        return super().forward(images)
"""


def pictures(folder):
    """Pictures of three families with three species each, noisy copies of one of each."""
    rng = np.random.default_rng(0)
    for family in range(3):
        for species in range(3):
            place = folder / f"f{family}" / f"s{family}{species}"
            place.mkdir(parents=True)
            base = rng.integers(0, 255, (8, 8, 3))
            for number in range(4):
                noisy = np.clip(base + rng.integers(-40, 40, base.shape), 0, 255)
                large = noisy.astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)
                Image.fromarray(large).save(place / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A dataset of pictures, and a file with two nets."""
    folder = tmp_path_factory.mktemp("run")
    photographs = pictures(folder / "photographs")
    zoo = folder / "zoo"
    call("build", "zoo", "--from", photographs, "--levels", "family,species", "-o", zoo)
    (folder / "net.py").write_text(NET)
    return folder, zoo


@pytest.fixture(scope="module")
def ran(world):
    """What one command made and printed."""
    folder, zoo = world
    done = call("run", f"{folder}/net.py:Net", "-d", zoo, "-o", folder / "scores", "--json")
    (report,) = (folder / "scores" / "zoo").glob("*Net.json")
    return report, json.loads(done.stdout)


def test_the_scores_are_those_of_embed_and_evaluate(world, ran, tmp_path):
    folder, zoo = world
    report, shown = ran
    embedded = tmp_path / "by-hand.parquet"
    call("embed", f"{folder}/net.py:Net", "-d", zoo, "-o", embedded)
    assert embedded.read_bytes() == report.with_suffix(".parquet").read_bytes()
    by_hand = hbench.evaluate(embedded, hbench.load(zoo))
    found = shown["zoo"]["scores"][f"{folder}/net.py:Net"]
    assert {name: score["value"] for name, score in found.items()} == dict(by_hand.scores)


def test_a_row_and_pages_lie_beside_the_report(ran):
    report, _ = ran
    assert "[[row]]" in (report.parent / "rows.toml").read_text()
    assert (report.parent / "pages" / "index.html").exists()


def test_a_second_run_embeds_and_scores_nothing_again(world, ran):
    folder, zoo = world
    report, _ = ran
    kept = {path: path.stat().st_mtime_ns for path in report.parent.glob("*net*")}
    call("run", f"{folder}/net.py:Net", "-d", zoo, "-o", folder / "scores")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_file_of_embeddings_is_scored_beside_the_nets(world, ran):
    folder, zoo = world
    report, _ = ran
    mine = folder / "mine.parquet"
    mine.write_bytes(report.with_suffix(".parquet").read_bytes())
    words = ("run", mine, f"{folder}/net.py:Net", "-d", zoo, "-o", folder / "scores")
    lines = call(*words).stdout.splitlines()
    assert lines[0] == "model\tzoo H-AP"
    assert len({line.split("\t")[1] for line in lines[1:3]}) == 1


@pytest.mark.parametrize("method", [(), ("--method", "another name")])
def test_an_earlier_report_of_a_file_is_used_whatever_it_calls_the_method(
    world, ran, tmp_path, method
):
    _, zoo = world
    report, _ = ran
    mine = tmp_path / "mine.parquet"
    mine.write_bytes(report.with_suffix(".parquet").read_bytes())
    earlier = tmp_path / "scores" / "zoo" / "mine.json"
    call("evaluate", mine, "-d", zoo, *method, "-o", earlier)
    made = earlier.stat().st_mtime_ns

    done = call("run", mine, "-d", zoo, "-o", tmp_path / "scores")
    assert earlier.stat().st_mtime_ns == made
    assert done.stdout.startswith("model\tzoo H-AP")
    assert (earlier.parent / "pages" / "index.html").exists()


def test_one_that_fails_is_said_and_the_others_are_scored(world, tmp_path):
    folder, zoo = world
    words = ("run", f"{folder}/net.py:Nope", f"{folder}/net.py:Net", "-d", zoo, "-o", tmp_path)
    said = refusal(*words)
    assert "1 of 2" in said
    assert "Nope" in said
    assert list((tmp_path / "zoo").glob("*Net.json"))


def test_a_net_that_cannot_be_loaded_fails_on_each_dataset(world, tmp_path):
    folder, zoo = world
    (tmp_path / "second").symlink_to(zoo)
    nope = f"{folder}/net.py:Nope"
    said = refusal("run", nope, nope, "-d", f"{zoo},{tmp_path}/second", "-o", tmp_path / "scores")
    assert "2 of 2 could not be scored" in said


def test_a_dataset_that_is_not_here_is_refused_before_a_net_is_loaded(world, tmp_path):
    folder, zoo = world
    said = refusal("run", f"{folder}/net.py:Nope", "-d", f"{zoo},unheard", "-o", tmp_path)
    assert "unheard" in said
    assert "Nope" not in said


def test_a_batch_that_memory_is_too_small_for_is_halved(world, tmp_path):
    folder, zoo = world
    words = ("run", f"{folder}/net.py:Greedy", "-d", zoo, "-o", tmp_path)
    said = call(*words, "--batch", 32).stderr
    assert [line for line in said.splitlines() if "at a time" in line] == [
        f"the memory is too small: embedding {batch} images at a time" for batch in (16, 8)
    ]
    assert "is there" in call(*words, "--batch", 32).stderr


def test_two_files_of_one_name_are_refused_before_any_work(world, tmp_path):
    _, zoo = world
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.parquet").write_bytes(b"")
    said = refusal("run", *sorted(tmp_path.glob("*/mine.parquet")), "-d", zoo, "-o", tmp_path / "o")
    assert "share a report" in said
    assert not (tmp_path / "o").exists()


def test_a_net_takes_the_weights_of_a_file_and_is_known_by_them(world, tmp_path):
    """Other weights under the same name are not taken for what was embedded."""
    _, zoo = world
    torch.save(embedder("hbench:small", weights="random").model.state_dict(), tmp_path / "w.pth")
    words = ("run", "hbench:small", "-d", zoo, "-o", tmp_path / "scores", "--json")
    first = call(*words, "--weights", tmp_path / "w.pth")
    random = call(*words[:-2], tmp_path / "other", "--json", "--weights", "random")
    assert json.loads(first.stdout) == json.loads(random.stdout)
    assert "is there" in call(*words, "--weights", tmp_path / "w.pth").stderr

    state = torch.load(tmp_path / "w.pth")
    torch.save({name: 2 * tensor for name, tensor in state.items()}, tmp_path / "w.pth")
    assert "holds other embeddings" in refusal(*words, "--weights", tmp_path / "w.pth")


def test_a_row_says_the_command_that_makes_its_file_and_is_made_again_by_it(tmp_path, monkeypatch):
    """Files are named without the folder they lie in, and rerun finds them where it is run."""
    weights = tmp_path / "mine" / "w.pth"
    weights.parent.mkdir()
    torch.save(embedder("hbench:small", weights="random").model.state_dict(), weights)
    scores = tmp_path / "scores"
    call("run", "hbench:small", "-d", "glyphs", "--weights", weights, "--batch", 48, "-o", scores)

    board = tmp_path / "glyphs.toml"
    report = scores / "glyphs" / "hbench-small.json"
    call("leaderboard", "add", "glyphs", report, "--method", "small", "--to", board)
    (row,) = leaderboard.read_board(str(board)).rows
    assert row.run.made == "hbench embed hbench:small --weights w.pth -d glyphs --batch 48"
    monkeypatch.chdir(weights.parent)
    done = call("leaderboard", "rerun", board, "small")
    assert "the same content" in done.stderr


def test_every_option_that_a_file_names_may_be_run_again():
    options = EmbedOptions(
        batch=8, scales=(1.0, 0.5**0.5), flip=True, precision="bfloat16", skip_unreadable=True
    )
    made = shlex.join(["hbench", "embed", "hbench:pixels", "-d", "glyphs", *options.words])
    words = command_of(made, Path("out"), "pixels.parquet")
    assert f"1.0,{0.5**0.5!r}" in words
    assert "--skip-unreadable" in words


def test_no_command_is_said_for_a_dataset_of_ones_own(ran):
    report, _ = ran
    assert json.loads(report.read_text())["embedding"].get("made") is None


def test_a_file_of_weights_is_one_models(world, tmp_path):
    _, zoo = world
    (tmp_path / "w.pth").write_bytes(b"")
    said = refusal(
        "run", "hbench:small", "timm:resnet18", "-d", zoo, "--weights", tmp_path / "w.pth"
    )
    assert "weights of one model" in said
