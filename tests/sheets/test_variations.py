"""Tables written in ways that nobody listed: whatever program wrote them, each is read as what it
was, or refused by its cause.
"""

import csv
import io
import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench.core.errors import DataError, HBenchError, TreeError
from hbench.datasets import load
from hbench.evaluation.by_name.nodes import placed_in
from hbench.sheets import words
from hbench.sheets.cells import as_list
from hbench.sheets.columns import Chosen, columns_of
from hbench.submissions import embeddings
from hbench.submissions.embeddings import ids as id_files
from hbench.tree import files as tree_files

ORDERS = {"Owls": ["Barn owl", "Bay owl"], "Parrots": ["Galah", "Corella", "Kea"]}
KINDS = [(order, kind) for order in ORDERS for kind in ORDERS[order]]
ROWS = [
    (f"{kind[:3].strip()}{kind[-1]}{n}", order, kind) for order, kind in KINDS for n in range(3)
]
IDS = [row[0] for row in ROWS]
NAME = st.text("abcdefgXYZ é-", min_size=1, max_size=8).map(str.strip).filter(bool)


def in_folder(name, content, read):
    """What `read` makes of a file of this name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(path)


def names_of(data):
    """The names of each item of a dataset, by item."""
    test = data.tests["test"]
    columns = [np.array(names)[test.labels[:, d]] for d, names in enumerate(test.tree.names)]
    return dict(zip(test.items.tolist(), zip(*map(list, columns), strict=True), strict=True))


def written(rows, header, mark=",", end="\n"):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=mark, lineterminator=end)
    writer.writerows([header, *rows])
    return file.getvalue()


RIGHT = {item: (order, kind) for item, order, kind in ROWS}


@settings(max_examples=60, deadline=None)
@given(
    mark=st.sampled_from([",", ";", "\t", "|"]),
    end=st.sampled_from(["\n", "\r\n"]),
    suffix=st.sampled_from([".csv", ".tsv", ".txt"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    before=st.sampled_from(["", "\n", "\n\n"]),
    states=st.booleans(),
)
def test_a_table_is_read_whatever_stands_between_its_cells(
    mark, end, suffix, encoding, before, states
):
    stated = f"sep={mark}{end}" if states else ""
    text = stated + written(ROWS, ["item", "order", "species"], mark, end)
    content = ((before if not states else "") + text).encode(encoding)
    assert in_folder(f"t{suffix}", content, lambda path: names_of(load(path))) == RIGHT


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(4)), st.sampled_from(["", "Unnamed: 0", "index", "Nr", "#", "X"]))
def test_an_index_and_the_order_of_columns_change_nothing(order, index):
    columns = {
        index: [str(n + 1) for n in range(len(ROWS))],
        "item": IDS,
        "order": [row[1] for row in ROWS],
        "species": [row[2] for row in ROWS],
    }
    header = [list(columns)[place] for place in order]
    rows = zip(*(columns[name] for name in header), strict=True)
    found = in_folder("t.csv", written(rows, header), load)
    assert found.levels == ("order", "species")
    assert names_of(found) == RIGHT


HEADERS = [
    "id", "item", "image_id", "img", "sku", "gbifID", "product_id", "item_id", "image_name", "uuid",
    "filename", "file_name", "filepath", "image_path", "path", "key", "occurrenceID", "sample_id",
    "photo_id",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_a_word_for_an_id_is_one_at_every_door(tmp_path, header):
    vectors = np.eye(len(IDS), 4, dtype=np.float32) + 1
    table = pa.table({header: IDS, "order": [r[1] for r in ROWS], "species": [r[2] for r in ROWS]})
    pq.write_table(table, tmp_path / "labels.parquet")
    pq.write_table(
        pa.table({header: IDS, "embedding": vectors.tolist()}), tmp_path / "vectors.parquet"
    )
    numbers = [[item, *row] for item, row in zip(IDS, vectors.tolist(), strict=True)]
    (tmp_path / "vectors.csv").write_text(written(numbers, [header, "f0", "f1", "f2", "f3"]))
    lines = [
        {header: item, "embedding": row} for item, row in zip(IDS, vectors.tolist(), strict=True)
    ]
    (tmp_path / "vectors.jsonl").write_text("\n".join(map(json.dumps, lines)))
    np.savez(tmp_path / "vectors.npz", **{header: np.array(IDS), "embedding": vectors})
    (tmp_path / "ids.csv").write_text(written([[item, "x"] for item in IDS], [header, "note"]))
    pq.write_table(pa.table({header: IDS}), tmp_path / "ids.parquet")
    (tmp_path / "ids.json").write_text(json.dumps([{header: item, "n": 1} for item in IDS]))

    assert names_of(load(tmp_path / "labels.parquet")) == RIGHT
    for name in ("vectors.parquet", "vectors.csv", "vectors.jsonl", "vectors.npz"):
        assert embeddings.read(tmp_path / name).ids.tolist() == IDS, name
    for name in ("ids.csv", "ids.parquet", "ids.json"):
        assert id_files.read(tmp_path / name).tolist() == IDS, name


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_whole_numbers_under_a_word_for_ids_are_ids_of_vectors(tmp_path, kind):
    table = pa.table({"gbifID": pa.array([7, 9, 8]).cast(kind), "embedding": np.eye(3).tolist()})
    pq.write_table(table, tmp_path / "v.parquet")
    assert embeddings.read(tmp_path / "v.parquet").ids.tolist() == ["7", "9", "8"]


@settings(max_examples=60, deadline=None)
@given(
    mark=st.sampled_from([" > ", ">", " / ", "|", "; ", ";", "/", ":"]),
    ends=st.booleans(),
    root=st.sampled_from(["", "Animals"]),
)
def test_a_path_in_a_cell_is_levels_by_any_mark(mark, ends, root):
    rows = []
    for item, order, kind in ROWS:
        path = [root, order, kind] if root else [order, kind]
        letters = "kos" if root else "os"
        if mark in ("; ",):  # labels side by side are written so, too: ranks tell them apart
            path = [f"{letter}__{name}" for letter, name in zip(letters, path, strict=True)]
        rows.append((item, mark.join(path) + (mark.strip() if ends else "")))
    found = in_folder("t.tsv", written(rows, ["item", "category"], "\t"), load)
    assert {item: names[-2:] for item, names in names_of(found).items()} == RIGHT


@pytest.mark.parametrize(
    "as_text",
    [
        json.dumps,
        repr,
        lambda names: repr(tuple(names)),
        lambda names: json.dumps([names]),
        lambda names: json.dumps([names], indent=1),
    ],
)
def test_a_path_that_is_a_list_as_text_is_levels(as_text):
    rows = [(item, as_text([order, kind])) for item, order, kind in ROWS]
    assert names_of(in_folder("t.csv", written(rows, ["item", "taxonomy"]), load)) == RIGHT


SEVERAL = {"a": ["dog", "cat"], "b": ["dog"], "c": ["cat"], "d": ["dog", "cat"], "e": ["cat"]}
CELLS = {
    "bars": "|".join,
    "semicolons": ";".join,
    "semicolons and blanks": "; ".join,
    "commas": ",".join,
    "commas and blanks": ", ".join,
    "JSON": json.dumps,
    "Python": repr,
    "a tuple": lambda names: repr(tuple(names)),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_several_labels_in_a_cell_are_paths_of_an_item(cell):
    text = written([(item, cell(names)) for item, names in SEVERAL.items()], ["item", "kind"])
    data = in_folder("t.csv", text, lambda path: load(path, several=True))
    test = data.tests["test"]
    kinds = {
        item: {test.tree.names[0][row[0]] for row in test.paths.of_item(place)}
        for place, item in enumerate(test.items.tolist())
    }
    assert kinds == {item: set(names) for item, names in SEVERAL.items()}


@pytest.mark.parametrize("mark", ["|", ";"])
def test_labels_of_which_one_stands_alone_nowhere_are_remarked_on(mark):
    rows = [("a", f"dog{mark}fox"), ("b", "dog"), ("c", "cat"), ("d", "cat")]
    found = in_folder("t.csv", written(rows, ["item", "kind"]), load)
    assert "--several" in str(found.read)


def test_several_that_changes_nothing_is_said():
    text = written(ROWS, ["item", "order", "species"])
    found = in_folder("t.csv", text, lambda path: load(path, several=True))
    assert "changes nothing" in str(found.read)


def test_a_title_with_semicolons_is_no_level_under_several():
    rows = [
        (i, f"{n}; a title; {k}", f"{k};Fox" if n % 4 == 0 else k)
        for n, (i, _, k) in enumerate(ROWS)
    ]
    text = written(rows, ["item", "title", "species"])
    data = in_folder("t.csv", text, lambda path: load(path, several=True))
    assert data.levels == ("species",)


def test_an_item_of_too_many_paths_is_refused_before_they_are_compared():
    many = ";".join(f"k{n}" for n in range(100_000))
    text = written([("a", many), ("b", "k1"), ("c", "k1")], ["item", "kind"])
    with pytest.raises(DataError, match="100,000 paths"):
        in_folder("t.csv", text, lambda path: load(path, several=True))


@given(st.lists(st.lists(NAME, min_size=1, max_size=3), min_size=1, max_size=3))
def test_lists_are_read_as_json_and_python_write_them(lists):
    assert as_list(json.dumps(lists)) == lists
    assert as_list(repr(lists)) == lists


# taxonomies

TAXA = [
    ("1", "", "", "Animals", ""), ("2", "1", "", "Owls", "order"), ("3", "1", "", "Parrots", "order"),
    ("4", "2", "", "Barn owl", "species"), ("5", "2", "", "Bay owl", "species"),
    ("6", "3", "", "Galah", "species"), ("7", "3", "", "Corella", "species"),
    ("8", "3", "", "Kea", "species"),
]  # fmt: skip
OF_NAME = {row[3]: row[0] for row in TAXA}
HEAD = ["taxonID", "parentNameUsageID", "acceptedNameUsageID", "scientificName", "taxonRank"]


def joined(taxa, rows, *, head=HEAD, header=("item", "taxonID"), **how):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "taxa.csv").write_text(written(taxa, head))
        (folder / "seen.csv").write_text(written(rows, header))
        return load(folder / "seen.csv", taxonomy=folder / "taxa.csv", **how)


SEEN = [(item, OF_NAME[kind]) for item, _, kind in ROWS]


@pytest.mark.parametrize("nothing", ["", "NA", "0", "\\N", "nan", "NULL"])
@pytest.mark.parametrize(
    "head", [HEAD, ["tsn", "parent_tsn", "accepted_tsn", "complete_name", "rank_name"],
             ["col:ID", "col:parentID", "accepted_id", "col:scientificName", "col:rank"]],
)  # fmt: skip
def test_a_taxonomy_is_read_by_any_words_and_any_nothing(nothing, head):
    taxa = [
        tuple(cell or nothing if n in (1, 2) else cell for n, cell in enumerate(row))
        for row in TAXA
    ]
    assert names_of(joined(taxa, SEEN, head=head)) == RIGHT


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_synonym_of_synonyms_is_the_accepted_name(steps):
    chain = [
        (f"2{n}", "", f"2{n + 1}" if n + 1 < steps else "8", f"Old {n}", "species")
        for n in range(steps)
    ]
    rows = [(item, "20" if kind == "Kea" else OF_NAME[kind]) for item, _, kind in ROWS]
    assert names_of(joined([*TAXA, *chain], rows)) == RIGHT


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([("20", "", "21", "A", "species"), ("21", "", "20", "B", "species")], ["20", "21"]),
        ([("20", "", "99", "A", "species")], ["99", "not in"]),
        ([("20", "77", "", "A", "species")], ["parent 77", "not in"]),
        ([("20", "20x", "", "A", "species"), ("20x", "20", "", "B", "genus")], ["above itself"]),
        ([("20", "2", "", "A", "species"), ("20", "3", "", "A", "species")], ["20", "two rows"]),
    ],
)
def test_a_fault_of_a_taxonomy_is_named_by_its_id(more, words):
    rows = [(item, "20" if kind == "Kea" else OF_NAME[kind]) for item, _, kind in ROWS]
    with pytest.raises((DataError, TreeError)) as refusal:
        joined([*TAXA, *more], rows)
    assert all(word in str(refusal.value) for word in words)


def test_of_several_columns_of_taxa_the_one_that_most_rows_find_is_taken_and_said():
    rows = [(i, OF_NAME[k], OF_NAME[k] if n % 3 else "") for n, (i, _, k) in enumerate(ROWS)]
    found = joined(TAXA, rows, header=("item", "taxonKey", "speciesKey"))
    assert names_of(found) == RIGHT
    assert "speciesKey" in str(found.read)
    assert "--taxon" in str(found.read)


def test_the_column_of_taxa_can_be_named_apart_from_the_levels():
    rows = [(i, OF_NAME[k], OF_NAME["Kea"]) for i, _, k in ROWS]
    header = ("item", "taxonKey", "hostKey")
    found = joined(TAXA, rows, header=header, taxon="hostKey", levels=["order", "species"])
    assert set(names_of(found).values()) == {("Parrots", "Kea")}


def test_a_taxonomy_without_main_ranks_names_the_ranks_it_has():
    taxa = [(*row[:4], "no rank") for row in TAXA]
    with pytest.raises(DataError, match="no rank"):
        joined(taxa, SEEN)


# trees


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.nwk", "((a,b)group,(c,d)group)r;"),
        ("t.json", json.dumps({"name": "r", "children": [
            {"name": "group", "children": [{"name": x} for x in pair]} for pair in ("ab", "cd")]})),
    ],
)  # fmt: skip
def test_siblings_of_one_name_stay_two_nodes(name, text):
    table = in_folder(name, text, tree_files.read)
    assert len({row[0] for row in table.rows}) == 2
    assert {row[-1] for row in table.rows} == set("abcd")


def test_two_leaves_of_one_name_below_one_node_are_refused():
    with pytest.raises(TreeError, match="same name"):
        in_folder("t.nwk", "((a,a)g,b)r;", tree_files.read)


def test_a_full_path_is_matched_as_it_was_brought():
    text = written(
        [(i, o, k.replace("Galah", "Bay owl")) for i, o, k in ROWS], ["item", "order", "species"]
    )
    tree = in_folder("t.csv", text, lambda path: load(path, ["by-path"])).tests["test"].tree
    found = placed_in(tree, ["Owls > Bay owl", "Parrots > Bay owl", "Kea"])
    assert found.unknown == ()
    assert len(found.rows) == 3


# files that are there


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t.xlsx", "CSV"), ("t.pkl", "parquet"), ("t.npz", "hbench evaluate"), ("t.nwk", "--trees"),
        ("t.bin", "format"), ("occurrence", "format"),
    ],
)  # fmt: skip
def test_a_file_that_is_there_is_never_an_unknown_name(name, words):
    with pytest.raises(HBenchError) as refusal:
        in_folder(name, b"PK\x03\x04 \x00", load)
    assert "unknown dataset" not in str(refusal.value)
    assert words in str(refusal.value)


def packed(name, text):
    """The bytes of a zip with one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
    return file.getvalue()


def arrow_bytes(table):
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


TABLE = pa.table(
    dict(zip(["item", "order", "species"], map(list, zip(*ROWS, strict=True)), strict=True))
)
RECORDS = TABLE.to_pylist()
TABLES = {
    "occurrence.txt": written(ROWS, ["item", "order", "species"], "\t"),
    "t.csv.zip": packed("t.csv", written(ROWS, ["item", "order", "species"])),
    "t.feather": arrow_bytes(TABLE),
    "t.arrow": arrow_bytes(TABLE),
    "t.jsonl": "\n".join(map(json.dumps, RECORDS)),
    "t.ndjson": "\n".join(map(json.dumps, RECORDS)) + "\n",
    "t.json": json.dumps(RECORDS),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_in_any_container(name):
    assert names_of(in_folder(name, TABLES[name], load)) == RIGHT


def test_a_table_without_a_header_line_is_refused_by_that():
    text = "".join(f"{kind},{n},{n + 9},{item},640\n" for n, (item, _, kind) in enumerate(ROWS))
    with pytest.raises(DataError, match="no header line"):
        in_folder("t.csv", text, load)


def test_a_running_number_is_never_advised_as_the_ids():
    text = written(
        [(n, o, k) for n, (_, o, k) in enumerate(ROWS, 1)], ["Nr", "order", "species"], ";"
    )
    with pytest.raises(DataError) as refusal:
        in_folder("t.csv", text, load)
    assert "--item-column Nr" not in str(refusal.value)


def test_names_at_two_levels_are_remarked_on():
    rows = [(i, k, o) if n == 4 else (i, o, k) for n, (i, o, k) in enumerate(ROWS)]
    table = pa.table(
        dict(zip(["item", "order", "species"], map(list, zip(*rows, strict=True)), strict=True))
    )
    assert "two levels" in " ".join(columns_of(table, Chosen()).notes)


def test_repeated_leaves_are_no_names_at_two_levels():
    table = pa.table(
        {"item": list("abcd"), "order": ["o", "o", "x", "x"], "species": ["s", "t", "x", "x"]}
    )
    assert "two levels" not in " ".join(columns_of(table, Chosen()).notes)


def test_levels_of_paths_can_be_named():
    text = written([(i, f"{o} > {k}") for i, o, k in ROWS], ["item", "category"])
    data = in_folder("t.csv", text, lambda path: load(path, level_names="order,species"))
    assert data.levels == ("order", "species")


def test_an_export_of_inaturalist_is_known_by_its_columns():
    header = [
        "id",
        "user_login",
        "quality_grade",
        "iconic_taxon_name",
        "taxon_order_name",
        "taxon_species_name",
    ]
    rows = [(70 + 3 * n, f"u{n % 3}", "research", "Aves", o, k) for n, (_, o, k) in enumerate(ROWS)]
    found = in_folder("t.csv", written(rows, header), load)
    assert list(names_of(found).values()) == list(RIGHT.values())


def test_recommended_is_what_the_refusal_proposes_first(tmp_path):
    rows = [(i, o, "Bay owl" if k == "Galah" else k) for i, o, k in ROWS]
    (tmp_path / "t.csv").write_text(written(rows, ["item", "order", "species"]))
    with pytest.raises(TreeError) as refusal:
        load(tmp_path / "t.csv")
    first = refusal.value.fix.splitlines()[1].split(":")[0].replace("--policy", "").split()
    data = load(tmp_path / "t.csv", ["recommended"])
    assert names_of(data) == names_of(load(tmp_path / "t.csv", first))
    assert first[0] in str(data.read)


def test_one_table_of_words_has_no_word_twice():
    assert not set(words.SURE_IDS) & words.OTHER_IDS
    assert not set(words.VECTORS) & words.OTHER_VECTORS


# judgements


def levels_in(report):
    return {name: report.scores[name] for name in report.scores}


def test_a_run_is_scored_by_judgements_with_a_level_for_each_grade(tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 a 2\nq1 0 b 1\nq1 0 d 0\nq2 0 c 1\n")
    (tmp_path / "run.txt").write_text(
        "q1 Q0 a 1 .9 t\nq1 Q0 d 2 .8 t\nq1 Q0 b 3 .7 t\nq2 Q0 c 1 .9 t\nq2 Q0 a 2 .8 t\n"
    )
    metrics = ["AP/grade1", "MRR"]
    report = hbench.evaluate(tmp_path / "run.txt", tmp_path / "qrels.txt", metrics=metrics)
    assert report.scores["AP/grade1"] == pytest.approx(((1 + 2 / 3) / 2 + 1) / 2)
    assert report.scores["MRR"] == 1  # of the one query that has an item of grade 2


@pytest.mark.parametrize(
    "text",
    [
        "q1\t0\ta\t1\nq2\t0\tb\t1\n",
        "query-id\tcorpus-id\tscore\nq1\ta\t1\nq2\tb\t1\n",
        "query_id,doc_id,relevance\nq1,a,1\nq2,b,1\n",
        "query,item,level\nq1,a,1\nq2,b,1\n",
    ],
)
def test_judgements_are_read_as_trec_and_beir_write_them(text):
    data = in_folder("qrels.tsv", text, load)
    assert data.levels == ("grade1",)
    assert data.tests["test"].items[data.tests["test"].query].tolist() == ["q1", "q2"]


def test_items_whose_level_is_called_level_are_no_judgements():
    data = in_folder("own.csv", "query,item,level\n1,a,3\n0,b,3\n1,c,5\n0,d,5\n", load)
    assert data.levels == ("level",)
    assert data.tests["test"].items[data.tests["test"].query].tolist() == ["a", "c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 0 a 1\nq1 0 a 2\n", "more than once"),
        ("q1 0 a 0\n", "nothing as relevant"),
        # behind the first lines, which tell what the file is; a blank line counts
        ("q1 0 a 1\n\n" + "".join(f"q1 0 b{n} 1\n" for n in range(3000)) + "q2 0 c\n", "3003"),
        ("query,docid,grade\nq1,a,high\n", "whole numbers"),
        ("query,docid,grade\nq1,a,1\nq1,b,1,2\n", "cannot be read"),
    ],
)
def test_judgements_that_say_nothing_are_refused(text, words):
    with pytest.raises(DataError) as refusal:
        in_folder("qrels.txt", text, load)
    assert words in str(refusal.value)
