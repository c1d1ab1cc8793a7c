"""Names that can be trusted: three sources of one mass, answers, and what is promised."""

import csv
import json

import numpy as np
import pytest

import hbench
from tests.command_line import call

ORDERS = {"Owls": ["Barn owl", "Bay owl"], "Parrots": ["Galah", "Corella"]}
PATHS = [(order, kind) for order, kinds in ORDERS.items() for kind in kinds]


def birds(tmp_path, per_class=4):
    """A table of items, and their ids with their paths."""
    rows = [
        (f"{kind.split()[0].lower()}{n}", order, kind)
        for n in range(per_class)
        for order, kind in PATHS
    ]
    table = tmp_path / "birds.csv"
    table.write_text("item,order,kind\n" + "".join(",".join(row) + "\n" for row in rows))
    return table, rows


def many(tmp_path, classes=120, per_class=5, seed=0):
    """A dataset of many classes with vectors around their middles: embeddings and the table."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"i{c}-{n}", f"order {c // 6}", f"kind {c}")
        for c in range(classes)
        for n in range(per_class)
    ]
    table = tmp_path / "many.csv"
    table.write_text("item,order,kind\n" + "".join(",".join(row) + "\n" for row in rows))
    middles = rng.normal(size=(classes, 12)) + 2 * np.repeat(
        rng.normal(size=(classes // 6, 12)), 6, axis=0
    )
    vectors = np.repeat(middles, per_class, axis=0) + rng.normal(size=(len(rows), 12)) * 0.5
    np.savez(
        tmp_path / "many.npz",
        ids=np.array([row[0] for row in rows]),
        embeddings=vectors.astype(np.float32),
    )
    return tmp_path / "many.npz", table, rows, vectors


def predicted(tmp_path, lines, name="pred.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_predictions_are_scored_with_what_is_too_shallow(tmp_path):
    table, rows = birds(tmp_path)
    said = {
        "barn": "Owls > Barn owl",
        "bay": "Owls",
        "galah": "Parrots > Corella",
        "corella": "Owls > Bay owl",
    }
    lines = ["item,path", *(f"{item},{said[item.rstrip('0123456789')]}" for item, _, _ in rows)]
    named = hbench.name(predicted(tmp_path, lines), table)
    scores = {value: score.value for value, score in named.scores["predictions"].items()}
    assert scores["accuracy/order"] == 3 / 4
    assert scores["accuracy/kind"] == 1 / 4
    assert scores["hP"] == pytest.approx((1 + 1 + 1 / 2 + 0) / 4)
    assert scores["hR"] == pytest.approx((1 + 1 / 2 + 1 / 2 + 0) / 4)
    assert scores["hops"] == pytest.approx((0 + 1 + 2 + 4) / 4)
    assert (scores["too shallow"], scores["too deep"]) == (1 / 4, 0)


def test_names_that_the_tree_lacks_are_wrong_and_said(tmp_path):
    table, rows = birds(tmp_path)
    lines = ["item,path,score", *(f"{item},Owls > Hawk owl,.9" for item, _, _ in rows)]
    named = hbench.name(predicted(tmp_path, lines), table)
    assert any("Owls > Hawk owl" in warning for warning in named.warnings)
    assert named.scores["predictions"]["accuracy/kind"].value == 0
    assert named.scores["predictions"]["accuracy/order"].value == 1 / 2
    assert named.table["path"].to_pylist()[0] == "Owls > Hawk owl"


def test_one_path_with_a_chance_leaves_the_rest_to_the_root(tmp_path):
    table, rows = birds(tmp_path)
    lines = ["item,path,score", *(f"{item},{order} > {kind},.75" for item, order, kind in rows)]
    named = hbench.name(predicted(tmp_path, lines), table)
    assert named.climb.masses.tolist() == [[0.75, 0.75]] * len(rows)


def test_chances_of_names_below_the_coarsest_level_are_those_of_these_names(tmp_path):
    table, rows = birds(tmp_path)
    lines = ["item\tlineage", *(f"{item}\ts:{kind}(0.75)" for item, _, kind in rows)]
    named = hbench.name(predicted(tmp_path, lines, "lineages.tsv"), table)
    assert named.climb.masses.tolist() == [[0.75, 0.75]] * len(rows)


def test_a_lineage_of_more_ranks_and_epithets_finds_its_nodes(tmp_path):
    table = tmp_path / "taxa.csv"
    table.write_text(
        "item,genus,species\na,Vulpes,Vulpes vulpes\nb,Vulpes,Vulpes lagopus\nc,Canis,Canis lupus\nd,Canis,Canis lupus\n"
    )
    label = "0123abcd-0000-4000-8000-000000000001;mammalia;canidae;vulpes;vulpes;red fox"
    pred = tmp_path / "p.json"
    pred.write_text(
        json.dumps(
            {
                "predictions": [
                    {"filepath": item, "prediction": label, "prediction_score": 0.9}
                    for item in "abcd"
                ]
            }
        )
    )
    named = hbench.name(pred, table)
    assert set(named.table["path"].to_pylist()) == {"Vulpes > Vulpes vulpes"}
    assert named.scores["predictions"]["accuracy/species"].value == 1 / 4


def test_a_gallery_of_another_dimension_is_refused_as_a_gallery(tmp_path):
    file, table, rows, vectors = many(tmp_path, classes=12, per_class=4)
    gallery = tmp_path / "narrow.npz"
    np.savez(gallery, ids=np.array([row[0] for row in rows]), embeddings=vectors[:, :8])

    with pytest.raises(hbench.SubmissionError, match="the gallery") as refusal:
        hbench.name(file, table, gallery=gallery)
    assert "--names" not in refusal.value.fix


def test_neighbours_leave_the_item_itself_out(tmp_path):
    file, table, rows, vectors = many(tmp_path, classes=12, per_class=4)
    named = hbench.name(file, table, gallery=file, k=3)
    unit = vectors.astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = (unit @ unit.T).astype(np.float64)
    for n in range(len(rows)):
        others = sorted((m for m in range(len(rows)) if m != n), key=lambda m: -cosines[n, m])[:3]
        weights = [np.exp(20 * (cosines[n, m] - 1)) for m in others]
        by_kind = {}
        for m, weight in zip(others, weights, strict=True):
            by_kind[rows[m][1:]] = by_kind.get(rows[m][1:], 0) + weight / sum(weights)
        best = max(by_kind, key=by_kind.get)
        coarse = sum(share for path, share in by_kind.items() if path[0] == best[0])
        assert named.climb.masses[n] == pytest.approx([coarse, by_kind[best]], abs=1e-5)
        assert named.table["path"][n].as_py() == " > ".join(best)


def test_a_promise_is_set_on_one_half_of_the_classes_and_measured_on_the_other(tmp_path):
    file, table, _rows, _ = many(tmp_path)
    trusted = hbench.name(file, table, gallery=file).trust(0.8)
    assert len(trusted.halves) == 2
    assert np.isfinite(trusted.threshold)
    assert trusted.right_of_said >= 0.8
    said = trusted.levels > 0
    assert trusted.right[said & trusted.known].mean() == pytest.approx(trusted.right_of_said)
    assert 0 <= trusted.haurc <= 1
    assert sum(items for items, _ in trusted.by_level.values()) == said.sum()


def test_a_chosen_part_is_calibrated_on_and_the_rest_is_measured(tmp_path):
    file, table, rows, _ = many(tmp_path)
    named = hbench.name(file, table, gallery=file)
    mask = np.array([int(row[2].split()[1]) % 2 == 0 for row in rows])
    by_mask = named.trust(0.8, mask)
    by_id = named.trust(0.8, [row[0] for row, chosen in zip(rows, mask, strict=True) if chosen])
    assert by_mask.threshold == by_id.threshold
    assert by_mask.halves == ()
    tested = by_mask.levels[~mask] > 0
    assert by_mask.said == pytest.approx(tested.mean())


def test_few_classes_promise_nothing_and_say_how_many_would_do(tmp_path):
    table, rows = birds(tmp_path, per_class=50)
    lines = ["item,path", *(f"{item},{order} > {kind}" for item, order, kind in rows)]
    trusted = hbench.name(predicted(tmp_path, lines), table).trust(0.95)
    assert trusted.threshold == float("inf")
    assert set(trusted.nodes) == {""}
    assert "too few" in trusted.remark
    assert "65" in trusted.remark
    by_item = hbench.name(predicted(tmp_path, lines), table).trust(0.95, unit="query")
    assert np.isfinite(by_item.threshold)
    assert "same classes" in by_item.remark


@pytest.mark.parametrize("target", [0, 1, 1.5])
def test_a_target_that_is_no_share_is_refused(tmp_path, target):
    table, rows = birds(tmp_path)
    lines = ["item,path", *(f"{item},{order}" for item, order, _ in rows)]
    with pytest.raises(hbench.UsageError, match="target"):
        hbench.name(predicted(tmp_path, lines), table).trust(target)


def test_two_sources_at_once_are_refused(tmp_path):
    file, table, _, _ = many(tmp_path, classes=12)
    with pytest.raises(hbench.UsageError, match="three sources"):
        hbench.name(file, table, gallery=file, predictions=table)


def test_negative_chances_are_refused(tmp_path):
    table, rows = birds(tmp_path)
    lines = ["item,path,score", *(f"{item},{order},-2.5" for item, order, _ in rows)]
    with pytest.raises(hbench.SubmissionError, match="softmax"):
        hbench.name(predicted(tmp_path, lines), table)


def test_the_verb_writes_answers_and_one_document(tmp_path):
    file, table, rows, _ = many(tmp_path)
    answers = tmp_path / "answers.csv"
    run = call(
        "name", file, "-d", table, "--gallery", file, "--trust", ".8", "-o", answers, "--json"
    )
    document = json.loads(run.stdout)["trust"]
    assert document["target"] == 0.8
    assert set(document) >= {
        "unit",
        "threshold",
        "said",
        "right_of_said",
        "interval",
        "risk",
        "coverage",
        "haurc",
        "by_level",
        "fixed",
    }
    with answers.open(newline="") as lines:
        written = [*csv.DictReader(lines)]
    assert len(written) == len(rows)
    answer = ["item", "answer", "answer_level", "mass", "promised"]
    assert list(written[0])[:5] == answer
    assert all(row["path"].startswith(row["answer"]) for row in written)
    assert all(float(row["path_mass"]) <= float(row["mass"]) for row in written)
    assert {row["answer_level"] for row in written} <= {"", "order", "kind"}


def test_the_first_line_says_that_masses_are_no_chances(tmp_path):
    file, table, _, _ = many(tmp_path, classes=24)
    run = call("name", file, "-d", table, "--gallery", file)
    assert run.stdout.splitlines()[0].startswith("masses are shares, no chances")


def test_a_table_of_predictions_given_to_evaluate_is_sent_to_the_verb_that_scores_it(tmp_path):
    table, rows = birds(tmp_path)
    lines = ["item,path,score", *(f"{item},{order},.9" for item, order, _ in rows)]
    with pytest.raises(hbench.SubmissionError, match="hbench name"):
        hbench.evaluate(predicted(tmp_path, lines), table)


def two_predictions(tmp_path):
    """A table of 120 classes, and two tables of predictions: the second errs in more items."""
    _, table, rows, _ = many(tmp_path)
    files = []
    for name, wrong in (("one", 7), ("two", 3)):
        lines = ["item,path"]
        for n, (item, order, kind) in enumerate(rows):
            lines.append(f"{item},{order}{'' if n % wrong == 0 else ' > ' + kind}")
        files.append(predicted(tmp_path, lines, f"{name}.csv"))
    return table, rows, files


def test_two_predictions_of_the_same_items_are_compared_pairwise_by_class(tmp_path):
    table, rows, (one, two) = two_predictions(tmp_path)
    found = hbench.name(one, table).against(hbench.name(two, table))
    right = [[n % wrong != 0 for n in range(len(rows))] for wrong in (7, 3)]
    assert found["accuracy/kind"].difference == pytest.approx(np.mean(right[0]) - np.mean(right[1]))
    assert found["accuracy/order"].difference == 0
    assert found["hops"].difference == pytest.approx(np.mean(right[1]) - np.mean(right[0]))
    assert found["accuracy/kind"].units == 120
    assert 0 < found["accuracy/kind"].low < found["accuracy/kind"].high
    assert found["accuracy/kind"].p < 0.01


def test_a_comparison_is_the_same_whatever_the_order_of_rows(tmp_path):
    table, _, (one, two) = two_predictions(tmp_path)
    header, *lines = two.read_text().splitlines()
    turned = predicted(tmp_path, [header, *lines[::-1]], "turned.csv")
    named = hbench.name(one, table)
    assert named.against(hbench.name(two, table)).differences == (
        named.against(hbench.name(turned, table)).differences
    )


def test_namings_of_other_items_or_labels_are_not_compared(tmp_path):
    table, _, (one, _) = two_predictions(tmp_path)
    named = hbench.name(one, table)
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(hbench.ComparisonError, match="different queries"):
        named.against(hbench.name(one, fewer))
    moved = tmp_path / "moved.csv"
    moved.write_text(table.read_text().replace("order 1,kind 7\n", "order 2,kind 7\n"))
    with pytest.raises(hbench.ComparisonError, match="other labels"):
        named.against(hbench.name(one, moved))


def test_neighbours_are_compared_with_predictions_by_the_verb(tmp_path):
    file, table, rows, _ = many(tmp_path)
    lines = ["item,path", *(f"{item},{order} > {kind}" for item, order, kind in rows)]
    perfect = predicted(tmp_path, lines)
    words = ("name", file, "-d", table, "--gallery", file, "--against", perfect)
    document = json.loads(call(*words, "--json").stdout)
    (of_kind,) = (
        each for each in document["against"]["differences"] if each["metric"] == "accuracy/kind"
    )
    own = document["scores"]["neighbours"]["accuracy/kind"]["value"]
    assert (of_kind["first"], of_kind["second"]) == (pytest.approx(own), 1)
    assert "many − pred" in call(*words).stdout
