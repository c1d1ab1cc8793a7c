"""Calls that nobody means are refused in words, whatever room they would have failed in."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import hbench
from hbench.core.errors import HBenchError
from hbench.datasets.own.source import OwnSource
from hbench.integrations.own_loop import LabelsById
from hbench.look.strips.results import browse

pytestmark = pytest.mark.fast

VECTORS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
LABELS = np.stack([np.arange(12) // 6, np.arange(12) // 3], axis=1)
NAMES = [[f"order {a}", f"species {b}"] for a, b in LABELS.tolist()]
LEVELS = ["order", "species"]
SCORES, RELATED = VECTORS[:3], np.array([[0, 1, 2, 0]] * 3)
TREE, IDS = hbench.LabelTree.from_names(NAMES, levels=LEVELS)
ITEMS = np.array([f"{n}.png" for n in range(12)], object)
ASKED = np.ones(12, bool)
BATCH, CLASSES = torch.from_numpy(VECTORS), torch.from_numpy(LABELS)
BY_ID = LabelsById(ITEMS.tolist(), CLASSES, CLASSES)
MISSING = [[None, "a"], ["b", "c"]]
NO_LENGTH = np.array(3)


def loss(name="sup_ap", **params):
    return hbench.losses.build_loss(name, **params)


def score(**changed):
    return hbench.score(**{"vectors": VECTORS, "labels": LABELS, "metrics": "H-AP"} | changed)


def manifest(**changed):
    usual = {"items": ITEMS, "labels": IDS, "tree": TREE, "query": ASKED, "gallery": ASKED}
    return hbench.Manifest(**usual | changed)


def metric(sequence):
    return hbench.MetricName.parse("AP").bind(LEVELS)(sequence)


REFUSED = {
    # labels of arrays
    "labels without a length": lambda: score(labels=NO_LENGTH),
    "labels as a tensor without a length": lambda: score(labels=torch.tensor(3)),
    "labels as a sparse tensor": lambda: score(labels=CLASSES.to_sparse()),
    "labels without values": lambda: score(labels=CLASSES.to("meta")),
    "labels as sets, which have no order": lambda: score(labels=[set(row) for row in NAMES]),
    "labels as dictionaries": lambda: score(labels=[{"species": row[1]} for row in NAMES]),
    "labels with half a letter": lambda: score(labels=[["\ud800", row[1]] for row in NAMES]),
    "levels as a set": lambda: score(level_names={"order", "species"}),
    "an empty similarity": lambda: score(similarity=""),
    "no threads": lambda: score(threads=0),
    "a node without a name": lambda: score(labels=NAMES, nodes={(): VECTORS[0]}),
    # trees
    "rows of letters": lambda: hbench.LabelTree.from_names(["ab", "cd"], levels=LEVELS),
    "rows of sets": lambda: hbench.LabelTree.from_names([{"a", "b"}], levels=LEVELS),
    "rows of dictionaries": lambda: hbench.LabelTree.from_names([{0: "a", 1: "b"}], levels=LEVELS),
    "rows without a length": lambda: hbench.LabelTree.from_names(NO_LENGTH, levels=LEVELS),
    "rows with a missing name": lambda: hbench.LabelTree.from_names(MISSING, levels=LEVELS),
    "rows with NaN": lambda: hbench.LabelTree.from_names([["a", np.nan]], levels=LEVELS),
    "a tree of two levels and one name": lambda: hbench.LabelTree(("a", "b"), TREE.names[:1], IDS),
    "a tree of paths above its names": lambda: hbench.LabelTree(
        ("a", "b"), TREE.names, TREE.paths + np.int32(7)
    ),
    "a tree of lists": lambda: hbench.LabelTree(("a",), (("b",),), [[0]]),
    "a tree without names": lambda: hbench.LabelTree(("a", "b"), None, IDS),
    "columns that are not as many as levels": lambda: hbench.LabelTree.from_columns(
        [["a"]], levels=LEVELS
    ),
    "columns as a table": lambda: hbench.LabelTree.from_columns(pd.DataFrame(NAMES), levels=LEVELS),
    "a level that is no text": lambda: TREE.level(3),
    "a class that is none": lambda: TREE.lca(0, 99),
    "a class below 0": lambda: TREE.lca(-1, 0),
    "labels of another tree": lambda: TREE.counts(LABELS[:, :1].astype(np.int32)),
    "labels above the tree": lambda: TREE.counts(np.full((2, 2), 99, np.int32)),
    "pairs of missing names": lambda: hbench.levels_of_pairs(MISSING, MISSING),
    "pairs of NA": lambda: hbench.levels_of_pairs([["a", pd.NA]], NAMES),
    "a relevance that is none": lambda: hbench.relevance_of_pairs(LABELS, LABELS, lambda counts: 1),
    # names of metrics
    "levels of a metric as a number": lambda: hbench.MetricName.parse("AP/a").at(3),
    "a relevance as an array": lambda: hbench.MetricName.parse("H-AP").bind(LEVELS, SCORES),
    "a level sequence of lists": lambda: metric(hbench.LevelSequence([1], [2], [3, 0, 1])),
    "a score by a list": lambda: score().scores[["H-AP"]],
    # metrics
    "levels as names": lambda: hbench.metrics.ap(SCORES, RELATED.astype(str)),
    "levels as None": lambda: hbench.metrics.ap(SCORES, np.full(RELATED.shape, None)),
    "scores as texts": lambda: hbench.metrics.knn_accuracy(SCORES.astype(str), [0] * 4, [0] * 3, 1),
    "classes of other kinds": lambda: hbench.metrics.knn_accuracy(SCORES, [0] * 4, ["0"] * 3, 1),
    "classes with None": lambda: hbench.metrics.knn_accuracy(
        SCORES, ["a", None, "b", "a"], ["a"] * 3, 1
    ),
    "classes with NaN": lambda: hbench.metrics.nmi(VECTORS, [np.nan] * 12),
    "vectors without a dimension": lambda: hbench.metrics.nmi(VECTORS[:, :0], LABELS[:, 1]),
    # losses
    "classes as a text": lambda: loss("cluster", classes="4", dim=4),
    "classes as a tensor": lambda: loss("cluster", classes=torch.tensor([4, 4]), dim=4),
    "more proxies than memory holds": lambda: loss("cluster", classes=10**30, dim=4),
    "another dimension": lambda: loss("cluster", classes=9, dim=3)(BATCH, CLASSES),
    "an offset as a list": lambda: loss(offset=[1]),
    "a temperature that is no number": lambda: loss(tau=float("nan")),
    "a temperature without end": lambda: loss(tau=10**30),
    "more bins than anybody counts": lambda: loss("softbin_ap", bins=2**63),
    "places of recall as a number": lambda: loss("recall_at_k", at=5),
    "a relevance of a loss as a list": lambda: loss("sup_hap", relevance=["alpha"]),
    "paths of one column": lambda: loss("csl", paths=[1, 2], dim=4),
    "parameters as a list": lambda: loss("xbm", loss="sup_ap", size=4, params=["tau"]),
    "no losses of levels": lambda: hbench.losses.per_level(["sup_ap"]),
    "embeddings without a length": lambda: loss()(torch.tensor(1.0), CLASSES),
    "embeddings of integers": lambda: loss()(BATCH.long(), CLASSES),
    "sparse embeddings": lambda: loss()(BATCH.to_sparse(), CLASSES),
    "embeddings without values": lambda: loss()(BATCH.to("meta"), CLASSES),
    "ranks of integers": lambda: hbench.losses.blackbox_rank(CLASSES, 1.0),
    "batches of texts": lambda: hbench.losses.decomposability_gap(
        lambda scores, levels: 0.5, SCORES[0], RELATED[0], ["a"]
    ),
    "batches beyond the items": lambda: hbench.losses.decomposability_gap(
        lambda scores, levels: 0.5, SCORES[0], RELATED[0], [np.array([9])]
    ),
    "fewer levels than scores": lambda: hbench.losses.decomposability_gap(
        lambda scores, levels: 0.5, SCORES[0], RELATED[0][:1], [np.arange(2)]
    ),
    "a memory that no machine holds": lambda: loss("xbm", loss="sup_ap", size=10**30)(
        BATCH, CLASSES
    ),
    "ids as a number": lambda: BY_ID.of(3),
    "an id as a list": lambda: BY_ID[["0.png"]],
    # datasets
    "a manifest of lists": lambda: manifest(query=[True] * 12),
    "a manifest of queries without a length": lambda: manifest(query=np.array(True)),
    "a manifest with a text of numpy": lambda: manifest(text=ITEMS),
    "a manifest with the text of other items": lambda: manifest(text=pa.array(["0.png"])),
    "a manifest without a tree": lambda: manifest(tree="birds"),
    "places as texts": lambda: manifest().of("0.png"),
    "a file as a number": lambda: manifest().write(3),
    "tests as a list": lambda: hbench.Dataset("a", "1", None, None, [manifest()]),
    "a fraction of nothing": lambda: OwnSource("a.csv", test_fraction=0.0),
    "a fraction that is no number": lambda: OwnSource("a.csv", test_fraction=float("nan")),
    "a depth of nothing": lambda: OwnSource("a", depth=0),
    "a seed below 0": lambda: OwnSource("a.csv", seed=-1),
    # others
    "a gallery as a number": lambda: hbench.name(VECTORS, "glyphs", gallery=3, ids=ITEMS),
    "a model that is none": lambda: hbench.embed(3, "glyphs", "a.npz"),
    "metrics of a plot without": lambda: hbench.plot(score(), "mistakes", metrics="AP"),
    "a root as a list": lambda: hbench.vision_dataset("glyphs")(["a"]),
    "a metric of a board as a number": lambda: hbench.leaderboard("sop").computes(3),
    "a row of a board as a text": lambda: hbench.leaderboard("sop").compares("HAPPIER"),
    "nothing to browse": lambda: browse([], "glyphs"),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_a_call_that_nobody_means_is_refused_in_words(call):
    with pytest.raises(HBenchError):
        call()


def test_options_that_would_do_nothing_are_refused(tmp_path):
    table = tmp_path / "birds.csv"
    table.write_text("item,order,species\na,x,y\nb,x,z\n")
    with pytest.raises(HBenchError, match="names of levels"):
        hbench.load(table, level_names="a,b")
    with pytest.raises(HBenchError, match="taxonomy"):
        hbench.load(table, taxon="species")


TAKEN = {
    "labels as a half tensor": CLASSES.bfloat16(),
    "labels as tensors in a list": list(CLASSES),
}


@pytest.mark.parametrize("labels", TAKEN.values(), ids=list(TAKEN))
def test_labels_that_are_as_good_give_the_same(labels):
    assert score(labels=labels).scores == score().scores


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_is_as_good_as_an_array():
    expected = hbench.metrics.ap(SCORES, RELATED)
    assert hbench.metrics.ap(np.matrix(SCORES), np.matrix(RELATED)).tolist() == expected.tolist()


def test_the_keys_of_a_dictionary_are_as_good_as_a_list_of_metrics():
    assert set(score(metrics={"H-AP": 1, "AP": 2}.keys()).scores) == {"H-AP", "AP"}


def test_a_parameter_of_a_loss_may_be_any_real_number():
    made = loss("cluster", classes=np.int64(4), dim=4, temperature=np.float32(0.5))
    assert made.weight.shape == (4, 4)


def test_a_weight_of_two_losses_may_be_a_fraction():
    half = loss("happier_f", lam=Fraction(1, 2), classes=4, dim=4)
    assert half.weights == (0.5, 0.5)


def test_a_report_of_a_stranger_does_not_steer_the_terminal(tmp_path):
    report = score()
    report.write(tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text.replace('"method": null', '"method": "\\u001b]0;owned"'))
    assert "\x1b" not in repr(hbench.Report.read(tmp_path / "a.json"))
