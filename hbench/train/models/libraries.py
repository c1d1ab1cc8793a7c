"""Builds nets of other libraries without their classifiers: torchvision, timm, open_clip and
transformers.

Every library downloads and caches weights in its own way. Those of transformers are read only from
safetensors, and no code of a model's authors is run. All functions that return a Backbone are a
`Source`.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from hbench.core.errors import ConfigError, UnknownName, UsageError
from hbench.core.text import first_line
from hbench.train.models.backbone import COUNTED, PRETRAINED, RANDOM, Backbone
from hbench.train.models.classifiers import without_classifier
from hbench.train.models.weights import refuse_without_hub, with_fetched_weights


def torchvision_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build a net of torchvision.models without its classifier; NAME/WEIGHTS chooses weights other
    than the default. `weights`: PRETRAINED or RANDOM; `pools`: whether the net keeps its own
    pooling."""
    from torchvision import models

    name, _, which = name.partition("/")
    refuse_unknown_torchvision(name)
    known = models.get_model_weights(name)
    if which and which not in known.__members__:
        raise UnknownName(f"weights of {name}", which, known.__members__)
    # images and transform are those of the weights, also where the net begins at random
    described = known[which or "DEFAULT"]
    if weights == PRETRAINED:
        where = str(Path(torch.hub.get_dir()) / "checkpoints" / described.url.rsplit("/", 1)[-1])
        net = with_fetched_weights(
            lambda: models.get_model(name, weights=described), f"torchvision:{name}", where
        )
    else:
        net = models.get_model(name, weights=None)
    kept = without_classifier(net, pools)
    transform = described.transforms()
    side = transform.crop_size[0]
    resize = transform.resize_size[0]

    def prepare(size: int) -> Any:
        """Make the transform for images of `size` pixels, by torchvision."""
        # images are enlarged as much beyond the crop as for the side that the weights expect
        return described.transforms(crop_size=size, resize_size=round(resize * size / side))

    mean = tuple(transform.mean)
    std = tuple(transform.std)
    return Backbone(kept, COUNTED, side, mean, std, prepare, transform.interpolation.value)


def refuse_unknown_torchvision(name: str) -> None:
    """Raise UnknownName for a name that no net of torchvision has."""
    from torchvision import models

    if name not in models.list_models():
        raise UnknownName("torchvision model", name, models.list_models())


def timm_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build a net of timm, or of the Hugging Face hub as hf-hub:OWNER/NAME, without its classifier.
    `weights`: PRETRAINED or RANDOM; `pools`: whether the net keeps its own pooling."""
    import timm
    from timm.data.config import resolve_model_data_config
    from timm.data.transforms_factory import create_transform

    refuse_unknown_timm(name)
    pooling: dict[str, Any] = {} if pools else {"global_pool": ""}  # "": none

    def create() -> Any:
        """Create the net; timm fetches its weights, if they are wanted, and leaves a net for 0
        classes without a classifier."""
        return timm.create_model(name, pretrained=weights == PRETRAINED, num_classes=0, **pooling)

    # raises where the hub cannot be reached: its own library would try for a minute
    if weights == PRETRAINED and (repository := _timm_repository(name)):
        refuse_without_hub(repository, f"timm:{name}")
    where = "the Hugging Face cache (HF_HOME), or name a file of weights instead"
    net = with_fetched_weights(create, f"timm:{name}", where) if weights == PRETRAINED else create()
    config = resolve_model_data_config(net)

    def prepare(size: int) -> Any:
        """Make the transform of a test for images of `size` pixels, by timm."""
        return create_transform(**{**config, "input_size": (3, size, size)}, is_training=False)

    # what images the weights expect: height and width are equal
    side = config["input_size"][-1]
    mean = tuple(config["mean"])
    std = tuple(config["std"])
    return Backbone(net, COUNTED, side, mean, std, prepare, config["interpolation"])


def refuse_unknown_timm(name: str) -> None:
    """Raise UnknownName for a name that no net of timm has; what is on a hub is not known here."""
    import timm

    # NAME.TAG chooses among the weights of one architecture
    if not name.startswith("hf-hub:") and not timm.is_model(name.split(".")[0]):
        raise UnknownName("timm model", name, timm.list_models())


def _timm_repository(name: str) -> str:
    """Return the repository of the Hugging Face hub, OWNER/NAME, from which timm takes a net's
    weights; "" for nets without any there."""
    from timm.models import get_pretrained_cfg

    if name.startswith("hf-hub:"):
        return name.removeprefix("hf-hub:")
    described = get_pretrained_cfg(name)
    return str(described.hf_hub_id or "") if described is not None else ""


def distilled_deit(name: str, weights: str, pools: bool) -> Backbone:
    """Build a plain DeiT with the weights of the distilled one, without its second token and that
    token's position.

    The papers' released code starts so (rank losses, §VII-B). `name`: its size, such as "small";
    `weights`, `pools`: as of `timm_backbone`.
    """
    distilled = timm_backbone(f"deit_{name}_distilled_patch16_224", weights, pools)
    plain = timm_backbone(f"deit_{name}_patch16_224", RANDOM, pools)
    state = {key: value for key, value in distilled.net.state_dict().items() if key != "dist_token"}
    # (1, tokens, D): the class token's, the distillation token's, then those of the patches
    positions = state["pos_embed"]
    without_distillation = torch.cat([positions[:, :1], positions[:, 2:]], dim=1)
    plain.net.load_state_dict(state | {"pos_embed": without_distillation})
    return plain


def open_clip_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build the image tower of an open_clip model ARCH/TAG, or hf-hub:OWNER/NAME, with its
    projection. `weights`: PRETRAINED or RANDOM."""
    import open_clip

    # open_clip's image towers pool themselves, so that `pools` has nothing to say
    visual = open_clip_model(name, pretrained=weights == PRETRAINED).visual
    size = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size

    def prepare(size: int) -> Any:
        """Make the transform of a test for images of `size` pixels, by open_clip."""
        settings = open_clip.transform.PreprocessCfg(
            **{**visual.preprocess_cfg, "size": (size, size)}
        )
        return open_clip.transform.image_transform_v2(settings, is_train=False)

    mean = tuple(visual.image_mean)
    std = tuple(visual.image_std)
    return Backbone(
        visual, COUNTED, size, mean, std, prepare, visual.preprocess_cfg["interpolation"]
    )


def open_clip_model(name: str, *, pretrained: bool) -> Any:
    """Create the model ARCH/TAG of open_clip, or hf-hub:OWNER/NAME, of both its towers, with the
    weights of the tag, or with random ones."""
    import open_clip

    arch, tag = name, ""
    if not name.startswith("hf-hub:"):  # a repository has one set of weights, and no tags
        arch, _, tag = name.partition("/")
        if arch not in open_clip.list_models():
            raise UnknownName("open_clip model", arch, open_clip.list_models())
        if pretrained and not tag:
            raise _without_tag(arch, open_clip.list_pretrained_tags_by_model(arch))
    chosen = tag if pretrained and tag else None
    described = open_clip.get_pretrained_cfg(arch, tag) if tag else {}
    config = {}
    if chosen is None:  # random weights, or those of a file, get images like those of the tag
        kept = ("mean", "std", "interpolation", "resize_mode")
        config = {key: described[key] for key in kept if key in described}
    # the activation of these weights, of which open_clip only warns
    gelu = bool(described.get("quick_gelu"))
    return with_fetched_weights(
        lambda: open_clip.create_model(
            arch,
            pretrained=chosen,
            load_weights=pretrained,
            force_preprocess_cfg=config,
            force_quick_gelu=gelu,
        ),
        f"open_clip:{name}",
        "the Hugging Face cache (HF_HOME), or name a file of weights instead",
    )


def _without_tag(arch: str, tags: list[str]) -> ConfigError:
    """Make the error of an architecture `arch` whose weights are asked for, but not which: the
    `tags` name the sets of weights that it has."""
    fix = "--weights random, or a file of weights"
    if tags:
        fix = f"one of {', '.join(tags[:5])}"
    return ConfigError(
        f"open_clip:{arch} names no weights",
        expected=f"open_clip:{arch}/TAG, or the weights random",
        found="no tag",
        fix=fix,
    )


def transformers_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build the image tower of OWNER/NAME on the Hugging Face hub, or of a folder, with its
    authors' pooling.

    `weights`: PRETRAINED or RANDOM; `pools`: whether the recipe leaves pooling to the model
    (model.pooling = own), which is the only way here.
    """
    if not pools:
        raise ConfigError(f"transformers:{name} has its own pooling", fix="--set model.pooling=own")
    processor, model = _from_transformers(name, weights)
    net = ImageTower(model)
    # {key of the processor: {name of an edge: pixels}}
    sizes = {key: _edges_of(processor, key) for key in ("size", "crop_size")}
    # the last step of the processor makes the images that the net takes
    decides = "crop_size" if getattr(processor, "do_center_crop", False) else "size"
    side = min(sizes[decides].values())  # pixels

    def prepare(size: int) -> Processed:
        """Make the transform for images of `size` pixels: all edges of the processor grow by the
        same factor, so that a crop keeps the same part."""
        scaled = {}
        for key, edges in sizes.items():
            if edges:
                scaled[key] = {edge: round(n * size / side) for edge, n in edges.items()}
        return Processed(processor, scaled)

    mean = tuple(processor.image_mean)
    std = tuple(processor.image_std)
    interpolation = Image.Resampling(int(processor.resample)).name.lower()
    return Backbone(
        net,
        features=COUNTED,
        size=side,
        mean=mean,
        std=std,
        prepare=prepare,
        interpolation=interpolation,
    )


def _from_transformers(name: str, weights: str) -> tuple[Any, Any]:
    """Load the image processor and the model of OWNER/NAME or a folder, by transformers; code of
    its authors is neither run nor asked about. Raises UsageError where transformers is not there,
    DataError where the files cannot be had, ConfigError for a model that needs such code.
    `weights`: PRETRAINED or RANDOM."""
    try:
        hub = import_module("transformers")
    except ModuleNotFoundError:
        raise UsageError("transformers is not installed", fix="pip install transformers") from None
    if not Path(name).is_dir():
        refuse_without_hub(name, f"transformers:{name}")
    where = "the Hugging Face cache (HF_HOME), or name a folder: transformers:FOLDER"

    def create() -> tuple[Any, Any]:
        """Create (processor, model); even random weights need the files that describe them."""
        # without this argument transformers asks on stdin whether to run the code
        plain = {"trust_remote_code": False}
        processor = hub.AutoImageProcessor.from_pretrained(name, **plain)
        if weights == PRETRAINED:
            return processor, hub.AutoModel.from_pretrained(name, use_safetensors=True, **plain)
        config = hub.AutoConfig.from_pretrained(name, **plain)
        return processor, hub.AutoModel.from_config(config, **plain)

    try:
        made: tuple[Any, Any] = with_fetched_weights(create, f"transformers:{name}", where)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ConfigError(
            f"transformers:{name} needs code of its authors, which hbench does not run",
            expected="a model whose net transformers has itself",
            found=first_line(error),
            fix="write the net in a file of your own: ./FILE.py:NAME",
        ) from None
    return made


def _edges_of(processor: Any, key: str) -> dict[str, int]:
    """Read the edges, in pixels, of one of an image processor's sizes, such as {"height": 224,
    "width": 224} or {"shortest_edge": 224}; none where it lacks that size."""
    edges = dict(getattr(processor, key, None) or {})
    return {edge: n for edge, n in edges.items() if n is not None}


class ImageTower(nn.Module):
    """forward(images) -> (B, features): the projected image of a model of images and texts, else
    its pooled features, or its first token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features (B, D) of images (B, C, H, W)."""
        embed = getattr(self.model, "get_image_features", self.model)  # of images and texts
        output = embed(pixel_values=images)
        if isinstance(output, Tensor):
            return output
        pooled = getattr(output, "pooler_output", None)
        features: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled
        return features.flatten(1)


@dataclass(frozen=True)
class Processed:
    """Makes the tensor (C, H, W) of an image by the processor of a model of transformers.

    `sizes`: the edges, in pixels, by the processor's own words: `size` to which it scales, and
    `crop_size` where it crops.
    """

    processor: Any
    sizes: dict[str, dict[str, int]]

    def __call__(self, image: Image.Image) -> Tensor:
        """The picture as the net takes it, (C, H, W)."""
        pixels: Tensor = self.processor(
            images=image.convert("RGB"), return_tensors="pt", **self.sizes
        )["pixel_values"]
        return pixels[0]  # of a batch of one
