"""Exports parse back to the same rows, whatever the texts; the command line shows what its options
ask for.
"""

import csv
import io
import json
import re
from decimal import Decimal

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hbench.boards import Citation, Leaderboard, Paper, Row, Standing, rank, read_board
from hbench.boards.export import as_csv, as_json, table, title
from hbench.cli import board_tables as cli
from hbench.cli import group
from hbench.core.errors import ConfigError, UsageError
from hbench.records.tables import latex, markdown
from tests.command_line import call

NASTY = r"a|b_c*d`e<f>\g & 50% $x$ #1 {~^}"


# the leaderboards of whoever runs the tests stay out of them
pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("empty_home")]


def exported(name, metric):
    board = read_board(name)
    standings = rank(board, metric)
    return board, standings, table(standings, board.metrics, board.citations)


def cells_of(line):
    """The cells of a Markdown table's line, unescaped."""
    return [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def nasty_table():
    row = Row(
        method=NASTY,
        scores={"R@1": Decimal("81.0")},
        paper=Paper(citation="A_B, 2026", table="T&1", doubt=NASTY),
    )
    return table([Standing(1, row.scores["R@1"], (row,))], ["R@1"], {})


# tables


def test_a_table_leaves_out_empty_columns_and_marks_doubts_once():
    content = nasty_table()
    assert content.header == ("place", "method", "R@1", "source")
    assert content.cells == [("1", f"{NASTY} [1]", "81.0", "A_B T&1")]
    assert content.notes == [f"[1] A_B T&1: {NASTY}"]


def test_a_result_printed_in_two_papers_is_one_line_with_both_sources_and_all_scores():
    _, _, content = exported("sop", "H-AP")
    first = dict(zip(content.header, content.cells[0], strict=True))
    assert first["source"] == "HAPPIER Tab. 1, SupRank Tab. V, SupRank Tab. IX"
    assert (first["H-AP"], first["ASI"], first["R@1"], first["AP"]) == (
        "59.4",
        "65.9",
        "81.0",
        "60.4",
    )


def test_below_a_table_stand_its_sources_later_work_by_name_and_why_scores_are_not_comparable():
    board, _, content = exported("dyml-animal", "AP")
    sources = [note for note in content.notes if not note.startswith("[")]
    assert [note.partition(":")[0] for note in sources] == ["HAPPIER", "MSA", "SupRank"]
    assert ["later work" in note for note in sources] == [False, True, False]
    assert (
        title(board) == "dyml-animal@1: percent, mean over fine, middle, coarse, official protocol"
    )
    _, _, by_asi = exported("dyml-animal", "ASI")
    assert any("ASI is not ranked: TPAMI prints CLCD's R@1" in note for note in by_asi.notes)


# Markdown and LaTeX


@pytest.mark.parametrize("name", ["sop", "dyml-product", "gldv2"])
def test_a_markdown_table_parses_back(name):
    board, _, content = exported(name, read_board(name).metric)
    lines = [
        line for line in markdown(content, title=title(board)).splitlines() if line.startswith("|")
    ]
    assert [tuple(cells_of(line)) for line in (lines[0], *lines[2:])] == [
        content.header,
        *content.cells,
    ]


def test_markdown_escapes_what_it_would_read_as_markup():
    content = nasty_table()._replace(header=("place", "method", f"R@1/{NASTY}", "source"))
    lines = markdown(content, title="t").splitlines()
    assert cells_of(lines[2])[2] == f"R@1/{NASTY}"
    assert cells_of(lines[4])[1] == f"{NASTY} [1]"


def test_latex_escapes_every_special_character():
    text = latex(nasty_table(), title="t")
    assert (
        r"a\textbar{}b\_c*d`e\textless{}f\textgreater{}\textbackslash g \& 50\% \$x\$ \#1 "
        r"\{\textasciitilde \textasciicircum \}" in text
    )
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"\toprule" in text
    # \\ takes what is in brackets for a length
    assert not any(line.startswith("[") for line in text.splitlines())
    paper = Paper(citation="A, 2026", table="1")
    row = Row(method="HAPPIER λ=0", scores={"R@1": Decimal("81.0")}, paper=paper)
    greek = table([Standing(1, row.scores["R@1"], (row,))], ["R@1"], {})
    assert r"HAPPIER $\lambda$=0" in latex(greek, title="t")


def test_a_latex_table_has_a_line_per_result_and_a_cell_per_column():
    board, _, content = exported("hgldv2", "H-AP")
    body = latex(content, title=title(board)).split(r"\midrule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == len(content.cells)
    assert lines[0].removesuffix(r" \\").split(" & ") == list(content.cells[0])


# CSV and JSON


def test_a_csv_has_every_row_with_scores_as_printed_and_its_provenance():
    board = read_board("sop")
    lines = list(csv.DictReader(io.StringIO(as_csv(board, rank(board, "H-AP")))))
    assert len(lines) == len(board.rows)
    printed = {
        (r.method, r.backbone, str(r.dim or ""), r.source, m): str(s)
        for r in board.rows
        for m, s in r.scores.items()
    }
    read_back = {
        (
            line["method"],
            line["backbone"],
            line["dim"],
            f"{line['paper.citation']}, {line['paper.table']}",
            metric,
        ): line[metric]
        for line in lines
        for metric in board.metrics
        if line[metric]
    }
    assert read_back == printed


def test_a_csv_has_the_deviations_between_seeds_as_json():
    board = read_board("glyphs")
    lines = csv.DictReader(io.StringIO(as_csv(board, rank(board, "H-AP"))))
    cells = [line["run.between_seeds"] or "{}" for line in lines]
    read_back = [json.loads(cell, parse_float=Decimal) for cell in cells]
    rows = [row for standing in rank(board, "H-AP") for row in standing.rows]
    assert read_back == [row.run.between_seeds if row.run else {} for row in rows]


def test_a_json_export_is_the_leaderboard_with_places():
    board = read_board("inat18-full")
    document = json.loads(json.dumps(as_json(board, rank(board, "H-AP")), allow_nan=False))
    assert (document["dataset"], document["protocol"], document["unit"]) == (
        "inat18-full",
        "official",
        "percent",
    )
    assert len(document["rows"]) == len(board.rows)
    assert document["rows"][0]["place"] == 1
    assert document["rows"][0]["scores"]["H-AP"] == 47.9
    assert document["rows"][0]["paper"]["table"] == "Tab. 1"
    assert document["rows"][-1]["place"] is None


@pytest.mark.parametrize(
    "words", [["show", "sop", "--csv"], ["export", "sop", "--format", "csv"], ["list", "--csv"]]
)
def test_scores_in_the_csv_of_every_command_are_numbers(words):
    rows = list(csv.DictReader(io.StringIO(call("leaderboard", *words).stdout)))
    columns = (
        ["score", "rows", "own"]
        if words[0] == "list"
        else ["place", "year", "dim", *read_board("sop").metrics]
    )
    cells = [row[column] for row in rows for column in columns]
    assert [cell for cell in cells if cell and not re.fullmatch(r"\d+(\.\d+)?", cell)] == []
    assert sum(cell != "" for cell in cells) >= 2 * len(rows)


SEEN = st.characters(
    exclude_categories=["C", "M", "Zl", "Zp"],
    exclude_characters="\u115f\u1160\u2800\u3164\uffa0",  # letters that show nothing
)


@given(
    st.text(SEEN, min_size=1, max_size=30).map(str.strip).filter(bool),
    st.decimals(0, 100, places=2),
)
def test_any_method_name_and_score_survive_csv_and_json(method, score):
    row = Row(method=method, scores={"AP": score}, paper=Paper(citation="c", table="t"))
    board = Leaderboard(
        dataset="d",
        version="1",
        protocol="paper",
        metric="AP",
        citations={"c": {"text": "C"}},
        rows=(row,),
    )
    standings = rank(board, "AP")
    (line,) = csv.DictReader(io.StringIO(as_csv(board, standings), newline=""))
    apostrophe = "'" * method.startswith(("=", "+", "-", "@"))  # no formula for a spreadsheet
    assert (line["method"], line["AP"]) == (apostrophe + method, str(score))
    assert as_json(board, standings)["rows"][0]["method"] == method


# the command line


def run(*arguments):
    return call("leaderboard", *arguments).stdout


def test_every_shipped_leaderboard_is_listed_with_its_leader():
    listed = {line["dataset"]: line for line in json.loads(run("list", "--json"))}
    assert listed["sop"]["best"] == "HAPPIER"
    assert listed["sop"]["score"] == "59.4"
    assert listed["inat18-base"]["rows"] == 92
    assert "HAPPIER" in run("list")


def test_boards_without_rows_are_listed_and_broken_ones_named_after_the_others(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HBENCH_DATA", str(tmp_path))
    own = tmp_path / "leaderboards"
    own.mkdir()
    (own / "mine.toml").write_text(
        'dataset = "mine"\nversion = "1"\nprotocol = "paper"\nlevels = ["a"]\nmetric = "AP"\n'
    )
    listed = {line["dataset"]: line for line in json.loads(run("list", "--json"))}
    mine = listed["mine"]
    assert (mine["rows"], mine["best"], mine["score"]) == (0, None, None)
    (own / "broken.toml").write_text("x = 1")
    for words in ((), ("--json",), ("--csv",)):
        listed = CliRunner().invoke(group, ["leaderboard", "list", *words])
        assert isinstance(listed.exception, ConfigError)
        assert "HAPPIER" in listed.stdout


def rows_shown(*arguments):
    return json.loads(run("show", *arguments, "--json"))["rows"]


def test_only_comparable_rows_are_shown_unless_all_are_asked_for_and_chosen_by_paper_and_number():
    assert {row["place"] for row in rows_shown("hgldv2")} == set(range(1, 8))
    assert [len(rows_shown("dyml-animal", *more)) for more in ([], ["--all"])] == [25, 29]
    shown = rows_shown("sop", "--metric", "R@1", "--paper", "rambo", "--top", "2")
    assert [row["scores"]["R@1"] for row in shown] == [78.6, 78.6]
    assert {row["paper"]["citation"] for row in shown} == {"RaMBO, CVPR 2020"}
    for more, words in (
        (["--paper", "rambi"], "RaMBO, CVPR"),
        (["--metric", "MRR"], "no row has MRR"),
    ):
        with pytest.raises(UsageError, match=words):
            run("show", "sop", *more)


def test_columns_are_chosen_and_begin_with_the_metric_of_the_ranking():
    lines = run(
        "show",
        "inat18-full",
        "--metric",
        "AP/genus",
        "--columns",
        "AP,AP/kingdom",
        "--format",
        "markdown",
    )
    header = cells_of(next(line for line in lines.splitlines() if line.startswith("| place")))
    assert header == [
        "place",
        "method",
        "year",
        "backbone",
        "dim",
        "AP/genus",
        "AP",
        "AP/kingdom",
        "source",
    ]


def test_a_table_that_is_piped_has_every_metric_and_its_notes():
    text = run("show", "dyml-product")
    assert all(metric in text for metric in ("AP", "ASI", "R@1", "R@10", "R@20"))
    assert "[1] HAPPIER Tab. 2: mAP printed with two decimals (36.32)" in text
    assert "results ranked by AP, of 29 rows" in text


def test_bibtex_has_the_sources_of_the_rows_that_are_chosen():
    assert run("export", "sop", "--format", "bibtex", "--paper", "HAPPIER").count("@") == 1
    assert run("export", "sop", "--format", "bibtex", "--all").count("@") > 5


def test_an_export_is_written_whole_to_a_file(tmp_path):
    run("export", "hgldv2", "-o", str(tmp_path / "rows.csv"))  # in the format of the ending
    assert (
        len(list(csv.reader(io.StringIO((tmp_path / "rows.csv").read_text(encoding="utf-8"))))) == 8
    )
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_narrow_terminal_drops_metrics_before_it_squeezes_numbers():
    _, _, content = exported("inat18-base", "H-AP")
    board = read_board("inat18-base")
    widths = [
        cli.needed_width(table(rank(board, "H-AP"), board.metrics[:n], board.citations))
        for n in range(len(board.metrics))
    ]
    assert widths == sorted(widths)
    assert cli.needed_width(content) > 100 > widths[1]


def test_what_was_trained_on_is_a_column_where_every_row_says_so():
    said = run("show", "voc07").splitlines()
    assert "trained on" in said[1].split("\t")
    assert {row.split("\t")[4] for row in said[2:10]} == {"VOC 07", "VOC 07+12"}
    assert "trained on" not in run("show", "sop").splitlines()[1]


# the best and the second


def marked(command, text):
    """What a LaTeX command is put around, in a table's lines."""
    return re.findall(rf"\\{command}{{([^}}]*)}}", text)


def small_board():
    """Three rows of which the first has a score that is not comparable; two distances tie."""
    paper = Paper(citation="Me, 2026", table="Tab. 1")
    rows = [
        Row(
            method="a",
            scores={"R@1": Decimal("90.0"), "HD@1": Decimal("1.00")},
            unranked={"R@1": "of another gallery"},
            paper=paper,
        ),
        Row(method="b", scores={"R@1": Decimal("80.5"), "HD@1": Decimal("0.50")}, paper=paper),
        Row(method="c", scores={"R@1": Decimal("81.0"), "HD@1": Decimal("0.50")}, paper=paper),
        Row(method="d", scores={"R@1": Decimal("79.0"), "HD@1": Decimal("2.00")}, paper=paper),
    ]
    return Leaderboard(
        dataset="sop",
        version="1",
        protocol="paper",
        metric="R@1",
        citations={"Me, 2026": Citation(text="Me")},
        rows=tuple(rows),
    )


def test_latex_has_the_best_in_bold_and_the_second_underlined_whatever_is_better():
    text = cli.board_as_text(
        small_board(), rank(small_board(), "R@1"), ["R@1", "HD@1"], form="latex"
    )
    assert marked("textbf", text) == ["81.0", "0.50", "0.50"]
    assert marked("underline", text) == ["80.5", "1.00"]


def test_nothing_is_best_where_all_are_equal():
    board = small_board()
    equal = board.model_copy(update={"rows": board.rows[1:2]})
    text = cli.board_as_text(equal, rank(equal, "R@1"), ["R@1"], form="latex")
    assert r"\textbf" not in text
    assert r"\underline" not in text
