"""Labels in a DataFrame are those of the table that pandas would write of it, in a build and in a
score.
"""

import numpy as np
import pandas as pd
import pytest

import hbench
from hbench.core.errors import DataError, SubmissionError, TreeError, UsageError

ROWS = [
    ("a1.jpg", "Passeriformes", "crow"),
    ("a2.jpg", "Passeriformes", "crow"),
    ("b1.jpg", "Passeriformes", "great tit"),
    ("b2.jpg", "Passeriformes", "great tit"),
    ("c1.jpg", "Anseriformes", "mallard"),
    ("c2.jpg", "Anseriformes", "mallard"),
]


@pytest.fixture
def birds():
    return pd.DataFrame(ROWS, columns=["path", "order", "species"])


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(len(ROWS), 4))


def built(source, folder, name):
    return hbench.build(name, source=source, out=folder / name)


def test_a_dataframe_builds_the_dataset_of_its_file(birds, tmp_path, empty_home):
    birds.to_csv(tmp_path / "birds.csv", index=False)
    levels = {"levels": ["order", "species"], "image_column": "path"}
    of_frame = built(hbench.OwnSource(birds, **levels), tmp_path, "frame")
    of_file = built(hbench.OwnSource(tmp_path / "birds.csv", **levels), tmp_path, "file")
    assert of_frame.tests["test"].digest == of_file.tests["test"].digest
    assert of_frame.levels == ("order", "species")


def test_a_named_index_is_a_column_and_the_numbers_of_rows_are_none(birds, tmp_path, empty_home):
    by_path = birds.set_index("path")
    test = built(hbench.OwnSource(by_path, "order,species"), tmp_path, "indexed").tests["test"]
    assert sorted(test.items.tolist()) == [path for path, *_ in ROWS]
    assert built(hbench.OwnSource(birds), tmp_path, "plain").levels == ("order", "species")


def test_what_is_wrong_with_a_dataframe_is_said_as_of_a_file(birds, tmp_path, empty_home):
    with pytest.raises(DataError, match="the DataFrame is not a table"):
        built(hbench.OwnSource(birds[:0]), tmp_path, "empty")
    mixed = birds.assign(order=[1, "two", 3.0, None, b"x", "y"])
    with pytest.raises(DataError, match="the DataFrame cannot be read"):
        built(hbench.OwnSource(mixed), tmp_path, "mixed")
    knotted = birds.assign(order=["a", "b", "c", "d", "e", "f"])
    with pytest.raises(TreeError, match="the DataFrame"):
        built(hbench.OwnSource(knotted, "order,species"), tmp_path, "knotted")
    with pytest.raises(UsageError, match="path must be a path or a DataFrame"):
        hbench.OwnSource(3)


def test_the_columns_of_labels_are_the_levels_of_a_score(birds, vectors):
    labels = birds[["order", "species"]]
    report = hbench.score(vectors, labels)
    named = hbench.score(vectors, labels.to_numpy(), level_names=["order", "species"])
    assert report.scores == named.scores
    assert "AP/order" in report.scores
    renamed = hbench.score(vectors, labels, level_names=["o", "s"], metrics="AP/o")
    assert list(renamed.scores) == ["AP/o"]


def test_a_gallery_with_its_columns_in_another_order_is_refused(birds, vectors):
    labels = birds[["order", "species"]]
    with pytest.raises(SubmissionError, match="other columns"):
        hbench.score(vectors, labels, gallery=vectors, gallery_labels=birds[["species", "order"]])


def test_a_column_of_ids_is_no_level(birds, vectors):
    with pytest.raises(SubmissionError, match="the column item"):
        hbench.score(vectors, birds.rename(columns={"path": "item"}))
