"""Decisions about labels are applied by a build, or refused as a whole."""

import csv

import numpy as np
import pytest

import hbench
from hbench.core.errors import DataError, UsageError
from tests.command_line import call

TABLE = "item,order,kind\na,Owls,barn owl\nb,Owls,barn owl\nc,Owls,bay owl\nd,Owls,bay owl\ne,Parrots,galah\nf,Parrots,galah\ng,Parrots,gallah\n"


@pytest.fixture
def built(tmp_path, empty_home):
    """Build the table after decisions, and return the labels of its items, and the card."""
    (tmp_path / "birds.csv").write_text(TABLE)

    def build(rows, header="item,decision,label,path", **how):
        (tmp_path / "decisions.csv").write_text("\n".join([header, *rows]) + "\n")
        source = hbench.OwnSource(
            tmp_path / "birds.csv", decisions=tmp_path / "decisions.csv", **how
        )
        data = hbench.build("birds", source=source, out=tmp_path / "built")
        test = data.tests["test"]
        names = zip(
            *(np.array(n)[test.labels[:, k]] for k, n in enumerate(test.tree.names)), strict=True
        )
        return dict(zip(test.items.tolist(), names, strict=True)), data.card

    return build


def test_each_decision_does_what_it_says(built):
    labels, card = built(
        [
            "a,keep,Owls > barn owl,",
            "c,relabel,Owls > bay owl,Owls > barn owl",
            "e,drop,Parrots > galah,",
            ",merge,Parrots > gallah,Parrots > galah",
        ]
    )
    assert labels["a"] == ("Owls", "barn owl")
    assert labels["c"] == ("Owls", "barn owl")
    assert labels["d"] == ("Owls", "bay owl")
    assert "e" not in labels
    assert labels["g"] == ("Parrots", "galah")
    for decision in ("keep", "relabel", "drop", "merge"):
        assert card[f"decided to {decision}"] == 1


def test_an_item_may_go_to_a_class_that_is_new(built):
    labels, _ = built(["g,relabel,,Parrots > corella", "f,relabel,,Parrots > corella"])
    assert labels["g"] == labels["f"] == ("Parrots", "corella")


def test_a_path_may_end_early_where_partial_labels_are_taken(built):
    labels, _ = built(["g,relabel,Parrots > gallah,Parrots"], policies=["unknown"])
    assert labels["g"][0] == "Parrots"
    assert labels["g"][1] not in {"galah", "gallah"}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["x,drop,,"], "not in the table"),
        (["a,drop,Owls > bay owl,"], "others by now"),
        ([",merge,Owls > snowy owl,Owls > barn owl"], "no item has"),
        (["a,drop,,", "a,keep,,"], "twice"),
        (
            [",merge,Owls > bay owl,Owls > barn owl", ",merge,Owls > bay owl,Parrots > galah"],
            "into several",
        ),
        (["a,relabel,,"], "no decision"),
        (["a,drop,,Owls > bay owl"], "no decision"),
        (["a,perhaps,,"], "no decision"),
        (["a,relabel,,A > B > C"], "no decision"),
    ],
)
def test_decisions_that_do_not_fit_are_refused_and_nothing_is_built(built, tmp_path, rows, words):
    with pytest.raises(DataError, match=words):
        built(rows)
    assert not (tmp_path / "built").exists()


def test_a_table_without_the_columns_is_refused(built):
    with pytest.raises(DataError, match="lacks the column decision"):
        built(["a,drop"], header="item,what")


def test_decisions_are_about_one_path(built):
    with pytest.raises(UsageError, match="one path"):
        built([], several=True)


def test_the_whole_way_from_suspects_to_a_better_dataset(tmp_path, empty_home):
    """Plant errors, audit, decide as the true labels say, build, and score before and after."""
    rng = np.random.default_rng(0)
    paths = [(f"o{n // 6}", f"k{n}") for n in range(24)]
    true = np.repeat(np.arange(24), 20)
    centres = rng.normal(size=(4, 16))[np.arange(24) // 6] + 0.8 * rng.normal(size=(24, 16))
    vectors = (centres[true] + 0.5 * rng.normal(size=(480, 16))).astype(np.float32)
    labels = true.copy()
    planted = rng.choice(480, 24, replace=False)
    labels[planted] = (labels[planted] + rng.integers(1, 24, 24)) % 24
    ids = [f"i{n:03}" for n in range(480)]
    lines = [f"{item},{','.join(paths[label])}" for item, label in zip(ids, labels, strict=True)]
    (tmp_path / "birds.csv").write_text("\n".join(["item,order,kind", *lines]))
    np.savez(tmp_path / "v.npz", ids=ids, embeddings=vectors)
    call("audit", tmp_path / "v.npz", "-d", tmp_path / "birds.csv", "-o", tmp_path / "audit")

    with (tmp_path / "audit" / "suspects.csv").open() as file:
        rows = list(csv.DictReader(file))
    # of so few items no sureness is said of near suspects
    suspects = [row for row in rows if float(row["sureness"] or 0) > 0.5]
    suspects += [row for row in rows if row["list"] == "near"][:20]
    decided = []
    for row in suspects:
        right = " > ".join(paths[true[ids.index(row["item"])]])
        decision = ("keep", "") if right == row["label"] else ("relabel", right)
        decided.append([row["item"], decision[0], row["label"], decision[1]])
    with (tmp_path / "decisions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["item", "decision", "label", "path"], *decided])
    call(
        "build", "birds2", "--from", tmp_path / "birds.csv", "--levels", "order,kind",
        "--decisions", tmp_path / "decisions.csv",
    )  # fmt: skip

    after = hbench.load("birds2")
    corrected = sum(decision[1] == "relabel" for decision in decided)
    assert after.card["decided to relabel"] == corrected >= 0.8 * len(planted)
    before = hbench.evaluate(tmp_path / "v.npz", tmp_path / "birds.csv", metrics="H-AP")
    better = hbench.evaluate(tmp_path / "v.npz", after, metrics="H-AP")
    assert better.scores["H-AP"] > before.scores["H-AP"] + 0.02
