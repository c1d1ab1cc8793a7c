"""A curator's own table of labels, of birds, through the steps up to the mapping."""

import csv
import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hbench
from hbench.tree.names import class_rows
from tests.command_line import call, refusal
from tests.pipelines.official import rows_of

BIRDS = {
    "1400": ("blackbird", 32), "1000": ("song thrush", 20), "1300": ("wood thrush", 29),
    "1007": ("barn owl", 18), "1107": ("tawny owl", 23), "1207": ("snowy owl", 26),
    "1014": ("tufted duck", 19), "1114": ("wood duck", 22),
}  # fmt: skip
ROWS = [(class_id, label, count) for class_id, (label, count) in BIRDS.items()]
BY_COUNT = sorted(BIRDS, key=lambda class_id: -BIRDS[class_id][1])


def table(path, header, rows, delimiter=","):
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, delimiter=delimiter).writerows([header, *rows])
    return path


def clean(work, *words):
    return call("hgldv2", "--work", work, "clean", "--labels", *words).stderr


def refused(work, *words):
    return refusal("hgldv2", "--work", work, "clean", "--labels", *words)


@pytest.mark.parametrize(
    "header",
    [
        ("id", "label", "count"),
        ("class_id", "name", "n"),
        ("taxonID", "scientificName", "n_images"),
        ("Object ID", "Title", "Objects"),
        ("gbif-id", "vernacular_name", "landmarks"),
    ],
)
def test_columns_are_taken_by_their_titles_and_named_on_stderr(tmp_path, header):
    said = clean(tmp_path / "w", table(tmp_path / "birds.csv", header, ROWS))
    for part, column in zip(("id", "label", "count"), header, strict=True):
        assert f"{part} by {column}" in said
    written = rows_of(tmp_path / "w" / "labels.csv")
    assert [row["class_id"] for row in written] == BY_COUNT
    assert [row["label"] for row in written] == [BIRDS[class_id][0] for class_id in BY_COUNT]
    assert [int(row["n_train"]) for row in written] == [BIRDS[i][1] for i in BY_COUNT]


def test_csv_tsv_and_parquet_give_the_same_labels(tmp_path):
    header = ("id", "label", "count")
    table(tmp_path / "a.csv", header, ROWS)
    table(tmp_path / "b.tsv", header, ROWS, delimiter="\t")
    columns = [[int(row[0]) for row in ROWS], [row[1] for row in ROWS], [row[2] for row in ROWS]]
    pq.write_table(pa.table(dict(zip(header, columns, strict=True))), tmp_path / "c.parquet")
    for name in ("a.csv", "b.tsv", "c.parquet"):
        clean(tmp_path / name[0], tmp_path / name)
    labels = [(tmp_path / name / "labels.csv").read_bytes() for name in "abc"]
    assert labels[0] == labels[1] == labels[2]


def test_ambiguous_and_missing_columns_are_one_message_with_the_option_that_settles_them(tmp_path):
    rows = [("1", "Turdus merula", "blackbird", "black")]
    header = ("taxonID", "scientificName", "vernacularName", "colour")
    said = refused(tmp_path, table(tmp_path / "birds.csv", header, rows))
    assert "no single column for the label and the count" in said
    assert "scientificName and vernacularName may each be the label" in said
    assert "--columns label=scientificName,count=COLUMN" in said


def test_columns_can_be_named(tmp_path):
    header = ("number", "id", "title", "name", "times")
    rows = [(place, *row[:2], "?", row[2]) for place, row in enumerate(ROWS)]
    file = table(tmp_path / "birds.csv", header, rows)
    said = clean(tmp_path / "w", file, "--columns", "label=title, count=times")
    assert "label by title" in said
    assert "columns number (not used), name (not used)" in said
    assert [row["class_id"] for row in rows_of(tmp_path / "w" / "labels.csv")] == BY_COUNT


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("label", "--columns cannot be read"),
        ("lable=name", "did you mean 'label'"),
        ("label=naem", "did you mean 'name'"),
        ("label=name,label=id", "names label twice"),
    ],
)
def test_columns_that_cannot_be_read_are_refused(tmp_path, columns, problem):
    file = table(tmp_path / "birds.csv", ("id", "name", "n"), ROWS)
    assert problem in refused(tmp_path, file, "--columns", columns)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("1000", "song thrush again", "3"), "an id of its own"),
        (("", "robin", "3"), "an id"),
        (("a|b", "robin", "3"), "an id without |"),
        (("group:robin", "robin", "3"), "not beginning with group:"),
        (("9", "robin", "many"), "a whole number"),
        (("9", "robin", "-3"), "a whole number"),
        (("9", "robin", ""), "a whole number"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_by_their_numbers(tmp_path, row, problem):
    file = table(tmp_path / "birds.csv", ("id", "name", "n"), [*ROWS, row])
    said = refused(tmp_path, file)
    assert problem in said
    assert f"row {len(ROWS) + 1}: {row[0]!r}" in said
    assert not (tmp_path / "labels.csv").exists()


def test_rows_without_a_label_are_left_out_and_counted(tmp_path):
    rows = [*ROWS, ("77", " ", "3"), ("78", "", "")]
    said = clean(tmp_path / "w", table(tmp_path / "birds.csv", ("id", "name", "n"), rows))
    assert "rows without a label, left out: 2" in said
    record = json.loads((tmp_path / "w" / "labels.csv.json").read_text(encoding="utf-8"))
    assert record["counts"] == {"labels": len(BIRDS), "no_label": 2}


def test_options_of_two_starts_are_refused(tmp_path):
    file = table(tmp_path / "birds.csv", ("id", "name", "n"), ROWS)
    assert "two starts" in refused(tmp_path, file, "--released", "train", file)
    assert "for scraped links" in refused(tmp_path, file, "--rules", file)
    assert "give --labels FILE" in refusal(
        "hgldv2", "--work", tmp_path, "clean", "--columns", "id=id"
    )


def test_a_table_that_the_step_would_overwrite_is_refused(tmp_path):
    file = table(tmp_path / "labels.csv", ("id", "name", "n"), ROWS)
    before = file.read_bytes()
    assert "is a file that this step writes" in refused(tmp_path, file)
    assert file.read_bytes() == before


def test_k_is_not_chosen_by_a_stability_of_one_sample(tmp_path):
    words = ("hgldv2", "--work", tmp_path, "sweep", "--k", "2,3", "--resamples", "1")
    assert "--resamples of 2 or more" in refusal(*words)


def test_the_step_is_up_to_date_until_the_table_or_the_columns_change(tmp_path):
    header = ("id", "name", "title", "n")
    rows = [(class_id, label, f"the {label}", count) for class_id, label, count in ROWS]
    file = table(tmp_path / "birds.csv", header, rows)
    clean(tmp_path / "w", file, "--columns", "label=name")
    assert "is up to date" in clean(tmp_path / "w", file, "--columns", "label=name")
    assert "is up to date" not in clean(tmp_path / "w", file, "--columns", "label=title")


def test_assemble_says_that_a_table_of_labels_has_no_landmarks(tmp_path):
    clean(tmp_path, table(tmp_path / "birds.csv", ("id", "name", "n"), ROWS))
    said = refusal("hgldv2", "--work", tmp_path, "assemble")
    assert "assemble --labels" in said


DECISIONS = """
groups: {thrush: {kind: songbird}, owl: {kind: bird of prey}}
decisions:
- {id: a, op: name, members_of: ["1000", "1300"], to: thrush}
- {id: b, op: name, members_of: ["1007", "1107", "1207"], to: owl}
- {id: c, op: drop, labels: ["1014"]}
"""
PHOTOGRAPHS = [
    (f"{i}-{n}.jpg", i, "test" if n else "train") for i in [*BIRDS, "9"] for n in range(2)
]


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    """A work folder with the mapping of a few decisions."""
    work = tmp_path_factory.mktemp("birds")
    clean(work, table(work / "birds.csv", ("id", "label", "count"), ROWS))
    call("hgldv2", "--work", work, "encode", "--encoder", "tfidf")
    call("hgldv2", "--work", work, "cluster", "--k", "3")
    (work / "decisions.yaml").write_text(DECISIONS)
    call("hgldv2", "--work", work, "replay")
    return work


@pytest.mark.parametrize("by", ["id", "name"])
def test_items_with_labels_become_a_dataset_of_kinds_groups_and_labels(mapped, tmp_path, by):
    names = {i: label for i, (label, _) in BIRDS.items()} if by == "name" else {}
    rows = [(photo, names.get(i, i), split) for photo, i, split in PHOTOGRAPHS]
    photographs = table(tmp_path / "photographs.csv", ("photo", "what", "split"), rows)
    words = ("assemble", "--labels", photographs, "--split-column", "split")
    said = call("hgldv2", "--work", mapped, *words).stderr
    assert "labels by what: 10 of 18 items have a group" in said
    assert f"pictures below {tmp_path}" in said
    again = next(line for line in said.splitlines() if "with options of hbench build" in line)
    _program, *words, _dots = shlex.split(again.partition(": ")[2])
    call(*words, "--copies", "first")
    data = hbench.load(mapped / "dataset")
    assert data.levels == ("kind", "group", "label")
    test = data.tests["test"]
    paths = class_rows(test.tree)
    found = {
        (item, *paths[leaf]) for item, leaf in zip(test.items, test.labels[:, -1], strict=True)
    }
    of_group = {"1000": "thrush", "1300": "thrush", "1007": "owl", "1107": "owl", "1207": "owl"}
    kinds = {"thrush": "songbird", "owl": "bird of prey"}
    assert found == {
        (f"{i}-1.jpg", kinds[group], group, BIRDS[i][0]) for i, group in of_group.items()
    }
    assert len(data.train.items) == len(of_group)


def test_what_build_advises_of_items_is_done_by_the_command_that_is_printed(mapped, tmp_path):
    rows = [(photo, i) for photo, i, _ in PHOTOGRAPHS]
    photographs = table(tmp_path / "photographs.csv", ("photo", "what"), rows)
    said = call("hgldv2", "--work", mapped, "assemble", "--labels", photographs).stderr
    again = next(line for line in said.splitlines() if "such as --split-by: " in line)
    _program, *words, _dots = shlex.split(again.partition("--split-by: ")[2])
    call(*words, "--split-by", "group", "--test-fraction", "0.5")
    dealt = hbench.load(mapped / "dataset")
    groups = [{*each.tree.names[1]} for each in (dealt.train, dealt.tests["test"])]
    assert not groups[0] & groups[1]


def test_items_that_are_left_out_are_counted_by_their_reason(mapped, tmp_path):
    rows = [(photo, i) for photo, i, _ in PHOTOGRAPHS]
    photographs = table(tmp_path / "photographs.csv", ("item", "label"), rows)
    said = call("hgldv2", "--work", mapped, "assemble", "--labels", photographs).stderr
    assert "left out: 2 items (dropped: " in said
    assert "left out: 2 items (no such label: " in said
    assert "left out: 4 items (needs_review: '1114', '1400')" in said


def test_a_table_without_a_column_of_labels_is_refused(mapped, tmp_path):
    other = table(tmp_path / "other.csv", ("item", "colour"), [("a.jpg", "red")])
    said = refusal("hgldv2", "--work", mapped, "assemble", "--labels", other)
    assert "no column of labels" in said
    assert "item, colour" in said


def test_the_tree_of_a_mapping_is_read(mapped):
    shown = json.loads(call("tree", "show", mapped / "mapping.csv", "--json").stdout)
    assert [level["level"] for level in shown["statistics"]] == ["kind", "group", "label"]
    assert [level["nodes"] for level in shown["statistics"]] == [2, 2, 5]


@pytest.mark.parametrize(("label", "is_said"), [("{}", True), ("the {} of the north", False)])
def test_letters_are_said_to_be_all_that_tfidf_sees_of_short_labels(tmp_path, label, is_said):
    rows = [(class_id, label.format(name), count) for class_id, name, count in ROWS]
    clean(tmp_path, table(tmp_path / "birds.csv", ("id", "label", "count"), rows))
    said = call("hgldv2", "--work", tmp_path, "encode", "--encoder", "tfidf").stderr
    assert ("MiniLM" in said) == is_said


def test_items_without_an_id_are_refused_with_the_column_that_may_be_theirs(mapped, tmp_path):
    rows = [(photo, i) for photo, i, _ in PHOTOGRAPHS]
    photographs = table(tmp_path / "shots.csv", ("shot", "label"), rows)
    said = refusal("hgldv2", "--work", mapped, "assemble", "--labels", photographs)
    assert "no column of ids" in said
    assert "shot" in said
    words = ("hgldv2", "--work", mapped, "assemble", "--labels", photographs)
    assert "items by shot" in call(*words, "--item-column", "shot").stderr
