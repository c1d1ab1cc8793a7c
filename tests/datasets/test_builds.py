"""Builds of the published datasets from raw files: real ones where they may be kept here, else in
just their form.
"""

import csv
import dataclasses
import gzip
import json
import pickle
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

import hbench
from hbench.boards import Leaderboard
from hbench.boards.placing import placing
from hbench.core.errors import DataError, IntegrityError, TreeError
from hbench.datasets import build as building
from hbench.datasets import load, save, specs
from hbench.datasets.benchmarks import inshop as inshop_list
from hbench.datasets.build import build_published, count_contents
from hbench.datasets.spec import held_out
from hbench.submissions.embeddings import Embeddings
from tests.raw_folders import Evil, build, names, omniglot_archives, touch, write

GOLDEN = Path(__file__).parents[1] / "golden"


# CUB-200-2011: the real list of its 11,788 images, and the tree of the papers


@pytest.fixture
def cub(raw):
    paths = (GOLDEN / "cub200" / "cub_image_tree.txt").read_text().split()
    write(
        raw / "CUB_200_2011" / "images.txt",
        "".join(f"{i} {path}\n" for i, path in enumerate(paths, start=1)),
    )
    return raw


def test_cub_has_its_published_counts_and_keeps_the_errors_of_the_published_tree(cub):
    dataset, found, errors = building.build_published(specs["cub200"], cub)
    assert errors == []
    assert count_contents(dataset.train) == dict.fromkeys(
        ("images", "queries", "gallery"), 5_864
    ) | {
        "order": 13,
        "family": 30,
        "species": 100,
    }
    assert count_contents(dataset.tests["test"])["images"] == 5_924
    assert [len(found.missing), len(found.surplus)] == [11_788, 0]
    kittiwake, gull = (
        next(item for item in dataset.train.items if item.startswith(of)) for of in ("084.", "059.")
    )
    assert names(dataset.train, kittiwake) == [
        "Coraciiformes",
        "Laridae (Coraciiformes)",
        "Red legged Kittiwake",
    ]
    assert names(dataset.train, gull)[:2] == ["Charadriiformes", "Laridae (Charadriiformes)"]


def test_missing_and_surplus_images_and_counts_other_than_published_are_refused(cub):
    there = ["001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.jpg", "x/stray.jpg"]
    touch(cub / "CUB_200_2011" / "images", there)
    counts = r"1 of 11,788 images are there; 11,787 missing .*; 1 files without a label \(x/stray"
    with pytest.raises(IntegrityError, match=counts):
        build("cub200", cub)
    lines = (cub / "CUB_200_2011" / "images.txt").read_text().splitlines()
    write(cub / "CUB_200_2011" / "images.txt", "\n".join(lines[:-1]))
    with pytest.raises(IntegrityError, match="test: 5,923 images, published 5,924"):
        build("cub200", cub)
    assert build("cub200", cub, unofficial=True).version.startswith("1+")


def test_a_root_given_from_here_is_found_from_elsewhere(cub, tmp_path, monkeypatch):
    monkeypatch.chdir(cub.parent)
    save(build("cub200", Path(cub.name)), tmp_path / "built")
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path / "built").root.is_relative_to(cub)


def test_a_read_only_root_is_built_into_the_data_folder_and_else_into_the_cache(
    cub, home, small_disk, monkeypatch
):
    for path in [cub, *cub.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder = building.writable_folder("cub200")
    save(build("cub200", cub), folder)
    dataset = load("cub200")
    assert folder == home / "data" / "cub200"
    assert dataset.root == cub / "CUB_200_2011" / "images"
    assert dataset.tests["test"].digest == build("cub200", cub).tests["test"].digest
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    monkeypatch.setenv("HBENCH_DATA", str(small_disk / "data"))
    assert building.writable_folder("cub200") == home / "cache" / "datasets" / "cub200"


def test_what_is_not_built_says_how_to_get_it():
    with pytest.raises(DataError, match="hbench download cub200, then hbench build cub200"):
        load("cub200")
    with pytest.raises(DataError, match="raw files of cub200 are not in"):
        build("cub200", None)


# Omniglot: the real small sets, with their images


@pytest.fixture(scope="session")
def omniglot(tmp_path_factory):
    root = tmp_path_factory.mktemp("omniglot")
    for name, content in omniglot_archives().items():
        (root / name).write_bytes(content)
        shutil.unpack_archive(root / name, root)
    return root


def test_omniglot_is_built_and_its_images_are_read(omniglot):
    dataset, found, errors = building.build_published(specs["omniglot-small"], omniglot)
    assert errors == []
    assert (found.missing, found.surplus) == ((), ())
    assert [count_contents(manifest)["images"] for manifest in dataset.manifests.values()] == [
        2_720,
        3_120,
    ]
    item = "images_background_small1/Greek/character01/0394_01.png"
    assert names(dataset.train, item) == ["Greek", "Greek character01"]
    assert dataset.train.picture(item).size == (105, 105)


def test_the_open_omniglot_tests_on_alphabets_that_do_not_train(omniglot):
    dataset, _, errors = building.build_published(specs["omniglot-small-open"], omniglot)
    assert errors == []
    trained, tested = (list(manifest.tree.names[0]) for manifest in dataset.manifests.values())
    assert {"Greek", "Latin"} < set(trained)
    assert tested == ["Japanese_(katakana)", "Sanskrit", "Tagalog"]


# Grocery Store: the real lists of its 5,421 photographs, and the real table of its classes

ITS_TESTS = ("grocery", "grocery-open", "grocery-iconic", "grocery-description")
MUSHROOM = "Vegetables/{}Brown-Cap-Mushroom/Brown-Cap-Mushroom_001.jpg"


@pytest.fixture
def grocery(raw):
    """Laid out as its archive is unpacked."""
    folder = raw / "GroceryStoreDataset-fc80ba9" / "dataset"
    (folder / "iconic-images-and-descriptions").mkdir(parents=True)
    with tarfile.open(GOLDEN / "grocery" / "lists.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return raw


@pytest.mark.parametrize("name", ITS_TESTS)
def test_the_groceries_have_their_published_counts(name, grocery):
    dataset, _, errors = building.build_published(specs[name], grocery)
    assert errors == []
    assert {split: manifest.digest for split, manifest in dataset.manifests.items()} == (
        specs[name].digests
    )


def test_a_grocery_has_one_path_in_the_tree_however_deep_its_folder_is(grocery):
    dataset = build("grocery", grocery)
    path = ["Vegetables", "Mushroom", "Brown-Cap-Mushroom"]
    assert names(dataset.train, "train/" + MUSHROOM.format("")) == path
    assert names(dataset.tests["test"], "test/" + MUSHROOM.format("Mushroom/")) == path
    assert names(dataset.train, "train/Fruit/Avocado/Avocado_001.jpg") == [
        "Fruit",
        "Avocado",
        "Avocado",
    ]


def test_the_open_groceries_deal_every_photograph_by_coarse_classes_chosen_by_seed(grocery):
    dataset = build("grocery-open", grocery)
    trained, tested = (set(manifest.tree.names[1]) for manifest in dataset.manifests.values())
    assert tested == held_out(trained | tested, fraction=0.5, seed=0)
    assert trained.isdisjoint(tested)
    assert len(trained | tested) == 43  # the README has 42
    assert sum(map(len, dataset.manifests.values())) == 2_640 + 296 + 2_485


def test_clean_pictures_and_descriptions_ask_for_the_photographs_of_the_test(grocery):
    photographs = set(build("grocery", grocery).tests["test"].items)
    for name, suffix in (("iconic", "_Iconic.jpg"), ("description", "_Description.txt")):
        test = build(f"grocery-{name}", grocery).tests["test"]
        assert set(test.items[test.gallery]) == photographs
        asking = test.items[test.query].tolist()
        assert len(asking) == 81
        assert all(item.endswith(suffix) for item in asking)
        apple = "iconic-images-and-descriptions/Fruit/Apple/Pink-Lady/Pink-Lady" + suffix
        assert names(test, apple) == ["Fruit", "Apple", "Pink-Lady"]


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("train.txt", "_001.jpg, 0, 0", "_001.jpg, 81, 0", "a number below 81"),
        ("train.txt", "_001.jpg, 0, 0", "_001.jpg", "expected: 3 words"),
        ("classes.csv", "Granny-Smith,1,", "Granny-Smith,2,", "class 1"),
        ("classes.csv", "Class ID (int)", "ID", "another header"),
        ("classes.csv", "\n", ",Weight (g)\n", "another header"),
    ],
)
def test_lists_of_groceries_of_another_form_are_refused(file, old, new, found, grocery):
    (path,) = grocery.rglob(file)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=found):
        build("grocery", grocery)


# iNaturalist 2018: the real categories, with images of every species made up


@pytest.fixture
def inat(raw):
    with tarfile.open(GOLDEN / "inat18" / "categories.json.tar.gz") as archive:
        archive.extractall(raw, filter="data")
    categories = json.loads((raw / "categories.json").read_text())
    for split, test in (("train", False), ("test", True)):
        chosen = [c for c in categories if (c["id"] % 10 < 3) == test]
        lines = [f"train_val2018/{c['supercategory']}/{c['id']}/{c['id']:08x}.jpg" for c in chosen]
        write(raw / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt", "\n".join(lines))
    return raw


def test_inat_base_has_supercategories_and_species(inat):
    dataset = build("inat18-base", inat, unofficial=True)
    both = [set(manifest.tree.names[0]) for manifest in dataset.manifests.values()]
    assert len(both[0] | both[1]) == 14
    assert sum(map(len, dataset.manifests.values())) == 8_142
    hermodice = next(item for m in dataset.manifests.values() for item in m.items if "/0/" in item)
    assert names(dataset.tests["test"], hermodice) == ["Animalia", "Hermodice carunculata"]


def test_inat_full_is_a_tree_under_paper_and_goes_by_name_under_official(inat, tmp_path):
    save(build("inat18-full", inat, unofficial=True), tmp_path / "built")
    dataset = load(tmp_path / "built")
    train, official = dataset.train, dataset.official_names
    nodes = [
        set().union(*(m.tree.names[level] for m in dataset.manifests.values()))
        for level in range(7)
    ]
    assert list(map(len, nodes)) == [
        6,
        25,
        57,
        273,
        1_120,
        4_412,
        8_142,
    ]  # by path: homonyms and NA told apart
    assert set(official) == {"order", "family", "genus"}
    named = [
        {official.get(level, {}).get(node, node) for node in nodes[n]}
        for n, level in enumerate(dataset.levels)
    ]
    assert list(map(len, named)) == [6, 25, 57, 272, 1_118, 4_401, 8_142]
    assert official["genus"]["Iris (Tarachodidae)"] == "Iris"
    assert set(official["order"].values()) == {"NA"}
    labels = dataset.labels_by_name(train)
    assert (labels.max(axis=0) <= train.labels.max(axis=0)).all()
    genera = [official["genus"].get(name, name) for name in train.tree.names[5]]
    homonyms = [name for name in set(genera) if genera.count(name) > 1]
    assert homonyms
    for name in homonyms:
        nodes = [node for node, other in enumerate(genera) if other == name]
        assert len(np.unique(labels[np.isin(train.labels[:, 5], nodes), 5])) == 1


# H-GLDv2 and GLDv2: the real 55,529 labelled index landmarks, with made-up images


@pytest.fixture
def gldv2(raw):
    labels = gzip.decompress(
        (GOLDEN / "hgldv2" / "index_label_to_hierarchical.3col.csv.gz").read_bytes()
    ).decode()
    write(raw / "metadata" / "index_label_to_hierarchical.csv", labels)
    landmarks = [row[0] for row in csv.reader(labels.splitlines()[1:])]
    images = [f"{int(landmark):016x}" for landmark in landmarks]
    rows = [*zip(images, landmarks, strict=True), ("f" * 16, "1")]  # the last one has no label
    write(
        raw / "metadata" / "index_image_to_landmark.csv",
        "id,landmark_id\n" + "".join(f"{i},{n}\n" for i, n in rows),
    )
    truth = ["id,images,Usage", f"aaaa,{images[1]} {images[2]},Public", "bbbb,None,Ignored"]
    truth += [f"cccc,{'f' * 16} {images[0]},Private", f"dddd,{images[5]},Private"]
    write(raw / "ground_truth" / "retrieval_solution_v2.1.csv", "\n".join(truth))
    sample = (GOLDEN / "hgldv2" / "train_label_to_hierarchical.sample5col.csv").read_text(
        encoding="utf-8"
    )
    nowhere = "5,http://commons.wikimedia.org/wiki/Category:Nowhere,,,\n"
    write(raw / "metadata" / "train_label_to_hierarchical.csv", sample + nowhere)
    write(
        raw / "metadata" / "train_clean.csv",
        "landmark_id,images\n0,0a1b 0c2d\n5,ffff\n18,abcd\n7,eeee\n",
    )
    return raw


def test_hgldv2_has_the_landmarks_of_the_real_index_and_queries_with_that_of_their_first_image(
    gldv2,
):
    dataset = build("hgldv2", gldv2, unofficial=True)
    train, test = dataset.train, dataset.tests["test"]
    gallery = test.labels[test.gallery]
    assert [len(np.unique(column)) for column in gallery.T] == [2, 78, 55_529]
    kinds = dict(zip(test.tree.names[0], np.bincount(gallery[:, 0]).tolist(), strict=True))
    assert kinds == {"human-made": 42_199, "natural": 13_330}
    assert {"ocean area", "castle / fort"} <= set(test.tree.names[1])
    assert test.items[test.query].tolist() == ["test/a/a/a/aaaa.jpg", "test/d/d/d/dddd.jpg"]
    assert names(test, "test/a/a/a/aaaa.jpg") == ["natural", "lake", "index 2"]
    assert not (test.query & test.gallery).any()
    assert "index/f/f/f/ffffffffffffffff.jpg" not in set(test.items)
    assert train.items.tolist() == [
        "train/0/a/1/0a1b.jpg",
        "train/0/c/2/0c2d.jpg",
        "train/a/b/c/abcd.jpg",
    ]
    assert names(train, "train/0/a/1/0a1b.jpg") == [
        "human-made",
        "sports venue",
        "Happy Valley Racecourse (train 0)",
    ]
    assert names(train, "train/a/b/c/abcd.jpg")[2] == "Orthodox church in Ełk (train 18)"
    assert not set(train.tree.names[2]) & set(test.tree.names[2])  # numbered apart


def test_gldv2_keeps_the_official_lists(gldv2, tmp_path):
    save(build("gldv2", gldv2, unofficial=True), tmp_path / "built")
    dataset = load(tmp_path / "built")
    assert len(dataset.tests["test"]) == 55_529 + 1 + 3
    table = dataset.lists["test"].to_pylist()
    own = [row["item"] for row in table if row["query"] == "test/c/c/c/cccc.jpg"]
    assert own == ["index/0/0/0/0000000000000000.jpg", "index/f/f/f/ffffffffffffffff.jpg"]
    assert {row["level"] for row in table} == {1}
    (tmp_path / "built" / "test.list.parquet").unlink()
    with pytest.raises(DataError, match=r"test\.list\.parquet cannot be read"):
        load(tmp_path / "built")


# SOP, In-shop, DyML: the real beginnings of their files, continued in their form


@pytest.fixture
def sop(raw):
    head = (GOLDEN / "sop" / "Ebay_train.excerpt.txt").read_text()
    write(
        raw / "Stanford_Online_Products" / "Ebay_train.txt", head + "7 3 2 cabinet_final/1_0.JPG\n"
    )
    header = head.splitlines()[0].replace(" ", "\t")  # as a copy from a spreadsheet has it
    write(
        raw / "Stanford_Online_Products" / "Ebay_test.txt",
        f"{header}\n1 11319 2 cabinet_final/9 0.JPG\n",
    )
    return raw


def test_sop_is_built_by_kind_and_product(sop):
    dataset = build("sop", sop, unofficial=True)
    assert len(dataset.train) == 7
    assert names(dataset.train, "bicycle_final/111265328556_1.JPG") == ["bicycle", "bicycle 2"]
    assert dataset.tests["test"].tree.names == (("cabinet",), ("cabinet 11319",))
    assert dataset.tests["test"].items.tolist() == ["cabinet_final/9 0.JPG"]
    with pytest.raises(IntegrityError, match="train: 7 images, published 59,551"):
        build("sop", sop)


@pytest.fixture
def inshop(raw):
    lines = (GOLDEN / "inshop" / "list_eval_partition.excerpt.txt").read_text().splitlines()
    rows = [
        ("MEN", 80, "1_front", "query"),
        ("MEN", 80, "2_side", "gallery"),
        ("WOMEN", 90, "2_side", "gallery"),
    ]
    more = [
        f"img/{sex}/Denim/id_{n:08}/01_{view}.jpg   id_{n:08} {part:<10} "
        for sex, n, view, part in rows
    ]
    write(raw / "Eval" / "list_eval_partition.txt", "\n".join(["5", *lines[1:4], *more]))
    touch(raw, ["Img/img/MEN/Denim/id_00000080/01_1_front.jpg"])
    return raw


def test_inshop_has_separate_queries_and_gallery_and_one_map_of_categories(inshop):
    dataset = build("inshop", inshop, unofficial=True)
    test = dataset.tests["test"]
    assert dataset.train.tree.names[0] == ("WOMEN/Dresses",)
    assert test.tree.names[0] == ("MEN/Denim", "WOMEN/Denim")
    assert (test.query.tolist(), test.gallery.tolist()) == (
        [True, False, False],
        [False, True, True],
    )
    assert dataset.root == inshop / "Img"


@pytest.fixture
def dyml(raw):
    for split in ("train", "mini-bmk_all_in_one"):
        (raw / split).mkdir()
        shutil.copy(GOLDEN / "dyml" / "label.csv", raw / split / "label.csv")
    for level in ("fine", "middle", "coarse"):
        write(raw / f"bmk_{level}" / "query.csv", (GOLDEN / "dyml" / "query.csv").read_text())
        write(
            raw / f"bmk_{level}" / "gallery.csv", "fname, labels10.jpg, 12\n11.jpg, 7\n12.jpg, 12\n"
        )
    return raw


def test_dyml_does_not_lose_the_image_that_is_glued_to_the_header_which_may_also_end_its_line(dyml):
    dataset = build("dyml-vehicle", dyml, unofficial=True)
    assert dataset.train.items.tolist() == [
        "train/imgs/0.jpg",
        "train/imgs/1.jpg",
        "train/imgs/2.jpg",
    ]
    assert names(dataset.train, "train/imgs/2.jpg") == ["coarse 1", "middle 3", "fine 17"]
    fine = dataset.tests["fine"]
    assert fine.items[fine.query].tolist() == [f"bmk_fine/query/{i}.jpg" for i in range(3)]
    assert (
        names(fine, "bmk_fine/query/0.jpg") == names(fine, "bmk_fine/gallery/12.jpg") == ["fine 12"]
    )
    write(dyml / "train" / "label.csv", "fname, coarse_id, middle_id, fine_id\n0.jpg, 0, 0, 17\n")
    write(dyml / "names.csv", "level,id,name\nfine,17,pickup\n")  # a file may name the classes
    train = build("dyml-vehicle", dyml, unofficial=True).train
    assert names(train, "train/imgs/0.jpg") == ["coarse 0", "middle 0", "fine 17 pickup"]


def test_dyml_has_three_tests_of_one_level_each_and_is_scored_as_their_mean(dyml, tmp_path):
    save(build("dyml-vehicle", dyml, unofficial=True), tmp_path / "built")
    dataset = load(tmp_path / "built")
    assert dataset.train.levels == ("coarse", "middle", "fine")
    assert dataset.levels == ("class",)
    assert list(dataset.tests) == ["fine", "middle", "coarse"]
    assert [test.tree.names[0][0].split()[0] for test in dataset.tests.values()] == [
        "fine",
        "middle",
        "coarse",
    ]
    items = [item for test in dataset.tests.values() for item in test.items]
    vectors = np.random.default_rng(0).normal(size=(len(items), 8)).astype(np.float32)
    report = hbench.evaluate(
        Embeddings(np.array(items, dtype=object), vectors, "", "made up", "float32"), dataset
    )
    values = report.per_query["AP"]
    assert len(values) == 9
    means = [
        np.nanmean(values[np.array(report.table["test"].to_pylist()) == name])
        for name in dataset.tests
    ]
    assert report.scores["AP"] == pytest.approx(np.mean(means), abs=1e-12)


def test_a_set_with_counts_that_no_publication_has_gets_no_place(dyml):
    dataset, _, remarks = build_published(specs["dyml-vehicle"], dyml)
    assert dataset.version.startswith("1+")
    assert "2 fine, 2 middle, 2 coarse; published: 39,491 fine" in remarks[0]
    assert "or 36,301 fine" in remarks[0]
    items = [item for test in dataset.tests.values() for item in test.items]
    report = hbench.evaluate(np.eye(len(items), dtype=np.float32), dataset, ids=items)
    assert "another dataset" in placing(report.document, hbench.leaderboard("dyml-vehicle"))


def test_a_set_with_the_counts_of_one_publication_is_the_published_one(dyml):
    spec = dataclasses.replace(
        specs["dyml-vehicle"],
        disputed={"train": ({"fine": 4, "middle": 3}, {"fine": 2, "middle": 2})},
    )
    dataset, _, remarks = build_published(spec, dyml)
    assert dataset.version == "1"
    assert not [remark for remark in remarks if "another dataset" in remark]


def test_a_set_of_which_the_training_alone_is_counted_says_so_and_gets_no_place(dyml):
    spec = dataclasses.replace(
        specs["dyml-animal"], counts={"train": {"fine": 2, "middle": 2, "coarse": 2}}
    )
    dataset, _, remarks = build_published(spec, dyml)
    assert dataset.version == "1"
    assert [remark.split(",")[0] for remark in remarks] == [
        "no counts of the tests of dyml-animal are at hand"
    ]
    items = [item for test in dataset.tests.values() for item in test.items]
    vectors = np.eye(len(items), dtype=np.float32)
    report = hbench.evaluate(vectors, dataset, ids=items, protocol="official")
    placed = placing(report.document, hbench.leaderboard("dyml-animal"))
    assert "no counts of the tests of dyml-animal" in placed


def test_a_set_that_nothing_published_was_compared_with_gets_no_place():
    named = dataclasses.replace(load("glyphs"), name="products-10k", version="1")
    items = named.tests["test"].items.tolist()
    vectors = np.random.default_rng(0).normal(size=(len(items), 4)).astype(np.float32)
    report = hbench.evaluate(vectors, named, ids=items, metrics="AP")
    board = Leaderboard(dataset="products-10k", version="1", protocol="paper", metric="AP")
    assert "no counts of the tests of products-10k" in placing(report.document, board)


def test_a_dyml_query_ignores_its_copy_in_the_gallery(dyml):
    touch(dyml, ["bmk_fine/query/0.jpg", "bmk_fine/gallery/12.jpg"], b"same picture")
    touch(dyml, ["bmk_fine/query/1.jpg", "bmk_fine/gallery/10.jpg"], b"one")
    touch(dyml, ["bmk_fine/gallery/10.jpg"], b"two")
    fine = build("dyml-vehicle", dyml, unofficial=True).tests["fine"]
    groups = dict(zip(fine.items.tolist(), fine.ignore.tolist(), strict=True))
    assert groups["bmk_fine/query/0.jpg"] == groups["bmk_fine/gallery/12.jpg"] >= 0
    assert groups["bmk_fine/query/1.jpg"] == groups["bmk_fine/gallery/10.jpg"] == -1


def test_dyml_product_tests_one_set_at_three_levels(dyml):
    dataset = build("dyml-product", dyml, unofficial=True)
    assert list(dataset.tests) == ["fine", "middle", "coarse"]
    assert len({tuple(test.items) for test in dataset.tests.values()}) == 1
    assert names(dataset.tests["middle"], "mini-bmk_all_in_one/imgs/2.jpg") == ["middle 3"]


# Cars196, CIFAR-100, Aircraft, NABirds, iNaturalist 2021, Oxford and Paris: in the form of their
# files


def test_cars_are_split_by_class_whatever_their_own_flag_says(raw):
    kinds = [("relative_im_path", object), ("bbox_x1", object), ("class", object), ("test", object)]
    rows = [
        ("car_ims/000001.jpg", 1, 1, 0),
        ("car_ims/000002.jpg", 9, 98, 1),
        ("car_ims/000003.jpg", 3, 99, 0),
    ]
    content = {
        "annotations": np.array([rows], dtype=kinds),
        "class_names": np.array([["x"]], object),
    }
    savemat(raw / "cars_annos.mat", content)
    dataset = build("cars196", raw, unofficial=True)
    assert dataset.train.items.tolist() == ["car_ims/000001.jpg", "car_ims/000002.jpg"]
    assert names(dataset.train, "car_ims/000001.jpg") == ["SUV", "AM General Hummer SUV 2000"]
    (raw / "cars_annos.mat").write_bytes(b"not a mat file")
    with pytest.raises(DataError, match=r"cars_annos\.mat is not a list of cars"):
        build("cars196", raw, unofficial=True)


@pytest.fixture
def cifar(raw):
    known = json.loads((GOLDEN / "cifar100" / "fine_to_coarse.json").read_text())
    folder = raw / "cifar-100-binary"
    write(folder / "fine_label_names.txt", "\n".join(known["fine_names_sorted"]) + "\n")
    write(folder / "coarse_label_names.txt", "\n".join(known["coarse_names"]) + "\n\n")
    pixels = np.random.default_rng(0).integers(0, 256, (200, 3072), dtype=np.uint8)
    fine = np.arange(200) % 100
    coarse = np.asarray(known["fine_to_coarse"])[fine]
    records = np.column_stack([coarse, fine, pixels]).astype(np.uint8)
    (folder / "train.bin").write_bytes(records.tobytes())
    (folder / "test.bin").write_bytes(records[:100].tobytes())
    return folder


def test_cifar_has_a_hundred_classes_in_twenty_superclasses(cifar):
    dataset = build("cifar100", cifar, unofficial=True)
    assert count_contents(dataset.train) == {
        "images": 200,
        "queries": 200,
        "gallery": 200,
        "superclass": 20,
        "class": 100,
    }
    assert names(dataset.train, "train/00000.png") == ["fruit_and_vegetables", "apple"]
    record = np.frombuffer((cifar / "train.bin").read_bytes(), np.uint8)[3074 * 7 :][:3074]
    image = np.asarray(dataset.train.picture("train/00007.png"))
    assert np.array_equal(image[5, 9], record[2:].reshape(3, 32, 32)[:, 5, 9])


def test_aircraft_variants_are_halved_in_the_order_of_their_list(raw):
    data = raw / "fgvc-aircraft-2013b" / "data"
    write(data / "variants.txt", "707-320\n727-200\nA300B4\nF/A-18\n")
    names_of_images = {
        "variant": ("707-320", "F/A-18", "A300B4"), "family": ("Boeing 707", "F/A-18", "A300"),
        "manufacturer": ("Boeing", "McDonnell Douglas", "Airbus"),
    }  # fmt: skip
    for level, (first, second, third) in names_of_images.items():
        write(data / f"images_{level}_trainval.txt", f"1 {first}\n2 {second}\n")
        write(data / f"images_{level}_test.txt", f"3 {third}\n")
    dataset = build("fgvc-aircraft", raw, unofficial=True)
    assert dataset.train.items.tolist() == ["images/1.jpg"]
    test = dataset.tests["test"]
    assert names(test, "images/2.jpg") == ["McDonnell Douglas", "F/A-18", "F/A-18"]
    assert names(test, "images/3.jpg") == ["Airbus", "A300", "A300B4"]


def test_nabirds_leaves_of_two_depths_become_one_depth(raw):
    folder = raw / "nabirds"
    classes = [
        "Birds",
        "Ducks, Geese, and Swans",
        "Ducks",
        "Mallard",
        "Mallard (Female)",
        "Gadwall",
    ]
    write(
        folder / "classes.txt", "".join(f"{number} {name}\n" for number, name in enumerate(classes))
    )
    write(folder / "hierarchy.txt", "1 0\n2 1\n3 2\n4 3\n5 2\n")
    write(folder / "images.txt", "a-1 0004/a1.jpg\nb-2 0005/b2.jpg\n")
    write(folder / "image_class_labels.txt", "a-1 4\nb-2 5\n")
    write(folder / "train_test_split.txt", "a-1 1\nb-2 0\n")
    dataset = build("nabirds", raw, unofficial=True)
    assert names(dataset.train, "0004/a1.jpg") == [
        f"{classes[number]} #{number}" for number in range(1, 5)
    ]
    assert names(dataset.tests["test"], "0005/b2.jpg")[2:] == ["Gadwall #5", "Gadwall #5"]
    write(folder / "hierarchy.txt", "1 0\n2 1\n3 2\n4 3\n5 4\n")
    with pytest.raises(TreeError, match=r"class 5 of .* lies too deep"):
        build("nabirds", raw, unofficial=True)


def test_inat21_is_built_from_its_folders(raw):
    iris = "00001_Plantae_Tracheophyta_Liliopsida_Asparagales_Iridaceae_Iris_germanica"
    mantis = "00002_Animalia_Arthropoda_Insecta_Mantodea_Mantidae_Iris_oratoria"
    touch(raw, [f"train_mini/{iris}/a.jpg", f"train_mini/{mantis}/b.jpg", f"val/{iris}/c.jpg"])
    dataset = build("inat21-mini", raw, unofficial=True)
    path = [
        "Animalia",
        "Arthropoda",
        "Insecta",
        "Mantodea",
        "Mantidae",
        "Iris (Mantidae)",
        "Iris oratoria",
    ]
    assert names(dataset.train, f"train_mini/{mantis}/b.jpg") == path
    assert names(dataset.tests["test"], f"val/{iris}/c.jpg")[5] == "Iris (Iridaceae)"


def test_an_open_inat21_keeps_the_images_of_a_species_together(raw):
    species = [
        f"{n:05d}_Plantae_Tracheophyta_Liliopsida_Asparagales_Iridaceae_Iris_i{n}"
        for n in range(10)
    ]
    touch(raw, [f"{folder}/{each}/a.jpg" for folder in ("train_mini", "val") for each in species])
    dataset = build("inat21-mini-open", raw, unofficial=True)
    test = dataset.tests["test"]
    assert count_contents(dataset.train)["species"] == 7
    assert count_contents(test)["species"] == 3
    assert not set(dataset.train.tree.names[6]) & set(test.tree.names[6])
    assert {item.split("/")[0] for item in test.items} == {"train_mini", "val"}


SOP = "image_id class_id super_class_id path\n"


@pytest.mark.parametrize(
    ("name", "sample", "file", "text", "problem"),
    [
        (
            "sop",
            "sop",
            "Stanford_Online_Products/Ebay_train.txt",
            "image_id class_id path\n",
            "another header",
        ),
        ("sop", "sop", "Stanford_Online_Products/Ebay_train.txt", "", "another header"),
        (
            "sop",
            "sop",
            "Stanford_Online_Products/Ebay_train.txt",
            f"{SOP[:-1]} extra\n",
            "another header",
        ),
        (
            "sop",
            "sop",
            "Stanford_Online_Products/Ebay_train.txt",
            f"{SOP}1 1 a.JPG\n",
            "line 2, cannot be understood",
        ),
        (
            "sop",
            "sop",
            "Stanford_Online_Products/Ebay_train.txt",
            f"{SOP}\n1 1 a.JPG\n",  # a line that is blank counts
            "line 3, cannot be understood",
        ),
        (
            "inshop",
            "inshop",
            "Eval/list_eval_partition.txt",
            "1.jpg 0\n2.jpg 0\n",
            "is not an In-shop list",
        ),  # CelebA's
        (
            "inshop",
            "inshop",
            "Eval/list_eval_partition.txt",
            f"52712\n{' '.join(inshop_list.HEADER)}\n",
            "cut short",
        ),
        ("cifar100", "cifar", "test.bin", "x" * 3073, "is not a CIFAR-100 file"),
        (
            "inat18-base",
            "inat",
            "Inat_dataset_splits/Inaturalist_test_set1.txt",
            "train_val2018/Aves/9999/x.jpg",
            "9999",
        ),
    ],
)
def test_a_damaged_or_foreign_list_is_refused(request, name, sample, file, text, problem):
    root = request.getfixturevalue(sample)
    write(root / file, text)
    with pytest.raises(DataError, match=problem):
        build(name, root)


def revisited(path, truth):
    path.write_bytes(pickle.dumps(truth, protocol=2))


@pytest.fixture
def oxford(raw):
    gnd = [{"bbx": [1.0, 2.0, 5.5, 8.0], "easy": np.array([0]), "hard": [1], "junk": [2]}]
    images = ["all_souls_000001", "all_souls_000002", "oxford_003", "magdalen_000001"]
    revisited(
        raw / "gnd_roxford5k.pkl", {"imlist": images, "qimlist": ["all_souls_000013"], "gnd": gnd}
    )
    (raw / "jpg").mkdir()
    Image.new("RGB", (10, 10)).save(raw / "jpg" / "all_souls_000013.jpg")
    return raw


def test_oxford_lists_what_is_positive_and_what_is_left_out(oxford):
    dataset = build("roxford5k", oxford, unofficial=True)
    images = ("all_souls_000001", "all_souls_000002", "oxford_003")
    levels = {"easy": (1, -1, -1), "medium": (1, 1, -1), "hard": (-1, 1, -1)}
    for test, values in levels.items():
        listed = {row["item"][4:-4]: row["level"] for row in dataset.lists[test].to_pylist()}
        assert listed == dict(zip(images, values, strict=True))
    assert names(dataset.tests["easy"], "query/all_souls_000013.jpg") == ["all souls"]
    assert dataset.tests["hard"].picture("query/all_souls_000013.jpg").size == (
        5,
        6,
    )  # cut to its box


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_ground_truth_of_python_3_with_empty_arrays_is_read(oxford, protocol):
    path = oxford / "gnd_roxford5k.pkl"
    truth = pickle.loads(path.read_bytes())
    truth["gnd"][0]["junk"] = np.array([], dtype=np.int64)
    path.write_bytes(pickle.dumps(truth, protocol=protocol))
    lists = build("roxford5k", oxford, unofficial=True).lists
    assert [len(lists[name]) for name in ("easy", "medium", "hard")] == [2, 2, 2]


class Filling:
    def __reduce__(self):
        return (bytes, (1 << 40,))


PART = {"cids": ["00001111aaaa", "00001111aabb"], "cluster": [0, 0], "qidxs": [0], "pidxs": [1]}


IMAGES = {"imlist": [], "qimlist": []}
FOREIGN = {
    "gnd_rparis6k.pkl": [Evil(), Filling(), [], IMAGES, IMAGES | {"gnd": [{"bbx": []}]}],
    "retrieval-SfM-120k.pkl": [Evil(), [1], {"train": {}}, {"train": PART, "val": {"cids": []}}],
}


@pytest.mark.parametrize(
    ("file", "content"), [(file, each) for file in FOREIGN for each in FOREIGN[file]]
)
def test_a_foreign_or_hostile_pickle_is_refused_and_never_run(raw, capsys, file, content):
    revisited(raw / file, content)
    with pytest.raises(DataError, match=r"is not (a ground truth|the list of SfM-120k)"):
        build("sfm-120k" if "SfM" in file else "rparis6k", raw)
    assert capsys.readouterr().out == ""


def test_sfm_trains_and_tests_on_other_models(raw):
    content = {
        "train": PART,
        "val": PART | {"cids": ["2222333344ff", "2222333355ff"], "cluster": np.array([700, 701])},
    }
    revisited(raw / "retrieval-SfM-120k.pkl", content)
    dataset = build("sfm-120k", raw)
    assert dataset.train.items.tolist() == [
        "ims/aa/aa/11/00001111aaaa",
        "ims/bb/aa/11/00001111aabb",
    ]
    assert dataset.tests["test"].tree.names == (("model 700", "model 701"),)
