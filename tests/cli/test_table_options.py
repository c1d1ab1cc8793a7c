"""The options of a table: the same words on every verb that takes a dataset, kept in the report."""

import json
from dataclasses import fields

import click
import numpy as np
import pytest

from hbench.cli import group
from hbench.cli.table_options import TableOptions
from hbench.submissions import embeddings
from hbench.tree.policies import RECOMMENDED, policies
from tests.command_line import call, refusal

VERBS = [
    "evaluate", "evaluate-all", "name", "audit", "look", "report", "gap", "plot",
    "leaderboard verify", "leaderboard submit",
]  # fmt: skip


def command_of(verb):
    command = group
    for word in verb.split():
        command = command.get_command(click.Context(command), word)
    return command


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_takes_a_table_has_all_options_of_one(verb):
    names = {each.name for each in command_of(verb).params}
    assert {field.name for field in fields(TableOptions)} <= names


def test_the_help_names_every_policy():
    option = next(each for each in command_of("evaluate").params if each.name == "policies")
    assert all(name in option.help for name in [*policies, RECOMMENDED])


@pytest.fixture
def shop(tmp_path):
    """A table that is read rightly by options alone, with vectors, in a folder."""
    rng = np.random.default_rng(0)
    rows = [(f"a{n}", f"b{n}", "xy"[n % 2], f"{'xy'[n % 2]}{n % 4}") for n in range(24)]
    text = "sku,img,order,species\n" + "".join(",".join(row) + "\n" for row in rows)
    (tmp_path / "t.csv").write_text(text)
    vectors = rng.normal(size=(24, 4)).astype(np.float32)
    embeddings.write(tmp_path / "e.parquet", [row[1] for row in rows], vectors)
    return tmp_path


def test_what_was_said_about_a_table_is_kept_in_its_report_and_used_again(shop):
    chosen = ["--item-column", "img", "--levels", "order,species"]
    call("evaluate", shop / "e.parquet", "-d", shop / "t.csv", *chosen, "-o", shop / "r.json")
    kept = json.loads((shop / "r.json").read_text())["read"][0]["options"]
    assert kept == {"item": "img", "levels": ["order", "species"]}

    call("report", shop / "r.json", "-d", shop / "t.csv", "-o", shop / "pages")
    strips = ["look", shop / "e.parquet", "-d", shop / "t.csv", "--worst", "1"]
    call(*strips, "--report", shop / "r.json")
    assert "--item-column" in refusal(*strips)  # which look takes; its --item is a query


def test_a_metric_that_lists_can_give_is_named_where_another_cannot(tmp_path):
    ids = [f"i{n}" for n in range(8)]
    (tmp_path / "t.csv").write_text(
        "item,kind\n" + "".join(f"{i},{i[-1] in '0246'}\n" for i in ids)
    )
    lines = [
        f"{q} Q0 {d} {k} {1 - k / 9} t\n"
        for q in ids
        for k, d in enumerate([x for x in ids if x != q][:3], 1)
    ]
    (tmp_path / "run.txt").write_text("".join(lines))
    scored = ["evaluate", tmp_path / "run.txt", "-d", tmp_path / "t.csv", "--metrics"]
    assert "mAP@3" in refusal(*scored, "AP")
    call(*scored, "mAP@3")


def test_files_that_are_missing_are_named_together(tmp_path):
    files = ["--query", tmp_path / "q.npz", "--gallery", tmp_path / "g.npz"]
    message = refusal("evaluate", *files, "-d", "nothing")
    assert "q.npz and" in message
    assert "g.npz" in message


def test_a_file_that_evaluate_all_passes_over_is_said(shop):
    (shop / "many").mkdir()
    (shop / "e.parquet").rename(shop / "many" / "e.parquet")
    (shop / "many" / "notes.csv").write_text("a\n")
    chosen = ["--item-column", "img", "--levels", "order,species", "--metrics", "AP"]
    reports = shop / "reports"
    told = call("evaluate-all", shop / "many", "-d", shop / "t.csv", *chosen, "--out", reports)
    assert "notes.csv" in told.stderr


@pytest.mark.parametrize(("most", "asks"), [(255, True), (40, False)])
def test_bytes_that_may_be_bits_are_a_question(tmp_path, most, asks):
    rng = np.random.default_rng(0)
    ids = [f"i{n}" for n in range(8)]
    (tmp_path / "t.csv").write_text(
        "item,kind\n" + "".join(f"{i},{i[-1] in '0246'}\n" for i in ids)
    )
    bytes_ = rng.integers(1, most, (8, 16), dtype=np.uint8)
    np.savez(tmp_path / "e.npz", ids=np.array(ids), embeddings=bytes_)
    asked = ["evaluate", tmp_path / "e.npz", "-d", tmp_path / "t.csv", "--metrics", "AP"]
    if asks:
        assert "--similarity hamming" in refusal(*asked)
        asked += ["--similarity", "hamming"]
    call(*asked)
