"""Builds backbones, which turn images into features: a map (B, C, H, W), or vectors (B, C) where it pools itself.

SOURCE:NAME names one:

    torchvision:resnet50    timm:deit_small_patch16_224    open_clip:ViT-B-32/laion2b_s34b_b79k    hbench:small

Weights are fetched by the source's own mechanism and cached where it caches them.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError, DataError, UnknownName
from hbench.core.registry import Registry
from hbench.core.untrusted import load_tensors, parse_toml, read_text

PRETRAINED, RANDOM = "pretrained", "random"


class Backbone(NamedTuple):
    """The net, its number of features, and how its weights want their images: size, mean, standard deviation.

    `prepare`: makes the transform that its source evaluates it with, for images of that side; None where it has none.
    """

    net: nn.Module
    features: int
    size: int = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    prepare: Callable[[int], Callable[[Any], Tensor]] | None = None


Source = Callable[[str, str, bool], Backbone]  # name, weights, whether it pools itself

sources: Registry[Source] = Registry("source of backbones", group="hbench.backbones")


def build_backbone(
    name: str, *, weights: str = PRETRAINED, pools: bool = False, key_map: Path | None = None
) -> Backbone:
    """The backbone SOURCE:NAME. `weights`: pretrained, random, or a file; `pools`: its own pooling is kept;
    `key_map`: a TOML file that renames the keys of a file of weights.

    Raises UnknownName for source or name, DataError where the weights cannot be had.
    """
    source, _, rest = name.partition(":")
    if not rest:
        raise ConfigError(f"{name!r} is no backbone", expected="SOURCE:NAME", fix="such as torchvision:resnet50")
    build = sources[source]
    from_file = weights not in {PRETRAINED, RANDOM}
    backbone = build(rest, RANDOM if from_file else weights, pools)
    if from_file:
        load_weights(backbone.net, Path(weights), key_map)
    return backbone


@sources.register("torchvision")
def torchvision_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """A net of torchvision.models without its classifier; NAME/WEIGHTS picks other weights than the default ones."""
    from torchvision import models

    name, _, which = name.partition("/")
    if name not in models.list_models():
        raise UnknownName("torchvision model", name, models.list_models())
    wanted = models.get_model_weights(name)[which or "DEFAULT"] if weights == PRETRAINED else None
    if wanted is None:
        net = models.get_model(name, weights=None)
    else:
        net = fetched(lambda: models.get_model(name, weights=wanted), f"torchvision:{name}", _torch_cache(wanted.url))
    kept, features = _without_classifier(net, pools)
    described = wanted or next(
        iter(models.get_model_weights(name)), None
    )  # the first ones, for a net of random weights
    if described is None:
        return Backbone(kept, features)
    own = described.transforms()
    side, resize = own.crop_size[0], own.resize_size[0]

    def prepare(size: int) -> Any:
        return described.transforms(crop_size=size, resize_size=round(resize * size / side))

    return Backbone(kept, features, side, prepare=prepare)


@sources.register("timm")
def timm_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """A net of timm, or of the Hugging Face hub as hf-hub:OWNER/NAME, without its classifier."""
    import timm
    from timm.data.config import resolve_model_data_config
    from timm.data.transforms_factory import create_transform

    if not name.startswith("hf-hub:") and not timm.is_model(name.split(".")[0]):
        raise UnknownName("timm model", name, timm.list_models())
    own: dict[str, Any] = {} if pools else {"global_pool": ""}

    def create() -> Any:
        return timm.create_model(name, pretrained=weights == PRETRAINED, num_classes=0, **own)

    where = "the Hugging Face cache (HF_HOME), or give a file: model.weights=FILE (hbench embed: --weights FILE)"
    net = fetched(create, f"timm:{name}", where) if weights == PRETRAINED else create()
    config = resolve_model_data_config(net)

    def prepare(size: int) -> Any:
        return create_transform(**{**config, "input_size": (3, size, size)}, is_training=False)

    side = config["input_size"][-1]
    return Backbone(net, net.num_features, side, tuple(config["mean"]), tuple(config["std"]), prepare)


@sources.register("open_clip")
def open_clip_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """The image tower of an open_clip model ARCH/TAG, projection included."""
    import open_clip

    arch, _, tag = name.partition("/")
    if arch not in open_clip.list_models():
        raise UnknownName("open_clip model", arch, open_clip.list_models())
    chosen = tag if weights == PRETRAINED and tag else None
    where = "the Hugging Face cache (HF_HOME), or give a file: model.weights=FILE (hbench embed: --weights FILE)"
    model = fetched(lambda: open_clip.create_model(arch, pretrained=chosen), f"open_clip:{name}", where)
    visual = model.visual
    size = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size

    def prepare(size: int) -> Any:
        wanted = open_clip.transform.PreprocessCfg(**{**visual.preprocess_cfg, "size": (size, size)})
        return open_clip.transform.image_transform_v2(wanted, is_train=False)

    return Backbone(visual, visual.output_dim, size, tuple(visual.image_mean), tuple(visual.image_std), prepare)


@sources.register("hbench")
def own_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """hbench:small, four convolutions for small grey images; never pretrained."""
    if name != "small":
        raise UnknownName("hbench backbone", name, ["small"])
    return Backbone(Small(), Small.widths[-1], 32, (0.5,), (0.5,))


class Small(nn.Module):
    """Four 3×3 convolutions with batch norm, for small images: (B, 1, 32, 32) -> (B, 128, 4, 4)."""

    widths, strides, pools = (16, 32, 64, 128), (1, 1, 1, 1), (2, 2, 2, 1)

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = (1, *self.widths)
        for before, after, stride, pool in zip(channels, self.widths, self.strides, self.pools, strict=False):
            layers += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(pool)] * (pool > 1)
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def fetched(create: Callable[[], Any], name: str, where: str) -> Any:
    """What `create` makes from weights it fetches; DataError that says where to put them when it cannot."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return create()
    except (urllib.error.URLError, ConnectionError, TimeoutError, LocalEntryNotFoundError, HfHubHTTPError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
    except (OSError, RuntimeError) as error:
        if not _is_network(error):
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
    raise DataError(
        f"the weights of {name} cannot be fetched", expected=f"network, or the weights in {where}", found=first,
        fix="put the file there, or begin from random ones: --set model.weights=random (hbench embed: --weights random)",
    )  # fmt: skip


def load_weights(net: nn.Module, path: Path, key_map: Path | None = None) -> None:
    """Load a file of weights (.safetensors, or .pth of plain tensors) into a net; DataError where it does not fit.

    `key_map`: a TOML file of `"old" = "new"`, the beginnings of keys in the file and in the net, or with `order = true`:
    one after the other, where number and shapes agree.
    """
    from pickle import UnpicklingError

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise DataError(f"there is no file of weights {path}", fix="pretrained, random, or a .safetensors or .pth file")
    try:
        plain = path.suffix == ".safetensors"
        weights = load_file(path) if plain else load_tensors(path)
        given = _renamed(weights, net, key_map)
        missing = net.load_state_dict(given, strict=False).missing_keys
    except (SafetensorError, UnpicklingError, RuntimeError, AttributeError, TypeError, ValueError, OSError) as error:
        raise DataError(f"{path} cannot be loaded", found=(str(error).splitlines() or ["?"])[0]) from None
    if missing:
        raise DataError(
            f"{path} lacks weights of the net",
            expected=f"{', '.join(missing[:5])} …, {len(net.state_dict())} keys",
            found=f"{', '.join(list(weights)[:5])} …, {len(weights)} keys; {len(missing)} of the net's are missing",
            fix='rename them by --key-map FILE.toml: "old beginning" = "new beginning", or order = true',
        )


def _renamed(weights: Mapping[str, Tensor], net: nn.Module, key_map: Path | None) -> dict[str, Tensor]:
    """The weights under the net's names. Raises ConfigError for a map that does not fit."""
    if key_map is None:
        return dict(weights)
    try:
        renames = parse_toml(read_text(key_map))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key_map} cannot be read", expected="a key map, in TOML", found=str(error)) from None
    if renames == {"order": True}:
        wanted = net.state_dict()
        own = {key: value for key, value in weights.items() if isinstance(value, Tensor)}
        pairs = list(zip(own.items(), wanted.items(), strict=False))
        differing = [f"{a} {tuple(x.shape)} for {b} {tuple(y.shape)}" for (a, x), (b, y) in pairs if x.shape != y.shape]
        if differing or len(own) < len(wanted):
            raise ConfigError(
                "weights cannot be taken in order", expected=f"the shapes of the net's {len(wanted)} keys",
                found=f"{len(own)} keys; {', '.join(differing[:3]) or 'too few'}", fix="name them in the key map",
            )  # fmt: skip
        return {name: value for (_, value), (name, _) in pairs}
    if not all(isinstance(new, str) for new in renames.values()):
        raise ConfigError(f"{key_map} is not a key map", expected='"old beginning" = "new beginning", or order = true')
    found = {}
    for key, value in weights.items():
        old = max((old for old in renames if key.startswith(old)), key=len, default="")
        found[renames.get(old, "") + key[len(old) :]] = value
    return found


def _torch_cache(url: str) -> str:
    return str(Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1])


def _is_network(error: BaseException | None) -> bool:
    """Whether an error, or one it came from, is the network's: hubs wrap them in errors of their own."""
    words = ("connect", "resolve", "offline", "network", "Max retries", "timed out", "cached files")
    while error is not None:
        if any(word.lower() in str(error).lower() for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def _without_classifier(net: nn.Module, pools: bool) -> tuple[nn.Module, int]:
    """A torchvision net without its last linear layer; without its own pooling as well where it is a ResNet."""
    fc = getattr(net, "fc", None)
    if isinstance(fc, nn.Linear) and hasattr(net, "layer4"):
        children = list(net.children())
        kept = children[:-1] if pools else children[:-2]
        return nn.Sequential(*kept, *([nn.Flatten()] if pools else [])), fc.in_features
    for head in ("fc", "classifier", "heads", "head"):
        last = getattr(net, head, None)
        linear = [part for part in last.modules() if isinstance(part, nn.Linear)] if last is not None else []
        if linear:
            setattr(net, head, nn.Identity())
            return net, linear[0].in_features
    raise ConfigError("this torchvision model has no classifier to take off", fix="use its timm twin: timm:NAME")
