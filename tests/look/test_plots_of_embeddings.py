"""Confusion, map and tree: what is drawn is what brute force counts, read back from the picture."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import hbench
from hbench.core.errors import SubmissionError, UnknownName, UsageError
from hbench.look.palette import GROUPS, MARKERS, SIZES, color_at, group_color, lightness_of
from hbench.look.plots import PlotRequest, confusion, draw
from hbench.look.plots.class_map import mean_vectors
from hbench.submissions import embeddings
from hbench.tree import files as tree_files
from tests.look.plotting import LEVELS, request

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("level", [None, *LEVELS])
def test_confusion_counts_the_classes_of_first_results(plotted, level):
    test = hbench.load(plotted / "own.csv").tests["test"]
    vectors = embeddings.read(plotted / "one.parquet").vectors.astype(float)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    scores = vectors @ vectors.T - 9 * np.eye(len(test))
    own = test.labels[:, LEVELS.index(level or "family")]
    counts = np.zeros((own.max() + 1,) * 2)
    for query, first in enumerate(scores.argmax(axis=1)):
        counts[own[query], own[first]] += 1
    (panel,) = draw("confusion", request(plotted, "confusion", level=level)).figure.axes
    np.testing.assert_allclose(
        panel.collections[0].get_array(), 100 * counts / counts.sum(axis=1)[:, None]
    )
    assert panel.get_ylabel().startswith(level or "family")


def test_small_classes_share_a_row():
    counts = 3 * np.eye(20, dtype=np.int64)
    names, merged = confusion.largest_classes([f"c{n:02}" for n in range(20)], counts)
    assert len(names) == confusion.MAX_ROWS
    assert names[-1] == f"{20 - confusion.MAX_ROWS + 1} other"
    assert merged.sum() == 60
    assert merged.trace() == 60


def test_the_map_has_a_point_per_class_in_the_colour_of_its_group(plotted):
    drawing = draw("map", request(plotted, "map", level="genus"))
    (panel,) = drawing.figure.axes
    tree = hbench.load(plotted / "own.csv").tests["test"].tree
    drawn = {each.get_label(): len(each.get_offsets()) for each in panel.collections}
    assert drawn == {
        name: int((tree.paths[:, 1] == number).sum()) for number, name in enumerate(tree.names[1])
    }
    assert drawing.figure.legends[0].get_title().get_text() == "genus"


def test_class_means_are_means_of_directions(plotted):
    test = hbench.load(plotted / "own.csv").tests["test"]
    vectors = np.random.default_rng(0).normal(size=(len(test), 4))
    means, classes = mean_vectors(test, vectors, cosine=True)
    for mean, number in zip(means, classes, strict=True):
        rows = [
            v / np.sqrt((v * v).sum())
            for v, own in zip(vectors, test.labels[:, -1], strict=True)
            if own == number
        ]
        total = sum(rows)
        np.testing.assert_allclose(mean, total / np.sqrt((total * total).sum()))
    plain, _ = mean_vectors(test, vectors, cosine=False)
    np.testing.assert_allclose(plain[3], vectors[test.labels[:, -1] == classes[3]].mean(axis=0))


def test_the_boxes_of_a_tree_are_as_tall_as_it_has_items_and_coloured_by_means(plotted):
    by_query = plotted / "one.by-query.parquet"
    drawing = draw("tree", request(plotted, "tree", metrics=("AP",), by_query=by_query))
    test = hbench.load(plotted / "own.csv").tests["test"]
    values = hbench.evaluate(
        plotted / "one.parquet", plotted / "own.csv", metrics=["AP"]
    ).per_query["AP"]
    levels = [
        each for each in drawing.figure.axes[0].collections if isinstance(each, PolyCollection)
    ]
    means, heights = [], []
    for depth in range(3):
        own = test.labels[:, depth]
        means.append(
            [
                np.mean([v for v, o in zip(values, own, strict=True) if o == n])
                for n in range(own.max() + 1)
            ]
        )
        heights.append([int((own == n).sum()) for n in range(own.max() + 1)])
    low, high = min(map(min, means)), max(map(max, means))
    for boxes, mean, height in zip(levels, means, heights, strict=True):
        corners = [path.vertices[:, 1] for path in boxes.get_paths()]
        assert [int(each.max() - each.min()) for each in corners] == height
        expected = [int(color_at((each - low) / (high - low))[1:3], 16) / 255 for each in mean]
        np.testing.assert_allclose(boxes.get_facecolors()[:, 0], expected, atol=1.01 / 255)
    bar = drawing.figure.axes[1]
    np.testing.assert_allclose(bar.get_xlim(), (100 * low, 100 * high))


def test_a_tree_file_is_drawn_by_classes(plotted, tmp_path):
    tree = hbench.load(plotted / "own.csv").tests["test"].tree
    for suffix in (".json", ".newick"):
        (tmp_path / f"t{suffix}").write_text(tree_files.write(tree, suffix), encoding="utf-8")
        drawing = draw("tree", PlotRequest((str(tmp_path / f"t{suffix}"),)))
        assert [
            label.get_text().split("\n")[1] for label in drawing.figure.axes[0].get_xticklabels()
        ] == [
            "2",
            "6",
            "12",
        ]


def test_refusals_name_what_is_missing(plotted, tmp_path):
    def refused(error, pattern, kind, **options):
        with pytest.raises(error, match=pattern):
            draw(kind, request(plotted, kind, **options))

    values = plotted / "one.by-query.parquet"
    refused(UsageError, "--by-query FILE", "tree", metrics=("AP",))
    refused(UnknownName, "one of .*H-AP", "tree", metrics=("NDCG",), by_query=values)
    refused(
        SubmissionError,
        "hbench evaluate",
        "tree",
        metrics=("AP",),
        by_query=tmp_path / "none.parquet",
    )
    refused(UnknownName, "did you mean 'genus'", "confusion", level="genius")
    refused(UnknownName, "did you mean 't-sne'", "map", method="tsne")
    with pytest.raises(UsageError, match="one embedding file"):
        draw("map", PlotRequest(("a", "b"), dataset="glyphs"))
    with pytest.raises(SubmissionError, match="72 queries are not in this test"):
        draw("tree", PlotRequest(("glyphs",), metrics=("AP",), by_query=values))


@pytest.mark.parametrize("of", range(1, 9))
def test_colours_of_groups_differ_in_grey(of):
    grey = [lightness_of(group_color(number, of)) for number in range(of)]
    assert len(set(map(round, grey))) == of
    assert grey == sorted(grey)
    if of <= 5:
        assert all(np.diff(grey) > 15)
    assert len(GROUPS) == 8


def test_markers_of_the_map_have_the_same_ink():
    inks = []
    for marker, size in zip(MARKERS, SIZES, strict=True):
        figure = Figure(figsize=(1, 1), dpi=300)
        panel = figure.add_axes((0, 0, 1, 1))
        panel.axis("off")
        panel.scatter([0.5], [0.5], s=600 * size, marker=marker, color="black", linewidths=0)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        inks.append((255.0 - np.asarray(canvas.buffer_rgba())[..., 0]).sum())
    assert max(inks) < 1.05 * min(inks)
