"""Plots for print: what is drawn is what was measured, every kind writes every format, names stay
text, bytes repeat.
"""

import json

import numpy as np
import pytest

import hbench
from hbench.core.errors import ComparisonError, UnknownName, UsageError
from hbench.core.text import percent
from hbench.look.figures import draw_figure
from hbench.look.inputs import ranked_tests, trace_queries
from hbench.look.plots import PlotRequest, draw, kinds, plot
from hbench.look.plots.mistakes import levels_at
from hbench.look.plots.sizes import SizeScores, draw_sizes
from hbench.submissions import embeddings
from tests.command_line import call, refusal
from tests.look.plotting import (
    LEVELS,
    METRICS,
    NASTY,
    check_formats,
    cut_texts,
    ranked_levels,
    request,
    words_of,
)


@pytest.mark.parametrize("kind", list(kinds))
def test_every_kind_is_written_in_every_format(plotted, kind):
    check_formats(kind, request(plotted, kind))


@pytest.mark.parametrize("kind", ["levels", "mistakes", "h-pr"])
def test_seven_runs_fit_in_a_picture(plotted, kind):
    files = request(plotted, kind).files[:1] * 7
    seven = request(plotted, kind, names=tuple(f"{NASTY} {n}" for n in range(7)))._replace(
        files=files
    )
    assert cut_texts(draw(kind, seven)) == []


def test_levels_draws_the_scores_of_the_reports(plotted):
    drawing = draw("levels", request(plotted, "levels"))
    documents = [json.loads((plotted / f"{name}.json").read_text()) for name in ("one", "two")]
    panels = drawing.figure.axes
    assert [panel.get_title() for panel in panels] == ["AP", "R@1", "R@10"]
    for panel in panels:
        names = [*(f"{panel.get_title()}/{level}" for level in LEVELS[:-1]), panel.get_title()]
        for marks, bars, document in zip(
            panel.lines[-2:], panel.collections, documents, strict=True
        ):
            scores = [document["scores"][name] for name in names]
            np.testing.assert_allclose(
                marks.get_xdata(orig=False), [100 * each["value"] for each in scores]
            )
            ends = [(low, high) for (low, _), (high, _) in bars.get_segments()]
            # beside the marks: more than half a mark below, and nearer to its own mark than to the
            # next run's
            below = [segment[0][1] for segment in bars.get_segments()] - marks.get_ydata(orig=False)
            inch = panel.get_window_extent().height / panel.figure.dpi / len(LEVELS)
            assert (below * inch * 72 > marks.get_markersize() / 2).all()
            assert (below < 0.25).all()
            np.testing.assert_allclose(
                ends, [(100 * each["low"], 100 * each["high"]) for each in scores]
            )
    assert documents[0]["signature"] == drawing.about
    assert "".join(words_of(drawing)).replace("\n", "").count(drawing.about) == 1


def test_mistakes_draws_the_levels_that_brute_force_finds(plotted):
    drawing = draw("mistakes", request(plotted, "mistakes"))
    (panel,) = drawing.figure.axes
    parts = iter(panel.patches)
    rows = []
    for name in ("one", "two"):
        lists = ranked_levels(
            plotted / "own.csv", embeddings.read(plotted / f"{name}.parquet").vectors
        )
        own = [[levels[rank - 1] for levels in lists] for rank in (1, 5, 10)]
        rows.append([*own, [next(level for level in levels if level < 3) for levels in lists]])
    for of_runs in zip(*rows, strict=True):
        for row in of_runs:
            shares = [next(parts).get_width() for _ in range(4)]
            np.testing.assert_allclose(
                shares, [100 * row.count(level) / len(row) for level in (3, 2, 1, 0)]
            )
    assert next(parts, None) is None


def test_mistakes_of_a_report_are_those_of_its_embeddings(plotted):
    reports = draw("mistakes", PlotRequest((str(plotted / "one.json"),)))
    files = draw(
        "mistakes", PlotRequest((str(plotted / "one.parquet"),), dataset=str(plotted / "own.csv"))
    )
    of_report, of_file = (
        [each.get_width() for each in d.figure.axes[0].patches] for d in (reports, files)
    )
    # ranks 1 and first wrong of 1, 5, 10 and first wrong
    assert of_report == of_file[:4] + of_file[-4:]


def test_the_area_of_the_drawn_curve_is_h_ap(plotted):
    (panel,) = draw("h-pr", request(plotted, "h-pr")).figure.axes
    for name, steps in zip(("one", "two"), panel.patches, strict=True):
        heights, edges, _ = steps.get_data()
        expected = json.loads((plotted / f"{name}.json").read_text())["scores"]["H-AP"]["value"]
        assert float((heights / 100 * np.diff(edges / 100)).sum()) == pytest.approx(
            expected, abs=1e-9
        )
        assert steps.get_label().endswith(f"H-AP {100 * expected:.1f}")


def test_a_report_is_drawn_in_a_notebook(plotted):
    report = hbench.evaluate(plotted / "one.parquet", plotted / "own.csv", metrics=METRICS)
    assert plot(report, "levels")._repr_png_().startswith(b"\x89PNG")
    assert [panel.get_title() for panel in plot(report, metrics=["AP"]).figure.axes] == ["AP"]
    rows = [label.get_text() for label in plot(report, "mistakes").figure.axes[0].get_yticklabels()]
    assert rows == ["rank 1", "first wrong"]
    with pytest.raises(UsageError, match="hbench plot h-pr, which takes embedding files"):
        plot(report, "h-pr")
    with pytest.raises(UnknownName, match="did you mean 'levels'"):
        plot(report, "level")


@pytest.fixture
def refused(tmp_path):
    """A plot that has to be refused: its message."""

    def call(*words, out="p.png"):
        return refusal("plot", *words, "-o", tmp_path / out)

    yield call
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_and_a_file_that_is_no_picture_are_refused(plotted, refused):
    assert f"one of {', '.join(kinds)}" in refused("levles", "a.json")
    assert "did you mean 'levels'" in refused("levles", "a.json")
    assert "is not a picture" in refused("levels", plotted / "one.json", out="p.gif")


def test_a_dataset_is_asked_for_where_a_kind_takes_embeddings_and_refused_elsewhere(
    plotted, refused
):
    assert "embedding files with --dataset" in refused("h-pr")
    assert "add --dataset" in refused("h-pr", plotted / "one.parquet")
    assert "levels does not take --dataset" in refused(
        "levels", plotted / "one.json", "-d", "glyphs"
    )


def test_names_that_are_not_as_many_as_files_are_refused(plotted, refused):
    assert "--name for each of 2 files" in refused(
        "levels", plotted / "one.json", plotted / "two.json", "--name", "a"
    )


def test_a_metric_that_reports_lack_or_that_has_no_levels_is_refused(plotted, refused):
    assert "--metrics NDCG" not in refused("levels", plotted / "one.json", "-m", "P@5")
    assert "hbench evaluate … --metrics P@5" in refused("levels", plotted / "one.json", "-m", "P@5")
    assert "unknown metric of levels 'H-AP'" in refused(
        "levels", plotted / "one.json", "-m", "H-AP"
    )


def test_reports_of_other_conditions_are_not_drawn_together(plotted, tmp_path):
    other = hbench.evaluate(
        plotted / "one.parquet", plotted / "own.csv", metrics=METRICS, ties="optimistic"
    )
    other.write(tmp_path / "other.json")
    with pytest.raises(ComparisonError):
        draw("levels", PlotRequest((str(plotted / "one.json"), str(tmp_path / "other.json"))))
    hbench.evaluate(
        plotted / "one.parquet", plotted / "own.csv", metrics=METRICS, unit="query"
    ).write(tmp_path / "q.json")
    with pytest.raises(ComparisonError, match="over other units"):
        draw("levels", PlotRequest((str(plotted / "one.json"), str(tmp_path / "q.json"))))
    read = embeddings.read(plotted / "one.parquet")
    embeddings.write(
        tmp_path / "less.parquet", read.ids[1:].tolist(), read.vectors[1:], left_out=[read.ids[0]]
    )
    files = (str(plotted / "one.parquet"), str(tmp_path / "less.parquet"))
    for run in (
        lambda: draw("mistakes", PlotRequest(files, dataset=str(plotted / "own.csv"))),
        lambda: hbench.browse(files, plotted / "own.csv"),
    ):
        with pytest.raises(ComparisonError, match="leave out other items"):
            run()


def test_curves_and_mistakes_of_partial_labels_leave_out_what_is_unknown(tmp_path):
    names = [
        "Felidae,",
        "Felidae,Felis",
        "Felidae,Lynx",
        "Canidae,Canis",
        "Canidae,",
        "Felidae,Felis",
    ]
    lines = ["item,family,genus", *(f"{n},{name}" for n, name in enumerate(4 * names))]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    vectors = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    embeddings.write(tmp_path / "e.parquet", [str(n) for n in range(24)], vectors)
    source = ("--from", tmp_path / "own.csv", "--levels", "family,genus", "--policy", "unknown")
    call("build", "pets", *source, "-o", tmp_path / "pets")
    report = hbench.evaluate(tmp_path / "e.parquet", tmp_path / "pets")
    file = (str(tmp_path / "e.parquet"),)
    curve = draw("h-pr", PlotRequest(file, dataset=str(tmp_path / "pets")))
    assert f"H-AP {percent(report.scores['H-AP'], 1)}" in " ".join(words_of(curve))
    (ranked,) = ranked_tests(file, hbench.load(tmp_path / "pets"), None)
    first = trace_queries(ranked.job, levels_at, 4)[:, 0]
    counted = {
        name: int((first == level).sum())
        for level, name in enumerate(["unrelated", "family", "genus"])
    }
    assert counted == dict(report.document.mistakes["test"])


def test_the_command_writes_what_python_draws_and_help_lists_every_kind(plotted, tmp_path):
    call("plot", "levels", plotted / "one.json", "--name", "mine", "-o", tmp_path / "a.svg")
    draw("levels", PlotRequest((str(plotted / "one.json"),), names=("mine",))).write(
        tmp_path / "b.svg"
    )
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = call("plot", "--help").output
    assert all(f"\n  {name} " in text for name in kinds)


def test_settings_of_the_user_change_no_picture(plotted):
    import matplotlib

    before = draw("levels", request(plotted, "levels")).as_bytes("svg")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        assert draw("levels", request(plotted, "levels")).as_bytes("svg") == before
        assert matplotlib.rcParams["font.size"] == 20


def test_letters_that_the_font_lacks_are_boxes_and_no_warning():
    drawing = draw_figure(lambda figure: figure.text(0.5, 0.5, "語"), height=1, about="")
    assert drawing.as_bytes("png").startswith(b"\x89PNG")


def test_reports_whose_levels_do_not_fit_are_refused_in_words(tmp_path):
    labels = np.stack([np.arange(12) // 4, np.arange(12) // 2], axis=1)
    vectors = np.random.default_rng(0).normal(size=(12, 4))
    hbench.score(vectors, labels).write(tmp_path / "good.json")
    document = json.loads((tmp_path / "good.json").read_text(encoding="utf-8"))
    for name, changed in (("levels", {"levels": []}), ("mistakes", {"mistakes": {"test": {}}})):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(document | changed), encoding="utf-8")
        assert "evaluate" in refusal("plot", "mistakes", file, "-o", tmp_path / "x.png")


def test_the_line_of_sizes_has_one_corner_for_each_number_of_bytes():
    of_sizes = [SizeScores(8, bits, {"R@1": score}) for bits, score in ((1, 40.0), (8, 60.0))]
    (line, *_) = draw_sizes("signature", of_sizes, ["R@1"]).figure.axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([8], [60.0])


@pytest.mark.parametrize("draws", ["sizes", "trust"])
def test_json_of_another_kind_is_named_with_the_command_that_makes_the_right_one(tmp_path, draws):
    path = tmp_path / "mine.json"
    hbench.score(np.eye(12), np.arange(12) // 3).write(path)
    said = refusal("plot", draws, path, "-o", tmp_path / "x.png")
    assert "found:    a report of hbench evaluate" in said
    assert "makes one" in said


@pytest.mark.parametrize(("metric", "best"), [("R@1", [50, 60, 60]), ("HD@1", [50, 50, 40])])
def test_the_line_of_sizes_follows_the_smallest_distance(metric, best):
    scores = {2: 50.0, 4: 60.0, 8: 40.0}
    of_sizes = [SizeScores(size, 8, {metric: value}) for size, value in scores.items()]
    drawing = draw_sizes("signature", of_sizes, [metric])
    drawing.as_bytes("svg")
    np.testing.assert_array_equal(drawing.figure.axes[0].lines[0].get_ydata(), best)
