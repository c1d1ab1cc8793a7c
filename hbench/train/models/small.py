"""The nets hbench:small, for small grey images, and hbench:small-photo, for small photographs; they
are never pretrained.
"""

from torch import Tensor, nn


class Small(nn.Module):
    """Four 3×3 convolutions with batch norm, for small images: (B, 1, 32, 32) -> (B, 128, 4, 4)."""

    widths = (16, 32, 64, 128)
    pools = (2, 2, 2, 1)

    def __init__(self) -> None:
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
    """A convolution that keeps the sides up to its stride, batch norm and ReLU."""
    return [
        nn.Conv2d(before, after, side, stride=stride, padding=side // 2, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    ]
