"""hbench evaluate-all: every embedding file of a folder scored, paired against the best,
resumable."""

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hbench.cli import group
from hbench.core.errors import SubmissionError
from hbench.records import comparison
from hbench.records import document as report
from hbench.submissions import embeddings
from tests import zoo


@pytest.fixture
def folder(tmp_path):
    """Three models' files, from good to bad."""
    return zoo.make_models(
        tmp_path, {"b-fair.parquet": 0.8, "a-bad.parquet": 2.0, "c-good.npz": 0.4}
    )


def evaluate_all(folder, *more):
    words = [
        "evaluate-all",
        folder / "models",
        "-d",
        folder / "zoo.parquet",
        "-o",
        folder / "reports",
        *more,
    ]
    return CliRunner().invoke(group, list(map(str, words)))


def test_models_are_listed_best_first(folder):
    run = evaluate_all(folder, "--json")
    assert run.exit_code == 0, run.output
    shown = json.loads(run.stdout)
    assert [model["method"] for model in shown["models"]] == ["c-good", "b-fair", "a-bad"]
    assert shown["metric"] == "H-AP"
    assert evaluate_all(folder).stdout.splitlines()[2].split("\t")[0] == "c-good"


def test_models_are_paired_against_the_best(folder):
    shown = json.loads(evaluate_all(folder, "--json").stdout)
    assert shown["models"][0]["behind_best"] is None
    paths = [folder / "reports" / f"{name}.json" for name in ("a-bad", "c-good")]
    tables = [
        report.read_by_query(path.with_suffix(".by-query.parquet"), report.read(path))
        for path in paths
    ]
    expected = comparison.differences_of(
        comparison.with_metrics_alone(tables[0], tables[1], ["H-AP"]), tables[1]
    )[0]
    # Holm, of two
    assert shown["models"][2]["behind_best"] == expected._replace(corrected=2 * expected.p).record()


def test_every_model_becomes_a_row_of_a_leaderboard(folder):
    run = evaluate_all(folder, "--json", "--row", folder / "rows.toml")
    assert run.exit_code == 0, run.output
    assert (folder / "rows.toml").read_text(encoding="utf-8").count("[[row]]") == 3


def test_what_is_finished_is_used_again_unless_file_or_conditions_changed(folder):
    assert evaluate_all(folder).exit_code == 0
    reports = {path: path.stat().st_mtime_ns for path in (folder / "reports").glob("*.json")}
    assert len(reports) == 3
    run = evaluate_all(folder)
    assert run.stderr.count("is of this file and these settings") == 3
    assert {path: path.stat().st_mtime_ns for path in reports} == reports
    items, vectors = [f"{i}.jpg" for i in range(80)], np.random.default_rng(1).normal(size=(80, 8))
    embeddings.write(folder / "models" / "a-bad.parquet", items, vectors.astype(np.float32))
    (folder / "reports" / "b-fair.by-query.parquet").unlink()
    assert evaluate_all(folder).stderr.count("is of this file and these settings") == 1
    assert (
        evaluate_all(folder, "--ties", "optimistic").stderr.count(
            "is of this file and these settings"
        )
        == 0
    )


def test_what_cannot_be_compared_is_named_and_the_others_are_shown(folder):
    assert evaluate_all(folder).exit_code == 0
    by_query = evaluate_all(folder, "--unit", "query")
    # their intervals are over classes
    assert by_query.stderr.count("is of this file and these settings") == 0
    rows = [
        (f"{q}.jpg", f"{g}.jpg", -float(abs(q - g)))
        for q in range(80)
        for g in range(max(0, q - 2), min(80, q + 3))
        if q != g
    ]
    query, item, score = zip(*rows, strict=True)
    pq.write_table(
        pa.table({"query": query, "item": item, "score": score}),
        folder / "models" / "0-lists.parquet",
    )
    vectors = np.random.default_rng(0).normal(size=(79, 8)).astype(np.float32)
    embeddings.write(
        folder / "models" / "1-less.parquet",
        [f"{i}.jpg" for i in range(79)],
        vectors,
        left_out=["79.jpg"],
    )
    run = evaluate_all(folder, "--json")
    assert "2 of 5 files are refused, or not comparable" in str(run.exception)
    shown = json.loads(run.stdout)
    assert [model["method"] for model in shown["models"]] == ["c-good", "b-fair", "a-bad"]
    assert shown["refused"] == ["0-lists.parquet", "1-less.parquet"]


def test_a_file_that_is_refused_is_named_at_the_end_and_the_others_are_shown_if_there_are_any(
    folder,
):
    embeddings.write(folder / "models" / "short.parquet", ["0.jpg"], np.ones((1, 8), np.float32))
    run = evaluate_all(folder)
    assert isinstance(run.exception, SubmissionError)
    assert "1 of 4 files are refused" in str(run.exception)
    assert "short.parquet" in str(run.exception)
    assert len(run.stdout.splitlines()) == 1 + 1 + 3 + 2  # title, header, models, unit, signature
    assert not (folder / "reports" / "short.json").exists()
    for path in (folder / "models").iterdir():
        path.unlink()
    assert "no embedding files" in str(evaluate_all(folder).exception)


def table_of(run):
    """The lines of cells of a table in a pipe, below its title: the header, and a line per model by
    name.
    """
    header, *lines = [
        line.split("\t") for line in run.stdout.splitlines() if not line.startswith("#")
    ]
    return header, {line[0]: dict(zip(header, line, strict=True)) for line in lines}


def test_all_metrics_that_are_asked_for_are_shown_sorted_by_one_of_them(folder):
    header, models = table_of(
        evaluate_all(folder, "--metrics", "R@1,AP/family,HD@1", "--by", "HD@1")
    )
    assert (
        header
        == [
            "model",
            "HD@1",
            "to the best",
            "95 % interval",
            "p (Holm)",
            "R@1",
            "AP/family",
            "doubts",
        ][: len(header)]
    )
    values = [float(line["HD@1"].split()[0]) for line in models.values()]
    assert values == sorted(values)  # a distance: lower is better
    for name, line in models.items():
        scores = report.read(folder / "reports" / f"{name}.json").scores
        assert [line["R@1"], line["AP/family"]] == [
            f"{100 * scores[m].value:.2f}" for m in ("R@1", "AP/family")
        ]
    assert "unknown metric of these reports 'P@3'" in str(
        evaluate_all(folder, "--by", "P@3").exception
    )
    assert list(table_of(evaluate_all(folder, "--metrics", "R@1", "--by", "ASI"))[0])[:2] == [
        "model",
        "ASI",
    ]


def test_a_csv_holds_numbers(folder):
    run = evaluate_all(folder, "--metrics", "H-AP,R@1,HD@1", "--csv")
    rows = list(csv.DictReader(io.StringIO(run.stdout)))
    assert [row["model"] for row in rows] == ["c-good", "b-fair", "a-bad"]
    for row in rows:
        document = report.read(folder / "reports" / f"{row['model']}.json")
        assert {name: float(row[name]) for name in document.scores} == {
            n: s.value for n, s in document.scores.items()
        }
        numbers = [
            row[name]
            for name in ("difference", "low", "high", "p", "corrected", "queries", "units")
        ]
        assert numbers == [""] * 7 if row["model"] == "c-good" else all(map(float, numbers[:2]))


def test_the_best_is_printed_in_bold(folder):
    latex = evaluate_all(folder, "--metrics", "H-AP,R@1,HD@1", "--format", "latex").stdout
    best = [line for line in latex.splitlines() if r"\textbf" in line]
    good = report.read(folder / "reports" / "c-good.json").scores
    assert len(best) == 1
    assert best[0].startswith("c-good & ")
    assert rf"\textbf{{{100 * good['HD@1'].value:.2f}}}" in best[0]
    by = ("--metrics", "R@1,H-AP", "--by", "H-AP")
    markdown = evaluate_all(folder, *by, "--format", "markdown").stdout
    assert f"**{100 * good['R@1'].value:.2f}**" in markdown


def test_a_full_report_is_never_replaced_by_a_smaller_one(folder):
    assert evaluate_all(folder).exit_code == 0
    paths = sorted((folder / "reports").iterdir())
    full = {path: path.read_bytes() for path in paths}
    assert (
        evaluate_all(folder, "--metrics", "R@1").stderr.count("is of this file and these settings")
        == 3
    )
    assert {path: path.read_bytes() for path in paths} == full


def test_a_metric_that_reports_lack_is_added_to_theirs(folder):
    assert evaluate_all(folder).exit_code == 0
    before = report.read(folder / "reports" / "c-good.json").scores
    header, _ = table_of(evaluate_all(folder, "--metrics", "P@3"))
    assert header[:2] == ["model", "P@3"]
    after = report.read(folder / "reports" / "c-good.json").scores
    assert after.keys() == before.keys() | {"P@3"}
    assert {name: after[name] for name in before} == before


def test_a_report_with_first_results_is_not_replaced_by_one_that_would_lose_them(folder):
    assert evaluate_all(folder).exit_code == 0
    before = report.read(folder / "reports" / "c-good.json").scores
    (folder / "reports" / "c-good.top-k.parquet").write_bytes(b"kept")
    run = evaluate_all(folder, "--metrics", "P@5")
    assert "c-good.parquet: refused" in run.stderr or "c-good.npz: refused" in run.stderr
    assert "first results, which this evaluation would lose" in run.stderr
    assert report.read(folder / "reports" / "c-good.json").scores == before


@pytest.mark.parametrize(
    "option", [["--check"], ["--top-k", "3"], ["--trees", "shuffled"], ["--format", "hub"]]
)
def test_what_is_of_one_file_alone_is_refused_before_any_work(folder, option):
    assert evaluate_all(folder, *option).exit_code == 2
    assert not (folder / "reports").exists()
