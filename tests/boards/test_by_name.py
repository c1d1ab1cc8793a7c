"""Rows whose queries are names: ranked among themselves, verified with the vectors of the names."""

import numpy as np
import pytest

import hbench
from hbench import boards
from hbench.core.errors import SubmissionError
from hbench.look.site.boards import script_of, view_of
from tests.command_line import call, refusal

ROWS = [("Owls", "barn owl"), ("Owls", "bay owl"), ("Parrots", "galah")]


@pytest.fixture
def folder(tmp_path, empty_home):
    """A table, vectors of items, of names by two models, and a leaderboard with their rows."""
    rng = np.random.default_rng(1)
    rows = ROWS * 4
    lines = ["item,order,kind", *(f"i{n},{a},{b}" for n, (a, b) in enumerate(rows))]
    (tmp_path / "birds.csv").write_text("\n".join(lines))
    own = {path: rng.normal(size=4) for path in ROWS}
    vectors = np.array([own[row] + 0.7 * rng.normal(size=4) for row in rows], np.float32)
    np.savez(tmp_path / "items.npz", ids=[f"i{n}" for n in range(len(rows))], embeddings=vectors)
    for name, noise in (("sharp", 0), ("vague", 2)):
        nodes = [own[path] + noise * rng.normal(size=4) for path in ROWS]
        np.savez(tmp_path / f"{name}.npz", ids=[kind for _, kind in ROWS], embeddings=nodes)
        write_report(tmp_path, name, nodes=tmp_path / f"{name}.npz")
    write_report(tmp_path, "items")
    for name in ("items", "sharp", "vague"):
        call("leaderboard", "add", tmp_path / "board.toml", tmp_path / f"{name}.json")
    return tmp_path


def write_report(folder, method, **how):
    report = hbench.evaluate(folder / "items.npz", folder / "birds.csv", method=method, **how)
    report.write(folder / f"{method}.json")


def test_names_and_items_are_ranked_apart(folder):
    board = boards.read_board(str(folder / "board.toml"))
    of_items = {each.rows[0].method: each.place for each in boards.rank(board, "AP")}
    by_name = {each.rows[0].method: each.place for each in boards.rank(board, "AP", by_name=True)}
    assert of_items == {"items": 1, "sharp": None, "vague": None}
    assert by_name == {"sharp": 1, "vague": 2, "items": None}
    assert [row.setup.queries for row in board.rows] == [None, "nodes", "nodes"]


def test_the_command_shows_the_rows_by_name(folder):
    shown = call("leaderboard", "show", folder / "board.toml", "--by-name").stdout
    assert "sharp" in shown
    assert "vague" in shown
    assert "items\t" not in shown


def test_a_report_by_name_has_no_place_among_items(folder):
    board = boards.read_board(str(folder / "board.toml"))
    with pytest.raises(SubmissionError, match="--by-name"):
        board.place(folder / "sharp.json")


def verified(folder, method, nodes):
    words = ("--embeddings", folder / "items.npz", "-d", folder / "birds.csv")
    words += () if nodes is None else ("--nodes", folder / f"{nodes}.npz")
    return ("leaderboard", "verify", folder / "board.toml", method, *words)


def test_a_row_by_name_is_verified_with_its_names(folder):
    assert "differs" not in call(*verified(folder, "sharp", "sharp")).stdout


@pytest.mark.parametrize(
    ("method", "nodes", "words"),
    [
        ("sharp", "vague", "not the one that its file gives"),
        ("sharp", None, "--nodes"),
        ("items", "sharp", "leave --nodes out"),
    ],
)
def test_a_row_is_refused_with_other_queries(folder, method, nodes, words):
    assert words in refusal(*verified(folder, method, nodes))


def test_the_site_says_why_a_row_by_name_is_not_ranked(folder):
    view = view_of(boards.read_board(str(folder / "board.toml")))
    doubts = {row.row.method: row.doubts for row in view.rows}
    assert any("names of the tree" in doubt for doubt in doubts["sharp"])
    assert doubts["items"] == []
    places = dict(script_of(view)["standings"])["AP"]
    assert sorted(place for place, _ in places if place) == [1]
