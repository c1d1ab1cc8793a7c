"""Pictures of studies: the points drawn are the means of the seeds, with Student's intervals."""

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import t

from hbench.core.errors import DataError, UnknownName, UsageError
from studies.__main__ import group
from studies.plots import draw, swept
from studies.values import About, whole, write
from tests.look.plotting import NASTY, check_svg, cut_texts

pytestmark = pytest.mark.fast

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
ABOUT = About(dataset="glyphs", dataset_digest="d", hbench="0.1", unit="base")


def by_seed(values):
    return {
        arm: {metric: whole(scores) for metric, scores in metrics.items()}
        for arm, metrics in values.items()
    }


@pytest.fixture
def file(tmp_path):
    write(by_seed(VALUES), ABOUT, tmp_path / "values.parquet")
    return str(tmp_path / "values.parquet")


def test_sweep_draws_means_and_intervals_over_seeds(file):
    panels = draw("sweep", file, over="α=1").figure.axes
    assert [panel.get_title() for panel in panels] == ["H-AP", "AP"]
    arms = ["HAPPIER α=0.5", "HAPPIER", "HAPPIER α=2"]
    line, _, (bars,) = panels[0].containers[0].lines
    means = [100 * VALUES[arm]["H-AP"].mean() for arm in arms]
    np.testing.assert_allclose(line.get_xydata(), list(zip([0.5, 1, 2], means, strict=True)))
    half = [100 * t.ppf(0.975, 2) * VALUES[arm]["H-AP"].std(ddof=1) / 3**0.5 for arm in arms]
    ends = [(low, high) for (_, low), (_, high) in bars.get_segments()]
    np.testing.assert_allclose(
        ends, [(mean - h, mean + h) for mean, h in zip(means, half, strict=True)]
    )


def test_arms_are_read_by_their_names():
    assert swept(VALUES, "", "λ").lines.keys() == {"HAPPIER"}
    assert list(swept(VALUES, "", "α").lines["HAPPIER"]) == [0.5, 2.0]
    with pytest.raises(UsageError, match="--over α or λ"):
        swept(VALUES, "", None)
    with pytest.raises(UsageError, match="no arm has a parameter ρ"):
        swept(VALUES, "", "ρ")
    with pytest.raises(UsageError, match="as α=1"):
        swept(VALUES, "", "α=one")
    assert swept({"X B=32": {}, "X B=64": {}}, "", None).parameter == "B"


def test_arms_stand_at_their_means_with_intervals_and_a_gap_from_the_smallest_batch_to_the_gallery(
    tmp_path,
):
    rng, values = np.random.default_rng(0), {}
    for arm, ap in {"A": 0.5, NASTY: 0.6}.items():
        own = {"AP": ap + rng.normal(size=4) / 50, "H-AP": ap - 0.1 + rng.normal(size=4) / 50}
        for size, gap in {8: 0.3, 64: 0.1}.items():
            own |= {f"gap@{size}": np.full(4, gap), f"AP in {size}": own["AP"] + gap}
        values[arm] = own
    write(by_seed(values), ABOUT, tmp_path / "values.parquet")
    (panel,) = draw("arms", str(tmp_path)).figure.axes
    assert [panel.get_xlabel(), panel.get_ylabel()] == ["AP (%)", "H-AP (%)"]
    for own, container in zip(values.values(), panel.containers, strict=True):
        point, _, bars = container.lines
        np.testing.assert_allclose(
            point.get_xydata(), [[100 * own["AP"].mean(), 100 * own["H-AP"].mean()]]
        )
        for bar, axis, metric in zip(bars, (0, 1), ("AP", "H-AP"), strict=True):
            half = 100 * t.ppf(0.975, 3) * own[metric].std(ddof=1) / 2
            (ends,) = bar.get_segments()
            assert ends[1][axis] - ends[0][axis] == pytest.approx(2 * half)
    (panel,) = draw("gap", str(tmp_path / "values.parquet")).figure.axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["8", "64", "all"]
    for own, container in zip(values.values(), panel.containers, strict=True):
        expected = 100 * (own["AP"].mean() + np.array([0.3, 0.1, 0]))
        np.testing.assert_allclose(container.lines[0].get_xydata()[:, 1], expected)


def test_one_seed_has_no_interval_and_an_axis_spans_enough_that_noise_is_not_an_effect(tmp_path):
    of_one = {
        arm: {metric: 0.5 + scores[:1] / 1000 for metric, scores in metrics.items()}
        for arm, metrics in VALUES.items()
    }
    write(by_seed(of_one), ABOUT, tmp_path / "one.parquet")
    for panel in draw("sweep", str(tmp_path / "one.parquet"), ("AP", "H-AP"), "α=1").figure.axes:
        line, _, bars = panel.containers[0].lines
        assert (len(line.get_xdata()), bars) == (3, ())
        low, high = panel.get_ylim()
        assert high - low >= 2


def test_a_picture_is_written_from_the_command_line(tmp_path, file):
    for kind, source in [("arms", "glyphs-study"), ("gap", "glyphs-study"), ("sweep", file)]:
        out = tmp_path / f"{kind}.svg"
        done = CliRunner().invoke(
            group, ["plot", kind, source, "-o", str(out), *["--over", "α"] * (kind == "sweep")]
        )
        assert done.exit_code == 0, done.output
        check_svg(out.read_text(encoding="utf-8"))
    assert cut_texts(draw("sweep", file, over="α")) == []


def test_refusals_say_what_to_give(file, tmp_path):
    def refused(error, pattern, kind, source, **options):
        with pytest.raises(error, match=pattern):
            draw(kind, str(source), **options)

    refused(DataError, "a study's values", "sweep", tmp_path / "none.parquet", over="α")
    refused(UnknownName, "one of AP, H-AP", "sweep", file, over="α", metrics=("NDCG",))
    refused(UnknownName, "one of AP, H-AP", "arms", file, metrics=("AP", "NDCG"))
    refused(UsageError, "--metric twice", "arms", file, metrics=("AP",))
    refused(UsageError, "no arm of this study has a gap", "gap", file)
