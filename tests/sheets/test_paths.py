"""Paths in one cell or line: product categories, lineages with ranks; and what only looks like
one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench import load
from hbench.core.errors import DataError
from hbench.sheets.paths import separator_of, split_path, with_unique_names
from hbench.tree.files import read

BIRDS = [
    ("Animals", "Owls", "Barn owl"),
    ("Animals", "Owls", "Bay owl"),
    ("Animals", "Parrots", "Kea"),
    ("Plants", "Grasses", "Rye"),
]
names = st.text("abcdefgh ", min_size=1, max_size=6).map(str.strip).filter(bool)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(names, min_size=2, max_size=4), min_size=3, max_size=12),
    st.sampled_from([" > ", " / ", ">"]),
)
def test_paths_with_an_arrow_or_a_slash_are_split_as_they_were_joined(rows, mark):
    cells = [mark.join(row) for row in rows]
    first = {row[0] for row in rows}
    if len(set(cells)) < 2 or len(first) >= len(set(cells)):
        return  # nothing shares a beginning, as paths do
    found = separator_of(cells)
    assert found == mark.strip()
    assert [split_path(cell, found) for cell in cells] == [tuple(row) for row in rows]


@pytest.mark.parametrize("mark", [" > ", "|", " / ", ">"])
def test_a_column_of_paths_makes_levels(tmp_path, mark):
    cells = [mark.join(BIRDS[n % 4]) for n in range(16)]
    (tmp_path / "t.csv").write_text(
        "item,category\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))
    )
    found = load(tmp_path / "t.csv")
    assert [len(names) for names in found.tests["test"].tree.names] == [2, 3, 4]
    assert f"category holds paths, separated by {mark.strip()}" in str(found.read)


def test_prefixes_of_ranks_name_the_levels(tmp_path):
    lineages = [
        "k__Animalia;o__Strigiformes;s__Tyto alba",
        "k__Animalia;o__Strigiformes;s__",
        "k__Animalia;o__Psittaciformes;s__Kea",
    ]
    (tmp_path / "t.csv").write_text(
        "item,lineage\n" + "".join(f"{n},{lineages[n % 3]}\n" for n in range(9))
    )
    found = load(tmp_path / "t.csv")
    assert found.levels == ("kingdom", "order", "species")
    assert "the paths of 3 items end early" in str(found.read)


def test_a_path_that_ends_early_may_be_a_class_of_its_own(tmp_path):
    cells = ["A > B > C", "A > B > D", "A > E", "A > E"]
    (tmp_path / "t.csv").write_text(
        "item,c\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))
    )
    found = load(tmp_path / "t.csv", policies=["repeat-leaf"])
    assert found.tests["test"].tree.names[-1] == ("C", "D", "E")


@pytest.mark.parametrize(
    "cells",
    [
        ["dog", "cat", "dog|cat"],
        ["a/b", "c/d"],
        ["x; y", "z; w"],
        ["AC/DC", "B/W"],
        ["rock > pop", "jazz"],
    ],
)
def test_names_that_only_hold_a_separator_are_no_paths(cells):
    assert separator_of(cells) is None


def test_a_separator_can_be_named(tmp_path):
    (tmp_path / "t.csv").write_text("item,c\n1,A~B\n2,A~C\n3,D~E\n")
    assert load(tmp_path / "t.csv").levels == ("c",)
    assert len(load(tmp_path / "t.csv", separator="~").levels) == 2


def test_equal_names_below_other_parents_are_told_apart():
    assert with_unique_names(
        [("Phones", "Cases"), ("Cameras", "Cases"), ("Cameras", "Lenses")]
    ) == [
        ("Phones", "Cases (Phones)"),
        ("Cameras", "Cases (Cameras)"),
        ("Cameras", "Lenses"),
    ]


GOOGLE = """# Google_Product_Taxonomy_Version: 2021-09-21
1 - Animals
2 - Animals > Owls
3 - Animals > Owls > Barn owl
4 - Animals > Owls > Bay owl
5 - Plants
6 - Plants > Grasses
7 - Plants > Grasses > Rye
"""
SHOPIFY = """# Shopify Product Taxonomy - Categories
gid://shopify/TaxonomyCategory/a-1     : Animals > Owls > Barn owl
gid://shopify/TaxonomyCategory/a-2     : Animals > Owls > Bay owl
gid://shopify/TaxonomyCategory/p-1     : Plants > Grasses > Rye
"""


@pytest.mark.parametrize(
    "text", [GOOGLE, GOOGLE.replace(" - ", " - ").replace("\n", "\r\n"), SHOPIFY]
)
def test_a_published_list_of_categories_is_a_tree(tmp_path, text):
    (tmp_path / "taxonomy.txt").write_bytes(text.encode())
    tree, _ = read(tmp_path / "taxonomy.txt").tree()
    assert tree.names == (
        ("Animals", "Plants"),
        ("Owls", "Grasses"),
        ("Barn owl", "Bay owl", "Rye"),
    )


def test_a_text_without_paths_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("some\nnotes\n")
    with pytest.raises(DataError, match="holds no paths"):
        read(tmp_path / "notes.txt")
