"""Datasets on disk: what is saved comes back, what was changed is refused, what is missing says how
to get it.
"""

import dataclasses
import json

import networkx as nx
import numpy as np
import pytest
from PIL import Image

from hbench.core.errors import DataError, HBenchError, IntegrityError, TreeError, UnknownName
from hbench.datasets import Dataset, Protocol, load, save
from hbench.datasets import manifest as manifests
from tests.command_line import call

pytestmark = pytest.mark.fast

ITEMS = ["a/1.png", "a/2.png", "b/1.png", "c/1.png"]
ROWS = [("animal", "cat"), ("animal", "cat"), ("animal", "dog"), ("plant", "oak")]


def small(root=None, **options):
    manifest = manifests.from_names(ITEMS, ROWS, levels=["kingdom", "species"], **options)
    protocol = Protocol(metrics=("H-AP",), recalls=(1, 4), averaged=True)
    tests = {"fine": manifest, "coarse": manifest}
    return Dataset("small", "3", protocol, manifest, tests, card={"title": "Small"}).rooted(root)


def test_a_saved_dataset_comes_back(tmp_path):
    query = np.array([True, False, True, False])
    save(small(query=query, gallery=~query), tmp_path / "small")
    back = load(tmp_path / "small")
    assert (back.name, back.version, back.levels) == ("small", "3", ("kingdom", "species"))
    assert back.protocol == Protocol(metrics=("H-AP",), recalls=(1, 4), averaged=True)
    assert back.card == {"title": "Small"}
    assert list(back.tests) == ["fine", "coarse"]
    assert back.tests["fine"].digest == small(query=query, gallery=~query).tests["fine"].digest
    assert back.train.items.tolist() == ITEMS
    assert back.train.query.tolist() == query.tolist()
    assert back.root is None


def test_images_inside_the_folder_move_with_it(tmp_path):
    (tmp_path / "old" / "images" / "a").mkdir(parents=True)
    Image.new("L", (3, 2)).save(tmp_path / "old" / "images" / "a" / "1.png")
    save(small(tmp_path / "old" / "images"), tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    back = load(tmp_path / "new")
    assert back.train.picture("a/1.png").size == (3, 2)
    with pytest.raises(DataError, match=r"a/2\.png cannot be read"):
        back.train.picture("a/2.png")


def test_a_manifest_of_other_content_is_refused(tmp_path):
    save(small(), tmp_path)
    other = manifests.from_names(ITEMS[:2], ROWS[:2], levels=["kingdom", "species"])
    other.write(tmp_path / "test-fine.parquet")
    with pytest.raises(IntegrityError, match=r"test-fine\.parquet has other content than recorded"):
        load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "",
        "[]",
        "{}",
        '{"format": "hbench.dataset/1"}',
        "\xff",
        {"format": "hbench.dataset/9"},
        {"protocol": {"x": 1}},
    ],
)
def test_a_broken_description_or_one_of_another_format_is_refused(tmp_path, change):
    save(small(), tmp_path)
    file = tmp_path / "dataset.json"
    text = json.dumps(json.loads(file.read_text()) | change) if isinstance(change, dict) else change
    file.write_bytes(text.encode("latin1"))
    with pytest.raises(DataError, match=r"a dataset of this version|dataset\.json cannot be read"):
        load(tmp_path)


KEYS = [
    "format",
    "name",
    "version",
    "levels",
    "protocol",
    "digests",
    "lists",
    "official_names",
    "images",
    "card",
]
INNER = [f"protocol.{key}" for key in ("metrics", "recalls", "averaged")]
INNER += ["levels.train", "digests.train", "card.background"]
WRONG = [
    None, 5, 1.5, True, "", "x", [], [None], [[1]], {}, {"x": None}, {"x": []}, {"../x": "y"},
    "../" * 40, "\0", 10**30,
]  # fmt: skip


@pytest.mark.parametrize("key", [*KEYS, *INNER])
def test_a_description_of_wrong_types_is_read_or_refused(tmp_path, key):
    save(small(), tmp_path)
    description = json.loads((tmp_path / "dataset.json").read_text())
    refused = 0
    for value in WRONG:
        changed = json.loads(json.dumps(description))
        *outer, inner = key.split(".")
        (changed[outer[0]] if outer else changed)[inner] = value
        (tmp_path / "dataset.json").write_text(json.dumps(changed))
        try:
            found = load(tmp_path)
            repr(found)
            assert found.train is None or len(found.train.items) == len(ITEMS)
        except HBenchError:
            refused += 1
    assert refused >= len(WRONG) // 2 or key in {"card.background", "images", "name", "version"}


def test_levels_that_the_manifests_do_not_have_are_refused(tmp_path):
    save(small(), tmp_path)
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["levels"]["train"] = ["species", "kingdom"]
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    with pytest.raises(IntegrityError, match=r"dataset\.json names other levels"):
        load(tmp_path)


def test_what_is_not_here_is_refused_by_name(tmp_path):
    for name, error, message in (
        ("FOLDER", DataError, "is not a dataset"),
        ("glyph", UnknownName, "did you mean 'glyphs'"),
        ("glyphs@2", DataError, r"expected:\s+glyphs@2"),
    ):
        with pytest.raises(error, match=message):
            load(name.replace("FOLDER", str(tmp_path)))
        assert load("glyphs@1").name == "glyphs"


def test_a_single_manifest_file_or_csv_table_is_a_dataset(tmp_path):
    small().train.write(tmp_path / "mine.parquet")
    dataset = load(tmp_path / "mine.parquet")
    assert (dataset.name, dataset.train, dataset.version) == (
        "mine",
        None,
        small().train.digest[:12],
    )
    assert dataset.tests["test"].digest == small().train.digest
    rows = ("a.png,animal,cat,train", "b.png,animal,NA,test", "c.png,plant,None,test")
    (tmp_path / "mine.csv").write_text("\n".join(["item,kingdom,species,split", *rows]))
    dataset = load(tmp_path / "mine.csv")
    assert dataset.train.items.tolist() == ["a.png"]
    assert dataset.tests["test"].tree.names == (("animal", "plant"), ("NA", "None"))
    assert dataset.tests["test"].picture.args[-1] == tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "item,class,query,gallery\na,x,true,false\nb,x,False,TRUE\n",
        "item,class,split\na,x,query\nb,x,gallery\n",
    ],
)
def test_a_csv_table_may_set_query_and_gallery(tmp_path, text):
    (tmp_path / "own.csv").write_text(text)
    test = load(tmp_path / "own.csv").tests["test"]
    assert (test.query.tolist(), test.gallery.tolist()) == ([True, False], [False, True])


def test_a_bad_table_is_refused(tmp_path):
    for text, message in (
        ("name,class\na,x\n", "has no column of ids"),
        ("item\na\n", "has no levels"),
        ("item,ignore,class\na,1,x\n", "has a column ignore"),
        ("item,class\na,x\na,x\n", r"bad\.csv has 1 item in several rows[^$]*a in 2 rows"),
        ("item,class,query\na,x,maybe\n", "column query is not a mask"),
        ("item,class,split\na,x,valid\n", "column split has unknown values"),
        ("item,class,split\na,x,train\n", "has no test rows"),
        ("item,class\na,x,y\n", "cannot be read"),
        ("", "cannot be read"),
    ):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises((DataError, UnknownName), match=message):
            load(tmp_path / "bad.csv")


def test_the_advice_for_a_finest_level_without_classes_names_the_other_levels(tmp_path):
    rows = [f"i{n},a{n % 4},b{n % 8},c{n}" for n in range(200)]
    (tmp_path / "own.csv").write_text("\n".join(["item,x,y,z", *rows]) + "\n")
    with pytest.raises(DataError, match="--levels x,y "):
        load(tmp_path / "own.csv", levels=["x", "y", "z"])


def test_words_that_name_no_split_can_be_left_out_by_build_as_the_refusal_says(tmp_path):
    (tmp_path / "own.csv").write_text("item,class,split\na,x,test\nb,x,test\nc,x,holdout\n")
    with pytest.raises(DataError, match="as hbench build NAME --from FILE does"):
        load(tmp_path / "own.csv")
    call("build", "zoo", "--from", tmp_path / "own.csv", "--out", tmp_path / "zoo")
    assert len(load(tmp_path / "zoo").tests["test"]) == 3


@pytest.mark.parametrize("item", ["/data/upload/3/a.jpg", "../a", "owls\\a.jpg"])
def test_ids_that_are_no_files_below_the_table_are_taken_without_pictures(tmp_path, item):
    (tmp_path / "own.csv").write_text(f"item,class\n{item},x\nb,x\n")
    data = load(tmp_path / "own.csv")
    assert data.tests["test"].items.tolist() == [item, "b"]
    assert data.root is None
    assert data.tests["test"].picture is None
    with pytest.raises(DataError, match="should be"):
        save(data, tmp_path / "built")


def test_a_dataset_is_whole_or_not_there(tmp_path):
    save(small(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    broken = dataclasses.replace(small(), card={"title": object()})
    with pytest.raises(TypeError):
        save(broken, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


# the tree


def test_the_tree_of_a_dataset_has_the_classes_of_all_splits_and_is_one_of_networkx():
    tested = manifests.from_names(["d.png"], [("plant", "elm")], levels=["kingdom", "species"])
    data = dataclasses.replace(small(), tests={"test": tested})
    tree = data.tree
    assert nx.is_arborescence(tree)
    named = nx.get_node_attributes(tree, "name")
    leaves = sorted(named[node] for node in tree if not tree.out_degree(node))
    assert leaves == ["cat", "dog", "elm", "oak"]
    number = {name: node for node, name in named.items()}
    assert nx.lowest_common_ancestor(tree, number["elm"], number["oak"]) == number["plant"]
    assert nx.lowest_common_ancestor(tree, number["elm"], number["cat"]) == number["root"]
    assert tree.nodes[number["elm"]]["level"] == "species"


def test_a_class_under_two_parents_in_two_splits_is_no_tree():
    moved = manifests.from_names(["d.png"], [("animal", "oak")], levels=["kingdom", "species"])
    with pytest.raises(TreeError, match="several parents"):
        dataclasses.replace(small(), tests={"test": moved}).tree  # noqa: B018
