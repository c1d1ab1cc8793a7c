"""Rankings as other tools write them: read as they were meant, with a sentence that says so, or
refused by their true cause.
"""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hbench
from hbench.core.errors import SubmissionError
from hbench.submissions.rankings import files as run_files

TABLE = "item,order,species,query,gallery\nq1,O,x,1,0\nq2,O,y,1,0\na,O,x,0,1\nb,O,x,0,1\nc,O,y,0,1\nd,P,z,0,1\n"
LISTS = {"q1": "adbc", "q2": "cabd"}
AP = ((1 + 2 / 3) / 2 + 1) / 2  # of these lists, by hand
ROWS = [
    (query, item, rank, 1 - rank / 10)
    for query, items in LISTS.items()
    for rank, item in enumerate(items, 1)
]


def run_text(rows=ROWS, between=" ", tag="t"):
    lines = (
        between.join([query, "Q0", item, str(rank), f"{score:.1f}", tag])
        for query, item, rank, score in rows
    )
    return "".join(f"{line}\n" for line in lines)


def lists_text(header="id,images", row="{query},{items}", between=" "):
    rows = [
        row.format(number=number, query=q, items=between.join(items))
        for number, (q, items) in enumerate(LISTS.items())
    ]
    return "\n".join([header, *rows]) + "\n"


def rows_text(header, between=",", row=lambda query, item, rank, score: (query, item, score)):
    return "".join(
        between.join(map(str, cells)) + "\n" for cells in [header, *(row(*each) for each in ROWS)]
    )


def written(folder, name, content):
    (folder / "ds.csv").write_text(TABLE)
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def report_of(folder, name, content, metrics="AP"):
    return hbench.evaluate(written(folder, name, content), folder / "ds.csv", metrics=metrics)


def refusal(folder, name, content, metrics="AP"):
    with pytest.raises(SubmissionError) as caught:
        report_of(folder, name, content, metrics)
    return str(caught.value)


def understood(path):
    (sentence,) = run_files.read(path).understood
    return sentence


WITHOUT_TAG = "".join(line.rsplit(" ", 1)[0] + "\n" for line in run_text().splitlines())


@pytest.mark.parametrize("name", ["run.trec", "run.run", "run.res", "run.txt", "run", "run.csv"])
@pytest.mark.parametrize(
    "content",
    [
        "\n\n  \n" + run_text(),
        "\ufeff\r\n" + run_text().replace("\n", "\r\n"),
        "qid Q0 docno rank score tag\n" + run_text(),
        run_text(between="\t"),
        run_text() + "\n\n",
    ],
)
def test_blank_lines_and_a_header_around_a_run_are_passed_over(tmp_path, name, content):
    assert report_of(tmp_path, name, content).scores["AP"] == pytest.approx(AP)


@pytest.mark.parametrize("name", ["run.trec", "run.txt", "run", "run.dat"])
def test_a_run_of_five_columns_is_refused_as_such(tmp_path, name):
    told = refusal(tmp_path, name, WITHOUT_TAG)
    assert "line 1 has five columns; a TREC run has six: query Q0 item rank score tag" in told
    assert "next:     add the last column, the tag" in told


def test_the_number_of_a_bad_line_counts_blank_lines(tmp_path):
    assert "line 3 has three columns" in refusal(
        tmp_path, "run.trec", "\n" + run_text(ROWS[:1]) + "q2 Q0 a\n"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (run_text().replace("0.", "0,"), "the scores have decimal commas: write 0.9 for 0,9"),
        ("q1 0 a 1\nq1 0 b 0\n", "judgements"),
        ("q1 a 0.9\nq1 b 0.8\n", "line 1 has three columns; a TREC run has six"),
        (b"\xff\xfeq\x001\x00", "not a text in UTF-8"),
        ("", "it is empty"),
        ("\n\n", "it is empty"),
    ],
)
def test_a_file_that_was_meant_as_a_run_is_refused_by_its_cause(tmp_path, content, words):
    assert words in refusal(tmp_path, "run.trec", content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.trec.gz", run_text()),
        ("s.csv.gz", lists_text()),
        ("s.gz", lists_text()),
        ("r.tsv.gz", rows_text(("qid", "docno", "score"), "\t")),
    ],
)
def test_compressed_rankings_are_read(tmp_path, name, content):
    assert report_of(tmp_path, name, gzip.compress(content.encode())).scores["AP"] == pytest.approx(
        AP
    )


def test_a_compressed_ranking_that_is_cut_off_is_refused(tmp_path):
    assert "damaged, cut off" in refusal(
        tmp_path, "run.trec.gz", gzip.compress(run_text().encode())[:-9]
    )


QUERIES, ITEMS = (
    ("query", "query_id", "qid", "q_id"),
    ("item", "docno", "doc_id", "document_id", "docid", "item_id"),
)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("value", ["score", "rank", "distance"])
def test_parquet_and_csv_rows_are_read_under_the_names_that_tools_give(
    tmp_path, query, item, value
):
    values = [{"score": score, "rank": rank, "distance": rank**2} for _, _, rank, score in ROWS]
    columns = {
        query: [q for q, *_ in ROWS],
        item: [i for _, i, *_ in ROWS],
        value: [each[value] for each in values],
    }
    written(
        tmp_path,
        "r.csv",
        rows_text(
            list(columns),
            row=lambda q, i, rank, s: (
                q,
                i,
                {"score": s, "rank": rank, "distance": rank**2}[value],
            ),
        ),
    )
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    for name in ("r.csv", "r.parquet"):
        assert hbench.evaluate(tmp_path / name, tmp_path / "ds.csv", metrics="AP").scores[
            "AP"
        ] == pytest.approx(AP)


@pytest.mark.parametrize("between", [",", ";", "|"])
@pytest.mark.parametrize("name", ["run.trec", "run.csv", "run.txt"])
def test_a_run_with_another_delimiter_is_read(tmp_path, name, between):
    text = run_text(between=between)
    text = text.replace("0.", "0,") if between == ";" else text
    assert report_of(tmp_path, name, text).scores["AP"] == pytest.approx(AP)


@pytest.mark.parametrize("item", ["corpus_id", "gallery", "retrieved_image"])
def test_the_only_other_text_beside_a_query_and_a_score_is_the_item(tmp_path, item):
    text = rows_text(("query_id", item, "score"))
    assert report_of(tmp_path, "r.csv", text).scores["AP"] == pytest.approx(AP)
    columns = {
        "query_id": [q for q, *_ in ROWS],
        item: [i for _, i, *_ in ROWS],
        "score": [s for *_, s in ROWS],
    }
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    assert hbench.evaluate(tmp_path / "r.parquet", tmp_path / "ds.csv", metrics="AP").scores[
        "AP"
    ] == pytest.approx(AP)


@pytest.mark.parametrize("by_score", [True, False])
@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_runs_in_json_are_read(tmp_path, name, by_score):
    scores = {
        query: {item: 1 - rank / 10 for rank, item in enumerate(items)}
        for query, items in LISTS.items()
    }
    content = json.dumps(
        scores if by_score else {query: list(items) for query, items in LISTS.items()}
    ).encode()
    found = report_of(tmp_path, name, gzip.compress(content) if name.endswith("gz") else content)
    assert found.scores["AP"] == pytest.approx(AP)


@pytest.mark.parametrize("line", ["0.5", "[1]", '{"query": "b"}'])
def test_lines_of_json_that_are_no_lists_of_queries_are_no_run(tmp_path, line):
    path = tmp_path / "run.jsonl"
    path.write_text('{"query": "a", "retrieved": ["x", "y"]}\n{"query": "b", "retrieved": ["x"]}\n')
    assert run_files.read(path).queries.tolist() == ["a", "b"]
    path.write_text(f'{{"query": "a", "retrieved": ["x", "y"]}}\n{line}\n')
    with pytest.raises(SubmissionError, match="is not a ranking"):
        run_files.read(path)


def test_a_report_is_no_run_in_json(tmp_path):
    (tmp_path / "report.json").write_text('{"schema": 1, "scores": {"H-AP": {"value": 0.5}}}')
    assert run_files.kind_of(tmp_path / "report.json") == "embeddings"


def test_a_table_of_labels_is_no_ranking(tmp_path):
    assert run_files.kind_of(written(tmp_path, "labels.csv", TABLE)) == "embeddings"


@pytest.mark.parametrize("mark", ["-1", "-1.0"])
def test_padding_is_known_as_a_whole_number_and_as_a_float(tmp_path, mark):
    assert "2 entries -1 instead" in remarks_of(
        tmp_path, "s.csv", f"id,images\nq1,a {mark} {mark}\nq2,c a b\n"
    )


def test_what_pyterrier_hands_over_is_read_by_its_surest_columns(tmp_path):
    text = rows_text(
        ("qid", "docid", "docno", "rank", "score", "query"),
        row=lambda query, item, rank, score: (query, 17, item, rank - 1, score, "a red bird"),
    )
    assert report_of(tmp_path, "r.csv", text).scores["AP"] == pytest.approx(AP)
    assert understood(tmp_path / "r.csv") == (
        "r.csv: rows of query qid, item docno, score; 2 queries, 8 items listed, by score; left "
        "out: column docid, column query"
    )


@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["r.csv", "r.tsv", "r.txt", "r"])
def test_rows_are_read_with_any_usual_delimiter(tmp_path, name, between):
    text = rows_text(("query", "item", "score"), between)
    assert report_of(tmp_path, name, text).scores["AP"] == pytest.approx(AP)


def test_semicolons_come_with_decimal_commas(tmp_path):
    text = "sep=;\n" + rows_text(('"query"', '"item"', '"score"'), ";").replace(".", ",")
    assert report_of(tmp_path, "r.csv", text).scores["AP"] == pytest.approx(AP)
    assert "between semicolons, decimal commas" in understood(tmp_path / "r.csv")


@pytest.mark.parametrize(
    ("content", "left_out"),
    [
        (lists_text("id,images,Usage", "{query},{items},Public"), "column Usage"),
        (lists_text(",id,images", "{number},{query},{items}"), "column (empty) (an index)"),
        (
            lists_text("Unnamed: 0,id,images", "{number},{query},{items}"),
            "column Unnamed: 0 (an index)",
        ),
        (
            lists_text('"","id","images"', '"{number}","{query}","{items}"'),
            "column (empty) (an index)",
        ),
    ],
)
def test_an_index_and_further_columns_beside_lists_are_left_out_and_said(
    tmp_path, content, left_out
):
    assert report_of(tmp_path, "s.csv", content).scores["AP"] == pytest.approx(AP)
    assert understood(tmp_path / "s.csv").endswith(f"; left out: {left_out}")


@pytest.mark.parametrize(
    "header",
    ["query_id;results", "qid;docs", "image;predictions", "id;neighbors", "query;anything"],
)
def test_lists_under_other_headers_are_read_where_only_one_column_can_hold_them(tmp_path, header):
    text = lists_text(header, "{query};{items}")
    assert report_of(tmp_path, "s.csv", text).scores["AP"] == pytest.approx(AP)
    assert f"lists of items under {header.replace(';', ',')}" in understood(tmp_path / "s.csv")


@pytest.mark.parametrize(
    ("between", "row"),
    [
        (",", '{query},"{items}"'),
        ("; ", '{query},"{items}"'),
        ("|", "{query},{items}"),
        ("', '", "{query},\"['{items}']\""),
        ("' '", "{query},['{items}']"),
    ],
)
def test_lists_between_other_marks_are_read(tmp_path, between, row):
    text = lists_text(row=row, between=between)
    assert report_of(tmp_path, "s.csv", text).scores["AP"] == pytest.approx(AP)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lists_text().split("\n", 1)[1], "line 1 is no header"),
        (rows_text(("q", "i", "s")).split("\n", 1)[1], "write query,item,score above it"),
        (
            rows_text(("query", "item"), row=lambda query, item, rank, score: (query, item)),
            "it has no column score or rank",
        ),
        (
            lists_text("query,images", "{query},{items}", ""),
            "it is not known which column has the lists",
        ),
    ],
)
def test_a_table_that_was_meant_as_a_ranking_is_told_its_header(tmp_path, content, words):
    told = refusal(tmp_path, "s.csv", content)
    assert words in told
    assert "id,images" in told


def test_parquet_rows_without_an_order_are_told_what_a_ranking_has(tmp_path):
    pq.write_table(pa.table({"qid": ["q1"], "docno": ["a"]}), tmp_path / "r.parquet")
    with pytest.raises(SubmissionError, match="has no column score or rank"):
        run_files.read(tmp_path / "r.parquet")


def test_parquet_lists_are_read(tmp_path):
    written(tmp_path, "s.csv", "")
    pq.write_table(
        pa.table({"id": list(LISTS), "images": [list(items) for items in LISTS.values()]}),
        tmp_path / "s.parquet",
    )
    assert hbench.evaluate(tmp_path / "s.parquet", tmp_path / "ds.csv", metrics="AP").scores[
        "AP"
    ] == pytest.approx(AP)


def test_a_run_says_what_it_was_taken_for(tmp_path):
    path = written(tmp_path, "run.trec", run_text())
    assert understood(path) == "run.trec: a TREC run; 2 queries, 8 items listed, by score"


def remarks_of(folder, name, content, metrics="R@1"):
    return " ".join(report_of(folder, name, content, metrics).remarks)


def test_padding_is_skipped_and_said_with_its_number(tmp_path):
    padded = "id,images\nq1,-1 a d b c -1 -1\nq2,c a b d -1\n"
    report = report_of(tmp_path, "s.csv", padded)
    assert report.scores["AP"] == pytest.approx(AP)
    told = " ".join(report.remarks)
    assert "4 entries -1 instead of an item" in told
    assert "listed again" not in told


def test_an_item_that_is_called_minus_one_is_no_padding(tmp_path):
    path = written(tmp_path, "s.csv", "id,images\nq1,-1 d b c\nq2,c -1 b d\n")
    (tmp_path / "ds.csv").write_text(TABLE.replace("\na,", "\n-1,"))
    report = hbench.evaluate(path, tmp_path / "ds.csv", metrics="AP")
    assert report.scores["AP"] == pytest.approx(AP)
    assert "entries -1" not in " ".join(report.remarks)


def test_padding_of_a_run_is_skipped_whatever_its_score(tmp_path):
    content = run_text() + "q1 Q0 -1 5 99 t\nq1 Q0 -1 6 99 t\n"
    assert report_of(tmp_path, "run.trec", content).scores["AP"] == pytest.approx(AP)


def test_distances_given_as_scores_are_remarked_on(tmp_path):
    rows = [(query, item, rank, rank / 10) for query, item, rank, _ in ROWS]
    report = report_of(tmp_path, "run.trec", run_text(rows))
    # the scores decide, by trec_eval's convention
    assert report.scores["AP"] == pytest.approx(3 / 8)
    told = " ".join(report.remarks)
    assert (
        "2 lists, all that tell, in which rank 1 has the lowest score (q1, q2): are these "
        "distances?" in told
    )


def test_ranks_that_no_list_orders_by_its_scores_are_remarked_on(tmp_path):
    rows = [(query, item, rank % 4 + 1, score) for query, item, rank, score in ROWS]
    assert "rank 1 has not the highest score" in remarks_of(tmp_path, "run.trec", run_text(rows))


@pytest.mark.parametrize(
    "rank",
    [
        lambda rank, query: rank,
        lambda rank, query: rank - 1,
        lambda rank, query: 0,
        lambda rank, query: rank if query == "q1" else 9 - rank,
    ],
)
def test_ranks_that_fit_some_list_or_say_nothing_are_not(tmp_path, rank):
    rows = [(query, item, rank(place, query), score) for query, item, place, score in ROWS]
    assert "rank 1" not in remarks_of(tmp_path, "run.trec", run_text(rows))


def test_misspelt_queries_are_named_before_the_depth_of_their_lists(tmp_path):
    told = refusal(tmp_path, "run.trec", run_text().upper().replace("T\n", "t\n"), metrics="H-AP")
    assert "2 unknown queries (Q1, Q2)" in told
    assert "letter case" in told
    assert "depth" not in told


def test_a_query_without_a_list_is_named_with_the_depth(tmp_path):
    told = refusal(tmp_path, "run.trec", run_text(ROWS[:4]), metrics="H-AP")
    assert "found:    1 queries without a list (q2)" in told
    assert "next:     submit a list for every query" in told


def test_no_table_of_vectors_is_taken_for_a_ranking(tmp_path):
    for text in (
        "id,embedding\na,0.1 0.2\nb,0.2 0.3\n",
        "id,f0,f1\na,0.1,0.2\n",
        "a,0.1,0.2\n",
        "id;x;y\na;0,1;0,2\n",
    ):
        (tmp_path / "e.csv").write_text(text)
        assert run_files.kind_of(tmp_path / "e.csv") == "embeddings"


def test_a_long_run_keeps_its_order_after_padding_and_ties(tmp_path):
    generator = np.random.default_rng(0)
    names = [f"g{number}" for number in range(300)]
    scores = generator.integers(0, 50, 300)
    path = written(
        tmp_path,
        "run.trec",
        "".join(f"q Q0 {n} 0 {s} t\n" for n, s in zip(names, scores, strict=True)),
    )
    found = run_files.read(path)
    right = sorted(zip(-scores, names, strict=True))
    assert found.names[found.items].tolist() == [name for _, name in right]
