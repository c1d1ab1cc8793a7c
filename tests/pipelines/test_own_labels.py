"""A curator's own table of labels, of birds, through the steps up to the mapping."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    assert "mapping.csv, which has the group and the kind of every label" in said
