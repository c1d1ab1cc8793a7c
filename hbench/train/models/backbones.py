"""Builds backbones, which compute features of images: maps (B, C, H, W), or vectors (B, C) if the
backbone pools.

A backbone is named SOURCE:NAME:

    torchvision:resnet50  timm:deit_small_patch16_224  open_clip:ViT-B-32/laion2b_s34b_b79k
    timm:hf-hub:OWNER/NAME    open_clip:hf-hub:OWNER/NAME    transformers:OWNER/NAME    deit:small
    hbench:small    ./FILE.py:NAME, a net of your own
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError, UnknownName, UsageError, examples
from hbench.core.registry import Registry
from hbench.core.text import first_line
from hbench.train.models import libraries
from hbench.train.models.backbone import COUNTED, PRETRAINED, RANDOM, Backbone, Source
from hbench.train.models.small import Small, SmallPhoto
from hbench.train.models.weights import load_weights
from hbench.train.recipes.own_code import OwnCode, blamed_on, is_own_code, place_in

sources: Registry[Source] = Registry("source of backbones", group="hbench.backbones")
sources.register("torchvision")(libraries.torchvision_backbone)
sources.register("timm")(libraries.timm_backbone)
sources.register("deit")(libraries.distilled_deit)
sources.register("open_clip")(libraries.open_clip_backbone)
sources.register("transformers")(libraries.transformers_backbone)


def build_backbone(
    name: str, *, weights: str = PRETRAINED, pools: bool = False, key_map: Path | None = None
) -> Backbone:
    """Build the backbone SOURCE:NAME.

    The net is run once to count its features.

    Args:
        name: SOURCE:NAME, or FILE.py:NAME.
        weights: "pretrained", "random", or a file.
        pools: keep the net's own pooling, so that it returns vectors; else it returns maps.
        key_map: a TOML file that renames the keys in a file of weights.

    Raises:
        UnknownName: an unknown source or name.
        DataError: weights that cannot be loaded.
        ConfigError: a net that does not return vectors, or maps, as `pools` requires.
    """
    from_file = weights not in {PRETRAINED, RANDOM}
    if is_own_code(name):
        # the user's code makes the net and its weights; `pools` is only checked, below
        backbone = net_of_a_file(OwnCode.parse(name))
    else:
        build, rest = source_of(name)
        backbone = build(rest, RANDOM if from_file else weights, pools)
    if from_file:
        load_weights(backbone.net, Path(weights), key_map)
    shape = shape_of_features(backbone, backbone.size)
    _, count, *sides = shape  # `sides`: height and width of a map, none for vectors
    if pools and sides:
        raise ConfigError(
            f"{name} does not pool",
            expected="features of shape (B, C)",
            found=f"shape {shape}",
            fix='pool its maps: pooling = "avg" in [model]',
        )
    # Other nets return tokens, vectors, or maps with the channels last. Square images give square
    # maps, so if the last two sides differ one of them is the channels.
    is_map = len(sides) == 2 and sides[0] == sides[1] > 1
    if not pools and not is_map:
        raise ConfigError(
            f"{name} gives no map of features to pool",
            expected="features of shape (B, C, H, W)",
            found=f"shape {shape}",
            fix='keep its own pooling: pooling = "own" in [model]',
        )

    return backbone._replace(features=count)


def refuse_unknown_net(name: str) -> None:
    """Check a backbone's `name`, SOURCE:NAME. Raise UnknownName if SOURCE is unknown or has no net
    NAME, and ConfigError for a `name` of another form. The NAME of other packages' sources and of
    hubs is not checked, since that would need loading or a connection."""
    source_of(name)  # raises for an unknown source, or a text of another form
    source, _, rest = name.partition(":")
    if source == "hbench":
        refuse_other_nets(rest)
    elif source == "torchvision":
        libraries.refuse_unknown_torchvision(rest.partition("/")[0])  # NAME/WEIGHTS is allowed
    elif source == "timm":
        libraries.refuse_unknown_timm(rest)


def source_of(name: str) -> tuple[Source, str]:
    """Split SOURCE:NAME into the function that builds the source's backbones, and NAME. Raises
    ConfigError for a text without one of them, UnknownName for an unknown source. FILE.py:NAME, a
    user's own net, is no such name: `build_backbone` passes it to `net_of_a_file`."""
    source, _, rest = name.partition(":")
    if not rest:
        raise ConfigError(
            f"{name!r} is not a backbone",
            expected="SOURCE:NAME, or ./FILE.py:NAME",
            fix="such as torchvision:resnet50",
        )
    return sources[source], rest


def net_of_a_file(code: OwnCode) -> Backbone:
    """Build a user's own net: call the class or function in FILE.py, without arguments, which
    returns a module that takes images (B, C, H, W).

    The module may have attributes `size`, `mean`, `std`, `interpolation` and `prepare`, which are
    those of Backbone. Raises ConfigError if it is no module, cannot take such images, or returns no
    tensor.
    """
    made = code.load()
    with blamed_on(code):  # any error becomes a ConfigError that names the line
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
    # build_backbone replaces COUNTED by the number of features
    backbone = Backbone(net, COUNTED, **described)
    try:
        features = _features(backbone, backbone.size)
    except (Exception, SystemExit) as error:  # a user's program may raise anything
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
    """Describe what a net returned in place of a tensor: "a tuple of 2" or, for a mapping, its
    keys, among which the user may find the right one."""
    kind = type(features).__name__
    if isinstance(features, Mapping):
        return f"a {kind} of {examples(map(str, features))}"
    if isinstance(features, list | tuple):
        return f"a {kind} of {len(features)}"
    return f"a {kind}"


def shape_of_features(backbone: Backbone, side: int) -> tuple[int, ...]:
    """Return the shape of a net's features for one image of `side` pixels: (1, C, H, W) or (1, C).
    Raises whatever the net raises if it cannot take such images.
    """
    return tuple(_features(backbone, side).shape)


def refuse_unfit_size(name: str, backbone: Backbone, side: int, *, fix: str) -> None:
    """Raise UsageError, with the advice `fix`, if the backbone `name` cannot take images of `side`
    pixels. The net is tried: transformers may accept only one size, or multiples of a patch, and
    every net needs a few pixels."""
    try:
        shape_of_features(backbone, side)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{name} takes no images of {side} pixels", found=first_line(error), fix=fix
        ) from None


def _features(backbone: Backbone, side: int) -> Any:
    """Run a net on one black image (1, C, side, side), and return the result, which is a tensor
    unless it is a user's own net. The net is in evaluation mode, so that batch norms do not learn
    from the image, and in training mode afterwards, as a new net is."""
    with torch.no_grad():
        features = backbone.net.eval()(torch.zeros(1, len(backbone.mean), side, side))
    backbone.net.train()
    return features


class OwnNet(NamedTuple):
    """A net of hbench itself. `build`: its class. `side`: of its images, in pixels. `mean`, `std`:
    the mean and the standard deviation of each colour."""

    build: type[nn.Module]
    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


OWN_NETS = {
    "small": OwnNet(Small, side=32, mean=(0.5,), std=(0.5,)),
    "small-photo": OwnNet(SmallPhoto, side=96, mean=(0.5,) * 3, std=(0.25,) * 3),
}
PIXELS = "pixels"


@sources.register("hbench")
def own_backbone(name: str, weights: str, pools: bool) -> Backbone:
    """Build a net of hbench: "small", four convolutions for small grey images; "small-photo", four
    convolutions for small colour photographs; or "pixels", which returns the grey image itself.

    None of them has pretrained weights, so `weights` is ignored. `pools`: whether the net ends with
    the mean over all positions; "pixels" returns a vector in any case.
    """
    # COUNTED is replaced by the number of features that the net returns
    if name == PIXELS:
        # not cropped: all pixels of the image are the vector
        return Backbone(nn.Flatten(), COUNTED, size=32, mean=(0.0,), std=(1.0,), crops=False)
    refuse_other_nets(name)
    own = OWN_NETS[name]
    net = own.build()
    if pools:
        net = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Backbone(net, COUNTED, size=own.side, mean=own.mean, std=own.std)


def refuse_other_nets(name: str) -> None:
    """Raise UnknownName unless hbench has a net of this name."""
    if name not in (*OWN_NETS, PIXELS):
        raise UnknownName("hbench backbone", name, (*OWN_NETS, PIXELS))
