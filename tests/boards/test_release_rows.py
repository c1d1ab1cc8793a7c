"""The files of rows become assets of a release, whose addresses the rows then have."""

from pathlib import Path

import numpy as np
import pytest

import hbench
from hbench.boards import read_board_file
from hbench.boards.proof.addresses import TRUSTED
from hbench.boards.proof.fetched import VERIFIED, verdict_on
from hbench.boards.runs import add, empty_board, row_of
from hbench.datasets.download import Patience, Requester, session
from hbench.submissions import embeddings
from tests.command_line import process
from tests.file_server import FileServer

SCRIPT = Path(__file__).parents[2] / ".ci" / "release_rows.py"
ITEMS = [f"{n:02}" for n in range(40)]


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A board of two rows; the file of the first lies in `kept`, under another name."""
    for variable in ("HBENCH_HOME", "HBENCH_DATA", "HBENCH_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    lines = [f"{item},g{n % 8 // 4},s{n % 8}" for n, item in enumerate(ITEMS)]
    (tmp_path / "toy.csv").write_text("\n".join(["item,genus,species", *lines]))
    levels = ["genus", "species"]
    hbench.build("toy", source=hbench.OwnSource(tmp_path / "toy.csv", levels))
    (tmp_path / "boards").mkdir()
    (tmp_path / "kept").mkdir()
    path = tmp_path / "boards" / "toy.toml"
    for seed, method in enumerate(["first", "second"]):
        file = tmp_path / f"{method}.npz"
        vectors = np.random.default_rng(seed).normal(size=(40, 4)).astype(np.float32)
        embeddings.write(file, ITEMS, vectors)
        document = hbench.evaluate(file, "toy", method=method).document
        known = read_board_file(path) if path.exists() else empty_board(document)
        add(row_of(document, known), known, path)
    (tmp_path / "first.npz").rename(tmp_path / "kept" / "any-name.npz")
    return path


def test_a_row_gets_the_address_of_its_file_and_is_verified_by_it(board, tmp_path, monkeypatch):
    with FileServer() as server:
        monkeypatch.setenv(TRUSTED, server.address.removeprefix("http://"))
        words = (tmp_path / "kept", server.address, "--out", tmp_path / "assets")
        said = process(SCRIPT, *words, "--boards", board.parent, folder=tmp_path).stdout
        assert "toy\t1 with their address" in said
        assert "toy\tsecond: no file" in said

        for asset in (tmp_path / "assets").iterdir():
            server.files[asset.name] = asset.read_bytes()
        rows = {row.method: row for row in read_board_file(board).rows}
        assert rows["second"].run.url is None
        requester = Requester(session(), Patience(pause=0.01))
        verdict = verdict_on(
            rows["first"], read_board_file(board), requester, on_progress=lambda _done: None
        )
        assert verdict.verdict == VERIFIED, verdict.detail


def test_a_row_that_has_an_address_keeps_it(board, tmp_path):
    words = (SCRIPT, tmp_path / "kept")
    process(*words, "https://one.example", "--boards", board.parent, folder=tmp_path)
    before = board.read_text()
    process(*words, "https://two.example", "--boards", board.parent, folder=tmp_path)
    assert "https://one.example/toy-" in before
    assert board.read_text() == before
