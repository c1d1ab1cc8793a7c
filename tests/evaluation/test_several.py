"""Items of several right paths, from a user's file to the right number."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hbench
from hbench.datasets import dataset as folders
from hbench.datasets.build import build
from hbench.engine.settings import Signature
from hbench.look.strips.results import browse
from hbench.train import loop
from hbench.train.recipes.files import resolve
from tests import oracle
from tests.command_line import refusal

pytestmark = pytest.mark.fast

PATHS = {
    "a": [("Office", "desk"), ("Home", "shelf")],
    "b": [("Home", "shelf")],
    "c": [("Office", "desk")],
    "d": [("Garden", "bench")],
    "e": [("Garden", "bench"), ("Office", "desk")],
    "f": [("Home", "sofa")],
}
METRICS = ["H-AP", "ASI", "NDCG", "AP/room", "AP/kind", "R@1", "HD@2"]


def cells():
    """A cell with the labels of all paths, at each level."""
    rows = [
        f"{item},{';'.join(room for room, _ in paths)},{'; '.join(kind for _, kind in paths)}"
        for item, paths in PATHS.items()
    ]
    return "\n".join(["item,room,kind", *rows])


def rows():
    """A row for each path."""
    return "\n".join(
        [
            "image_id,room,kind",
            *(f"{item},{room},{kind}" for item, paths in PATHS.items() for room, kind in paths),
        ]
    )


def paths_in_a_cell():
    lines = [
        f"{item},{' | '.join(' > '.join(path) for path in paths)}" for item, paths in PATHS.items()
    ]
    return "\n".join(["item,category", *lines])


def lists(path):
    columns = [[[step[place] for step in paths] for paths in PATHS.values()] for place in (0, 1)]
    pq.write_table(pa.table({"item": list(PATHS), "room": columns[0], "kind": columns[1]}), path)
    return path


def embeddings():
    vectors = np.random.default_rng(0).standard_normal((len(PATHS), 4)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def by_hand():
    """The mean of every metric, by double loops over all pairs of paths."""
    vectors, names, values = embeddings(), list(PATHS), []
    for query, paths in enumerate(PATHS.values()):
        others = [item for item in range(len(names)) if item != query]
        levels = [
            max(oracle.level_of((*a, 0), (*b, 1)) for a in paths for b in PATHS[names[item]])
            for item in others
        ]
        ranked = oracle.rank_levels(
            [float(vectors[query] @ vectors[item]) for item in others], levels
        )
        values.append(
            [
                oracle.h_ap(ranked, oracle.alpha_relevance(ranked, 2)),
                oracle.asi(ranked, 2),
                oracle.ndcg(ranked),
                oracle.ap_at(ranked, 1),
                oracle.ap_at(ranked, 2),
                oracle.recall(ranked, 2, 1),
                oracle.hierarchical_distance(ranked, 2, 2),
            ]
        )
    return dict(zip(METRICS, np.nanmean(values, axis=0).tolist(), strict=True))


def scored(table, **how):
    return hbench.evaluate(
        embeddings(), hbench.load(table, **how), ids=list(PATHS), metrics=METRICS
    )


@pytest.mark.parametrize("text", [cells, rows], ids=lambda form: form.__name__)
def test_the_forms_of_a_table_give_the_values_of_double_loops(tmp_path, text):
    (tmp_path / "things.csv").write_text(text())
    report = scored(tmp_path / "things.csv", several=True)
    expected = by_hand()
    for name in METRICS:
        assert report.scores[name] == pytest.approx(expected[name], abs=1e-12), name


def test_lists_in_parquet_are_the_same_dataset_as_cells(tmp_path):
    (tmp_path / "cells.csv").write_text(cells())
    of_cells = hbench.load(tmp_path / "cells.csv", several=True)
    of_lists = hbench.load(lists(tmp_path / "lists.parquet"), several=True)
    assert of_cells.tests["test"].digest == of_lists.tests["test"].digest


def test_paths_in_a_cell_have_the_same_values(tmp_path):
    (tmp_path / "paths.csv").write_text(paths_in_a_cell())
    data = hbench.load(tmp_path / "paths.csv", several=True)
    report = hbench.evaluate(embeddings(), data, ids=list(PATHS), metrics=["H-AP", "ASI"])
    assert report.scores["H-AP"] == pytest.approx(by_hand()["H-AP"], abs=1e-12)
    assert report.scores["ASI"] == pytest.approx(by_hand()["ASI"], abs=1e-12)


def test_arrays_of_names_and_padded_numbers_have_the_same_values(tmp_path):
    as_names = hbench.score(
        embeddings(), list(PATHS.values()), level_names=["room", "kind"], metrics=METRICS
    )
    rooms, kinds = (
        {
            name: n
            for n, name in enumerate(
                sorted({path[at] for paths in PATHS.values() for path in paths})
            )
        }
        for at in (0, 1)
    )
    padded = np.array(
        [
            [(rooms[room], kinds[kind]) for room, kind in (*paths, paths[0])][:2]
            for paths in PATHS.values()
        ]
    )
    as_numbers = hbench.score(embeddings(), padded, level_names=["room", "kind"], metrics=METRICS)
    for name in METRICS:
        assert as_names.scores[name] == pytest.approx(by_hand()[name], abs=1e-12)
        assert as_numbers.scores[name] == as_names.scores[name]


def test_the_reader_the_report_and_the_signature_say_it(tmp_path):
    (tmp_path / "things.csv").write_text(cells())
    report = scored(tmp_path / "things.csv", several=True)
    assert "2 of 6 items have several paths, up to 2" in str(report.document.read)
    assert any(
        "largest over all pairs of their paths" in warning for warning in report.document.warnings
    )
    assert "|labels:several(2)|" in report.signature
    assert Signature.parse(report.signature).words.several == 2


@pytest.mark.parametrize(
    ("text", "message"), [(cells, "several labels"), (rows, "--several")], ids=["cells", "rows"]
)
def test_nothing_is_taken_for_several_paths_unasked(tmp_path, text, message):
    (tmp_path / "things.csv").write_text(text())
    with pytest.raises(hbench.DataError, match=message):
        hbench.load(tmp_path / "things.csv")


def test_a_dataset_of_one_path_each_is_what_it_was(tmp_path):
    plain = "item,room,kind\na,Office,desk\nb,Home,shelf\nc,Office,desk\nd,Home,shelf\n"
    (tmp_path / "plain.csv").write_text(plain)
    one, several = (
        hbench.load(tmp_path / "plain.csv"),
        hbench.load(tmp_path / "plain.csv", several=True),
    )
    assert one.tests["test"].digest == several.tests["test"].digest
    vectors = embeddings()[:4]
    reports = [hbench.evaluate(vectors, data, ids=list("abcd")) for data in (one, several)]
    assert reports[0].scores == reports[1].scores
    assert "several" not in reports[1].signature


def test_a_built_dataset_keeps_its_paths_whatever_their_order(tmp_path):
    (tmp_path / "things.csv").write_text(cells())
    data = hbench.load(tmp_path / "things.csv", several=True)
    folders.save(data, tmp_path / "built")
    again = hbench.load(tmp_path / "built").tests["test"]
    assert again.digest == data.tests["test"].digest
    assert again.table()["more_paths"].to_pylist()[0] == [["Home", "shelf"]]
    turned = data.tests["test"].of(np.arange(6)[::-1])
    assert turned.digest == again.digest


# a dog has two parents
EDGES = "parent,child\nanimal,pet\nanimal,wild\npet,dog\nwild,dog\nwild,wolf\npet,cat\n"
NODES = "item,node\na,dog\nb,wolf\nc,cat\nd,dog\ne,cat\n"


def pets(tmp_path, **how):
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.csv").write_text(NODES)
    source = hbench.OwnSource(
        tmp_path / "nodes.csv", levels="node", tree=tmp_path / "edges.csv", **how
    )
    return build("pets", source=source, out=tmp_path / "pets", on_remark=lambda _: None)


def test_a_node_of_several_parents_has_all_its_paths(tmp_path):
    test = pets(tmp_path, several=True).tests["test"]
    dog, wolf, cat, other_dog, _ = range(5)
    pairs = np.array([(dog, wolf), (dog, cat), (dog, other_dog), (wolf, cat)])
    assert test.paths.levels(*pairs.T).tolist() == [
        1,
        1,
        2,
        0,
    ]  # a dog is wild, a pet, a dog; a wolf is no pet


def test_a_dag_is_refused_without_the_option(tmp_path):
    with pytest.raises(hbench.TreeError, match="--several"):
        pets(tmp_path)


def test_a_ranking_has_the_values_of_the_embeddings_it_came_from(tmp_path):
    (tmp_path / "things.csv").write_text(cells())
    vectors, names = embeddings(), np.array(list(PATHS))
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    lines = [
        f"{item},{' '.join(names[np.argsort(-row)[:-1]])}"
        for item, row in zip(names, scores, strict=True)
    ]
    (tmp_path / "run.csv").write_text("\n".join(["id,images", *lines]))
    data = hbench.load(tmp_path / "things.csv", several=True)
    ranked = hbench.evaluate(tmp_path / "run.csv", data, metrics=METRICS)
    assert ranked.scores == pytest.approx(
        scored(tmp_path / "things.csv", several=True).scores, abs=1e-12
    )


def test_paths_that_end_early_leave_levels_open(tmp_path):
    table = "item,room,kind\na,Office;Home,desk;\nb,Home,shelf\nc,Office,desk\nd,Home,shelf\n"
    (tmp_path / "early.csv").write_text(table)
    data = hbench.load(tmp_path / "early.csv", "unknown", several=True)
    report = hbench.evaluate(
        embeddings()[:4], data, ids=list("abcd"), metrics=["AP/room", "AP/kind"]
    )
    assert "|labels:partial|labels:several(2)|" in report.signature
    assert report.document.scores["AP/room"].queries == 4
    assert report.document.scores["AP"].queries == 4  # c is a desk as a, b and d are shelves


@pytest.mark.parametrize(
    "words", [["--protocol", "official"], ["--trees", "shuffled"]], ids=["official", "trees"]
)
def test_what_knows_one_path_alone_says_so(tmp_path, words):
    (tmp_path / "things.csv").write_text(cells())
    np.savez(tmp_path / "emb.npz", ids=np.array(list(PATHS)), embeddings=embeddings())
    assert "one path" in refusal(
        "evaluate", tmp_path / "emb.npz", "-d", tmp_path / "things.csv", "--several", *words
    )


def test_the_gap_knows_one_path_alone(tmp_path):
    (tmp_path / "things.csv").write_text(cells())
    folders.save(hbench.load(tmp_path / "things.csv", several=True), tmp_path / "built")
    np.savez(tmp_path / "emb.npz", ids=np.array(list(PATHS)), embeddings=embeddings())
    assert "one path" in refusal(
        "gap", tmp_path / "emb.npz", "-d", tmp_path / "built", "--batch", 3
    )


def test_the_losses_know_one_path_alone(tmp_path):
    table = cells().replace("\n", ",train\n").replace("kind,train", "kind,split") + ",test"
    (tmp_path / "things.csv").write_text(table)
    data = hbench.load(tmp_path / "things.csv", several=True)
    with pytest.raises(hbench.DataError, match="one path of each item"):
        loop.train(resolve("own-data"), tmp_path / "run", dataset=data)


def test_a_strip_shows_the_path_that_is_shared(tmp_path):
    (tmp_path / "things.csv").write_text(cells())
    np.savez(tmp_path / "emb.npz", ids=np.array(list(PATHS)), embeddings=embeddings())
    data = hbench.load(tmp_path / "things.csv", several=True)
    found = browse([tmp_path / "emb.npz"], data, queries=["b"], k=5)
    hits = {
        hit.item: (hit.name, hit.level)
        for strip in found.sheet.strips
        for row in strip.rows
        for hit in row.shown
    }
    assert hits["a"] == ("shelf", 2)  # its first path is that of a desk
    assert hits["f"] == ("sofa", 1)
