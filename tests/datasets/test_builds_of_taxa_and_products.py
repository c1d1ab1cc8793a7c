"""Builds of BIOSCAN-5M, Rare Species, FathomNet, the Met, RP2K, Products-10K, ETHEC, Fashionpedia,
ILIAS and TreeOfLife.

None of their files may be kept here: every raw folder is made up, in the layout that its publisher
documents (the card of each draws it).
"""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hbench.core.errors import DataError, IntegrityError
from hbench.datasets import load, save
from hbench.datasets.spec import RANKS
from tests.raw_folders import build, names, touch, write

pytestmark = pytest.mark.fast

BIOSCAN = "bioscan5m/metadata/csv/BIOSCAN_5M_Insect_Dataset_metadata.csv"


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)


@pytest.fixture
def bioscan(raw):
    ant = {
        "class": "Insecta",
        "order": "Hymenoptera",
        "family": "Formicidae",
        "subfamily": "Ectatomminae",
    }
    sulcata = ant | {"genus": "Gnamptogenys", "species": "Gnamptogenys sulcata"}
    fly = {"class": "Insecta", "order": "Diptera", "family": "Sciaridae", "subfamily": ""}
    rows = [
        {"processid": "A1", "chunk": "c0", "split": "train", **sulcata},
        {"processid": "A2", "chunk": "", "split": "test", **sulcata},
        {"processid": "A3", "chunk": "c1", "split": "pretrain", **fly, "genus": "", "species": ""},
        {
            "processid": "A4",
            "chunk": "",
            "split": "key_unseen",
            **fly,
            "genus": "",
            "species": "Sciaridae sp. 1",
        },
        {
            "processid": "A5",
            "chunk": "",
            "split": "test_unseen",
            **fly,
            "genus": "",
            "species": "Sciaridae sp. 1",
        },
        {
            "processid": "A6",
            "chunk": "c0",
            "split": "train",
            **fly,
            "genus": "",
            "species": "Sciaridae sp. 2",
        },
    ]
    write_csv(
        raw / BIOSCAN, [{"phylum": "Arthropoda", "dna_barcode": "ACGT"} | row for row in rows]
    )
    return raw


def test_bioscan_asks_for_one_partition_in_another(bioscan):
    dataset = build("bioscan-5m", bioscan, unofficial=True)
    assert dataset.train.items.tolist() == ["train/c0/A1.jpg", "train/c0/A6.jpg"]
    asking = {name: test.items[test.query].tolist() for name, test in dataset.tests.items()}
    assert asking == {"seen": ["test/A2.jpg"], "unseen": ["test_unseen/A5.jpg"]}
    seen, unseen = dataset.tests["seen"], dataset.tests["unseen"]
    assert seen.items[seen.gallery].tolist() == dataset.train.items.tolist()
    assert unseen.items[unseen.gallery].tolist() == ["key_unseen/A4.jpg"]


def test_bioscan_names_a_species_as_it_is_and_a_missing_genus_after_its_family(bioscan):
    tests = build("bioscan-5m", bioscan, unofficial=True).tests
    assert names(tests["unseen"], "key_unseen/A4.jpg")[3:] == [
        "unplaced genus of Sciaridae",
        "Sciaridae sp. 1",
    ]
    assert names(tests["seen"], "test/A2.jpg")[-1] == "Gnamptogenys sulcata"


def test_bioscan_partial_trains_on_what_has_no_species_too(bioscan):
    train = build("bioscan-5m-partial", bioscan, unofficial=True).train
    assert train.items.tolist() == ["pretrain/c1/A3.jpg", "train/c0/A1.jpg", "train/c0/A6.jpg"]
    assert names(train, "pretrain/c1/A3.jpg")[2:] == [
        "Sciaridae",
        *["[unknown below family Sciaridae]"] * 2,
    ]


WHALE = dict(
    zip(
        RANKS,
        ["Animalia", "Chordata", "Mammalia", "Cetacea", "Balaenidae", "Eubalaena"],
        strict=False,
    )
)


def test_rare_species_is_a_test_of_its_own(raw):
    file = "dataset/Animalia-Chordata-Mammalia-Cetacea-Balaenidae-Eubalaena-glacialis/1_2_eol_full-size-copy.jpg"
    row = {
        "file_name": file,
        "rarespecies_id": "a",
        **WHALE,
        "species": "glacialis",
        "sciName": "Eubalaena glacialis",
    }
    write_csv(raw / "metadata.csv", [row | {"common": "North Atlantic right whale"}])
    dataset = build("rare-species", raw, unofficial=True)
    assert dataset.train is None
    assert names(dataset.tests["test"], file)[-2:] == ["Eubalaena", "Eubalaena glacialis"]
    with pytest.raises(IntegrityError, match="test: 1 species, published 400"):
        build("rare-species", raw)


def test_treeoflife_keeps_what_is_not_named_to_the_species(raw):
    rows = [
        {"split": "train_small", "treeoflife_id": "a", **WHALE, "species": "glacialis"},
        {"split": "train", "treeoflife_id": "b", **WHALE, "species": "australis"},
        {"split": "val", "treeoflife_id": "c", **WHALE, "species": "australis"},
        {"split": "val", "treeoflife_id": "d", **WHALE | {"genus": ""}, "species": ""},
    ]
    write_csv(raw / "metadata" / "catalog.csv", rows)
    dataset = build("treeoflife-10m-small", raw, unofficial=True)
    assert dataset.train.items.tolist() == ["images/a.jpg"]
    assert dataset.tests["test"].items.tolist() == ["images/c.jpg", "images/d.jpg"]
    assert names(dataset.tests["test"], "images/c.jpg")[-1] == "Eubalaena australis"
    unknown = "[unknown below family Balaenidae]"
    assert names(dataset.tests["test"], "images/d.jpg")[4:] == ["Balaenidae", unknown, unknown]


@pytest.fixture
def fathomnet(raw):
    octopus = ["Animalia", "Mollusca", "Cephalopoda", "Octopoda", "Octopodidae", "Octopus"]
    taxa = {
        "Octopus rubescens": [*octopus, "Octopus rubescens"],
        "Octopus": [*octopus, ""],
        "Gastropoda": ["Animalia", "Mollusca", "Gastropoda", "", "", "", ""],
        "Mycale": [
            "Animalia",
            "Porifera",
            "Demospongiae",
            "Poecilosclerida",
            "Mycalidae",
            "Mycale",
            "",
        ],
    }
    rows = [{"name": name} | dict(zip(RANKS, path, strict=True)) for name, path in taxa.items()]
    write_csv(raw / "taxonomy.csv", rows)
    categories = [{"id": number, "name": name} for number, name in enumerate(taxa, start=1)]
    boxes = [
        {"id": 10 + n, "image_id": 7, "category_id": n, "bbox": [0, 0, 5, 5]} for n in range(1, 5)
    ]
    write(
        raw / "dataset_train.json",
        json.dumps({"images": [], "annotations": boxes, "categories": categories}),
    )
    return raw


def test_fathomnet_gives_half_of_its_categories_to_the_test(fathomnet):
    dataset = build("fathomnet-2025", fathomnet, unofficial=True)
    items = [*dataset.train.items, *dataset.tests["test"].items]
    assert sorted(items) == ["7_11.png", "7_12.png", "7_13.png", "7_14.png"]
    assert len(dataset.train) == len(dataset.tests["test"]) == 2
    everything = {
        item: names(m, item) for m in (dataset.train, dataset.tests["test"]) for item in m.items
    }
    assert everything["7_12.png"][-2:] == ["Octopus", "[unknown below genus Octopus]"]
    assert everything["7_13.png"][2:] == ["Gastropoda", *["[unknown below class Gastropoda]"] * 4]


def test_met_queries_are_photos_by_visitors_and_its_gallery_is_the_museums(raw):
    database = [{"id": 34, "path": "MET/34/0.jpg"}, {"id": 35, "path": "MET/35/0.jpg"}]
    queries = [{"path": "test_met/a.jpg", "MET_id": 34}, {"path": "test_noart/b.jpg"}]
    write(raw / "ground_truth" / "MET_database.json", json.dumps(database))
    write(raw / "ground_truth" / "testset.json", json.dumps(queries))
    dataset = build("met", raw, unofficial=True)
    test = dataset.tests["test"]
    assert test.items[test.query].tolist() == ["test_met/a.jpg"]
    assert (
        test.items[test.gallery].tolist()
        == dataset.train.items.tolist()
        == ["MET/34/0.jpg", "MET/35/0.jpg"]
    )
    assert names(test, "test_met/a.jpg") == names(test, "MET/34/0.jpg")
    write(raw / "ground_truth" / "testset.json", json.dumps({"path": 1}))
    with pytest.raises(DataError, match="is not a list of pictures"):
        build("met", raw)


def test_rp2k_is_built_from_its_folders(raw):
    touch(raw, ["all/train/可乐/1.jpg", "all/train/雪碧/2.jpg", "all/test/可乐/3.jpg"])
    dataset = build("rp2k", raw)
    assert (
        names(dataset.tests["test"], "test/可乐/3.jpg")
        == names(dataset.train, "train/可乐/1.jpg")
        == ["可乐"]
    )
    assert dataset.root == raw / "all"
    (raw / "all" / "test" / "可乐" / "3.jpg").unlink()
    with pytest.raises(DataError, match="test holds no images"):
        build("rp2k", raw)


def test_a_product_of_the_test_is_in_the_group_of_its_training(raw):
    write(raw / "train.csv", "name,class,group\n1.jpg,0,77\n2.jpg,1,77\n3.jpg,2,78\n")
    write(raw / "test_kaggletest.csv", "name,class,Usage\n9.jpg,1,Public\n")
    dataset = build("products-10k", raw, unofficial=True)
    assert names(dataset.tests["test"], "test/9.jpg") == ["group 77", "product 1"]
    write(raw / "test_kaggletest.csv", "name,class,Usage\n9.jpg,5,Public\n")
    with pytest.raises(DataError, match=r"not in train\.csv\s+found:\s+5"):
        build("products-10k", raw)


def specimen(image, genus, epithet):
    place = {"image_path": "2017_02_26R", "image_name": image}
    return place | {
        "family": "Hesperiidae",
        "subfamily": "Heteropterinae",
        "genus": genus,
        "specific_epithet": epithet,
    }


def test_ethec_counts_an_image_once(raw):
    lists = {
        "train": [
            specimen("1.JPG", "Carterocephalus", "palaemon"),
            specimen("1.JPG", "Carterocephalus", "palaemon"),
        ],
        "test": [
            specimen("1.JPG", "Carterocephalus", "palaemon"),
            specimen("2.JPG", "Heteropterus", "morpheus"),
        ],
    }
    for part, own in lists.items():
        path = raw / "ETHEC_dataset" / "splits" / f"{part}.json"
        write(path, json.dumps({f"token {n}": each for n, each in enumerate(own)}))
    dataset = build("ethec", raw, unofficial=True)
    assert dataset.train.items.tolist() == ["IMAGO_build_test_resized/2017_02_26R/1.JPG"]
    test = dataset.tests["test"]
    assert test.items.tolist() == ["IMAGO_build_test_resized/2017_02_26R/2.JPG"]
    assert names(test, test.items[0]) == [
        "Hesperiidae",
        "Heteropterinae",
        "Heteropterus",
        "Heteropterus morpheus",
    ]
    write(raw / "ETHEC_dataset" / "splits" / "test.json", "[]")
    with pytest.raises(DataError, match="is not a list of specimens"):
        build("ethec", raw)


@pytest.fixture
def fashionpedia(raw):
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [
            {"id": 1, "name": "top, t-shirt, sweatshirt", "supercategory": "upperbody"},
            {"id": 4, "name": "jacket", "supercategory": "upperbody"},
            {"id": 31, "name": "sleeve", "supercategory": "garment parts"},
        ],
        "attributes": [
            {"id": 16, "name": "hoodie", "supercategory": "nickname"},
            {"id": 295, "name": "plain (pattern)", "supercategory": "textile pattern"},
        ],
        "annotations": [
            {
                "id": 1,
                "image_id": 1,
                "category_id": 4,
                "bbox": [1.2, 2, 4, 6],
                "attribute_ids": [295, 16],
            },
            {"id": 2, "image_id": 1, "category_id": 1, "bbox": [0, 0, 3, 3], "attribute_ids": [16]},
            {
                "id": 3,
                "image_id": 1,
                "category_id": 1,
                "bbox": [5, 5, 2, 2],
                "attribute_ids": [295],
            },
            {"id": 4, "image_id": 1, "category_id": 31, "bbox": [0, 0, 1, 1], "attribute_ids": []},
        ],
    }
    for folder, part in (("annotations", "train"), (".", "val")):  # each file is looked for in both
        write(raw / folder / f"instances_attributes_{part}2020.json", json.dumps(content))
    (raw / "train").mkdir()
    Image.new("RGB", (10, 10)).save(raw / "train" / "a.jpg")
    return raw


def test_a_nickname_under_two_categories_is_a_class_in_each_and_a_garment_is_cut_out(
    fashionpedia, tmp_path
):
    save(build("fashionpedia", fashionpedia, unofficial=True), tmp_path / "built")
    train = load(tmp_path / "built").train
    assert train.picture("train/a.jpg@1,2,4,6").size == (4, 6)
    assert names(train, "train/a.jpg@1,2,4,6") == ["upperbody", "jacket", "hoodie (jacket)"]
    assert names(train, "train/a.jpg@0,0,3,3")[2] == "hoodie (top, t-shirt, sweatshirt)"
    assert names(train, "train/a.jpg@5,5,2,2")[1:] == ["top, t-shirt, sweatshirt"] * 2
    assert len(train) == 3


@pytest.fixture
def ilias(raw):
    food = {"cake": ["glowy_flup_468"], "other": ["wavy_zibby_944"]}
    tree = {"product": {"food": food}, "art": {"other": {"other": ["bold_bimp_000"]}}}
    write(raw / "taxonomy.json", json.dumps(tree))
    write(
        raw / "image_ids" / "image_query_ids.txt",
        "glowy_flup_468/query/Q468_00\nbold_bimp_000/query/Q000_00\n",
    )
    write(
        raw / "image_ids" / "positive_ids.txt",
        "glowy_flup_468/pos/P468_00,0.2,7\nbold_bimp_000/pos/P000_00,0.1,3\n",
    )
    return raw


def test_two_items_of_ilias_named_other_are_not_of_one_class_and_a_distractor_is_of_no_object(
    ilias,
):
    test = build("ilias-core", ilias, unofficial=True).tests["test"]
    assert names(test, "ilias_core/bold_bimp_000/pos/P000_00.jpg") == [
        "art",
        "other",
        "other (other)",
        "bold_bimp_000",
    ]
    assert test.items[test.query].tolist()[0] == "ilias_core/glowy_flup_468/query/Q468_00.jpg"
    write(
        ilias / "image_ids" / "positive_ids.txt",
        "wavy_zibby_944/pos/P944_00,0.2,7\nbold_bimp_000/pos/P000_00,1,3\n",
    )
    with_both = build("ilias-core", ilias, unofficial=True).tests["test"]
    assert names(with_both, "ilias_core/wavy_zibby_944/pos/P944_00.jpg")[2] == "other (food)"
    write(ilias / "image_ids" / "distractor_ids.txt", "000/a\n000/b.jpg\n")
    test = build("ilias", ilias, unofficial=True).tests["test"]
    assert test.items[test.gallery].tolist()[-2:] == ["yfcc100m/000/a.jpg", "yfcc100m/000/b.jpg"]
    asked = test.labels[test.query]
    assert not np.isin(test.labels[-2:], asked).any()


@pytest.mark.parametrize(
    ("name", "sample", "file", "text", "problem"),
    [
        (
            "bioscan-5m",
            "bioscan",
            BIOSCAN,
            "processid,species\nA1,x\n",
            "with the columns processid, chunk, split",
        ),
        (
            "fathomnet-2025",
            "fathomnet",
            "taxonomy.csv",
            f"name,{','.join(RANKS)}\nX,a,,,,,,\n",
            r"not in taxonomy\.csv",
        ),
        (
            "fashionpedia",
            "fashionpedia",
            "instances_attributes_val2020.json",
            '{"images": []}',
            "no 'categories'",
        ),
        (
            "ilias-core",
            "ilias",
            "image_ids/image_query_ids.txt",
            "silly_blob_001/query/Q001_00\n",
            "silly_blob_001",
        ),
    ],
)
def test_annotations_of_another_form_or_without_a_class_are_refused(
    request, name, sample, file, text, problem
):
    root = request.getfixturevalue(sample)
    write(root / file, text)
    with pytest.raises(DataError, match=problem):
        build(name, root)
