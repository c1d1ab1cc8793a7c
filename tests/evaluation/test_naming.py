"""Names of pictures: the three readers by loops over the tree, and their scores by sets of nodes."""

import csv
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench.evaluation.by_name.naming import NodeVectors
from hbench.evaluation.by_name.scores import scores_of, scores_of_path
from hbench.submissions.embeddings import joined
from hbench.tree import LabelTree
from hbench.trust.climbing import BELOW
from tests.command_line import call

LEVELS = ("order", "family", "genus")


def problem(seed):
    """A tree, vectors of most of its nodes, and of pictures."""
    rng = np.random.default_rng(seed)
    columns = np.minimum(rng.geometric(0.4, size=(int(rng.integers(1, 30)), 3)), 4)
    rows = [tuple("/".join(map(str, row[: n + 1])) for n in range(3)) for row in columns.tolist()]
    tree, _ = LabelTree.from_names(sorted(set(rows)), levels=LEVELS)
    vectors = [rng.normal(size=(len(names), 4)).astype(np.float32) for names in tree.names]
    present = [rng.random(len(names)) < 0.7 for names in tree.names]
    present[-1][:] = True
    for of_level, has in zip(vectors, present, strict=True):
        of_level[~has] = 0
    return rng, tree, vectors, present, rng.normal(size=(6, 4)).astype(np.float32)


def scores_by_loops(tree, vectors, present, picture):
    """The score of every node: its own, or the best of its children's."""
    scores = [None] * tree.depth
    for level in range(tree.depth - 1, -1, -1):
        scores[level] = []
        for node in range(len(tree.names[level])):
            if present[level][node]:
                scores[level].append(float(picture @ vectors[level][node]))
            else:
                children = np.flatnonzero(tree.parents[level + 1] == node)
                scores[level].append(max(scores[level + 1][child] for child in children))
    return scores


@settings(max_examples=160, deadline=None)
@given(st.integers(0, 10**9))
def test_the_readers_are_loops_over_the_tree(seed):
    _, tree, vectors, present, pictures = problem(seed)
    nodes = [np.flatnonzero(has) for has in present]
    of_nodes = [of_level[has] for of_level, has in zip(vectors, present, strict=True)]
    found = NodeVectors(tree, nodes, of_nodes).read(pictures, scale=3.0)
    for n, picture in enumerate(pictures):
        scores = scores_by_loops(tree, vectors, present, picture)
        assert found.nodes["each"][n].tolist() == [int(np.argmax(each)) for each in scores]

        above, path = None, []
        for level in range(tree.depth):
            children = [
                c
                for c in range(len(scores[level]))
                if level == 0 or tree.parents[level][c] == above
            ]
            above = max(children, key=lambda child: (scores[level][child], -child))
            path.append(above)
        assert found.nodes["down"][n].tolist() == path

        weights = np.exp(3.0 * np.array(scores[-1]))
        shares = weights / weights.sum()
        for level in range(tree.depth):
            sums = np.zeros(len(tree.names[level]))
            for fine, share in enumerate(shares):
                sums[tree.paths[fine, level]] += share
            assert sums[found.nodes["sum"][n, level]] == pytest.approx(sums.max(), rel=1e-5)
        assert found.shares[n] == pytest.approx(shares.max(), rel=1e-5)


@settings(max_examples=160, deadline=None)
@given(st.integers(0, 10**9))
def test_scores_are_those_of_sets_of_nodes(seed):
    rng, tree, *_ = problem(seed)
    classes = len(tree.paths)
    pictures = int(rng.integers(1, 8))
    more = np.sort(rng.integers(0, pictures, int(rng.integers(0, 5))))
    items = np.concatenate([np.arange(pictures), more])
    labels = tree.paths[rng.integers(0, classes, len(items))]
    known = rng.integers(1, 4, len(items))
    nodes = np.stack(
        [rng.integers(0, len(names), pictures) for names in tree.names], axis=1
    ).astype(np.int32)
    found = scores_of(tree, nodes, labels, items, known)
    for n in range(pictures):
        whole = {(level, int(node)) for level, node in enumerate(nodes[n])}
        truths = [
            {(level, int(labels[row, level])) for level in range(known[row])}
            for row in np.flatnonzero(items == n)
        ]
        values = []
        for truth in truths:
            predicted = {(level, node) for level, node in whole if level < len(truth)}
            both = len(predicted & truth)
            precision, recall = both / len(predicted), both / len(truth)
            values.append(
                (precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0)
            )
        assert [found[name][n] for name in ("hP", "hR", "hF1")] == pytest.approx(
            values[0], abs=1e-12
        )
        if len(more):
            best = [max(column) for column in zip(*values, strict=True)]
            lenient = [found[f"{name}, lenient"][n] for name in ("hP", "hR", "hF1")]
            assert lenient == pytest.approx(best, abs=1e-12)
        finest = tree.paths[nodes[n, -1]].tolist()
        ancestors = {(level, node) for level, node in enumerate(finest[: known[n]])}
        assert found["hops"][n] == len(ancestors ^ truths[0])
        for level, name in enumerate(LEVELS):
            right = found[f"accuracy/{name}"][n]
            assert (
                np.isnan(right)
                if level >= known[n]
                else right == (nodes[n, level] == labels[n, level])
            )


def test_what_is_not_known_of_a_picture_is_no_mistake(tmp_path):
    folder = birds(tmp_path)
    (folder / "birds.csv").write_text(BIRDS.replace("a,Owls,barn owl", "a,Owls,"))
    data = hbench.load(folder / "birds.csv", policies=["unknown"])
    named = hbench.name(folder / "items.npz", data, folder / "nodes.npz")
    for reader in ("each", "down"):
        scores = named.scores[reader]
        assert [scores[name].value for name in ("hP", "hR", "hF1", "hops")] == [1, 1, 1, 0]


BIRDS = "item,order,kind\na,Owls,barn owl\nb,Owls,bay owl\nc,Parrots,galah\nd,Parrots,corella\n"
NAMES = ["Owls", "Parrots", "barn owl", "bay owl", "galah", "corella"]


def birds(tmp_path):
    (tmp_path / "birds.csv").write_text(BIRDS)
    kinds = np.eye(4, dtype=np.float32)
    nodes = np.concatenate([[kinds[:2].mean(axis=0)], [kinds[2:].mean(axis=0)], kinds])
    np.savez(tmp_path / "items.npz", ids=np.array(list("abcd")), embeddings=kinds + 0.1)
    np.savez(tmp_path / "nodes.npz", ids=np.array(NAMES), embeddings=nodes)
    return tmp_path


def test_pictures_at_their_classes_means_are_named_rightly(tmp_path):
    folder = birds(tmp_path)
    named = hbench.name(folder / "items.npz", folder / "birds.csv", folder / "nodes.npz")
    assert named.table["path"].to_pylist()[:2] == ["Owls > barn owl", "Owls > bay owl"]
    assert set(named.table["agreed_to"].to_pylist()) == {"kind"}
    for scores in named.scores.values():
        assert scores["hF1"].value == scores["consistent"].value == 1
        assert scores["hops"].value == 0


def test_the_command_writes_names_and_shows_every_reader(tmp_path):
    folder = birds(tmp_path)
    words = (
        "name",
        folder / "items.npz",
        "-d",
        folder / "birds.csv",
        "--nodes",
        folder / "nodes.npz",
    )
    done = call(*words, "-o", folder / "names.csv")
    assert all(reader in done.output for reader in ("each", "sum", "down"))
    with (folder / "names.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)][2] == "Parrots > galah"


def test_classes_alone_are_enough_vectors(tmp_path):
    folder = birds(tmp_path)
    kinds = joined(np.array(NAMES[2:]), np.eye(4, dtype=np.float32))
    named = hbench.name(folder / "items.npz", folder / "birds.csv", kinds)
    assert named.scores["each"]["accuracy/order"].value == 1
    assert any("names:nodes(0@order,4@kind)" in text for text in [named.signature])


def test_an_answer_without_any_node_has_no_precision_by_whichever_path():
    labels = np.array([[0, 0], [1, 2], [0, 1], [1, 3]], np.int32)  # of two pictures, two paths each
    nodes = np.array([[BELOW, BELOW], [1, BELOW]], np.int32)
    items = np.array([0, 1, 0, 1])
    known = np.full(4, 2)
    found = scores_of_path(("genus", "kind"), nodes, labels, items, known)
    assert found["hP"].tolist() == pytest.approx([math.nan, 1], nan_ok=True)
    assert found["hP, lenient"].tolist() == pytest.approx([math.nan, 1], nan_ok=True)
    assert found["hR, lenient"].tolist() == [0, 0.5]


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_that_is_not_positive_is_refused(tmp_path, scale):
    folder = birds(tmp_path)
    with pytest.raises(hbench.UsageError, match="scale"):
        hbench.name(folder / "items.npz", folder / "birds.csv", folder / "nodes.npz", scale=scale)


def test_names_of_coarse_levels_alone_are_refused(tmp_path):
    folder = birds(tmp_path)
    orders = joined(np.array(NAMES[:2]), np.eye(4, dtype=np.float32)[:2])
    with pytest.raises(hbench.SubmissionError, match="finest level"):
        hbench.name(folder / "items.npz", folder / "birds.csv", orders)


def test_classes_without_a_vector_are_said_and_never_given(tmp_path):
    folder = birds(tmp_path)
    three = joined(np.array([*NAMES[:2], *NAMES[3:]]), np.eye(4, dtype=np.float32)[[0, 2, 1, 2, 3]])
    named = hbench.name(folder / "items.npz", folder / "birds.csv", three)
    assert "Owls > barn owl" not in named.table["path"].to_pylist()
    assert any("1 of 4 names of kind have no vector" in text for text in named.warnings)


def test_shares_are_the_same_bits_whatever_the_order_of_the_table(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"p{n},o{n % 40},k{n % 400}" for n in range(701)]
    vectors = rng.normal(size=(701, 100)).astype(np.float32)
    nodes = {f"k{n}": row for n, row in enumerate(rng.normal(size=(400, 100)).astype(np.float32))}
    shares = []
    for name, rows in (("one", lines), ("other", lines[::-1])):
        table = tmp_path / f"{name}.csv"
        table.write_text("\n".join(["item,order,kind", *rows]))
        found = hbench.name(vectors, table, nodes, ids=[f"p{n}" for n in range(701)]).table
        shares.append({row["item"]: row["mass"] for row in found.to_pylist()})
    assert shares[0] == shares[1]
