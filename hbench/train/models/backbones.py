"""Builds backbones, which turn images into features: a map (B, C, H, W), or vectors (B, C) if the
backbone pools.

SOURCE:NAME names one:

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
    # else tokens, vectors, or channels last: square images make square maps, so that maps of
    # other sides have their channels elsewhere
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
    """Raise what `source_of` raises, and UnknownName where the source of SOURCE:NAME is known to
    have no net of this name; of other packages, and of hubs, nothing is known without a look."""
    source_of(name)
    source, _, rest = name.partition(":")
    if source == "hbench":
        refuse_other_nets(rest)
    elif source == "torchvision":
        libraries.refuse_unknown_torchvision(rest.partition("/")[0])
    elif source == "timm":
        libraries.refuse_unknown_timm(rest)


def source_of(name: str) -> tuple[Source, str]:
    """Return the function that builds the backbones of the source in SOURCE:NAME, and the NAME;
    raises ConfigError for a text without one of them, UnknownName for an unknown source."""
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
    # COUNTED, 0, is the number of features until build_backbone finds it out by running the net
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
    """Describe what a net returned in place of a tensor, such as "a tuple of 2", or the names of
    what a mapping holds, among which the right one may be."""
    kind = type(features).__name__
    if isinstance(features, Mapping):
        return f"a {kind} of {examples(map(str, features))}"
    if isinstance(features, list | tuple):
        return f"a {kind} of {len(features)}"
    return f"a {kind}"


def shape_of_features(backbone: Backbone, side: int) -> tuple[int, ...]:
    """The shape of a net's features of one image of this side, in pixels: (1, C, H, W) or (1, C);
    raises what the net raises for a side that it cannot take.
    """
    return tuple(_features(backbone, side).shape)


def refuse_unfit_size(name: str, backbone: Backbone, side: int, *, fix: str) -> None:
    """Raise UsageError, which advises `fix`, where the backbone SOURCE:NAME cannot take images of
    `side` pixels. It is tried out: some nets, such as transformers, take only their own size or
    multiples of a patch, and all need a few pixels."""
    try:
        shape_of_features(backbone, side)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{name} takes no images of {side} pixels", found=first_line(error), fix=fix
        ) from None


def _features(backbone: Backbone, side: int) -> Any:
    """Run a net on one black image (1, C, side, side), and return what it makes of that: a tensor,
    unless it is somebody's own. In evaluation, so that batch norms do not learn from the image, and
    back in training, as a new net is."""
    with torch.no_grad():
        features = backbone.net.eval()(torch.zeros(1, len(backbone.mean), side, side))
    backbone.net.train()
    return features


class OwnNet(NamedTuple):
    """A net of hbench: what builds it, and the side, in pixels, of its images, with the mean and
    the standard deviation of each of their colours."""

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
    """Build hbench:small, four convolutions for small grey images, or hbench:small-photo, as many
    for small colour photographs, neither of which is ever pretrained; or hbench:pixels, the small
    grey images themselves.

    `weights` has nothing to say here; `pools`: whether the net ends in the mean over all places,
    which the pixels, a vector already, do not need.
    """
    if name == PIXELS:
        return Backbone(nn.Flatten(), COUNTED, size=32, mean=(0.0,), std=(1.0,), crops=False)
    refuse_other_nets(name)
    own = OWN_NETS[name]
    net = own.build()
    if pools:
        net = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Backbone(net, COUNTED, size=own.side, mean=own.mean, std=own.std)


def refuse_other_nets(name: str) -> None:
    """Raise UnknownName for a name that no net of hbench has."""
    if name not in (*OWN_NETS, PIXELS):
        raise UnknownName("hbench backbone", name, (*OWN_NETS, PIXELS))
