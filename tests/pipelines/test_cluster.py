"""Clusterings: the same for any order of labels, and obedient to links."""

import random

import numpy as np
import pytest
from hbench_hgldv2.curation.replay import suggest
from hbench_hgldv2.grouping import cluster, encode, sweep
from hbench_hgldv2.grouping.algorithms import ClusterSettings, algorithms, dendrogram
from hbench_hgldv2.grouping.constraints import Links
from hbench_hgldv2.grouping.fit import details
from hbench_hgldv2.labels.label import Label
from scipy.cluster.hierarchy import linkage

from hbench.core.errors import ConfigError, DataError, UsageError

pytestmark = pytest.mark.fast

IDS = [f"Q{number}" for number in range(1, 61)]


def blobs(seed=0, groups=6, spread=0.15):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, 16))
    return encode.unit(
        centres[np.arange(len(IDS)) % groups] + spread * rng.normal(size=(len(IDS), 16))
    )


@pytest.mark.parametrize("name", list(algorithms))
def test_the_order_of_the_labels_changes_nothing_and_separate_groups_are_clusters(name):
    vectors = blobs(spread=0.6)
    order = random.Random(1).sample(range(len(IDS)), len(IDS))
    first = cluster.cluster(IDS, vectors, ClusterSettings(7), algorithms[name])
    again = cluster.cluster(
        [IDS[i] for i in order], vectors[order], ClusterSettings(7), algorithms[name]
    )
    assert first == again
    assert set(first.values()) == set(range(7))
    sizes = [list(first.values()).count(number) for number in range(7)]
    assert sizes == sorted(sizes, reverse=True)
    separate = cluster.cluster(IDS, blobs(), ClusterSettings(6), algorithms[name])
    assert all(
        len({separate[IDS[i]] for i in range(start, len(IDS), 6)}) == 1 for start in range(6)
    )


@pytest.mark.parametrize("name", list(algorithms))
def test_must_and_cannot_links_are_respected(name):
    links = Links(
        must=(("Q1", "Q2", "Q3"), ("Q3", "Q10")), cannot=(("Q7", "Q13", "Q19"), ("Q1", "Q61"))
    )
    found = cluster.cluster(IDS, blobs(), ClusterSettings(6), algorithms[name], links)
    assert len({found[i] for i in ("Q1", "Q2", "Q3", "Q10")}) == 1
    assert len({found[i] for i in ("Q7", "Q13", "Q19")}) == 3


def test_links_that_contradict_and_impossible_numbers_of_clusters_are_refused():
    for k, links, error, problem in (
        (
            6,
            Links((("Q1", "Q2"), ("Q2", "Q3")), (("Q1", "Q3"),)),
            ConfigError,
            "must be linked and must not be",
        ),
        (2, Links((), (("Q1", "Q2", "Q3"),)), UsageError, "need more clusters"),
        (0, Links((), ()), UsageError, "cannot be made"),
        (61, Links((), ()), UsageError, "cannot be made"),
    ):
        with pytest.raises(error, match=problem):
            cluster.cluster(IDS, blobs(), ClusterSettings(k), algorithms["ward"], links)


@pytest.mark.parametrize(("method", "metric"), [("ward", "euclidean"), ("average", "cosine")])
def test_the_dendrogram_is_scipys_on_pairwise_distances(method, metric):
    vectors = blobs(spread=0.5)
    expected = linkage(vectors.astype(float), method, metric)
    assert dendrogram(vectors, method) == pytest.approx(expected, abs=1e-6)


def test_details_put_the_doubtful_first_and_flag_the_far():
    vectors = blobs()
    vectors[0] = encode.unit(-vectors[[1]] - vectors[[2]])[0]
    found = cluster.cluster(IDS, vectors, ClusterSettings(6), algorithms["ward"])
    rows = details(dict.fromkeys(IDS, "x"), vectors, found)
    assert "Q1" in {row.class_id for row in rows if row.outlier}
    assert sum(row.outlier for row in rows) < 6
    keys = [(row.cluster, row.silhouette) for row in rows]
    assert keys == sorted(keys)
    assert all(row.margin >= 0 for row in rows if row.silhouette > 0.3)


def test_a_sweep_prefers_the_true_number_and_counts_the_effort():
    reference = {IDS[i]: str(i % 6) for i in range(len(IDS))}
    names = [(i, f"word{reference[i]}") for i in IDS]
    settings = [ClusterSettings(k) for k in (3, 6, 12)]
    swept = sweep.sweep(
        names, blobs(spread=0.3), algorithms["ward"], settings, reference=reference, resamples=4
    )
    rows = list(swept)
    assert max(rows, key=lambda row: row.stability).k == 6
    assert max(rows, key=lambda row: row.silhouette).k == 6
    assert (rows[1].splits, rows[1].merges, rows[1].ari) == (0, 0, 1.0)
    assert (rows[0].splits, rows[0].merges) == (3, 0)
    assert (rows[2].splits, rows[2].merges) == (0, 6)


def test_the_co_association_is_the_share_of_refits_in_which_a_labels_cluster_stays_with_it():
    rng = np.random.default_rng(3)
    numbers = rng.integers(5, size=len(IDS))
    fits = [rng.integers(4, size=len(IDS)) for _ in range(3)]
    found = cluster.coassociation(IDS, dict(zip(IDS, numbers.tolist(), strict=True)), fits)
    for i, name in enumerate(IDS):
        others = [j for j in range(len(IDS)) if j != i and numbers[j] == numbers[i]]
        assert found[name] == pytest.approx(
            np.mean([[fit[j] == fit[i] for j in others] for fit in fits])
        )
    assert np.isnan(cluster.coassociation(["Q1"], {"Q1": 0}, [])["Q1"])


def test_labels_between_two_groups_have_the_lowest_co_association():
    vectors = blobs(spread=0.3)
    vectors[0] = encode.unit(vectors[[0]] + vectors[[1]])[0]
    algorithm = algorithms["ward"]
    found = cluster.cluster(IDS, vectors, ClusterSettings(6), algorithm)
    fits = list(cluster.refits(IDS, vectors, algorithm, ClusterSettings(6)))
    held = cluster.coassociation(IDS, found, fits)
    assert min(held, key=lambda name: held[name]) == "Q1"


def test_suggestions_are_the_best_anchors_groups_once_each():
    anchors = encode.unit(np.eye(4))
    (best,) = suggest(
        encode.unit(np.asarray([[0.9, 0.5, 0.8, 0.1]])), anchors, ["a", "b", "a", "c"]
    )
    assert best == ("a", "b", "c")


def test_other_encoders_and_files_than_embeddings_are_refused(tmp_path):
    path, labels = (
        tmp_path / "e.npz",
        [Label("Q1", "x", 1, 0, 0, ()), Label("Q2", "y", 1, 0, 0, ())],
    )
    encode.save(path, labels[:1], np.ones((1, 3), np.float32))
    with pytest.raises(DataError, match="no Q2"):
        encode.load(path, labels)
    path.write_bytes(b"no zip")
    with pytest.raises(DataError, match="holds no embeddings"):
        encode.load(path, labels)
    with pytest.raises(DataError, match="no direction"):
        encode.unit(np.zeros((1, 3)))
    for encoder, prompt, problem in (
        ("tfidf", "no braces", "in place of the label"),
        ("open_clip:ViT-L-15/x", "{}", "not a model of open_clip"),
    ):
        with pytest.raises(UsageError, match=problem):
            encode.encode(labels, encoder, prompt)


def test_a_folder_that_is_no_sentence_encoder_is_refused_by_what_it_lacks(tmp_path):
    labels = [Label("Q1", "x", 1, 0, 0, ())]
    with pytest.raises(DataError, match="no weights, no tokenizer"):
        encode.encode(labels, f"open_clip:{tmp_path}")
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="no hidden_size"):
        encode.encode(labels, f"open_clip:{tmp_path}")


def test_a_sweep_proposes_the_k_that_needs_the_fewest_decisions():
    rows = [
        sweep.Swept(k, 0.1, 0.9, 0.5, 0.8, 0.8, 0.8, splits=splits, merges=merges)
        for k, splits, merges in ((40, 9, 2), (80, 3, 6), (160, 1, 30))
    ]
    assert sweep.proposal(rows).startswith("take k = 80: 3 splits and 6 merges")
