"""Label trees: numbering, nesting, levels of pairs, errors that name their nodes."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hbench.core.errors import TreeError, UnknownName
from hbench.tree import LabelTree, as_labels, check_nested, distinct, levels_of_pairs

pytestmark = pytest.mark.fast

ROWS = [
    ("animal", "cat", "tabby"),
    ("animal", "dog", "pug"),
    ("plant", "oak", "red oak"),
    ("animal", "dog", "husky"),
    ("animal", "dog", "pug"),
]
LEVELS = ("kingdom", "kind", "breed")


@st.composite
def random_labels(draw):
    """Labels (N, L) of a random tree, L = 1 … 8, with arbitrary (sparse, negative, unordered)
    integers as ids.
    """
    depth = draw(st.integers(1, 8))
    width = draw(st.integers(1, 3))
    rows = draw(
        hnp.arrays(np.int64, (draw(st.integers(1, 12)), depth), elements=st.integers(0, width))
    )
    ids: dict[tuple[int, ...], int] = {}
    used = draw(
        st.lists(st.integers(-(2**40), 2**40), min_size=rows.size, max_size=rows.size, unique=True)
    )
    return np.array(
        [
            [ids.setdefault(tuple(row[:end]), used[len(ids)]) for end in range(1, depth + 1)]
            for row in rows
        ]
    )


def ancestors_of_leaf(graph, leaf):
    """A leaf and everything above it, by walking up the edges."""
    chain = [leaf]
    while parents := list(graph.predecessors(chain[-1])):
        (parent,) = parents
        chain.append(parent)
    return set(chain)


@given(random_labels())
def test_the_level_of_a_pair_is_the_depth_of_the_deepest_ancestor_that_networkx_finds_for_both(raw):
    tree, labels = LabelTree.from_labels(raw)
    graph = tree.graph()
    levels = levels_of_pairs(labels, labels)
    assert nx.is_arborescence(graph)
    for i, first in enumerate(labels):
        for j, second in enumerate(labels):
            leaves = ((tree.depth, int(first[-1])), (tree.depth, int(second[-1])))
            shared = ancestors_of_leaf(graph, leaves[0]) & ancestors_of_leaf(graph, leaves[1])
            deepest = max(shared)
            assert levels[i, j] == deepest[0]
            assert tree.lca(leaves[0][1], leaves[1][1]) == deepest
            assert levels[i, j] == max(
                [end + 1 for end in range(tree.depth) if raw[i, end] == raw[j, end]], default=0
            )


@given(random_labels())
def test_renumbering_keeps_which_rows_share_a_label_and_orders_nodes_by_their_paths(raw):
    tree, labels = LabelTree.from_labels(raw)
    for level in range(tree.depth):
        assert (
            (raw[:, level, None] == raw[:, level]) == (labels[:, level, None] == labels[:, level])
        ).all()
        assert np.unique(labels[:, level]).tolist() == list(range(len(tree.names[level])))
    assert tree.paths.tolist() == sorted(tree.paths.tolist())
    assert [tree.names[-1][i] for i in labels[:, -1]] == [str(i) for i in raw[:, -1]]
    assert (tree.paths[labels[:, -1]] == labels).all()


@given(random_labels(), st.randoms(use_true_random=False))
def test_the_tree_does_not_depend_on_the_order_of_the_rows(raw, random):
    order = random.sample(range(len(raw)), len(raw))
    tree, labels = LabelTree.from_labels(raw)
    shuffled, moved = LabelTree.from_labels(raw[order])
    assert shuffled == tree
    assert hash(shuffled) == hash(tree)
    assert (moved == labels[order]).all()


@given(random_labels())
def test_counts_of_a_node_are_those_that_networkx_reaches(raw):
    tree, labels = LabelTree.from_labels(raw)
    graph, counts = tree.graph(), tree.counts(labels)
    for depth, i in graph:
        reached = {
            node
            for node in {(depth, i)} | nx.descendants(graph, (depth, i))
            if node[0] == tree.depth
        }
        if depth:
            assert counts[depth - 1][i] == sum(
                int(row[-1]) in {leaf for _, leaf in reached} for row in labels
            )


@given(
    hnp.arrays(
        np.int64,
        st.integers(0, 40),
        elements=st.one_of(st.integers(-5, 5), st.integers(-(2**50), 2**50)),
    )
)
def test_distinct_values_are_those_of_numpy_unique_with_and_without_its_sort(column):
    values, place = distinct(column)
    expected, inverse = np.unique(column, return_inverse=True)
    assert values.tolist() == expected.tolist()
    assert place.tolist() == inverse.tolist()


def test_names_become_ids_in_the_order_of_the_names():
    tree, labels = LabelTree.from_names(ROWS, levels=LEVELS)
    assert tree.names == (
        ("animal", "plant"),
        ("cat", "dog", "oak"),
        ("tabby", "husky", "pug", "red oak"),
    )
    assert tree.paths.tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 2], [1, 2, 3]]
    assert labels.tolist() == [[0, 0, 0], [0, 1, 2], [1, 2, 3], [0, 1, 1], [0, 1, 2]]
    assert [parents.tolist() for parents in tree.parents] == [[0, 0], [0, 0, 1], [0, 1, 1, 2]]
    assert [count.tolist() for count in tree.counts(labels)] == [[4, 1], [1, 3, 1], [1, 1, 2, 1]]


def test_columns_of_numpy_and_of_numbers_give_the_tree_of_their_texts():
    columns = [np.array(["a", "a", "b"]), np.array(["x", "y", "z"], dtype=object), [1, 2, 10]]
    tree, _ = LabelTree.from_columns(columns, levels=LEVELS)
    assert (
        tree
        == LabelTree.from_names(
            [("a", "x", "1"), ("a", "y", "2"), ("b", "z", "10")], levels=LEVELS
        )[0]
    )


def test_one_column_of_labels_is_a_tree_of_one_level():
    tree, labels = LabelTree.from_labels([7, 3, 7])
    assert (tree.depth, tree.names, labels.tolist()) == (1, (("3", "7"),), [[1], [0], [1]])


def test_trees_differ_in_a_name_a_level_or_a_path():
    tree = LabelTree.from_names(ROWS, levels=LEVELS)[0]
    assert tree != LabelTree.from_names(ROWS, levels=("kingdom", "kind", "race"))[0]
    assert tree != LabelTree.from_names(ROWS[:2], levels=LEVELS)[0]
    assert tree != "tree"


RANKS, BOTH = ("kingdom", "genus"), ("coarse", "fine")
IRIS = [("Plantae", "Iris"), ("Animalia", "Iris"), ("Animalia", "Felis"), ("Fungi", "Iris")]
CROSSED = np.array([[parent, child] for child in range(8) for parent in (8, 9)])
PATHS = np.array([[0, 0], [1, 1]], np.int32)


@pytest.mark.parametrize(
    ("make", "words", "found"),
    [
        (
            lambda: LabelTree.from_names(IRIS, levels=RANKS),
            "hbench tree validate",
            "genus 'Iris' in 'Animalia' and 'Fungi' and 'Plantae'",
        ),
        (
            lambda: check_nested(CROSSED, BOTH),
            "8 fine labels have several parents",
            "fine 0 in 8 and 9; 1 in 8 and 9; 2 in 8 and 9; 3 in 8 and 9; 4 in 8 and 9; …",
        ),
        (
            lambda: LabelTree.from_names([("a", "x"), ("b",)], levels=BOTH),
            "1 row without a name at some level",
            "['b']",
        ),
        (lambda: LabelTree(BOTH, (("a", "b"), ("x", "x")), PATHS), "not unique", "x several times"),
        (
            lambda: LabelTree(("same", "same"), (("a", "b"), ("x", "y")), PATHS),
            "not unique",
            "same several times",
        ),
    ],
)
def test_labels_that_form_no_tree_are_refused_with_what_is_found(make, words, found):
    with pytest.raises(TreeError, match=words) as refusal:
        make()
    assert refusal.value.found == found
    assert refusal.value.exit_code == 3


@given(
    hnp.arrays(
        np.int64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.integers(0, 3)
    )
)
def test_labels_are_refused_exactly_when_two_rows_share_a_label_under_different_parents(labels):
    broken = any(
        one[level] == other[level] and one[level - 1] != other[level - 1]
        for one in labels
        for other in labels
        for level in range(1, labels.shape[1])
    )
    if broken:
        with pytest.raises(TreeError, match="do not form a tree"):
            LabelTree.from_labels(labels)
    else:
        assert LabelTree.from_labels(labels)[0].depth == labels.shape[1]


@pytest.mark.parametrize(
    "bad", [np.zeros((2, 0), int), np.full((2, 2), 0.5), np.zeros((1, 2, 3), int), ["a", "b"]]
)
def test_arrays_that_are_not_labels_are_refused(bad):
    with pytest.raises(TreeError, match="integers of shape"):
        as_labels(bad)
    with pytest.raises(TreeError, match="at least one level"):
        LabelTree.from_names([], levels=())


def test_a_level_is_found_by_its_name_and_suggested_on_typos():
    tree = LabelTree.from_names(ROWS, levels=LEVELS)[0]
    assert [tree.level(name) for name in LEVELS] == [1, 2, 3]
    with pytest.raises(UnknownName, match="did you mean 'breed'"):
        tree.level("bread")
