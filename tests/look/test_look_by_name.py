"""Looking at what names retrieve: the values of an evaluation, lists as by brute force."""

import numpy as np
import pytest

import hbench
from hbench.core.errors import UnknownName, UsageError
from hbench.datasets import manifest
from hbench.datasets.dataset import Dataset, Protocol
from tests.command_line import call

PATHS = [("Owls", "Barn owl"), ("Owls", "Bay owl"), ("Parrots", "Galah"), ("Parrots", "Corella")]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Six items of each kind in a file, vectors of all names, and the dataset."""
    rng = np.random.default_rng(0)
    rows = [path for path in PATHS for _ in range(6)]
    ids = [f"i{number:02}" for number in range(len(rows))]
    data = Dataset(
        "zoo",
        "1",
        Protocol(),
        None,
        {"test": manifest.from_names(ids, rows, levels=["order", "kind"])},
    )
    own = {path: rng.normal(size=5) for path in PATHS}
    vectors = np.array([own[row] + rng.normal(size=5) for row in rows], np.float32)
    file = tmp_path_factory.mktemp("zoo") / "items.npz"
    np.savez(file, ids=ids, embeddings=vectors)
    nodes = {" > ".join(path): vector for path, vector in own.items()}
    nodes |= {
        name: np.mean([vector for path, vector in own.items() if path[0] == name], axis=0)
        for name in ("Owls", "Parrots")
    }
    return file, data, nodes, vectors, rows


def cosines(vectors, vector):
    return vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector)


def test_first_results_of_a_name_are_those_by_brute_force(zoo):
    file, data, nodes, vectors, rows = zoo
    shown = hbench.browse(file, data, nodes=nodes, queries=["Galah", "Owls"], k=7).records()
    for record, name, depth in zip(shown, ("Parrots > Galah", "Owls"), (2, 1), strict=True):
        assert record["query"] == name
        similar = cosines(vectors, nodes[name])
        best = np.argsort(-similar, kind="stable")[:7]
        ((model, results),) = record["results"].items()
        assert model == "items.npz"
        assert [each["item"] for each in results] == [f"i{at:02}" for at in best]
        assert [each["score"] for each in results] == pytest.approx(similar[best], abs=1e-6)
        path = tuple(name.split(" > "))
        shared = [sum(a == b for a, b in zip(path, rows[at], strict=False)) for at in best]
        assert [each["level"] for each in results] == shared
        assert max(shared) == depth


def test_values_of_names_are_those_of_an_evaluation_worst_first(zoo):
    file, data, nodes, *_ = zoo
    report = hbench.evaluate(file, data, nodes=nodes, metrics="AP")
    values = dict(zip(report.queries, report.values["AP"], strict=True))
    shown = hbench.browse(file, data, nodes=nodes, worst=6, by="AP", k=2)
    found = {strip["query"]: strip["values"]["items.npz"] for strip in shown.records()}
    assert found == pytest.approx(values)
    assert list(found.values()) == sorted(values.values())
    assert shown.sheet.caption.split("|")[1:] == report.signature.split("|")[1:]


def test_nodes_below_a_node_are_chosen_by_its_name(zoo):
    file, data, nodes, *_ = zoo
    shown = hbench.browse(file, data, nodes=nodes, class_name="Owls", k=2).records()
    assert {strip["query"] for strip in shown} == {"Owls", "Owls > Barn owl", "Owls > Bay owl"}


def test_the_first_right_result_of_a_coarse_name_is_of_its_own_level(zoo):
    file, data, nodes, vectors, rows = zoo
    against = {"Owls": -nodes["Owls"]}
    ((row,),) = (
        strip.rows for strip in hbench.browse(file, data, nodes=against, k=1, worst=1).sheet.strips
    )
    ranked = np.argsort(-cosines(vectors, against["Owls"]), kind="stable")
    first = next(rank for rank, at in enumerate(ranked, start=1) if rows[at][0] == "Owls")
    assert first > 1
    assert (row.right.rank, row.right.level) == (first, 1)


@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_strips_of_names_are_written(zoo, tmp_path, suffix):
    file, data, nodes, *_ = zoo
    hbench.browse(file, data, nodes=nodes, worst=2, k=3).write(tmp_path / f"names{suffix}")
    assert (tmp_path / f"names{suffix}").stat().st_size > 1000


def test_a_name_without_a_vector_is_refused_with_those_that_have_one(zoo):
    file, data, nodes, *_ = zoo
    with pytest.raises(UnknownName, match="Galah"):
        hbench.browse(file, data, nodes=nodes, queries=["Gala"])


def test_names_are_shown_for_one_file(zoo):
    file, data, nodes, *_ = zoo
    with pytest.raises(UsageError, match="one file"):
        hbench.browse([file, file], data, nodes=nodes)


def test_the_command_shows_names(zoo, tmp_path):
    file, _, nodes, _, rows = zoo
    lines = ["item,order,kind", *(f"i{n:02},{a},{b}" for n, (a, b) in enumerate(rows))]
    (tmp_path / "zoo.csv").write_text("\n".join(lines))
    np.savez(tmp_path / "nodes.npz", ids=list(nodes), embeddings=np.array(list(nodes.values())))
    nodes_file = tmp_path / "nodes.npz"
    shown = call("look", file, "-d", tmp_path / "zoo.csv", "--nodes", nodes_file, "--item", "Owls")
    assert shown.stdout.startswith("Owls  (order · H-AP ")
