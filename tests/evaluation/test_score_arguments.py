"""What hbench.score is given: files in place of arrays, policies as one text, and what help shows
of it.
"""

import pydoc

import numpy as np
import pandas as pd
import pytest

import hbench
from hbench.core.errors import SubmissionError, UsageError

pytestmark = pytest.mark.fast


def test_the_names_of_files_in_place_of_arrays_are_sent_to_the_function_for_them():
    with pytest.raises(UsageError, match=r"hbench\.score takes arrays") as refusal:
        hbench.score("mine.parquet", "birds.csv")
    assert "hbench.evaluate(FILE, DATASET)" in refusal.value.fix


def test_policies_may_be_one_text():
    labels = [["A", "a"], ["A", "a"], ["B", "b"], ["B", ""]]
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    one, several = (
        hbench.score(vectors, labels, policies=given, metrics=["H-AP"])
        for given in ("unknown", ["unknown"])
    )
    assert one.scores == several.scores


def test_help_of_a_function_begins_with_names_of_types_and_its_sentence():
    text = pydoc.plain(pydoc.render_doc(hbench.score))
    assert "vectors: 'ArrayLike'" in text
    assert text.index("Score vectors by their labels") < 900


def test_frames_of_one_index_in_another_order_are_not_joined_by_position():
    vectors = pd.DataFrame(np.random.default_rng(0).normal(size=(4, 3)), index=list("abcd"))
    labels = pd.DataFrame({"kind": ["x", "x", "y", "y"]}, index=list("badc"))
    with pytest.raises(SubmissionError, match="another order"):
        hbench.score(vectors, labels)
    assert hbench.score(vectors, labels.loc[vectors.index]).scores["AP"] > 0


def test_missing_numbers_are_named_and_the_advice_scores_what_is_known():
    vectors = np.random.default_rng(0).normal(size=(6, 3))
    labels = pd.DataFrame({"kind": [1, 1, 1, 2, 2, 2], "name": [1, 1, None, 2, 2, 3]})
    with pytest.raises(SubmissionError, match=r"1 of the labels are missing \(NaN\)"):
        hbench.score(vectors, labels)
    report = hbench.score(vectors, labels.astype("Int64"), policies=["unknown"])
    assert report.scores["AP"] > 0


def test_a_dictionary_of_columns_is_no_labels():
    with pytest.raises(SubmissionError, match="a row for each item"):
        hbench.score(np.eye(2), {"kind": [1, 2]})
