"""Thresholds set on other items than those that are answered: another file, a split, new ones."""

import csv
import json

import numpy as np
import pytest

import hbench
from hbench.datasets import Dataset, Protocol
from hbench.datasets.manifest import from_names
from tests.command_line import call, refusal

CLASSES, OF_EACH = 60, 4


def kinds():
    """Ids, orders and kinds of items that are labelled."""
    return [
        (f"i{c}-{n}", f"order {c // 6}", f"kind {c}")
        for c in range(CLASSES)
        for n in range(OF_EACH)
    ]


def vectors_of(ids, classes, seed):
    """Vectors around the middles of classes."""
    middles = np.random.default_rng(0).normal(size=(CLASSES, 16))
    rng = np.random.default_rng(seed)
    return {
        item: middles[c] + rng.normal(size=16) * 0.6 for item, c in zip(ids, classes, strict=True)
    }


def written(path, vectors):
    np.savez(path, ids=[*vectors], embeddings=np.float32([*vectors.values()]))
    return path


def predicted(path, chances):
    """A table of predictions, of item: (path, chance)."""
    lines = [f"{item},{names},{chance}" for item, (names, chance) in chances.items()]
    path.write_text("\n".join(["item,path,score", *lines]) + "\n")
    return path


def answers_in(path):
    with path.open(newline="") as lines:
        return {row["item"]: row for row in csv.DictReader(lines)}


@pytest.fixture
def labels(tmp_path):
    """A table of items with labels; predictions of them, which err where the chance is small; and
    predictions of new ones."""
    path = tmp_path / "labels.csv"
    path.write_text("item,order,kind\n" + "".join(",".join(row) + "\n" for row in kinds()))
    chances = {}
    for n, (item, order, kind) in enumerate(kinds()):
        is_right = n % 4 != 0
        said = f"{order} > {kind if is_right else 'kind 0'}"
        chances[item] = said, 0.9 if is_right else 0.3
    new = {
        f"new{n}": (f"order {n // 6} > kind {n}", 0.95 if n % 2 else 0.2) for n in range(CLASSES)
    }
    return path, predicted(tmp_path / "known.csv", chances), predicted(tmp_path / "new.csv", new)


def test_new_items_get_answers_by_a_threshold_set_on_labelled_predictions(tmp_path, labels):
    table, known, new = labels
    out = tmp_path / "answers.csv"
    done = call("name", new, "-d", table, "--trust", ".8", "--calibrate", known, "-o", out)
    answers = answers_in(out)
    assert list(answers) == [f"new{n}" for n in range(CLASSES)]
    # where they err the chance is .3: the threshold lies above it, and at .9 or below
    assert answers["new7"]["answer"] == "order 1 > kind 7"
    assert answers["new7"]["promised"] == "0.8"
    assert (answers["new6"]["answer"], answers["new6"]["promised"]) == ("", "")
    assert "60 of 60 items have no label in labels" in done.output
    assert "set on 240 items of known.csv" in done.output
    assert "accuracy" not in done.output  # there is nothing to score


def test_another_naming_sets_the_threshold_in_python(labels):
    table, known, new = labels
    data = hbench.load(table)
    named = hbench.name(new, data, items=[f"new{n}" for n in range(CLASSES)])
    trusted = named.trust(0.8, calibrate=hbench.name(known, data))
    assert 0.3 < trusted.threshold <= 0.9
    assert np.array_equal(trusted.levels > 0, np.arange(CLASSES) % 2 == 1)
    assert not trusted.known.any()
    assert not trusted.is_measured
    assert trusted.unlabelled.said == 0.5
    assert trusted.document()["unlabelled"]["by_level"]["kind"] == {"items": 30, "right": None}
    assert named.scores["predictions"]["accuracy/kind"].value is None
    assert "no item has a label" in named.remark


def test_an_item_that_sets_the_threshold_does_not_judge_it(labels):
    table, known, _ = labels
    named = hbench.name(known, table)
    half = [item for n, item in enumerate(named.items.tolist()) if n % 2]
    others = hbench.name(known, table, items=half)
    trusted = named.trust(0.8, calibrate=others)
    by_id = named.trust(0.8, calibrate=half)
    assert trusted.threshold == by_id.threshold
    assert trusted.outcome[:4] == by_id.outcome[:4]
    assert trusted.by_level["kind"] == by_id.by_level["kind"]


def test_items_without_a_label_beside_the_tests_own_are_answered_and_not_counted(tmp_path, labels):
    table, known, new = labels
    mixed = tmp_path / "mixed.csv"
    mixed.write_text(known.read_text() + "".join(new.read_text().splitlines(True)[1:]))
    out = tmp_path / "answers.csv"
    words = ("-d", table, "--trust", ".8", "--json")
    alone = json.loads(call("name", known, *words).stdout)
    both = json.loads(call("name", mixed, *words, "-o", out).stdout)
    assert len(answers_in(out)) == 240 + CLASSES
    assert answers_in(out)["new7"]["answer"] == "order 1 > kind 7"
    for value in ("threshold", "said", "right_of_said", "coverage", "haurc"):
        assert both["trust"][value] == alone["trust"][value]
    for value, score in alone["scores"]["predictions"].items():
        other = both["scores"]["predictions"][value]
        assert (other["value"], other["queries"]) == (score["value"], score["queries"])
        assert other["skipped"] == CLASSES
    assert both["trust"]["unlabelled"]["said"] == 0.5


@pytest.mark.parametrize("source", ["gallery", "nodes"])
def test_new_vectors_get_answers_by_neighbours_and_by_names(tmp_path, labels, source):
    rows = kinds()
    own = written(
        tmp_path / "own.npz",
        vectors_of([row[0] for row in rows], np.repeat(np.arange(CLASSES), OF_EACH), 1),
    )
    new = written(
        tmp_path / "new.npz",
        vectors_of([f"new{c}" for c in range(CLASSES)], np.arange(CLASSES), 2),
    )
    names = written(
        tmp_path / "names.npz",
        vectors_of([f"kind {c}" for c in range(CLASSES)], np.arange(CLASSES), 3),
    )
    out = tmp_path / "answers.csv"
    given = own if source == "gallery" else names
    call(
        "name", new, "-d", labels[0], f"--{source}", given, "--trust", ".8", "--calibrate", own,
        "-o", out, "--page", tmp_path / "page.html",
    )  # fmt: skip
    answers = answers_in(out)
    assert len(answers) == CLASSES
    said = [c for c in range(CLASSES) if answers[f"new{c}"]["answer"]]
    right = [f"order {c // 6} > kind {c}".startswith(answers[f"new{c}"]["answer"]) for c in said]
    assert sum(right) >= 0.8 * len(said) > 0.1 * CLASSES


def test_a_split_sets_the_threshold_by_the_file_or_by_the_gallery(tmp_path):
    rows = kinds()
    ids = [row[0] for row in rows]
    names = [row[1:] for row in rows]
    train = from_names([f"t-{item}" for item in ids], names, levels=("order", "kind"))
    test = from_names(ids, names, levels=("order", "kind"))
    hbench.datasets.dataset.save(
        Dataset("birds", "1", Protocol(), train, {"test": test}), tmp_path / "birds"
    )
    classes = np.repeat(np.arange(CLASSES), OF_EACH)
    of_train = vectors_of(train.items.tolist(), classes, 1)
    of_test = vectors_of(ids, classes, 2)
    test_file = written(tmp_path / "test.npz", of_test)
    train_file = written(tmp_path / "train.npz", of_train)
    both = written(tmp_path / "both.npz", {**of_train, **of_test})
    words = ("-d", tmp_path / "birds", "--trust", ".8", "--json")

    by_gallery = json.loads(
        call("name", test_file, *words, "--gallery", train_file, "--calibrate", "train").stdout
    )
    by_file = json.loads(
        call("name", both, *words, "--gallery", train_file, "--calibrate", "train").stdout
    )
    named = hbench.name(test_file, tmp_path / "birds", gallery=train_file)
    others = hbench.name(
        train_file, tmp_path / "birds", gallery=train_file, items=train.items.tolist()
    )
    assert by_gallery["trust"]["threshold"] == named.trust(0.8, others).threshold
    assert by_file["trust"] == by_gallery["trust"]
    assert np.isfinite(named.trust(0.8, others).threshold)
    assert "--calibrate FILE" in refusal(
        "name", test_file, *words, "--gallery", test_file, "--calibrate", "train"
    )


def test_items_of_a_calibration_that_have_no_label_are_said_and_left_out(tmp_path, labels):
    table, known, new = labels
    more = tmp_path / "more.csv"
    more.write_text(known.read_text() + "odd1,order 1,.5\nodd2,order 1,.5\n")
    done = call("name", new, "-d", table, "--trust", ".8", "--calibrate", more)
    assert "2 have no label, and are left out: odd1, odd2" in done.output


@pytest.mark.parametrize(
    ("calibrate", "cause"),
    [
        ("new", "no label of any item"),
        ("labels", "the label itself"),
        ("nowhere", "no file here, no split"),
        ("train", "no split"),
        ("1.5", "no share"),
    ],
)
def test_what_no_threshold_can_be_set_on_is_refused(tmp_path, labels, calibrate, cause):
    table, known, new = labels
    file = {"new": new, "labels": table}.get(calibrate, calibrate)
    assert cause in refusal("name", known, "-d", table, "--trust", ".8", "--calibrate", file)


def test_new_items_alone_are_refused_without_a_calibration(labels):
    table, _, new = labels
    assert "--calibrate" in refusal("name", new, "-d", table, "--trust", ".8")


def test_a_naming_in_other_levels_or_from_another_source_sets_no_threshold(tmp_path, labels):
    table, known, _ = labels
    named = hbench.name(known, table)
    classes = np.repeat(np.arange(CLASSES), OF_EACH)
    own = written(tmp_path / "own.npz", vectors_of([row[0] for row in kinds()], classes, 1))
    with pytest.raises(hbench.ComparisonError, match="kind of masses"):
        named.trust(0.8, calibrate=hbench.name(own, table, gallery=own))
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("item,order,kind", "item,family,species"))
    with pytest.raises(hbench.ComparisonError, match="kind of masses"):
        named.trust(0.8, calibrate=hbench.name(known, other))
