"""Describes a backbone: the net, its features, and the images that its weights expect."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

# the weights that every source of nets supports; any other value is a file of weights
PRETRAINED = "pretrained"
RANDOM = "random"
COUNTED = 0  # stands for a number of features that build_backbone still has to count


class Backbone(NamedTuple):
    """A net without its classifier, and the images that its weights expect.

    Attributes:
        net: the net.
        features: their number.
        size: the side of the images in pixels.
        mean: of each colour.
        std: the standard deviation of each colour.
        prepare: makes the transform with which the net's source evaluates it, for images of a given
            side; None if there is none.
        interpolation: of resized images.
        crops: whether images are resized to a larger side first, and their centre is cropped.
    """

    net: nn.Module
    features: int
    size: int = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    prepare: Callable[[int], Callable[[Any], Tensor]] | None = None
    interpolation: str = "bilinear"
    crops: bool = True


# builds a net from its name without the prefix of the source, the weights (PRETRAINED or RANDOM),
# and whether to keep the net's own pooling
Source = Callable[[str, str, bool], Backbone]
