"""Class graphs: unfolding edges into rows, with cycles, several roots and several parents."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import DataError, TreeError
from hbench.tree import MOST_LEVELS
from hbench.tree.graphs import graph_of_edges, packed, unfold, unpacked
from hbench.tree.names import find_problems
from tests.tree_strategies import level_names

pytestmark = pytest.mark.fast

pairs = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.sampled_from("abcdefg")), min_size=1, max_size=14
)


@given(pairs)
def test_rows_are_all_the_simple_paths_that_networkx_finds_and_problems_what_its_degrees_say(
    arcs,
):
    graph = graph_of_edges(arcs)
    reference = nx.DiGraph(arcs)
    table = unfold(graph)
    kinds = [problem.kind for problem in table.broken]
    roots = [node for node in reference if reference.in_degree(node) == 0]
    parts = list(nx.strongly_connected_components(reference))
    cyclic = [part for part in parts if len(part) > 1 or reference.has_edge(*(list(part) * 2)[:2])]
    assert kinds.count("cycle") == len(cyclic)
    assert {frozenset(problem.where) for problem in table.broken if problem.kind == "cycle"} == set(
        map(frozenset, cyclic)
    )
    assert kinds.count("several roots") == (len(roots) > 1)
    if not cyclic:
        leaves = [node for node in reference if reference.out_degree(node) == 0]
        paths = [
            path
            for root in roots
            for leaf in leaves
            for path in nx.all_simple_paths(reference, root, leaf)
        ]
        cut = 1 if len(roots) == 1 else 0
        lone = [(root,) for root in roots if reference.out_degree(root) == 0]
        assert sorted(table.rows) == sorted([*(tuple(path[cut:]) for path in paths), *lone])
        several = {node for node in reference if reference.in_degree(node) > 1}
        found = {
            each.node
            for each in find_problems(table)
            if each.kind in {"homonym", "several parents"}
        }
        assert found == several


def test_several_roots_are_named_with_the_policy_that_joins_them():
    table = unfold(graph_of_edges([("a", "x"), ("a", "y"), ("b", "z"), ("b", "w")]))
    with pytest.raises(TreeError) as refusal:
        table.tree()
    assert refusal.value.found == "2 roots: a, b"
    assert "--policy add-root" in refusal.value.fix


def test_a_cycle_is_listed_in_order_and_the_rest_is_still_unfolded():
    table = unfold(
        graph_of_edges(
            [("root", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("root", "d"), ("d", "e")]
        )
    )
    (cycle,) = table.broken
    assert (cycle.kind, cycle.node, cycle.where) == ("cycle", "a", ("a", "b", "c", "a"))
    assert ("d", "e") in table.rows


def test_a_node_that_is_its_own_parent_is_a_cycle_and_a_root_alone_has_no_classes():
    assert [problem.where for problem in unfold(graph_of_edges([("a", "a")])).broken] == [
        ("a", "a")
    ]
    for arcs in ([("", "a")], []):
        with pytest.raises(DataError, match="no classes"):
            unfold(graph_of_edges(arcs))


def test_a_graph_of_too_many_paths_is_refused_before_they_are_listed():
    ladder = [(f"n{i}", f"{side}{i}") for i in range(30) for side in "ab"]
    ladder += [(f"{side}{i}", f"n{i + 1}") for i in range(30) for side in "ab"]
    with pytest.raises(TreeError, match="too many paths") as refusal:
        unfold(graph_of_edges(ladder))
    assert refusal.value.found == f"{2**30:,}"


def test_a_chain_deeper_than_a_byte_counts_is_refused_before_it_is_unfolded():
    chain = [(f"n{i}", f"n{i + 1}") for i in range(20_000)]
    assert len(unfold(graph_of_edges(chain[:MOST_LEVELS])).levels) == MOST_LEVELS
    for links in (chain[: MOST_LEVELS + 1], chain):
        with pytest.raises(TreeError, match="too deep") as refusal:
            unfold(graph_of_edges(links))
        assert refusal.value.found == f"{len(links):,}"


@given(level_names)
def test_packed_level_names_come_back(levels):
    assert unpacked(packed(levels)) == tuple(levels)
