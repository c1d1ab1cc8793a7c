"""What training knows of a net: its features, and the images that its weights expect."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

# the weights that every source of nets can be asked for; else they are read from a file
PRETRAINED = "pretrained"
RANDOM = "random"
COUNTED = 0  # features of a net that nobody has run yet: build_backbone counts them


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


# Builds the net of a name, after the prefix of its source, with PRETRAINED or RANDOM weights; the
# bool says whether the net's own pooling is kept.
Source = Callable[[str, str, bool], Backbone]
