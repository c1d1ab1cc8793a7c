"""Partial labels from a table to a report: three values, the signature, shares, refusals."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbench.core.errors import SubmissionError, UsageError
from hbench.datasets import load
from hbench.evaluation.arrays import score
from hbench.evaluation.evaluate import evaluate
from hbench.records import document as report
from hbench.records import report_tables
from tests import oracle_partial as oracle
from tests.command_line import call

pytestmark = pytest.mark.fast

LEVELS = ("order", "family", "genus")


@pytest.fixture
def zoo(tmp_path):
    """A table of 60 items whose paths end early here and there, their embeddings, the paths and the
    vectors.
    """
    rng = np.random.default_rng(8)
    paths = []
    for ends in rng.choice([1, 2, 3], p=[0.1, 0.3, 0.6], size=60).tolist():
        order, family, genus = rng.integers(2, size=3).tolist()
        paths.append((f"o{order}", f"f{order}{family}", f"g{order}{family}{genus}")[:ends])
    vectors = rng.integers(-4, 5, size=(60, 5)).astype(np.float32)
    vectors[:, 0] += 9  # none is zero
    lines = [
        "item," + ",".join(LEVELS),
        *(f"{n}.jpg,{','.join([*path, '', ''][:3])}" for n, path in enumerate(paths)),
    ]
    (tmp_path / "zoo.csv").write_text("\n".join(lines) + "\n")
    ids = pa.array([f"{n}.jpg" for n in range(60)])
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 5)
    pq.write_table(pa.table({"id": ids, "embedding": rows}), tmp_path / "zoo.parquet")
    return tmp_path / "zoo.csv", tmp_path / "zoo.parquet", paths, vectors


def means_by_loops(paths, vectors):
    """Means of some metrics by double loops over all pairs."""
    found: dict[str, dict[str, list[float]]] = {
        kind: {} for kind in ("scores", "unknown_wrong", "unknown_right")
    }
    for query, path in enumerate(paths):
        others = [item for item in range(len(paths)) if item != query]
        scores = [float(vectors[query] @ vectors[item]) for item in others]
        ranked = oracle.ranked_bounds(scores, [paths[item] for item in others], path, 3)
        readings = {
            "scores": oracle.known,
            "unknown_wrong": oracle.wrong,
            "unknown_right": oracle.right,
        }
        for kind, read in readings.items():
            for name in ("H-AP", "wAP", "ASI", "NDCG", "HD@2"):
                found[kind].setdefault(name, []).append(oracle.graded(name, read(ranked), 3))
        for level, mark in enumerate(("/order", "/family", ""), start=1):
            for base in ("AP", "R@1"):
                value = oracle.of_level(base, ranked, level, len(path))
                found["scores"].setdefault(base + mark, []).append(value)
    return {
        kind: {name: float(np.nanmean(own)) for name, own in each.items()}
        for kind, each in found.items()
    }


METRICS = "H-AP,wAP,ASI,NDCG,HD@2,AP/order,AP/family,AP,R@1/order,R@1/family,R@1"


@pytest.fixture
def words(zoo):
    """The command that evaluates the partly labelled zoo."""
    table, embeddings, _, _ = zoo
    conditions = ("--policy", "unknown", "--similarity", "dot", "--metrics", METRICS)
    return ("evaluate", embeddings, "-d", table, *conditions)


def test_a_report_has_the_values_of_what_is_known_and_both_of_what_is_not(zoo, words):
    _, _, paths, vectors = zoo
    document = json.loads(call(*words, "--json").stdout)
    for kind, expected in means_by_loops(paths, vectors).items():
        assert {name: score["value"] for name, score in document[kind].items()} == pytest.approx(
            expected, rel=1e-9
        )
    assert "unknown wrong" in call(*words).stdout


def test_a_metric_of_a_level_has_the_queries_whose_names_reach_it(zoo, words):
    _, _, paths, _ = zoo
    scores = json.loads(call(*words, "--json").stdout)["scores"]
    known = [len(path) for path in paths]
    assert scores["R@1"]["queries"] == known.count(3)
    assert scores["R@1/family"]["queries"] == 60 - known.count(1)
    assert scores["R@1/order"]["queries"] == 60


def test_a_report_says_in_signature_and_warning_that_labels_are_partial(zoo, words):
    _, _, paths, _ = zoo
    document = json.loads(call(*words, "--json").stdout)
    assert "|labels:partial|" in document["signature"]
    known = [len(path) for path in paths]
    assert (
        f"{known.count(1)} to order, {known.count(2)} to family, {known.count(3)} to genus"
        in document["warnings"][0]
    )


def test_what_is_missing_in_arrays_is_what_is_empty_in_a_table(zoo):
    table, embeddings, paths, vectors = zoo
    kinds = [None, np.nan, pd.NA, ""]
    labels = [[*path, *kinds[n % 4 :], *kinds][:3] for n, path in enumerate(paths)]
    reports = [
        score(
            vectors, names, level_names=LEVELS, policies=["unknown"], metrics=["H-AP", "AP/family"]
        )
        for names in (labels, pd.DataFrame(labels))
    ]
    of_table = evaluate(embeddings, load(table, ["unknown"]), metrics=["H-AP", "AP/family"])
    assert all(dict(report.scores) == dict(of_table.scores) for report in reports)
    with pytest.raises(SubmissionError, match="no name at some level"):
        score(vectors, labels)


def test_a_file_may_hold_the_items_that_a_policy_drops(zoo, tmp_path):
    table, embeddings, paths, _ = zoo
    call(
        "build",
        "kept",
        "--from",
        table,
        "--levels",
        ",".join(LEVELS),
        "--policy",
        "drop",
        "-o",
        tmp_path / "kept",
    )
    for words in (["-d", table, "--policy", "drop"], ["-d", tmp_path / "kept"]):
        document = json.loads(call("evaluate", embeddings, *words, "--json").stdout)
        assert document["scores"]["H-AP"]["queries"] == sum(len(path) == 3 for path in paths)


def test_shares_of_an_evaluation_make_the_whole(zoo, tmp_path):
    table, embeddings, _, _ = zoo
    words = ("evaluate", embeddings, "-d", table, "--policy", "unknown", "--max-memory", "100M")
    whole = json.loads(call(*words, "--json").stdout)
    for share in ("1/2", "2/2"):
        call(*words, "--resume", tmp_path / "kept", "--blocks", share)
    for _ in range(2):
        assert json.loads(call(*words, "--json", "--resume", tmp_path / "kept").stdout) == whole


def test_every_format_shows_the_three_values(zoo):
    table, embeddings, _, _ = zoo
    document = evaluate(embeddings, load(table, ["unknown"]), metrics=["H-AP", "AP"]).document
    header, line = report_tables.as_csv(document).splitlines()[:2]
    assert header.endswith(",unknown_wrong,unknown_right,unit,units")
    assert [float(value) for value in line.split(",")[-4:-2]] == [
        document.unknown_wrong["H-AP"].value,
        document.unknown_right["H-AP"].value,
    ]
    assert report_tables.table(document).cells[1][3:5] == (
        "",
        "",
    )  # a metric of one level has one value
    for kind in ("markdown", "latex"):
        assert "unknown right" in report_tables.FORMATS[kind](document)


def test_a_report_of_whole_labels_says_nothing_of_it(zoo, tmp_path):
    _, embeddings, _, _ = zoo
    (tmp_path / "whole.csv").write_text(
        "item,order,genus\n" + "".join(f"{n}.jpg,o,g{n % 7}\n" for n in range(60))
    )
    document = evaluate(embeddings, tmp_path / "whole.csv").document
    assert document.unknown_wrong == document.unknown_right == {}
    assert "partial" not in document.signature
    assert "unknown" not in report_tables.as_csv(document)
    document_in_words = document.model_dump(mode="json")
    assert report.Document.model_validate(document_in_words) == document


def test_what_partial_labels_cannot_do_is_refused_before_work_starts(zoo, tmp_path):
    table, embeddings, _, _ = zoo
    data = load(table, ["unknown"])
    with pytest.raises(UsageError, match="does not support partial labels"):
        evaluate(embeddings, data, protocol="official")
    with pytest.raises(UsageError, match="does not support partial labels"):
        evaluate(embeddings, data, also_official=True)
    (tmp_path / "run.csv").write_text(
        "id,images\n" + "".join(f"{n}.jpg,0.jpg\n" for n in range(60))
    )
    with pytest.raises(SubmissionError, match="scored by embeddings alone"):
        evaluate(tmp_path / "run.csv", data)
    call("tree", "validate", table, "--policy", "unknown", "-o", tmp_path / "mended.csv")
    with pytest.raises(UsageError, match="the gap cannot be measured for partial labels"):
        call("gap", embeddings, "-d", tmp_path / "mended.csv", "--batch", "20")


def test_no_remark_says_that_unknown_queries_count_as_0_in_recall(tmp_path):
    rows = [
        ("a", "f", "x", ""), ("b", "f", "x", "s"), ("c", "f", "x", "s"), ("d", "g", "", ""),
        ("e", "g", "y", "t"), ("h", "g", "y", "t"),
    ]  # fmt: skip
    vectors = np.random.default_rng(0).normal(size=(len(rows), 4))
    labels = [row[1:] for row in rows]
    levels = ["family", "genus", "species"]
    metrics = ["H-AP", "R@1", "R@1/genus"]
    report = score(vectors, labels, policies=["unknown"], level_names=levels, metrics=metrics)
    # a, b and c are of one genus, e and h too: every query that R@1/genus asks has a positive
    assert int(np.isfinite(report.values["R@1/genus"]).sum()) == 5
    assert not any("count as 0" in warning for warning in report.document.warnings)
