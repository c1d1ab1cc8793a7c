"""What a branch may bring in place of rows: links, pipes, marks of its own, worse rows."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace

import pytest

from hbench.boards import RunProvenance, board_names, parse_board, read_board_file
from hbench.boards.proof.changes import changes_since, in_place_of
from hbench.boards.proof.fetched import ABSENT, DIFFERS, mark, verdict_among
from hbench.boards.proof.verification import checked
from hbench.boards.rows import Row
from hbench.boards.runs import block, recorded
from hbench.core.errors import ComparisonError, ConfigError, SubmissionError

SIGNED = "toy@1|test|sim:cosine|ties:pessimistic|rel:alpha=1|protocol:paper|hbench:0.1"
HEAD = 'dataset = "toy"\nversion = "1"\nprotocol = "paper"\nmetric = "R@1"\n\n'


def row_of(method, score="50.000", **run):
    known = {"content": f"{abs(hash(method)):064x}"[-64:], "file": "a.npz", "signature": SIGNED}
    known |= {"hbench": "0.1.0", "dataset_digest": "d", "date": "2026-01-31", "queries": 9}
    made = RunProvenance(**(known | run))
    return Row(method=method, scores={"R@1": Decimal(score)}, run=made)


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "\n".join(map(block, rows)), encoding="utf-8")
    return path


@pytest.fixture
def branch(tmp_path):
    """A repository with a leaderboard of two rows."""
    path = write(tmp_path / "leaderboards/toy.toml", row_of("a"), row_of("b"))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "rows"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True
        )
    return path


@pytest.mark.parametrize("of_folder", [False, True])
def test_a_board_that_is_a_link_hides_no_removed_row(branch, tmp_path, of_folder):
    elsewhere = write(tmp_path / "elsewhere/toy.toml", row_of("a"))
    if of_folder:
        branch.parent.rename(tmp_path / "away")
        branch.parent.symlink_to(elsewhere.parent)
    else:
        branch.unlink()
        branch.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="is a link"):
        changes_since("HEAD", branch)


def test_a_pipe_is_no_board_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "toy.toml")
    with pytest.raises(ConfigError, match="is not a file"):
        read_board_file(tmp_path / "toy.toml")


def test_a_row_that_another_takes_the_place_of_is_told_with_both_scores(branch):
    write(branch, row_of("a", "49.000", content="1" * 64), row_of("b"))
    changes = changes_since("HEAD", branch)
    ((number, old),) = changes.replaced.items()
    assert (changes.gone, number) == ((), 0)
    assert "R@1 50.000 → 49.000" in in_place_of(read_board_file(branch).rows[number], old)


def test_names_as_queries_cannot_be_marked_by_hand():
    row = row_of("a", verified="2026-01-01, hbench 0.1.0")
    row = row.model_copy(update={"setup": row.setup.model_copy(update={"queries": "nodes"})})
    board = read_of(row)
    kept = {row.run.content: None}
    assert verdict_among(row, board, kept).verdict == DIFFERS
    plain = row.run.model_copy(update={"verified": None})
    assert verdict_among(row.model_copy(update={"run": plain}), board, kept).verdict == ABSENT


def read_of(*rows):
    return parse_board(HEAD + "\n".join(map(block, rows)), "toy")


def test_a_mark_goes_to_the_row_that_was_verified_wherever_it_stands_now(tmp_path):
    honest, forged = row_of("honest"), row_of("forged", "99.000")
    path = write(tmp_path / "toy.toml", forged, honest)  # another process put a row before it
    assert mark(path, [(honest, True)]) == 1
    marks = {row.method: row.run.verified for row in read_board_file(path).rows}
    assert marks["forged"] is None
    assert "hbench" in marks["honest"]
    assert mark(path, [(row_of("honest", "60.000"), True)]) == 0  # no row is this one


def test_marks_of_several_processes_are_all_kept(tmp_path):
    rows = [row_of(f"m{number}") for number in range(8)]
    path = write(tmp_path / "toy.toml", *rows)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda row: mark(path, [(row, True)]), rows)) == 8
    assert all(row.run.verified for row in read_board_file(path).rows)


def test_a_relevance_that_is_none_is_refused_in_a_sentence():
    row = row_of("a", signature=SIGNED.replace("alpha=1", "alpha=x"))
    with pytest.raises(SubmissionError, match="relevance that is none"):
        recorded(row, read_of(row))


@pytest.mark.parametrize(
    ("where", "forged"),
    [
        ('method = "a"', 'method = "a\\u3164"'),
        ('method = "a"', 'method = "a\\ufe0f"'),
        ('method = "a"', 'method = "a\\u2800"'),
        ('method = "a"', 'method = " "'),
        ('method = "a"', 'method = "a "'),
        ('method = "a"', f'method = "{201 * "a"}"'),
        ('method = "a"', 'method = "a"\nsetup = { batch_size = -1 }'),
        ('method = "a"', f'method = "a"\nsetup = {{ parameters = {30 * "9"} }}'),
        ("run = { ", 'run = { note = "\\u202e", '),
        ("run = { ", 'run = { doubt = "\\u001b[2J", '),
        ("run = { ", 'run = { url = "https://\\u202eb.org", '),
        ("run = { ", 'run = { verified = "yes", '),
        ("run = { ", 'run = { verified = "2026-01-31, hbench 0.1.0, twice", '),
        ("run = { ", f"run = {{ seconds = {30 * '9'}, "),
        ("run = { ", 'run = { seeds = 5, between_seeds = { "AP" = 0.1 }, '),
        ('date = "2026-01-31"', 'date = "2026-02-31"'),
        ('metric = "R@1"', 'metric = "R@1"\nlevels = ["order", "order"]'),
        ('metric = "R@1"', 'metric = "R@1"\nnotes = "\\u202e"'),
        ('metric = "R@1"', 'metric = "R@1"\ncitations = { "\\u200b" = { text = "Me" } }'),
        ('metric = "R@1"', 'metric = "R@1"\nforeign_metrics = { "X\\u200b" = "mine" }'),
    ],
)
def test_what_is_not_seen_or_cannot_be_is_no_leaderboard(where, forged):
    text = HEAD + block(row_of("a"))
    assert where in text
    parse_board(text, "toy")
    with pytest.raises(ConfigError):
        parse_board(text.replace(where, forged, 1), "toy")


def test_a_file_is_one_row_whether_by_its_content_or_its_checksum(tmp_path):
    by_content = row_of("a")
    by_bytes = row_of("b", content=None, sha256="2" * 64)
    board = read_of(by_content, by_bytes)
    one_file = SimpleNamespace(
        content=by_content.run.content, source=SimpleNamespace(sha256=by_bytes.run.sha256)
    )
    with pytest.raises(ComparisonError, match="one file is two rows"):
        checked(by_bytes, board, one_file, None)


def test_a_file_that_no_terminal_can_name_is_no_leaderboard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "leaderboards/toy.toml", row_of("a"))
    write(tmp_path / "leaderboards/\u202eyot.toml", row_of("a"))
    (tmp_path / os.fsdecode(b"leaderboards/\xff.toml")).write_text(HEAD)
    names = board_names()
    assert "toy" in names
    assert all(map(str.isprintable, names))
