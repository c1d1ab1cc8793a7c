"""Own data: sizes that follow from a dataset, and the tutorial from a folder of pictures to pages,
run as it is written.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import models

from hbench.core.errors import ConfigError, UsageError
from hbench.datasets import manifest as manifests
from hbench.submissions import embeddings
from hbench.train import loop
from hbench.train.fitting.sizes import fitted_to, is_open
from hbench.train.images.transforms import augmentations
from hbench.train.models.backbones import build_backbone
from hbench.train.recipes.files import resolve
from tests.command_line import call, refusal
from tests.page import blocks

ROOT = Path(__file__).parents[2]


def of_counts(*counts):
    """A manifest with this many items in every class."""
    rows = [[f"c{label}"] for label, count in enumerate(counts) for _ in range(count)]
    return manifests.from_names([f"{i}" for i in range(len(rows))], rows, levels=["class"])


def test_sizes_follow_from_the_dataset_and_processes_can_share_the_batch():
    for world in (1, 2, 3, 5):
        recipe = fitted_to(resolve("own-data", ["dataset=mine"]), of_counts(*[8] * 11), world)
        assert recipe.sampler.batch % world == 0
        assert recipe.sampler.batch <= 44
    for counts, per_class, batch, epochs in (
        ([6] * 10, 4, 40, 100),  # 60 images are 2 steps: 2,000 steps would be 1,000 epochs
        ([3] * 10, 3, 30, 100),
        ([1] * 5 + [9], 2, 12, 100),
        ([100] * 200, 4, 128, 13),  # 20,000 / 128 = 157 steps: 2,000 / 157 = 12.7
        ([300] * 200, 4, 128, 5),
    ):
        recipe = fitted_to(resolve("own-data", ["dataset=mine"]), of_counts(*counts))
        assert (recipe.sampler.per_class, recipe.sampler.batch, recipe.epochs) == (
            per_class,
            batch,
            epochs,
        )
        assert not is_open(recipe)


@pytest.mark.parametrize(
    ("net", "size", "mean", "interpolation"),
    [
        ("torchvision:resnet18", 224, 0.485, "bilinear"),
        ("torchvision:efficientnet_b1", 240, 0.485, "bilinear"),
        ("timm:vit_tiny_patch16_384", 384, 0.5, "bicubic"),
        ("open_clip:ViT-B-16-SigLIP/webli", 224, 0.5, "bicubic"),
        ("hbench:small", 32, 0.5, "bilinear"),
        ("hbench:small-photo", 96, 0.5, "bilinear"),
    ],
)
def test_images_are_as_the_net_wants_them(net, size, mean, interpolation):
    own = ["dataset=mine", f"model.backbone={net}", "model.pooling=own"]
    images = fitted_to(resolve("own-data", own), of_counts(6, 6, 6)).images
    assert (images.size, images.resize, images.mean[0]) == (size, round(size * 8 / 7), mean)
    assert images.interpolation == interpolation
    embedded = build_backbone(net, weights="random", pools=True)
    assert (images.size, images.mean, images.std) == (embedded.size, embedded.mean, embedded.std)
    picture = Image.effect_noise((600, 500), 90)
    seen = augmentations["none"](images)(picture)[0].numpy()
    small = picture.resize(
        (600 * images.resize // 500, images.resize), Image.Resampling[interpolation.upper()]
    )
    left, top = (round((side - size) / 2) for side in small.size)
    assert np.array_equal(seen, np.array(small)[top : top + size, left : left + size])


def test_a_size_that_is_given_stays_and_the_others_fit_it():
    given = ["sampler.batch=30", "images.size=100", "epochs=7", "validation=0.2"]
    recipe = fitted_to(resolve("own-nsm", ["dataset=mine", *given]), of_counts(*[9] * 40))
    assert (recipe.sampler.batch, recipe.sampler.per_class, recipe.images.size, recipe.epochs) == (
        30,
        3,
        100,
        7,
    )
    assert recipe.evaluate_every == 1
    published = resolve("sop-happier")
    assert fitted_to(published, of_counts(3, 3)) is published


def test_a_batch_of_one_class_is_refused_as_the_recipes():
    small = resolve("own-nsm", ["dataset=mine", "sampler.batch=4"])
    with pytest.raises(ConfigError, match=r"^the recipe, fitted to mine, [\s\S]*batch=8 or more"):
        fitted_to(small, of_counts(*[9] * 12))


def test_one_class_teaches_nothing(tmp_path):
    with pytest.raises(ConfigError, match="too few classes to learn from"):
        fitted_to(resolve("own-data", ["dataset=mine"]), of_counts(50))
    with pytest.raises(UsageError, match="the recipe names no dataset"):
        loop.train(resolve("own-data"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_test_picture_that_cannot_be_read_leaves_a_trained_net_that_goes_on(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    noise = np.random.default_rng(0).integers(0, 256, (8, 4, 32, 32), np.uint8)
    for name, pictures in enumerate(noise):
        folder = tmp_path / "zoo" / ("test" if name < 4 else "train") / f"g{name % 2}" / f"c{name}"
        folder.mkdir(parents=True)
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(folder / f"{number}.png")
    call("build", "zoo", "--from", tmp_path / "zoo", "--split-folders")
    damaged = tmp_path / "zoo" / "test" / "g0" / "c0" / "2.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:200])

    out = tmp_path / "run"
    small = ["model.backbone=hbench:small", "model.dim=8", "images.size=32", "images.mean=[0.5]"]
    small += ["images.std=[0.5]", "sampler.batch=8", "sampler.per_class=2", "epochs=2"]
    settings = [word for change in ["dataset=zoo", *small] for word in ("--set", change)]
    said = refusal("train", "own-happier", *settings, "--out", out)
    assert "2.png cannot be read" in said
    assert f"hbench train {out / 'recipe.toml'} --out {out} --resume" in said
    advised = re.search("hbench (embed .*) embeds the others", said)[1]
    call(*shlex.split(advised))
    assert len(embeddings.read(out / "test.parquet").ids) == 15

    damaged.write_bytes(whole)
    done = call("train", out / "recipe.toml", "--out", out, "--resume")
    assert "goes on after step" in done.stderr
    assert (out / "report.json").exists()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in. In place of the weights that torchvision would download, random ones lie
    where it keeps them.
    """
    url = models.get_model_weights("resnet18")["DEFAULT"].url
    cached = tmp_path / "torch" / "hub" / "checkpoints" / url.rsplit("/", 1)[-1]
    cached.parent.mkdir(parents=True)
    torch.manual_seed(0)
    torch.save(models.resnet18(weights=None).state_dict(), cached)
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_tutorial_goes_from_a_folder_of_pictures_to_pages(folder):
    printed = {}
    for kind, text in blocks(ROOT / "docs" / "own-pictures.md"):
        if kind == "python":
            subprocess.run([sys.executable, "-W", "error", "-c", text], check=True)
            continue
        for line in text.splitlines():
            prompt, program, *words = shlex.split(line)
            assert (prompt, program) == ("$", "hbench")
            printed[line] = call(*words).stdout
    assert len(list((folder / "pictures").rglob("*.png"))) == 30 * 4
    recipe = tomllib.loads(next(out for line, out in printed.items() if line.endswith("--print")))
    assert (recipe["sampler"]["batch"], recipe["images"]["size"], recipe["epochs"]) == (
        60,
        224,
        100,
    )
    assert (folder / "runs" / "letters" / "report.json").exists()
    page = (folder / "pages" / "index.html").read_text(encoding="utf-8")
    assert "letters" in page
    assert any(np.array(Image.open(path)).std() > 1 for path in (folder / "pages").rglob("*.webp"))
