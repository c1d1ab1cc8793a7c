"""Newick: its grammar, its quoting, and what is not Newick."""

import pytest
from hypothesis import given

from hbench.core.errors import DataError, TreeError
from hbench.tree.graphs import unfold
from hbench.tree.graphs.newick import label, parse_newick
from tests.tree_strategies import names

pytestmark = pytest.mark.fast


def rows_of(text):
    return list(unfold(parse_newick(text)).rows)


@given(names)
def test_a_written_name_is_read_as_one_token(name):
    assert rows_of(f"({label(name)});") == [(name,)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("(A,B,(C,D)E)F;", [("A",), ("B",), ("E", "C"), ("E", "D")]),
        ("(A:0.1,B:0.2,(C:0.3,D:4e-1)E:0.5)F:1;", [("A",), ("B",), ("E", "C"), ("E", "D")]),
        (
            "(dog:20, (elephant:30, horse:60):20):50;",
            [("dog",), ("elephant … horse", "elephant"), ("elephant … horse", "horse")],
        ),
        (
            "(Homo_sapiens,'Homo_sapiens','it''s');",
            [("Homo sapiens",), ("Homo_sapiens",), ("it's",)],
        ),
        (
            "[a comment] ( A [another; with (marks)],\n\t'B (b), [b]:;' )\n;\n",
            [("A",), ("B (b), [b]:;",)],
        ),
    ],
)
def test_the_usual_forms_of_newick_are_read(text, rows):
    assert rows_of(text) == rows


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the end of the text at line 1, character 1"),
        ("(A,B)", "the end of the text at line 1, character 6"),
        ("(A,B;", "';' at line 1, character 5"),
        ("(A,B));", "');' at line 1, character 6"),
        ("(A,\nB C);", "'C);' at line 2, character 3"),
        ("(A,'B);", '"\'B);" at line 1, character 4'),
        ("A(B,C);", "'(B,C);' at line 1, character 2"),
        ("(A)(B);", "'(B);' at line 1, character 4"),
        ("A,B;", "',B;' at line 1, character 2"),
        ("(A]);", "']);' at line 1, character 3"),
        ("(a','b)r;", "\"','b)r;\" at line 1, character 3"),
        ("(a,b)r';';", "\"';';\" at line 1, character 7"),
    ],
)
def test_text_that_is_not_newick_is_refused_at_its_place(text, found):
    with pytest.raises(DataError, match="not a Newick tree") as refusal:
        parse_newick(text)
    assert refusal.value.found == found


def test_a_comment_of_one_mark_is_no_mark():
    assert rows_of("(a[(],b[)])r[;];") == rows_of("(a,b)r;")


def test_a_tree_ten_thousand_levels_deep_is_read_and_refused():
    text = "(" * 10_000 + "leaf" + ")" * 10_000 + ";"
    assert len(parse_newick(text)) == 10_001
    with pytest.raises(TreeError, match="too deep"):
        rows_of(text)


def test_semicolons_in_names_and_comments_are_no_further_trees():
    text = "(A,B); [a comment; of two parts] ('C;D',E);"
    assert parse_newick(text).graph["trees"] == 2


def test_a_file_damaged_behind_its_first_tree_is_refused():
    with pytest.raises(DataError, match="Newick") as refused:
        parse_newick("(A,B);\n(C,'D")
    assert "line 2" in refused.value.found
