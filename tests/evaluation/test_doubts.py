"""Doubts: suspicious submissions get them, and honest ones do not."""

from dataclasses import replace

import numpy as np
import pytest

import hbench
from hbench import boards as leaderboard
from hbench.boards import runs
from hbench.datasets import Dataset
from hbench.datasets.dataset import Protocol
from hbench.datasets.manifest import from_names
from hbench.evaluation.evaluate import evaluate
from hbench.evaluation.submission import as_submission
from hbench.submissions.embeddings import Embeddings

ITEMS = [f"i{number}" for number in range(240)]
LABELS = [[f"c{number % 6}", f"f{number % 24}"] for number in range(240)]
ONE_HOT = np.eye(24, dtype=np.float32)[np.arange(240) % 24]
HONEST = np.random.default_rng(0).normal(size=(240, 16)).astype(np.float32)


def manifest(items=ITEMS, **masks):
    return from_names(items, LABELS, levels=["coarse", "fine"], **masks)


def dataset(test, train=None):
    return Dataset("own", "1", Protocol(), train, {"test": test})


def embeddings(vectors):
    return Embeddings(np.array(ITEMS, dtype=object), vectors, "0" * 64, "e.npz", str(vectors.dtype))


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (np.ones((240, 16), np.float32), ["nearly the same", "vectors are constant"]),
        (1 + 1e-5 * HONEST, ["nearly the same"]),
        (1 + 1e-3 * HONEST, ["nearly the same"]),
        (
            ONE_HOT + 1e-3 * np.tile(HONEST, 2)[:, :24],
            ["the vectors of one fine are nearly the same"],
        ),
        (
            np.eye(6)[np.arange(240) % 6] + 1e-3 * HONEST[:, :6],
            ["the vectors of one coarse are nearly the same"],
        ),
        (ONE_HOT, ["of another item of their class, as labels have"]),
        (
            np.eye(6, dtype=np.float16)[np.arange(240) % 6],
            ["100 % of the items have exactly the vector of an item of another"],
        ),
        (np.concatenate([HONEST[:220], HONEST[:20]]), ["17 % of the items"]),
        (HONEST, []),
        (HONEST.astype(np.float16), []),
        (
            np.concatenate([HONEST[:236], HONEST[:4]]),
            [],
        ),  # a dataset that holds four pictures twice
        (ONE_HOT + 0.2 * np.tile(HONEST, 2)[:, :24], []),  # good, but of a net that saw pictures
        (5 + HONEST, []),  # far from the origin, as features after a ReLU are
        (np.sign(HONEST), []),  # binary codes
    ],
)
def test_vectors_that_cannot_be_honest_are_doubted(vectors, said):
    found = as_submission(embeddings(vectors)).doubts(dataset(manifest()))
    assert len(found) == len(said), found
    assert all(part in text for part, text in zip(said, found, strict=True))


def test_queries_that_lie_in_the_gallery_are_doubted_where_the_protocol_keeps_them_apart():
    query = np.arange(240) < 120
    copied = np.concatenate([HONEST[:120], HONEST[:120]])
    apart = dataset(manifest(query=query, gallery=~query))
    (said,) = as_submission(embeddings(copied)).doubts(apart)
    assert "100 % of the queries have exactly the vector of a gallery item" in said
    assert as_submission(embeddings(HONEST)).doubts(apart) == ()
    both = (
        embeddings(HONEST),
        embeddings(copied),
    )  # two files: the gallery holds the queries' vectors
    (said,) = as_submission(both).doubts(apart)
    assert "of the queries" in said


def test_test_items_that_are_trained_on_are_doubted():
    train = manifest([f"i{number + 230}" for number in range(240)])
    (said,) = as_submission(embeddings(HONEST)).doubts(dataset(manifest(), train))
    assert "10 of 240 test items are in the dataset's training set" in said


def test_doubts_stand_in_the_report_and_in_the_row(tmp_path):
    data = dataset(manifest())
    report = evaluate(replace(embeddings(ONE_HOT), source="labels.npz"), data, method="labels")
    assert [text.split(":")[0] for text in report.document.doubts] == ["test", "test"]
    assert "R@1 = 100" in report.document.doubts[1]
    row = runs.row_of(report.document, runs.empty_board(report.document))
    assert row.run is not None
    assert row.run.doubt == "; ".join(report.document.doubts)
    path = tmp_path / "own.toml"
    runs.add(row, runs.empty_board(report.document), path)
    assert leaderboard.read_file(path).rows[0] == row


def test_the_random_vectors_and_pixels_of_glyphs_are_not_doubted():
    glyphs = hbench.load("glyphs")
    test = glyphs.tests["test"]
    vectors = np.random.default_rng(0).normal(size=(len(test), 8)).astype(np.float32)
    honest = Embeddings(test.items, vectors, "0" * 64, "e.npz", "float32")
    assert as_submission(honest).doubts(glyphs) == ()
