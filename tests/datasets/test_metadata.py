"""What a built folder tells other tools, read by these tools: mlcroissant and Hugging Face
datasets.
"""

import dataclasses
import json
import shutil

import datasets as hugging_face
import numpy as np
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from PIL import Image

from hbench.datasets import read, save, specs
from hbench.datasets.dataset import Dataset, Protocol
from hbench.datasets.manifest import from_names
from hbench.datasets.metadata.cards import MARK, card_text, croissant, write_cards
from hbench.submissions import embeddings
from tests.command_line import call, python

READ = """
import json, sys
import mlcroissant
described = mlcroissant.Dataset(sys.argv[1])
records = {each.id: list(described.records(each.id)) for each in described.metadata.record_sets}
print(json.dumps({
    "issues": [*described.metadata.issues.errors, *described.metadata.issues.warnings],
    "authors": [each.name for each in described.metadata.creators],
    "records": {name: [{key: str(value) for key, value in row.items()} for row in rows] for name, rows in records.items()},
}))
"""


def read_by_mlcroissant(folder):
    return json.loads(python(READ, folder / "croissant.json").splitlines()[-1])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An own dataset of images, built by the command."""
    folder = tmp_path_factory.mktemp("metadata")
    for place, kind in enumerate(("owls/barn", "owls/bay", "parrots/galah", "parrots/kea")):
        for number in range(2):
            path = folder / "zoo" / kind / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (5, 4), (place * 40, number * 9, 7)).save(path)
    words = (
        "build",
        "zoo",
        "--from",
        folder / "zoo",
        "--levels",
        "order,kind",
        "--split-by",
        "kind",
        "--cards",
    )
    call(*words, "--out", folder / "built")
    return folder / "built"


def test_load_dataset_takes_a_built_folder(built, tmp_path):
    loaded = hugging_face.load_dataset(str(built), cache_dir=str(tmp_path))
    dataset = read(built)
    assert set(loaded) == {"train", "test"}
    for split, manifest in (("train", dataset.train), ("test", dataset.tests["test"])):
        rows = loaded[split]
        assert rows["item"][:] == manifest.items.tolist()
        assert [image.size for image in rows["image"]] == [(5, 4)] * len(manifest)
        for level, names, ids in zip(
            manifest.levels, manifest.tree.names, manifest.labels.T, strict=True
        ):
            feature = rows.features[level]
            assert [feature.int2str(number) for number in rows[level][:]] == [
                names[each] for each in ids
            ]
        first = manifest.picture(rows["item"][0])
        np.testing.assert_array_equal(np.asarray(rows["image"][0]), np.asarray(first))
    assert loaded["train"].features == loaded["test"].features


def test_mlcroissant_reads_every_row_of_a_built_folder(built):
    found = read_by_mlcroissant(built)
    # an own dataset has no licence, paper or date
    assert all("recommended" in issue for issue in found["issues"])
    test = read(built).tests["test"]
    assert [row["test/item"] for row in found["records"]["test"]] == [
        str(each.encode()) for each in test.items
    ]


def test_a_published_set_says_all_that_croissant_recommends(tmp_path):
    spec = specs["cub200"]
    manifest = from_names(
        ["0.jpg", "1.jpg"], [("A", "B", "C"), ("A", "B", "D")], levels=spec.levels
    )
    card = {
        "title": spec.title,
        "homepage": spec.homepage,
        "licence": spec.licence,
        "citation": spec.citation,
    }
    card["defects"] = ["one"]
    dataset = Dataset("cub200", spec.version, Protocol(), manifest, {"test": manifest}, card=card)
    save(dataset, tmp_path)
    write_cards(dataset, tmp_path)
    found = read_by_mlcroissant(tmp_path)
    assert found["issues"] == []
    assert found["authors"][0] == "Catherine Wah"
    assert "@techreport{wah2011cub" in croissant(dataset, tmp_path)["citeAs"]
    assert "chang2021flamingo" in card_text(dataset)
    assert "## Known defects" in card_text(dataset)
    versions = {
        "1": "1.0.0",
        "1+3f2a90c1": "1.0.0+3f2a90c1",
        "f989e7": "0.0.0+f989e7",
    }  # of three numbers
    for version, expected in versions.items():
        assert (
            croissant(dataclasses.replace(dataset, version=version), tmp_path)["version"]
            == expected
        )


def test_splits_of_other_levels_are_configurations_of_their_own(tmp_path):
    test = from_names(["a", "b"], [("x",), ("y",)], levels=["fine"])
    train = from_names(["c", "d"], [("u", "x"), ("u", "z")], levels=["coarse", "fine"])
    grouped = dataclasses.replace(test, ignore=np.array([0, -1]))
    dataset = Dataset("two", "1", Protocol(), train, {"fine": test, "middle": grouped})
    save(dataset, tmp_path)
    write_cards(dataset, tmp_path)
    load = hugging_face.load_dataset
    assert set(load(str(tmp_path), "train", cache_dir=str(tmp_path / "c"))["train"].features) >= {
        "coarse",
        "fine",
    }
    files = json.loads(card_text(dataset).split("configs: ")[1].splitlines()[0])
    assert [each["config_name"] for each in files] == ["default", "train"]
    assert {each["split"] for entry in files for each in entry["data_files"]} == {
        "train",
        "test_fine",
        "test_middle",
    }


def test_a_readme_of_somebody_else_stays(built, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(built, folder)
    assert MARK in (folder / "README.md").read_text(encoding="utf-8")
    assert write_cards(read(built), folder)
    (folder / "README.md").write_text("mine", encoding="utf-8")
    assert not write_cards(read(built), folder)
    assert (folder / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_benchmark_of_the_hub_has_a_task_for_every_result_that_models_bring(built, tmp_path):
    """The fields of the hub's specification of eval.yaml; ids and values as its client reads
    results."""
    benchmark = yaml.safe_load((built / "eval.yaml").read_text(encoding="utf-8"))
    assert set(benchmark) == {"name", "description", "tasks"}
    assert all(set(task) == {"id", "config", "split"} for task in benchmark["tasks"])
    assert {(task["config"], task["split"]) for task in benchmark["tasks"]} == {("default", "test")}

    items = read(built).tests["test"].items.tolist()
    vectors = np.random.default_rng(0).normal(size=(len(items), 3)).astype(np.float32)
    embeddings.write(tmp_path / "v.npz", items, vectors)
    results = yaml.safe_load(
        call("evaluate", tmp_path / "v.npz", "-d", built, "--format", "hub").stdout
    )
    brought = {entry.task_id for entry in parse_eval_result_entries(results)}
    assert len(brought) > 5
    assert brought <= {task["id"] for task in benchmark["tasks"]}


def test_an_eval_yaml_of_the_users_is_kept(built, tmp_path):
    folder = tmp_path / "own"
    save(read(built), folder)
    (folder / "eval.yaml").write_text("name: mine\n")
    write_cards(read(built), folder)
    assert (folder / "eval.yaml").read_text() == "name: mine\n"
