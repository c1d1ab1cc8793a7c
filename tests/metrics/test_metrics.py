"""Metrics against hand-worked values, the equations as double loops, golden files, and what others
wrote.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hbench
from hbench.core.errors import UnknownName, UsageError
from hbench.metrics import definitions
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.names import MetricName, default_metrics
from hbench.metrics.protocols import without_last
from hbench.metrics.relevance import alpha, has_inversion, sum_wap, table
from tests import oracle

pytestmark = pytest.mark.fast

SPELLINGS = [
    *(
        "H-AP",
        "H-AP(alpha=3)",
        "H-AP@R",
        "H-AP(relevance=sum_wap)",
        "wAP",
        "wAP(weights=0.2:0.8)",
        "ASI",
        "ASI/genus",
    ),
    *(
        "NDCG",
        "NDCG@100",
        "AP",
        "AP/genus",
        "AP#genus",
        "R@10",
        "R@1/genus",
        "TR@10",
        "TR(norm=min)@10",
        "P@5",
    ),
    *("P@R", "MRR/genus", "mAP@R", "mAP@R/genus", "mAP@100", "H-P@10", "H-R@10"),
    *("HD@5", "HD-mistake", "HD-first-mistake", "consistency", "mMP@5", "mMP@5/genus", "hops@5"),
]
lists_of_levels = st.integers(1, 8).flatmap(
    lambda depth: st.tuples(
        st.just(depth), st.lists(st.integers(0, depth), min_size=1, max_size=40)
    )
)


def sequence_of(ranked, depth):
    ranked = np.array(ranked, dtype=np.uint8)
    at = np.flatnonzero(ranked)
    return LevelSequence(at + 1, ranked[at], np.bincount(ranked, minlength=depth + 1))


def value(spelling, ranked, depth):
    levels = [f"level{level}" for level in range(1, depth + 1)]
    return MetricName.parse(spelling).bind(levels)(sequence_of(ranked, depth))


def test_h_ap_of_the_worked_example():
    # one fine item at rank 1, one coarse item at rank 3: relevances 1/1 and (1/2)/1
    h_rank_fine, h_rank_coarse = 1.0, 0.5 + min(0.5, 1.0)
    expected = (h_rank_fine / 1 + h_rank_coarse / 3) / (1.0 + 0.5)
    assert value("H-AP", [2, 0, 1, 0], 2) == pytest.approx(expected, rel=1e-15)


def test_two_levels_of_equal_relevance_are_not_counted_twice():
    # levels 2, 2, 1, 0: 2 fine items at (2/2)/2 and one coarse at (1/2)/1 are all worth 1/2; the
    # list is ideal
    assert value("H-AP", [2, 2, 1, 0], 2) == pytest.approx(1.0, rel=1e-15)


def test_a_list_in_level_order_is_not_optimal_when_relevances_are_inverted():
    assert value("H-AP", [2] * 6 + [1], 2) == pytest.approx(0.8095238095238095)
    assert value("H-AP", [1] + [2] * 6, 2) == pytest.approx(1.0)
    counts = np.array([[0, 1, 6], [0, 6, 2]])
    assert has_inversion(alpha()(counts), counts).tolist() == [True, False]


def test_severity_of_a_worked_list():
    # a species (right), another of its genus, a stranger, the species again: heights 0, 1, 2, 0 in
    # a tree of height 2
    ranked = [2, 1, 0, 2]
    assert value("HD@1", ranked, 2) == 0
    assert value("HD@3", ranked, 2) == pytest.approx((0 + 1 / 2 + 2 / 2) / 3)
    assert value("HD@100", ranked, 2) == pytest.approx((0 + 1 / 2 + 2 / 2 + 0) / 4)
    assert math.isnan(value("HD-mistake", ranked, 2))
    assert value("HD-mistake", [1, 2, 0], 2) == 1 / 2
    assert value("HD-first-mistake", ranked, 2) == 1 / 2
    assert math.isnan(value("HD-first-mistake", [2, 2], 2))


@given(lists_of_levels, st.integers(1, 50), st.data())
def test_precision_of_small_classes_is_that_of_what_they_can_fill(drawn, cut, data):
    depth, ranked = drawn
    level = data.draw(st.integers(1, depth))
    found = value(f"mMP@{cut}/level{level}", ranked, depth)
    expected = oracle.modified_mean_precision(ranked, level, cut)
    assert found == pytest.approx(expected, nan_ok=True)


@given(lists_of_levels, st.integers(1, 50))
def test_hops_are_edges_counted_one_by_one(drawn, cut):
    depth, ranked = drawn
    found = value(f"hops@{cut}", ranked, depth)
    assert found == pytest.approx(oracle.hops(ranked, depth, cut), nan_ok=True)


@given(lists_of_levels, st.integers(1, 50))
def test_severity_is_that_of_the_heights_one_by_one(drawn, cut):
    depth, ranked = drawn
    pairs = [
        (value(f"HD@{cut}", ranked, depth), oracle.hierarchical_distance(ranked, depth, cut)),
        (value("HD-mistake", ranked, depth), oracle.distance_of_first_wrong(ranked, depth, 1)),
        (
            value("HD-first-mistake", ranked, depth),
            oracle.distance_of_first_wrong(ranked, depth, len(ranked)),
        ),
    ]
    for found, expected in pairs:
        assert found == pytest.approx(expected, nan_ok=True)


def test_binary_metrics_of_a_worked_list():
    ranked = [0, 1, 1, 0, 1]
    assert value("AP", ranked, 1) == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 3)
    assert value("mAP@R", ranked, 1) == pytest.approx((1 / 2 + 2 / 3) / 3)
    assert value("mAP@2", ranked, 1) == pytest.approx((1 / 2) / 2)
    assert [value(f"R@{k}", ranked, 1) for k in (1, 2, 5)] == [0, 1, 1]
    assert value("TR@3", ranked, 1) == pytest.approx(2 / 3)
    assert value("TR(norm=min)@2", ranked, 1) == pytest.approx(1 / 2)
    assert value("P@4", ranked, 1) == pytest.approx(2 / 4)
    assert value("NDCG", ranked, 1) == pytest.approx(
        (1 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(6))
        / (1 + 1 / math.log2(3) + 1 / math.log2(4))
    )
    assert value("ASI", ranked, 1) == pytest.approx((0 / 1 + 1 / 2 + 2 / 3) / 3)


def test_ndcg_at_k_takes_the_ideal_of_the_whole_gallery():
    # D14: the released ndcg(at_k) re-sorts the truncated list and says .631
    assert value("NDCG@2", [0, 1, 2, 2], 2) == pytest.approx(
        (1 / math.log2(3)) / (3 + 3 / math.log2(3))
    )


def test_exclusive_ap_removes_the_items_of_higher_level():
    assert value("AP#level1", [2, 0, 1, 2, 1], 2) == pytest.approx((1 / 2 + 2 / 3) / 2)


AT_K = ("H-P@5", "H-R@5", "P@5", "TR@5", "mAP@5", "NDCG@5")


def test_a_query_without_positives_is_undefined_except_for_recall_and_a_list_without_its_positives_scores_0():
    for spelling in (*AT_K, "H-AP", "H-AP@R", "wAP", "ASI", "NDCG", "AP", "mAP@R"):
        assert math.isnan(value(spelling, [0, 0, 0], 2)), spelling
    assert value("R@2", [0, 0, 0], 2) == 0
    cut = LevelSequence(np.zeros(0, np.int64), np.zeros(0, np.uint8), np.array([50, 3, 2]))
    for spelling in (*AT_K, "R@5"):
        assert MetricName.parse(spelling).bind(["level1", "level2"])(cut) == 0, spelling


def test_wap_renormalises_over_the_levels_that_have_positives():
    # no fine positive: level 2 has no AP and all the weight falls to level 1
    assert value("wAP(weights=0.2:0.8)", [0, 1], 2) == value("AP/level1", [0, 1], 2) == 1 / 2


@given(lists_of_levels, st.sampled_from([0.5, 1.0, 3.0]), st.integers(1, 45))
def test_every_metric_equals_the_equation_as_double_loops(case, exponent, cut):
    depth, ranked = case
    weights = [2 * level / (depth * (depth + 1)) for level in range(1, depth + 1)]
    joined = ":".join(map(repr, weights))
    relevance = oracle.alpha_relevance(ranked, depth, exponent)
    expected = {
        f"H-AP(alpha={exponent})": oracle.h_ap(ranked, relevance),
        f"H-AP(weights={joined})": oracle.h_ap(
            ranked, oracle.sum_wap_relevance(ranked, depth, weights)
        ),
        f"wAP(weights={joined})": oracle.w_ap(ranked, weights),
        "ASI": oracle.asi(ranked, depth),
        "NDCG": oracle.ndcg(ranked),
        f"NDCG@{cut}": oracle.ndcg(ranked, cut),
        f"H-R(alpha={exponent})@{cut}": oracle.h_recall(ranked, relevance, cut),
        f"H-P(alpha={exponent})@{cut}": oracle.h_precision(ranked, relevance, cut),
    }
    for level in range(1, depth + 1):
        expected |= {
            f"AP/level{level}": oracle.ap_at(ranked, level),
            f"AP#level{level}": oracle.ap_exclusive(ranked, level),
            f"ASI/level{level}": oracle.asi([int(other >= level) for other in ranked], 1),
            f"R@{cut}/level{level}": oracle.recall(ranked, level, cut),
            f"TR@{cut}/level{level}": oracle.true_recall(ranked, level, cut),
            f"TR(norm=min)@{cut}/level{level}": oracle.true_recall(ranked, level, cut, min),
            f"P@{cut}/level{level}": oracle.precision(ranked, level, cut),
            f"consistency/level{level}": oracle.consistency(ranked, level),
            f"mAP@R/level{level}": oracle.map_at(
                ranked, level, sum(other >= level for other in ranked), lambda total: total
            ),
            f"mAP@{cut}/level{level}": oracle.map_at(
                ranked, level, cut, lambda total: min(total, cut)
            ),
        }
    for spelling, wanted in expected.items():
        assert value(spelling, ranked, depth) == pytest.approx(
            wanted, rel=1e-12, abs=1e-15, nan_ok=True
        ), spelling


@given(lists_of_levels)
def test_h_ap_with_the_wap_relevance_is_the_weighted_sum_of_ap(case):
    depth, ranked = case
    assert value("H-AP(relevance=sum_wap)", ranked, depth) == pytest.approx(
        value("wAP", ranked, depth), nan_ok=True
    )


@pytest.mark.parametrize("name", ["F_1", "1st", "R@k", "AP/genus", ""])
def test_a_metric_that_could_not_be_spelled_is_not_registered(name):
    with pytest.raises(ValueError, match="is no name of a metric"):
        definitions.metric(name)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40))
def test_h_ap_of_one_level_is_ap(ranked):
    assert value("H-AP", ranked, 1) == pytest.approx(value("AP", ranked, 1), nan_ok=True)


@given(lists_of_levels)
def test_the_ideal_order_scores_one(case):
    depth, ranked = case
    ideal = sorted([*ranked, depth], reverse=True)
    for spelling in (
        "H-AP(relevance=exponential)",
        "H-AP(relevance=sum_wap)",
        "wAP",
        "ASI",
        "NDCG",
        "AP",
        "mAP@R",
    ):
        assert value(spelling, ideal, depth) == pytest.approx(1.0), spelling


def test_h_p_has_its_limit_at_a_positive_without_relevance():
    assert value("H-P(weights=0:1)@2", [2, 1, 0], 2) == 1
    assert value("H-P(weights=0:1)@3", [0, 2, 1], 2) == 2 / 3


@given(lists_of_levels)
def test_h_ap_is_the_area_under_the_h_pr_curve(case):
    depth, ranked = case
    area, before = 0.0, 0.0
    for k in range(1, len(ranked) + 1):
        here = value(f"H-R@{k}", ranked, depth)
        area += (here - before) * value(f"H-P@{k}", ranked, depth)
        before = here
    assert area == pytest.approx(value("H-AP", ranked, depth), nan_ok=True)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_metric_name_round_trips(spelling):
    name = MetricName.parse(spelling)
    assert str(name) == spelling
    assert MetricName.parse(str(name)) == name


def test_the_finest_level_may_be_named_or_left_out():
    assert MetricName.parse("AP/species").at(["genus", "species"]) == MetricName.parse("AP")
    assert str(MetricName.parse("ASI/species").at(["genus", "species"])) == "ASI/species"
    for odd in ("a/b", "a#b@5", " a ", "@R"):
        assert MetricName.parse(f"R@1/{odd}").at([odd, "species"]).level == odd


MISSPELT = (
    *(
        ("map@r", "mAP@R"),
        ("NDGC@100", "NDCG@100"),
        ("r@10", "R@10"),
        ("HAP", "H-AP"),
        ("AP@10", "mAP@10"),
    ),
    ("H-AP/x", "H-AP"),
    # as other tools call them
    *(
        ("recall@1", "R@1"),
        ("Recall@10/genus", "R@10/genus"),
        ("map@10", "mAP@10"),
        ("top1", "R@1"),
        ("top-5 acc", "R@5"),
    ),
    *(
        ("accuracy", "R@1"),
        ("precision_at_1", "P@1"),
        ("MAP", "AP"),
        ("map_at_r", "mAP@R"),
        ("recip_rank", "MRR"),
    ),
    *(
        ("hit rate@10", "R@10"),
        ("mean_average_precision_at_r", "mAP@R"),
        ("h_ap/genus", "H-AP"),
        ("R-Precision", "P@R"),
        ("mmp@5", "mMP@5"),
        ("modified_mean_precision@5", "mMP@5"),
    ),
)
NAMELESS = (
    "R",
    "R@0",
    "R@",
    "AP#",
    "mAP",
    "",
    "AP(level=1)",
    "TR(norm=mean)@3",
    "R@1/",
    "NDCG(",
    "@5",
)


@pytest.mark.parametrize(
    ("spelling", "error", "words"),
    [
        *((spelling, UnknownName, f"did you mean .*'{meant}'") for spelling, meant in MISSPELT),
        *((spelling, UsageError, ".") for spelling in NAMELESS),
        (
            "AP/level3",
            UnknownName,
            r"unknown level 'level3'[\s\S]*level1[\s\S]*did you mean 'level[12]'",
        ),
        *(
            (f"wAP(weights={weights})", UsageError, "weights of wAP")
            for weights in ("0.5:0.5:0", "0.5:0.6", "-1:2", "nan:nan")
        ),
        *(
            (f"H-AP(alpha={exponent})", UsageError, "exponent of the relevance")
            for exponent in ("0", "-1", "nan", "inf")
        ),
        *(
            (f"H-AP({both})", UsageError, "contradict each other")
            for both in (
                "alpha=1,alpha=2",
                "alpha=3,weights=0.5:0.5",
                "relevance=exponential,alpha=3",
            )
        ),
    ],
)
def test_unknown_metrics_of_the_tree_are_refused_with_a_suggestion(spelling, error, words):
    with pytest.raises(error, match=words):
        value(spelling, [2, 1], 2)


def test_only_recall_is_said_to_have_another_meaning():
    found = {}
    for spelling in ("recall_at_5", "recip_rank"):
        with pytest.raises(UnknownName) as refusal:
            value(spelling, [2, 1], 2)
        found[spelling] = "TR@" in refusal.value.fix
    assert found == {"recall_at_5": True, "recip_rank": False}


@pytest.mark.filterwarnings("error")
def test_positives_without_relevance_leave_h_ap_undefined():
    assert math.isnan(value("H-AP(weights=0:1)", [1, 0], 2))


def test_a_table_of_relevances_has_one_for_each_level():
    with pytest.raises(UsageError, match="relevance table"):
        table([1.0])(np.array([1, 2, 3]))


def test_default_metrics_cover_every_level():
    names = [str(name) for name in default_metrics(["genus", "species"])]
    assert names[:6] == ["H-AP", "wAP", "ASI", "NDCG", "AP", "mAP@R"]
    assert {"R@1000", "AP/genus", "R@1/genus"} <= set(names)


def test_relevances_take_whole_batches_and_torch_tensors():
    torch = pytest.importorskip("torch")
    counts = np.array([[5, 2, 1], [3, 0, 4]])
    for relevance in (alpha(2.0), sum_wap(), sum_wap([0.25, 0.75]), table([1.0, 3.0])):
        rows = np.stack([relevance(row) for row in counts])
        assert np.allclose(relevance(counts), rows)
        assert np.allclose(relevance(torch.tensor(counts, dtype=torch.float64)).numpy(), rows)


def test_the_relevance_of_pairs_is_that_of_each_querys_counts():
    rng = np.random.default_rng(0)
    fine = rng.integers(12, size=30)
    labels = np.stack([fine // 6, fine // 2, fine], axis=1).astype(np.int32)
    queries, gallery = labels[:5], labels[5:]
    found = hbench.relevance_of_pairs(queries, gallery, alpha(2.0))
    for query, row in zip(queries, found, strict=True):
        levels = [oracle.level_of(query, item) for item in gallery]
        expected = [(level / 3) ** 2 / levels.count(level) if level else 0 for level in levels]
        assert row.tolist() == pytest.approx(expected)
    assert hbench.levels_of_pairs(queries, gallery).tolist() == [
        [oracle.level_of(q, g) for g in gallery] for q in queries
    ]


def test_an_empty_list_loses_no_item():
    empty = LevelSequence(np.empty(0, np.int64), np.empty(0, np.uint8), np.zeros(3, np.int64))
    assert without_last(empty).counts.tolist() == [0, 0, 0]
    of_one = LevelSequence(np.ones(1, np.int64), np.ones(1, np.uint8), np.array([0, 1, 0]))
    assert without_last(of_one).counts.tolist() == [0, 0, 0]


def test_a_cut_that_is_no_number_is_not_copied_into_the_list():
    with pytest.raises(UnknownName, match="R@k") as refusal:
        MetricName.parse("R@1e3")
    assert "H-P@1," not in str(refusal.value)
