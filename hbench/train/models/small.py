"""The net hbench:small, for small grey images; it is never pretrained."""

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
