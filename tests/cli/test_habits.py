"""Options and behaviour that all verbs share: tables that fit, completion, quiet and verbose,
citations.
"""

import csv
import io
import json
import os
import re

import click
import numpy as np
import pytest
from click.testing import CliRunner

from hbench.cli import group
from hbench.cli.cite import METRIC_SOURCES
from hbench.datasets import specs
from hbench.metrics.definitions import metrics
from tests.command_line import at_a_terminal, call, refusal

pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("empty_home")]


def lines_at_a_terminal(columns, *words):
    """What a terminal shows, in lines without colours."""
    sent = at_a_terminal(*words, columns=columns)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent).replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "words",
    [
        ("datasets",),
        ("leaderboard", "list"),
        ("leaderboard", "show", "sop"),
        ("recipes",),
        ("info",),
    ],
    ids=str,
)
def test_a_table_fits_80_columns(words):
    assert max(map(len, lines_at_a_terminal(80, *words))) <= 80


def test_the_names_of_datasets_are_never_broken():
    lines = lines_at_a_terminal(80, "datasets")
    shown = {line.split("│")[1].strip() for line in lines if line.startswith("│")} - {""}
    assert shown >= set(specs)
    assert len(lines) < 1.5 * len(shown)
    assert any("licence" in line for line in lines_at_a_terminal(250, "datasets"))


def run(*words):
    return CliRunner().invoke(group, words, prog_name="hbench")


def test_what_is_piped_is_cells_between_tabs():
    header, *rows = run("datasets").stdout.splitlines()
    columns = header.split("\t")
    assert columns[0] == "name"
    assert {row.count("\t") for row in rows} == {len(columns) - 1}
    assert {row.split("\t")[0] for row in rows} >= set(specs)


@pytest.mark.parametrize(
    "words", [("datasets",), ("leaderboard", "list"), ("recipes", "glyphs-*"), ("losses",)], ids=str
)
def test_csv_and_json_have_a_record_for_every_row(words):
    rows = list(csv.reader(io.StringIO(run(*words, "--csv").stdout)))
    records = json.loads(run(*words, "--json").stdout)
    assert len(rows) - 1 == len(records) > 3


def test_an_option_that_would_do_nothing_is_refused():
    for words in (
        "recipes sop-happier --csv",
        "recipes sop-* --set images.scale=1",
        "recipes zzz-*",
        "datasets sop --csv",
        "datasets --json --csv",
    ):
        assert run(*words.split()).exit_code, words


def test_the_shell_completes_verbs_and_names():
    for typed, expected in (
        ("hbench eval", "evaluate"),
        ("hbench evaluate x -d cub", "cub200"),
        ("hbench leaderboard show inat18-b", "inat18-base"),
        ("hbench evaluate x -d sop --metrics AP,ND", "AP,NDCG"),
        ("hbench evaluate x -d sop --protocol pap", "paper"),
        ("hbench train glyphs-happ", "glyphs-happier"),
        ("hbench losses sup_h", "sup_hap"),
    ):
        *words, begun = typed.split()
        completed = click.shell_completion.BashComplete(group, {}, "hbench", "_HBENCH_COMPLETE")
        assert expected in [each.value for each in completed.get_completions(words[1:], begun)]


def every_command():
    """Each command below hbench that is not a group, with the words that lead to it."""

    def walk(command, words):
        if not isinstance(command, click.Group):
            yield words, command
            return
        context = click.Context(command, info_name=words[-1])
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), [*words, name])

    yield from walk(group, ["hbench"])


def test_every_command_has_an_example_and_the_short_options_of_all():
    helps = {
        " ".join(words): " ".join((command.help or "").split())
        for words, command in every_command()
    }
    of_step = {
        name
        for name, text in helps.items()
        if name.startswith("hbench hgldv2") and f" {name}" in text
    }
    without = {name for name, text in helps.items() if f"Example: {name}" not in text} - of_step
    assert without == {"hbench datasets", "hbench download", "hbench build"}
    for words, command in every_command():
        options = [option for parameter in command.params for option in parameter.opts]
        assert [options.count(each) for each in ("-q", "--quiet", "-v", "--verbose")] == [
            1,
            1,
            1,
            1,
        ], words
        for parameter in command.params:
            for long, short in (("--out", "-o"), ("--dataset", "-d")):
                assert long not in parameter.opts or short in parameter.opts, (words, long)


def test_quiet_says_no_remarks():
    plain = run("leaderboard", "export", "sop", "-o", os.devnull)
    assert "wrote" in plain.stderr
    assert "wrote" not in run("-q", "leaderboard", "export", "sop", "-o", os.devnull).stderr
    assert "wrote" not in run("leaderboard", "-q", "export", "sop", "-o", os.devnull).stderr
    assert "wrote" not in run("leaderboard", "export", "sop", "-o", os.devnull, "--quiet").stderr


def test_verbose_says_where_a_refusal_was_made():
    assert "Traceback" in run("-v", "datasets", "nonsense").stderr
    assert "Traceback" in run("datasets", "nonsense", "-v").stderr
    assert "Traceback" not in run("datasets", "nonsense").stderr


def test_cite_prints_bibtex():
    assert all(any(metric.startswith(known) for metric in metrics) for known in METRIC_SOURCES)
    for name, expected in (
        ("hgldv2", ["@inproceedings{weyand2020gldv2,", "@article{ramzi2025rank,"]),
        ("H-AP(alpha=3)", ["author = {Ramzi, Elias and Audebert, Nicolas and Thome, Nicolas"]),
        ("R@10/species", ["@article{jegou2011product,"]),
        ("Smooth-AP", ["@inproceedings{brown2020smoothap,", "@article{ramzi2025rank,"]),
        ("HD-first-mistake", ["eprint = {1912.09393}"]),
        ("happier", ["@article{ramzi2025rank,", "@inproceedings{ramzi2022happier,"]),
        ("sup_ap", ["booktitle = {Advances in Neural Information Processing Systems (NeurIPS)}"]),
        (
            "cub200",
            ["@techreport{wah2011cub,", "institution = {California Institute of Technology}"],
        ),
        ("hbench", ["author = {{The hbench authors}}"]),
        ("AP/genus", None),
    ):
        result = run("cite", name)
        assert (result.exit_code == 0) == (expected is not None)
        for part in expected or []:
            assert part in result.stdout


def test_a_series_of_files_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_DATA", str(tmp_path))
    result = run("download", "hgldv2", "--offline")
    assert len((result.stdout + result.stderr).splitlines()) < 20
    assert "images_000.tar … images_499.tar (500 files)" in result.stdout


@pytest.fixture
def scored(tmp_path):
    """A table of eight items, and vectors of them."""
    rows = ["a,x,p", "b,x,p", "c,x,q", "d,x,q", "e,y,r", "f,y,r", "g,y,s", "h,y,s"]
    (tmp_path / "own.csv").write_text("\n".join(["id,kind,name", *rows]))
    vectors = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    np.savez(tmp_path / "e.npz", ids=list("abcdefgh"), embeddings=vectors)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "e.npz", "-d", "own.csv", "--out", "e.npz"),
        ("evaluate", "e.npz", "-d", "own.csv", "--by-query", "own.csv"),
        ("evaluate", "e.npz", "-d", "own.csv", "--out", "new.json", "--row", "./new.json"),
        ("evaluate", "e.npz", "-d", "own.csv", "--out", "link.npz"),
        ("tree", "export", "own.csv", "--out", "own.csv"),
        ("name", "own.csv", "-d", "own.csv", "--out", "own.csv"),
    ],
    ids=str,
)
def test_no_file_is_written_over_one_that_is_read_or_written(scored, monkeypatch, words):
    monkeypatch.chdir(scored)
    (scored / "link.npz").symlink_to("e.npz")
    before = {path.name: path.read_bytes() for path in scored.iterdir()}
    said = refusal(*words)
    assert "would be overwritten" in said
    assert {path.name: path.read_bytes() for path in scored.iterdir()} == before


RUN = "".join(
    f"{query} 0 {item} 1 .9 x\n" for query, item in zip("abcdefgh", "badcfehg", strict=True)
)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("e.npz", "--edges", "a,b"), "no --trees"),
        (
            ("e.npz", "--check", "--out", "r.json", "--by-query", "q.parquet"),
            "--out and --by-query",
        ),
        (("e.npz", "--json", "--format", "csv"), "csv, json"),
        (("run.trec", "--resume", "kept"), "leave --resume out"),
        (("run.trec", "--leave-out", "zero"), "no vectors to leave out"),
    ],
    ids=str,
)
def test_options_that_would_do_nothing_are_refused(scored, words, named):
    (scored / "run.trec").write_text(RUN)
    file, *options = words
    assert named in refusal("evaluate", scored / file, "-d", scored / "own.csv", *options)
    assert not (scored / "kept").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("e.npz", "--similarity", "hamming"),
        ("e.npz", "--max-memory", "1"),
        ("e.npz", "--nodes", "e.npz"),
        ("e.npz", "--device", "none-such"),
        ("run.trec", "--trees", "shuffled"),
    ],
    ids=str,
)
def test_checking_refuses_what_scoring_refuses(scored, monkeypatch, options):
    (scored / "run.trec").write_text(RUN)
    monkeypatch.chdir(scored)
    of_scoring = refusal("evaluate", *options, "-d", "own.csv")
    assert of_scoring in refusal("evaluate", *options, "-d", "own.csv", "--check")


def test_a_larger_memory_as_advised_is_enough(scored, monkeypatch):
    monkeypatch.chdir(scored)
    said = refusal("evaluate", "e.npz", "-d", "own.csv", "--max-memory", 1)
    more = int(re.search(r"larger by (\d+) KB", said)[1])
    done = call("evaluate", "e.npz", "-d", "own.csv", "--max-memory", f"{more + 1}K")
    assert "H-AP" in done.stdout


@pytest.mark.parametrize("verb", ["gap", "explain", "evaluate-all"])
def test_how_a_table_was_understood_is_said_by_every_verb(scored, verb):
    words = {
        "gap": (scored / "e.npz", "--batch", 4),
        "explain": (scored / "e.npz", "--metric", "AP", "--value", "50.0"),
        "evaluate-all": (scored, "--out", scored / "reports"),
    }[verb]
    assert "read: own.csv" in call(verb, *words, "-d", scored / "own.csv").stderr


def test_a_comparison_over_few_classes_says_that_its_intervals_cannot_be_trusted(scored):
    for name in ("one", "two"):
        words = ("-d", scored / "own.csv", "-o", scored / f"{name}.json")
        call("evaluate", scored / "e.npz", *words)
    done = call("compare", scored / "one.json", scored / "two.json", "--metrics", "AP,R@10,R@100")
    assert "fewer than 12" in done.stderr
    assert "all 3 metrics; 1 of them, 100 in both reports, not shown" in done.stdout


def test_a_metric_without_a_paper_is_no_unknown_name():
    assert "hbench cite hbench" in refusal("cite", "MRR")
    assert "hbench cite hbench" in refusal("cite", "P@5/genus")
