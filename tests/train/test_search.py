"""Searching for pictures from anywhere, and models as ONNX."""

import json

import numpy as np
import pytest
import torch

from hbench.core.errors import SubmissionError
from hbench.datasets import load
from hbench.submissions import embeddings
from hbench.train.embedding.embed_dataset import embedder
from hbench.train.embedding.search import agreement, embedded_pictures, gallery_of, search
from tests.command_line import call, refusal
from tests.training import build_pictures

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a folder of pictures, and the folder of the dataset."""
    folder = tmp_path_factory.mktemp("search")
    build_pictures(folder)
    data = folder / "split"
    split = ["--levels", "genus,species", "--split-by", "species", "--out", data]
    call("build", "halves", "--from", folder / "pictures", *split)
    changes = ["model.backbone=torchvision:resnet18", "model.weights=random", "model.dim=8"]
    changes += ["images.size=32", "images.resize=32", "epochs=1", "optimizer.lr=1e-3"]
    words = [word for each in (f"dataset={data}", *changes) for word in ("--set", each)]
    call("train", "own-nsm", *words, "--out", folder / "run")
    return folder / "run", data, folder / "pictures"


def test_a_picture_of_the_gallery_is_found_first_with_its_own_vector(trained):
    run, data, pictures = trained
    item = load(data).tests["test"].items[3]
    found = json.loads(call("search", run, pictures / item, "-k", 3, "--json").stdout)
    first = found[0]["results"]["halves"][0]
    assert first["item"] == item
    assert first["score"] == pytest.approx(1, abs=1e-5)


def test_results_are_those_of_loops_over_the_gallery(trained):
    run, data, pictures = trained
    manifest = load(data).tests["test"]
    vectors = embeddings.read(run / "test.parquet")
    model = embedder(str(run))
    given = pictures / manifest.items[5]
    asked = embedded_pictures(model, [manifest.picture(manifest.items[5])])[0]
    scores = {
        item: float(np.dot(vector, asked))
        for item, vector in zip(vectors.ids.tolist(), vectors.vectors, strict=True)
    }
    expected = sorted(scores, key=lambda item: -scores[item])[:6]
    results = search(model, [given], gallery_of(manifest, vectors, "noise"), k=6)
    hits = results.sheet.strips[0].rows[0].hits
    assert [hit.item for hit in hits] == expected
    np.testing.assert_allclose(
        [hit.score for hit in hits], [scores[i] for i in expected], atol=1e-6
    )


def test_results_are_marked_by_what_they_share_with_the_first(trained):
    run, data, pictures = trained
    manifest = load(data).tests["test"]
    gallery = gallery_of(manifest, embeddings.read(run / "test.parquet"), "noise")
    given = [pictures / manifest.items[0]]
    hits = search(embedder(str(run)), given, gallery, k=9).sheet.strips[0].rows[0].hits
    first = manifest.labels[hits[0].position]
    for hit in hits:
        own = manifest.labels[hit.position]
        shared = 0
        while shared < len(own) and own[shared] == first[shared]:
            shared += 1
        assert hit.level == shared


def test_the_finest_class_that_most_results_share_is_named(tmp_path):
    manifest = load(build_pictures(tmp_path)).tests["test"]
    hits = type("Hits", (), {})

    def said(rows):
        return agreement(manifest, [hits_at(row) for row in rows])

    def hits_at(row):
        made = hits()
        made.position = row
        return made

    by_item = {item: row for row, item in enumerate(manifest.items.tolist())}
    same = [by_item[f"g1/s5/{shot}.png"] for shot in (0, 1)]
    kin = by_item["g1/s6/0.png"]
    far = [by_item["g0/s0/0.png"], by_item["g2/s9/0.png"]]
    assert said([*same, far[0]]) == "2 of 3 are of g1 > s5"
    assert said([same[0], kin, far[0]]) == "2 of 3 are of g1"
    assert said([same[0], *far]) == "no class has most of the results"


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_strips_are_written(trained, tmp_path, suffix):
    run, data, pictures = trained
    given = pictures / load(data).tests["test"].items[0]
    out = tmp_path / f"strips.{suffix}"
    assert str(out) in call("search", run, given, "-o", out).stderr
    assert out.stat().st_size > 1000


def test_a_run_without_vectors_or_a_file_without_the_gallery_is_refused(trained, tmp_path):
    _, data, pictures = trained
    manifest = load(data).tests["test"]
    given = pictures / manifest.items[0]
    assert "--embeddings" in refusal("search", tmp_path, given)
    some = embeddings.joined(manifest.items[:3], np.zeros((3, 8), np.float32))
    with pytest.raises(SubmissionError, match="lacks"):
        gallery_of(manifest, some, "noise")


def test_a_picture_that_cannot_be_read_is_named_with_advice_for_pictures(trained, tmp_path):
    run, _, _ = trained
    said = refusal("search", run, tmp_path / "nope.png")
    assert "nope.png cannot be read as a picture" in said
    assert "--repair" not in said


def test_an_onnx_file_gives_the_models_embeddings_of_any_number_of_images(trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    run, data, _ = trained
    file = tmp_path / "model.onnx"
    assert "differ" in call("export", run, "--onnx", file).stderr
    manifest = load(data).tests["test"]
    model = embedder(str(run))
    images = [manifest.picture(item) for item in manifest.items[:5]]
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    settings = session.get_modelmeta().custom_metadata_map
    assert json.loads(settings["images"])["size"] == 32
    pixels = np.stack([np.asarray(image.convert("RGB").resize((32, 32))) for image in images])
    given = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    (found,) = session.run(None, {"images": given})
    net = torch.nn.Sequential(model.model.eval())
    with torch.inference_mode():
        expected = net(torch.from_numpy(given)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_file_that_is_there_is_not_replaced(trained, tmp_path):
    pytest.importorskip("onnxruntime")
    run, _, _ = trained
    file = tmp_path / "model.onnx"
    file.write_text("mine", encoding="utf-8")
    assert "exists" in refusal("export", run, "--onnx", file)
    assert file.read_text(encoding="utf-8") == "mine"
