"""From the files that people have to the right number, with the commands that they would type;
checked by double loops.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.command_line import in_folder
from tests.scenarios.by_hand import hap

SPECIES = [
    ("Animalia", "Tytonidae", "Tyto", "Tyto alba"),
    ("Animalia", "Strigidae", "Bubo", "Bubo bubo"),
    ("Animalia", "Strigidae", "Strix", "Strix aluco"),
    ("Plantae", "Iridaceae", "Iris", "Iris sibirica"),
]


def vectors_of(classes, folder, ids, name="mine.parquet"):
    """Vectors around the centres of classes, written as an embedding file."""
    rng = np.random.default_rng(1)
    kinds = sorted(set(classes))
    centres = rng.normal(size=(len(kinds), 8))
    vectors = centres[[kinds.index(each) for each in classes]] + 1.2 * rng.normal(
        size=(len(classes), 8)
    )
    pq.write_table(pa.table({"id": list(ids), "embedding": vectors.tolist()}), folder / name)
    return vectors


def score_of(folder, *words):
    shown = in_folder(folder, "evaluate", "mine.parquet", *words, "--metrics", "H-AP", "--json")
    return json.loads(shown.stdout)


def value(document):
    return document["scores"]["H-AP"]["value"]


def test_an_export_of_gbif_whose_lineages_have_holes(tmp_path):
    labels = [list(SPECIES[n % 4]) for n in range(40)]
    holes = [list(row) for row in labels]
    for n in (4, 9, 14):
        holes[n][1] = ""  # other rows of the genus have the family
    ids = [str(4000 + n) for n in range(40)]
    head = "gbifID\tkingdom\tfamily\tgenus\tspecies\ttaxonRank\tdecimalLatitude\tlocality"
    lines = [
        "\t".join([ids[n], *row, "SPECIES", f"{n}.5", 'the "old" barn'])
        for n, row in enumerate(holes)
    ]
    (tmp_path / "occurrences.csv").write_text("\n".join([head, *lines]) + "\n")
    vectors = vectors_of([row[3] for row in labels], tmp_path, ids)
    refused = in_folder(
        tmp_path, "evaluate", "mine.parquet", "-d", "occurrences.csv", code=4
    ).stderr
    assert "--policy fill-from-same-name: renames 3 items" in refused  # the first that is offered
    found = score_of(tmp_path, "-d", "occurrences.csv", "--policy", "fill-from-same-name")
    assert value(found) == pytest.approx(hap(vectors, labels), abs=1e-6)


def test_categories_of_products_as_paths(tmp_path):
    paths = [
        ("Electronics", "Phones", "Cases"),
        ("Electronics", "Video", "Screens"),
        ("Cameras", "Cases", "Hard"),
    ]
    labels = [paths[n % 3] for n in range(30)]
    rows = [f"p{n},{' > '.join(row)},{n}.99\n" for n, row in enumerate(labels)]
    (tmp_path / "products.csv").write_text("product_id,category,price\n" + "".join(rows))
    vectors = vectors_of(["".join(row) for row in labels], tmp_path, [f"p{n}" for n in range(30)])
    by_path = [("/".join(row[:1]), "/".join(row[:2]), "/".join(row)) for row in labels]
    found = score_of(tmp_path, "-d", "products.csv")
    assert value(found) == pytest.approx(hap(vectors, by_path), abs=1e-6)
    assert "price" in found["read"][0]["left_out"]


def test_a_gallery_with_distractors(tmp_path):
    labels = [SPECIES[n % 4][1:] for n in range(24)] + [("", "", "")] * 40
    masks = [("1", "1")] * 24 + [("0", "1")] * 40
    rows = [
        f"i{n},{','.join(row)},{','.join(mask)}\n"
        for n, (row, mask) in enumerate(zip(labels, masks, strict=True))
    ]
    (tmp_path / "t.csv").write_text("item,family,genus,species,query,gallery\n" + "".join(rows))
    vectors = vectors_of(
        [row[2] or f"other {n}" for n, row in enumerate(labels)],
        tmp_path,
        [f"i{n}" for n in range(64)],
    )
    found = score_of(tmp_path, "-d", "t.csv")
    assert value(found) == pytest.approx(hap(vectors, labels, queries=range(24)), abs=1e-6)
    assert any("40 items without a name" in fact for fact in found["read"][0]["facts"])


def test_ids_of_taxa_and_a_taxonomy(tmp_path):
    taxa = [
        "1,,Animalia,kingdom",
        "2,1,Strigidae,family",
        "3,2,Bubo,genus",
        "4,3,Bubo bubo,species",
        "5,2,Strix,genus",
    ]
    taxa += [
        "6,5,Strix aluco,species",
        "7,1,Tytonidae,family",
        "8,7,Tyto,genus",
        "9,8,Tyto alba,species",
    ]
    (tmp_path / "taxa.csv").write_text(
        "taxonID,parentNameUsageID,scientificName,taxonRank\n" + "\n".join(taxa) + "\n"
    )
    lineages = {"4": SPECIES[1][1:], "6": SPECIES[2][1:], "9": SPECIES[0][1:]}
    ids = [["4", "6", "9"][n % 3] for n in range(30)]
    (tmp_path / "t.csv").write_text(
        "image,taxon\n" + "".join(f"{n}.jpg,{each}\n" for n, each in enumerate(ids))
    )
    vectors = vectors_of(ids, tmp_path, [f"{n}.jpg" for n in range(30)])
    found = score_of(
        tmp_path, "-d", "t.csv", "--taxonomy", "taxa.csv", "--levels", "family,genus,species"
    )
    assert value(found) == pytest.approx(hap(vectors, [lineages[each] for each in ids]), abs=1e-6)


def test_a_table_that_pandas_wrote_with_its_index_and_more(tmp_path):
    import pandas as pd

    labels = [SPECIES[n % 4][2:] for n in range(32)]
    frame = pd.DataFrame(labels, columns=["genus", "species"])
    frame["filename"], frame["caption"] = (
        [f"{n}.jpg" for n in range(32)],
        [f"picture {n}" for n in range(32)],
    )
    frame["score"] = np.linspace(0.1, 0.9, 32)
    frame.to_csv(tmp_path / "t.csv")
    vectors = vectors_of([row[1] for row in labels], tmp_path, frame["filename"])
    assert value(score_of(tmp_path, "-d", "t.csv")) == pytest.approx(hap(vectors, labels), abs=1e-6)


def test_a_phylogeny_whose_inner_nodes_have_support_values(tmp_path):
    leaves = ["Bubo bubo", "Strix aluco", "Tyto alba", "Ninox rufa"]
    labels = [leaves[n % 4] for n in range(28)]
    (tmp_path / "t.csv").write_text(
        "item,species\n" + "".join(f"i{n},{each}\n" for n, each in enumerate(labels))
    )
    (tmp_path / "p.nwk").write_text(
        "((Bubo_bubo:1,Strix_aluco:2)98:1,(Tyto_alba:1,Ninox_rufa:1)71.5:2)100;\n"
    )
    vectors = vectors_of(labels, tmp_path, [f"i{n}" for n in range(28)])
    found = score_of(tmp_path, "-d", "t.csv", "--trees", "p.nwk")
    clade = {each: "left" if each in leaves[:2] else "right" for each in leaves}
    right = hap(vectors, [(clade[each], each) for each in labels])
    assert found["trees"]["p.nwk"]["scores"]["H-AP"]["value"] == pytest.approx(right, abs=1e-6)


def test_a_folder_of_pictures_with_a_linked_class(tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    places = [("Owls", "Barn owl"), ("Owls", "Bay owl"), ("Parrots", "Kea")]
    for number, (order, kind) in enumerate(places):
        above = tmp_path / ("elsewhere" if kind == "Kea" else f"zoo/{order}")
        for copy in range(6):
            (above / kind).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (40 * number, 9 * copy, 7)).save(above / kind / f"{copy}.png")
    (tmp_path / "zoo" / "Parrots").mkdir()
    (tmp_path / "zoo" / "Parrots" / "Kea").symlink_to(tmp_path / "elsewhere" / "Kea")
    in_folder(tmp_path, "build", "zoo", "--from", "zoo", "--levels", "order,species")
    labels = [row for row in places for _ in range(6)]
    ids = [f"{order}/{kind}/{copy}.png" for order, kind in places for copy in range(6)]
    vectors = vectors_of([row[1] for row in labels], tmp_path, ids)
    assert value(score_of(tmp_path, "-d", "zoo")) == pytest.approx(hap(vectors, labels), abs=1e-6)


def test_what_was_understood_is_in_the_json_of_every_verb(tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    (tmp_path / "edges.csv").write_text(
        "von,nach,x\nall,Owls,1\nall,Parrots,1\nOwls,Barn owl,1\nParrots,Kea,1\n"
    )
    (tmp_path / "t.csv").write_text(
        "filename,node\n" + "".join(f"{n}.jpg,{['Barn owl', 'Kea'][n % 2]}\n" for n in range(8))
    )
    words = [
        "build",
        "mine",
        "--from",
        "t.csv",
        "--levels",
        "node",
        "--tree",
        "edges.csv",
        "--edges",
        "von,nach",
    ]
    built = json.loads(in_folder(tmp_path, *words, "--json").stdout)
    assert "items by filename" in built["read"]["facts"]
    shown = json.loads(
        in_folder(tmp_path, "tree", "show", "edges.csv", "--edges", "von,nach", "--json").stdout
    )
    assert shown["read"]["what"].startswith("a list of edges (von, nach)")
    assert shown["read"]["left_out"] == {"x": "not of the edges"}
