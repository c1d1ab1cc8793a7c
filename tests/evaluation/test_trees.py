"""Other trees over the same classes, scored in one ranking pass: bit for bit what an evaluation
under each tree alone gives.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from hbench.core.errors import TreeError, UsageError
from hbench.datasets import load, manifest
from hbench.engine.executors.dask import File, FileReader, connected, on_cluster
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.settings import Settings
from hbench.evaluation import examination
from hbench.evaluation.evaluate import evaluate
from hbench.evaluation.submission import read
from hbench.evaluation.variants import trees
from hbench.records import report_tables
from hbench.records.document import Document
from hbench.submissions import embeddings
from hbench.submissions.embeddings import Embeddings

SPECIES = 24


def zoo(rows_of, levels, *, split=False, ignore=False, items=700):
    """Items of 24 species under a tree, with copies and ties, shuffled so that no order of classes
    is that of the items.
    """
    rng = np.random.default_rng(5)
    species = rng.integers(SPECIES, size=items)
    vectors = (rng.normal(size=(SPECIES, 8))[species] + rng.normal(size=(items, 8))).astype(
        np.float32
    )
    vectors[::7] = vectors[0]
    names = [f"{i:04d}.jpg" for i in rng.permutation(items)]
    asks = rng.random(items) < 0.4
    roles = {"query": asks, "gallery": ~asks} if split else {}
    data = manifest.from_names(names, [rows_of(s) for s in species], levels=levels, **roles)
    if ignore:
        data = replace(data, ignore=rng.integers(-1, 30, items))
    return data, Embeddings(np.array(names, dtype=object), vectors, "0", "zoo", "float32")


def own(s):
    return (f"family{s // 4}", f"species{s}")


def deeper(s):
    return (f"class{s % 2}", f"order{s % 6}", f"genus{s % 12}", f"species{s}")


def evaluated(data, given, tmp_path, **options):
    path = tmp_path / f"{len(data.levels)}.parquet"
    data.write(path)
    return examination.examine(given, load(path), Settings(**options))


@pytest.mark.parametrize(
    ("split", "ignore", "ties"),
    [  # each pair of values meets
        (False, False, "pessimistic"),
        (False, True, "optimistic"),
        (True, False, "optimistic"),
        (True, True, "pessimistic"),
    ],
)
def test_one_pass_gives_what_each_tree_gives_alone_to_the_bit(tmp_path, split, ignore, ties):
    data, given = zoo(own, ["family", "species"], split=split, ignore=ignore)
    other, _ = zoo(deeper, ["class", "order", "genus", "species"], split=split, ignore=ignore)
    table = tmp_path / "deep.csv"
    # three leaves that no item has
    rows = "\n".join(",".join(deeper(s)) for s in range(SPECIES + 3))
    table.write_text(f"class,order,genus,species\n{rows}\n", encoding="utf-8")
    examined = evaluated(data, given, tmp_path, ties=ties)
    both = trees.report_under(examined, trees.parse(f"{table},shuffled"))
    alone = evaluate(given, load(tmp_path / "2.parquet"), ties=ties)
    other_alone = evaluated(other, given, tmp_path, ties=ties)
    expected = trees.report_under(other_alone, trees.parse("shuffled"))
    assert (
        both.document.model_copy(update={"trees": {}, "read": alone.document.read})
        == alone.document
    )
    assert both.document.read[-1]["source"] == "deep.csv"
    found = both.document.trees["deep.csv"]
    assert found.levels == ("class", "order", "genus", "species")
    assert {"H-AP", "wAP", "ASI", "NDCG"} <= found.scores.keys()
    for name, score in found.scores.items():
        assert score.value == expected.document.scores[name].value, name
    graded = evaluated(data, given, tmp_path, ties=ties, metrics=list(found.scores))
    other_graded = evaluated(other, given, tmp_path, ties=ties, metrics=list(found.scores))
    # an interval's last bits are those of all metrics asked
    both = trees.report_under(graded, trees.parse(str(table)))
    expected = trees.report_under(other_graded, trees.parse("shuffled"))
    assert both.document.trees["deep.csv"].scores == expected.document.scores


def test_a_shuffled_tree_has_its_shape_and_other_families():
    data, _ = zoo(own, ["family", "species"])
    (tree,) = trees.parse("shuffled:3")
    labels = tree.labels(data)
    assert [len(np.unique(column)) for column in labels.T] == [6, SPECIES]
    families = {(int(a), int(b)) for a, b in zip(data.labels[:, 1], labels[:, 0], strict=True)}
    assert len(families) == SPECIES  # a species is in one family
    assert sorted(np.bincount([family for _, family in families])) == [4] * 6
    assert (data.labels[:, 0] != labels[:, 0]).any()
    pairs = data.labels[:, None, 1] == data.labels[None, :, 1]
    assert ((labels[:, None, 1] == labels[None, :, 1]) == pairs).all()


def test_a_shuffled_tree_is_the_same_by_the_same_seed_alone():
    data, _ = zoo(own, ["family", "species"])
    (tree,) = trees.parse("shuffled:3")
    labels = tree.labels(data)
    assert (trees.parse("shuffled:3")[0].labels(data) == labels).all()
    assert (trees.parse("shuffled:4")[0].labels(data) != labels).any()


def test_a_tree_of_any_format_over_the_own_classes_gives_the_own_scores_and_no_difference(tmp_path):
    data, given = zoo(own, ["family", "species"])
    edges = [("animals", f"family{s // 4}") for s in range(0, SPECIES, 4)]
    edges += [(f"family{s // 4}", f"species{s}") for s in range(SPECIES)]
    (tmp_path / "edges.csv").write_text(
        "parent,child\n" + "\n".join(map(",".join, edges)) + "\n", encoding="utf-8"
    )
    groups = [",".join(f"species{s + i}" for i in range(4)) for s in range(0, SPECIES, 4)]
    newick = ",".join(f"({group})family{i}" for i, group in enumerate(groups))
    (tmp_path / "own.nwk").write_text(f"({newick})animals;", encoding="utf-8")
    found = trees.report_under(
        evaluated(data, given, tmp_path),
        trees.parse(f"{tmp_path / 'edges.csv'},{tmp_path / 'own.nwk'}"),
    )
    for name in ("edges.csv", "own.nwk"):
        under = found.document.trees[name]
        assert len(under.levels) == 2
        for metric, score in under.scores.items():
            assert score.value == found.document.scores[metric].value
            assert under.differences[metric]["difference"] == 0
        assert under.signature.startswith(f"{found.signature}|tree:{name}(")


@pytest.fixture
def shuffled(tmp_path):
    """A report with the scores under a shuffled tree."""
    data, given = zoo(own, ["family", "species"])
    return trees.report_under(
        evaluated(data, given, tmp_path, metrics=["H-AP", "R@1"]), trees.parse("shuffled")
    )


def test_the_difference_is_the_mean_of_the_paired_ones(shuffled):
    under = shuffled.document.trees["shuffled"]
    assert set(under.scores) == {"H-AP"}
    gap = under.scores["H-AP"].value - shuffled.scores["H-AP"]
    assert under.differences["H-AP"]["difference"] == pytest.approx(gap)
    # vectors lie by species alone, but equal ones are ranked by what their families share
    assert gap < 0


def test_the_difference_is_shown_behind_the_score(shuffled):
    score = shuffled.document.trees["shuffled"].scores["H-AP"].value
    gap = score - shuffled.scores["H-AP"]
    table = report_tables.by_tree(shuffled.document)
    assert table.header == ("tree", "H-AP")
    assert table.cells[0] == ("own", report_tables.percent(shuffled.scores["H-AP"]))
    assert table.cells[1][1].startswith(f"{report_tables.percent(score)} ({100 * gap:+.2f} ±")


def test_scores_under_other_trees_are_read_back_as_they_were_written(shuffled):
    again = Document.model_validate(json.loads(shuffled.document.model_dump_json()))
    assert again == shuffled.document


def test_what_cannot_be_scored_is_refused_before_it_is_ranked(tmp_path):
    data, given = zoo(own, ["family", "species"])
    few = tmp_path / "few.csv"
    few.write_text("family,species\nfamily0,species0\n", encoding="utf-8")

    def never(job, blocks):
        raise AssertionError("ranked")

    examined = evaluated(data, given, tmp_path)
    with pytest.raises(TreeError, match="23 of 24 fine classes are not leaves"):
        trees.report_under(examined, trees.parse(str(few)), execute=never)
    for refused in ("", "shuffled:x", "shuffled,shuffled:0"):
        with pytest.raises(UsageError):
            trees.parse(refused)
    with pytest.raises(UsageError, match="under other trees"):
        trees.report_under(replace_metrics(examined), trees.parse("shuffled"), execute=never)


def replace_metrics(examined):
    species_only = tuple(name for name in examined.conditions.metrics if str(name) == "R@1")
    return replace(examined, conditions=replace(examined.conditions, metrics=species_only))


def test_every_executor_finds_the_values_of_all_trees(tmp_path):
    data, given = zoo(own, ["family", "species"])
    np.savez(tmp_path / "vectors.npz", ids=given.ids.astype(str), embeddings=given.vectors)
    file = read(tmp_path / "vectors.npz")
    examined, chosen = evaluated(data, file, tmp_path), trees.parse("shuffled,shuffled:7")
    whole = trees.report_under(examined, chosen).document
    for _ in range(2):  # the second time from what was kept
        kept = trees.report_under(
            examined, chosen, execute=kept_in(tmp_path / "kept", on_threads)
        ).document
        assert kept.trees == whole.trees
    with connected(None, 1) as client:
        on_workers = on_cluster(
            client, [File(tmp_path / "vectors.npz")], FileReader(embeddings.read, embeddings.joined)
        )
        assert (
            trees.report_under(examined, chosen, execute=on_workers).document.trees == whole.trees
        )


def test_blocks_kept_for_other_trees_are_not_taken(tmp_path):
    data, given = zoo(own, ["family", "species"])
    examined, execute = evaluated(data, given, tmp_path), kept_in(tmp_path / "kept", on_threads)
    one = trees.report_under(examined, trees.parse("shuffled"), execute=execute).document.trees[
        "shuffled"
    ]
    other = trees.report_under(examined, trees.parse("shuffled:7"), execute=execute).document.trees[
        "shuffled:7"
    ]
    assert one.scores != other.scores
