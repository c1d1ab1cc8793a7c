"""Labels and scores as pandas, numpy and torch hand them over: read as meant, or refused; never
merged, cut or dropped.
"""

import numpy as np
import pandas as pd
import pytest
import torch

import hbench
from hbench import metrics
from hbench.core.errors import SubmissionError, TreeError, UsageError

pytestmark = pytest.mark.fast

VECTORS = np.random.default_rng(0).normal(size=(6, 3))
PATHS = [["A", "a"], ["A", "a"], ["A", "b"], ["A", "b"], ["B", "c"], ["B", "c"]]


def hap(labels, **options):
    return hbench.score(VECTORS, labels, metrics=["H-AP"], **options).scores["H-AP"]


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(PATHS),
        pd.Series([tuple(path) for path in PATHS]),
        pd.DataFrame(PATHS),
        np.array([*map(tuple, PATHS), None], dtype=object)[:-1],
        [tuple(path) for path in PATHS],
        np.array(PATHS, dtype="S"),
        [np.array(path) for path in PATHS],
        pd.DataFrame(PATHS).astype("category"),
    ],
    ids=[
        "series of lists",
        "series of tuples",
        "frame",
        "objects",
        "tuples",
        "bytes",
        "arrays",
        "categories",
    ],
)
def test_paths_are_paths_however_they_are_held(labels):
    assert hap(labels) == hap(np.array(PATHS))


@pytest.mark.parametrize("held", [list, tuple])
def test_paths_of_different_lengths_are_refused_with_what_to_do(held):
    with pytest.raises(SubmissionError, match="paths of different lengths") as refusal:
        hap(held([["A"], *PATHS[1:]]))
    assert "unknown" in refusal.value.fix


@pytest.mark.parametrize(
    ("kind", "first"), [(np.float32, 2**24), (np.float16, 2**11), (np.float64, 2**53)]
)
def test_whole_floats_are_classes_only_as_far_as_the_type_tells_them_apart(kind, first):
    below = np.array([1, 1, 2, 2, 3, 3]) + first - 4
    assert hap(below.astype(kind)) == hap(below)
    with pytest.raises(TreeError, match="integers"):
        hap((below + 4).astype(kind))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT")])
def test_what_says_that_a_name_is_missing_makes_a_distractor(missing):
    labels = np.array([*["x"] * 3, *["y"] * 2, missing], dtype=object)
    report = hbench.score(VECTORS, labels, metrics=["H-AP"])
    assert len(report.values["H-AP"]) == 5  # of which the sixth item asks nothing, and is ranked
    alone = np.array([*["x"] * 3, *["y"] * 2, "z"], dtype=object)
    of_five = hbench.score(VECTORS, alone, metrics=["H-AP"]).values["H-AP"][:5]
    np.testing.assert_array_equal(report.values["H-AP"], of_five)
    assert any(
        "1 items without a label are distractors" in each for each in report.document.warnings
    )


def test_masked_labels_are_missing_names():
    labels = np.ma.MaskedArray(np.array(["x", "x", "x", "y", "y", "z"]), [0, 0, 0, 0, 0, 1])
    assert len(hbench.score(VECTORS, labels, metrics=["H-AP"]).values["H-AP"]) == 5


def test_a_query_without_a_label_against_a_gallery_of_its_own_is_refused():
    labels = np.array([*["x"] * 3, *["y"] * 2, None], dtype=object)
    with pytest.raises(SubmissionError, match="no name at any level"):
        hbench.score(VECTORS, labels, gallery=VECTORS, gallery_labels=labels)


def test_masked_vectors_are_refused():
    with pytest.raises(SubmissionError, match="masked"):
        hbench.score(np.ma.MaskedArray(VECTORS, VECTORS > 1), [0, 0, 1, 1, 2, 2])


def test_labels_of_two_kinds_that_share_nothing_are_named():
    with pytest.raises(SubmissionError, match="of different kinds"):
        hbench.score(
            VECTORS,
            np.array(["1", "2"] * 3),
            gallery=VECTORS,
            gallery_labels=np.array([1.0, 2.0] * 3, dtype=object),
        )


def test_labels_of_torch_are_those_of_numpy():
    labels = [[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2]]
    assert hap(torch.tensor(labels)) == hap(np.array(labels))


@pytest.mark.parametrize(
    "scores",
    [np.array([[2**60, 2**60 + 1]]), np.array([[1 + 2j, 3]]), np.array([["a", "b"]])],
    ids=["large integers", "complex", "texts"],
)
def test_scores_that_float64_does_not_tell_apart_are_refused(scores):
    with pytest.raises(UsageError):
        metrics.ap(scores, [[1, 0]])


def test_scores_in_long_doubles_are_refused():
    if np.finfo(np.longdouble).nmant == np.finfo(np.float64).nmant:
        pytest.skip("long doubles are doubles here")
    with pytest.raises(UsageError, match="cannot tell these scores apart"):
        metrics.ap(np.array([[1, 1 + 1e-18]], np.longdouble), [[1, 0]])
