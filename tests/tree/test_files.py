"""Trees in files: every format read back gives the same tree; foreign files are read or refused."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given

from hbench.core.errors import DataError, TreeError, UnknownName, UsageError
from hbench.core.tables import lines
from hbench.datasets import manifest
from hbench.datasets.manifest import name_table_of
from hbench.tree import RESERVED, LabelTree
from hbench.tree.files import WRITERS, nested_objects, read, write
from hbench.tree.names import class_rows, find_problems
from hbench.tree.policies import mend
from tests.tree_strategies import label_trees

TREES = Path(__file__).parents[1] / "golden" / "trees"


@pytest.mark.parametrize("kind", sorted(WRITERS))
@given(tree=label_trees())
def test_a_tree_written_and_read_is_the_same_tree(tmp_path_factory, kind, tree):
    if set(tree.levels) & set(RESERVED):
        return
    path = tmp_path_factory.getbasetemp() / f"tree{kind}"
    try:
        path.write_bytes(write(tree, kind).encode())
    except TreeError as refusal:  # a table that would be taken for something else is not written
        assume("read as something else" not in str(refusal))
    again, items = read(path).tree()
    assert again == tree
    assert items.tolist() == [1] * len(tree.paths)


def test_a_table_whose_delimiter_would_not_be_found_again_is_not_written():
    tree = LabelTree(
        levels=("NA", "None", "nan", "null", "&amp;"),
        names=(
            ("NA",),
            ("NA",),
            ("NA", "None", "nan"),
            ("NA", "0", "1", ",", "&amp;"),
            ("NA", "0", "1", "[", " "),
        ),
        paths=np.array(
            [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 2, 2, 2], [0, 0, 2, 3, 3], [0, 0, 2, 4, 4]],
            np.int32,
        ),
    )
    with pytest.raises(TreeError, match="read as something else"):
        write(tree, ".csv")


def test_graphml_that_networkx_writes_of_a_tree_is_read_as_this_tree(tmp_path):
    tree, _ = LabelTree.from_names([("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine"))
    graph = nx.relabel_nodes(tree.graph(), lambda node: f"{node[0]}.{node[1]}")
    nx.write_graphml_xml(graph, tmp_path / "t.graphml")
    again, _ = read(tmp_path / "t.graphml").tree()
    assert again.names == tree.names
    assert again.paths.tolist() == tree.paths.tolist()


def test_nested_nodes_carry_their_items_where_these_are_known():
    tree, labels = LabelTree.from_names(
        [("a", "x"), ("a", "x"), ("b", "y")], levels=("coarse", "fine")
    )
    assert nested_objects(tree, tree.counts(labels)[-1]) == {
        "name": "root",
        "levels": ["coarse", "fine"],
        "children": [
            {"name": "a", "children": [{"name": "x", "items": 2}]},
            {"name": "b", "children": [{"name": "y", "items": 1}]},
        ],
    }


def test_the_columns_of_a_table_are_its_levels_unless_some_are_chosen(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("item,fine,coarse,query\ni1,x,a,true\ni2,x,a,true\ni3,y,a,false\n")
    assert read(path).levels == ("fine", "coarse")
    table = read(path, levels=["coarse", "fine"])
    assert table.rows == {("a", "x"): 2, ("a", "y"): 1}
    with pytest.raises(UnknownName, match="did you mean 'coarse'"):
        read(path, levels=["corse"])


@pytest.mark.parametrize("title", ["path", "file", "image"])
def test_a_column_of_pictures_is_that_of_the_items_and_no_level(tmp_path, title):
    table = tmp_path / "t.csv"
    table.write_text(f"{title},group,kind,fold\na.jpg,g,k,0\nb/c.PNG,g,k,1\nd.jpg,h,l,0\n")
    assert read(table).levels == ("group", "kind")
    table.write_text(f"{title},group,kind\na,a,k\nb,b,l\n")  # classes of a level called so
    assert read(table).levels == (title, "group", "kind")


def test_columns_parent_and_child_are_edges_unless_chosen_as_levels(tmp_path):
    path = tmp_path / "edges.tsv"
    path.write_text("child\tparent\nanimal\t\ncat\tanimal\ndog\tanimal\n")
    assert read(path).rows == {("cat",): 1, ("dog",): 1}
    assert read(path, levels=["parent", "child"]).levels == ("parent", "child")


def test_a_node_with_several_parents_is_found_in_edges_and_in_graphml(tmp_path):
    graph = nx.DiGraph(
        [
            ("root", "a"),
            ("root", "b"),
            ("a", "n"),
            ("b", "m"),
            ("m", "n"),
            ("n", "leaf"),
            ("m", "other"),
        ]
    )
    (tmp_path / "g.graphml").write_text("\n".join(nx.generate_graphml(graph)))
    (tmp_path / "g.csv").write_text(lines(["parent", "child"], graph.edges))
    for name in ("g.graphml", "g.csv"):
        found = find_problems(read(tmp_path / name))
        assert [
            (each.kind, each.node, each.where) for each in found if each.kind == "several parents"
        ] == [("several parents", "n", ("a", "m"))]
        assert [each.kind for each in found if each.kind == "ragged"] == ["ragged"] * 2


def test_graphml_nodes_of_one_name_are_told_apart_by_their_ids_where_nodes_have_several_parents(
    tmp_path,
):
    graph = nx.DiGraph([("r", "a"), ("r", "b"), ("a", "n1"), ("b", "n1"), ("b", "n2")])
    nx.set_node_attributes(
        graph, {"r": "r", "a": "a", "b": "b", "n1": "Iris", "n2": "Iris"}, "label"
    )
    (tmp_path / "g.graphml").write_text("\n".join(nx.generate_graphml(graph)))
    assert list(read(tmp_path / "g.graphml").rows) == [
        ("a", "Iris [n1]"),
        ("b", "Iris [n1]"),
        ("b", "Iris [n2]"),
    ]


def test_manifests_give_the_classes_of_all_their_items(tmp_path):
    train = manifest.from_names(
        ["1", "2", "3"], [("a", "x"), ("a", "x"), ("b", "y")], levels=("coarse", "fine")
    )
    test = manifest.from_names(["4"], [("b", "z")], levels=("coarse", "fine"))
    assert name_table_of([train, test]).rows == {("a", "x"): 2, ("b", "y"): 1, ("b", "z"): 1}
    train.write(tmp_path / "train.parquet")
    table = read(tmp_path / "train.parquet")
    assert (table.levels, table.rows) == (train.levels, {("a", "x"): 2, ("b", "y"): 1})
    other = manifest.from_names(["5"], [("x",)], levels=("fine",))
    with pytest.raises(UsageError, match="different levels"):
        name_table_of([train, other])


UNDIRECTED = "\n".join(nx.generate_graphml(nx.Graph([("a", "b")])))


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("t.json", "{", DataError, "not JSON"),
        ("t.json", "[1, 2]", DataError, "this JSON is not a tree"),
        (
            "t.json",
            '{"name": "root", "children": [{"name": 1}]}',
            DataError,
            "this JSON is not a tree",
        ),
        (
            "t.json",
            '{"name": "root", "children": {"name": "a"}}',
            DataError,
            "this JSON is not a tree",
        ),
        ("t.json", "[" * 100_000, DataError, "not JSON"),
        ("t.json", '{"name": "root", "children": []}', DataError, "no classes"),
        ("t.graphml", "<graphml", DataError, "not GraphML"),
        ("t.graphml", "<html></html>", DataError, "not GraphML"),
        ("t.graphml", UNDIRECTED, DataError, "not directed"),
        ("t.nwk", "(a,b", DataError, "not a Newick tree"),
        ("t.nwk", b"(\xff);", DataError, "UTF-8"),
        ("t.csv", None, DataError, "does not exist"),
        ("t.xlsx", "", UsageError, "not in a format of trees"),
        ("tree", "", UsageError, "not in a format of trees"),
    ],
)
def test_what_holds_no_tree_is_refused(tmp_path, name, content, error, words):
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(error, match=words):
        read(tmp_path / name)


def test_names_that_not_every_format_holds_are_not_exported():
    tree, _ = LabelTree.from_names([("a\nb",)], levels=("label",))
    with pytest.raises(TreeError, match="control characters") as refusal:
        write(tree, ".csv")
    assert refusal.value.found == "'a\\nb'"
    with pytest.raises(UnknownName):
        write(tree, ".xml")


@pytest.mark.parametrize("levels", [("item", "genus"), ("Parent", "child")])
def test_levels_that_a_table_would_read_as_something_else_are_not_exported_as_one(levels):
    tree = LabelTree.from_names([("a", "b"), ("a", "c")], levels=levels)[0]
    with pytest.raises(TreeError, match="read as something else"):
        write(tree, ".csv")
    assert write(tree, ".json")


@pytest.mark.parametrize("levels", [49, 50])
def test_json_is_written_as_deep_as_it_is_read(tmp_path, levels):
    names = tuple(f"l{number}" for number in range(levels))
    tree, _ = LabelTree.from_names([names, (*names[:-1], "other")], levels=names)
    if levels == 50:
        with pytest.raises(TreeError, match="too deep for nested JSON"):
            write(tree, ".json")
        return
    (tmp_path / "t.json").write_text(write(tree, ".json"))
    assert (
        set(read(tmp_path / "t.json").rows)
        == set(class_rows(tree))
        == {names, (*names[:-1], "other")}
    )
    with pytest.raises(UsageError, match="not a table"):
        read(tmp_path / "t.json", levels=["a"])


@pytest.mark.parametrize("kind", [".csv", ".json", ".nwk"])
def test_the_tree_of_inaturalist_2018_comes_back_from_every_format(tmp_path, kind):
    tree, _ = mend(
        read(TREES / "inat2018_names.csv.gz"), ["by-path", "fill-from-parent"]
    ).table.tree()
    path = tmp_path / f"tree{kind}"
    path.write_text(write(tree, kind), encoding="utf-8")
    assert read(path).tree()[0] == tree


def test_labels_of_a_curators_mapping_that_are_groups_too_are_no_edges(tmp_path):
    rows = [("owl", "bird"), ("barn owl", "owl"), ("wren", "bird"), ("jenny", "wren")]
    lines_of_file = ["class_id,label,status,group,kind,decided_by"]
    lines_of_file += [f"Q{n},{label},group,{group},bird,a" for n, (label, group) in enumerate(rows)]
    (tmp_path / "mapping.csv").write_text("\n".join(lines_of_file))
    found = read(tmp_path / "mapping.csv")
    assert found.levels == ("group", "label")
    assert sorted(found.rows) == sorted((group, label) for label, group in rows)
