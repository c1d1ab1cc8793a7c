"""What holds for the scores of any ranking, and that every published row keeps to it."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench import boards
from hbench.boards import Paper, Row
from hbench.boards.export import table
from hbench.boards.identities import impossible
from hbench.evaluation.arrays import score

PAPER = Paper(citation="c", table="t")
LEVELS = ("genus", "species")
METRICS = "R@1,R@2,R@4,P@1,AP,mAP@R,wAP,R@1/genus,R@2/genus,R@4/genus,AP/genus,mAP@R/genus"
ERRATA: dict[tuple[str, str, str], str] = {}  # board, method, source: the sentence of a known one


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 30), st.sampled_from([1, 2, 3]))
def test_no_ranking_breaks_one(seed, items, places):
    rng = np.random.default_rng(seed)
    species = rng.integers(0, 6, items)
    labels = np.stack([species // 2, species], axis=1)
    vectors = rng.normal(size=(items, 2)).round(1) + 0.01
    found = score(vectors.astype(np.float32), labels, level_names=LEVELS, metrics=METRICS)
    scores = {
        metric: round(Decimal(100 * each.value), places)
        for metric, each in found.document.scores.items()
        if each.value is not None
    }
    queries = {each.queries for each in found.document.scores.values()}
    if scores and len(queries) == 1:  # all over the same queries
        assert not list(impossible(Row(method="a", scores=scores, paper=PAPER), LEVELS))


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"R@1": 60.0, "R@10": 59.8}, "R@10 59.8 is below R@1 60.0"),
        ({"R@2": 60.0, "R@10": 70.0, "R@4": 71.0}, "R@10 70.0 is below R@4 71.0"),
        ({"R@1": 60.0, "P@1": 60.2}, "R@1 60.0 is below P@1 60.2"),
        ({"AP": 30.0, "mAP@R": 30.2}, "AP 30.0 is below mAP@R 30.2"),
        ({"R@1": 60.0, "R@1/genus": 59.0}, "R@1/genus 59.0 is below R@1 60.0"),
        ({"wAP": 29.0, "AP": 30.0, "AP/genus": 40.0}, "wAP 29.0 is below AP 30.0"),
        ({"wAP": 41.0, "AP": 30.0, "AP/genus": 40.0}, "AP/genus 40.0 is below wAP 41.0"),
    ],
)
def test_a_cell_that_no_ranking_has_is_said(scores, said):
    (found,) = impossible(Row(method="a", scores=scores, paper=PAPER), LEVELS)
    assert found == f"{said}, which no ranking gives"


def test_rounding_is_allowed_for():
    row = Row(method="a", scores={"R@1": 60.1, "P@1": Decimal("60.05")}, paper=PAPER)
    assert not list(impossible(row, LEVELS))
    worse = row.model_copy(update={"scores": row.scores | {"P@1": Decimal("60.04")}})
    assert list(impossible(worse, LEVELS))


def test_the_sentence_stands_below_the_table_of_a_leaderboard(tmp_path):
    board = boards.read_board("sop")
    row = next(row for row in board.rows if {"R@1", "R@10"} <= row.scores.keys())
    swapped = row.scores | {"R@1": row.scores["R@10"], "R@10": row.scores["R@1"]}
    mixed = row.model_copy(update={"scores": swapped})
    standings = boards.rank(board, "R@1", [mixed])
    notes = table(standings, ["R@1"], board.citations, board.levels_of_one_test).notes
    assert any("which no ranking gives" in note for note in notes)


def test_every_published_row_keeps_to_them_or_is_a_known_erratum():
    found = {}
    rows = 0
    for name in boards.board_names():
        board = boards.read_board(name)
        for row in board.rows:
            rows += 1
            for said in impossible(row, board.levels_of_one_test):
                found[name, row.method, row.source] = said
    assert rows > 700
    assert found == ERRATA


def test_a_mixed_up_cell_of_a_published_row_is_found():
    board = boards.read_board("sop")
    row = next(row for row in board.rows if {"R@1", "R@10"} <= row.scores.keys())
    swapped = row.scores | {"R@1": row.scores["R@10"], "R@10": row.scores["R@1"]}
    mixed = row.model_copy(update={"scores": swapped})
    assert list(impossible(mixed, board.levels))
