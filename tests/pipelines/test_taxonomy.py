"""The taxonomy from subclass graphs with everything that real ones have: cycles, many parents,
over-general classes.
"""

import networkx as nx
import pytest
from hbench_hgldv2.grouping.taxonomy import ROOT, Removed, ancestors_of, rows, taxonomy
from hbench_hgldv2.wikimedia.facts import MISSING, Entity
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.fast

PARENTS = {
    "Q1": ("Q10", "Q20"),  # church building: place of worship, building
    "Q2": ("Q1",),  # cathedral
    "Q3": ("Q10",),  # mosque
    "Q4": ("Q20",),  # castle
    "Q5": ("Q5", "Q6"),  # its own parent, and a cycle with Q6
    "Q6": ("Q5", "Q20"),
    "Q7": ("Q271669",),  # a landform
    "Q10": ("Q20",),
    "Q20": ("Q811979",),
    "Q811979": (),
    "Q271669": (),
}
LANDMARKS = {"Q1": 50, "Q2": 10, "Q3": 20, "Q4": 30, "Q5": 5, "Q6": 2, "Q7": 9}


def test_the_hand_worked_tree():
    tree, removed = taxonomy(PARENTS, LANDMARKS)
    below = {"Q1": ["Q2"], "Q10": ["Q1", "Q3"], "Q20": ["Q10", "Q4", "Q5"], ROOT: ["Q20", "Q7"]}
    assert {*tree.edges} == {
        (parent, child) for parent, children in below.items() for child in children
    }
    nodes = tree.nodes
    assert nodes["Q1"]["alternatives"] == ("Q20",)
    assert Removed("Q1", "Q20", "less informative") in removed
    assert Removed("Q5", "Q5", "its own parent") in removed
    assert {edge.why for edge in removed if {edge.child, edge.parent} == {"Q5", "Q6"}} == {"cycle"}
    assert Removed("Q20", "Q811979", "too general") in removed
    assert (nodes["Q5"]["members"], nodes["Q5"]["landmarks"]) == (("Q5", "Q6"), 7)
    assert nodes["Q10"]["landmarks"] == 50 + 10 + 20
    assert (nodes["Q2"]["kind"], nodes["Q7"]["kind"]) == ("human-made", "natural")


def test_an_ancestor_with_too_few_landmarks_or_one_child_is_skipped():
    assert "Q10" not in taxonomy(PARENTS, LANDMARKS, least=81)[0]
    assert "Q10" not in taxonomy(PARENTS, {"Q2": 1, "Q4": 1})[0]
    listed = rows(taxonomy(PARENTS, LANDMARKS)[0], {"Q1": "church building"})
    assert [(row.class_id, row.depth) for row in listed][:4] == [
        ("Q20", 1),
        ("Q10", 2),
        ("Q1", 3),
        ("Q2", 4),
    ]
    assert listed[2].label == "church building"


some, many = (st.integers(1, most).map("Q{}".format) for most in (14, 20))
graphs = st.dictionaries(some, st.lists(many, max_size=3).map(tuple), max_size=14)


@given(
    graphs, st.dictionaries(some, st.integers(1, 9), min_size=1, max_size=10), st.integers(1, 12)
)
def test_any_graph_becomes_an_arborescence_that_holds_every_class(parents, landmarks, least):
    tree, _ = taxonomy(parents, landmarks, least=least)
    assert nx.is_arborescence(tree)
    assert set(landmarks) <= {member for node in tree for member in tree.nodes[node]["members"]}
    turned, _ = taxonomy(
        dict(reversed(parents.items())), dict(reversed(landmarks.items())), least=least
    )
    assert turned.edges == tree.edges
    for parent, child in tree.edges:
        if parent != ROOT:
            above = nx.DiGraph([(c, p) for c, ps in parents.items() for p in ps])
            assert nx.has_path(above, child, parent)


def test_landmarks_of_the_root_itself_count_there_alone():
    tree, _ = taxonomy({ROOT: (), "Q1": (ROOT,)}, {ROOT: 5, "Q1": 2})
    assert list(tree.edges) == [(ROOT, "Q1")]
    assert tree.nodes[ROOT]["landmarks"] == 5 + 2


def test_the_closure_asks_for_each_class_once_and_survives_missing_ones():
    asked: list[str] = []

    def entities(ids):
        asked.extend(ids)
        return {i: Entity(i, parents=PARENTS[i]) if i in PARENTS else MISSING for i in ids}

    found = ancestors_of(["Q2", "Q5", "Q99"], entities)
    assert len(asked) == len(set(asked))
    assert set(found) == {"Q2", "Q5", "Q99", "Q1", "Q6", "Q10", "Q20", "Q811979"}
