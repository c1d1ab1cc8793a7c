"""Builds nets of other libraries without their classifiers: torchvision, timm, open_clip and
transformers.

Every library downloads and caches weights in its own way. Weights for transformers are read only
from safetensors, and code by a model's authors is never run. The functions that return a Backbone
are of the type `Source`.
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
    """Build a net of torchvision.models without its classifier. `name`: NAME or, for weights other
    than the default, NAME/WEIGHTS. `weights`: PRETRAINED or RANDOM. `pools`: keep the net's own
    pooling."""
    from torchvision import models

    name, _, which = name.partition("/")
    refuse_unknown_torchvision(name)
    known = models.get_model_weights(name)
    if which and which not in known.__members__:
        raise UnknownName(f"weights of {name}", which, known.__members__)
    # the description of the weights also tells which images a net with random weights should get
    described = known[which or "DEFAULT"]
    if weights == PRETRAINED:
        # where torchvision looks for the file, for the error if it cannot be fetched
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
        """Make torchvision's transform for images of `size` pixels."""
        # keep the ratio between the resized side and the crop
        return described.transforms(crop_size=size, resize_size=round(resize * size / side))

    mean = tuple(transform.mean)
    std = tuple(transform.std)
    # COUNTED: `build_backbone` counts the features
    return Backbone(
        net=kept,
        features=COUNTED,
        size=side,
        mean=mean,
        std=std,
        prepare=prepare,
        interpolation=transform.interpolation.value,
    )


def refuse_unknown_torchvision(name: str) -> None:
    """Raise UnknownName unless torchvision has a net of this name."""
    from torchvision import models

    if name not in models.list_models():
        raise UnknownName("torchvision model", name, models.list_models())


def timm_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build a net of timm, or hf-hub:OWNER/NAME of the Hugging Face hub, without its classifier.
    `weights`: PRETRAINED or RANDOM. `pools`: keep the net's own pooling."""
    import timm
    from timm.data.config import resolve_model_data_config
    from timm.data.transforms_factory import create_transform

    refuse_unknown_timm(name)
    pooling: dict[str, Any] = {} if pools else {"global_pool": ""}  # "" means no pooling

    def create() -> Any:
        """Create the net. timm fetches pretrained weights if necessary, and creates no classifier
        for 0 classes."""
        return timm.create_model(name, pretrained=weights == PRETRAINED, num_classes=0, **pooling)

    # raise at once if the hub cannot be reached: its own library would try for a minute
    if weights == PRETRAINED and (repository := _timm_repository(name)):
        refuse_without_hub(repository, f"timm:{name}")
    # for the error if the weights cannot be fetched: where a user can put them
    where = "the Hugging Face cache (HF_HOME), or name a file of weights instead"
    net = with_fetched_weights(create, f"timm:{name}", where) if weights == PRETRAINED else create()
    config = resolve_model_data_config(net)

    def prepare(size: int) -> Any:
        """Make timm's transform for testing with images of `size` pixels."""
        return create_transform(**{**config, "input_size": (3, size, size)}, is_training=False)

    # the images that the weights expect; height and width are equal
    side = config["input_size"][-1]
    mean = tuple(config["mean"])
    std = tuple(config["std"])
    # COUNTED: `build_backbone` counts the features
    return Backbone(
        net=net,
        features=COUNTED,
        size=side,
        mean=mean,
        std=std,
        prepare=prepare,
        interpolation=config["interpolation"],
    )


def refuse_unknown_timm(name: str) -> None:
    """Raise UnknownName unless timm has a net of this name. Names on a hub are not checked."""
    import timm

    # NAME.TAG chooses among the weights of one architecture
    if not name.startswith("hf-hub:") and not timm.is_model(name.split(".")[0]):
        raise UnknownName("timm model", name, timm.list_models())


def _timm_repository(name: str) -> str:
    """Return the repository OWNER/NAME on the Hugging Face hub from which timm takes a net's
    weights; "" if they are not on the hub."""
    from timm.models import get_pretrained_cfg

    if name.startswith("hf-hub:"):
        return name.removeprefix("hf-hub:")
    described = get_pretrained_cfg(name)
    return str(described.hf_hub_id or "") if described is not None else ""


def distilled_deit(name: str, weights: str, pools: bool) -> Backbone:
    """Build a plain DeiT with the weights of the distilled one, without the distillation token and
    its position embedding, as the papers' released code does (rank losses, §VII-B).

    `name`: its size, such as "small". `weights`: PRETRAINED or RANDOM. `pools`: keep the net's own
    pooling.
    """
    distilled = timm_backbone(f"deit_{name}_distilled_patch16_224", weights, pools)
    plain = timm_backbone(f"deit_{name}_patch16_224", RANDOM, pools)
    state = {key: value for key, value in distilled.net.state_dict().items() if key != "dist_token"}
    # (1, tokens, D): for the class token, the distillation token, and then the patches
    positions = state["pos_embed"]
    without_distillation = torch.cat([positions[:, :1], positions[:, 2:]], dim=1)
    plain.net.load_state_dict(state | {"pos_embed": without_distillation})
    return plain


def open_clip_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build the image tower of an open_clip model ARCH/TAG, or hf-hub:OWNER/NAME, with its
    projection. `weights`: PRETRAINED or RANDOM."""
    import open_clip

    # `pools` is ignored: open_clip's image towers always pool
    visual = open_clip_model(name, pretrained=weights == PRETRAINED).visual
    side = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size

    def prepare(size: int) -> Any:
        """Make open_clip's transform for testing with images of `size` pixels."""
        settings = open_clip.transform.PreprocessCfg(
            **{**visual.preprocess_cfg, "size": (size, size)}
        )
        return open_clip.transform.image_transform_v2(settings, is_train=False)

    mean = tuple(visual.image_mean)
    std = tuple(visual.image_std)
    # COUNTED: `build_backbone` counts the features
    return Backbone(
        net=visual,
        features=COUNTED,
        size=side,
        mean=mean,
        std=std,
        prepare=prepare,
        interpolation=visual.preprocess_cfg["interpolation"],
    )


def open_clip_model(name: str, *, pretrained: bool) -> Any:
    """Create the open_clip model ARCH/TAG, or hf-hub:OWNER/NAME, with both towers. `pretrained`:
    with the weights of the tag; else with random weights."""
    import open_clip

    arch, tag = name, ""
    if not name.startswith("hf-hub:"):  # a repository has a single set of weights, without a tag
        arch, _, tag = name.partition("/")
        if arch not in open_clip.list_models():
            raise UnknownName("open_clip model", arch, open_clip.list_models())
        if pretrained and not tag:
            raise _without_tag(arch, open_clip.list_pretrained_tags_by_model(arch))
    # None for random weights, and for a repository, whose weights `load_weights` loads
    chosen = tag if pretrained and tag else None
    described = open_clip.get_pretrained_cfg(arch, tag) if tag else {}
    config = {}
    if chosen is None:  # open_clip gets no tag, from which it would take the image settings
        kept = ("mean", "std", "interpolation", "resize_mode")
        config = {key: described[key] for key in kept if key in described}
    # weights trained with QuickGELU need it; open_clip would only warn
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
    """Make the error for an architecture whose weights were requested without a tag. `tags`: the
    names of the sets of weights that it has."""
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
    """Build the image tower of OWNER/NAME on the Hugging Face hub, or of a folder, with its own
    pooling.

    `weights`: PRETRAINED or RANDOM. `pools`: has to be True (model.pooling = own), else ConfigError
    is raised.
    """
    if not pools:
        raise ConfigError(f"transformers:{name} has its own pooling", fix="--set model.pooling=own")
    processor, model = _from_transformers(name, weights)
    net = ImageTower(model)
    # {key of the processor: {name of an edge: pixels}}
    sizes = {key: _edges_of(processor, key) for key in ("size", "crop_size")}
    # the last step of the processor, crop or resize, decides the size of the net's images
    decides = "crop_size" if getattr(processor, "do_center_crop", False) else "size"
    side = min(sizes[decides].values())  # pixels

    def prepare(size: int) -> Processed:
        """Make the transform for images of `size` pixels. All edges of the processor are scaled by
        the same factor, so that a crop keeps the same part of an image."""
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
        features=COUNTED,  # `build_backbone` counts them
        size=side,
        mean=mean,
        std=std,
        prepare=prepare,
        interpolation=interpolation,
    )


def _from_transformers(name: str, weights: str) -> tuple[Any, Any]:
    """Load the image processor and the model of OWNER/NAME or a folder with transformers, without
    running code by its authors. `weights`: PRETRAINED or RANDOM.

    Raises UsageError if transformers is not installed, DataError if the files cannot be fetched,
    ConfigError for a model that needs its authors' code.
    """
    try:
        hub = import_module("transformers")
    except ModuleNotFoundError:
        raise UsageError("transformers is not installed", fix="pip install transformers") from None
    # raise at once if the hub cannot be reached: its own library would try for a minute
    if not Path(name).is_dir():
        refuse_without_hub(name, f"transformers:{name}")
    where = "the Hugging Face cache (HF_HOME), or name a folder: transformers:FOLDER"

    def create() -> tuple[Any, Any]:
        """Create (processor, model). Random weights also need the files that describe the model."""
        # without this argument transformers would ask on stdin whether to run the code
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
        embed = getattr(self.model, "get_image_features", self.model)  # of a model like CLIP
        output = embed(pixel_values=images)
        if isinstance(output, Tensor):
            return output
        pooled = getattr(output, "pooler_output", None)
        # a model without pooling returns tokens, of which the first stands for the whole image
        features: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled
        return features.flatten(1)  # convolutional nets pool to (B, D, 1, 1)


@dataclass(frozen=True)
class Processed:
    """Converts an image to a tensor (C, H, W) with the processor of a transformers model.

    `sizes`: {argument of the processor: {name of an edge: pixels}}; the arguments are `size`, to
    which it resizes, and `crop_size`, if it crops.
    """

    processor: Any
    sizes: dict[str, dict[str, int]]

    def __call__(self, image: Image.Image) -> Tensor:
        """Convert a picture to the tensor (C, H, W) that the net takes."""
        pixels: Tensor = self.processor(
            images=image.convert("RGB"), return_tensors="pt", **self.sizes
        )["pixel_values"]
        return pixels[0]  # of a batch of one
