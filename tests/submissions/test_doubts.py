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
from hbench.submissions.embeddings.mixed_labels import odd_share
from hbench.tree.partial import ended_early

pytestmark = pytest.mark.fast

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


@pytest.mark.parametrize(("coarse", "doubts"), [(0, 0), (1, 1)], ids=["its own", "another"])
def test_copies_of_unknown_class_are_doubted_only_if_a_known_level_differs(coarse, doubts):
    known = [(f"c{n % 6}", f"f{n % 24}") for n in range(120)]
    ends = [ended_early((f"c{(n + coarse) % 6}",), ("coarse", "fine")) for n in range(120)]
    test = from_names(ITEMS, [*known, *ends], levels=["coarse", "fine"])
    copied = np.concatenate([HONEST[:120], HONEST[:120]])
    assert len(as_submission(embeddings(copied)).doubts(dataset(test))) == doubts


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
    assert leaderboard.read_board_file(path).rows[0] == row


def test_the_random_vectors_and_pixels_of_glyphs_are_not_doubted():
    glyphs = hbench.load("glyphs")
    test = glyphs.tests["test"]
    vectors = np.random.default_rng(0).normal(size=(len(test), 8)).astype(np.float32)
    honest = Embeddings(test.items, vectors, "0" * 64, "e.npz", "float32")
    assert as_submission(honest).doubts(glyphs) == ()


@pytest.fixture(scope="module")
def seen():
    """Vectors as of a net on 60 classes of 20 items: what tells classes apart varies within them,
    and more in some directions than in others."""
    rng = np.random.default_rng(4)
    scale = np.geomspace(1, 0.02, 24) * np.linalg.qr(rng.normal(size=(24, 24)))[0]
    classes = np.repeat(np.arange(60), 20)
    honest = (1.5 * rng.normal(size=(60, 24))[classes] + rng.normal(size=(1200, 24))) @ scale.T
    return honest / np.linalg.norm(honest, axis=1, keepdims=True), classes


def doubts_on(vectors, classes):
    labels = np.stack([classes // 10, classes], axis=1)
    ids = [f"{n}" for n in range(len(classes))]
    names = [(f"genus {a}", f"species {b}") for a, b in labels.tolist()]
    test = from_names(ids, names, levels=["genus", "species"])
    data = hbench.Dataset("zoo", "1", hbench.datasets.Protocol(), None, {"test": test})
    report = hbench.evaluate(vectors.astype(np.float32), data, ids=ids, metrics="R@1")
    return [doubt for doubt in report.document.doubts if "mixed" in doubt]


def test_labels_behind_the_vectors_are_doubted_also_turned(seen):
    honest, classes = seen
    mixed = np.concatenate([honest, 0.3 * np.eye(60)[classes]], axis=1)
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(84, 84)))[0]
    assert doubts_on(mixed, classes)
    assert doubts_on(mixed @ turn, classes)


def test_codes_of_classes_in_the_vectors_are_doubted(seen):
    honest, classes = seen
    codes = np.random.default_rng(6).normal(size=(60, 24)) / np.sqrt(24)
    assert doubts_on(honest + 0.5 * codes[classes], classes)


def test_vectors_of_a_net_are_not_doubted_for_telling_classes_apart(seen):
    honest, classes = seen
    assert not doubts_on(honest, classes)
    padded = np.concatenate([honest, np.full((1200, 3), 0.2)], axis=1)
    assert not doubts_on(padded, classes)


def test_the_share_in_odd_directions_is_that_of_its_definition(seen):
    honest, classes = seen
    mixed = np.concatenate([honest, 0.1 * np.eye(60)[classes]], axis=1)
    units = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    within, between = np.zeros((84, 84)), np.zeros((84, 84))
    for one in range(60):
        own = units[classes == one]
        for item in own:
            within += np.outer(item - own.mean(axis=0), item - own.mean(axis=0)) / (1200 - 60)
        apart = own.mean(axis=0) - units.mean(axis=0)
        between += len(own) * np.outer(apart, apart)
    values, directions = np.linalg.eigh(within)
    spread = np.array([way @ between @ way for way in directions.T])
    ratio = spread / np.maximum(values, 1e-9 * values.mean())
    expected = spread[ratio > 10 * spread.sum() / values.sum()].sum() / spread.sum()
    assert odd_share(mixed, np.arange(1200), classes) == pytest.approx(expected, rel=1e-6)
