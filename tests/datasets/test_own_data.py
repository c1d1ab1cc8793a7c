"""Own data through the command line: tables and folders become datasets that every verb takes by
name.
"""

import dataclasses
import io
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from hbench.cli.build import command
from hbench.core.errors import DataError, TreeError, UnknownName, UsageError
from hbench.datasets import card, load, save, specs
from hbench.datasets.pictures import open_upright
from hbench.datasets.spec import held_out
from hbench.tree.names import class_rows
from hbench.tree.partial import is_class
from tests.command_line import call
from tests.raw_folders import touch

BIRDS = """path,order,family,species,fold
a1.jpg,Passeriformes,Corvidae,crow,train
a2.jpg,Passeriformes,Corvidae,crow,train
b1.jpg,Passeriformes,Paridae,great tit,test
b2.jpg,Passeriformes,Paridae,great tit,test
c1.jpg,Anseriformes,Anatidae,mallard,test
"""
LEVELS = ["--levels", "order,family,species"]
TABLE = [*LEVELS, "--image-column", "path"]
OF_BIRDS = ["--from", "BIRDS", *TABLE]


@pytest.fixture
def birds(tmp_path):
    path = tmp_path / "birds.csv"
    path.write_text(BIRDS)
    return path


def build(*arguments):
    return CliRunner().invoke(command, [str(part) for part in arguments], catch_exceptions=False)


def png(colour):
    file = io.BytesIO()
    Image.new("RGB", (4, 4), colour).save(file, "PNG")
    return file.getvalue()


def folder_of_images(root, items):
    return touch(root, items, png("black"))


def test_a_table_becomes_a_dataset_known_by_its_name_and_its_images_are_counted(birds, tmp_path):
    folder_of_images(tmp_path, ["a1.jpg", "x/stray.jpg"])
    result = build("mine", "--from", birds, *TABLE, "--split-column", "fold", "--json")
    output = json.loads(result.stdout)
    assert output["counts"]["train"] == {
        "images": 2,
        "queries": 2,
        "gallery": 2,
        "order": 1,
        "family": 1,
        "species": 1,
    }
    dataset = load("mine")
    assert dataset.levels == ("order", "family", "species")
    assert dataset.train.items.tolist() == ["a1.jpg", "a2.jpg"]
    assert dataset.tests["test"].tree.names[2] == (
        "mallard",
        "great tit",
    )  # in the order of their paths
    assert output["digests"]["test"] == dataset.tests["test"].digest
    said = (
        "1 of 5 images are there; 4 missing (a2.jpg, b1.jpg, b2.jpg, …); 1 files without a "
        "label (x/stray.jpg)"
    )
    assert said in result.stderr.replace("\n", " ")


def test_an_open_set_split_has_no_class_on_both_sides(birds):
    build("mine", "--from", birds, *TABLE, "--split-by", "species", "--seed", 1)
    dataset = load("mine")
    train, test = (set(manifest.tree.names[2]) for manifest in dataset.manifests.values())
    assert not train & test
    assert train | test == {"crow", "great tit", "mallard"}


def test_items_of_unknown_class_train_where_classes_are_dealt(tmp_path):
    rows = [f"{n}.jpg,order {n % 2},{'' if n < 4 else f'species {n % 8}'}" for n in range(24)]
    (tmp_path / "t.csv").write_text("\n".join(["path,order,species", *rows]))
    chosen = ("--levels", "order,species", "--image-column", "path", "--policy", "unknown")
    result = build("half", "--from", tmp_path / "t.csv", *chosen, "--split-by", "species")
    train, test = load("half").manifests.values()
    assert {f"{n}.jpg" for n in range(4)} <= set(train.items.tolist())
    # half of the eight species, none of which is "unknown"
    assert is_class(test.tree, 2).tolist() == [True] * 4
    assert "4 items whose species is unknown are for training" in " ".join(result.stderr.split())


def test_a_built_dataset_is_taken_for_a_table_with_its_levels_and_splits(birds):
    build("mine", "--from", birds, *TABLE, "--split-column", "fold")
    build("again", "--from", "mine")
    digests = [
        {split: manifest.digest for split, manifest in load(name).manifests.items()}
        for name in ("mine", "again")
    ]
    assert digests[0] == digests[1]


def test_decisions_about_a_published_dataset_make_one_of_ones_own(tmp_path):
    glyphs = load("glyphs").tests["test"]
    item, label = glyphs.items[0], class_rows(glyphs.tree)[glyphs.labels[0, -1]]
    rows = f"item,decision,label,path\n{item},drop,{' > '.join(label)},\n"
    (tmp_path / "decisions.csv").write_text(rows, encoding="utf-8")
    build("letters", "--from", "glyphs", "--decisions", tmp_path / "decisions.csv")
    assert set(glyphs.items) - set(load("letters").tests["test"].items) == {item}


def test_a_dataset_made_of_a_published_one_keeps_its_licence_and_says_what_it_is_made_of():
    build("letters", "--from", "glyphs")
    glyphs, letters = load("glyphs"), load("letters")
    assert letters.card["made of"] == f"glyphs@{glyphs.version}"
    assert [letters.card[key] for key in ("licence", "citation")] == [
        glyphs.card[key] for key in ("licence", "citation")
    ]


def test_of_a_built_dataset_no_levels_are_chosen(birds):
    build("mine", "--from", birds, *TABLE)
    refused = CliRunner().invoke(command, ["again", "--from", "mine", "--levels", "order"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.found == "levels"


def test_a_built_dataset_of_several_tests_is_no_table(tmp_path):
    glyphs = load("glyphs")
    save(dataclasses.replace(glyphs, tests={"a": glyphs.train, "b": glyphs.train}), tmp_path / "d")
    refused = CliRunner().invoke(command, ["again", "--from", str(tmp_path / "d")])
    assert isinstance(refused.exception, UsageError)
    assert "2 tests" in refused.exception.found


@pytest.fixture
def imagenet(tmp_path):
    """Folders train and val of synsets, and pairs in which a dog has two parents."""
    pairs = ["animal canine", "animal pet", "canine dog", "pet dog", "canine wolf", "animal lion"]
    (tmp_path / "is_a.txt").write_text("\n".join(pairs))
    for number, name in enumerate(("dog", "wolf", "lion")):
        for split in ("train", "val"):
            (tmp_path / "raw" / split / name).mkdir(parents=True)
            Image.new("RGB", (8, 8), (99 * number, 0, 50 * len(split))).save(
                tmp_path / "raw" / split / name / "1.png"
            )
    return ("--from", tmp_path / "raw", "--split-folders", "--tree", tmp_path / "is_a.txt")


def test_folders_of_synsets_are_placed_in_a_list_of_pairs(imagenet):
    result = build("net", *imagenet, "--policy", "majority-parent", "--policy", "repeat-leaf")
    data = load("net")
    assert sorted(class_rows(data.train.tree)) == [
        ("canine", "dog"),
        ("canine", "wolf"),
        ("lion", "lion"),
    ]
    assert data.tests["test"].items.tolist() == [f"val/{n}/1.png" for n in ("dog", "lion", "wolf")]
    assert "val is the test" in " ".join(result.stderr.split())


def test_an_empty_folder_val_is_not_said_to_be_the_test(tmp_path):
    for split in ("train", "test"):
        folder_of_images(tmp_path / "raw" / split, ["crow/1.jpg", "owl/1.jpg"])
    (tmp_path / "raw" / "val").mkdir()
    result = build("two", "--from", tmp_path / "raw", "--split-folders")
    assert "val is the test" not in " ".join(result.stderr.split())


def test_a_node_of_two_parents_is_refused_with_the_policy_that_picks_one(imagenet):
    refused = CliRunner().invoke(command, list(map(str, ["net", *imagenet])))
    assert isinstance(refused.exception, TreeError)
    assert "--policy majority-parent" in refused.exception.fix


def test_a_distractor_is_no_class_in_the_counts_of_a_build(tmp_path):
    (tmp_path / "t.csv").write_text("id,order,species\na,x,1\nb,x,1\nc,y,2\nd,,\n")
    result = build("few", "--from", tmp_path / "t.csv", "--levels", "order,species")
    assert result.stdout.splitlines()[1].split("\t") == ["test", "4", "3", "4", "2", "2"]
    assert "2 order, 2 species" in repr(load("few").tests["test"])


def test_a_split_is_the_same_everywhere():
    names = [f"class {i}" for i in range(10)]
    assert held_out(names, fraction=0.3, seed=0) == held_out(reversed(names), fraction=0.3, seed=0)
    assert held_out(names, fraction=0.3, seed=0) == {"class 0", "class 2", "class 7"}
    assert len(held_out(names, fraction=0.3, seed=1)) == 3


def test_nested_folders_are_levels(tmp_path):
    items = [
        "bird/crow/1.jpg",
        "bird/crow/2.PNG",
        "bird/tit/1.jpg",
        "fish/carp/1.jpg",
        "fish/.hidden/1.jpg",
    ]
    folder_of_images(tmp_path / "zoo", items)
    (tmp_path / "zoo" / "note.txt").write_text("not an image")
    result = build("--from", tmp_path / "zoo", "--levels", "class,species")
    test = load("zoo").tests["test"]
    assert test.items.tolist() == sorted(items[:4])
    assert test.tree.names == (("bird", "fish"), ("crow", "tit", "carp"))
    assert test.picture("bird/crow/2.PNG").size == (4, 4)
    assert "4 of 4 images are there" in result.stderr


def test_the_outermost_folders_may_be_the_split_and_do_not_hide_the_dataset_of_their_name(
    tmp_path, monkeypatch
):
    folder_of_images(tmp_path / "zoo", ["train/crow/1.jpg", "test/tit/1.jpg"])
    monkeypatch.chdir(tmp_path)
    build("zoo", "--from", "zoo", "--split-folders")
    dataset = load("zoo")
    assert (dataset.levels, dataset.train.items.tolist()) == (("level1",), ["train/crow/1.jpg"])
    assert dataset.root == tmp_path / "zoo"


def test_policies_make_a_tree_of_labels_that_form_none(tmp_path):
    rows = (
        "1,bird,jays,jay",
        "2,fish,jays,carp",
        "3,fish,NA,eel",
        "4,fish,rays,",
        "5,bird,jays,jay",
    )
    (tmp_path / "zoo.csv").write_text("\n".join(["item,class,family,species", *rows]))
    levels = ["--levels", "class,family,species"]
    policies = ["--policy", "by-path", "--policy", "repeat-leaf", "--policy", "fill-from-parent"]
    with pytest.raises(DataError, match="1 item without a name at some level") as refusal:
        build("zoo", "--from", tmp_path / "zoo.csv", *levels)
    offered = re.findall(r"(--policy .*?):", str(refusal.value))
    assert 1 <= len(offered) <= 4
    for number, combination in enumerate(offered):  # each of which works
        build(f"zoo{number}", "--from", tmp_path / "zoo.csv", *levels, *combination.split())
    with pytest.raises(TreeError, match=r"--policy by-path --policy "):
        build("zoo", "--from", tmp_path / "zoo.csv", *levels, "--policy", "by-path", "--force")
    result = build("zoo", "--from", tmp_path / "zoo.csv", *levels, *policies)
    test = load("zoo").tests["test"]
    assert test.tree.names[1] == ("jays (bird)", "jays (fish)", "rays", "unplaced family of fish")
    assert test.tree.names[2] == ("jay", "carp", "rays", "eel")
    assert "2 rows of names changed by by-path" in result.stderr
    with pytest.raises(TreeError, match="the policy drop leaves out every row"):
        build("zoo", "--from", tmp_path / "zoo.csv", *levels, "--policy", "drop", "--force")


def test_a_ragged_folder_is_evened_by_a_policy(tmp_path):
    folder_of_images(tmp_path / "zoo", ["bird/crow/1.jpg", "fish/2.jpg"])
    build("--from", tmp_path / "zoo", "--policy", "repeat-leaf")
    assert load("zoo").tests["test"].tree.names == (("bird", "fish"), ("crow", "fish"))
    build("--from", tmp_path / "zoo", "--policy", "cut", "--force")
    assert load("zoo").levels == ("level1",)
    build("--from", tmp_path / "zoo", "--depth", 1, "--force")  # what is below is not a level
    assert load("zoo").tests["test"].tree.names == (("bird", "fish"),)


def test_names_that_look_alike_are_listed_with_counts_and_merged_by_a_policy(tmp_path):
    names = ["crow", "crow", "Crow\u200b", "crow\u00a0", "jay", "jay", "NA", "nan", "NA"]
    rows = [f"{row}.jpg,{name}\n" for row, name in enumerate(names)]
    (tmp_path / "zoo.csv").write_text("item,class\n" + "".join(rows), encoding="utf-8")
    output = " ".join(build("--from", tmp_path / "zoo.csv", "--levels", "class").stderr.split())
    assert "1 groups of names look alike" in output
    assert r": class 'crow' (2) and 'Crow\u200b' (1) and 'crow\xa0' (1)" in output
    assert "2 names that often mean a missing name are kept as classes" in output
    assert "class 'NA' (2), class 'nan' (1)" in output
    output = build(
        "--from", tmp_path / "zoo.csv", "--levels", "class", "--policy", "normalise", "--force"
    ).stderr
    assert "look alike" not in output
    assert load("zoo").tests["test"].tree.names == (("NA", "crow", "jay", "nan"),)


def test_absolute_paths_below_the_root_become_relative(birds, tmp_path):
    header, *rows = BIRDS.splitlines(keepends=True)
    (tmp_path / "absolute.csv").write_text(
        header + "".join(f"{tmp_path.as_posix()}/{row}" for row in rows)
    )
    for name, table in (("plain", birds), ("moved", tmp_path / "absolute.csv")):
        build(name, "--from", table, *TABLE)
    assert load("plain").tests["test"].digest == load("moved").tests["test"].digest


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([], UsageError, "the dataset to build is not named"),
        (["glyphs", "--from", "BIRDS", *LEVELS], UsageError, "name of a published dataset"),
        (
            ["--from", "BIRDS", "--levels", "order,spezies", "--image-column", "path"],
            UnknownName,
            "'species'",
        ),
        ([*OF_BIRDS, "--split-by", "genus"], UnknownName, "unknown level to split by 'genus'"),
        ([*OF_BIRDS, "--split-by", "order", "--test-fraction", "1.5"], UsageError, "out of range"),
        ([*OF_BIRDS, "--split-by", "order", "--test-fraction", "0.1"], UsageError, "too few"),
        ([*OF_BIRDS, "--split-by", "order", "--split-column", "fold"], UsageError, "two splits"),
        (
            ["--from", "BIRDS", "--levels", "fold,order", "--image-column", "path"],
            TreeError,
            "Passeriformes",
        ),
        ([*OF_BIRDS, "--policy", "by-paths"], UnknownName, "did you mean 'by-path'"),
        ([*OF_BIRDS, "--background", "whiteish"], UsageError, "is not a colour"),
        (
            ["mine", *OF_BIRDS, "--out", "BIRDS/below"],
            DataError,
            "choose another folder with --out",
        ),
        (["--from", "ZOO"], DataError, r"fish/2\.jpg"),
        (
            ["--from", "HOMONYM", "--levels", "order,genus", "--split-column", "fold"],
            TreeError,
            "crow",
        ),
        (
            ["--from", "HOMONYM", "--levels", "split,genus", "--split-by", "genus"],
            UsageError,
            "a level is called split",
        ),
        (["--from", "NODES", "--levels", "node", "--tree", "CYCLE"], TreeError, "1 cycle"),
        (["--from", "ZOO", "--levels", "class"], DataError, "--depth 1"),
        (["--from", "ZOO", "--split-folders"], DataError, "are not a split"),
        (
            ["sop", "--from-scratch", "WORK"],
            UsageError,
            "labels of sop cannot be made from scratch",
        ),
        ([*OF_BIRDS, "--from-scratch", "WORK"], UsageError, "labels of a known dataset"),
        (["hgldv2", "--from-scratch", "WORK"], DataError, "raw files of hgldv2 are not in"),
        (["hgldv2", "--from-scratch", "WORK", "--force"], UsageError, "would do nothing"),
        (["hgldv2", "--contact", "me@example.org"], UsageError, "requests of --from-scratch"),
        (["nosuch"], UnknownName, "unknown dataset"),
        (["--from", "missing.csv"], DataError, "does not exist"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(
    birds, home, tmp_path, arguments, error, message
):
    zoo = folder_of_images(tmp_path / "zoo", ["bird/crow/1.jpg", "fish/2.jpg"])
    homonym, nodes, cycle = (tmp_path / name for name in ("homonym.csv", "nodes.csv", "cycle.csv"))
    homonym.write_text(
        "item,order,genus,split,fold\n1,birds,crow,x,train\n2,birds,crow,x,train\n3,fish,crow,y,test\n"
    )
    nodes.write_text("item,node\n1,owl\n2,owl\n")
    cycle.write_text("parent,child\nbirds,owl\nbirds,crow\na,b\nb,a\nbirds,a\n")
    named = {"BIRDS": birds, "BIRDS/below": birds / "below", "ZOO": zoo, "WORK": tmp_path / "work"}
    named |= {"HOMONYM": homonym, "NODES": nodes, "CYCLE": cycle}
    with pytest.raises(error, match=message):
        build(*(named.get(part, part) for part in arguments))
    assert not home.exists()


@pytest.mark.parametrize(
    "name",
    [
        "../esc",
        "a/b",
        "/esc",
        "..",
        ".",
        ".hid",
        "leaderboards",
        "sop@1",
        "a b",
        "x.csv",
        "a\n",
        "a\\b",
        "-x",
    ],
)
def test_a_name_that_is_not_one_plain_word_is_refused_and_nothing_is_written(birds, home, name):
    with pytest.raises(UsageError, match="cannot be the name of a dataset"):
        build("--from", birds, *TABLE, "--", name)
    assert not home.exists()


def test_a_dataset_in_use_is_replaced_only_by_force(birds, tmp_path):
    table = ["--from", birds, *TABLE]
    build("mine", *table)
    version = load("mine").version
    assert load(f"mine@{version}").name == "mine"
    with pytest.raises(DataError, match="another version of mine"):
        load("mine@1")
    birds.write_text(BIRDS.replace("mallard", "teal"))
    with pytest.raises(UsageError, match="there is a dataset mine already"):
        build("mine", *table)
    assert load("mine").version == version
    build("mine", *table, "--out", tmp_path / "elsewhere")
    build("mine", *table, "--force")
    assert load("mine").version == load(tmp_path / "elsewhere").version != version


def test_a_split_column_that_is_not_used_is_named(birds):
    birds.write_text(BIRDS.replace(",fold", ",split"))
    assert "the column split is not used" in build("a", "--from", birds, *TABLE).stderr
    output = build("b", "--from", birds, *TABLE, "--split-column", "split")
    assert "is not used" not in output.stderr
    # as evaluate takes it, whatever its title
    birds.write_text(BIRDS.replace(",fold", ",my part"))
    assert (
        "for training; --split-column 'my part' uses it"
        in build("c", "--from", birds, *TABLE).stderr
    )


def test_a_validation_beside_the_training_alone_is_the_test_and_said(birds):
    """As Open Metric Learning's tables have it."""
    birds.write_text(BIRDS.replace(",test", ",validation").replace(",fold", ",split"))
    output = build("oml", "--from", birds, *TABLE, "--split-column", "split")
    assert "validation is the test" in output.stderr
    assert len(load("oml").tests["test"]) == 3


def test_a_validation_beside_a_test_is_used_for_neither_and_said(birds):
    birds.write_text(
        BIRDS.replace("mallard,test", "mallard,Validation").replace(",train", ",Training")
    )
    whole = BIRDS.count("\n") - 1
    output = build("three", "--from", birds, *TABLE, "--split-column", "fold")
    data = load("three")
    (unused,) = data.dropped
    assert "neither trained on nor tested" in " ".join(output.stderr.split())
    assert unused not in {*data.train.items, *data.tests["test"].items}
    assert len(data.train) + len(data.tests["test"]) == whole - 1


def test_pictures_of_rows_that_are_unused_have_a_label(birds):
    birds.write_text(BIRDS.replace("mallard,test", "mallard,validation"))
    folder_of_images(birds.parent, ["c1.jpg"])
    output = build("seven", "--from", birds, *TABLE, "--split-column", "fold")
    assert "without a label" not in output.stderr


def test_where_no_picture_is_there_the_folder_that_has_some_is_named(birds):
    folder_of_images(birds.parent / "photographs", ["a1.jpg"])
    said = build("eight", "--from", birds, *TABLE).stderr
    assert "--root names the folder of the images, such as photographs" in said


@pytest.mark.parametrize(
    ("cell", "said"), [("", "an empty cell in 1 row"), ("fold 3", "'fold 3' in 1 row")]
)
def test_a_cell_that_names_no_split_is_refused_with_a_way_on(birds, cell, said):
    birds.write_text(BIRDS.replace("mallard,test", f"mallard,{cell}"))
    output = CliRunner().invoke(
        command, ["four", "--from", str(birds), *TABLE, "--split-column", "fold"]
    )
    assert isinstance(output.exception, DataError)
    assert said in output.exception.found
    assert "--split-by LEVEL" in output.exception.fix


def test_the_column_of_ids_is_named_as_the_refusal_of_a_table_without_says(birds):
    birds.write_text(BIRDS.replace("path,", "shot,"))
    refused = CliRunner().invoke(command, ["six", "--from", str(birds), *LEVELS]).exception
    assert "--item-column shot" in refused.fix
    assert "items by shot" in build("six", "--from", birds, *LEVELS, "--item-column", "shot").stderr


def test_a_named_column_of_splits_is_no_level_whatever_its_words(birds):
    birds.write_text(BIRDS.replace(",train", ",one").replace(",test", ",two"))
    words = ["six", "--from", str(birds), "--image-column", "path", "--split-column", "fold"]
    refused = CliRunner().invoke(command, words)
    assert "unknown values" in refused.exception.problem
    assert "levels order (2) › family (3) › species (3);" in refused.stderr


def test_a_dataset_that_is_built_is_not_split_again(birds):
    build("whole", "--from", birds, *TABLE, "--split-column", "fold")
    words = ["again", "--from", "whole", "--split-by", "order"]
    refused = CliRunner().invoke(command, words).exception
    assert "whole is a dataset that is built, and has its split already" in str(refused)
    assert "build from its table or folder" in refused.fix


def test_a_table_without_a_split_is_said_to_train_nothing(birds):
    assert "none is for training" in build("five", "--from", birds, *TABLE).stderr


@pytest.fixture
def hugging_face(tmp_path):
    """A parquet file as the datasets library writes it: an Image column, and a number per class."""
    pictures = [("red", None), ("blue", "b.png"), ("red", "c.PNG")]
    images = [{"bytes": png(colour), "path": path} for colour, path in pictures]
    table = pa.table({"image": images, "family": ["x", "x", "y"], "species": [0, 1, 2]})
    pq.write_table(table, tmp_path / "birds.parquet")
    return tmp_path / "birds.parquet"


def test_a_column_of_texts_is_no_level_unless_it_is_named_as_one(tmp_path):
    """Every class of it holds one item, so that no query would have a positive and every AP be
    undefined.
    """
    rows = [f"{i}.jpg,{'ab'[i % 2]},note {i}\n" for i in range(6)]
    (tmp_path / "zoo.csv").write_text("item,class,caption\n" + "".join(rows))
    found = load(tmp_path / "zoo.csv")
    assert found.levels == ("class",)
    assert "caption (differs in every row)" in str(found.read)
    with pytest.raises(
        DataError, match="no two items share a name of the level caption"
    ) as refusal:
        build("--from", tmp_path / "zoo.csv", "--levels", "class,caption")
    assert "6 rows, 6 different texts" in str(refusal.value)


def test_a_table_of_ten_thousand_columns_is_refused(tmp_path):
    columns = [f"c{number}" for number in range(10_000)]
    rows = [["item", *columns], *([f"i{row}", *columns] for row in range(20))]
    (tmp_path / "wide.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    file = tmp_path / "wide.csv"
    with pytest.raises(TreeError, match="at most 255 levels"):
        load(file)
    with pytest.raises(TreeError, match="at most 255 levels"):
        build("--from", file, "--levels", ",".join(columns[:256]))


def test_images_inside_a_table_become_files_and_copies_are_counted(hugging_face):
    output = build("birds", "--from", hugging_face, "--levels", "family,species")
    test = load("birds").tests["test"]
    assert test.items.tolist() == ["00000000.png", "00000001.png", "00000002.png"]
    assert [test.picture(item).getpixel((0, 0)) for item in test.items] == [
        (255, 0, 0),
        (0, 0, 255),
        (255, 0, 0),
    ]
    assert "3 of 3 images are there" in output.stderr
    assert "2 of 3 pictures (67 %) are copies" in output.stderr.replace("\n", " ")


@pytest.fixture
def icons(tmp_path):
    """Close and cross are aliases: they hold the same pictures; star shares one of them."""
    red, blue = ["close/a", "cross/a", "star/a"], ["close/b", "cross/b", "cross/c"]
    for colour, items in (("red", red), ("blue", blue), ("green", ["star/b"])):
        touch(tmp_path / "icons", [f"ui/{item}.png" for item in items], png(colour))
    return tmp_path / "icons"


def test_copies_under_other_labels_are_counted_and_listed(icons, home):
    output = build("--from", icons, "--levels", "set,icon").stderr.replace("\n", " ")
    said = (
        "6 of 7 pictures (86 %) are copies, byte for byte, of a picture with another label: "
        "icon 'close' and"
    )
    assert said in output
    for choice in ("merge", "first"):
        assert f"--copies {choice}: of the 6 items that share 2 pictures, 2 stay and 4" in output
        assert "left out; 2 icon instead of 3" in output
    listed = (home / "data" / "icons" / "copies.csv").read_text().splitlines()
    assert listed[:2] == [
        "item,copy,item_path,copy_path",
        "ui/close/a.png,ui/cross/a.png,ui > close,ui > cross",
    ]
    assert len(listed) == 1 + 4


@pytest.mark.parametrize(
    ("choice", "classes"), [("merge", "cross cross star"), ("first", "close close star")]
)
def test_copies_are_merged_or_left_out_where_that_is_asked_for(icons, choice, classes):
    said = build("--from", icons, "--levels", "set,icon", "--copies", choice).stderr
    assert "without a label" not in said
    test = load("icons").tests["test"]
    assert test.items.tolist() == ["ui/close/a.png", "ui/close/b.png", "ui/star/b.png"]
    assert [test.tree.names[-1][label] for label in test.labels[:, -1]] == classes.split()


def test_test_pictures_in_the_training_set_are_counted_and_no_split_is_emptied(tmp_path):
    for split, colours in (("train", ("red", "blue")), ("test", ("red", "green"))):
        for place, colour in enumerate(colours):
            touch(
                tmp_path / "zoo", [f"{split}/a/{place}.png", f"{split}/b/{place}.png"], png(colour)
            )
    options = ["--from", tmp_path / "zoo", "--split-folders", "--force"]
    assert "2 test pictures are in the training set, too" in build(*options).stderr.replace(
        "\n", " "
    )
    touch(tmp_path / "zoo", [f"train/{name}/1.png" for name in "ab"], png("red"))
    with pytest.raises(DataError, match="leaves nothing of train"):
        build(*options, "--copies", "first")


def test_options_of_an_own_table_are_refused_without_one(home):
    with pytest.raises(UsageError, match="--split-by, --seed are of a table or folder of your own"):
        build("glyphs", "--split-by", "base", "--seed", "0")
    assert not (home / "data" / "glyphs").exists()


def test_pictures_that_are_not_taken_or_cannot_be_read_are_counted_and_named(tmp_path):
    folder_of_images(tmp_path / "zoo", ["a/1.jpg", "a/2.jpg", "b/3.png"])
    for name in ("a/4.HEIC", "a/5.heic", "b/6.jp2", "b/7.svg"):
        (tmp_path / "zoo" / name).write_bytes(b"not opened")
    (tmp_path / "zoo" / "a" / "2.jpg").write_bytes(b"damaged")
    (tmp_path / "zoo" / "b" / "8.png").write_bytes(b"")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    Image.fromarray(noise).save(tmp_path / "zoo" / "b" / "9.jpg")
    whole = (tmp_path / "zoo" / "b" / "9.jpg").read_bytes()
    (tmp_path / "zoo" / "b" / "9.jpg").write_bytes(whole[: len(whole) // 2])
    output = build("--from", tmp_path / "zoo").stderr.replace("\n", " ")
    assert (
        "not taken: 2 .heic (a/4.HEIC, a/5.heic), 1 .jp2 (b/6.jp2), 1 .svg (b/7.svg); make PNG or "
        "JPEG" in output
    )
    assert "pillow-heif" in output
    assert "3 pictures cannot be read" in output
    assert "a/2.jpg (no image), b/8.png (no image)" in output
    assert "b/9.jpg (image file is truncated" in output


def test_a_column_of_images_is_not_a_level_and_one_without_images_is_refused_and_leaves_nothing(
    hugging_face, home
):
    with pytest.raises(DataError, match="no column of ids"):
        load(hugging_face)  # its images have no names
    with pytest.raises(DataError, match="column image holds no names") as refusal:
        build(
            "birds",
            "--from",
            hugging_face,
            "--levels",
            "image,species",
            "--image-column",
            "species",
        )
    assert "PNG" not in str(refusal.value)
    table = pq.read_table(hugging_face)
    pq.write_table(
        table.set_column(0, "image", pa.array([{"bytes": None, "path": "a.png"}] * 3)), hugging_face
    )
    with pytest.raises(DataError, match="3 rows without an image"):
        build("birds", "--from", hugging_face, "--levels", "family,species")
    assert not home.exists()


def test_a_refusal_names_the_nodes_and_what_each_policy_would_do_to_them(tmp_path):
    folder_of_images(
        tmp_path / "zoo",
        ["bird/crow/1.jpg", "bird/crow/2.jpg", "fish/crow/1.jpg", "fish/carp/1.jpg"],
    )
    with pytest.raises(TreeError) as refusal:
        build("--from", tmp_path / "zoo")
    text = str(refusal.value)
    assert "level2 'crow' in 'bird' and 'fish'" in text
    assert "--policy by-path: renames 3 items; 3 level2 instead of 2" in text
    assert "--policy majority-parent: renames 1 items; 2 level2\n" in text
    assert "--policy drop: leaves out 3 items; 1 level2 instead of 2" in text


@pytest.fixture
def see_through(tmp_path):
    """Images whose transparent parts hide red: with an alpha channel, with a palette, and one lying
    on its side.
    """
    (tmp_path / "shop" / "a").mkdir(parents=True)
    Image.new("RGBA", (2, 3), (255, 0, 0, 0)).save(tmp_path / "shop" / "a" / "alpha.png")
    palette = Image.new("P", (2, 3), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.save(tmp_path / "shop" / "a" / "palette.png", transparency=0)
    exif = Image.Exif()
    exif[274] = 6  # Orientation: to be turned by a quarter
    Image.new("RGB", (2, 3), (0, 0, 255)).save(tmp_path / "shop" / "a" / "turned.png", exif=exif)
    return tmp_path / "shop"


@pytest.mark.parametrize(
    ("options", "seen", "size"),
    [
        ([], (255, 255, 255), (3, 2)),
        (["--background", "#00ff00"], (0, 255, 0), (3, 2)),
        (["--background", "none"], (255, 0, 0), (2, 3)),
    ],
)
def test_own_images_are_seen_as_a_person_sees_them(see_through, options, seen, size):
    build("shop", "--from", see_through, *options)
    test = load("shop").tests["test"]
    assert test.items.tolist() == ["a/alpha.png", "a/palette.png", "a/turned.png"]
    alpha, palette, turned = (test.picture(item) for item in test.items)
    assert [image.convert("RGB").getpixel((0, 0)) for image in (alpha, palette)] == [seen, seen]
    assert turned.size == size


def test_grey_of_16_bits_is_shown_in_8_damaged_exif_turns_nothing_and_numbers_without_a_range_are_refused(
    tmp_path,
):
    grey = np.array([[0, 300], [32768, 65535]])
    for name in ("a/deep.png", "a/deep.tif"):
        (tmp_path / "shop" / "a").mkdir(parents=True, exist_ok=True)
        Image.fromarray(grey.astype(np.uint16)).save(tmp_path / "shop" / name)
        assert np.asarray(open_upright(tmp_path / "shop", name)).tolist() == [[0, 1], [128, 255]]
    Image.new("RGB", (2, 3)).save(tmp_path / "shop" / "a" / "exif.png", exif=b"Exif\x00\x00XX")
    assert open_upright(tmp_path / "shop", "a/exif.png").size == (2, 3)
    for kind in (np.float32, np.int32):
        Image.fromarray(grey.astype(kind)).save(tmp_path / "shop" / "a" / "range.tif")
        with pytest.raises(DataError, match="do not say what is white"):
            open_upright(tmp_path / "shop", "a/range.tif")


def test_published_images_are_opened_as_their_papers_did(see_through, tmp_path):
    """Also from a folder of one's own: the numbers of the papers were made with the hidden
    colours."""
    build("shop", "--from", see_through)
    whole = load("shop")
    published = dataclasses.replace(whole, name="cub200")
    save(published, tmp_path / "built")
    image = load(tmp_path / "built").tests["test"].picture("a/alpha.png")
    assert image.convert("RGB").getpixel((0, 0)) == (255, 0, 0)
    assert "opened as in the papers" in card(specs["cub200"])["pixels"]


def test_what_marks_the_unknown_is_no_class_in_any_count(tmp_path):
    table = tmp_path / "owls.csv"
    rows = ["a,Owls,Barn owl", "b,Owls,Bay owl", "c,Owls,", "d,Parrots,Galah", "e,Parrots,"]
    table.write_text("item,order,species\n" + "\n".join(rows) + "\n", encoding="utf-8")
    out = tmp_path / "data"
    built = call("build", "owls", "--from", table, "--policy", "unknown", "--out", out).stdout
    assert built.splitlines()[1].split("\t")[-2:] == ["2", "3"]
    assert "(3 classes, 5 items)" in call("tree", "show", out).stdout
    assert "2 order, 3 species" in call("datasets", out).stdout
    assert "2 order, 3 species" in repr(load(out).tests["test"])
