"""Tables with rows that have no label or lack a rank, and folders with links: what people's data
really is like.
"""

import itertools
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

import hbench
from hbench import load
from hbench.core.errors import DataError, TreeError
from hbench.datasets.own.source import OwnSource
from hbench.tree.names import NameTable
from hbench.tree.policies import mend, policies


def write(path, rows, header="item,order,species"):
    path.write_text(header + "\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


# ---- distractors

LABELLED = [(f"q{n}", "AB"[n % 2], "abcd"[n % 4]) for n in range(12)]
NAMELESS = [(f"d{n}", "", "") for n in range(8)]


def test_items_of_the_gallery_without_a_name_are_distractors_and_said(tmp_path):
    found = load(write(tmp_path / "t.csv", [*LABELLED, *NAMELESS]))
    test = found.tests["test"]
    assert (int(test.query.sum()), int(test.gallery.sum())) == (12, 20)
    assert "8 items without a name at any level are distractors" in str(found.read)


def test_a_query_without_a_name_is_refused(tmp_path):
    rows = [(*row, "1", "1") for row in LABELLED] + [("d0", "", "", "1", "1")]
    with pytest.raises(DataError, match="1 item without a name at some level"):
        load(write(tmp_path / "t.csv", rows, "item,order,species,query,gallery"))


def test_distractors_stay_when_policies_mend_the_others(tmp_path):
    rows = [*LABELLED, ("x", "A", ""), *NAMELESS]
    test = load(write(tmp_path / "t.csv", rows), policies=["repeat-leaf"]).tests["test"]
    assert (int(test.query.sum()), int(test.gallery.sum())) == (13, 21)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**6))
def test_scores_with_distractors_are_those_of_double_loops(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = [
        (
            f"i{n}",
            *(("", "") if rng.random() < 0.4 else rng.choice([("A", "a"), ("A", "b"), ("B", "c")])),
        )
        for n in range(16)
    ]
    labels = [row[1:] for row in rows]
    if len({label for label in labels if any(label)}) < 2:
        return
    vectors = rng.normal(size=(16, 4))
    report = hbench.evaluate(
        vectors,
        load(write(tmp_path / "t.csv", rows)),
        ids=[row[0] for row in rows],
        metrics=["H-AP"],
    )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = [hap(unit @ unit[query], query, labels) for query in range(16) if any(labels[query])]
    known = [value for value in values if value is not None]
    np.testing.assert_allclose(
        report.scores["H-AP"], np.mean(known) if known else np.nan, rtol=1e-9
    )


def hap(scores, query, labels):
    """H-AP of one query by its equation, in double loops; None without positives."""
    others = sorted(
        (item for item in range(len(labels)) if item != query), key=lambda item: -scores[item]
    )
    depth = len(labels[query])

    def level(item):
        return next(
            (
                at
                for at in range(depth)
                if not labels[item][at] or labels[item][at] != labels[query][at]
            ),
            depth,
        )

    levels = [level(item) for item in others]
    counts = [levels.count(each) for each in range(depth + 1)]
    relevance = [each / depth / counts[each] if each else 0 for each in levels]
    if not any(relevance):
        return None
    ranks = [k for k, rel in enumerate(relevance) if rel]
    total = sum(sum(min(relevance[k], relevance[j]) for j in range(k + 1)) / (k + 1) for k in ranks)
    return total / sum(relevance)


# ---- missing ranks

LINEAGES = [
    ("Animalia", "Aves", "Tytonidae", "Tyto", "Tyto alba"),
    ("Animalia", "Aves", "Tytonidae", "Tyto", "Tyto furcata"),
    ("Plantae", "Liliopsida", "Iridaceae", "Iris", "Iris sibirica"),
    ("Animalia", "Insecta", "Iridopterygidae", "Iris", "Iris oratoria"),
]
RANKS = ("kingdom", "class", "family", "genus", "species")


def test_a_missing_rank_is_taken_from_rows_of_the_same_name():
    holes = ("Animalia", "", "", "Tyto", "Tyto alba")
    mended = mend(NameTable.of(RANKS, [*LINEAGES, holes]), ["fill-from-same-name"])
    assert mended.final[holes] == LINEAGES[0]


def test_homonyms_are_told_apart_by_what_else_a_row_knows():
    plant, animal = ("Plantae", "", "", "Iris", ""), ("Animalia", "", "", "Iris", "NA")
    mended = mend(NameTable.of(RANKS, [*LINEAGES, plant, animal]), ["fill-from-same-name"])
    assert mended.final[("Plantae", "", "", "Iris")] == (
        "Plantae",
        "Liliopsida",
        "Iridaceae",
        "Iris",
    )
    assert mended.final[animal] == ("Animalia", "Insecta", "Iridopterygidae", "Iris", "NA")


def test_a_homonym_of_which_nothing_else_is_known_stays_as_it_is():
    hole = ("", "", "", "Iris", "")
    mended = mend(NameTable.of(RANKS, [*LINEAGES, hole]), ["fill-from-same-name"])
    assert mended.final[("", "", "", "Iris")] == ("", "", "", "Iris")


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6))
def test_holes_in_lineages_without_homonyms_are_all_filled(seed):
    """Every rank but the finest may be missing where another row has it."""
    rng = np.random.default_rng(seed)
    whole = [
        tuple(f"{'kcfgs'[level]}{n // 2 ** (4 - level)}" for level in range(5)) for n in range(16)
    ]
    holes = [
        tuple("" if at < 4 and rng.random() < 0.4 else name for at, name in enumerate(row))
        for row in whole
    ]
    mended = mend(NameTable.of(RANKS, [*whole, *holes]), ["fill-from-same-name"])
    assert [mended.final[row] for row in holes] == whole


def test_a_table_says_how_many_of_its_items_are_queries(tmp_path):
    rows = [f"i{n},s{n % 3},{n < 2},{n >= 2}" for n in range(9)]
    (tmp_path / "zoo.csv").write_text("\n".join(["item,species,query,gallery", *rows]) + "\n")
    assert "2 queries, 7 in the gallery" in str(load(tmp_path / "zoo.csv").read)


def test_the_three_policies_leave_no_hole_and_no_name_that_nobody_wrote_at_the_fine_end(tmp_path):
    rows = [
        *LINEAGES,
        ("Animalia", "", "", "Tyto", ""),
        ("Animalia", "", "", "Bubo", "Bubo bubo"),
        ("Plantae", "", "", "", ""),
    ]
    table = NameTable.of(RANKS, rows)
    chosen = ["fill-from-same-name", "unknown", "fill-from-parent", "by-path"]
    mended = mend(table, chosen)
    mended.table.tree()
    assert mended.final[("Animalia", "", "", "Tyto")][:4] == LINEAGES[0][:4]
    assert mended.final[("Animalia", "", "", "Tyto")][4].startswith("[unknown below genus Tyto")
    assert mended.final[rows[5]][1] == "unplaced class of Animalia"


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**6))
@example(464730)  # one row is whole to the advice, and that is a distractor
def test_every_combination_that_a_refusal_offers_makes_a_dataset(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = [LINEAGES[n % 4] for n in range(12)]
    rows = [tuple("" if rng.random() < 0.25 else name for name in row) for row in rows]
    if all(all(row) for row in rows):
        return
    path = write(
        tmp_path / "t.csv",
        [(f"i{n}", *row) for n, row in enumerate(rows)],
        ",".join(("item", *RANKS)),
    )
    with pytest.raises((DataError, TreeError)) as refusal:
        load(path, levels=RANKS)
    offered = re.findall(r"(?m)^ *((?:--policy [\w-]+ ?)+):", str(refusal.value))
    assert len(offered) <= 4
    for combination in offered:
        load(path, combination.replace("--policy", "").split(), levels=RANKS)


# ---- directed graphs that are no trees

DAG = "parent,child\nentity,animal\nentity,food\nanimal,hen\nfood,hen\nanimal,dog\nfood,bread\n"


@pytest.mark.parametrize(
    "names", [[name] for name in policies] + [["by-path", "repeat-leaf"], ["add-root", "by-path"]]
)
@pytest.mark.parametrize("kind", ["csv", "json", "nwk"])
def test_what_export_writes_build_reads(tmp_path, names, kind, monkeypatch):
    from hbench.tree import files

    (tmp_path / "dag.csv").write_text(DAG)
    try:
        tree, _ = mend(files.read(tmp_path / "dag.csv"), names).table.tree()
    except TreeError:
        return  # a policy that does not mend this graph is refused; the advice names one that does
    (tmp_path / f"tree.{kind}").write_text(files.write(tree, f".{kind}"))
    items = write(
        tmp_path / "items.csv",
        [(f"i{n}", leaf) for n, leaf in enumerate(tree.names[-1])],
        "item,node",
    )
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    source = OwnSource(items, ["node"], tree=tmp_path / f"tree.{kind}")
    built = hbench.build("mine", source=source).tests["test"]
    assert sorted(built.tree.names[-1]) == sorted(tree.names[-1])
    assert built.tree.depth == tree.depth


# ---- folders


def picture(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (number * 7 % 256, number * 31 % 256, number)).save(path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    for number, (order, species) in enumerate(itertools.product("OP", "xy")):
        for copy in range(2):
            picture(
                tmp_path / "pictures" / order / f"{species}{order}" / f"{copy}.png",
                10 * number + copy,
            )
    return tmp_path / "pictures"


def built(folder):
    return hbench.build("mine", source=OwnSource(folder, ["order", "species"]), force=True).tests[
        "test"
    ]


def test_linked_folders_are_followed(folder, tmp_path):
    for copy in range(3):
        picture(tmp_path / "elsewhere" / "z" / f"{copy}.png", 100 + copy)
    (folder / "P" / "zP").symlink_to(tmp_path / "elsewhere" / "z")
    (folder / "Q").symlink_to(tmp_path / "elsewhere")
    assert len(built(folder)) == 8 + 3 + 3


def test_a_link_that_leads_back_is_not_followed(folder):
    (folder / "P" / "loop").symlink_to(folder)
    (folder / "O" / "self").symlink_to(folder / "O")
    assert len(built(folder)) == 8


@pytest.mark.parametrize("name", ["@eaDir", "__MACOSX", ".ipynb_checkpoints"])
def test_what_systems_leave_behind_is_no_class(folder, name):
    picture(folder / "P" / name / "0.png", 200)
    picture(folder / name / "xO" / "0.png", 201)
    assert len(built(folder)) == 8
    assert (folder / name).exists()
