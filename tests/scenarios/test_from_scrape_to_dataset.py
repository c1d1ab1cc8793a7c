"""From landmarks to a dataset with super-categories: every step of `hbench hgldv2` as a curator takes
them, against a local Wikimedia; in the end each runs alone on the files that it says it reads.
"""

import json
import shutil

import numpy as np
from hbench_hgldv2 import artefact
from hbench_hgldv2.steps import STEPS
from hbench_hgldv2.wikimedia.client import Servers

from hbench import datasets
from tests.command_line import refusal
from tests.pipelines.official import rows_of as table
from tests.pipelines.test_steps import PATHS, curate, raw_folder, run, write
from tests.pipelines.wikimedia_server import Server, serving
from tests.pipelines.wikimedia_world import world_of


def test_all_steps_from_scrape_to_dataset(tmp_path):
    world, work = world_of(600), tmp_path / "work"
    raw = raw_folder(world, tmp_path / "raw")
    with serving(Server(world)) as server:
        places = dict(zip(Servers._fields, PATHS, strict=True))
        addresses = [
            part for name, path in places.items() for part in ("--server", name, server.url + path)
        ]
        scraping = [
            "scrape",
            "--raw",
            raw,
            "--contact",
            "a@example.org",
            "--rate",
            "10",
            "--limit",
            "40",
            *addresses,
        ]
        run(work, *scraping)
        asked = len(server.log)
        assert "up to date" in run(work, *scraping).stderr
        assert len(server.log) == asked
        (work / "links.csv").unlink()
        run(work, *scraping)
        assert len(server.log) == asked  # the cache answers
        (agent,) = {agent for _, agent, _, _ in server.log}
        assert "a@example.org" in agent
    run(work, "clean")
    names = tmp_path / "names.csv"
    names.write_text("made,human-made\nwild,natural\n", encoding="utf-8")
    run(work, "encode", "--encoder", "tfidf", "--names", names)
    run(work, "cluster", "--k", "5", "--algorithm", "ward")
    run(work, "sweep", "--k", "3,5", "--algorithm", "ward", "--resamples", "2")
    alone = json.loads(run(work, "quality", "--json").stdout)
    assert set(alone) == {"without a reference"}
    assert set(alone["without a reference"]) == {"silhouette", "coherence", "stability"}
    run(work, "review", "--names", names)
    curate(work)
    run(work, "replay", "--strict")
    before = (work / "mapping.csv").read_bytes()
    run(work, "replay")
    assert (work / "mapping.csv").read_bytes() == before
    run(work, "review", "--against", work / "decisions.yaml")
    assert '"other": {"name": "decisions", "places": {' in (work / "review.html").read_text(
        encoding="utf-8"
    )
    agreement = json.loads(
        run(work, "agreement", work / "decisions.yaml", work / "decisions.yaml", "--json").stdout
    )
    assert (agreement["observed"], agreement["queue"]) == (1.0, [])
    measures = json.loads(run(work, "quality", "--mapping", work / "mapping.csv", "--json").stdout)
    assert measures["labels"]["ari"] == 1.0
    assert (work / "quality.svg").read_text(encoding="utf-8").startswith("<?xml")
    run(work, "assemble", "--raw", raw)
    dataset = datasets.load(work / "dataset")
    assert dataset.levels == ("kind", "super_category", "landmark")
    assert set(dataset.tests["test"].tree.names[1]) == {"made", "wild"}
    assert dataset.tests["test"].query.sum() > 0
    assert "2 super-categories" in (work / "card.md").read_text(encoding="utf-8")
    record = json.loads((work / "mapping.csv.json").read_text(encoding="utf-8"))
    assert record["sha256"] == artefact.sha256(work / "mapping.csv")
    assert set(record["inputs"]) == {"labels.csv", "clusters.csv", "decisions.yaml"}
    images = tmp_path / "images.npz"
    width = np.load(work / "embeddings.npz")["vectors"].shape[1]
    ids = [f"t{2 * n:015x}" for n in range(10)]
    np.savez(images, ids=ids, vectors=np.random.default_rng(0).normal(size=(10, width)))
    write(
        tmp_path / "landmarks.csv",
        ["id", "landmark_id"],
        [(name, n // 2) for n, name in enumerate(ids)],
    )
    assigning = ("assign", "--images", images, "--landmarks", tmp_path / "landmarks.csv")
    assert "'test' is not one of" in refusal(
        "hgldv2", "--work", work, *assigning, "--split", "test"
    )
    run(work, *assigning, "--split", "train")
    assert len((work / "assigned_train.csv").read_text(encoding="utf-8").splitlines()) == 1 + 5
    before = {(row["split"], row["landmark_id"]): row for row in table(work / "hierarchy.csv")}
    run(work, "assemble")
    after = {(row["split"], row["landmark_id"]): row for row in table(work / "hierarchy.csv")}
    known = {row["landmark_id"] for row in table(work / "selection.csv") if row["split"] == "train"}
    placed = {key for key, row in before.items() if row["hierarchical_label"]}
    for key, row in after.items():
        by_images = key[0] == "train" and key[1] in set("01234") and key not in placed
        assert (row["source"] == "assigned") == by_images
        assert by_images or row == before[key]
    assert {key for key in after if key not in before} <= {
        ("train", n) for n in known & set("01234")
    }
    record = json.loads(
        (work.joinpath("hierarchy/metadata/train_label_to_hierarchical.csv.json")).read_text()
    )
    assert "assigned_train.csv" in record["inputs"]
    decided = ["decisions.yaml", "decisions.yaml"]
    arguments = {
        "clean": [], "encode": ["--encoder", "tfidf"], "cluster": ["--k", "5"],
        "sweep": ["--k", "3", "--resamples", "2"],
        "review": [], "replay": [], "agreement": decided,
        "assemble": ["--raw", str(raw)], "statistics": [], "quality": [],
        "assign": [*map(str, assigning[1:]), "--split", "train"],
    }  # fmt: skip
    for step, given in arguments.items():
        words = [work / word if word in decided else word for word in given]
        does_what_the_table_says(step, work, tmp_path / f"only-{step}", words)


def does_what_the_table_says(step, work, alone, arguments):
    """Run a step where only the files are that it reads by the table of steps; it writes those of
    the table, and no others.
    """
    for name in (name.strip("[]") for name in STEPS[step].reads):
        for file in (name, f"{name}.json"):
            if (work / file).exists():
                (alone / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(work / file, alone / file)
    before = {path for path in alone.rglob("*") if path.is_file()}
    run(alone, step, *arguments)
    made = {
        path.relative_to(alone).as_posix()
        for path in alone.rglob("*")
        if path.is_file() and path not in before
    }
    made = {f"{name.split('/')[0]}/" if "/" in name else name for name in made}
    # a split at a time
    written = set(STEPS[step].writes) - ({"assigned_index.csv"} if step == "assign" else set())
    assert written <= made <= written | {f"{name}.json" for name in written}
