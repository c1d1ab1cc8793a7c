"""Names as queries: every node of the tree with a vector ranks the gallery under the cut tree."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench.core.errors import SubmissionError, UsageError
from hbench.datasets import manifest
from hbench.datasets.dataset import Dataset, Protocol
from hbench.engine.executors.gpu import on_devices
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.submissions.embeddings import joined
from hbench.tree.partial import ended_early
from tests import oracle, oracle_partial
from tests.command_line import call, refusal

pytestmark = pytest.mark.fast

LEVELS = ("order", "family", "genus")
METRICS = ["H-AP", "wAP", "ASI", "NDCG", "AP", "mAP@R", "P@2", "R@1", "consistency"]


def dataset_of(paths):
    """A test of items with these paths, each at home in the gallery alone but for the first."""
    rows = [ended_early(path, LEVELS) for path in paths]
    names = [f"i{n}" for n in range(len(paths))]
    query = np.arange(len(paths)) == 0
    test = manifest.from_names(names, rows, levels=LEVELS, query=query)
    return Dataset("zoo", "1", Protocol(), None, {"test": test}), names


def problem(seed, share=0.0):
    """Items with paths, some of which end early, and nodes at every depth; scores tie."""
    rng = np.random.default_rng(seed)
    items = int(rng.integers(3, 30))
    columns = np.minimum(rng.geometric(0.5, size=(items, 3)), 3)
    paths = [tuple("/".join(map(str, row[: n + 1])) for n in range(3)) for row in columns.tolist()]
    ends = np.where(rng.random(items) < share, rng.integers(1, 4, items), 3)
    paths = [path[:end] for path, end in zip(paths, ends.tolist(), strict=True)]
    every = sorted({path[:depth] for path in paths for depth in range(1, len(path) + 1)})
    chosen = [node for node in every if rng.random() < 0.8] or every[:1]
    vectors = rng.integers(-2, 3, (items, 3)).astype(np.float32)
    of_nodes = rng.integers(-2, 3, (len(chosen), 3)).astype(np.float32)
    return paths, chosen, vectors, of_nodes


def asked(paths, nodes, vectors, of_nodes, **how):
    data, names = dataset_of(paths)
    named = joined(np.array([" > ".join(node) for node in nodes]), of_nodes)
    return hbench.evaluate(
        vectors,
        data,
        ids=names,
        nodes=named,
        similarity="dot",
        metrics=how.pop("metrics", METRICS),
        **how,
    )


def by_loops(levels, depth, above):
    """METRICS of a ranked list under the tree that is cut at a depth; `above`: whether the node
    above has a vector."""
    fine = sum(level == depth for level in levels)
    up = (
        sum(level >= depth - 1 for level in levels[:fine]) / fine
        if fine and depth > 1 and above
        else oracle.NAN
    )
    return [
        oracle.h_ap(levels, oracle.alpha_relevance(levels, depth)),
        oracle.w_ap(levels, [1 / depth] * depth),
        oracle.asi(levels, depth),
        oracle.ndcg(levels),
        oracle.ap_at(levels, depth),
        oracle.map_at(levels, depth, fine, lambda total: total),
        oracle.precision(levels, depth, 2),
        oracle.recall(levels, depth, 1),
        up,
    ]


def order_of(report):
    return dict(zip(report.table["query"].to_pylist(), range(len(report.table)), strict=True))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_a_node_sees_the_tree_cut_at_its_depth(seed):
    paths, nodes, vectors, of_nodes = problem(seed)
    report = asked(paths, nodes, vectors, of_nodes)
    place = order_of(report)
    for node, vector in zip(nodes, of_nodes, strict=True):
        depth = len(node)
        scores = [float(vector @ each) for each in vectors]
        levels = [oracle.level_of((*node, 0), (*path[:depth], 1)) for path in paths]
        ranked = oracle.rank_levels(scores, levels)
        found = [report.values[name][place[" > ".join(node)]] for name in METRICS]
        expected = by_loops(ranked, depth, node[:-1] in nodes)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_an_item_that_is_known_less_far_than_the_node_is_of_unknown_level(seed):
    paths, nodes, vectors, of_nodes = problem(seed, share=0.5)
    report = asked(paths, nodes, vectors, of_nodes, metrics=["H-AP", "AP"])
    if "labels:partial" not in report.signature:
        return
    place = order_of(report)
    for node, vector in zip(nodes, of_nodes, strict=True):
        depth = len(node)
        scores = [float(vector @ each) for each in vectors]
        cut = [path[:depth] for path in paths]
        ranked = oracle_partial.ranked_bounds(scores, cut, node, depth)
        known = oracle_partial.known(ranked)
        row = place[" > ".join(node)]
        expected = [
            oracle_partial.graded("H-AP", known, depth),
            oracle_partial.of_level("AP", ranked, depth, depth),
        ]
        found = [report.values[name][row] for name in ("H-AP", "AP")]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_scores_are_means_over_all_nodes_and_of_each_depth():
    paths, nodes, vectors, of_nodes = problem(3)
    report = asked(paths, nodes, vectors, of_nodes)
    assert report.scores["AP"] == pytest.approx(np.nanmean(report.values["AP"]), abs=1e-12)
    for depth, level in enumerate(LEVELS, start=1):
        own = [len(name.split(" > ")) == depth for name in report.table["query"].to_pylist()]
        mean = np.nanmean(report.values["AP"][own])
        assert report.document.by_test[level]["AP"] == pytest.approx(mean, abs=1e-12)
    numbers = ",".join(
        f"{sum(len(node) == n for node in nodes)}@{level}" for n, level in enumerate(LEVELS, 1)
    )
    assert f"|queries:nodes({numbers})|" in report.signature


def test_every_executor_gives_the_same_bits(tmp_path):
    paths, nodes, vectors, of_nodes = problem(5)
    whole = asked(paths, nodes, vectors, of_nodes)
    for execute in (kept_in(tmp_path, on_threads), kept_in(tmp_path, on_threads)):
        again = asked(paths, nodes, vectors, of_nodes, execute=execute)
        assert again.document.scores == whole.document.scores


def test_a_card_gives_the_same_values():
    paths, nodes, vectors, of_nodes = problem(5)
    some = (paths, nodes[:6], vectors, of_nodes[:6])
    on_card = asked(*some, execute=on_devices("cpu"))
    assert on_card.scores["H-AP"] == pytest.approx(asked(*some).scores["H-AP"], abs=1e-12)


def test_names_are_enough_where_one_node_has_them():
    paths, nodes, vectors, of_nodes = problem(3)
    data, names = dataset_of(paths)
    by_path = asked(paths, nodes, vectors, of_nodes)
    named = joined(np.array([node[-1] for node in nodes]), of_nodes)
    by_name = hbench.evaluate(
        vectors, data, ids=names, nodes=named, similarity="dot", metrics=METRICS
    )
    assert by_name.scores == pytest.approx(by_path.scores, nan_ok=True)


def test_what_no_node_or_item_is_behind_is_left_out_and_said():
    paths = [("Owls", "Barn owls", "barn owl"), ("Owls", "True owls", "tawny owl")]
    vectors = np.eye(2, dtype=np.float32)
    names = ["Owls", "tawny owl", "Hoopoe"]
    data, ids = dataset_of(paths)
    report = hbench.evaluate(vectors, data, ids=ids, nodes=joined(np.array(names), np.ones((3, 2))))
    assert any("1 of 3 names are no nodes of the tree" in text for text in report.document.warnings)
    assert len(report.table) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["Hoopoe"], "none of the names"),
        (["Owls", "Owls > Barn owls", "Barn owls"], "several vectors"),
    ],
    ids=["unknown", "twice"],
)
def test_names_that_do_not_say_which_node_they_mean_are_refused(names, message):
    data, ids = dataset_of([("Owls", "Barn owls", "barn owl"), ("Owls", "True owls", "tawny owl")])
    nodes = joined(np.array(names), np.ones((len(names), 2)))
    with pytest.raises(hbench.SubmissionError, match=message):
        hbench.evaluate(np.eye(2), data, ids=ids, nodes=nodes)


def test_vectors_of_another_dimension_are_refused():
    data, ids = dataset_of([("Owls", "Barn owls", "barn owl"), ("Owls", "True owls", "tawny owl")])
    with pytest.raises(hbench.SubmissionError, match="dimension"):
        hbench.evaluate(np.eye(2), data, ids=ids, nodes=joined(np.array(["Owls"]), np.ones((1, 3))))


def test_the_command_takes_a_file_of_nodes_and_refuses_a_metric_of_one_level(tmp_path):
    table = "item,order,kind\na,Owls,barn owl\nb,Owls,bay owl\nc,Parrots,galah\nd,Parrots,galah\n"
    (tmp_path / "birds.csv").write_text(table)
    vectors = np.eye(4, 3, dtype=np.float32) + 0.1
    np.savez(tmp_path / "items.npz", ids=np.array(list("abcd")), embeddings=vectors)
    nodes = np.array(["Owls", "Parrots > galah"])
    np.savez(tmp_path / "nodes.npz", ids=nodes, embeddings=vectors[[0, 2]])
    words = (
        "evaluate",
        tmp_path / "items.npz",
        "-d",
        tmp_path / "birds.csv",
        "--nodes",
        tmp_path / "nodes.npz",
    )
    done = call(*words, "--metrics", "AP,H-AP")
    assert "queries:nodes(1@order,1@kind)" in done.output
    assert "own level" in refusal(*words, "--metrics", "AP/order")
    assert "--nodes" in refusal(*words, "--trees", "shuffled")


def test_a_name_of_several_nodes_is_refused_and_their_paths_are_taken():
    vectors = np.eye(3, dtype=np.float32)
    paths = [("Fox", "Fox", "Red fox"), ("Fox", "Fox", "Grey fox"), ("Owls", "Owls", "Barn owl")]
    with pytest.raises(hbench.SubmissionError, match="several nodes") as refused:
        asked(paths, [("Fox",)], vectors, vectors[:1])
    assert "> A" in str(refused.value)
    report = asked(paths, [("> Fox",), ("Fox", "Fox")], vectors, vectors[:2])
    assert list(report.document.by_test) == ["order", "family"]


def test_vectors_by_name_in_memory_are_those_of_a_file():
    paths, chosen, vectors, of_nodes = problem(5)
    data, names = dataset_of(paths)
    expected = asked(paths, chosen, vectors, of_nodes).scores
    by_name = {" > ".join(node): row.tolist() for node, row in zip(chosen, of_nodes, strict=True)}
    found = hbench.evaluate(
        vectors, data, ids=names, nodes=by_name, similarity="dot", metrics=METRICS
    )
    assert found.scores == expected
    with pytest.raises(hbench.UsageError, match="nodes"):
        hbench.evaluate(vectors, data, ids=names, nodes={"a": [1.0, 2.0], "b": [1.0]})


PATHS = [("Owls", "Tyto", "alba"), ("Owls", "Tyto", "novae"), ("Owls", "Bubo", "bubo")]


def zoo():
    """Vectors of items, four of each path, and of every node by its path."""
    rng = np.random.default_rng(3)
    rows = [path for path in PATHS for _ in range(4)]
    vectors = rng.normal(size=(len(rows), 5))
    every = sorted({path[:depth] for path in PATHS for depth in (1, 2, 3)})
    return rows, vectors, {path: rng.normal(size=5) for path in every}


def test_arrays_of_items_are_scored_by_name_as_a_dataset_is():
    rows, vectors, nodes = zoo()
    report = hbench.score(vectors, rows, level_names=LEVELS, nodes=nodes, metrics=METRICS)
    data, names = dataset_of(rows)
    by_text = {" > ".join(path): vector for path, vector in nodes.items() if len(path) > 1}
    by_text["> Owls"] = nodes["Owls",]
    of_dataset = hbench.evaluate(vectors, data, ids=names, nodes=by_text, metrics=METRICS)
    assert report.scores == of_dataset.scores
    assert report.queries.tolist() == of_dataset.queries.tolist()
    assert "|queries:nodes(1@order,2@family,3@genus)|" in report.signature


def test_arrays_are_scored_by_numbers_of_classes():
    labels = [[0, 0], [0, 1], [1, 2], [1, 3]]
    report = hbench.score(np.eye(4), labels, nodes={("1", "3"): [0, 0, 0, 1.0]}, metrics="P@1")
    assert report.scores["P@1"] == 1
    with pytest.raises(UsageError, match="two keys of nodes are one name"):
        hbench.score(np.eye(4), labels, nodes={"3": np.ones(4), 3: np.ones(4)})


def test_nodes_rank_the_vectors_and_no_gallery():
    rows, vectors, nodes = zoo()
    with pytest.raises(UsageError, match="gallery"):
        hbench.score(vectors, rows, gallery=vectors, gallery_labels=rows, nodes=nodes)


def write_by_levels(path, nodes, columns=LEVELS):
    """A parquet file with a column per level, empty below a node."""
    cells = {
        level: [(*node, None, None)[LEVELS.index(level)] for node in nodes] for level in columns
    }
    lists = pa.array([vector.astype(np.float32).tolist() for vector in nodes.values()])
    pq.write_table(pa.table({**cells, "embedding": lists}), path)


def test_a_table_with_a_column_per_level_names_nodes_by_their_paths(tmp_path):
    rows, vectors, nodes = zoo()
    data, names = dataset_of(rows)
    write_by_levels(tmp_path / "nodes.parquet", nodes)
    report = hbench.evaluate(vectors, data, ids=names, nodes=tmp_path / "nodes.parquet")
    by_path = hbench.score(vectors, rows, level_names=LEVELS, nodes=nodes)
    assert report.scores == pytest.approx(by_path.scores, abs=1e-6)  # float32 in the file
    assert len(report.queries) == len(nodes)


def test_one_column_of_names_is_enough(tmp_path):
    rows, vectors, nodes = zoo()
    data, names = dataset_of(rows)
    fine = {path: vector for path, vector in nodes.items() if len(path) == 3}
    write_by_levels(tmp_path / "nodes.parquet", fine, columns=("genus",))
    report = hbench.evaluate(vectors, data, ids=names, nodes=tmp_path / "nodes.parquet")
    assert set(report.queries) == {" > ".join(path) for path in PATHS}


@pytest.mark.parametrize(
    ("columns", "paths", "words"),
    [
        (LEVELS, [("Owls", "", "alba")], "row 0 is not the path"),
        (("family", "genus"), [("Owls", "Tyto", "alba")], "not those above"),
    ],
)
def test_a_table_whose_columns_are_no_paths_is_refused(tmp_path, columns, paths, words):
    rows, vectors, _ = zoo()
    data, names = dataset_of(rows)
    write_by_levels(tmp_path / "nodes.parquet", {path: np.ones(5) for path in paths}, columns)
    with pytest.raises(SubmissionError, match=words):
        hbench.evaluate(vectors, data, ids=names, nodes=tmp_path / "nodes.parquet")
