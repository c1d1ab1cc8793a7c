"""hbench tree as a person meets it: printed, checked, mended, exported and drawn; one clear message
for each fault.
"""

import csv
import hashlib
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq
import pytest

from hbench.datasets import load, save
from hbench.tree.files import read
from tests.command_line import in_folder
from tests.raw_folders import touch

TREES = Path(__file__).parents[1] / "golden" / "trees"
INAT, CUB = TREES / "inat2018_names.csv.gz", TREES / "cub_species_family_order.csv"
MENDED = ["--policy", "by-path", "--policy", "fill-from-parent"]
MESSY = "parent,child\nthing,animal\nthing,plant\nanimal,cat\nanimal,dog\nplant,dog\ndog,pug\na,b\nb,c\nc,a\n,x\n"


def hbench(folder, *words, code=0):
    return in_folder(folder, "tree", *words, code=code)


def test_a_built_in_dataset_is_shown_with_its_classes_items_and_statistics(tmp_path):
    lines = hbench(tmp_path, "show", "glyphs", "--depth", "2").stdout.splitlines()
    assert lines[0] == "root  (1,635 classes, 20,638 items)"
    assert lines[1:4] == [
        "├── Armenian  (77 classes, 924 items)",
        "│   ├── Armenian capital  (38 classes, 456 items)",
        "│   └── Armenian small  (39 classes, 468 items)",
    ]
    table = "\n".join(lines[lines.index("    └── Latin small  (526 classes, 6,852 items)") + 1 :])
    assert "script\t5\t5 / 5 / 5\t" in table
    assert table.count("\n") == 4


def test_a_node_shows_some_children_and_says_how_many_more_there_are(tmp_path):
    rows = "\n".join(f"{'even' if i % 2 == 0 else 'odd'},[red]{i}[/red]" for i in range(40))
    (tmp_path / "t.csv").write_text(f"coarse,fine\n{rows}\n")
    few = hbench(tmp_path, "show", "t.csv", "--max-children", 3).stdout
    assert few.count("… 17 more") == 2
    assert "│   ├── [red]2[/red]\n" in few
    every = hbench(tmp_path, "show", "t.csv", "--max-children", 0).stdout
    assert "more" not in every
    assert sum(f"[red]{i}[/red]\n" in every for i in range(40)) == 40


def test_a_tree_is_shown_as_json(tmp_path):
    (tmp_path / "t.csv").write_text("item,coarse,fine\n1,a,x\n2,a,x\n3,b,y\n")
    shown = json.loads(hbench(tmp_path, "show", "t.csv", "--json").stdout)
    levels = [(level["level"], level["nodes"], level["largest"]) for level in shown["statistics"]]
    assert levels == [("coarse", 2, ["a", 2]), ("fine", 2, ["x", 2])]
    assert shown["tree"]["children"][0] == {"name": "a", "children": [{"name": "x", "items": 2}]}


def test_a_dataset_is_named_by_its_folder_and_its_splits_can_be_told_apart(tmp_path):
    (tmp_path / "t.csv").write_text(
        "item,coarse,fine,split\n1,a,x,train\n2,a,x,train\n3,b,y,test\n"
    )
    save(load(tmp_path / "t.csv"), tmp_path / "built")
    assert hbench(tmp_path, "show", "built").stdout.startswith("root  (2 classes, 3 items)")
    assert hbench(tmp_path, "show", "built", "--split", "train").stdout.startswith(
        "root  (1 class, 2 items)"
    )
    wrong = hbench(tmp_path, "show", "built", "--split", "trian", code=2)
    assert "did you mean 'train'" in wrong.stderr


def test_a_folder_of_images_is_validated_as_it_is(tmp_path):
    touch(tmp_path / "zoo", ["bird/crow/1.jpg", "fish/crow/1.jpg"])
    output = hbench(tmp_path, "validate", "zoo", code=3).stdout
    assert "level2 'crow' in bird and fish (2 items)" in output
    assert hbench(tmp_path, "validate", "zoo", "--policy", "by-path").stderr.startswith(
        "zoo is a tree"
    )


def test_the_real_inaturalist_names_are_refused_with_every_offender_named(tmp_path):
    run = hbench(tmp_path, "validate", INAT, code=3)
    assert "  genus 'Iris' in Tarachodidae and Iridaceae (9 items)\n" in run.stdout
    assert "  order 'NA' in Gastropoda (30 items)\n" in run.stdout
    assert "homonym × 11: " in run.stdout
    assert "  --policy by-path: A node is its whole path" in run.stdout
    assert "17 problems\n  found:    6 placeholders, 11 homonyms\n" in run.stderr


def test_policies_say_what_they_do_and_make_a_tree_of_the_real_names(tmp_path):
    run = hbench(tmp_path, "validate", INAT, *MENDED)
    assert "fill-from-parent changes 34 rows of 34 items\n" in run.stdout
    assert "by-path changes 38 rows of 38 items\n" in run.stdout
    assert "  … 18 more (--all)\n" in run.stdout
    assert (
        "6 kingdom · 25 phylum · 57 class · 273 order · 1,120 family · 4,412 genus · 8,142 species"
        in run.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_policies_say_as_json_what_they_change_and_what_is_left(tmp_path):
    output = json.loads(
        hbench(tmp_path, "validate", INAT, "--policy", "by-path", "--json", code=3).stdout
    )
    assert (output["rows"], len(output["problems"]), len(output["changes"])) == (8142, 18, 38)
    assert {problem["kind"] for problem in output["left"]} == {"placeholder", "spaces"}
    assert output["policies"]["homonym"] == ["by-path", "majority-parent", "drop"]


def test_the_mended_table_keeps_its_other_columns_and_a_record_is_written_beside(tmp_path):
    levels = ["--levels", "order,family,species"]
    hbench(
        tmp_path, "validate", CUB, *levels, "--policy", "majority-parent", "--out", "out/cub.csv"
    )
    before, after = (
        csv.DictReader(file.read_text().splitlines())
        for file in (CUB, tmp_path / "out" / "cub.csv")
    )
    ((one, other),) = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert one == {
        "class_id": "84",
        "species": "Red_legged_Kittiwake",
        "family": "Laridae",
        "order": "Coraciiformes",
    }
    assert other == one | {"order": "Charadriiformes"}
    record = json.loads((tmp_path / "out" / "cub.csv.changes.json").read_text())
    assert record["sha256"] == hashlib.sha256(CUB.read_bytes()).hexdigest()
    assert record["policies"] == ["majority-parent"]
    names = ["Laridae", "Red_legged_Kittiwake"]
    change = {"before": ["Coraciiformes", *names], "after": ["Charadriiformes", *names]}
    assert record["changes"] == [{"policy": "majority-parent", **change, "items": 1}]


def test_rows_are_left_out_columns_cut_and_edges_made_rows_in_the_mended_table(tmp_path):
    (tmp_path / "t.csv").write_text('item,coarse,fine\ni1,a,x\ni2,a,\ni3,NA,y\ni4,b,"z, z"\n')
    hbench(tmp_path, "validate", "t.csv", "--policy", "drop", "--out", "d.tsv")
    assert (tmp_path / "d.tsv").read_text() == "item\tcoarse\tfine\ni1\ta\tx\ni4\tb\tz, z\n"
    hbench(
        tmp_path,
        "validate",
        "t.csv",
        "--policy",
        "cut",
        "--policy",
        "fill-from-parent",
        "--out",
        "c.parquet",
    )
    cut = {"item": ["i1", "i2", "i3", "i4"], "coarse": ["a", "a", "unplaced coarse", "b"]}
    assert pq.read_table(tmp_path / "c.parquet").to_pydict() == cut
    (tmp_path / "e.csv").write_text("parent,child\nr,a\nr,b\na,x\nb,x\nb,y\n")
    hbench(tmp_path, "validate", "e.csv", "--policy", "by-path", "--out", "p.csv")
    assert (tmp_path / "p.csv").read_text() == "level1,level2\na,x (a)\nb,x (b)\nb,y\n"


def test_cycles_roots_ragged_leaves_and_shared_nodes_are_found_in_one_pass(tmp_path):
    (tmp_path / "e.csv").write_text(MESSY)
    run = hbench(tmp_path, "validate", "e.csv", code=3)
    assert "  'a' on the way a > b > c > a\n" in run.stdout
    assert "  the root 'thing' among thing, x\n" in run.stdout
    assert "  level1 'x' ends at x\n" in run.stdout
    assert "  level3 'dog' in animal and plant (2 items)\n" in run.stdout
    assert (
        "found:    1 cycle, several roots, 2 ragged rows, 1 node with several parents" in run.stderr
    )


def test_a_table_that_the_policies_do_not_mend_is_not_written(tmp_path):
    (tmp_path / "e.csv").write_text(MESSY)
    policies = ("--policy", "by-path", "--policy", "add-root")
    run = hbench(tmp_path, "validate", "e.csv", *policies, "--out", "t.csv", code=3)
    assert "after the policies:" in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


def test_the_source_is_never_written_over_and_the_target_must_be_a_table(tmp_path):
    (tmp_path / "t.csv").write_text("coarse,fine\na,x\n")
    assert (
        "would be overwritten"
        in hbench(tmp_path, "validate", "t.csv", "--out", "./t.csv", code=2).stderr
    )
    assert (
        "is not a table" in hbench(tmp_path, "validate", "t.csv", "--out", "t.json", code=2).stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_columns_that_run_from_fine_to_coarse_are_pointed_out(tmp_path):
    run = hbench(tmp_path, "validate", CUB, code=3)
    assert (
        "the columns seem to run from fine to coarse: --levels order,family,species,class_id"
        in run.stdout
    )
    assert "(--all)" in run.stdout


def test_what_counts_as_a_missing_name_can_be_said(tmp_path):
    (tmp_path / "t.csv").write_text("coarse,fine\nNA,x\nEU,TBD\n")
    hbench(tmp_path, "validate", "t.csv", code=3)
    run = hbench(tmp_path, "validate", "t.csv", "--placeholder", "tbd", code=3)
    assert "placeholder × 1" in run.stdout
    assert "fine 'TBD' in EU" in run.stdout


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "nwk"])
def test_a_tree_goes_to_a_file_and_back(tmp_path, suffix):
    arguments = ["export", CUB, "--levels", "order,family,species", "--policy", "by-path"]
    hbench(tmp_path, *arguments, "--out", f"cub.{suffix}")
    printed = hbench(
        tmp_path, *arguments, *(() if suffix == "csv" else ("--format", suffix))
    ).stdout
    assert (tmp_path / f"cub.{suffix}").read_text(encoding="utf-8") == printed
    tree, _ = read(tmp_path / f"cub.{suffix}").tree()
    assert [len(names) for names in tree.names] == [13, 39, 200]
    assert tree.levels == ("order", "family", "species")


def test_a_tree_is_drawn(tmp_path):
    run = hbench(tmp_path, "draw", INAT, *MENDED, "--out", "inat.svg")
    assert "8,142 classes, 7 levels" in run.stderr
    assert ET.parse(tmp_path / "inat.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    by_items = hbench(tmp_path, "draw", "glyphs", "--by-items", "--out", "glyphs.png")
    assert "1,635 classes, 4 levels" in by_items.stderr
    assert (tmp_path / "glyphs.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "nope"], 2, "unknown dataset 'nope'"),
        (["show", "glyph"], 2, "did you mean 'glyphs'"),
        (["show", "missing.csv"], 4, "does not exist"),
        (["show", "missing.nwk"], 4, "does not exist"),
        (["show", "missing/folder"], 4, "does not exist"),
        (["show", "t.csv", "--levels", "coarse,fein"], 2, "did you mean 'fine'"),
        (["show", "t.csv"], 3, "fine 'x' in 'a' and 'b'"),
        (["export", "t.csv", "--format", "xml"], 2, "unknown format 'xml'"),
        (["export", "t.csv", "--out", "tree"], 2, "unknown format ''"),
        (["validate", "t.csv", "--policy", "bypath"], 2, "did you mean 'by-path'"),
        (["draw", "t.csv"], 2, "Missing option '--out'"),
    ],
)
def test_a_mistake_gets_one_message_and_writes_nothing(tmp_path, arguments, code, message):
    (tmp_path / "t.csv").write_text("coarse,fine\na,x\nb,x\n")
    run = hbench(tmp_path, *arguments, code=code)
    assert message in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
