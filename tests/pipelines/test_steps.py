"""The steps as commands against a local Wikimedia: their order, records, refusals and outputs."""

import csv
import json
from functools import partial

import pytest
from hbench_hgldv2 import artefact
from hbench_hgldv2.cli.from_scratch import from_scratch
from hbench_hgldv2.grouping import taxonomy
from hbench_hgldv2.grouping.encode import kinds_in
from hbench_hgldv2.labels import clean, released, scrape
from hbench_hgldv2.labels.label import normalised
from hbench_hgldv2.wikimedia.client import Servers
from hbench_hgldv2.wikimedia.facts import Entity, FactSource, Named
from PIL import Image

from hbench import datasets
from hbench.core.errors import ComparisonError, ConfigError, DataError, IntegrityError, UsageError
from hbench.datasets.benchmarks import gldv2
from tests.command_line import call
from tests.pipelines.official import GOLDEN
from tests.pipelines.official import rows_of as table
from tests.pipelines.wikimedia_server import Server, serving
from tests.pipelines.wikimedia_world import world_of

PATHS = ("/commons/w/api.php", "/wikidata/w/api.php", "/sparql")  # of the local Wikimedia's servers


def run(work, *words):
    return call("hgldv2", "--work", work, *words)


def raw_folder(world, folder):
    """GLDv2's metadata over the world: even landmarks train, odd ones index."""
    metadata, truth = folder / "metadata", folder / "ground_truth"
    metadata.mkdir(parents=True)
    truth.mkdir()
    for split, start in (("train", 0), ("index", 1)):
        rows = [(number, url) for number, url in world.landmarks if number % 2 == start]
        write(metadata / f"{split}_label_to_category.csv", ["landmark_id", "category"], rows)
    images = [(f"i{number:015x}", number) for number, _ in rows]
    write(metadata / "index_image_to_landmark.csv", ["id", "landmark_id"], images)
    write(
        metadata / "train_clean.csv",
        ["landmark_id", "images"],
        [(n, f"t{n:015x}") for n, _ in world.landmarks[::2]],
    )
    queries = [(f"q{number:015x}", image, "Private") for image, number in images[:40]]
    write(truth / "retrieval_solution_v2.1.csv", ["id", "images", "Usage"], queries)
    return folder


def write(path, header, rows):
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([header, *rows])


def curate(work):
    """Decisions as a curator would export them: even classes are one group, odd ones another, one
    is dropped.
    """
    ids = sorted(row["class_id"] for row in table(work / "labels.csv"))
    decisions = {
        "made": [i for i in ids[1:] if int(i[1:]) % 2],
        "wild": [i for i in ids[1:] if not int(i[1:]) % 2],
    }
    rows = [
        {"id": name, "op": "move", "labels": labels, "to": name}
        for name, labels in decisions.items()
    ]
    rows.append({"id": "d", "op": "drop", "labels": ids[:1]})
    groups = {"made": {"kind": "human-made"}, "wild": {"kind": "natural"}}
    # JSON is YAML
    (work / "decisions.yaml").write_text(json.dumps({"groups": groups, "decisions": rows}))


def test_a_file_changed_by_hand_is_noticed_and_steps_that_lack_decisions_or_classes_say_so(
    tmp_path,
):
    run(
        tmp_path,
        "clean",
        "--released",
        "train",
        GOLDEN / "train_label_to_hierarchical.sample5col.csv",
    )
    run(tmp_path, "encode", "--encoder", "tfidf")
    labels = tmp_path / "labels.csv"
    changed = labels.read_text(encoding="utf-8").replace(
        "label:abbey,abbey,1", "label:abbey,abbey,7"
    )
    labels.write_text(changed, encoding="utf-8")
    with pytest.raises(IntegrityError, match="changed since the step 'clean'"):
        run(tmp_path, "cluster", "--k", "3")
    (tmp_path / "labels.csv.json").unlink()  # somebody vouches for it
    run(tmp_path, "encode", "--encoder", "tfidf")
    run(tmp_path, "cluster", "--k", "3")
    with pytest.raises(DataError, match="export it from the review page"):
        run(tmp_path, "replay")
    with pytest.raises(DataError, match="no class has a QID"):
        run(tmp_path, "taxonomy", "--offline")


def test_a_record_of_other_types_is_refused(tmp_path):
    record = {"step": "clean", "inputs": {}, "settings": {}, "counts": {}, "sha256": "0"}
    (tmp_path / "labels.csv").write_text("")
    for change, said in (
        ({"sha256": 1}, "sha256: Input should be a valid string"),
        ({"settings": 7}, "settings: "),
        ({"more": 1}, "more: Unexpected keyword argument"),
        ([], "a mapping"),
        ({"counts": {"kept": "many"}}, "counts.kept: "),
    ):
        changed = record | change if isinstance(change, dict) else change
        (tmp_path / "labels.csv.json").write_text(json.dumps(changed))
        with pytest.raises(IntegrityError, match="not a record of a step") as refusal:
            artefact.checked(tmp_path / "labels.csv")
        assert said in str(refusal.value)


def test_a_step_out_of_order_and_wrong_options_are_refused(tmp_path):
    no_address = [
        "scrape",
        "--raw",
        ".",
        "--contact",
        "a@example.org",
        "--server",
        "wikidata",
        "/w/api.php",
    ]
    for words, error, problem in (
        (["encode", "--encoder", "tfidf"], DataError, "clean makes it"),
        (["clean"], DataError, "scrape makes it"),
        (["sweep", "--k", "80,many"], UsageError, "--k is a list of numbers"),
        (
            ["clean", "--released", "train", "t.csv", "--rules", "r.csv"],
            UsageError,
            "either --released or --rules",
        ),
        (no_address, UsageError, "the server of wikidata is not an address"),
    ):
        with pytest.raises(error, match=problem):
            run(tmp_path, *words)


def test_a_kind_of_group_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "names.csv").write_text("lake,natural\nchurch,humanmade\n")
    with pytest.raises(ConfigError, match="humanmade"):
        kinds_in(tmp_path / "names.csv")


def test_taxonomy_is_made_from_the_subclasses_that_the_server_gives(tmp_path):
    world = world_of(200)
    links = [
        scrape.Link(
            "train",
            n,
            url,
            "t",
            "found",
            "sitelink",
            "Q1",
            "Q1",
            "",
            (f"Q{9000 + n % 6}",),
            1,
            False,
            0,
        )
        for n, url in world.landmarks
    ]
    names = [scrape.ClassName(f"Q{9000 + n}", f"class {n}", "en") for n in range(6)]
    for rows, kind, name in (
        (links, scrape.Link, "links.csv"),
        (names, scrape.ClassName, "classes.csv"),
    ):
        artefact.write_rows(
            tmp_path / name, rows, kind, record=artefact.made_by("scrape", [], {}), counts={}
        )
    run(tmp_path, "clean")
    parents = {f"Q{9000 + n}": (f"Q{9100 + n // 3}",) for n in range(6)}
    parents |= {"Q9100": ("Q9200",), "Q9101": ("Q9200",), "Q9200": ()}
    source = FactSource(
        pages=dict,
        soft_targets=dict,
        by_category=dict,
        names=lambda ids: {i: Named(f"above {i}", "en") for i in ids},
        entities=lambda ids: {i: Entity(i, parents=parents[i]) for i in ids},
    )
    taxonomy.propose(tmp_path, source, least=1)
    rows = table(tmp_path / "taxonomy.csv")
    first = [("above Q9200", "1"), ("above Q9100", "2"), ("class 0", "3")]
    assert [(row["label"], row["depth"]) for row in rows][:3] == first
    run(tmp_path, "encode", "--encoder", "tfidf")
    run(tmp_path, "cluster", "--k", "2", "--resamples", "2")
    assert all(0 <= float(row["coassociation"]) <= 1 for row in table(tmp_path / "clusters.csv"))
    run(tmp_path, "review")
    assert '"above Q9100 \\u003c above Q9200"' in (tmp_path / "review.html").read_text(
        encoding="utf-8"
    )


def test_from_scratch_stops_for_the_curators_and_then_gives_what_build_reads(tmp_path):
    world, work = world_of(60), tmp_path / "work"
    raw = raw_folder(world, tmp_path / "raw")
    with serving(Server(world)) as server:
        servers = Servers(*(server.url + path for path in PATHS))
        again = partial(
            from_scratch,
            raw,
            work,
            "a@example.org",
            encoder="tfidf",
            servers=servers,
            k=5,
            rate=10.0,
        )
        with pytest.raises(DataError, match="have not decided yet"):
            again()
        assert (work / "review.html").exists()
        curate(work)
        again()
    built = call(
        "build",
        "hgldv2",
        "--root",
        raw,
        "--from-scratch",
        work,
        "--out",
        tmp_path / "out",
        "--json",
    )
    assert json.loads(built.stdout)["version"].startswith("1+")
    assert set(datasets.load(tmp_path / "out").train.tree.names[1]) == {"made", "wild"}
    decisions = work / "decisions.yaml"
    decisions.write_text(
        decisions.read_text().replace('"to": "made"', '"to": "made", "expect_from": "wild"')
    )
    with pytest.raises(ComparisonError), serving(Server(world)) as server:
        from_scratch(raw, work, "a@example.org", encoder="tfidf", servers=servers, k=5)


def test_from_scratch_shows_the_images_of_its_folder_to_the_curators(tmp_path):
    world, work = world_of(60), tmp_path / "work"
    raw = raw_folder(world, tmp_path / "raw")
    for row in table(raw / "metadata/train_clean.csv"):
        path = raw / gldv2.file_of("train", row["images"])
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30)).save(path)
    with serving(Server(world)) as server:
        servers = Servers(*(server.url + path for path in PATHS))
        with pytest.raises(DataError, match="have not decided yet"):
            from_scratch(raw, work, "a@b.example", encoder="tfidf", servers=servers, k=5, rate=10.0)
    assert "data:image/webp" in (work / "review.html").read_text(encoding="utf-8")


def test_a_released_file_becomes_decisions_that_give_it_back(tmp_path):
    work, sample = tmp_path / "work", GOLDEN / "train_label_to_hierarchical.sample5col.csv"
    run(work, "clean", "--released", "train", sample)
    run(work, "encode", "--encoder", "tfidf")
    run(work, "cluster", "--k", "5")
    assert "labels in" in run(work, "decisions", "--released", sample).stderr
    with pytest.raises(UsageError, match="there already"):
        run(work, "decisions", "--released", sample)
    run(work, "decisions", "--released", sample, "-o", tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == (work / "decisions.yaml").read_bytes()
    with pytest.raises(UsageError, match="released files or of the sample"):
        run(work, "decisions", "-o", tmp_path / "none.yaml")
    run(work, "decisions", "--sample", "-o", tmp_path / "sample.yaml")
    two = [tmp_path / "sample.yaml", work / "decisions.yaml"]
    assert json.loads(run(work, "agreement", *two, "--json").stdout)["queue"] == []
    run(work, "replay", "--strict")
    mapped = [row for row in table(work / "mapping.csv") if row["status"] == "group"]
    placed = {row["label"]: (row["group"], row["kind"]) for row in mapped}
    for row in (row for row in released.read(sample) if row.hierarchical_label):
        assert placed[normalised(row.supercategory)] == (
            row.hierarchical_label,
            row.natural_or_human_made,
        )


def test_a_table_that_is_not_utf8_is_one_refusal_that_names_it(tmp_path):
    table = tmp_path / "table.csv"
    for reader, header in (
        (clean.read_rules, "label,qid,action,why"),
        (released.read, ",".join(released.Released._fields)),
        (lambda path: scrape.read_landmarks(path, "train"), "landmark_id,category"),
        (kinds_in, "hierarchical_label"),
        (
            lambda path: artefact.read_rows(path, scrape.ClassName),
            ",".join(scrape.ClassName._fields),
        ),
    ):
        cells = ["ch\xe2teau"] * len(header.split(","))
        table.write_bytes(f"{header}\n{','.join(cells)}\n".encode("latin-1"))
        with pytest.raises(DataError, match=r"table\.csv cannot be read") as refusal:
            reader(table)
        assert "utf-8" in str(refusal.value)
