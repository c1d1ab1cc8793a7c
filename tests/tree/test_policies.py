"""Policies: each makes the tree it promises, and records every row that it changes."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import HBenchError, TreeError, UnknownName, UsageError
from hbench.tree import LabelTree
from hbench.tree.advice import policies_for
from hbench.tree.files import read
from hbench.tree.graphs import graph_of_edges, unfold
from hbench.tree.names import KINDS, REMARKS, NameTable, class_rows, find_problems, refuse
from hbench.tree.policies import Change, mend, policies
from tests.tree_strategies import messy_rows

pytestmark = pytest.mark.fast

TREES = Path(__file__).parents[1] / "golden" / "trees"
LEVELS = ("order", "family", "species")
MENDING = ["trim", "add-root", "fill-from-parent", "repeat-leaf", "by-path"]


def table_of(*rows):
    """A table from rows such as "a/x/1"."""
    return NameTable.of(LEVELS, [row.split("/") for row in rows])


def rows_of(table):
    return ["/".join(row) for row in table.rows]


@given(messy_rows)
def test_the_mending_policies_together_make_a_tree_of_any_table_whose_rows_have_names(rows):
    named = [row for row in rows if any(name.strip() for name in row)]
    if not named:
        return
    mended = mend(NameTable.of(LEVELS, named), MENDING)
    assert [problem for problem in find_problems(mended.table) if problem.kind not in REMARKS] == []
    tree, items = mended.table.tree()
    assert items.sum() == len(named)
    assert tree.depth == max(len(row) for row in mended.table.rows)


@given(messy_rows)
def test_dropping_leaves_only_sound_rows_and_all_that_were_sound(rows):
    table = NameTable.of(LEVELS, rows)
    whole = [row for row in table.rows if len(row) == 3 and not any(map(table.is_placeholder, row))]
    sound = [
        row
        for row in whole
        if all(len({o[at - 1] for o in whole if o[at] == row[at]}) == 1 for at in (1, 2))
    ]
    if sound:
        kept = mend(table, ["drop"]).table
        assert list(kept.rows) == sound
        kept.tree()
    else:
        with pytest.raises(TreeError, match="leaves out every row"):
            mend(table, ["drop"])


@given(messy_rows)
def test_by_path_keeps_whole_paths_apart_and_same_paths_together(rows):
    whole = [tuple(row) for row in rows if not any(name in {"", "NA"} for name in row)]
    if not whole:
        return
    mended = mend(NameTable.of(LEVELS, whole), ["by-path"])
    tree, _ = mended.table.tree()
    assert [len(names) for names in tree.names] == [
        len({row[:depth] for row in whole}) for depth in (1, 2, 3)
    ]
    for before, after in mended.final.items():
        assert after is not None
        assert all(new.startswith(old) for old, new in zip(before, after, strict=True))


@given(messy_rows)
def test_the_majority_parent_of_every_node_is_that_of_most_items(rows):
    whole = [tuple(row) for row in rows if not any(name in {"", "NA"} for name in row)]
    if not whole:
        return
    mended = mend(NameTable.of(LEVELS, whole), ["majority-parent"])
    mended.table.tree()
    for level in (1, 2):
        for name in {row[level] for row in whole}:
            votes = Counter(row[level - 1] for row in whole if row[level] == name)
            winner = min(parent for parent in votes if votes[parent] == max(votes.values()))
            found = {after[level - 1] for after in mended.table.rows if after[level] == name}
            # what lay below it may all have gone elsewhere
            assert found == {winner} or (level == 1 and not found)


@given(messy_rows, st.permutations(MENDING), st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_of_policies_changes_what_becomes_of_a_row(
    rows,
    order,
    random,
):
    shuffled = random.sample(rows, len(rows))
    first = mend(NameTable.of(LEVELS, rows), MENDING)
    second = mend(NameTable.of(LEVELS, shuffled), order)
    assert first.final == second.final
    assert first.table.rows == second.table.rows


def test_by_path_shows_a_name_with_its_parent_and_what_lies_below_only_where_it_must():
    mended = mend(table_of("a/x/1", "b/x/1", "b/x/2", "b/y/3"), ["by-path"])
    assert rows_of(mended.table) == ["a/x (a)/1 (x (a))", "b/x (b)/1 (x (b))", "b/x (b)/2", "b/y/3"]
    assert mended.changes[0] == Change("by-path", ("a", "x", "1"), ("a", "x (a)", "1 (x (a))"), 1)
    assert len(mended.changes) == 3


@pytest.mark.parametrize(
    ("policies", "rows", "mended"),
    [
        (
            ["by-path"],
            ["a/x/1", "b/x/2", "b/x (a)/3"],
            ["a/x (a) (a)/1", "b/x (b)/2", "b/x (a)/3"],
        ),  # no name of another node
        (["repeat-leaf", "by-path"], ["a/x", "b/y/x"], ["a/x/x (x)", "b/y/x (y)"]),
        (
            ["fill-from-parent"],  # level by level, within the parent
            ["Aves/NA/gull", "Pisces//NA", "Pisces/Not assigned /trout", "NA/x/y"],
            [
                "Aves/unplaced family of Aves/gull",
                "Pisces/unplaced family of Pisces/unplaced species of unplaced family of Pisces",
                "Pisces/unplaced family of Pisces/trout",
                "unplaced order/x/y",
            ],
        ),
    ],
)
def test_rows_are_mended(policies, rows, mended):
    assert rows_of(mend(table_of(*rows), policies).table) == mended


def test_ragged_rows_are_repeated_or_all_cut_or_dropped():
    table = table_of("a/x/1", "a/y", "a/x/2")
    assert rows_of(mend(table, ["repeat-leaf"]).table) == ["a/x/1", "a/y/y", "a/x/2"]
    cut = mend(table, ["cut"])
    assert (cut.table.levels, cut.table.rows) == (
        ("order", "family"),
        {("a", "x"): 2, ("a", "y"): 1},
    )
    assert cut.final == {
        ("a", "x", "1"): ("a", "x"),
        ("a", "y"): ("a", "y"),
        ("a", "x", "2"): ("a", "x"),
    }
    dropped = mend(table, ["drop"])
    assert rows_of(dropped.table) == ["a/x/1", "a/x/2"]
    assert dropped.final["a", "y"] is None


def test_trimming_joins_names_that_differ_in_spaces():
    mended = mend(
        NameTable.of(("label",), [("ocean area ",), ("ocean area",), ("a\tb\x00",)]), ["trim"]
    )
    assert mended.table.rows == {("ocean area",): 2, ("a b",): 1}
    blank = mend(
        NameTable.of(("family", "genus"), [("owls", " "), ("a\x00b", "c"), ("A b", "c")]),
        ["trim", "normalise"],
    )
    assert set(blank.table.rows) == {("owls",), ("A b", "c")}


def test_names_that_look_alike_under_one_parent_become_the_most_frequent():
    rows = [
        ("Aves", "Caf\u00e9"),
        ("aves ", "Cafe\u0301"),
        ("Aves", "Caf\u00e9"),
        ("Pisces", "cafe\u0301\u200b"),
        ("Aves", "x"),
    ]
    mended = mend(NameTable.of(LEVELS[:2], rows), ["normalise"])
    assert mended.table.rows == {
        ("Aves", "Caf\u00e9"): 3,
        ("Pisces", "cafe\u0301\u200b"): 1,
        ("Aves", "x"): 1,
    }


def test_in_a_graph_a_node_keeps_the_parent_of_most_paths_even_at_another_depth():
    graph = unfold(
        graph_of_edges(
            [
                ("root", "a"),
                ("root", "b"),
                ("a", "n"),
                ("b", "c"),
                ("c", "n"),
                ("n", "1"),
                ("n", "2"),
            ]
        )
    )
    assert rows_of(graph) == ["a/n/1", "a/n/2", "b/c/n/1", "b/c/n/2"]
    by_path = mend(graph, ["by-path"]).table
    assert rows_of(by_path)[:2] == ["a/n (a)/1 (n (a))", "a/n (a)/2 (n (a))"]
    majority = mend(graph, ["majority-parent"]).table
    assert majority.rows == {("a", "n", "1"): 2, ("a", "n", "2"): 2}
    assert majority.levels == ("level1", "level2", "level3")


def test_several_roots_become_the_coarsest_level_and_a_cycle_stays_a_problem():
    graph = unfold(graph_of_edges([("a", "1"), ("b", "2"), ("x", "y"), ("y", "x")]))
    assert [problem.kind for problem in find_problems(graph)] == ["cycle", "several roots"]
    mended = mend(graph, ["add-root"]).table
    assert [problem.kind for problem in find_problems(mended)] == ["cycle"]
    with pytest.raises(TreeError, match="cycle"):
        mended.tree()
    tree, _ = mend(unfold(graph_of_edges([("a", "1"), ("b", "2")])), ["add-root"]).table.tree()
    assert tree.names == (("a", "b"), ("1", "2"))


@pytest.mark.parametrize(
    ("chosen", "error", "words"),
    [
        (["majority-parent", "by-path"], UsageError, "by-path and majority-parent both mend"),
        (["repeat-leaf", "cut"], UsageError, "cut and repeat-leaf both mend ragged"),
        (["unknown", "repeat-leaf"], UsageError, "both mend ragged"),
        (["unknown", "cut"], UsageError, "both mend ragged"),
        (["bypath"], UnknownName, "did you mean 'by-path'"),
        (["recomended"], UnknownName, "did you mean 'recommended'"),
        (["drop"], TreeError, "drop leaves out every row"),
    ],
)
def test_policies_that_contradict_each_other_or_leave_nothing_are_refused(chosen, error, words):
    with pytest.raises(error, match=words):
        mend(table_of("a/NA/1"), chosen)
    assert mend(table_of("a/x/1"), ["by-path", "by-path", "drop"]).changes == []


def test_every_problem_but_a_cycle_has_a_policy_that_explains_itself():
    assert [kind for kind in KINDS if not policies_for(kind)] == ["cycle"]
    assert all(policies[name].text.endswith(".") for name in policies)


def test_inaturalist_2018_becomes_a_tree_with_no_species_lost():
    table = read(TREES / "inat2018_names.csv.gz")
    mended = mend(table, ["by-path", "fill-from-parent"])
    tree, items = mended.table.tree()
    placed = {
        "order": 272 - 1 + 2,
        "family": 1118 - 2 + 4,
        "genus": 4401 + 11,
    }  # NA, NA and Not assigned, homonyms
    assert [len(names) for names in tree.names] == [6, 25, 57, *placed.values(), 8142]
    assert items.tolist() == [1] * 8142
    assert {"Iris (Iridaceae)", "Iris (Tarachodidae)"} <= set(tree.names[5])
    assert {"unplaced order of Gastropoda", "unplaced order of Agaricomycetes"} <= set(
        tree.names[3]
    )
    assert "unplaced family of unplaced order of Agaricomycetes" in tree.names[4]
    assert not any(map(table.is_placeholder, (name for names in tree.names for name in names)))
    assert Counter(change.policy for change in mended.changes) == {
        "fill-from-parent": 30 + 1 + 3,
        "by-path": 38,
    }


def test_cub_becomes_a_tree_of_39_families_by_path_and_of_38_by_majority():
    table = read(TREES / "cub_species_family_order.csv", levels=LEVELS)
    assert [len(names) for names in mend(table, ["by-path"]).table.tree()[0].names] == [13, 39, 200]
    moved = mend(table, ["majority-parent"])
    assert [len(names) for names in moved.table.tree()[0].names] == [13, 38, 200]
    (change,) = moved.changes
    assert change.before == ("Coraciiformes", "Laridae", "Red_legged_Kittiwake")
    assert change.after == ("Charadriiformes", "Laridae", "Red_legged_Kittiwake")


RAGGED = [
    ("root", "b"),
    ("root", "c"),
    ("b", "d"),
    ("c", "d"),
    ("d", "x"),
    ("d", "y"),
    ("c", "e"),
    ("root", "f"),
]


ANEW = [("root", "a"), ("root", "b"), ("b", "c"), ("a", "x"), ("c", "x"), ("c", "y")]


@pytest.mark.parametrize(
    ("pairs", "policy", "rows"),
    [
        (
            RAGGED,
            "by-path",
            [
                "b/d (b)/x (d (b))",
                "b/d (b)/y (d (b))",
                "c/d (c)/x (d (c))",
                "c/d (c)/y (d (c))",
                "c/e/e",
                "f/f/f",
            ],
        ),
        (
            ANEW,
            "majority-parent",
            ["a/x/x", "b/c/y"],
        ),  # x under a parent at another depth is repeated anew
        (RAGGED, "majority-parent", ["b/d/x", "b/d/y", "c/e/e", "f/f/f"]),
    ],
)
def test_leaves_of_a_graph_are_repeated_and_its_shared_nodes_mended(pairs, policy, rows):
    mended = mend(unfold(graph_of_edges(pairs)), ["repeat-leaf", policy])
    assert rows_of(mended.table) == rows
    assert mended.table.tree()[0].depth == 3


def test_a_policy_that_would_put_a_node_below_itself_is_refused():
    pairs = [("root", "b"), ("b", "a"), ("root", "c"), ("c", "a"), ("a", "b "), ("b ", "x")]
    with pytest.raises(TreeError, match="puts a node below itself"):
        mend(unfold(graph_of_edges(pairs)), ["trim", "majority-parent", "repeat-leaf"])


@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9)), min_size=1, max_size=16),
    st.lists(
        st.sampled_from(["a", "b", "c ", "c", "NA", "d", "root", "e (a)", "f", "a (b)"]),
        min_size=10,
        max_size=10,
    ),
    st.lists(st.sampled_from(list(policies)), min_size=1, max_size=4, unique=True),
)
def test_any_policies_make_a_tree_of_any_graph_or_refuse_it_by_name(pairs, names, chosen):
    graph = graph_of_edges(
        (names[parent], names[child]) for parent, child in pairs if parent < child
    )
    if not graph:
        return
    try:
        table = unfold(graph)
        mended = mend(table, chosen)
        problems = [
            problem for problem in find_problems(mended.table) if problem.kind not in REMARKS
        ]
        refuse(problems, "the graph")
        tree, items = mended.table.tree()
    except HBenchError:  # a refusal that says what is wrong; any other exception fails
        return
    assert items.sum() == sum(mended.table.rows.values()) > 0
    assert LabelTree.from_names(class_rows(tree), levels=tree.levels)[0].depth == tree.depth
    assert {row for row in mended.final.values() if row is not None} == set(mended.table.rows)
