"""The nets hbench:small, for small grey images, and hbench:small-photo, for small photographs. They
have no pretrained weights.
"""

from torch import Tensor, nn


class Small(nn.Module):
    """Four 3×3 convolutions with batch norm, for small images: (B, 1, 32, 32) -> (B, 128, 4, 4)."""

    widths = (16, 32, 64, 128)  # channels after each convolution
    pools = (2, 2, 2, 1)  # the pooling after each convolution divides the sides: 32, 16, 8, 4

    def __init__(self) -> None:
        """Build the layers: each convolution is followed by batch norm, ReLU and, where `pools`
        has a factor above 1, max pooling by this factor. `widths`: the channels after each
        convolution. The first convolution takes a single grey channel."""
        super().__init__()
        layers: list[nn.Module] = []
        channels = (1, *self.widths)  # before each convolution, and after the last one
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
    """A 5×5 convolution with stride 2, then three 3×3 convolutions, with batch norm, for colour
    photographs: (B, 3, 96, 96) -> (B, 192, 6, 6).

    The stride halves the resolution at once: on two processors the full resolution would take too
    long.
    """

    widths = (24, 48, 96, 192)

    def __init__(self) -> None:
        """Build the layers. `widths`: the channels after each convolution. The stride of the first
        convolution and a max pooling before each of the other three halve the sides of the map: an
        image of 96 pixels gives 48, 24, 12, and at last 6."""
        super().__init__()
        first, *others = self.widths
        layers = _convolution(3, first, side=5, stride=2)
        # the others, each with the channels before it: (first, second), (second, third) …
        for before, after in zip(self.widths, others, strict=False):
            layers += [nn.MaxPool2d(2), *_convolution(before, after, side=3, stride=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def _convolution(before: int, after: int, *, side: int, stride: int) -> list[nn.Module]:
    """Make a convolution of `side` × `side` pixels from `before` channels to `after`, followed by
    batch norm and ReLU. With its padding only the stride changes the sides of the map. It has no
    bias, since the batch norm subtracts the mean."""
    return [
        nn.Conv2d(before, after, side, stride=stride, padding=side // 2, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    ]
