"""Embedding a dataset's images: complete, in order, resumable, from checkpoints and from backbones
of other sources.
"""

import dataclasses
import itertools
import re
import time
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torchvision
import transformers
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import nn
from torch.nn import functional

import hbench
from hbench import boards as leaderboard
from hbench.boards.reported import rankable_scores
from hbench.core.errors import ConfigError, DataError, SubmissionError, UnknownName, UsageError
from hbench.datasets import load, save
from hbench.submissions import embeddings
from hbench.train import loop
from hbench.train.embedding import embed_dataset as embedding
from hbench.train.images.batches import all_tests
from hbench.train.models.backbones import build_backbone
from hbench.train.models.embed_images import Views
from hbench.train.recipes.recipe import Images
from tests.command_line import call, refusal
from tests.training import build_pictures, tiny

BROKEN = ("g0/s0/0.png", "g1/s7/1.png")
EMBED = ["embed", "torchvision:resnet18", "--weights", "random", "--size", "32"]


class Shape(nn.Module):
    """An embedding that names the image it is of: its mean in 16 parts; counts the images it
    saw."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        return functional.adaptive_avg_pool2d(images, 4).flatten(1) + 0.1


def model():
    settings = Images(size=32, resize=32, mean=(0.0,), std=(1.0,))
    return embedding.Embedder(Shape(), settings, "shape")


def test_the_command_embeds_by_a_checkpoint_as_its_run_did_and_says_what_comes_next(
    letters, tmp_path, monkeypatch
):
    trained = tmp_path / "run"
    loop.train(tiny(), trained, dataset=letters)
    save(letters, tmp_path / "letters")
    line = ("embed", trained, "--dataset", tmp_path / "letters", "--batch", 16, "-o")
    # the first images are long after the start, the others at once
    clock = SimpleNamespace(monotonic=itertools.chain([0, 11], itertools.repeat(12)).__next__)
    monkeypatch.setattr("hbench.cli.embed.time", clock)
    said = call(*line, tmp_path / "e.parquet").stderr
    number = len(letters.tests["test"])
    assert "hbench evaluate" in said
    assert re.findall(r"embedded (.*) images", said) == [f"16 of {number}", f"{number} of {number}"]
    ours, runs = (
        embeddings.read(path) for path in (tmp_path / "e.parquet", trained / "test.parquet")
    )
    assert ours.ids.tolist() == runs.ids.tolist() == letters.tests["test"].items.tolist()
    np.testing.assert_allclose(ours.vectors, runs.vectors, atol=1e-6)
    assert "Invalid value for '--scales'" in refusal(*line, tmp_path / "f.parquet", "--scales", "0")
    assert "has its size and weights" in refusal(*line, tmp_path / "f.parquet", "--size", 96)


def stopped_at(batch):
    """A callback that ends an embedding after this many batches."""
    return Mock(side_effect=[*[None] * (batch - 1), KeyboardInterrupt])


@pytest.mark.parametrize(
    ("stop", "options", "kept"),
    [
        (5, {"batch": 10, "part": 20}, 40),
        (3, {"batch": 10, "seconds": 0}, 20),  # by time, too
        (5, {"batch": 10, "part": 10}, 10),  # of which the second part and what follows are damaged
    ],
    ids=["by number", "by time", "damaged"],
)
def test_parts_that_are_done_and_sound_are_not_done_again(letters, tmp_path, stop, options, kept):
    chosen, second = embedding.EmbedOptions(**options), model()
    with pytest.raises(KeyboardInterrupt):
        embedding.embed(
            model(), letters, tmp_path / "e.npz", options=chosen, on_progress=stopped_at(stop)
        )
    assert not (tmp_path / "e.npz").exists()
    if options.get("part") == 10:
        part = sorted((tmp_path / "e.npz.parts").glob("*.npz"))[1]
        part.write_bytes(part.read_bytes()[:100])
    embedding.embed(second, letters, tmp_path / "e.npz", options=chosen)
    assert second.model.seen == len(letters.tests["test"]) - kept
    embedding.embed(model(), letters, tmp_path / "whole.npz", options=chosen)
    assert (tmp_path / "e.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not (tmp_path / "e.npz.parts").exists()


def test_what_would_mix_or_replace_files_or_has_no_images_is_refused(letters, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        embedding.embed(model(), letters, tmp_path / "e.npz", on_progress=stopped_at(1))
    (tmp_path / "mine.npz").write_text("mine")
    flipped, skipping = (
        embedding.EmbedOptions(flip=True),
        embedding.EmbedOptions(skip_unreadable=True),
    )
    for error, problem, data, file, options in (
        (UsageError, "another model", letters, "e.npz", {"options": flipped}),
        (UsageError, "exists", letters, "mine.npz", {}),
        (
            DataError,
            "not on this disk",
            dataclasses.replace(letters, name="elsewhere"),
            "x.npz",
            {},
        ),
        (UnknownName, "split", letters, "x.npz", {"split": "validation"}),
        (UsageError, "no such format", letters, "x.csv", {}),
        (
            UsageError,
            r"\.parquet",
            letters,
            "x.npy",
            {"options": skipping},
        ),  # a file that cannot name what is left out
        (UsageError, "no device", letters, "x.npz", {"device": "cuda:99"}),
        (UsageError, "no device", letters, "x.npz", {"device": "abacus"}),
    ):
        with pytest.raises(error, match=problem):
            embedding.embed(model(), data, tmp_path / file, **options)
    assert not list(tmp_path.glob("x.*"))  # nothing is left that another model could not continue


@pytest.fixture
def loaded(tmp_path):
    """Give a small net's parameters the weights of a file, by a key map."""

    def load(weights, text):
        torch.save(weights, tmp_path / "w.pth")
        (tmp_path / "map.toml").write_text(text)
        source = str(tmp_path / "w.pth")
        return build_backbone(
            "hbench:small", weights=source, key_map=tmp_path / "map.toml"
        ).net.state_dict()

    return load


def test_foreign_names_of_weights_are_shown_and_mapped(loaded, tmp_path, caplog):
    state = build_backbone("hbench:small", weights="random").net.state_dict()
    foreign = {
        f"module.features.{key.removeprefix('layers.')}": value for key, value in state.items()
    }
    for text in ('"module.features." = "layers."', "order = true"):
        found = loaded(foreign, text)
        assert all(torch.equal(value, found[key]) for key, value in state.items())
    with pytest.raises(DataError, match=r"module\.features\.0\.weight"):
        build_backbone("hbench:small", weights=str(tmp_path / "w.pth"))
    loaded({**foreign, "fc.weight": torch.ones(1)}, "order = true")
    assert "left out: fc.weight" in caplog.text


def test_key_maps_that_do_not_fit_and_weights_that_could_be_taken_crosswise_are_refused(loaded):
    state = build_backbone("hbench:small", weights="random").net.state_dict()
    sorted_keys = {
        key: state[key] for key in sorted(state)
    }  # the means of a norm before its weight: of equal shapes
    both = {
        f"{prefix}.{key}": value
        for key, value in state.items()
        for prefix in ("teacher", "student")
    }
    for weights, text, words in (
        (state, "a = 1", "not a key map"),
        (dict(list(state.items())[1:]), "order = true", "cannot be paired in order"),
        (sorted_keys, "order = true", r"layers\.1\.bias \(16,\) for layers\.1\.weight \(16,\)"),
        (
            both,
            '"teacher." = ""\n"student." = ""',
            r"teacher\.layers\.0\.weight and student\.layers\.0\.weight",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            loaded(weights, text)
    loaded(both, '"teacher." = "unused."\n"student." = ""')


def test_every_split_can_be_embedded_and_items_that_several_tests_share_once(letters, tmp_path):
    embedding.embed(model(), letters, tmp_path / "t.npz", split="train")
    assert embeddings.read(tmp_path / "t.npz").ids.tolist() == letters.train.items.tolist()
    test = letters.tests["test"]
    both = dataclasses.replace(letters, tests={"fine": test, "coarse": test})
    assert all_tests(both).items.tolist() == test.items.tolist()


def test_views_are_the_mean_of_the_unit_vectors_of_all_scales_and_mirrors():
    net, images = Shape(), torch.rand(3, 1, 32, 32)
    smaller = functional.interpolate(
        images, scale_factor=0.5, mode="bilinear", antialias=True, align_corners=False
    )
    views = [images, smaller, images.flip(-1), smaller.flip(-1)]
    expected = functional.normalize(sum(functional.normalize(net(view)) for view in views) / 4)
    assert torch.allclose(Views(net, (1.0, 0.5), flip=True)(images), expected, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:resnet18",
        "torchvision:mobilenet_v3_small",
        "torchvision:convnext_tiny",
        "timm:vit_tiny_patch16_224",
        "timm:mobilenetv3_small_050",
        "open_clip:ViT-S-32",
    ],
)
def test_other_sources_give_their_own_features(name):
    backbone = build_backbone(name, weights="random", pools=True)
    with torch.no_grad():
        found = backbone.net.eval()(torch.zeros(2, 3, backbone.size, backbone.size))
    assert found.shape == (2, backbone.features)


def test_random_weights_are_the_same_again_and_a_file_of_weights_is_known_by_its_content(tmp_path):
    first, again = (
        embedding.embedder("hbench:small", weights="random").model.state_dict() for _ in range(2)
    )
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    identities = set()
    for scale in (1, 2):
        torch.save({name: tensor * scale for name, tensor in first.items()}, tmp_path / "w.pth")
        identities.add(embedding.embedder("hbench:small", weights=str(tmp_path / "w.pth")).identity)
    assert len(identities) == 2


def test_a_size_that_a_net_does_not_take_is_refused():
    with pytest.raises(UsageError, match="takes no images of 50 pixels"):
        embedding.embedder("timm:vit_tiny_patch16_224", weights="random", size=50)


def test_weights_of_open_clip_get_the_activation_that_they_were_trained_with():
    for tag, quick in (("openai", True), ("laion2b_s34b_b79k", False)):
        net = build_backbone(f"open_clip:ViT-B-32/{tag}", weights="random", pools=True).net
        assert any(type(module).__name__ == "QuickGELU" for module in net.modules()) == quick


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Folders as the Hugging Face hub has them, of small nets: a vision transformer, and a CLIP."""
    root = tmp_path_factory.mktemp("hub")
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    vision = {**small, "image_size": 48, "patch_size": 16}
    torch.manual_seed(0)
    transformers.ViTModel(transformers.ViTConfig(**vision)).save_pretrained(root / "vit")
    transformers.ViTImageProcessor(size={"height": 48, "width": 48}).save_pretrained(root / "vit")
    text = {**small, "vocab_size": 9, "eos_token_id": 1}
    clip = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    transformers.CLIPModel(clip).save_pretrained(root / "clip")
    processor = transformers.CLIPImageProcessor(
        size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}
    )
    processor.save_pretrained(root / "clip")
    return root


def test_a_model_of_transformers_embeds_as_its_authors_do(hub):
    image = Image.fromarray(load_sample_image("china.jpg"))
    for name, features in (("vit", 16), ("clip", 8)):
        given = embedding.embedder(f"transformers:{hub / name}")
        model = transformers.AutoModel.from_pretrained(hub / name).eval()
        pixels = transformers.AutoImageProcessor.from_pretrained(hub / name)(
            images=image, return_tensors="pt"
        )
        with torch.no_grad():
            own = model.get_image_features(**pixels) if name == "clip" else model(**pixels)
            found = given.model.eval()(given.prepare(image)[None])
        assert torch.equal(found, own.pooler_output)
        assert found.shape == (1, features)
        assert given.images.size == 48


def test_a_model_of_transformers_prepares_other_sizes_and_begins_at_random_where_asked(hub):
    backbone = build_backbone(f"transformers:{hub / 'clip'}", pools=True)
    assert backbone.prepare(96)(Image.new("RGB", (200, 100))).shape == (3, 96, 96)
    with pytest.raises(UsageError, match="takes no images of 96 pixels"):
        embedding.embedder(f"transformers:{hub / 'clip'}", size=96)
    one, again = (embedding.embedder(f"transformers:{hub / 'clip'}", size=48) for _ in range(2))
    assert one.identity == again.identity, (
        "another process would refuse to go on with what this one embedded"
    )
    untrained = embedding.embedder(f"transformers:{hub / 'vit'}", weights="random").model
    trained = embedding.embedder(f"transformers:{hub / 'vit'}").model
    one, other = (
        dict(net.named_parameters())["model.layernorm.weight"] for net in (untrained, trained)
    )
    assert one.shape == other.shape
    with pytest.raises(ConfigError, match=r"model\.pooling=own"):
        build_backbone(f"transformers:{hub / 'vit'}")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A place without network: the proxy named here does not exist."""
    for variable in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_several_processes_are_refused_before_anything_is_loaded(letters, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="one process"):
        embedding.embed("torchvision:nothing", letters, tmp_path / "two.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchvision:resnet18", ("`random`", "checkpoints")),
        ("timm:vit_tiny_patch16_224", ("`random`", "HF_HOME")),
        ("transformers:no/where", ("transformers:FOLDER",)),
    ],
)
def test_without_network_the_message_says_where_to_put_the_weights(name, words):
    with pytest.raises(DataError, match="cannot be fetched") as refused:
        build_backbone(name, pools=True)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("name", ["timm:resnet18.a1_in1k", "transformers:facebook/dinov2-small"])
def test_a_hub_that_does_not_answer_is_said_at_once_with_the_repository(
    monkeypatch, tmp_path, name
):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(DataError, match="cannot be fetched") as refused:
        build_backbone(name, pools=True)
    assert time.monotonic() - began < 20  # the hub's own library waits for most of a minute
    assert "hf download" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["torchvision:resnet5", "timm:vit_base", "open_clip:ViT", "hbench:large"]
)
def test_unknown_backbones_are_named(name):
    with pytest.raises(UnknownName, match=f"unknown {name.partition(':')[0]} (model|backbone)"):
        build_backbone(name, weights="random")
    with pytest.raises(UnknownName, match="unknown source of backbones"):
        build_backbone(":".join(name.split(":")[::-1]), weights="random")


def test_weights_of_another_net_and_absent_ones_are_refused(tmp_path):
    torch.save(
        build_backbone("hbench:small", weights="random").net.state_dict(), tmp_path / "w.pth"
    )
    with pytest.raises(DataError, match="lacks weights"):
        build_backbone("torchvision:resnet18", weights=str(tmp_path / "w.pth"))
    with pytest.raises(DataError, match="no file of weights"):
        build_backbone("hbench:small", weights=str(tmp_path / "absent.pth"))


@pytest.mark.parametrize("pools", [False, True])
def test_a_file_of_torchvisions_own_weights_is_loaded(tmp_path, pools):
    whole = torchvision.models.resnet18(weights=None)
    torch.save(whole.state_dict(), tmp_path / "resnet18.pth")
    backbone = build_backbone(
        "torchvision:resnet18", weights=str(tmp_path / "resnet18.pth"), pools=pools
    )
    assert torch.equal(
        backbone.net.state_dict()["layer4.1.conv2.weight"], whole.layer4[1].conv2.weight
    )
    images = torch.rand(2, 3, 64, 64)
    whole.fc = torch.nn.Identity()
    features = backbone.net.eval()(images)
    torch.testing.assert_close(
        features if pools else features.mean(dim=(2, 3)), whole.eval()(images)
    )


def test_a_net_without_a_map_of_features_is_refused_before_work_starts():
    for name in (
        "timm:vit_tiny_patch16_224",
        "torchvision:mobilenet_v3_small",
        "torchvision:swin_t",
    ):
        with pytest.raises(ConfigError, match="own pooling"):
            build_backbone(name, weights="random")
    for name, features in (("timm:resnet18", 512), ("timm:mobilenetv3_small_050", 1024)):
        assert build_backbone(name, weights="random").features == features
    with pytest.raises(UnknownName, match="unknown weights of resnet18"):
        build_backbone("torchvision:resnet18/FOO", weights="random")


@pytest.fixture
def broken(tmp_path):
    """A folder of a dataset of 24 pictures, two of which are broken since it was built."""
    data = build_pictures(tmp_path)
    for item in BROKEN:
        (tmp_path / "pictures" / item).write_bytes(b"broken")
    return data


def test_broken_pictures_are_named_in_one_message_which_says_what_to_do(broken, tmp_path):
    for workers in ((), ("--workers", 0)):
        with pytest.raises(DataError) as told:
            call(*EMBED, "-d", broken, "-o", tmp_path / "e.parquet", *workers)
        assert len(str(told.value).splitlines()) <= 4
        assert all(
            part in str(told.value)
            for part in ("2 images cannot be read", *BROKEN, "--skip-unreadable")
        )


@pytest.mark.parametrize(
    ("suffix", "options"), [(".parquet", ()), (".npz", ("--batch", 1, "--workers", 0))]
)
def test_images_that_are_left_out_are_left_out_of_the_evaluation_too(
    broken, tmp_path, suffix, options
):
    file, data = tmp_path / f"e{suffix}", ("-d", broken)
    call(*EMBED, *data, "-o", file, "--skip-unreadable", *options)  # as the refusal says
    kept, items = embeddings.read(file), load(broken).tests["test"].items.tolist()
    assert kept.ids.tolist() == [item for item in items if item not in BROKEN]
    call("evaluate", file, *data, "--top-k", 3, "-o", tmp_path / "r.json")
    call("report", tmp_path / "r.json", *data, "--embeddings", file, "-o", tmp_path / "pages")
    call("look", file, *data, "--worst", 2, "-o", tmp_path / "worst.png")
    call("plot", "confusion", file, *data, "-o", tmp_path / "confusion.png")
    report = hbench.evaluate(file, broken)
    assert "|left-out:2(" in report.signature
    assert any(
        "2 items that could not be embedded" in line and BROKEN[1] in line
        for line in report.document.warnings
    )
    assert len(report.queries) == 22
    with pytest.raises(SubmissionError, match="leaves items out"):
        rankable_scores(leaderboard.read_board("glyphs"), report.document)
    embeddings.write(tmp_path / "f.parquet", kept.ids.tolist(), kept.vectors)
    with pytest.raises(SubmissionError, match="2 missing ids"):
        hbench.evaluate(tmp_path / "f.parquet", broken)
