"""Leaderboards and training logs: the points drawn are the rows and the steps."""

import numpy as np
import pytest

from hbench import boards as leaderboard
from hbench.core.errors import ConfigError, DataError, UnknownName, UsageError
from hbench.look.plots import PlotRequest, draw
from hbench.look.plots.boards import BoardPoint, front_of, records_of
from tests.look.plotting import NASTY, log_lines, request, words_of

pytestmark = pytest.mark.fast


def test_pareto_draws_comparable_rows_and_names_the_front(plotted):
    drawing = draw("pareto", request(plotted, "pareto"))
    (panel,) = drawing.figure.axes
    assert sorted(map(tuple, panel.collections[0].get_offsets().tolist())) == [
        (50, 40),
        (55, 35),
        (60, 45),
        (70, 30),
        (80, 20),
    ]
    assert panel.lines[0].get_xydata().tolist() == [[60, 45], [70, 30], [80, 20]]
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == [
        "1  b",
        "2  c",
        "3  e",
    ]


def test_the_front_is_what_no_point_beats_in_both():
    rng = np.random.default_rng(0)
    points = [
        BoardPoint(float(x), float(y), None, (float(x), float(y)))
        for x, y in rng.integers(0, 12, size=(40, 2))
    ]
    pairs = {(point.x, point.y) for point in points}
    expected = [
        a for a in sorted(pairs) if not any(b[0] >= a[0] and b[1] >= a[1] for b in pairs - {a})
    ]
    assert [(each.x, each.y) for each in front_of(points)] == expected
    best, records = 0.0, []
    for year in sorted({point.x for point in points}):
        top = max(point.y for point in points if point.x == year)
        if top > best:
            best = top
            records.append((year, top))
    assert [(each.x, each.y) for each in records_of(points)] == records


def test_time_draws_the_best_so_far_and_says_what_is_left_out(plotted):
    drawing = draw("time", request(plotted, "time"))
    (panel,) = drawing.figure.axes
    assert panel.lines[0].get_xydata().tolist() == [[2020, 40], [2021, 45], [2023, 45]]
    assert len(panel.collections[0].get_offsets()) == 4
    assert "1 without a year left out" in drawing.about
    assert f"1  {NASTY}"[:20] in drawing.figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize("name", leaderboard.board_names())
def test_every_shipped_leaderboard_can_be_drawn_by_time_or_says_why_not(name):
    try:
        drawing = draw("time", PlotRequest((name,)))
    except UsageError as refusal:
        assert "and a year" in str(refusal)  # noqa: PT017
    else:
        board = leaderboard.read_board(name)
        shown = sum(len(own.get_offsets()) for own in drawing.figure.axes[0].collections)
        key = board.key(board.metric)
        results = map(leaderboard.as_one, leaderboard.joined(board.rows))
        assert shown == sum(
            key in row.scores and key not in row.unranked and bool(row.year) for row in results
        )


def test_curves_draw_every_whole_line_of_the_logs(plotted):
    two = draw("curves", request(plotted, "curves")).figure.axes
    for number, run in enumerate(("a", "b")):
        expected = [[step / 4, 1 / step + (run == "b")] for step in range(2, 11, 2)]
        np.testing.assert_allclose(two[0].lines[number].get_xydata(), expected)
        np.testing.assert_allclose(two[1].lines[number].get_xydata(), [[1, 20], [2, 40]])
    one = draw("curves", PlotRequest((str(plotted / "a" / "log.jsonl"),)))
    assert [line.get_label() for line in one.figure.axes[1].lines] == ["H-AP", "AP"]
    assert len(one.figure.axes[0].lines) == 3
    assert words_of(one).count("a") == 1


def test_scores_of_held_out_classes_and_of_tests_are_told_apart(plotted, tmp_path):
    (tmp_path / "v").mkdir()
    held_out = log_lines("a").replace('"scores"', '"validation"')
    (tmp_path / "v" / "log.jsonl").write_text(held_out, encoding="utf-8")
    both = draw("curves", PlotRequest((str(plotted / "a"), str(tmp_path / "v"))))
    labels = [line.get_label() for line in both.figure.axes[1].lines]
    assert labels == ["a (tests)", "v (held-out classes)"]
    for run, dataset in ((plotted / "a", "glyphs"), (tmp_path / "v", "letters")):
        (tmp_path / "copy" / run.name).mkdir(parents=True)
        copy = tmp_path / "copy" / run.name
        copy.joinpath("log.jsonl").write_bytes((run / "log.jsonl").read_bytes())
        copy.joinpath("recipe.toml").write_text(f'dataset = "{dataset}"\n')
    apart = draw("curves", PlotRequest(tuple(map(str, sorted((tmp_path / "copy").iterdir())))))
    labels = [line.get_label() for line in apart.figure.axes[1].lines]
    assert labels == ["a (tests of glyphs)", "v (held-out classes of letters)"]
    alone = draw("curves", PlotRequest((str(tmp_path / "v"),)))
    assert "held-out classes" in alone.figure.axes[1].get_ylabel()


def test_a_run_without_scores_is_drawn_beside_one_with_scores(plotted, tmp_path):
    lines = [line for line in log_lines("b").splitlines(keepends=True) if '"scores"' not in line]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "log.jsonl").write_text("".join(lines), encoding="utf-8")
    for files in ((str(plotted / "a"), str(tmp_path / "c")), (str(tmp_path / "c"),)):
        drawing = draw("curves", PlotRequest(files))
        assert len(drawing.figure.axes[0].lines) >= len(files)
    assert len(drawing.figure.axes) == 1  # of the last one, no panel of scores


def test_a_run_has_one_colour_among_losses_and_scores(plotted, tmp_path):
    unscored = [line for line in log_lines("b").splitlines(keepends=True) if '"scores"' not in line]
    (tmp_path / "a-new").mkdir()
    (tmp_path / "a-new" / "log.jsonl").write_text("".join(unscored), encoding="utf-8")
    files = (str(tmp_path / "a-new"), str(plotted / "a"), str(plotted / "b"))
    losses, scores = draw("curves", PlotRequest(files, metrics=("AP", "H-AP"))).figure.axes
    colour_of = {line.get_label(): line.get_color() for line in losses.lines}
    drawn = [(line.get_label(), line.get_color()) for line in scores.lines]
    assert drawn == [
        (f"{run} {metric}", colour_of[run]) for metric in ("AP", "H-AP") for run in ("a", "b")
    ]


def test_losses_of_different_terms_have_their_own_panels(plotted, tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "log.jsonl").write_text(
        log_lines("b").replace('"sup_ap"', '"triplet"'), encoding="utf-8"
    )
    files = (*request(plotted, "curves").files, str(tmp_path / "c"))
    drawing = draw("curves", PlotRequest(files))
    first, second, scores = drawing.figure.axes
    assert [line.get_label() for line in first.lines] == ["a", "b"]
    assert [line.get_label() for line in second.lines] == ["c"]
    assert "triplet" in second.get_ylabel()
    colors = {
        line.get_label(): line.get_color() for panel in (first, second) for line in panel.lines
    }
    assert colors == {line.get_label(): line.get_color() for line in scores.lines}
    assert len(set(colors.values())) == 3


def test_refusals_say_what_to_give(plotted, tmp_path):
    def refused(error, pattern, kind, *files, **options):
        with pytest.raises(error, match=pattern):
            draw(kind, PlotRequest(tuple(map(str, files)), **options))

    refused(UsageError, "--metric twice", "pareto", "sop", metrics=("AP",))
    refused(UsageError, "no row of cub200 has AP and H-AP", "pareto", "cub200")
    refused(UnknownName, "did you mean", "time", "sopp")
    refused(UsageError, "one metric", "time", "sop", metrics=("AP", "R@1"))
    refused(UsageError, "one leaderboard", "time", "sop", "cub200")
    refused(DataError, "log.jsonl", "curves", tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n[3]\n')
    refused(DataError, "the folder of a run", "curves", tmp_path)
    refused(UnknownName, "one of AP, H-AP", "curves", plotted / "a", metrics=("NDCG",))
    refused(ConfigError, "cannot be read", "time", tmp_path / "none.toml")
