"""Partial labels: paths that end early, and what the level of a pair may then be, against every
completion of the paths.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import DataError, TreeError, UnknownName, UsageError
from hbench.datasets import load
from hbench.tree import LabelTree
from hbench.tree.names import NameTable, find_problems
from hbench.tree.partial import ended_early, is_partial, known_levels
from hbench.tree.policies import mend
from tests.command_line import call

pytestmark = pytest.mark.fast

LEVELS = ("order", "family", "genus")
partial_rows = st.lists(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6
)


def nested_objects(row):
    """Names that say their path, so that rows form a tree."""
    return tuple("/".join(row[: depth + 1]) for depth in range(len(row)))


def tree_of(rows):
    return LabelTree.from_names(
        [ended_early(nested_objects(row), LEVELS) for row in rows], levels=LEVELS
    )


@given(partial_rows)
def test_a_path_is_known_as_far_as_its_row_says(rows):
    tree, labels = tree_of(rows)
    known = known_levels(tree)[labels[:, -1]]
    assert known.tolist() == [len(row) for row in rows]
    assert is_partial(tree) == any(len(row) < 3 for row in rows)


@given(partial_rows)
def test_the_policy_makes_a_tree_of_paths_that_end_early_and_keeps_what_is_known(rows):
    table = NameTable.of(LEVELS, [nested_objects(row) for row in rows])
    mended = mend(table, ["unknown"])
    tree, items = mended.table.tree()
    assert items.sum() == len(rows)
    ends = {
        path: path[:known]
        for path, known in zip(names_of(tree), known_levels(tree).tolist(), strict=True)
    }
    assert set(ends.values()) == {nested_objects(row) for row in rows}
    assert tree.depth == 3  # also where no row reaches the finest level


def names_of(tree):
    return [
        tuple(names[i] for names, i in zip(tree.names, path, strict=True))
        for path in tree.paths.tolist()
    ]


def test_trailing_placeholders_are_unknown_and_a_name_below_one_stays_a_problem():
    table = NameTable.of(
        LEVELS,
        [("Carnivora", "Felidae", "NA"), ("Carnivora", "NA", "unknown"), ("Anura", "NA", "Rana")],
    )
    mended = mend(table, ["unknown"]).table
    assert list(mended.rows) == [
        ("Carnivora", "Felidae", "[unknown below family Felidae]"),
        ("Carnivora", "[unknown below order Carnivora]", "[unknown below order Carnivora]"),
        ("Anura", "NA", "Rana"),
    ]
    assert [problem.kind for problem in find_problems(mended)] == ["placeholder"]
    both = mend(table, ["unknown", "by-path"]).table
    assert [problem.kind for problem in find_problems(both)] == ["placeholder"]
    nothing = mend(NameTable.of(LEVELS, [("NA", "", ""), ("a", "b", "c")]), ["unknown"]).table
    assert [problem.kind for problem in find_problems(nothing)] == ["ragged"]


def test_homonyms_that_end_early_are_told_apart_by_path():
    rows = [("Plantae", "Iris"), ("Animalia", "Iris"), ("Animalia", "Felis", "catus")]
    tree, _ = mend(
        NameTable.of(("kingdom", "genus", "species"), rows), ["unknown", "by-path"]
    ).table.tree()
    assert known_levels(tree).tolist() == [2, 2, 3]
    assert len(set(tree.names[2])) == 3


@pytest.mark.parametrize(
    "row", [("[unknown below order a]",) * 3, ("a", "[unknown below order a]", "c")]
)
def test_unknown_names_above_known_ones_are_refused(row):
    tree, _ = LabelTree.from_names([row], levels=LEVELS)
    with pytest.raises(TreeError, match="begin with an unknown name, or have a name below one"):
        known_levels(tree)


TABLE = "item,order,family,genus\n1,Carnivora,Felidae,Felis\n2,Carnivora,Felidae,\n3,Carnivora,,\n4,Anura,,\n"
KNOWN = [3, 2, 1, 1]


def test_a_table_with_empty_cells_at_the_fine_end_is_opened_by_the_policy_and_refused_without(
    tmp_path,
):
    path = tmp_path / "zoo.csv"
    path.write_text(TABLE)
    test = load(path, ["unknown"]).tests["test"]
    assert known_levels(test.tree)[test.labels[:, -1]].tolist() == KNOWN
    with pytest.raises(DataError, match=r"no name at the level family[\s\S]*--policy unknown"):
        load(path)
    with pytest.raises(UsageError, match="leave --policy out"):
        load("glyphs", ["unknown"])


def test_the_mended_table_and_the_built_manifest_say_it_themselves(tmp_path):
    (tmp_path / "zoo.csv").write_text(TABLE)
    partly = ("--levels", "order,family,genus", "--policy", "unknown", "-o")
    call("tree", "validate", tmp_path / "zoo.csv", *partly, tmp_path / "mended.parquet")
    call("build", "zoo", "--from", tmp_path / "zoo.csv", *partly, tmp_path / "built")
    digests = set()
    for source in (tmp_path / "mended.parquet", tmp_path / "built" / "test.parquet"):
        test = load(source).tests["test"]
        assert known_levels(test.tree)[test.labels[:, -1]].tolist() == KNOWN
        digests.add(test.digest)
    assert len(digests) == 1


NEWICK = "((Felis,Lynx)Felidae,Anura)root;"
EDGES = "parent,child\nroot,Felidae\nroot,Anura\nFelidae,Felis\nFelidae,Lynx\n"


@pytest.mark.parametrize(("name", "text"), [("tree.nwk", NEWICK), ("edges.csv", EDGES)])
def test_an_item_may_be_labelled_by_an_inner_node_of_a_tree(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "zoo.csv").write_text("item,node\n1,Felis\n2,Felidae\n3,Anura\n")
    command = [
        "build",
        "zoo",
        "--from",
        tmp_path / "zoo.csv",
        "--levels",
        "node",
        "--tree",
        tmp_path / name,
    ]
    call(*command, "--policy", "unknown", "-o", tmp_path / "built")
    test = load(tmp_path / "built").tests["test"]
    assert test.levels == ("level1", "level2")
    assert known_levels(test.tree)[test.labels[:, -1]].tolist() == [2, 1, 1]
    (tmp_path / "zoo.csv").write_text("item,node\n1,Feliz\n")
    with pytest.raises(UnknownName, match="did you mean 'Felis'"):
        call(*command, "-o", tmp_path / "other")


def test_a_node_that_stands_in_two_places_labels_no_item(tmp_path):
    (tmp_path / "tree.nwk").write_text("((x)a,(x)b)root;")
    (tmp_path / "zoo.csv").write_text("item,node\n1,x\n")
    command = [
        "build",
        "zoo",
        "--from",
        tmp_path / "zoo.csv",
        "--levels",
        "node",
        "--tree",
        tmp_path / "tree.nwk",
    ]
    with pytest.raises(TreeError, match=r"'x' is in several places[\s\S]*a > x \(a\), b > x \(b\)"):
        call(*command, "-o", tmp_path / "built")
