"""Plots for print: what is drawn is what was measured, every kind writes every format, names stay text, bytes repeat."""

import json

import numpy as np
import pytest

import hbench
from hbench.core.errors import ComparisonError, UnknownName, UsageError
from hbench.evaluation import embeddings
from hbench.look.figures import drawn
from hbench.look.plots import PlotRequest, draw, kinds, plot
from tests.command_line import call, refusal
from tests.look.plotting import (
    HEADS,
    LEVELS,
    NASTY,
    check_formats,
    cut_texts,
    embedded,
    ranked_levels,
    words_of,
    write_table,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset, two embedding files and their reports with values by query; some names are markup."""
    folder = tmp_path_factory.mktemp("plots")
    data = write_table(folder, family=NASTY + "{}")
    for name, noise in (("one", 0.6), ("two", 2.0)):
        embedded(folder / f"{name}.parquet", data, noise)
        report = hbench.evaluate(
            folder / f"{name}.parquet", data, metrics=METRICS, method=NASTY if name == "one" else "two"
        )
        report.write(folder / f"{name}.json")
        report.write_by_query(folder / f"{name}.by-query.parquet")
    return folder


METRICS = ["H-AP", "HD-first-mistake", *(f"{m}/{level}" for m in ("AP", "R@1", "R@10") for level in LEVELS)]


def request(folder, kind, **options):
    """What a kind is given in these tests."""
    reports = (str(folder / "one.json"), str(folder / "two.json"))
    files = (str(folder / "one.parquet"), str(folder / "two.parquet"))
    given = {"levels": reports, "mistakes": files, "h-pr": files}[kind]
    dataset = {} if kind == "levels" else {"dataset": str(folder / "own.csv")}
    return PlotRequest(given, **(dataset | options))


@pytest.mark.parametrize("kind", ["levels", "mistakes", "h-pr"])
def test_every_kind_is_written_in_every_format_also_of_seven_runs(folder, kind):
    check_formats(kind, request(folder, kind))
    files = request(folder, kind).files[:1] * 7
    seven = request(folder, kind, names=tuple(f"{NASTY} {n}" for n in range(7)))._replace(files=files)
    assert cut_texts(draw(kind, seven)) == []


def test_levels_draws_the_scores_of_the_reports(folder):
    drawing = draw("levels", request(folder, "levels"))
    documents = [json.loads((folder / f"{name}.json").read_text()) for name in ("one", "two")]
    panels = drawing.figure.axes
    assert [panel.get_title() for panel in panels] == ["AP", "R@1", "R@10"]
    for panel in panels:
        for marks, bars, document in zip(panel.lines[-2:], panel.collections, documents, strict=True):
            scores = [document["scores"][name_at(panel.get_title(), level)] for level in LEVELS]
            np.testing.assert_allclose(marks.get_xdata(orig=False), [100 * each["value"] for each in scores])
            ends = [(low, high) for (low, _), (high, _) in bars.get_segments()]
            # beside the marks: more than half a mark below, and nearer to its own mark than to the next run's
            below = [segment[0][1] for segment in bars.get_segments()] - marks.get_ydata(orig=False)
            inch = panel.get_window_extent().height / panel.figure.dpi / len(LEVELS)
            assert (below * inch * 72 > marks.get_markersize() / 2).all()
            assert (below < 0.25).all()
            np.testing.assert_allclose(ends, [(100 * each["low"], 100 * each["high"]) for each in scores])
    assert documents[0]["signature"] == drawing.about
    assert "".join(words_of(drawing)).replace("\n", "").count(drawing.about) == 1


def name_at(metric, level):
    return metric if level == LEVELS[-1] else f"{metric}/{level}"


def test_mistakes_draws_the_levels_that_brute_force_finds(folder):
    drawing = draw("mistakes", request(folder, "mistakes"))
    (panel,) = drawing.figure.axes
    parts = iter(panel.patches)
    rows = []
    for name in ("one", "two"):
        lists = ranked_levels(folder / "own.csv", embeddings.read(folder / f"{name}.parquet").vectors)
        own = [[levels[rank - 1] for levels in lists] for rank in (1, 5, 10)]
        rows.append([*own, [next(level for level in levels if level < 3) for levels in lists]])
    for of_runs in zip(*rows, strict=True):
        for row in of_runs:
            shares = [next(parts).get_width() for _ in range(4)]
            np.testing.assert_allclose(shares, [100 * row.count(level) / len(row) for level in (3, 2, 1, 0)])
    assert next(parts, None) is None


def test_mistakes_of_a_report_are_those_of_its_embeddings(folder):
    reports = draw("mistakes", PlotRequest((str(folder / "one.json"),)))
    files = draw("mistakes", PlotRequest((str(folder / "one.parquet"),), dataset=str(folder / "own.csv")))
    of_report, of_file = ([each.get_width() for each in d.figure.axes[0].patches] for d in (reports, files))
    assert of_report == of_file[:4] + of_file[-4:]  # ranks 1 and first wrong of 1, 5, 10 and first wrong


def test_the_area_of_the_drawn_curve_is_h_ap(folder):
    (panel,) = draw("h-pr", request(folder, "h-pr")).figure.axes
    for name, steps in zip(("one", "two"), panel.patches, strict=True):
        heights, edges, _ = steps.get_data()
        expected = json.loads((folder / f"{name}.json").read_text())["scores"]["H-AP"]["value"]
        assert float((heights / 100 * np.diff(edges / 100)).sum()) == pytest.approx(expected, abs=1e-9)
        assert steps.get_label().endswith(f"H-AP {100 * expected:.1f}")


def test_a_report_is_drawn_in_a_notebook(folder):
    report = hbench.evaluate(folder / "one.parquet", folder / "own.csv", metrics=METRICS)
    assert report.plot("levels")._repr_png_().startswith(HEADS[".png"])
    assert [panel.get_title() for panel in report.plot(metrics=["AP"]).figure.axes] == ["AP"]
    rows = [label.get_text() for label in report.plot("mistakes").figure.axes[0].get_yticklabels()]
    assert rows == ["rank 1", "first wrong"]
    with pytest.raises(UsageError, match="hbench plot h-pr, which takes embedding files"):
        report.plot("h-pr")
    with pytest.raises(UnknownName, match="did you mean 'levels'"):
        plot(report, "level")


def test_refusals_come_before_any_work(folder, tmp_path):
    def refused(*words, out="p.png"):
        return refusal("plot", *words, "-o", tmp_path / out)

    assert f"one of {', '.join(kinds)}" in refused("levles", "a.json")
    assert "did you mean 'levels'" in refused("levles", "a.json")
    assert "embedding files with --dataset" in refused("h-pr")
    assert "add --dataset" in refused("h-pr", folder / "one.parquet")
    assert "levels does not take --dataset" in refused("levels", folder / "one.json", "-d", "glyphs")
    assert "2 times --name" in refused("levels", folder / "one.json", folder / "two.json", "--name", "a")
    assert "--metrics NDCG" not in refused("levels", folder / "one.json", "-m", "P@5")
    assert "hbench evaluate … --metrics P@5" in refused("levels", folder / "one.json", "-m", "P@5")
    assert "unknown metric of levels 'H-AP'" in refused("levels", folder / "one.json", "-m", "H-AP")
    assert list(tmp_path.iterdir()) == []
    assert "is not a picture" in refused("levels", folder / "one.json", out="p.gif")


def test_reports_of_other_conditions_are_not_drawn_together(folder, tmp_path):
    other = hbench.evaluate(folder / "one.parquet", folder / "own.csv", metrics=METRICS, ties="optimistic")
    other.write(tmp_path / "other.json")
    with pytest.raises(ComparisonError):
        draw("levels", PlotRequest((str(folder / "one.json"), str(tmp_path / "other.json"))))


def test_the_command_writes_what_python_draws_and_help_lists_every_kind(folder, tmp_path):
    call("plot", "levels", folder / "one.json", "--name", "mine", "-o", tmp_path / "a.svg")
    draw("levels", PlotRequest((str(folder / "one.json"),), names=("mine",))).write(tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = call("plot", "--help").output
    assert all(f"\n  {name} " in text for name in kinds)


def test_settings_of_the_user_change_no_picture(folder):
    import matplotlib

    before = draw("levels", request(folder, "levels")).as_bytes("svg")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        assert draw("levels", request(folder, "levels")).as_bytes("svg") == before
        assert matplotlib.rcParams["font.size"] == 20


def test_letters_that_the_font_lacks_are_boxes_and_no_warning():
    drawing = drawn(lambda figure: figure.text(0.5, 0.5, "語"), height=1, about="")
    assert drawing.as_bytes("png").startswith(HEADS[".png"])
