"""Intervals and tests: seeded, equal to the textbook on small cases, sane on random ones."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from hbench.core.errors import ComparisonError, UnknownName
from hbench.evaluation.arrays import score
from hbench.metrics import significance
from hbench.metrics.significance import (
    UnitSums,
    difference_intervals,
    holm,
    mean_intervals,
    sign_flip_p,
)
from hbench.metrics.significance.student_t import t_quantile
from hbench.records.comparison import refuse_other_conditions
from hbench.records.differences import differences_of

pytestmark = pytest.mark.fast


def test_over_single_queries_the_interval_is_students_where_values_are_not_near_0_or_1():
    values = np.random.default_rng(0).beta(20, 20, size=400)
    low, high = mean_intervals(UnitSums.of(values[None], np.arange(400)))[0]
    theirs = stats.t.interval(0.95, 399, values.mean(), stats.sem(values))
    assert (low, high) == pytest.approx(theirs, abs=1e-4)


def test_a_difference_over_classes_of_one_size_is_students_over_the_means_of_classes():
    values, units = np.random.default_rng(1).normal(size=120), np.arange(120) % 12
    (interval,) = difference_intervals(UnitSums.of(values[None], units))
    means = [values[units == unit].mean() for unit in range(12)]
    theirs = stats.t.interval(0.95, 11, np.mean(means), stats.sem(means))
    assert interval == pytest.approx(theirs, abs=1e-4)


def test_variance_and_effective_units_are_the_sums_of_the_docstring():
    values, units = np.array([1.0, 0.0, 0.5, 0.25, 1.0]), np.array([0, 0, 1, 2, 2])
    sums = UnitSums.of(values[None], units)
    mean, variance, shares = values.mean(), 0.0, []
    for unit in range(3):
        own = values[units == unit]
        shares.append(len(own) / 5)
        variance += ((own - mean).sum() / 5) ** 2 / (1 - shares[-1])
    assert sums.variance[0] == pytest.approx(variance)
    assert sums.effective_units[0] == pytest.approx(1 / sum(share**2 for share in shares))


def test_rates_of_0_and_1_keep_the_interval_of_as_many_trials_as_classes():
    """Agresti and Coull: of 20 right of 20 with t² = 2.093²: (20 + t²/2)/(20 + t²) − t √(p(1 −
    p)/(20 + t²)).
    """
    units = np.repeat(np.arange(20), 5)
    ones, zeros = mean_intervals(UnitSums.of(np.array([np.ones(100), np.zeros(100)]), units))
    t = stats.t.ppf(0.975, 19)
    p = (20 + t**2 / 2) / (20 + t**2)
    assert ones == pytest.approx([p - t * np.sqrt(p * (1 - p) / (20 + t**2)), 1], abs=1e-4)
    assert zeros == pytest.approx(1 - ones[::-1])
    rounded = mean_intervals(UnitSums.of(np.full((1, 100), 1 + 2e-16), units))[0]
    assert rounded == pytest.approx(ones)


def test_a_mean_that_is_no_fraction_may_be_1():
    """Distances of 0 and 2 in turns: the interval is Student's, not that of a rate of 1."""
    values = np.tile([0.0, 2.0], 50)
    low, high = mean_intervals(UnitSums.of(values[None], np.arange(100)))[0]
    half = stats.t.ppf(0.975, 99) * values.std(ddof=1) / 10
    assert (low, high) == pytest.approx((1 - half, 1 + half), rel=1e-3)


def test_a_mean_over_tests_weighs_tests_alike_and_knows_classes_that_they_share():
    values, tests = np.array([[1.0, 0.0, 0.5, 0.5, 0.5, 1.0]]), np.array([0, 0, 1, 1, 1, 1])
    apart, shared = np.array([0, 1, 2, 3, 4, 5]), np.array([0, 1, 0, 1, 2, 3])
    assert UnitSums.of(values, apart, tests).means == pytest.approx([(0.5 + 0.625) / 2])
    assert UnitSums.of(values, shared, tests).parts[0] == pytest.approx(
        [1 / 4 + 0.5 / 8, 0.5 / 8, 0.5 / 8, 1 / 8]
    )


def test_undefined_queries_are_left_out():
    values = np.array([[0.0, 1.0, np.nan, 0.5], [0.0, 1.0, 0.25, 0.5], [np.nan] * 4])
    intervals = mean_intervals(UnitSums.of(values, np.arange(4)))
    assert intervals[0] == pytest.approx(
        mean_intervals(UnitSums.of(values[:1, [0, 1, 3]], np.arange(3)))[0]
    )
    assert np.isnan(intervals[2]).all()
    assert np.isnan(sign_flip_p(UnitSums.of(values, np.arange(4)))[2])


def test_the_sign_flip_test_counts_patterns_of_units():
    # five units of one sign: of the 32 sign patterns 2 are as far from 0, however many queries a
    # unit has
    values = np.repeat(np.array([1.0, 2, 3, 4, 5]), 3)
    assert sign_flip_p(UnitSums.of(values[None], np.repeat(np.arange(5), 3))) == pytest.approx(
        2 / 32
    )
    assert sign_flip_p(UnitSums.of(np.zeros((1, 40)), np.arange(40))) == pytest.approx(1)
    surely = UnitSums.of(np.random.default_rng(5).normal(1, 0.1, size=(1, 40)), np.arange(40))
    assert sign_flip_p(surely) == pytest.approx(1 / 10_001)


def test_many_units_agree_with_scipys_permutation_test():
    values = np.random.default_rng(6).normal(0.3, 1, size=30)
    theirs = stats.permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(0),
    ).pvalue
    assert sign_flip_p(UnitSums.of(values[None], np.arange(30)))[0] == pytest.approx(
        theirs, abs=0.01
    )


def test_holms_correction_is_the_textbooks():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])


def test_a_comparison_joins_queries_by_name_and_refuses_others():
    first = pa.table(
        {
            "query": ["a", "b", "c"],
            "test": ["test"] * 3,
            "AP": [1.0, 0.5, None],
            "R@1": [1.0, 0.0, 0.0],
        }
    )
    second = pa.table({"query": ["c", "b", "a"], "test": ["test"] * 3, "AP": [0.5, 0.5, 0.5]})
    (ap,) = differences_of(first, second)
    assert (ap.metric, ap.queries, ap.first, ap.second) == ("AP", 2, 0.75, 0.5)
    with pytest.raises(ComparisonError, match="different queries"):
        differences_of(first, second.slice(1))
    with pytest.raises(ComparisonError, match="no metric in common"):
        differences_of(first.select(["query", "test", "R@1"]), second)


def test_reports_of_other_labels_are_not_compared():
    vectors = np.random.default_rng(6).normal(size=(20, 4))
    one = score(vectors, np.arange(20)[:, None] // 5).document
    other = score(vectors, np.arange(20)[:, None] // 4).document
    with pytest.raises(ComparisonError, match="digests differ"):
        refuse_other_conditions(one, other)


def test_anybody_can_compute_intervals_and_tests_again_from_the_by_query_file(tmp_path):
    """With a few lines of numpy and scipy alone, from the names of classes in the files."""
    rng, species = np.random.default_rng(8), np.arange(240) // 8
    labels, reports = np.stack([species // 5, species], axis=1), []
    for name, noise in (("a", 1.0), ("b", 1.4)):
        vectors = rng.normal(size=(30, 6))[species] + noise * rng.normal(size=(240, 6))
        reports.append(
            score(vectors, labels, level_names=["genus", "species"], metrics=["H-AP", "R@1"])
        )
        reports[-1].write_by_query(tmp_path / f"{name}.parquet")
    tables = [pq.read_table(tmp_path / f"{name}.parquet").to_pandas() for name in "ab"]
    for unit in ("genus", "species"):
        per_class = [
            table.groupby(["class:genus", "class:species"][: 1 + (unit == "species")])[
                "H-AP"
            ].mean()
            for table in tables
        ]
        low, high = stats.t.interval(
            0.95, len(per_class[0]) - 1, *((per_class[0] - per_class[1]).agg(["mean", "sem"]))
        )
        (difference, _) = differences_of(
            *map(pq.read_table, (tmp_path / "a.parquet", tmp_path / "b.parquet")), unit=unit
        )
        assert (difference.low, difference.high) == pytest.approx((low, high), abs=2e-4)
        assert difference.units == len(per_class[0])
    assert (reports[0].document.unit, reports[0].document.scores["H-AP"].units) == ("species", 30)
    with pytest.raises(UnknownName, match="family"):
        score(vectors, labels, unit="family")


def test_few_classes_are_said_to_give_no_interval_to_trust():
    report = score(np.random.default_rng(9).normal(size=(40, 4)), np.arange(40) // 10)
    assert any(
        "with fewer than 12 no interval can be trusted" in text for text in report.document.warnings
    )


def test_classes_of_sizes_that_differ_much_are_said_to_give_no_interval_to_trust():
    # 40 classes that say as much as 378²/(300² + 39·2²) = 1.58 equal ones, which is rounded down
    sizes = [300, *[2] * 39]
    labels = np.repeat(np.arange(40), sizes)
    report = score(np.random.default_rng(9).normal(size=(len(labels), 4)), labels)
    assert any("as much as 1.5 equal ones" in text for text in report.document.warnings)


def test_a_difference_that_is_the_same_for_all_classes_has_no_interval():
    units = np.arange(60) // 3
    same = UnitSums.of(np.full((1, 60), 0.25), units)
    assert np.isnan(significance.difference_intervals(same)).all()
    none = UnitSums.of(np.zeros((1, 60)), units)
    assert significance.difference_intervals(none).tolist() == [[0, 0]]


@pytest.mark.parametrize("freedom", [1, 1.3, 2, 2.7, 3, 4.9, 5, 6.5, 9, 30, 400])
def test_the_quantile_of_students_t_is_scipys(freedom):
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=5e-4)
