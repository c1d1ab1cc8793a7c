"""Sheets: text tables read and written without loss."""

import csv
import gzip
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.core.errors import DataError
from hbench.core.tables import lines, texts, write_sheet
from hbench.sheets.dialect import suffix_of
from hbench.sheets.sheet import read, read_table

cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
rows = st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=6)


@given(rows)
def test_written_lines_are_read_by_the_csv_module_and_by_hbench(tmp_path_factory, table):
    path = tmp_path_factory.getbasetemp()
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        text = lines(["a", "b", "c"], table, delimiter=delimiter)
        assert list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)) == [
            ["a", "b", "c"],
            *table,
        ]
        file = path / f"table{suffix}"
        file.write_bytes(text.encode())
        read = read_table(file)
        assert [
            list(row) for row in zip(*(texts(read, name) for name in "abc"), strict=True)
        ] == table


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
def test_a_table_written_and_read_keeps_its_texts(tmp_path, name):
    table = pa.table({"item": ["1", "2"], "label": ["NA", 'a, "b"\tc']})
    write_sheet(table, tmp_path / name)
    assert read_table(tmp_path / name).to_pydict() == table.to_pydict()


def test_compressed_tables_and_a_byte_order_mark_are_read(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress("\ufeffa,b\r\n1,None\r\n".encode()))
    assert read_table(tmp_path / "t.csv.gz").to_pydict() == {"a": ["1"], "b": ["None"]}
    assert suffix_of(Path("T.TSV.GZ")) == ".tsv"


def test_values_of_any_type_are_texts_and_nulls_are_empty(tmp_path):
    pq.write_table(
        pa.table({"a": [1, None], "b": pa.array(["x", None]).dictionary_encode()}),
        tmp_path / "t.parquet",
    )
    table = read_table(tmp_path / "t.parquet")
    assert (texts(table, "a"), texts(table, "b")) == (["1", ""], ["x", ""])


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("t.csv", b"", "Empty CSV file"),
        ("t.csv", b"a,b\n", "no rows"),
        ("t.csv", b"a,a\n1,2\n", "a several times"),
        ("t.csv", b"a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("t.csv.gz", b"a,b\n1,2\n", "gzip"),
        ("t.parquet", b"PAR1", "Parquet"),
    ],
)
def test_files_that_are_not_tables_are_refused_with_the_reason(tmp_path, name, content, found):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path / name)
    assert found.lower() in (refusal.value.found or "").lower()
    assert refusal.value.fix is None


@pytest.mark.parametrize(
    ("encoding", "words"), [("cp1252", "cp1252"), ("utf-16", "UTF-16"), ("utf-8-sig", "")]
)
@pytest.mark.parametrize("rows_before", [0, 60_000])
def test_a_table_in_another_encoding_is_read_and_said(tmp_path, encoding, words, rows_before):
    text = "item,species\n" + "a,Owl\n" * rows_before + "b,Käuzchen\n"
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    found = read(tmp_path / "t.csv")
    assert found.table["species"][-1].as_py() == "Käuzchen"
    assert words in found.written


def test_a_table_alone_in_a_zip_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.tsv.zip", "w") as archive:
        archive.writestr("t.tsv", "a\tb\n1\tNone\n")
    assert read_table(tmp_path / "t.tsv.zip").to_pydict() == {"a": ["1"], "b": ["None"]}


@pytest.mark.parametrize("mark", [",", "\t", ";", "|"])
@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_what_stands_between_cells_is_told_by_the_whole_file(tmp_path, mark, quoted, name):
    rows = [
        ["item", "class"],
        ["a, b", "x; y"] if mark not in ",;" or quoted else ["a b", "x y"],
        ["c", "z"],
    ]
    cell = '"{}"'.format if quoted else str
    text = "".join(mark.join(map(cell, row)) + "\n" for row in rows)
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (tmp_path / name).write_bytes(content)
    assert read_table(tmp_path / name).to_pylist() == [
        dict(zip(rows[0], row, strict=True)) for row in rows[1:]
    ]


def test_a_table_that_states_its_separator_is_read_by_it(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfsep=;\r\nitem;class\r\na;x,y\r\n")
    assert read_table(tmp_path / "t.csv").to_pylist() == [{"item": "a", "class": "x,y"}]


def test_a_table_of_semicolons_in_its_names_is_written_so_that_it_is_read_again(tmp_path):
    write_sheet(pa.table({"a;b": ["c;d"]}), tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv").to_pylist() == [{"a;b": "c;d"}]


@pytest.mark.parametrize("row", [1, 2, 3, 4])
@pytest.mark.parametrize("others", ["", '"quoted, name"'])
def test_a_quote_that_is_not_closed_is_named_by_its_line(tmp_path, row, others):
    lines = ["item,class", "a,x", f"b,{others or 'y'}", "c,z", "d,w"]
    lines[row] = lines[row].split(",")[0] + ',"open'
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=f"quote .* in line {row + 1} "):
        read_table(tmp_path / "t.csv")


def test_a_lone_quote_between_tabs_is_a_letter(tmp_path):
    (tmp_path / "t.tsv").write_text('item\tclass\na\t"open\nb\t"closed"\n')
    _, table, written = read(tmp_path / "t.tsv")
    assert table["class"].to_pylist() == ['"open', '"closed"']
    assert "quotes are letters" in written


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.lists(st.text("ab,;|\t\"' \n", min_size=1, max_size=6), min_size=3, max_size=3),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([",", ";", "\t"]),
)
def test_any_quoted_table_is_read_as_python_wrote_it(tmp_path, rows, mark):
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=mark, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([["item", "order", "species"], *rows])
    found = read_table(tmp_path / "t.csv")
    assert [list(row.values()) for row in found.to_pylist()] == rows
