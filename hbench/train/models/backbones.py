"""Builds backbones, which turn images into features: a map (B, C, H, W), or vectors (B, C) if the
backbone pools.

SOURCE:NAME names one:

    torchvision:resnet50  timm:deit_small_patch16_224  open_clip:ViT-B-32/laion2b_s34b_b79k
    timm:hf-hub:OWNER/NAME    open_clip:hf-hub:OWNER/NAME    transformers:OWNER/NAME    deit:small
    ./FILE.py:NAME, a net of your own

Every source downloads and caches weights in its own way. Those of transformers are read only from
safetensors, and no code of a model's authors is run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

from hbench.core.errors import ConfigError, UnknownName, UsageError, examples
from hbench.core.registry import Registry
from hbench.core.text import first_line
from hbench.train.models.classifiers import without_classifier
from hbench.train.models.small import Small, SmallPhoto
from hbench.train.models.weights import load_weights, refuse_without_hub, with_fetched_weights
from hbench.train.recipes.own_code import OwnCode, blamed_on, is_own_code, place_in

PRETRAINED = "pretrained"
RANDOM = "random"
COUNTED = 0  # features: build_backbone counts them


class Backbone(NamedTuple):
    """A net, its number of features, and the images that its weights expect: size, mean, standard
    deviation, interpolation.

    `prepare` makes the transform with which its source evaluates it, for images of a given side;
    None if there is none. `crops`: whether images are a little larger at first, and their middle is
    taken.
    """

    net: nn.Module
    features: int
    size: int = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    prepare: Callable[[int], Callable[[Any], Tensor]] | None = None
    interpolation: str = "bilinear"
    crops: bool = True


Source = Callable[[str, str, bool], Backbone]  # name, weights, whether to keep its pooling

sources: Registry[Source] = Registry("source of backbones", group="hbench.backbones")


def build_backbone(
    name: str, *, weights: str = PRETRAINED, pools: bool = False, key_map: Path | None = None
) -> Backbone:
    """Build the backbone SOURCE:NAME.

    `weights`: "pretrained", "random", or a file; `pools`: keep its own pooling; `key_map`: a TOML
    file that renames the keys of a file of weights. Its features are counted by running it. Raises
    UnknownName for source or name, DataError where the weights cannot be loaded, ConfigError for a
    net that gives no map of features although its pooling is not kept, or no vector although it is.
    """
    from_file = weights not in {PRETRAINED, RANDOM}
    if is_own_code(name):
        backbone = net_of_a_file(OwnCode.parse(name))
    else:
        build, rest = source_of(name)
        backbone = build(rest, RANDOM if from_file else weights, pools)
    if from_file:
        load_weights(backbone.net, Path(weights), key_map)
    shape = shape_of_features(backbone, backbone.size)
    _, count, *sides = shape
    if pools and sides:
        raise ConfigError(
            f"{name} does not pool",
            expected="features of shape (B, C)",
            found=f"shape {shape}",
            fix='pool its maps: pooling = "avg" in [model]',
        )
    # tokens, vectors, or channels last
    if not pools and not (len(sides) == 2 and sides[0] == sides[1] > 1):
        raise ConfigError(
            f"{name} gives no map of features to pool",
            expected="features of shape (B, C, H, W)",
            found=f"shape {shape}",
            fix='keep its own pooling: pooling = "own" in [model]',
        )

    return backbone._replace(features=count)


def source_of(name: str) -> tuple[Source, str]:
    """The source of SOURCE:NAME, and the rest; raises ConfigError, or UnknownName for a source."""
    source, _, rest = name.partition(":")
    if not rest:
        raise ConfigError(
            f"{name!r} is not a backbone",
            expected="SOURCE:NAME, or ./FILE.py:NAME",
            fix="such as torchvision:resnet50",
        )
    return sources[source], rest


def net_of_a_file(code: OwnCode) -> Backbone:
    """Build a net of somebody's own: what FILE.py calls by a name is called without arguments, and
    returns a module that takes images (B, C, H, W).

    Its attributes `size`, `mean`, `std`, `interpolation` and `prepare` say what images it expects,
    as Backbone does. Raises ConfigError for what is no module.
    """
    made = code.load()
    with blamed_on(code):
        net = made()
    if not isinstance(net, nn.Module):
        raise ConfigError(
            f"{code.file}:{code.name} makes no net",
            expected="a class or a function without arguments that makes a torch.nn.Module",
            found=f"a {type(net).__name__}",
        )
    described = {
        key: getattr(net, key)
        for key in ("size", "mean", "std", "interpolation", "prepare")
        if hasattr(net, key)
    }
    backbone = Backbone(net, COUNTED, **described)
    try:
        features = _features(backbone, backbone.size)
    except (Exception, SystemExit) as error:  # whatever somebody's own program does
        raise ConfigError(
            f"{code.file}:{code.name} takes no images of {len(backbone.mean)} colours and "
            f"{backbone.size} × {backbone.size} pixels",
            found=f"{type(error).__name__}: {error}{place_in(code, error)}",
            fix="mend it there; or give the net attributes that say what it takes: size, mean and "
            "std (of each colour)",
        ) from error
    if not isinstance(features, Tensor):
        raise ConfigError(
            f"{code.file}:{code.name} gives no vectors",
            expected="a tensor (B, D), or features (B, C, H, W)",
            found=_in_words(features),
            fix="return the one tensor that is the embedding",
        )
    return backbone


def _in_words(features: Any) -> str:
    """What a net returned in place of a tensor."""
    kind = type(features).__name__
    if isinstance(features, Mapping):
        return f"a {kind} of {examples(map(str, features))}"
    return f"a {kind} of {len(features)}" if isinstance(features, list | tuple) else f"a {kind}"


def shape_of_features(backbone: Backbone, side: int) -> tuple[int, ...]:
    """The shape of a net's features of one image of this side; raises what the net raises for a
    side that it cannot take.
    """
    return tuple(_features(backbone, side).shape)


def _features(backbone: Backbone, side: int) -> Any:
    """What a net makes of one image of this side."""
    with torch.no_grad():
        features = backbone.net.eval()(torch.zeros(1, len(backbone.mean), side, side))
    backbone.net.train()
    return features


@sources.register("torchvision")
def torchvision_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build a net of torchvision.models without its classifier; NAME/WEIGHTS chooses weights other
    than the default.
    """
    from torchvision import models

    name, _, which = name.partition("/")
    if name not in models.list_models():
        raise UnknownName("torchvision model", name, models.list_models())
    known = models.get_model_weights(name)
    if which and which not in known.__members__:
        raise UnknownName(f"weights of {name}", which, known.__members__)
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
        return described.transforms(crop_size=size, resize_size=round(resize * size / side))

    mean = tuple(transform.mean)
    std = tuple(transform.std)
    return Backbone(kept, COUNTED, side, mean, std, prepare, transform.interpolation.value)


@sources.register("timm")
def timm_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build a net of timm, or of the Hugging Face hub as hf-hub:OWNER/NAME, without its
    classifier."""
    import timm
    from timm.data.config import resolve_model_data_config
    from timm.data.transforms_factory import create_transform

    if not name.startswith("hf-hub:") and not timm.is_model(name.split(".")[0]):
        raise UnknownName("timm model", name, timm.list_models())
    pooling: dict[str, Any] = {} if pools else {"global_pool": ""}

    def create() -> Any:
        return timm.create_model(name, pretrained=weights == PRETRAINED, num_classes=0, **pooling)

    if weights == PRETRAINED and (repository := _timm_repository(name)):
        refuse_without_hub(repository, f"timm:{name}")
    where = "the Hugging Face cache (HF_HOME), or name a file of weights instead"
    net = with_fetched_weights(create, f"timm:{name}", where) if weights == PRETRAINED else create()
    config = resolve_model_data_config(net)

    def prepare(size: int) -> Any:
        return create_transform(**{**config, "input_size": (3, size, size)}, is_training=False)

    side = config["input_size"][-1]
    mean = tuple(config["mean"])
    std = tuple(config["std"])
    return Backbone(net, COUNTED, side, mean, std, prepare, config["interpolation"])


def _timm_repository(name: str) -> str:
    """Where timm takes a net's weights from on the hub; "" for nets without any there."""
    from timm.models import get_pretrained_cfg

    if name.startswith("hf-hub:"):
        return name.removeprefix("hf-hub:")
    described = get_pretrained_cfg(name)
    return str(described.hf_hub_id or "") if described is not None else ""


@sources.register("deit")
def distilled_deit(name: str, weights: str, pools: bool) -> Backbone:
    """Build a plain DeiT with the weights of the distilled one, without its second token and that
    token's position.

    The papers' released code starts so (rank losses, §VII-B).
    """
    distilled = timm_backbone(f"deit_{name}_distilled_patch16_224", weights, pools)
    plain = timm_backbone(f"deit_{name}_patch16_224", RANDOM, pools)
    state = {key: value for key, value in distilled.net.state_dict().items() if key != "dist_token"}
    position = state[
        "pos_embed"
    ]  # the class token's, the distillation token's, those of the patches
    plain.net.load_state_dict(
        state | {"pos_embed": torch.cat([position[:, :1], position[:, 2:]], dim=1)}
    )
    return plain


@sources.register("open_clip")
def open_clip_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build the image tower of an open_clip model ARCH/TAG, or hf-hub:OWNER/NAME, with its
    projection.
    """
    import open_clip

    visual = open_clip_model(name, pretrained=weights == PRETRAINED).visual
    size = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size

    def prepare(size: int) -> Any:
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

    arch, _, tag = (name, "", "") if name.startswith("hf-hub:") else name.partition("/")
    if not name.startswith("hf-hub:") and arch not in open_clip.list_models():
        raise UnknownName("open_clip model", arch, open_clip.list_models())
    if pretrained and not tag and not name.startswith("hf-hub:"):
        tags = open_clip.list_pretrained_tags_by_model(arch)
        raise ConfigError(
            f"open_clip:{arch} names no weights",
            expected=f"open_clip:{arch}/TAG, or the weights random",
            found="no tag",
            fix=f"one of {', '.join(tags[:5])}"
            if tags
            else "--weights random, or a file of weights",
        )
    chosen = tag if pretrained and tag else None
    # Random weights, or those of a file, get images like those of the tag.
    described = open_clip.get_pretrained_cfg(arch, tag) if tag else {}
    kept = () if chosen else ("mean", "std", "interpolation", "resize_mode")
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


@sources.register("transformers")
def transformers_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build the image tower of OWNER/NAME on the Hugging Face hub, or of a folder, with its
    authors' pooling.
    """
    if not pools:
        raise ConfigError(f"transformers:{name} has its own pooling", fix="--set model.pooling=own")
    processor, model = _from_transformers(name, weights)
    net = ImageTower(model)
    sizes = {key: _edges_of(processor, key) for key in ("size", "crop_size")}
    decides = "crop_size" if getattr(processor, "do_center_crop", False) else "size"
    side = min(sizes[decides].values())

    def prepare(size: int) -> Processed:
        scaled = {}
        for key, edges in sizes.items():
            if edges:
                scaled[key] = {edge: round(n * size / side) for edge, n in edges.items()}
        return Processed(processor, scaled)

    mean = tuple(processor.image_mean)
    std = tuple(processor.image_std)
    interpolation = Image.Resampling(int(processor.resample)).name.lower()
    return Backbone(net, COUNTED, side, mean, std, prepare, interpolation)


def _from_transformers(name: str, weights: str) -> tuple[Any, Any]:
    """The image processor and the model of a name or folder; code of its authors is neither run
    nor asked about."""
    try:
        hub = import_module("transformers")
    except ModuleNotFoundError:
        raise UsageError("transformers is not installed", fix="pip install transformers") from None
    if not Path(name).is_dir():
        refuse_without_hub(name, f"transformers:{name}")
    where = "the Hugging Face cache (HF_HOME), or name a folder: transformers:FOLDER"

    def create() -> tuple[Any, Any]:
        # without the argument transformers asks on stdin
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
    """Read the edges, in pixels, of one of an image processor's sizes; none where it lacks it."""
    edges = dict(getattr(processor, key, None) or {})
    return {edge: n for edge, n in edges.items() if n is not None}


# by name: what builds it, and the side, mean and standard deviation of its images
OWN_NETS: dict[str, tuple[type[nn.Module], int, tuple[float, ...], tuple[float, ...]]] = {
    "small": (Small, 32, (0.5,), (0.5,)),
    "small-photo": (SmallPhoto, 96, (0.5,) * 3, (0.25,) * 3),
}


PIXELS = "pixels"


@sources.register("hbench")
def own_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build hbench:small, four convolutions for small grey images, or hbench:small-photo, as many
    for small colour photographs, neither of which is ever pretrained; or hbench:pixels, the small
    grey images themselves.

    `weights` has nothing to say here; `pools`: whether the net ends in the mean over all places,
    which the pixels, a vector already, do not need.
    """
    if name == PIXELS:
        return Backbone(nn.Flatten(), COUNTED, size=32, mean=(0.0,), std=(1.0,), crops=False)
    if name not in OWN_NETS:
        raise UnknownName("hbench backbone", name, (*OWN_NETS, PIXELS))
    build, side, mean, std = OWN_NETS[name]
    net = build()
    if pools:
        net = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Backbone(net, COUNTED, size=side, mean=mean, std=std)


class ImageTower(nn.Module):
    """forward(images) -> (B, features): the projected image of a model of images and texts, else
    its pooled features, or its first token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        with_texts = hasattr(self.model, "get_image_features")
        output = (self.model.get_image_features if with_texts else self.model)(pixel_values=images)
        if isinstance(output, Tensor):
            return output
        pooled = getattr(output, "pooler_output", None)
        features: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled
        return features.flatten(1)


@dataclass(frozen=True)
class Processed:
    """The image processor of a model of transformers, with its sizes."""

    processor: Any
    sizes: dict[str, dict[str, int]]

    def __call__(self, image: Image.Image) -> Tensor:
        pixels: Tensor = self.processor(
            images=image.convert("RGB"), return_tensors="pt", **self.sizes
        )["pixel_values"]
        return pixels[0]
