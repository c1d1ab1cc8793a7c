"""Distances such as HD@1 are 0 at their best: whatever is called best, worst, first or a gain
follows from that.
"""

import json

import pytest
import tomli_w

from hbench import boards as leaderboard
from hbench.look.plots.boards import front_of, points_of, records_of
from tests import zoo
from tests.command_line import call

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that knows the species next to one that does not, and their reports."""
    folder = zoo.make_models(
        tmp_path_factory.mktemp("zoo"), {"bad.parquet": 2.0, "good.parquet": 0.5}
    )
    options = ("--metrics", "HD@1,R@1", "--unit", "query")
    call("evaluate-all", folder / "models", "-d", folder / "zoo.parquet", "-o", folder, *options)
    return folder


def test_the_best_model_is_that_of_the_smallest_distance(folder):
    words = ("-d", folder / "zoo.parquet", "-o", folder / "hd", "--metrics", "HD@1", "--json")
    shown = json.loads(call("evaluate-all", folder / "models", *words).stdout)
    assert [model["method"] for model in shown["models"]] == ["good", "bad"]


def test_pages_call_the_smaller_distance_better_and_the_larger_worst(folder):
    words = ("report", folder / "bad.json", folder / "good.json", "--by", "HD@1")
    call(*words, "-d", folder / "zoo.parquet", "-o", folder / "pages")
    page = (folder / "pages" / "compare.html").read_text(encoding="utf-8")
    assert "good is better than bad by" in page
    first = int(page.split('data-balance="first">')[1].split("<")[0])
    assert first < int(page.split('data-balance="other">')[1].split("<")[0])


def test_the_worst_queries_are_those_of_the_largest_distance(folder):
    words = ("-d", folder / "zoo.parquet", "--by", "HD@1", "--json", "-k", "1")
    model = folder / "models" / "good.parquet"
    levels = {}
    for way in ("--worst", "--best"):
        results = json.loads(call("look", model, way, "1", *words).stdout)[0]["results"]
        levels[way] = results["good.parquet"][0]["level"]
    assert levels["--worst"] < levels["--best"] == 2


def test_boards_rank_and_place_by_the_smallest_distance(tmp_path):
    values = [("far", 40, 50, 2020), ("near", 10, 50, 2021), ("middle", 20, 60, 2022)]
    rows = [
        {"method": name, "year": year, "scores": {"HD@1": float(hd), "R@1": float(r)}}
        for name, hd, r, year in values
    ]
    board = {
        "dataset": "zoo",
        "version": "1",
        "protocol": "paper",
        "metric": "HD@1",
        "levels": ["family", "species"],
    }
    board |= {"citations": {"A, 2026": {"text": "A"}}}
    board |= {"row": [row | {"paper": {"citation": "A, 2026", "table": "T"}} for row in rows]}
    (tmp_path / "zoo.toml").write_text(tomli_w.dumps(board), encoding="utf-8")
    board = leaderboard.read_board(str(tmp_path / "zoo.toml"))
    assert [standing.rows[0].method for standing in leaderboard.rank(board, "HD@1")] == [
        "near",
        "middle",
        "far",
    ]
    place = leaderboard.place(board, "HD@1", 0.15)
    assert (place.place, place.better.rows[0].method, place.worse.rows[0].method) == (
        2,
        "near",
        "middle",
    )
    points = points_of(board, ("HD@1", "R@1"))
    assert {point.row.method for point in front_of(points)} == {"near", "middle"}
    by_year = [
        point._replace(x=point.row.year, y=point.x, goodness=(0, point.goodness[0]))
        for point in points
    ]
    assert [point.row.method for point in records_of(by_year)] == ["far", "near"]
