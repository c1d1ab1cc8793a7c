"""First results beside a report: those that `hbench look` shows, refused where they could not be
kept, and where foreign.
"""

import json

import pyarrow.parquet as pq
import pytest

from hbench.core.errors import SubmissionError
from hbench.records import document as reports
from hbench.records import results
from tests import zoo
from tests.command_line import call, refusal

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    zoo.make(folder, items=400)
    words = ("evaluate", folder / zoo.FILE, "-d", folder / zoo.DATASET, "--metrics", "H-AP")
    call(*words, "-o", folder / "r.json", "--top-k", 5)
    return folder


def test_the_first_results_lie_beside_the_report_and_are_those_of_look(folder):
    document = reports.read(folder / "r.json")
    assert reports.read_by_query(folder / "r.by-query.parquet", document).num_rows == 400
    table = results.read(folder / "r.top-k.parquet", document)
    row = table.slice(17, 1).to_pylist()[0]
    look = (
        "look",
        folder / zoo.FILE,
        "-d",
        folder / zoo.DATASET,
        "--item",
        row["query"],
        "-k",
        5,
        "--json",
    )
    (shown,) = json.loads(call(*look).stdout)
    hits = shown["results"][zoo.FILE]
    assert row["items"] == [hit["item"] for hit in hits]
    assert row["levels"] == [hit["level"] for hit in hits]
    assert row["scores"] == pytest.approx([hit["score"] for hit in hits], abs=1e-5)


def test_tables_of_another_report_or_with_odd_columns_are_refused(folder, tmp_path):
    document = reports.read(folder / "r.json")
    by_query, top = (pq.read_table(folder / f"r.{kind}.parquet") for kind in ("by-query", "top-k"))
    texts = by_query.drop_columns("H-AP").append_column("H-AP", by_query["query"])
    doubled = [table.append_column(table.column_names[2], table[2]) for table in (by_query, top)]
    refused = [
        (results.read, top.set_column(4, "levels", top["items"]), "does not hold first results"),
        (results.read, doubled[1], "two columns are named"),
        (reports.read_by_query, texts, "H-AP as string"),
        (reports.read_by_query, doubled[0], "two columns are named"),
    ]
    for read, table, words in refused:
        results.write(tmp_path / "x.parquet", table, document)
        with pytest.raises(SubmissionError, match=words):
            read(tmp_path / "x.parquet", document)
    with pytest.raises(SubmissionError, match="signature another"):
        results.read(
            folder / "r.top-k.parquet", document.model_copy(update={"signature": "another"})
        )
    (tmp_path / "cut.parquet").write_bytes((folder / "r.top-k.parquet").read_bytes()[:5000])
    with pytest.raises(SubmissionError, match="--top-k"):
        results.read(tmp_path / "cut.parquet", document)


@pytest.mark.parametrize(
    "options", [("--top-k", 3), ("--top-k", 3, "--resume", "kept", "--blocks", "1/2")]
)
def test_what_cannot_keep_results_is_refused_before_work(folder, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    assert "--top-k" in refusal("evaluate", folder / zoo.FILE, "-d", folder / zoo.DATASET, *options)
    assert not list(tmp_path.iterdir())
