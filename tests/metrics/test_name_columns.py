"""Labels by name: the released evaluators compare them column by column, here as double loops over
the names.
"""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.datasets.benchmarks.inat18 import POLICIES
from hbench.datasets.spec import RANKS
from hbench.records.report_tables import table
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.rankings import files as run_files
from hbench.tree.names import NameTable
from hbench.tree.policies import mend
from tests import oracle
from tests.command_line import call

# Two orders are NA, one family is, the genus Iris is a plant and an insect, and Iris the plant has
# two species.
SPECIES = [
    ("Plantae", "Tracheophyta", "Liliopsida", "Asparagales", "Iridaceae", "Iris", "Iris sibirica"),
    (
        "Plantae",
        "Tracheophyta",
        "Liliopsida",
        "Asparagales",
        "Iridaceae",
        "Iris",
        "Iris douglasiana",
    ),
    (
        "Plantae",
        "Tracheophyta",
        "Liliopsida",
        "Asparagales",
        "Iridaceae",
        "Crocus",
        "Crocus vernus",
    ),
    ("Animalia", "Arthropoda", "Insecta", "Mantodea", "Tarachodidae", "Iris", "Iris oratoria"),
    ("Animalia", "Arthropoda", "Insecta", "Mantodea", "Mantidae", "Mantis", "Mantis religiosa"),
    ("Animalia", "Mollusca", "Gastropoda", "NA", "Siphonariidae", "Siphonaria", "Siphonaria gigas"),
    ("Animalia", "Mollusca", "Gastropoda", "NA", "NA", "Lottia", "Lottia scabra"),
    (
        "Animalia",
        "Chordata",
        "Actinopterygii",
        "NA",
        "Sciaenidae",
        "Sciaenops",
        "Sciaenops ocellatus",
    ),
    ("Animalia", "Chordata", "Actinopterygii", "NA", "NA", "Anisotremus", "Anisotremus virginicus"),
]
BY_COLUMN = ("AP", "mAP@R", "R@1", "R@3", "P@3", "mAP@4", "TR@5", "ASI")
METRICS = [
    *("H-AP", "H-AP(alpha=2)", "ASI", "NDCG", "NDCG@5", "wAP", "AP#genus", "AP#phylum"),
    *(f"{metric}/{level}" for metric in BY_COLUMN for level in RANKS),
]


def dataset_of(species, *, query=None, gallery=None):
    """One image of SPECIES[i] per i, labelled by the tree that the build makes of the names."""
    final = mend(NameTable.of(RANKS, SPECIES), POLICIES).final
    rows = [final[SPECIES[i]] for i in species]
    official = {
        level: {
            mended[column]: plain[column]
            for plain, mended in final.items()
            if plain[column] != mended[column]
        }
        for column, level in enumerate(RANKS)
    }
    items = [f"{place}.jpg" for place in range(len(species))]
    test = manifests.from_names(items, rows, levels=RANKS, query=query, gallery=gallery)
    return Dataset(
        "names", "1", Protocol(similarity="dot"), None, {"test": test}, official_names=official
    )


def submission(vectors):
    ids = np.array([f"{place}.jpg" for place in range(len(vectors))], dtype=object)
    return Embeddings(ids, np.asarray(vectors, np.float32), "", "made up", "float32")


def released(vectors, names, query, items, asked):
    """Every metric of one query by the released definitions; `items` can be ranked, `asked` are all
    queries.
    """
    scores = [float(np.dot(vectors[query], vectors[k])) for k in items]
    level = {
        k: sum(a == b for a, b in zip(names[query], names[k], strict=True))
        for k in {*items, *asked}
    }
    ranked = oracle.rank_levels(scores, [level[k] for k in items])
    counts = [sum(level[k] == at for k in asked) for at in range(len(RANKS) + 1)]
    columns = [
        oracle.rank_levels(scores, [int(names[query][c] == names[k][c]) for k in items])
        for c in range(7)
    ]
    values = {
        "H-AP": released_h_ap(ranked, counts, 1),
        "H-AP(alpha=2)": released_h_ap(ranked, counts, 2),
        "ASI": oracle.asi(ranked, len(RANKS)),
        "NDCG": oracle.ndcg(ranked),
        "NDCG@5": oracle.ndcg(ranked, 5),
        "AP#genus": oracle.ap_exclusive(ranked, 6),
        "AP#phylum": oracle.ap_exclusive(ranked, 2),
    }
    defined = [ap for ap in (oracle.ap(column) for column in columns) if not math.isnan(ap)]
    values["wAP"] = sum(defined) / len(defined) if defined else math.nan
    for name, column in zip(RANKS, columns, strict=True):
        values |= {f"{metric}/{name}": value for metric, value in of_column(column).items()}
    return values


def of_column(ranked):
    return {
        "AP": oracle.ap(ranked),
        "mAP@R": oracle.map_at(ranked, 1, sum(ranked), lambda total: total),
        "R@1": oracle.recall(ranked, 1, 1),
        "R@3": oracle.recall(ranked, 1, 3),
        "P@3": oracle.precision(ranked, 1, 3),
        "mAP@4": oracle.map_at(ranked, 1, 4, lambda total: min(total, 4)),
        "TR@5": oracle.true_recall(ranked, 1, 5),
        "ASI": oracle.asi(ranked, 1),
    }


def released_h_ap(ranked, counts, alpha):
    """Relevances in float32, the items of a level found by their relevance."""
    rel = [np.float32(0)] + [
        np.float32((level / 6) ** alpha) / np.float32(counts[level])
        if counts[level]
        else np.float32(0)
        for level in range(1, 8)
    ]
    total = sum(float(rel[level]) for level in ranked)
    result = 0.0
    for k, level in enumerate(ranked):
        for value in rel[1:]:
            found = sum(rel[before] == value for before in ranked[: k + 1])
            result += float(min(rel[level], value)) * found / (k + 1)
    return result / total if total else math.nan


def check(report, vectors, species, queries, gallery):
    names = [SPECIES[i] for i in species]
    for place, query in enumerate(queries):
        items = [k for k in gallery if k != query]
        expected = released(vectors, names, query, items, queries)
        for metric in METRICS:
            found = report.per_query[metric][place]
            assert found == pytest.approx(expected[metric], abs=1e-6, nan_ok=True), (metric, query)


CASES = st.tuples(
    st.lists(st.integers(0, len(SPECIES) - 1), min_size=2, max_size=24),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 9]),
)


@settings(max_examples=25, deadline=None)
@given(CASES)
def test_every_metric_is_that_of_double_loops_over_the_names(case):
    species, seed, spread = case
    # with and without ties
    vectors = np.random.default_rng(seed).integers(-spread, spread + 1, size=(len(species), 3))
    report = hbench.evaluate(
        submission(vectors), dataset_of(species), metrics=METRICS, protocol="official"
    )
    everyone = range(len(species))
    check(report, vectors, species, everyone, everyone)


@settings(max_examples=10, deadline=None)
@given(CASES)
def test_the_plain_path_goes_by_name_too(case):
    species, seed, spread = case
    vectors = (
        np.random.default_rng(seed)
        .integers(-spread, spread + 1, size=(len(species), 3))
        .astype(np.float64)
    )
    data, ids = (
        dataset_of(species),
        np.array([f"{place}.jpg" for place in range(len(species))], dtype=object),
    )
    given = Embeddings(ids, vectors, "", "made up", "float64")
    audit = hbench.evaluate(given, data, metrics=METRICS, protocol="official")
    quick = hbench.evaluate(submission(vectors), data, metrics=METRICS, protocol="official")
    for metric in METRICS:
        np.testing.assert_allclose(audit.per_query[metric], quick.per_query[metric], atol=1e-12)


def test_a_separate_gallery_loses_its_last_item_by_name_too():
    rng = np.random.default_rng(7)
    species = rng.integers(len(SPECIES), size=40).tolist()
    query = np.arange(40) < 12
    vectors = rng.normal(size=(40, 6))
    data = dataset_of(species, query=query, gallery=~query)
    report = hbench.evaluate(
        submission(vectors), data, metrics=["AP/order", "NDCG"], protocol="official"
    )
    names = [SPECIES[i] for i in species]
    for asked in range(12):
        order = sorted(range(12, 40), key=lambda k: -np.dot(vectors[asked], vectors[k]))[:-1]
        column = [names[asked][3] == names[k][3] for k in order]
        equal = [sum(a == b for a, b in zip(names[asked], names[k], strict=True)) for k in order]
        assert report.per_query["AP/order"][asked] == pytest.approx(oracle.ap(column), nan_ok=True)
        assert report.per_query["NDCG"][asked] == pytest.approx(oracle.ndcg(equal))


def test_a_submitted_ranking_is_scored_by_name_too(tmp_path):
    rng = np.random.default_rng(3)
    species = [*range(len(SPECIES)), *rng.integers(len(SPECIES), size=20).tolist()]
    vectors = rng.normal(size=(len(species), 5)).astype(np.float32)
    scores = vectors @ vectors.T
    lines = ["id,images"]
    for query, row in enumerate(scores):
        lines.append(f"{query}.jpg,{' '.join(f'{k}.jpg' for k in np.argsort(-row) if k != query)}")
    (tmp_path / "run.csv").write_text("\n".join(lines) + "\n")
    data = dataset_of(species)
    listed = hbench.evaluate(
        run_files.read(tmp_path / "run.csv"), data, metrics=METRICS, protocol="official"
    )
    ranked = hbench.evaluate(submission(vectors), data, metrics=METRICS, protocol="official")
    for metric in METRICS:
        np.testing.assert_allclose(listed.per_query[metric], ranked.per_query[metric], atol=1e-12)


def test_the_paper_protocol_goes_by_the_tree_in_the_same_pass():
    species = [*range(len(SPECIES))] * 3
    vectors = np.random.default_rng(1).normal(size=(len(species), 4))
    data = dataset_of(species)
    both = hbench.evaluate(submission(vectors), data, also_official=True)
    by_tree = hbench.evaluate(submission(vectors), data)
    by_name = hbench.evaluate(submission(vectors), data, protocol="official")
    assert both.document.scores == by_tree.document.scores
    assert both.document.official == by_name.document.scores
    assert both.document.official["AP/order"] != both.document.scores["AP/order"]
    kingdom = [
        scores["AP/kingdom"].value for scores in (both.document.official, both.document.scores)
    ]
    assert kingdom[0] == pytest.approx(kingdom[1], abs=1e-12)
    cells = {line[0]: line[3] for line in table(both.document).cells}
    assert (cells["AP/kingdom"], cells["AP"]) == ("same", "same")
    assert cells["AP/order"] != "same"


def test_names_that_are_a_tree_change_nothing():
    species = [2, 4, 5, 2, 4, 5, 2]  # one NA, one genus of each name
    data = dataset_of(species)
    assert data.labels_by_name(data.tests["test"]) is None


# End to end: the raw files of iNaturalist 2018 in miniature, built and scored on the command line


def test_a_miniature_of_inat_is_scored_by_tree_and_by_name_from_the_command_line(
    tmp_path, empty_home
):
    raw = tmp_path / "raw"
    (raw / "Inat_dataset_splits").mkdir(parents=True)
    keys = [*RANKS[:-1], "name"]
    categories = [
        dict(zip(keys, row, strict=True), id=i, supercategory=row[2])
        for i, row in enumerate(SPECIES)
    ]
    (raw / "categories.json").write_text(json.dumps(categories))
    species = [*range(len(SPECIES))] * 4
    items = [f"train_val2018/{SPECIES[i][2]}/{i}/{place}.jpg" for place, i in enumerate(species)]
    for split in ("train", "test"):
        (raw / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt").write_text(
            "\n".join(items) + "\n"
        )
    call("build", "inat18-full", "--root", raw, "--unofficial")
    vectors = np.random.default_rng(5).integers(-50, 51, size=(len(species), 6))
    embedding_files.write(tmp_path / "emb.parquet", items, vectors.astype(np.float32))

    def report(*options):
        base = (
            "evaluate",
            tmp_path / "emb.parquet",
            "-d",
            "inat18-full",
            "--metrics",
            ",".join(METRICS),
        )
        base += (
            "--similarity",
            "dot",
            "-o",
            tmp_path / "r.json",
            "--by-query",
            tmp_path / "q.parquet",
        )
        call(*base, *options)
        return json.loads((tmp_path / "r.json").read_text()), pq.read_table(tmp_path / "q.parquet")

    paper, _ = report()
    official, by_query = report("--protocol", "official")
    assert paper["protocol"] == "paper"
    assert paper["official"] == official["scores"]
    assert paper["scores"]["H-AP"] != official["scores"]["H-AP"]

    names, everyone = [SPECIES[i] for i in species], range(len(species))
    assert by_query["query"].to_pylist() == items
    for query in everyone:
        expected = released(vectors, names, query, [k for k in everyone if k != query], everyone)
        for metric in ("H-AP", "ASI", "NDCG", "AP/order", "AP/genus", "R@1/family"):
            assert by_query[metric][query].as_py() == pytest.approx(expected[metric], abs=1e-6)
