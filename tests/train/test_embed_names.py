"""Names of nodes as vectors of a text tower: complete, by path, the mean of their sentences."""

import numpy as np
import open_clip
import pytest
import torch
from torch.nn import functional

from hbench.core.errors import DataError, UnknownName, UsageError
from hbench.datasets import manifest, save
from hbench.datasets.dataset import Dataset, Protocol
from hbench.evaluation.by_name import nodes
from hbench.submissions import embeddings
from hbench.train.embedding.embed_names import embed_names
from hbench.train.models.libraries import open_clip_model
from hbench.tree.names import names_along
from tests.command_line import call, refusal

SMALL = "open_clip:ViT-S-32-alt"
ROWS = [("Owls", "Barn_owl"), ("Owls", "Bay_owl"), ("Fox", "Fox"), ("Fox", "Grey fox")]


@pytest.fixture
def birds():
    items = [f"{n}.png" for n in range(len(ROWS))]
    test = manifest.from_names(items, ROWS, levels=("group", "kind"))
    return Dataset("birds", "1", Protocol(), None, {"test": test})


def by_open_clip(texts):
    """Unit vectors of texts by open_clip itself, with the same random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = open_clip_model("ViT-S-32-alt", pretrained=False).eval()
    with torch.no_grad():
        tokens = open_clip.get_tokenizer("ViT-S-32-alt")(texts)
        return functional.normalize(net.encode_text(tokens)).numpy()


def test_every_node_has_the_mean_of_the_vectors_of_its_sentences(birds, tmp_path):
    file = embed_names(
        SMALL,
        birds,
        tmp_path / "names.parquet",
        templates=["a photo of {}", "{path}."],
        weights="random",
    )
    found = embeddings.read(file)
    of_node = dict(zip(found.ids.tolist(), found.vectors, strict=True))
    mean = by_open_clip(["a photo of Barn owl", "Owls Barn owl."]).mean(axis=0)
    np.testing.assert_allclose(of_node["Owls > Barn_owl"], mean / np.linalg.norm(mean), atol=1e-5)
    assert len(of_node) == 6


def test_nodes_of_one_name_at_two_levels_are_read_back_as_they_are(birds, tmp_path):
    file = embed_names(SMALL, birds, tmp_path / "names.npz", weights="random")
    tree = birds.tests["test"].tree
    placed = nodes.placed_in(tree, embeddings.read(file).ids.tolist())
    found = [
        names_along(tree, labels[:depth])
        for labels, depth in zip(placed.labels, placed.depths, strict=True)
    ]
    assert (found, placed.unknown) == (nodes.paths_of(tree), ())


def test_the_command_says_what_it_embedded_and_its_file_is_evaluated(letters, tmp_path):
    save(letters, tmp_path / "letters")
    names = tmp_path / "names.parquet"
    done = call(
        "embed", SMALL, "-d", tmp_path / "letters", "--names", "--weights", "random", "-o", names
    )
    assert "a photo of " in done.output
    pictures = tmp_path / "pictures.npz"
    items = letters.tests["test"].items
    vectors = np.random.default_rng(0).normal(size=(len(items), 256)).astype(np.float32)
    embeddings.write(pictures, items.tolist(), vectors)
    assert (
        "queries:nodes("
        in call("evaluate", pictures, "-d", tmp_path / "letters", "--nodes", names).output
    )


@pytest.mark.parametrize(
    ("model", "how", "error", "word"),
    [
        ("timm:resnet18", {}, UsageError, "no text tower"),
        ("open_clip:ViT-0", {}, UnknownName, "ViT-0"),
        (SMALL, {"templates": ["a photo"]}, UsageError, "no place for a name"),
        (SMALL, {"templates": "a photo, cropped"}, UsageError, "no place for a name"),
        (SMALL, {"templates": []}, UsageError, "no template"),
        (SMALL, {"weights": "mine.pth"}, UsageError, "no choice of weights"),
    ],
)
def test_what_cannot_be_embedded_is_refused(birds, tmp_path, model, how, error, word):
    with pytest.raises(error, match=word):
        embed_names(model, birds, tmp_path / "names.npz", **{"weights": "random", **how})
    assert list(tmp_path.iterdir()) == []


def test_options_of_images_are_refused_for_names_and_templates_for_images(tmp_path):
    common = ["embed", SMALL, "-d", "glyphs", "-o", tmp_path / "names.npz"]
    message = refusal(*common, "--names", "--size", 32, "--flip")
    assert "--size" in message
    assert "--flip" in message
    assert "--names" in refusal(*common, "--template", "{}")


def names_table(folder, text):
    file = folder / "names.csv"
    file.write_text(text, encoding="utf-8")
    return file


def vectors_of(file):
    found = embeddings.read(file)
    return dict(zip(found.ids.tolist(), found.vectors, strict=True))


COMMON = "node,name,language\nBay_owl,chouette,fr\nOwls > Barn_owl,effraie,fr\nBay_owl,Eule,de\nDodo,dodo,fr\n"


def test_names_of_a_language_replace_those_of_the_tree(birds, tmp_path):
    file = embed_names(
        SMALL,
        birds,
        tmp_path / "names.npz",
        templates="{}",
        other_names=names_table(tmp_path, COMMON),
        language="fr",
        weights="random",
    )
    of_node = vectors_of(file)
    expected = by_open_clip(["chouette", "effraie", "Grey fox"])
    for node, vector in zip(
        ("Owls > Bay_owl", "Owls > Barn_owl", "Fox > Grey fox"), expected, strict=True
    ):
        np.testing.assert_allclose(of_node[node], vector, atol=1e-5)


def test_without_a_language_a_node_has_the_mean_of_all_its_names(birds, tmp_path):
    file = embed_names(
        SMALL,
        birds,
        tmp_path / "names.npz",
        templates="{}",
        other_names=names_table(tmp_path, COMMON),
        weights="random",
    )
    mean = by_open_clip(["Bay owl", "chouette", "Eule"]).mean(axis=0)
    found = vectors_of(file)["Owls > Bay_owl"]
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize(
    ("text", "language", "error", "words"),
    [
        (COMMON, "it", UnknownName, "de, fr"),
        ("node,name\nBay_owl,chouette\n", "fr", DataError, "lacks the column language"),
        ("taxon,name\nBay_owl,chouette\n", None, DataError, "lacks the column node"),
        ("node,name\nBay_owl,\n", None, DataError, "has no names"),
    ],
)
def test_a_table_that_has_no_such_names_is_refused(birds, tmp_path, text, language, error, words):
    table = names_table(tmp_path, text)
    with pytest.raises(error, match=words):
        embed_names(
            SMALL, birds, tmp_path / "n.npz", other_names=table, language=language, weights="random"
        )


def test_a_language_needs_a_table(birds, tmp_path):
    with pytest.raises(UsageError, match="one of other names"):
        embed_names(SMALL, birds, tmp_path / "n.npz", language="de", weights="random")


def test_the_command_says_how_many_nodes_have_other_names(birds, tmp_path):
    save(birds, tmp_path / "birds")
    table = names_table(tmp_path, COMMON)
    words = ("--names", "--other-names", table, "--language", "fr", "--weights", "random")
    said = call("embed", SMALL, "-d", tmp_path / "birds", "-o", tmp_path / "n.npz", *words).stderr
    assert "2 of 6 nodes have other names" in said
    assert "a photo of effraie" in said


def test_other_names_are_of_names(birds, tmp_path):
    save(birds, tmp_path / "birds")
    words = ("-d", tmp_path / "birds", "-o", tmp_path / "n.npz", "--language", "fr")
    assert "--names" in refusal("embed", SMALL, *words)
