"""`assemble` for somebody who has the landmarks of train alone: what it refuses, and that its advice
works.
"""

import csv
import re
import shlex

import pytest

from hbench import datasets
from hbench.core.errors import DataError
from tests.command_line import call
from tests.pipelines.official import GOLDEN, rows_of

SAMPLE = "train_label_to_hierarchical.sample5col.csv"
TRAIN = "metadata/train_label_to_hierarchical.csv"
INDEX = "metadata/index_label_to_hierarchical.csv"


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([header, *rows])


def fetch_index(raw):
    """What a download of the metadata adds to the files of train."""
    (raw / INDEX).write_bytes((raw / TRAIN).read_bytes())
    numbers = [int(row["landmark_id"]) for row in rows_of(SAMPLE)]
    images = [(f"i{number:015x}", number) for number in numbers]
    write(raw / "metadata/index_image_to_landmark.csv", ["id", "landmark_id"], images)
    truth = [("q000000000000000", images[0][0], "Public")]
    write(raw / "ground_truth/retrieval_solution_v2.1.csv", ["id", "images", "Usage"], truth)


def group(work):
    """The steps between clean and assemble."""
    call("hgldv2", "--work", work, "encode", "--encoder", "tfidf")
    call("hgldv2", "--work", work, "cluster", "--k", "4")
    call("hgldv2", "--work", work, "replay")


@pytest.fixture
def raw(tmp_path):
    """GLDv2's metadata, without any of the index."""
    folder = tmp_path / "raw"
    rows = [(row["landmark_id"], f"t{int(row['landmark_id']):015x}") for row in rows_of(SAMPLE)]
    write(folder / "metadata/train_clean.csv", ["landmark_id", "images"], rows)
    (folder / TRAIN).write_bytes((GOLDEN / SAMPLE).read_bytes())
    return folder


@pytest.fixture
def work(tmp_path, raw):
    """A work folder that is ready to assemble, of train alone."""
    folder = tmp_path / "work"
    call("hgldv2", "--work", folder, "clean", "--released", "train", raw / TRAIN)
    call("hgldv2", "--work", folder, "decisions", "--released", raw / TRAIN)
    group(folder)
    return folder


@pytest.fixture
def refused(work, raw):
    """What `assemble --raw` says of it."""
    with pytest.raises(DataError) as error:
        call("hgldv2", "--work", work, "assemble", "--raw", raw)
    return error.value


def advised(refused, step):
    """The words of the command of a step in the advice, without `hbench`."""
    words = rf"hbench (hgldv2 --work \S+ {step}(?: --released \S+ \S+)*)"
    (command,) = re.findall(words, refused.fix)
    return shlex.split(command)


def test_a_dataset_of_train_alone_is_refused_before_anything_is_written(refused, work):
    assert "selection.csv has landmarks of train only" in refused.problem
    assert refused.found == "14 of train, 0 of index"
    assert not (work / "hierarchy").exists()


def test_the_advice_for_the_labels_alone_writes_them_and_says_that_this_is_all(refused, work):
    said = call(*advised(refused, "assemble")).stderr
    assert (work / "hierarchy" / TRAIN).read_bytes() == (GOLDEN / SAMPLE).read_bytes()
    assert "all there is to make of train alone" in said


def test_the_advice_for_the_dataset_builds_it(refused, work, raw):
    assert f"hbench download hgldv2 --part metadata --root {raw}" in refused.fix
    fetch_index(raw)
    call(*advised(refused, "clean"))
    group(work)
    call("hgldv2", "--work", work, "assemble", "--raw", raw)
    built = datasets.load(work / "dataset")
    assert (len(built.train), built.tests["test"].query.sum()) == (14, 1)


def test_a_folder_without_the_lists_of_the_index_is_refused_with_what_is_there(refused, work, raw):
    fetch_index(raw)
    call(*advised(refused, "clean"))
    group(work)
    (raw / "metadata/index_image_to_landmark.csv").unlink()
    with pytest.raises(DataError, match=r"raw has no metadata/index_image_to_landmark\.csv") as new:
        call("hgldv2", "--work", work, "assemble", "--raw", raw)
    assert new.value.found == "metadata/train_clean.csv, ground_truth/retrieval_solution_v2.1.csv"
    assert f"hbench download hgldv2 --part metadata --root {raw}" in new.value.fix
