"""Which column is what: tables as other tools write them, with columns that are no levels, in any
order and under any delimiter.
"""

import csv

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench import load
from hbench.core.errors import DataError, UnknownName
from hbench.sheets.columns import NOTHING, Chosen, columns_of

SPECIES = [
    ("Owls", "Barn owl"),
    ("Owls", "Bay owl"),
    ("Parrots", "Galah"),
    ("Parrots", "Kea"),
    ("Parrots", "Corella"),
]
ITEMS = [(f"img_{n:03}.jpg", *SPECIES[n % 5]) for n in range(30)]
JUNK = {
    "": lambda n, _: str(n),
    "Unnamed: 0": lambda n, _: str(n),
    "index": lambda n, _: str(n + 1),
    "weight": lambda n, _: f"{n * 0.37 + 0.01:.2f}",
    "breite": lambda n, _: f"{n % 7},{n % 10}",
    "caption": lambda n, row: f"a {row[2]}, number {n}",
    "eventDate": lambda n, _: f"2021-03-{n % 28 + 1:02}",
    "taken": lambda n, _: f"2021-03-{n % 28 + 1:02}T10:00:00",
    "species_id": lambda _, row: str(SPECIES.index(row[1:])),
    "width": lambda n, _: str(600 + n * n % 11),
}


def written(path, columns, rows, **how):
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator=how.pop("lineterminator", "\n"), **how).writerows(
            [columns, *rows]
        )
    return path


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(["item", "id", "filename", "image_path", "file_name", "path"]),
    st.lists(st.sampled_from(sorted(JUNK)), unique=True, max_size=4),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.randoms(use_true_random=False),
)
def test_what_is_no_level_is_left_out_wherever_it_stands(
    tmp_path, item, junk, mark, quoting, ends, random
):
    columns = {item: 0, "order": 1, "species": 2} | dict.fromkeys(junk)
    names = list(columns)
    if "" in names:  # pandas writes its index first
        names.remove("")
    random.shuffle(names)
    names = ([""] if "" in columns else []) + names
    rows = [
        [row[columns[name]] if columns[name] is not None else JUNK[name](n, row) for name in names]
        for n, row in enumerate(ITEMS)
    ]
    path = written(
        tmp_path / "t.csv", names, rows, delimiter=mark, quoting=quoting, lineterminator=ends
    )
    found = load(path)
    test = found.tests["test"]
    assert found.levels == ("order", "species")
    named = {
        str(each): tuple(names[i] for names, i in zip(test.tree.names, labels, strict=True))
        for each, labels in zip(test.items, test.labels, strict=True)
    }
    assert named == {row[0]: row[1:] for row in ITEMS}
    for name in junk:
        assert (name or "(without a name)") in str(found.read)


@pytest.mark.parametrize(
    "names", [("is_query", "is_gallery"), ("query", "gallery"), ("IS_QUERY", "Gallery")]
)
@pytest.mark.parametrize("words", [("True", "False"), ("1", "0"), ("1.0", "0.0"), ("yes", "no")])
def test_masks_are_read_under_the_names_that_other_packages_give_them(tmp_path, names, words):
    rows = [[*row, words[n % 2], words[0]] for n, row in enumerate(ITEMS)]
    test = load(written(tmp_path / "t.csv", ["item", "order", "species", *names], rows)).tests[
        "test"
    ]
    assert (int(test.query.sum()), int(test.gallery.sum())) == (15, 30)


@pytest.mark.parametrize("title", ["split", "subset", "fold", "partition"])
def test_a_column_of_train_and_test_is_the_split_whatever_its_title(tmp_path, title):
    rows = [[*row, "train" if row[2] == "Kea" else "test"] for row in ITEMS]
    found = load(written(tmp_path / "t.csv", ["item", "order", "species", title], rows))
    assert (len(found.train), len(found.tests["test"])) == (6, 24)


def test_levels_that_stand_from_fine_to_coarse_are_turned_and_said(tmp_path):
    rows = [[row[0], row[2], row[1]] for row in ITEMS]
    found = load(written(tmp_path / "t.csv", ["item", "species", "order"], rows))
    assert found.levels == ("order", "species")
    assert "stand otherwise" in str(found.read)


def test_one_name_under_two_parents_turns_no_columns():
    rows = [
        ["1", "Plantae", "Iris", "a"],
        ["2", "Animalia", "Iris", "b"],
        ["3", "Fungi", "Boletus", "c"],
        ["4", "Fungi", "Boletus", "d"],
    ]
    table = pa.table(
        dict(zip(["item", "kingdom", "genus", "species"], zip(*rows, strict=True), strict=True))
    )
    assert columns_of(table, NOTHING).levels == ("kingdom", "genus", "species")


def test_a_level_of_one_class_is_kept_and_said(tmp_path):
    found = load(
        written(
            tmp_path / "t.csv",
            ["item", "zoo", "order", "species"],
            [[row[0], "x", *row[1:]] for row in ITEMS],
        )
    )
    assert found.levels == ("zoo", "order", "species")
    assert "zoo: one class each, which adds nothing but counts in H-AP" in str(found.read)


def test_two_levels_of_names_for_the_same_classes_are_kept_and_said(tmp_path):
    latin = dict(zip([name for _, name in SPECIES], "abcde", strict=True))
    rows = [[*row, latin[row[2]]] for row in ITEMS]
    found = load(written(tmp_path / "t.csv", ["item", "order", "species", "latin"], rows))
    assert found.levels == ("order", "species", "latin")
    assert "latin has the same classes as species" in str(found.read)


@pytest.mark.parametrize("marker", ["taxonRank", "scientificName", "basisOfRecord", "gbifID"])
def test_an_export_of_biodiversity_data_has_its_ranks_as_levels(tmp_path, marker):
    rows = [
        ["Animalia", row[1], row[2], f"{n}", row[0], "Somewhere"] for n, row in enumerate(ITEMS)
    ]
    titles = ["kingdom", "order", "species", marker, "occurrenceID", "locality"]
    found = load(written(tmp_path / "t.csv", titles, rows, delimiter="\t"), item="occurrenceID")
    assert found.levels == ("kingdom", "order", "species")
    assert "locality (not a rank)" in str(found.read)


def test_what_a_user_names_is_taken_as_it_is(tmp_path):
    rows = [[row[0], f"other/{row[0]}", row[1], row[2], str(n)] for n, row in enumerate(ITEMS)]
    path = written(tmp_path / "t.csv", ["filename", "path", "order", "species", "number"], rows)
    with pytest.raises(DataError, match="several columns could name the items") as refusal:
        load(path)
    assert "--item-column filename" in refusal.value.fix
    found = load(path, item="path", levels=["species"])
    assert (found.levels, found.tests["test"].items[0]) == (("species",), "other/img_000.jpg")
    with pytest.raises(UnknownName, match="unknown column 'genus'"):
        load(path, item="path", levels=["genus"])


def test_a_table_whose_header_is_missing_is_remarked_on(tmp_path):
    (tmp_path / "t.csv").write_text(
        "".join(f"{name},{order}\n" for _, order, name in [])
        + "item,Owls\na,Owls\nb,Owls\nc,Kea\nd,Kea\n"
    )
    assert "does the header line miss?" in str(load(tmp_path / "t.csv").read)


@pytest.mark.parametrize("mark", ["|", ";"])
def test_cells_with_several_labels_are_refused_as_such(tmp_path, mark):
    rows = [["1", "dog"], ["2", "cat"], ["3", f"dog{mark}cat"], ["4", "dog"]]
    with pytest.raises(DataError, match="several labels") as refusal:
        load(written(tmp_path / "t.csv", ["item", "kind"], rows, delimiter=","))
    assert f"dog{mark}cat" in refusal.value.found


def test_an_item_in_two_rows_with_other_labels_is_refused_as_such(tmp_path):
    with pytest.raises(DataError, match="1 items have several labels, in several rows"):
        load(
            written(
                tmp_path / "t.csv", ["item", "kind"], [["1", "dog"], ["1", "cat"], ["2", "cat"]]
            )
        )


def test_a_list_of_labels_is_refused_as_such(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"item": ["1", "2"], "kind": [["dog"], ["dog", "cat"]]}), tmp_path / "t.parquet"
    )
    with pytest.raises(DataError, match="several labels"):
        load(tmp_path / "t.parquet")


def test_a_table_with_a_row_per_class_keeps_all_of_its_columns():
    table = pa.table({"order": ["1", "1", "2"], "species": ["10", "11", "12"]})
    assert columns_of(table, Chosen(), of_items=False).levels == ("order", "species")
