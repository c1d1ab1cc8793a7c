"""Reports on disk: what is written is what is read; what is not a report is refused by name of the
key.
"""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

import hbench
from hbench.boards.runs import empty_board
from hbench.core.errors import (
    ComparisonError,
    HBenchError,
    SubmissionError,
    UnknownName,
    UsageError,
)
from hbench.evaluation.arrays import score
from hbench.records import document as reports
from hbench.records.document import Document
from hbench.records.report_tables import FORMATS, percent, table, tables
from hbench.records.shown import LEFT_OUT, worth_showing
from tests.command_line import refusal

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    fine = rng.integers(6, size=30)
    return score(
        rng.normal(size=(30, 4)),
        np.stack([fine // 3, fine], axis=1),
        level_names=["genus", "species"],
    )


def test_a_report_is_read_back_as_it_was_written(report, tmp_path):
    report.write(tmp_path / "r.json")
    report.write_by_query(tmp_path / "r.parquet")
    assert reports.read(tmp_path / "r.json") == report.document
    by_query = reports.read_by_query(tmp_path / "r.parquet", report.document)
    for name, values in report.values.items():
        assert np.array_equal(
            by_query[name].to_numpy(zero_copy_only=False).astype(float), values, equal_nan=True
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.parquet"]


def test_a_command_that_is_proposed_has_the_names_of_a_report_as_single_words(report, tmp_path):
    report.write_by_query(tmp_path / "r.parquet")
    other = report.document.model_copy(update={"dataset_digest": "0" * 64, "dataset": "d; rm -r ~"})
    with pytest.raises(SubmissionError, match="-d 'd; rm -r ~' -o"):
        reports.read_by_query(tmp_path / "r.parquet", other)


def test_names_that_are_not_utf8_are_refused_or_marked_before_any_work(tmp_path):
    file, table = tmp_path / os.fsdecode(b"m\xff.npz"), tmp_path / "own.csv"
    table.write_text("item,class\n" + "".join(f"{n},c{n % 4}\n" for n in range(12)))
    try:
        np.savez(
            file,
            ids=np.arange(12).astype(str),
            embeddings=np.random.default_rng(0).normal(size=(12, 2)),
        )
    except OSError:
        pytest.skip("this disk takes no such names")
    hbench.evaluate(file, table, metrics=["R@1"]).write(tmp_path / "r.json")
    assert reports.read(tmp_path / "r.json").embedding.file == "m\N{REPLACEMENT CHARACTER}.npz"
    with pytest.raises(UsageError, match="the method's name is not text"):
        hbench.evaluate(file, table, metrics=["R@1"], method="m\udc80")


def changed(document, **values):
    content = json.loads(document.model_dump_json())
    content["scores"]["R@1"] = {
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "queries": 3,
        "skipped": 0,
    } | values
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("{}", "not a report"),
        ("[1]", "not a report"),
        ('{"schema_version": 1, "colour": "red"}', "not a report"),
        *(
            ({name: value}, r"scores\.R@1")
            for name, value in [
                ("value", True),
                ("value", "0.5"),
                ("value", "high"),
                ("low", 0.9),
                ("high", 0.1),
                ("queries", -1),
            ]
        ),
    ],
)
def test_files_that_are_not_reports_are_refused_and_a_changed_one_names_the_key(
    report, tmp_path, text, words
):
    path = tmp_path / "r.json"
    path.write_text(text if isinstance(text, str) else changed(report.document, **text))
    with pytest.raises(SubmissionError, match=words):
        reports.read(path)
    # on the edge of its interval, but for rounding
    path.write_text(changed(report.document, value=0.4 - 1e-12))
    assert reports.read(path).scores["R@1"].low == 0.4


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    """The file of a report next to that of its values."""
    path = tmp_path_factory.mktemp("written") / "r.json"
    report.write(path)
    report.write_by_query(path.with_name("r.by-query.parquet"))
    return path


def test_a_report_without_its_values_is_read_and_cannot_be_compared(report, tmp_path):
    report.write(tmp_path / "r.json")
    alone = hbench.Report.read(str(tmp_path / "r.json"))
    assert (alone.document, dict(alone.values), len(alone.queries)) == (report.document, {}, 0)
    assert "30 queries" in repr(alone)
    with pytest.raises(ComparisonError, match="are not here"):
        hbench.compare(alone, report)


def test_a_report_is_read_with_the_values_that_lie_next_to_it(report, written):
    whole = hbench.Report.read(written)
    assert dict(whole.scores) == dict(report.scores)
    for name, values in report.per_query.items():
        np.testing.assert_array_equal(whole.per_query[name], values)
    assert whole.queries.tolist() == report.queries.tolist()


def test_every_function_that_takes_a_report_takes_its_path(report, written):
    whole = hbench.Report.read(written)
    assert list(hbench.compare(written, report)) == list(hbench.compare(whole, str(written)))
    by_path, by_report = hbench.plot(written, metrics=["AP"]), hbench.plot(report, metrics=["AP"])
    assert by_path.as_bytes("svg") == by_report.as_bytes("svg")
    board = empty_board(report.document)
    assert board.place(str(written)) == board.place(report)


def test_vectors_in_the_place_of_a_report_are_refused(report, written):
    board = empty_board(report.document)
    for function in (hbench.plot, board.place, lambda each: hbench.compare(each, written)):
        with pytest.raises(UsageError, match=r"hbench\.score\(vectors, labels\)"):
            function(np.eye(3))


@pytest.fixture
def mistaken(report, tmp_path):
    """A folder with embeddings beside a report, which stay as they are."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "mine.npz").touch()
    report.write(tmp_path / "r.json")
    yield folder
    assert [path.name for path in tmp_path.iterdir()] == ["a folder", "r.json"]


def test_embeddings_and_folders_in_the_place_of_a_report_name_what_to_do(mistaken, tmp_path):
    cases = [
        (
            mistaken / "mine.npz",
            f"hbench evaluate '{mistaken}/mine.npz' -d DATASET -o '{mistaken}/mine.json', "
            "then give",
        ),
        (
            mistaken,
            "found:    mine.npz\n"
            f"  next:     hbench evaluate-all '{mistaken}' -d DATASET -o REPORTS",
        ),
        (tmp_path / "r.by-query.parquet", f"give {tmp_path}/r.json"),
        (tmp_path / "none.json", "does not exist"),
    ]
    for path, words in cases:
        for take in (
            hbench.Report.read,
            hbench.plot,
            lambda each: hbench.compare(tmp_path / "r.json", each),
        ):
            with pytest.raises(SubmissionError) as refused:
                take(path)
            assert words in str(refused.value)
        for verb in (
            ["compare", path, path],
            ["plot", "levels", path, "-o", tmp_path / "p.svg"],
            ["report", path, "-o", tmp_path / "p"],
        ):
            assert words in refusal(*verb)


def test_a_folder_of_reports_in_the_place_of_one_names_its_files(report, mistaken):
    report.write(mistaken / "r.json")
    assert f"give files of it: '{mistaken}'/*.json" in refusal("compare", mistaken, mistaken)


def test_a_report_in_the_place_of_embeddings_is_refused(report, mistaken, tmp_path):
    assert "is not embeddings" in refusal("look", tmp_path / "r.json", "-d", "glyphs")
    report.write(mistaken / "r.json")
    for kind in ("h-pr", "confusion", "map"):
        to = ("-d", "glyphs", "-o", tmp_path / "p.svg")
        assert "is not embeddings" in refusal("plot", kind, tmp_path / "r.json", *to)
        assert "give files of it" in refusal("plot", kind, mistaken, *to)


def test_the_schema_of_a_report_can_be_published():
    schema = Document.model_json_schema()
    assert {"signature", "scores", "official", "embedding"} <= set(schema["properties"])


def test_tables_show_percent_and_one_column_per_level(report):
    overall, by_level = tables(report.document)
    assert [row[0] for row in overall.cells] == ["H-AP", "wAP", "ASI", "NDCG"]
    assert by_level.header == ("metric", "species", "genus")
    assert by_level.cells[0][2].startswith(percent(report.scores["AP/genus"]))
    shown = [row[0] for row in table(report.document).cells]
    full = [name for name, score in report.document.scores.items() if score.value == 1]
    assert full == ["R@10/genus", "R@100/genus", "R@1000/genus"]
    assert set(report.values) - set(shown) == {"R@100/genus", "R@1000/genus"}


def test_an_official_value_is_shown_only_where_it_differs(report):
    scores = report.document.scores
    other = scores["H-AP"].model_copy(update={"value": 0.5})
    both = report.document.model_copy(update={"official": {**scores, "H-AP": other}})
    content = table(both)
    assert "official" in content.header
    assert [row[3] for row in content.cells][:2] == ["50.00", "same"]
    assert "official" not in table(report.document.model_copy(update={"official": scores})).header


def test_every_format_holds_every_metric(report):
    for name, form in FORMATS.items():
        text = form(report.document)
        whole = name in {"json", "csv", "hub"}
        for metric in report.values if whole else worth_showing([*report.values], [report.scores]):
            assert metric in text, (name, metric)


@pytest.fixture(scope="module")
def perfect():
    """A report in which R@1 and R@10 are 100 percent: all pictures of a class are alike."""
    rng = np.random.default_rng(0)
    kinds = np.arange(90) % 30
    return hbench.score(
        rng.normal(size=(30, 8))[kinds],
        np.stack([kinds // 3, kinds], axis=1),
        level_names=("genus", "species"),
    )


def test_at_100_percent_the_interval_is_one_sided(perfect):
    score = perfect.document.scores["R@1"]
    assert score.value == score.high == 1 > score.low
    low = f"≥ {100 * score.low:.2f}"
    (_, by_level), flat = tables(perfect.document), table(perfect.document)
    assert by_level.cells[2][1] == f"100.00 ({low})"
    assert next(row for row in flat.cells if row[0] == "R@1")[2] == low
    assert low in perfect._repr_html_()
    assert "$\\geq$" in FORMATS["latex"](perfect.document)


def test_recall_is_shown_up_to_the_smallest_k_at_100_percent(perfect):
    _, by_level = tables(perfect.document)
    assert [row[0] for row in by_level.cells] == ["AP", "mAP@R", "R@1"]
    assert LEFT_OUT in table(perfect.document).notes[0]
    assert "R@10<" not in perfect._repr_html_()


def test_data_hold_recall_at_every_k(perfect):
    assert "R@1000" in FORMATS["csv"](perfect.document)
    assert set(perfect.document.scores) > {"R@1", "R@10", "R@100", "R@1000/genus"}


def test_a_comparison_shows_recall_up_to_the_smallest_k_at_100_percent_and_holds_all(perfect):
    two = hbench.compare(perfect, perfect)
    assert "R@1 " in repr(two)
    assert "R@10 " not in repr(two)
    assert len(two) == len(perfect.document.scores)


@pytest.fixture(scope="module")
def named():
    """A report of labels that are names, one of which HTML has to escape."""
    return hbench.score(
        [[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [["a<b", "x"], ["a<b", "x"], ["c", "z"]]
    )


def test_a_comparison_without_metrics_and_one_by_number_are_refused(perfect):
    with pytest.raises(UsageError, match="no metric is named"):
        hbench.compare(perfect, perfect, metrics=[])
    with pytest.raises(UnknownName, match="'0'"):
        hbench.compare(perfect, perfect)[0]


def test_a_notebook_shows_the_scores_and_counts_the_remarks(named):
    assert "H-AP 100.00" in repr(named)
    assert len(repr(named)) < 400
    assert f"see .remarks ({len(named.remarks)})" in repr(named)
    assert ", …;" in repr(named)
    few = {"H-AP": named.document.scores["H-AP"]}
    document = named.document.model_copy(update={"scores": few})
    assert "H-AP 100.00; 3 queries" in repr(replace(named, document=document))
    assert repr(named.scores).startswith("{H-AP: 1.0000")


def test_the_html_of_a_report_is_escaped_with_a_row_for_each_score_and_every_remark(named):
    signed = replace(named, document=named.document.model_copy(update={"signature": "a<b"}))
    html = signed._repr_html_()
    assert "a&lt;b" in html
    assert "a<b" not in html
    assert html.count("<tr>") == 1 + len(named.scores)
    assert all(remark in html for remark in named.remarks)


def test_a_report_becomes_a_table_of_pandas(named):
    table = named.to_pandas()
    assert table.loc["H-AP", "value"] == named.scores["H-AP"]
    assert set(table.columns) == {"value", "low", "high", "queries", "skipped", "units"}


def test_labels_may_be_names_of_queries_and_gallery():
    rng = np.random.default_rng(0)
    vectors, kinds = rng.normal(size=(40, 4)), np.arange(40) % 8
    numbers = np.stack([kinds // 4, kinds], axis=1)
    names = [[f"genus {genus}", f"species {kind}"] for genus, kind in numbers.tolist()]
    assert (
        hbench.score(vectors, names).scores["H-AP"] == hbench.score(vectors, numbers).scores["H-AP"]
    )
    apart = {"gallery": vectors[10:], "gallery_labels": names[10:]}
    as_numbers = hbench.score(
        vectors[:10], numbers[:10], gallery=vectors[10:], gallery_labels=numbers[10:]
    )
    assert (
        hbench.score(vectors[:10], names[:10], **apart).scores["H-AP"] == as_numbers.scores["H-AP"]
    )
    with pytest.raises(HBenchError, match="differ in levels"):
        hbench.score(
            vectors[:10],
            names[:10],
            gallery=vectors[10:],
            gallery_labels=[name[1] for name in names[10:]],
        )
