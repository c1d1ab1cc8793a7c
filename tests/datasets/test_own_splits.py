"""Splits of own tables and folders in the words of other programs."""

import re

import pytest

from hbench.datasets import load
from tests.command_line import call, refusal
from tests.datasets.test_own_data import folder_of_images

ROWS = [("a1", "crow"), ("a2", "crow"), ("b1", "owl"), ("b2", "owl"), ("c1", "duck")]


def table(path, column, values):
    lines = [
        f"{item},bird,{name},{value}" for (item, name), value in zip(ROWS, values, strict=True)
    ]
    path.write_text("\n".join([f"item,kind,name,{column}", *lines]) + "\n")
    return path


def test_a_flag_of_the_validation_is_no_level_and_its_rows_are_tested(tmp_path):
    flagged = table(tmp_path / "t.csv", "is_valid", [False, False, True, True, True])
    said = call("build", "t", "--from", flagged).stderr
    assert load("t").levels == ("kind", "name")
    assert "--split-column is_valid uses it" in said
    said = call("build", "t", "--from", flagged, "--split-column", "is_valid", "--force").stderr
    assert "False is for training, True is tested" in said
    assert load("t").train.items.tolist() == ["a1", "a2"]
    assert load("t").tests["test"].items.tolist() == ["b1", "b2", "c1"]


def test_a_column_of_splits_whose_words_name_none_is_not_advised(tmp_path):
    numbered = table(tmp_path / "t.csv", "split", [0, 0, 1, 1, 1])
    said = call("build", "t", "--from", numbered).stderr
    assert "the column split is not used, since its words are not train" in said
    assert "--split-column" not in said


def test_beside_an_evaluation_the_development_set_is_not_tested(tmp_path):
    words = table(tmp_path / "t.csv", "part", ["train", "train", "dev", "dev", "eval"])
    call("build", "t", "--from", words, "--split-column", "part")
    assert load("t").tests["test"].items.tolist() == ["c1"]


FOLDERS = ["train/crow/1.png", "train/owl/2.png", "test/duck/3.png", "test/jay/4.png"]


@pytest.mark.parametrize("levels", [(), ("--levels", "name")])
def test_folders_that_are_called_as_splits_are_refused_with_what_takes_them_so(tmp_path, levels):
    folder_of_images(tmp_path / "zoo", FOLDERS)
    command = ("build", "zoo", "--from", tmp_path / "zoo", *levels)
    advised = re.search("--split-folders", refusal(*command))
    call(*command, advised[0])
    assert load("zoo").train.items.tolist() == ["train/crow/1.png", "train/owl/2.png"]


def test_folders_that_are_called_as_splits_are_classes_where_their_level_is_named(tmp_path):
    folder_of_images(tmp_path / "zoo", FOLDERS)
    call("build", "zoo", "--from", tmp_path / "zoo", "--levels", "vehicle,name")
    assert load("zoo").levels == ("vehicle", "name")
