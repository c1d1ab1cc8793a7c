"""Lists of edges as other tools write them: under any header, with ids and names, after an index,
with roots of all kinds.
"""

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.core.errors import TreeError
from hbench.sheets.columns import Chosen
from hbench.tree.files import read
from tests.command_line import in_folder

pytestmark = pytest.mark.fast

TREE = {
    "": ["animals"],
    "animals": ["owls", "cats"],
    "owls": ["barn owl", "bay owl"],
    "cats": ["lynx"],
}
EDGES = [(parent, child) for parent, children in TREE.items() for child in children if parent]
RIGHT = {("owls", "barn owl"), ("owls", "bay owl"), ("cats", "lynx")}
HEADS = [
    ("parent", "child"),
    ("source", "target"),
    ("from", "to"),
    ("hypernym", "hyponym"),
    ("Source", "Target"),
]


def rows_of(path, **chosen):
    return set(read(path, chosen=Chosen(**chosen)).rows)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(HEADS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([",", ";", "\t"]),
    st.lists(st.sampled_from(["weight", "type", "Id"]), unique=True, max_size=2),
    st.randoms(use_true_random=False),
)
def test_two_columns_of_edges_are_seen_under_any_header(
    tmp_path, head, turned, indexed, mark, others, random
):
    names = [*(head[::-1] if turned else head), *others]
    edges = list(EDGES)
    random.shuffle(edges)
    lines = [([""] if indexed else []) + names]
    for number, (parent, child) in enumerate(edges):
        cells = [child, parent] if turned else [parent, child]
        lines.append(
            ([str(number)] if indexed else [])
            + cells
            + ["Directed" if name == "type" else "1.5" for name in others]
        )
    (tmp_path / "t.csv").write_text("".join(mark.join(line) + "\n" for line in lines))
    assert rows_of(tmp_path / "t.csv") == RIGHT


def test_edges_under_a_header_that_says_nothing_are_seen_by_their_values(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{p},{c}\n" for p, c in EDGES))
    table = read(tmp_path / "t.csv")
    assert set(table.rows) == RIGHT
    assert "--levels A,B takes them for levels instead" in str(table.read)
    assert read(tmp_path / "t.csv", levels=["a", "b"]).levels == ("a", "b")


IDS = {"animals": "10", "owls": "20", "cats": "30", "barn owl": "40", "bay owl": "50", "lynx": "60"}
BY_ID = [
    ("id", "name", "parent_id"),
    ("taxonID", "scientificName", "parentNameUsageID"),
    ("node", "label", "parent"),
]


@pytest.mark.parametrize("head", BY_ID)
@pytest.mark.parametrize("root", ["", "10", "0"])
@pytest.mark.parametrize("ending", ["", ".0"])
def test_nodes_with_the_id_of_their_parent_are_read_by_name(tmp_path, head, root, ending):
    above = {child: parent for parent, child in EDGES}
    lines = [",".join((*head, "rank"))]
    for name, number in IDS.items():
        parent = f"{IDS[above[name]]}{ending}" if name in above else root
        lines.append(f"{number},{name},{parent},x")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    assert rows_of(tmp_path / "t.csv") == RIGHT


def test_equal_names_of_different_ids_are_different_nodes(tmp_path):
    rows = "1,all,\n2,phones,1\n3,cameras,1\n4,cases,2\n5,cases,3\n6,hard,4\n7,soft,5\n"
    (tmp_path / "t.csv").write_text("id,name,parent_id\n" + rows)
    assert rows_of(tmp_path / "t.csv") == {
        ("phones", "cases (phones)", "hard"),
        ("cameras", "cases (cameras)", "soft"),
    }


def test_chosen_columns_are_the_edges(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,z\n" + "".join(f"{c},1,{p}\n" for p, c in EDGES))
    assert rows_of(tmp_path / "t.csv", edges=("z", "x")) == RIGHT


def test_a_cycle_is_named_and_no_policy_is_offered(tmp_path):
    (tmp_path / "t.csv").write_text("parent,child\na,b\nb,c\nc,b\na,d\n")
    with pytest.raises(TreeError, match="cycle") as refusal:
        read(tmp_path / "t.csv").tree()
    assert refusal.value.fix.startswith("no policy mends a cycle")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**6), st.integers(6, 30))
def test_what_networkx_writes_as_edges_is_the_graph(tmp_path, seed, size):
    import random

    draw = random.Random(seed)
    graph = nx.DiGraph()
    for node in range(1, size):
        graph.add_edge(f"n{draw.randrange(node)}", f"n{node}")
    nx.to_pandas_edgelist(graph).to_csv(tmp_path / "t.csv")
    leaves = {node for node in graph if not graph.out_degree(node)}
    expected = {tuple(nx.shortest_path(graph, "n0", leaf)[1:]) for leaf in leaves}
    assert rows_of(tmp_path / "t.csv") == expected


def test_a_ring_of_many_nodes_is_named_in_a_short_message(tmp_path):
    nodes = 20_000
    (tmp_path / "ring.csv").write_text(
        "parent,child\n" + "".join(f"n{n},n{(n + 1) % nodes}\n" for n in range(nodes))
    )
    shown = in_folder(tmp_path, "tree", "validate", "ring.csv", code=3)
    assert "cycle × 1" in shown.stdout
    assert len(shown.stdout) < 2000


@pytest.mark.parametrize("swapped", [False, True])
def test_a_text_with_a_parent_and_a_child_on_each_line_is_a_list_of_edges(tmp_path, swapped):
    """As ImageNet's wordnet.is_a.txt; the roots, fewer than the leaves, say which is the parent."""
    pairs = [(a.replace(" ", "_"), b.replace(" ", "_")) for a, b in EDGES]
    lines = [" ".join(pair[::-1] if swapped else pair) for pair in pairs]
    (tmp_path / "is_a.txt").write_text("\n".join(lines))
    table = read(tmp_path / "is_a.txt")
    assert set(table.rows) == {
        (above.replace(" ", "_"), leaf.replace(" ", "_")) for above, leaf in RIGHT
    }
    assert "a list of edges" in str(table.read)
