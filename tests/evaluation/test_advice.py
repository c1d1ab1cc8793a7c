"""What people mistype: one refusal with everything that is wrong, which says what was probably meant."""

from __future__ import annotations

import numpy as np
import pytest

import hbench
from hbench.core.errors import SubmissionError, TreeError, UnknownName, UsageError
from hbench.datasets import manifest
from hbench.evaluation import embeddings
from hbench.evaluation.evaluate import evaluate

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(24, 4)).astype(np.float32)
LABELS = np.stack([np.arange(24) // 8, np.arange(24) // 4], axis=1)


def refused(error, **options):
    with pytest.raises(error) as refusal:
        hbench.score(VECTORS, LABELS, **options)
    return refusal.value


def test_one_refusal_names_every_wrong_metric():
    refusal = refused(UsageError, metrics=["H-AP", "Foo", "AP/genus", "mAP@r"])
    assert all(name in refusal.problem for name in ("'Foo'", "'genus'", "'mAP@r'"))
    assert "mAP@R" in refusal.fix


def test_k_is_one_or_more():
    assert "k is 1 or more" in refused(UnknownName, metrics="R@0").fix


def test_other_names_of_a_similarity_are_known():
    assert refused(UnknownName, similarity="euclidean").fix == "did you mean 'l2'?"


def test_level_names_are_one_for_each_level():
    assert refused(TreeError, level_names=["genus"]).expected == "2 names, coarse to fine"


def test_a_transposed_matrix_is_recognised(tmp_path):
    with pytest.raises(SubmissionError, match=r"vectors\.T"):
        hbench.score(VECTORS.T, LABELS)
    np.savez(tmp_path / "e.npz", ids=[str(n) for n in range(24)], embeddings=VECTORS.T)
    with pytest.raises(SubmissionError, match=r"vectors\.T"):
        embeddings.read(tmp_path / "e.npz")


def test_metrics_may_be_one_text_and_labels_whole_floats():
    report = hbench.score(VECTORS, LABELS.astype(float), metrics="H-AP, R@1")
    assert list(report.scores) == ["H-AP", "R@1"]
    assert report.scores["H-AP"] == hbench.score(VECTORS, LABELS).scores["H-AP"]
    with pytest.raises(TreeError, match="integers"):
        hbench.score(VECTORS, LABELS + 0.5)


def test_swapped_queries_and_gallery_are_recognised(tmp_path):
    items = [str(n) for n in range(24)]
    rows = [(f"g{coarse}", f"s{fine}") for coarse, fine in LABELS]
    asked = np.arange(24) % 2 == 0
    test = manifest.from_names(items, rows, levels=["genus", "species"], query=asked, gallery=~asked)
    test.write(tmp_path / "d.parquet")
    files = {}
    for name, mask in (("queries", asked), ("gallery", ~asked)):
        path = tmp_path / f"{name}.npz"
        embeddings.write(path, [item for item, taken in zip(items, mask, strict=True) if taken], VECTORS[mask])
        files[name] = embeddings.read(path)
    evaluate((files["queries"], files["gallery"]), tmp_path / "d.parquet")
    with pytest.raises(SubmissionError, match="are swapped"):
        evaluate((files["gallery"], files["queries"]), tmp_path / "d.parquet")
