"""Wrong labels that are planted are found, the far and the near apart, as sure as is said."""

import itertools
import json
import math

import numpy as np
import pytest

import hbench
from hbench.auditing.evidence import NOTHING, Evidence, Votes
from hbench.auditing.swaps import draw_swaps
from hbench.core.errors import SubmissionError, UsageError
from hbench.datasets import manifest
from hbench.datasets.dataset import Dataset, Protocol
from tests.command_line import call

pytestmark = pytest.mark.fast

LEVELS = ["order", "family", "species"]


def paths_of(orders=4, families=4, species=4):
    return [
        (f"o{a}", f"f{a}.{b}", f"s{a}.{b}.{c}")
        for a, b, c in itertools.product(range(orders), range(families), range(species))
    ]


def zoo(seed=0, *, each_has=20, noise=0.7):
    """Vectors and true paths of items: orders far apart, families less, species least."""
    rng = np.random.default_rng(seed)
    paths = paths_of()
    places = {}
    centres = []
    for path in paths:
        centre = np.zeros(24)
        for depth, scale in ((1, 1.5), (2, 1.0), (3, 0.8)):
            node = path[:depth]
            if node not in places:
                places[node] = scale * rng.normal(size=24)
            centre = centre + places[node]
        centres.append(centre)
    rows = [path for path in paths for _ in range(each_has)]
    vectors = np.repeat(centres, each_has, axis=0) + noise * rng.normal(size=(len(rows), 24))
    return vectors.astype(np.float32), rows


def with_errors(rows, rate, seed=0):
    """The paths with planted errors: as many in another order as at a sibling."""
    rng = np.random.default_rng(seed)
    paths = sorted(set(rows))
    number = round(rate * len(rows) / 2)
    chosen = rng.permutation(len(rows))
    far, near = chosen[:number], chosen[number : 2 * number]
    wrong = list(rows)
    for item in far.tolist():
        wrong[item] = paths[rng.choice([n for n, p in enumerate(paths) if p[0] != rows[item][0]])]
    for item in near.tolist():
        siblings = [p for p in paths if p[:2] == rows[item][:2] and p != rows[item]]
        wrong[item] = siblings[rng.integers(len(siblings))]
    return wrong, set(far.tolist()), set(near.tolist())


def data_of(rows, train=()):
    ids = [f"i{n:05}" for n in range(len(rows))]
    is_train = np.isin(np.arange(len(rows)), list(train))
    parts = {
        name: manifest.from_names(
            [ids[n] for n in np.flatnonzero(some)],
            [rows[n] for n in np.flatnonzero(some)],
            levels=LEVELS,
        )
        for name, some in (("train", is_train), ("test", ~is_train))
        if some.any()
    }
    test = parts.pop("test")
    return Dataset("zoo", "1", Protocol(), parts.get("train"), {"test": test}), ids


def audited(vectors, rows, train=(), **how):
    data, ids = data_of(rows, train)
    return hbench.audit(vectors, data, ids=ids, **how)


def places(suspects, kind):
    return [int(row["item"][1:]) for row in suspects.to_pylist() if row["list"] == kind]


@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05])
def test_planted_errors_come_first_each_kind_in_its_list(rate):
    vectors, rows = zoo()
    wrong, far, near = with_errors(rows, rate)
    found = audited(vectors, wrong)
    of_far, of_near = places(found.suspects, "far"), places(found.suspects, "near")
    assert len(far & set(of_far[: len(far)])) >= 0.9 * len(far)
    assert len(near & set(of_near[: len(near)])) >= 0.6 * len(near)


def test_suspects_that_are_said_to_be_sure_are_wrong():
    sure, right = 0, 0
    for seed in range(2):
        vectors, rows = zoo(seed, each_has=80)
        wrong, far, near = with_errors(rows, 0.02, seed)
        for row in audited(vectors, wrong).suspects.to_pylist():
            if row["sureness"] is not None and row["sureness"] >= 0.9:
                sure += 1
                right += int(row["item"][1:]) in far | near
    assert sure >= 100
    assert right / sure >= 0.85


def test_twenty_clean_sets_have_hardly_a_sure_suspect():
    sure = 0
    items = 0
    for seed in range(20):
        vectors, rows = zoo(seed, each_has=12)
        items += len(rows)
        for row in audited(vectors, rows).suspects.to_pylist():
            sure += row["sureness"] is not None and row["sureness"] > 0.95
    assert sure <= 0.001 * items


def test_each_row_says_where_a_suspect_leaves_and_what_its_neighbours_say():
    vectors, rows = zoo()
    wrong, far, near = with_errors(rows, 0.02)
    found = audited(vectors, wrong).suspects.to_pylist()
    by_item = {int(row["item"][1:]): row for row in found}
    for item in far & by_item.keys():
        assert by_item[item]["label"] == " > ".join(wrong[item])
    right = [row for item, row in by_item.items() if item in far | near]
    proposed = [row["proposed"] == " > ".join(rows[int(row["item"][1:])]) for row in right]
    assert np.mean(proposed) > 0.8
    for row in found:
        own, other = row["label"].split(" > "), row["proposed"].split(" > ")
        first = next(level for level, a, b in zip(LEVELS, own, other, strict=True) if a != b)
        assert row["level"] == first
        assert row["list"] == ("near" if first == "species" else "far")


def evidence_by_loops(votes, item, own, other, *, is_far):
    """The formula of the evidence, vote by vote."""
    k, depth = votes.k, votes.depth
    weight = k / 2
    total = 0.0

    def chance(node, level, cls):
        usual = np.mean(votes.paths[votes.classes, level] == node)
        behind = usual
        if is_far:
            behind = counted(node, level, votes.parents[votes.classes] == votes.parents[cls], usual)
        return counted(node, level, votes.classes == cls, behind)

    def counted(node, level, members, behind):
        others = [n for n in np.flatnonzero(members) if n != item]
        cast = [votes.paths[votes.classes[v], level] for n in others for v in votes.neighbours[n]]
        return (sum(v == node for v in cast) + weight * behind) / (len(cast) + weight)

    for level in range(depth):
        for vote in votes.neighbours[item]:
            node = votes.paths[votes.classes[vote], level]
            total += math.log(chance(node, level, other) / chance(node, level, own)) / k
    return total


@pytest.mark.parametrize("seed", range(8))
def test_evidence_is_the_formula_as_loops(seed):
    rng = np.random.default_rng(seed)
    paths = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [1, 2, 4]])
    classes = np.concatenate([np.arange(5), rng.integers(0, 5, 15)])
    neighbours = np.array(
        [rng.choice([n for n in range(20) if n != item], 4, replace=False) for item in range(20)]
    )
    votes = Votes(paths, np.full(5, 3), classes, neighbours, np.ones(20))
    found = Evidence(votes).alternatives(np.arange(20), classes)
    for item in range(20):
        own = classes[item]
        named = set(classes[neighbours[item]].tolist()) - {own}
        for best, is_far in ((found.far, True), (found.near, False)):
            values = {
                other: evidence_by_loops(votes, item, own, other, is_far=is_far)
                for other in named
                if (votes.parents[other] != votes.parents[own]) == is_far
            }
            if not values:
                assert best.classes[item] == NOTHING
                continue
            assert best.evidence[item] == pytest.approx(max(values.values()), abs=1e-12)
            assert values[best.classes[item]] == pytest.approx(max(values.values()), abs=1e-12)


def test_swapped_labels_leave_the_path_where_they_should():
    vectors, rows = zoo()
    votes = audited(vectors, rows).votes
    for is_far in (True, False):
        swaps = draw_swaps(votes, np.random.default_rng(0), is_far=is_far)
        own = votes.paths[votes.classes[swaps.items]]
        shared = np.cumprod(own == votes.paths[swaps.classes], axis=1).sum(axis=1)
        assert set(shared.tolist()) == ({0, 1} if is_far else {2})


def test_an_audit_is_the_same_whatever_the_order_of_rows():
    vectors, rows = zoo(each_has=8)
    wrong, *_ = with_errors(rows, 0.05)
    first = audited(vectors, wrong)
    data, ids = data_of(wrong)
    order = np.random.default_rng(1).permutation(len(ids))
    again = hbench.audit(vectors[order], data, ids=[ids[n] for n in order])
    assert first.suspects.equals(again.suspects)
    assert first.copies.equals(again.copies)


def test_splits_are_taken_together_and_copies_across_them_are_found():
    vectors, rows = zoo(each_has=8)
    train = set(range(0, len(rows), 2))
    vectors[1] = vectors[0]  # the same label, in the other split
    vectors[17] = 2 * vectors[32]  # another species of the family, the same direction
    found = audited(vectors, rows, train)
    assert found.summary()["splits"] == {"test": len(rows) // 2, "train": len(rows) // 2}
    exact = {(row["item"], row["copy"]): row for row in found.copies.to_pylist() if row["is_exact"]}
    assert set(exact) == {("i00000", "i00001"), ("i00017", "i00032")}
    leak, other = exact["i00000", "i00001"], exact["i00017", "i00032"]
    assert (leak["split"], leak["copy_split"], leak["agree_to"]) == ("train", "test", "species")
    assert other["label"] != other["copy_label"]


def test_siblings_that_are_one_class_are_to_be_merged():
    vectors, rows = zoo()
    one, other = sorted(set(rows))[:2]
    rng = np.random.default_rng(0)
    mixed = [(one, other)[rng.integers(2)] if row in (one, other) else row for row in rows]
    pairs = {(row["first"], row["second"]) for row in audited(vectors, mixed).merges.to_pylist()}
    same = [n for n, row in enumerate(rows) if row in (one, other)]
    assert len(same) == 40
    assert pairs <= {(" > ".join(one), " > ".join(other))}


def test_labels_that_end_early_are_completed_and_are_no_suspects():
    vectors, rows = zoo()
    known = [row[:2] if n % 20 == 0 else row for n, row in enumerate(rows)]
    table = [[*row, ""][:3] for row in known]
    ids = [f"i{n:05}" for n in range(len(rows))]
    from hbench.sheets.rows import stripped
    from hbench.tree.names import NameTable
    from hbench.tree.policies import mend

    final = mend(NameTable.of(LEVELS, [tuple(row) for row in table]), ("unknown",)).final
    named = [final[stripped(tuple(row))] for row in table]
    test = manifest.from_names(ids, named, levels=LEVELS)
    data = Dataset("zoo", "1", Protocol(), None, {"test": test})
    found = hbench.audit(vectors, data, ids=ids)
    completed = {row["item"]: row["proposed"] for row in found.completions.to_pylist()}
    assert len(completed) >= 0.5 * len(rows) / 20
    for item, proposed in completed.items():
        assert proposed == " > ".join(rows[int(item[1:])])
    assert not set(completed) & set(found.suspects["item"].to_pylist())


def test_vectors_without_structure_are_not_sure_of_anything():
    _, rows = zoo()
    noise = np.random.default_rng(0).normal(size=(len(rows), 8)).astype(np.float32)
    found = audited(noise, rows)
    sure = [row["sureness"] for row in found.suspects.to_pylist()]
    assert all(each is None or each < 0.5 for each in sure)
    assert any("no sureness" in remark for remark in found.remarks)


def test_of_few_items_nothing_is_said_of_siblings():
    vectors, rows = zoo()
    wrong, *_ = with_errors(rows, 0.05)
    far, near = audited(vectors, wrong).lists
    assert (far.at_least is None, near.at_least is None) == (False, True)


def test_a_split_without_vectors_is_left_out_and_said():
    vectors, rows = zoo(each_has=8)
    train = set(range(0, len(rows), 2))
    data, ids = data_of(rows, train)
    test = [n for n in range(len(rows)) if n not in train]
    found = hbench.audit(vectors[test], data, ids=[ids[n] for n in test])
    assert len(found.pool) == len(test)
    assert any("train is left out" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda v, ids: (v[:-1], ids[:-1]), SubmissionError, "missing"),
        (lambda v, ids: (v, [f"x{n}" for n in ids]), SubmissionError, "no vector"),
        (lambda v, ids: (np.where(np.arange(len(v))[:, None] == 3, np.nan, v), ids),
         SubmissionError, "NaN"),
    ],
)  # fmt: skip
def test_vectors_that_cannot_be_ranked_are_refused(change, error, words):
    vectors, rows = zoo(each_has=3)
    data, ids = data_of(rows)
    changed, named = change(vectors, ids)
    with pytest.raises(error, match=words):
        hbench.audit(changed, data, ids=named)


def test_vectors_in_memory_without_ids_are_refused_by_the_name_of_the_argument():
    vectors, rows = zoo(each_has=3)
    data, _ = data_of(rows)
    with pytest.raises(UsageError, match="ids"):
        hbench.audit(vectors, data)


def test_too_few_neighbours_are_refused():
    vectors, rows = zoo(each_has=3)
    with pytest.raises(UsageError, match="neighbours"):
        audited(vectors, rows, neighbours=2)


def test_the_command_writes_tables_and_numbers(tmp_path):
    vectors, rows = zoo(each_has=8)
    wrong, far, near = with_errors(rows, 0.05)
    lines = ["item,order,family,species", *(f"i{n:05},{','.join(r)}" for n, r in enumerate(wrong))]
    (tmp_path / "zoo.csv").write_text("\n".join(lines))
    ids = [f"i{n:05}" for n in range(len(rows))]
    np.savez(tmp_path / "v.npz", ids=ids, embeddings=vectors)
    ran = call("audit", tmp_path / "v.npz", "-d", tmp_path / "zoo.csv", "-o", tmp_path / "audit")
    assert "far suspects" in ran.stdout
    files = {path.name for path in (tmp_path / "audit").iterdir()}
    assert {"suspects.csv", "copies.csv", "completions.csv", "merges.csv", "audit.json"} <= files
    numbers = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert numbers["items"] == len(rows)
    first = (tmp_path / "audit" / "suspects.csv").read_text().splitlines()[1].split(",")[0]
    assert int(first[1:]) in far | near


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05])
def test_the_number_of_wrong_labels_lies_between_the_two_that_are_said(rate):
    vectors, rows = zoo(each_has=80)
    wrong, far, near = with_errors(rows, rate)
    for each, planted in zip(audited(vectors, wrong).lists, (far, near), strict=True):
        if each.at_least is not None:
            assert each.at_least <= len(planted) <= each.at_most
    assert each.at_most is not None  # of near ones something is said


def test_suspects_that_stand_alone_come_surest_first():
    vectors, rows = zoo()
    wrong, *_ = with_errors(rows, 0.05)
    sureness = audited(vectors, wrong).lists[0].sureness
    assert (np.diff(sureness) <= 0).all()
    assert sureness[0] > 0.9


def test_copies_across_a_split_that_holds_a_level_out_are_a_remark():
    vectors, rows = zoo(each_has=8)
    train = {n for n, row in enumerate(rows) if row[2].endswith(("0", "1"))}
    here, there = min(train), min(set(range(len(rows))) - train)
    vectors[here] = vectors[there]
    found = audited(vectors, rows, train)
    assert found.summary()["levels_held_out"] == ["species"]
    assert any("holds species out" in remark for remark in found.remarks)


def test_a_closed_split_holds_nothing_out():
    vectors, rows = zoo(each_has=8)
    found = audited(vectors, rows, set(range(0, len(rows), 2)))
    assert found.summary()["levels_held_out"] == []


def test_a_class_of_one_item_that_votes_for_its_sibling_is_to_be_merged():
    vectors, rows = zoo()
    typo = (*rows[0][:2], "s0.0.O")
    rows[0] = typo
    merges = audited(vectors, rows).merges.to_pylist()
    assert [{row["first"], row["second"]} for row in merges] == [
        {" > ".join(typo), " > ".join(rows[1])}
    ]


def test_wrong_labels_are_counted_among_all_suspects_not_those_that_are_listed():
    vectors, rows = zoo()
    wrong, far, _ = with_errors(rows, 0.05)
    few, all_of_them = (audited(vectors, wrong, most=most).lists[0] for most in (5, 1000))
    assert len(few.items) == 5
    assert (few.at_least, few.at_most) == (all_of_them.at_least, all_of_them.at_most)
    assert few.at_least <= len(far) <= few.at_most


@pytest.mark.parametrize(
    "rows",
    [
        [("o", "f", "s")] * 12,
        [("o", "f", f"s{n}") for n in range(12)],
        [(f"o{n % 2}", f"f{n % 2}", f"s{n % 2}") for n in range(12)],
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_tiny_and_constant_sets_are_audited_without_a_word_of_sureness(rows, constant):
    vectors = np.ones((12, 3)) if constant else np.random.default_rng(0).normal(size=(12, 3))
    found = audited(vectors, rows)
    assert all(row["sureness"] is None for row in found.suspects.to_pylist())


def test_one_level_has_near_suspects_alone():
    vectors, rows = zoo()
    flat = [("-".join(row),) for row in rows]
    ids = [f"i{n:05}" for n in range(len(rows))]
    test = manifest.from_names(ids, flat, levels=["species"])
    found = hbench.audit(vectors, Dataset("zoo", "1", Protocol(), None, {"test": test}), ids=ids)
    assert {row["list"] for row in found.suspects.to_pylist()} == {"near"}
