"""The nets hbench:small, for small grey images, and hbench:small-photo, for small photographs; they
are never pretrained.
"""

from torch import Tensor, nn


class Small(nn.Module):
    """Four 3×3 convolutions with batch norm, for small images: (B, 1, 32, 32) -> (B, 128, 4, 4)."""

    widths = (16, 32, 64, 128)  # channels after each convolution
    pools = (2, 2, 2, 1)  # by how much each then lessens the sides: 32 -> 16 -> 8 -> 4

    def __init__(self) -> None:
        """Build the layers: for each convolution its batch norm, ReLU and, but for the last, max
        pooling; the first one takes one grey channel. `widths`: the channels behind each
        convolution; `pools`: by how much each is pooled, 1: not."""
        super().__init__()
        layers: list[nn.Module] = []
        channels = (1, *self.widths)
        for before, after, pool in zip(channels, self.widths, self.pools, strict=False):
            layers += [
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
            if pool > 1:
                layers.append(nn.MaxPool2d(pool))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


class SmallPhoto(nn.Module):
    """A 5×5 convolution of every second pixel, then three of 3×3, with batch norm, for colour
    photographs: (B, 3, 96, 96) -> (B, 192, 6, 6).

    The first one takes half of each side at once: a net of two cores has no time for the full
    resolution.
    """

    widths = (24, 48, 96, 192)

    def __init__(self) -> None:
        """Build the layers; a max pooling before each of the last three convolutions halves the
        sides: 96 -> 48 by the stride of the first one, then 24, 12 and 6."""
        super().__init__()
        first, *others = self.widths
        layers = _convolution(3, first, side=5, stride=2)
        for before, after in zip(self.widths, others, strict=False):
            layers += [nn.MaxPool2d(2), *_convolution(before, after, side=3, stride=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def _convolution(before: int, after: int, *, side: int, stride: int) -> list[nn.Module]:
    """Make a convolution of side × side pixels, batch norm and ReLU, from `before` channels to
    `after`. The padding keeps the sides of the map, which the stride divides; a bias would do
    nothing before a batch norm, which takes the mean away."""
    return [
        nn.Conv2d(before, after, side, stride=stride, padding=side // 2, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    ]
