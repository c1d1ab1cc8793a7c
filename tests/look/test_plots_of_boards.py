"""Leaderboards, training logs and studies: the points drawn are the rows, the steps and the seeds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import t

from hbench.core.errors import ConfigError, DataError, UnknownName, UsageError
from hbench.evaluation import leaderboard
from hbench.look.plots import PlotRequest, draw
from hbench.look.plots.boards import BoardPoint, front_of, records_of
from hbench.look.plots.training import swept
from hbench.train.study.claims import write_values
from tests.look.plotting import HEADS, NASTY, check_svg, cut_texts, words_of

BOARD = """
dataset = "made"
version = "1"
protocol = "paper"
levels = ["genus", "species"]
metric = "H-AP"
[citations]
"Us, 2025" = { text = "Us" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boards")
    rows = [(NASTY, 2020, 50, 40), ("b", 2021, 60, 45), ("c", 2021, 70, 30), ("d", 2023, 55, 35), ("e", None, 80, 20)]
    text = BOARD
    for method, year, ap, h_ap in rows:
        text += f"[[row]]\nmethod = {json.dumps(method)}\n" + (f"year = {year}\n" if year else "")
        text += f'scores = {{ AP = {ap}, H-AP = {h_ap} }}\npaper = {{ citation = "Us, 2025", table = "1" }}\n'
    text += '[[row]]\nmethod = "f"\nyear = 2024\nscores = { AP = 99, H-AP = 99 }\nunranked = { H-AP = "cut" }\n'
    text += 'paper = { citation = "Us, 2025", table = "2" }\n'
    (folder / "made.toml").write_text(text, encoding="utf-8")
    for run in ("a", "b"):
        (folder / run).mkdir()
        (folder / run / "log.jsonl").write_text(log_lines(run), encoding="utf-8")
    write_values(VALUES, folder / "values.parquet")
    return folder


def log_lines(run):
    lines = []
    for step in range(2, 11, 2):
        loss = 1 / step + (run == "b")
        terms = {"sup_ap": loss / 2, NASTY: loss}
        lines.append({"step": step, "steps": 10, "steps_per_epoch": 4, "loss": loss, "terms": terms})
        if step % 4 == 0:
            lines.append({"step": step, "scores": {"H-AP": step / 20, "AP": step / 30}})
    return "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 12, "lo'  # as a killed run leaves it


VALUES = {
    arm: {"H-AP": np.array(scores), "AP": np.array(scores) / 2}
    for arm, scores in {
        "HAPPIER": [0.5, 0.52, 0.54],
        "HAPPIER α=2": [0.6, 0.61, 0.65],
        "HAPPIER α=0.5": [0.4, 0.44, 0.42],
        "HAPPIER, λ=1": [0.1, 0.1, 0.2],
        "ROADMAP": [0.3, 0.3, 0.3],
    }.items()
}


def request(folder, kind):
    files = {"curves": ["a", "b"], "sweep": ["values.parquet"]}.get(kind, ["made.toml"])
    return PlotRequest(tuple(str(folder / file) for file in files), over="α" if kind == "sweep" else None)


@pytest.mark.parametrize("kind", ["curves", "sweep", "pareto", "time"])
def test_every_kind_writes_every_format_and_the_same_svg_again(folder, kind):
    for suffix, head in HEADS.items():
        assert draw(kind, request(folder, kind)).as_bytes(suffix[1:]).startswith(head)
    assert cut_texts(draw(kind, request(folder, kind))) == []
    both = [draw(kind, request(folder, kind)).as_bytes("svg") for _ in range(2)]
    assert both[0] == both[1]
    check_svg(both[0].decode())


def test_pareto_draws_comparable_rows_and_names_the_front(folder):
    drawing = draw("pareto", request(folder, "pareto"))
    (panel,) = drawing.figure.axes
    assert sorted(map(tuple, panel.collections[0].get_offsets().tolist())) == [
        (50, 40), (55, 35), (60, 45), (70, 30), (80, 20),
    ]  # fmt: skip
    assert panel.lines[0].get_xydata().tolist() == [[60, 45], [70, 30], [80, 20]]
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["1  b", "2  c", "3  e"]


def test_the_front_is_what_no_point_beats_in_both():
    rng = np.random.default_rng(0)
    points = [BoardPoint(float(x), float(y), None) for x, y in rng.integers(0, 12, size=(40, 2))]
    expected = {
        (a.x, a.y) for a in points if not any((b.x >= a.x and b.y >= a.y) and (b.x, b.y) != (a.x, a.y) for b in points)
    }
    assert [(each.x, each.y) for each in front_of(points)] == sorted(expected)
    best, records = 0.0, []
    for year in sorted({point.x for point in points}):
        top = max(point.y for point in points if point.x == year)
        if top > best:
            best = top
            records.append((year, top))
    assert [(each.x, each.y) for each in records_of(points)] == records


def test_time_draws_the_best_so_far_and_says_what_is_left_out(folder):
    drawing = draw("time", request(folder, "time"))
    (panel,) = drawing.figure.axes
    assert panel.lines[0].get_xydata().tolist() == [[2020, 40], [2021, 45], [2023, 45]]
    assert len(panel.collections[0].get_offsets()) == 4
    assert "1 without a year left out" in drawing.about
    assert f"1  {NASTY}"[:20] in drawing.figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize("name", leaderboard.names())
def test_every_shipped_leaderboard_can_be_drawn_by_time_or_says_why_not(name):
    try:
        drawing = draw("time", PlotRequest((name,)))
    except UsageError as refusal:
        assert "and a year" in str(refusal)  # noqa: PT017
    else:
        board = leaderboard.read(name)
        shown = sum(len(own.get_offsets()) for own in drawing.figure.axes[0].collections)
        key = board.key(board.metric)
        assert shown == sum(key in row.scores and key not in row.unranked and bool(row.year) for row in board.rows)


def test_curves_draw_every_whole_line_of_the_logs(folder):
    two = draw("curves", request(folder, "curves")).figure.axes
    for number, run in enumerate(("a", "b")):
        expected = [[step / 4, 1 / step + (run == "b")] for step in range(2, 11, 2)]
        np.testing.assert_allclose(two[0].lines[number].get_xydata(), expected)
        np.testing.assert_allclose(two[1].lines[number].get_xydata(), [[1, 20], [2, 40]])
    one = draw("curves", PlotRequest((str(folder / "a" / "log.jsonl"),)))
    assert [line.get_label() for line in one.figure.axes[1].lines] == ["H-AP", "AP"]
    assert len(one.figure.axes[0].lines) == 3
    assert words_of(one).count("a") == 1


def test_sweep_draws_means_and_intervals_over_seeds(folder):
    panels = draw("sweep", request(folder, "sweep")._replace(over="α=1")).figure.axes
    assert [panel.get_title() for panel in panels] == ["H-AP", "AP"]
    arms = ["HAPPIER α=0.5", "HAPPIER", "HAPPIER α=2"]
    line, _, (bars,) = panels[0].containers[0].lines
    means = [100 * VALUES[arm]["H-AP"].mean() for arm in arms]
    np.testing.assert_allclose(line.get_xydata(), list(zip([0.5, 1, 2], means, strict=True)))
    half = [100 * t.ppf(0.975, 2) * VALUES[arm]["H-AP"].std(ddof=1) / 3**0.5 for arm in arms]
    ends = [(low, high) for (_, low), (_, high) in bars.get_segments()]
    np.testing.assert_allclose(ends, [(mean - h, mean + h) for mean, h in zip(means, half, strict=True)])


def test_arms_are_read_by_their_names():
    assert swept(VALUES, "λ").lines.keys() == {"HAPPIER"}
    assert list(swept(VALUES, "α").lines["HAPPIER"]) == [0.5, 2.0]
    with pytest.raises(UsageError, match="--over α or λ"):
        swept(VALUES, None)
    with pytest.raises(UsageError, match="no arm has a parameter ρ"):
        swept(VALUES, "ρ")
    with pytest.raises(UsageError, match="as α=1"):
        swept(VALUES, "α=one")
    assert swept({"X B=32": {}, "X B=64": {}}, None).parameter == "B"


def study_with_gaps(path):
    rng = np.random.default_rng(0)
    values = {}
    for arm, ap in {"A": 0.5, NASTY: 0.6}.items():
        own = {"AP": ap + rng.normal(size=4) / 50, "H-AP": ap - 0.1 + rng.normal(size=4) / 50}
        for size, gap in {8: 0.3, 64: 0.1}.items():
            own |= {f"gap@{size}": np.full(4, gap), f"AP in {size}": own["AP"] + gap}
        values[arm] = own
    write_values(values, path)
    return values


def test_arms_of_a_study_stand_at_their_means_with_students_intervals(tmp_path):
    values = study_with_gaps(tmp_path / "values.parquet")
    (panel,) = draw("pareto", PlotRequest((str(tmp_path),))).figure.axes
    assert [panel.get_xlabel(), panel.get_ylabel()] == ["AP (%)", "H-AP (%)"]
    for own, container in zip(values.values(), panel.containers, strict=True):
        point, _, bars = container.lines
        np.testing.assert_allclose(point.get_xydata(), [[100 * own["AP"].mean(), 100 * own["H-AP"].mean()]])
        for bar, axis, metric in zip(bars, (0, 1), ("AP", "H-AP"), strict=True):
            half = 100 * t.ppf(0.975, 3) * own[metric].std(ddof=1) / 2
            (ends,) = bar.get_segments()
            assert ends[1][axis] - ends[0][axis] == pytest.approx(2 * half)


def test_a_gap_is_drawn_from_the_smallest_batch_to_the_whole_gallery(tmp_path):
    values = study_with_gaps(tmp_path / "values.parquet")
    (panel,) = draw("gap", PlotRequest((str(tmp_path / "values.parquet"),))).figure.axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["8", "64", "all"]
    for own, container in zip(values.values(), panel.containers, strict=True):
        expected = 100 * (own["AP"].mean() + np.array([0.3, 0.1, 0]))
        np.testing.assert_allclose(container.lines[0].get_xydata()[:, 1], expected)


def test_one_seed_has_no_interval(folder):
    panels = draw("sweep", PlotRequest(("glyphs",), over="α=1", metrics=("R@1",))).figure.axes
    line, _, bars = panels[0].containers[0].lines
    assert len(line.get_xdata()) == 4
    assert bars == ()


def test_an_axis_spans_enough_that_noise_is_not_an_effect(folder):
    (panel,) = draw("sweep", PlotRequest(("glyphs",), over="α=1", metrics=("H-AP",))).figure.axes
    low, high = panel.get_ylim()
    assert high - low >= 2


def test_refusals_say_what_to_give(folder, tmp_path):
    def refused(error, pattern, kind, *files, **options):
        with pytest.raises(error, match=pattern):
            draw(kind, PlotRequest(tuple(map(str, files)), **options))

    refused(UsageError, "--metric twice", "pareto", "sop", metrics=("AP",))
    refused(UsageError, "no row of cub200 has AP and H-AP", "pareto", "cub200")
    refused(UnknownName, "did you mean", "time", "sopp")
    refused(UsageError, "one metric", "time", "sop", metrics=("AP", "R@1"))
    refused(UsageError, "one leaderboard", "time", "sop", "cub200")
    refused(DataError, "a study's values", "sweep", tmp_path / "values.parquet", over="α")
    refused(DataError, "log.jsonl", "curves", tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n[3]\n')
    refused(DataError, "the folder of a run", "curves", tmp_path)
    refused(UnknownName, "one of AP, H-AP", "curves", folder / "a", metrics=("NDCG",))
    refused(UnknownName, "one of AP, H-AP", "sweep", folder / "values.parquet", over="α", metrics=("NDCG",))
    refused(ConfigError, "cannot be read", "time", tmp_path / "none.toml")
    refused(UsageError, "no arm of this study has a gap", "gap", folder / "values.parquet")
    refused(UsageError, "of one study", "gap", folder, folder)
    refused(UnknownName, "one of AP, H-AP", "pareto", folder / "values.parquet", metrics=("AP", "NDCG"))
