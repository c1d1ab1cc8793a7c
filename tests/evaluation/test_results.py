"""First results beside a report: those that `hbench look` shows, refused where they could not be kept, and where foreign."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import hbench
from hbench.cli import group
from hbench.core.errors import SubmissionError
from hbench.evaluation.reports import report as reports
from hbench.evaluation.reports import results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    test = hbench.load("glyphs").tests["test"]
    vectors = np.random.default_rng(0).normal(size=(len(test), 8)).astype(np.float32)
    np.savez(folder / "one.npz", ids=test.items.astype(str), embeddings=vectors)
    run("evaluate", folder / "one.npz", "-d", "glyphs", "--metrics", "H-AP", "-o", folder / "r.json", "--top-k", 5)
    return folder


def run(*arguments, code=0):
    done = CliRunner().invoke(group, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done


def test_the_first_results_lie_beside_the_report_and_are_those_of_look(folder):
    document = reports.read(folder / "r.json")
    assert reports.read_by_query(folder / "r.by-query.parquet", document).num_rows == 11_164
    table = results.read(folder / "r.top-k.parquet", document)
    row = table.slice(17, 1).to_pylist()[0]
    (shown,) = json.loads(
        run("look", folder / "one.npz", "-d", "glyphs", "--query", row["query"], "-k", 5, "--json").stdout
    )
    hits = shown["results"]["one.npz"]
    assert row["items"] == [hit["item"] for hit in hits]
    assert row["levels"] == [hit["level"] for hit in hits]
    assert row["scores"] == pytest.approx([hit["score"] for hit in hits], abs=1e-5)


def test_results_of_another_report_are_refused(folder, tmp_path):
    document = reports.read(folder / "r.json")
    other = document.model_copy(update={"signature": "another"})
    with pytest.raises(SubmissionError, match="signature another"):
        results.read(folder / "r.top-k.parquet", other)
    table = pq.read_table(folder / "r.top-k.parquet")
    changed = table.set_column(4, "levels", table["items"])
    results.write(tmp_path / "x.top-k.parquet", changed, document)
    with pytest.raises(SubmissionError, match="does not hold first results"):
        results.read(tmp_path / "x.top-k.parquet", document)
    (tmp_path / "cut.parquet").write_bytes((folder / "r.top-k.parquet").read_bytes()[:5000])
    with pytest.raises(SubmissionError, match="--top-k"):
        results.read(tmp_path / "cut.parquet", document)


@pytest.mark.parametrize("options", [("--top-k", 3), ("--top-k", 3, "-o", "x.json", "--shard", "1/2")])
def test_what_cannot_keep_results_is_refused_before_work(folder, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    words = ("evaluate", str(folder / "one.npz"), "-d", "glyphs", *map(str, options))
    done = CliRunner().invoke(group, words)
    assert "--top-k" in f"{done.output}{done.exception}"
    assert not list(tmp_path.iterdir())


def test_tables_beside_a_report_with_doubled_or_odd_columns_are_refused(folder, tmp_path):
    document = reports.read(folder / "r.json")
    by_query, top = (pq.read_table(folder / f"r.{kind}.parquet") for kind in ("by-query", "top-k"))
    texts = by_query.drop_columns("H-AP").append_column("H-AP", by_query["query"])
    doubled = [each.append_column(each.column_names[2], each[2]) for each in (by_query, top)]
    results.write(tmp_path / "q.parquet", texts, document)
    with pytest.raises(SubmissionError, match="H-AP as string"):
        reports.read_by_query(tmp_path / "q.parquet", document)
    for read, table in zip((reports.read_by_query, results.read), doubled, strict=True):
        results.write(tmp_path / "d.parquet", table, document)
        with pytest.raises(SubmissionError, match="two columns are named"):
            read(tmp_path / "d.parquet", document)
