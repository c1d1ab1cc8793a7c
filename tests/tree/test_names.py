"""Name tables: what keeps rows of names from being a tree, every problem in one pass."""

from pathlib import Path

import pytest
from hypothesis import given

from hbench.core.errors import TreeError
from hbench.tree.files import read
from hbench.tree.names import (
    KINDS,
    REMARKS,
    NameTable,
    TreeProblem,
    find_problems,
    paths_of_nodes,
    refuse,
    runs_backwards,
)
from tests.tree_strategies import messy_rows

pytestmark = pytest.mark.fast

TREES = Path(__file__).parents[1] / "golden" / "trees"
LEVELS = ("order", "family", "species")


def kinds(table):
    return [problem.kind for problem in find_problems(table)]


def test_a_table_that_is_a_tree_has_no_problems_and_counts_its_items():
    table = NameTable.of(
        LEVELS, [("b", "x", "2"), ("a", "y", "1"), ("b", "x", "2"), ("b", "z", "3")]
    )
    assert find_problems(table) == []
    tree, items = table.tree()
    assert tree.names == (("b", "a"), ("x", "z", "y"), ("2", "3", "1"))
    assert items.tolist() == [2, 1, 1]


def test_every_problem_is_found_in_one_pass_and_remarks_come_last():
    rows = [
        ("Aves", "Laridae", "gull "),
        ("Aves", "Laridae", "gull "),
        ("Pisces", "Laridae", "tern"),
        ("Aves", "NA", "auk"),
        ("Aves", "", "puffin"),
        ("Aves", "Gaviidae"),
        ("Aves", "Gaviidae", "Loon"),
        ("Pisces", "Salmonidae", "tern"),
        ("aves", "Corvidae", "crow"),
    ]
    assert find_problems(NameTable.of(LEVELS, rows)) == [
        TreeProblem("placeholder", "family", "NA", ("Aves",), 1),
        TreeProblem("placeholder", "family", "", ("Aves",), 1),
        TreeProblem("ragged", "family", "Gaviidae", ("Aves", "Gaviidae"), 1),
        TreeProblem("homonym", "family", "Laridae", ("Aves", "Pisces"), 3),
        TreeProblem("several parents", "species", "tern", ("Laridae", "Salmonidae"), 2),
        TreeProblem("spaces", "species", "gull ", (), 2),
        TreeProblem("alike", "order", "Aves", ("'Aves' (6)", "'aves' (1)"), 7),
    ]


def test_one_name_under_two_parents_is_a_homonym_only_where_nothing_below_is_shared():
    apart = [("a", "x", "1"), ("b", "x", "2")]
    assert kinds(NameTable.of(LEVELS, apart)) == ["homonym"]
    shared = [*apart, ("b", "x", "1")]
    assert kinds(NameTable.of(LEVELS, shared)) == ["several parents"]
    assert kinds(NameTable.of(LEVELS[:2], [("a", "x"), ("b", "x")])) == ["several parents"]


def test_one_name_at_two_levels_is_two_nodes_in_a_table_and_one_in_a_list_of_edges():
    rows = {
        ("Proboscidea", "Elephantidae", "elephant"): 1,
        ("Lamiales", "Martyniaceae", "Proboscidea"): 1,
    }
    assert find_problems(NameTable(LEVELS, rows)) == []
    assert kinds(NameTable(LEVELS, rows, one_namespace=True)) == ["several parents"]


@given(messy_rows)
def test_the_nodes_of_several_parents_are_those_that_brute_force_finds(rows):
    table = NameTable.of(LEVELS, rows)
    expected = set()
    for level in range(1, 3):
        for name in {
            row[level]
            for row in table.rows
            if len(row) > level and not table.is_placeholder(row[level])
        }:
            above = {
                row[:level] if table.is_placeholder(row[level - 1]) else row[level - 1]
                for row in table.rows
                if len(row) > level and row[level] == name
            }
            if len(above) > 1:
                expected.add((LEVELS[level], name))
    found = [
        problem
        for problem in find_problems(table)
        if problem.kind in {"homonym", "several parents"}
    ]
    assert {(problem.level, problem.node) for problem in found} == expected
    assert len(found) == len(expected)


@given(messy_rows)
def test_a_table_gives_a_tree_exactly_when_rows_are_whole_and_names_have_one_parent(rows):
    table = NameTable.of(LEVELS, rows)
    whole = all(len(row) == 3 for row in table.rows)
    nested = all(
        len({row[level - 1] for row in table.rows if len(row) > level and row[level] == name}) == 1
        for level in (1, 2)
        for name in {row[level] for row in table.rows if len(row) > level}
    )
    if whole and nested:
        tree, items = table.tree()
        assert items.sum() == len(rows)
        assert len(tree.paths) == len(table.rows)
    else:
        with pytest.raises(TreeError):
            table.tree()


def test_a_table_that_is_no_tree_is_refused_by_its_first_problem():
    with pytest.raises(TreeError, match="not form a tree: ragged") as refusal:
        NameTable.of(LEVELS, [("a", "x", "1"), ("a", "y"), ("b",)]).tree()
    assert refusal.value.found == "y (a > y), one of 2 short rows"


def test_invisible_characters_are_remarked_on():
    table = NameTable.of(("a",), [("\ufeffx",), ("y\n",), ("z\u00a0z",), ("fine one",)])
    assert [problem.node for problem in find_problems(table)] == ["\ufeffx", "y\n", "z\u00a0z"]


def test_remarks_alone_refuse_nothing():
    problems = find_problems(NameTable.of(("a",), [("x ",), ("x",)]))
    assert [problem.kind for problem in problems] == list(REMARKS)
    refuse(problems, "this table")
    with pytest.raises(TreeError, match="this table is not a tree: 2 problems") as refusal:
        refuse([*problems, *[TreeProblem("ragged", "a", "x", (), 1)] * 2], "this table")
    assert refusal.value.found == "2 ragged rows"


def test_the_words_for_a_missing_name_can_be_chosen():
    rows = {("a", "unplaced"): 1, ("b", "NA"): 1}
    assert [problem.node for problem in find_problems(NameTable(LEVELS[:2], rows))] == ["NA"]
    chosen = NameTable(LEVELS[:2], rows, placeholders=frozenset({"unplaced"}))
    assert [problem.node for problem in find_problems(chosen)] == ["unplaced"]


def test_columns_from_fine_to_coarse_are_noticed():
    rows = [("gull", "Laridae", "Aves"), ("tern", "Laridae", "Aves"), ("auk", "Alcidae", "Aves")]
    assert runs_backwards(NameTable.of(LEVELS, rows))
    assert not runs_backwards(NameTable.of(LEVELS, [row[::-1] for row in rows]))


def test_the_names_of_inaturalist_2018_have_the_known_defects():
    problems = find_problems(read(TREES / "inat2018_names.csv.gz"))
    of_kind = {kind: [problem for problem in problems if problem.kind == kind] for kind in KINDS}
    assert {problem.node for problem in of_kind["homonym"]} == {
        "Amorpha",
        "Anticlea",
        "Arenaria",
        "Chloris",
        "Dysphania",
        "Iris",
        "Linaria",
        "Oenanthe",
        "Prunella",
        "Scoparia",
        "Sinistrofulgur",
    }
    assert {problem.level for problem in of_kind["homonym"]} == {"genus"}
    assert [(each.level, each.node, each.where, each.items) for each in of_kind["placeholder"]] == [
        ("order", "NA", ("Gastropoda",), 30),
        ("family", "NA", ("Diaporthales",), 1),
        ("family", "NA", ("Auriculariales",), 1),
        ("family", "NA", ("Gloeophyllales",), 1),
        ("order", "NA", ("Agaricomycetes",), 1),
        ("family", "Not assigned", ("NA",), 1),
    ]
    assert [problem.node for problem in of_kind["spaces"]] == ["Eurystomellidae "]
    assert len(problems) == 11 + 6 + 1


def test_a_leaf_that_is_repeated_downwards_is_in_one_place():
    table = NameTable.of(("a", "b", "c"), [("cat", "lynx", "lynx"), ("cat", "lion", "cub")])
    assert paths_of_nodes(table, ["lynx", "lion"]) == [("cat", "lynx", "lynx"), ("cat", "lion")]


def test_a_node_and_one_of_several_below_it_with_its_name_are_two_places():
    table = NameTable.of(("genus", "species"), [("Bison", "Bison"), ("Bison", "bonasus")])
    with pytest.raises(TreeError, match="several places"):
        paths_of_nodes(table, ["Bison"])
