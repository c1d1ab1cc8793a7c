"""Reports of arrays: golden files of the equations and of the released evaluators, and libraries
nobody here wrote.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from hbench.core.errors import SubmissionError, TreeError, UnknownName, UsageError
from hbench.datasets import manifest
from hbench.evaluation.arrays import score
from hbench.evaluation.evaluate import evaluate
from hbench.submissions import embeddings
from hbench.tree import levels_of_pairs

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "metrics.json").read_text())["cases"]
EXPONENTS = ("0.5", "1", "2", "3", "5")


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "metrics.npz") as arrays:
        return dict(arrays)


def arrays_of(golden, case):
    # the literature's column 0 is the finest
    labels = golden[f"{case}/labels"][:, ::-1].astype(np.int32)
    options = {}
    if not CASES[case]["same_source"]:
        options = {
            "gallery": golden[f"{case}/gal_emb"],
            "gallery_labels": golden[f"{case}/gal_labels"][:, ::-1].astype(np.int32),
        }
    return golden[f"{case}/emb"], labels, options


def level(depth, column):
    return f"level{depth - column}"


def equation_names(depth):
    """Our spelling of every array of the equations, for the default ties policy on lists without
    ties.
    """
    increasing = ":".join(repr(2 * n / (depth * (depth + 1))) for n in range(1, depth + 1))
    names = {f"bf_hap_a{exponent}": f"H-AP(alpha={exponent})" for exponent in EXPONENTS}
    names |= {
        "bf_asi": "ASI",
        "bf_ndcg": "NDCG",
        "bf_wap_renorm_uniform": "wAP",
        "bf_hap_map_uniform": "H-AP(relevance=sum_wap)",
    }
    names |= {
        "bf_wap_renorm_increasing": f"wAP(weights={increasing})",
        "bf_hap_map_increasing": f"H-AP(weights={increasing})",
    }
    for column in range(depth):
        at = level(depth, column)
        names |= {
            f"bf_ap_lvl{column}": f"AP/{at}",
            f"bf_mapR_lvl{column}": f"mAP@R/{at}",
            f"bf_map100_lvl{column}": f"mAP@100/{at}",
        }
        names |= {f"bf_asi_lvl{column}": f"ASI/{at}", f"bf_apx_{depth - column}": f"AP#{at}"}
    return names


@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case]["ties"]])
def test_every_query_of_the_golden_cases_scores_what_the_equations_say(golden, case):
    vectors, labels, options = arrays_of(golden, case)
    names = equation_names(CASES[case]["L"])
    report = score(vectors, labels, metrics=list(names.values()), **options)
    for key, name in names.items():
        np.testing.assert_allclose(
            report.per_query[name], golden[f"{case}/{key}"], rtol=1e-12, err_msg=f"{case} {name}"
        )


@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case]["ties"]])
def test_recall_is_whether_the_first_positive_of_the_equations_is_in_the_first_k(golden, case):
    vectors, labels, options = arrays_of(golden, case)
    levels = {level(CASES[case]["L"], column): column for column in range(CASES[case]["L"])}
    names = {
        f"R@{cut}/{name}": (cut, column)
        for cut in (1, 2, 4, 8, 10, 16, 32, 100, 1000)
        for name, column in levels.items()
    }
    report = score(vectors, labels, metrics=list(names), **options)
    for name, (cut, column) in names.items():
        first = golden[f"{case}/bf_first_lvl{column}"]
        assert np.array_equal(report.per_query[name], (first > 0) & (first <= cut)), name


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["ties"]])
@pytest.mark.parametrize(("policy", "tag"), [("pessimistic", "worst"), ("optimistic", "best")])
def test_ties_take_the_worst_or_the_best_order(golden, case, policy, tag):
    vectors, labels, options = arrays_of(golden, case)
    depth = CASES[case]["L"]
    report = score(vectors, labels, ties=policy, **options)
    np.testing.assert_allclose(
        report.per_query["H-AP"], golden[f"{case}/bf_tie_{tag}_hap_a1"], rtol=1e-12
    )
    for column in range(depth):
        expected = golden[f"{case}/bf_tie_{tag}_ap_lvl{column}"]
        np.testing.assert_allclose(
            report.per_query[f"AP/{level(depth, column)}"], expected, rtol=1e-12
        )
    assert any("equal score" in warning for warning in report.document.warnings)


@pytest.mark.parametrize(
    "case", [case for case in CASES if CASES[case]["L"] > 1 and not CASES[case]["ties"]]
)
def test_the_official_protocol_gives_every_query_the_released_h_ap(golden, case):
    vectors, labels, options = arrays_of(golden, case)
    names = [f"H-AP(alpha={exponent})" for exponent in EXPONENTS]
    for protocol, prefix in (("official", "off_hap_a"), ("official-landmark", "off_hapLM_a")):
        report = score(vectors, labels, metrics=names, protocol=protocol, **options)
        for name, exponent in zip(names, EXPONENTS, strict=True):
            np.testing.assert_allclose(
                report.per_query[name],
                golden[f"{case}/{prefix}{exponent}"],
                atol=1e-6,
                err_msg=name,
            )


OFFICIAL = ["c1_L1", "c2_sop_L2", "c3_L3_unbalanced", "c4_inat_L7", "c5_query_gallery_L3"]
OFFICIAL += ["c8a_equal_rel_L2", "c8b_equal_rel_L3"]


@pytest.mark.parametrize("case", OFFICIAL)
def test_the_official_protocol_gives_the_means_of_the_released_evaluator(golden, case):
    """Cases with ties and with queries without positives are left out: there the released means
    depend on the batch size."""
    vectors, labels, options = arrays_of(golden, case)
    depth, official = CASES[case]["L"], CASES[case]["official_mean"]["happier_bs256"]
    names = {"ASI_multi": "ASI", "NDCG_multi": "NDCG", "H-AP_multi": "H-AP"} if depth > 1 else {}
    for column in range(depth):
        for theirs in ("AP", "mAP@R", "ASI", "P@1", "R@1", "R@10", "R@100"):
            names[f"{theirs}_level{column}"] = f"{theirs}/{level(depth, column)}"
    report = score(vectors, labels, metrics=list(names.values()), protocol="official", **options)
    lone = {
        key for key in names if key in official and np.isnan(report.per_query[names[key]]).any()
    }
    for key in (set(names) & set(official)) - lone:
        assert report.scores[names[key]] == pytest.approx(official[key], abs=1e-6), key
    assert len((set(names) & set(official)) - lone) >= 4


def test_scikit_learn_agrees_on_average_precision_and_ndcg():
    from sklearn.metrics import average_precision_score, ndcg_score

    rng = np.random.default_rng(0)
    fine = rng.integers(12, size=80)
    labels, vectors = np.stack([fine // 4, fine], axis=1), rng.normal(size=(80, 8))
    report = score(
        vectors, labels, metrics=["AP", "AP/level1", "NDCG", "NDCG@10"], similarity="dot"
    )
    levels = levels_of_pairs(labels, labels)
    for query in range(80):
        others = np.arange(80) != query
        scores, own = (vectors @ vectors[query])[others], levels[query][others]
        for at, name in ((2, "AP"), (1, "AP/level1")):
            assert report.per_query[name][query] == pytest.approx(
                average_precision_score(own >= at, scores)
            )
        gains = 2.0**own - 1
        assert report.per_query["NDCG"][query] == pytest.approx(
            ndcg_score(gains[None], scores[None])
        )
        assert report.per_query["NDCG@10"][query] == pytest.approx(
            ndcg_score(gains[None], scores[None], k=10)
        )


def test_pytorch_metric_learning_agrees_on_map_at_r_and_recall():
    torch = pytest.importorskip("torch")
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    rng = np.random.default_rng(1)
    fine, vectors = np.repeat(np.arange(15), 5), rng.normal(size=(75, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    calculator = AccuracyCalculator(
        include=("mean_average_precision_at_r", "precision_at_1"),
        k="max_bin_count",
        device=torch.device("cpu"),
    )
    theirs = calculator.get_accuracy(torch.tensor(vectors), torch.tensor(fine))
    report = score(torch.tensor(vectors), fine, metrics=["mAP@R", "R@1"])
    assert report.scores["mAP@R"] == pytest.approx(theirs["mean_average_precision_at_r"])
    assert report.scores["R@1"] == pytest.approx(theirs["precision_at_1"])


def test_pytrec_eval_agrees_on_the_binary_levels():
    import pytrec_eval

    rng = np.random.default_rng(2)
    fine, vectors = rng.integers(10, size=60), rng.normal(size=(60, 6)).astype(np.float32)
    labels = np.stack([fine // 3, fine], axis=1)
    report = score(
        vectors, labels, metrics=["AP", "AP/level1", "P@5", "TR@10/level1"], similarity="dot"
    )
    levels, products = (
        levels_of_pairs(labels, labels),
        vectors.astype(np.float64) @ vectors.T.astype(np.float64),
    )
    for at, names in (
        (2, {"AP": "map", "P@5": "P_5"}),
        (1, {"AP/level1": "map", "TR@10/level1": "recall_10"}),
    ):
        truth = {
            f"q{q}": {f"d{d}": int(levels[q, d] >= at) for d in range(60) if d != q}
            for q in range(60)
        }
        run = {f"q{q}": {f"d{d}": products[q, d] for d in range(60) if d != q} for q in range(60)}
        found = pytrec_eval.RelevanceEvaluator(truth, set(names.values())).evaluate(run)
        for ours, theirs in names.items():
            for query in range(60):
                if not np.isnan(report.per_query[ours][query]):
                    assert report.per_query[ours][query] == pytest.approx(
                        found[f"q{query}"][theirs]
                    )


def test_any_spelling_of_a_metric_finds_it_in_the_report():
    report = score(np.eye(4), [[0, 0], [0, 0], [1, 1], [1, 2]], level_names=["genus", "species"])
    assert report.scores["AP"] == report.scores["AP/species"]
    assert report.per_query["R@1/species"] is report.per_query["R@1"]
    with pytest.raises(UnknownName, match="metric of this report"):
        report.scores["R@7"]


def test_equal_distances_have_no_interval_by_the_released_evaluator_either(tmp_path):
    classes = [f"c{number // 2}" for number in range(26)]
    (tmp_path / "own.csv").write_text(
        "item,order,species\n"
        + "".join(f"i{n},{'ab'[n % 4 // 2]},{name}\n" for n, name in enumerate(classes))
    )
    report = evaluate(
        np.repeat(np.eye(13, dtype=np.float32), 2, axis=0),
        tmp_path / "own.csv",
        ids=[f"i{n}" for n in range(26)],
        metrics="hops@1",
        also_official=True,
    )
    for score_of in (report.document.scores["hops@1"], report.document.official["hops@1"]):
        assert (score_of.value, score_of.low, score_of.high) == (0, None, None)


def test_a_mean_says_how_many_queries_it_was_taken_over():
    report = score(np.eye(3) + 0.1, [[0, 0], [0, 0], [1, 1]])
    ap = report.document.scores["AP"]
    assert (ap.queries, ap.skipped) == (2, 1)
    assert (ap.value, ap.low, ap.units) == (0.5, None, 1)  # one class gives no interval
    assert report.document.scores["R@1"].queries == 3
    assert any("no positive at any level" in warning for warning in report.document.warnings)


def test_arrays_are_scored_in_the_precision_of_their_numbers():
    near = 1 + np.random.default_rng(0).normal(size=(60, 4)) * 1e-9
    labels = np.arange(60) % 6
    assert dict(score(near.astype(">f8"), labels).scores) == dict(score(near, labels).scores)
    whole = np.array([[2**24], [2**24 + 1], [2**24 + 3], [5]])
    assert not any(
        "equal score" in remark for remark in score(whole, [0, 1, 0, 1], similarity="l2").remarks
    )


def test_a_metric_that_no_query_defines_has_no_value():
    report = score(np.eye(3) + 0.1, [[0], [1], [2]], metrics=["AP", "R@1"])
    assert report.document.scores["AP"].value is None
    assert np.isnan(report.scores["AP"])
    assert report.scores["R@1"] == 0


@pytest.mark.parametrize(
    ("vectors", "labels", "options", "error", "message"),
    [
        ([[1.0, float("nan")]], [[0]], {}, SubmissionError, "1 of the vectors hold NaN or Inf"),
        ([[1.0], [float("inf")]], [[0], [0]], {}, SubmissionError, "rows 1"),
        ([[1.0], [0.0]], [[0], [0]], {}, SubmissionError, "no cosine"),
        (np.array([[1.0], [1e-40]], "f4"), [[0], [0]], {}, SubmissionError, "no cosine"),
        (np.zeros((0, 3)), np.zeros((0, 1), int), {}, SubmissionError, "cannot be ranked"),
        (["a", "b"], [[0], [0]], {}, SubmissionError, "cannot be ranked"),
        ([[1.0], [2.0]], [[0]], {}, SubmissionError, "differ in number"),
        (
            [[1.0, 2.0]],
            [[0]],
            {"gallery": [[1.0]], "gallery_labels": [[0]]},
            SubmissionError,
            "differ in dimension",
        ),
        ([[1.0]], [[0]], {"gallery": [[1.0]]}, SubmissionError, "a gallery needs its labels"),
        (
            [[1.0]],
            [[0, 0]],
            {"gallery": [[1.0]], "gallery_labels": [[0]]},
            SubmissionError,
            "differ in levels",
        ),
        ([[1.0], [2.0]], [[0, 0], [0, -1]], {}, SubmissionError, "an unknown class"),
        ([[1.0], [2.0]], [[0, 0], [1, 0]], {}, TreeError, "several parents"),
        ([[1.0], [2.0]], [[0.5], [1.0]], {}, TreeError, "labels must be integers of shape"),
        (
            [[1.0], [2.0]],
            [["a", "b"], ["a", None]],
            {},
            SubmissionError,
            "1 of the labels have no name at some level",
        ),
        (
            [[1.0], [2.0]],
            [["", "c"], ["a", "b"]],
            {"policies": ["unknown"]},
            SubmissionError,
            "have no name",
        ),
        ([[1.0], [2.0]], None, {}, SubmissionError, "the labels are not names"),
        ([[1.0], [2.0]], [[0], [0]], {"metrics": ["MAP"]}, UnknownName, "unknown metric"),
        ([[1.0], [2.0]], [[0], [0]], {"metrics": "R@0"}, UnknownName, "k is 1 or more"),
        (
            [[1.0], [2.0]],
            [[0, 0], [0, 0]],
            {"level_names": ["genus"]},
            TreeError,
            "2 names, coarse to fine",
        ),
        ([[1.0, 2.0, 3.0], [2.0, 1.0, 5.0]], [[0], [0], [1]], {}, SubmissionError, r"vectors\.T"),
        ([[1.0], [2.0]], [[0], [0]], {"similarity": "euclidean"}, UnknownName, "did you mean 'l2'"),
        ([[1.0], [2.0]], [[0], [0]], {"ties": "best"}, UnknownName, "ties policy"),
        ([[1.0], [2.0]], [[0], [0]], {"similarity": "cos"}, UnknownName, "similarity"),
        ([[1.0], [2.0]], [[0], [0]], {"protocol": "papers"}, UnknownName, "did you mean 'paper'"),
        ([[1.0], [2.0]], [[0], [0]], {"alpha": 0}, UsageError, "must be positive"),
    ],
)
def test_bad_input_is_refused_by_one_clear_message(vectors, labels, options, error, message):
    with pytest.raises(error, match=message):
        score(vectors, labels, **options)


def test_names_that_look_alike_are_remarked_on_with_their_counts(tmp_path):
    names = ["crow", "crow", "Crow ", "cro\u200bw", "jay", "jay"]
    vectors = np.eye(3)[[0, 0, 0, 0, 1, 1]] + 0.01 * np.arange(6)[:, None]
    (tmp_path / "zoo.csv").write_text(
        "item,class\n" + "".join(f"{i},{name}\n" for i, name in enumerate(names))
    )
    np.savez(tmp_path / "e.npz", ids=np.arange(6).astype(str), vectors=vectors.astype(np.float32))
    for report in (score(vectors, names), evaluate(tmp_path / "e.npz", tmp_path / "zoo.csv")):
        (remark,) = [text for text in report.document.warnings if "look alike" in text]
        assert remark.endswith(r"'crow' (2) and 'Crow ' (1) and 'cro\u200bw' (1)")
    mended = score(vectors, names, policies=["normalise"])
    assert not any("look alike" in text for text in mended.document.warnings)


def test_one_refusal_names_every_wrong_metric():
    with pytest.raises(UsageError) as refusal:
        score(np.eye(4), [[0], [0], [1], [1]], metrics=["H-AP", "Foo", "AP/genus", "mAP@r"])
    assert all(name in refusal.value.problem for name in ("'Foo'", "'genus'", "'mAP@r'"))
    assert "mAP@R" in refusal.value.fix


def test_metrics_may_be_one_text_and_labels_whole_floats():
    vectors, labels = (
        np.random.default_rng(0).normal(size=(24, 4)),
        np.arange(24)[:, None] // np.array([8, 4]),
    )
    report = score(vectors, labels.astype(float), metrics="H-AP, R@1")
    assert list(report.scores) == ["H-AP", "R@1"]
    assert report.scores["H-AP"] == score(vectors, labels).scores["H-AP"]


def test_swapped_queries_and_gallery_are_recognised(tmp_path):
    rng, rows = np.random.default_rng(0), [(f"g{n // 8}", f"s{n // 4}") for n in range(24)]
    items, query = [str(n) for n in range(24)], np.arange(24) % 2 == 0
    test = manifest.from_names(
        items, rows, levels=["genus", "species"], query=query, gallery=~query
    )
    test.write(tmp_path / "d.parquet")
    sides = []
    for name, mask in (("queries", query), ("gallery", ~query)):
        embeddings.write(
            tmp_path / f"{name}.npz", test.items[mask].tolist(), rng.normal(size=(12, 4))
        )
        sides.append(embeddings.read(tmp_path / f"{name}.npz"))
    evaluate(tuple(sides), tmp_path / "d.parquet")
    with pytest.raises(SubmissionError, match="are swapped"):
        evaluate(tuple(sides[::-1]), tmp_path / "d.parquet")
    embeddings.write(tmp_path / "all.npz", items, rng.normal(size=(24, 4)))
    whole = embeddings.read(tmp_path / "all.npz")
    assert (
        evaluate((whole, whole), tmp_path / "d.parquet").scores
        == evaluate(whole, tmp_path / "d.parquet").scores
    )
