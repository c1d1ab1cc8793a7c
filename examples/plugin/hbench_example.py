"""A package that adds a metric, a loss and a dataset to hbench: docs/plugins.md explains each."""

from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from hbench.datasets.spec import Spec, Splits
from hbench.metrics.definitions import metric
from hbench.metrics.level_sequence import LevelSequence

SIDE = 16  # pixels of a picture


@metric("first-relative", "level", full=True, lower_is_better=True, factor=1)
def first_relative(sequence: LevelSequence, *, level: int) -> float:
    """The rank of the first item that shares the query's node at this level."""
    ranks = sequence.ranks[sequence.levels >= level]
    return float(ranks[0]) if len(ranks) else float("nan")


class CentreLoss(nn.Module):
    """The mean distance of vectors to the centre of their finest class in the batch, and a push."""

    def __init__(self, dim: int, push: float = 0.1) -> None:
        super().__init__()
        self.push = push
        self.origin = nn.Parameter(torch.zeros(dim))  # what a loss learns is trained with the net

    def forward(
        self,
        embeddings: Tensor,  # (B, D)
        labels: Tensor,  # int64 (B, L), coarse to fine
        ref_embeddings: Tensor | None = None,  # (N, D), of a memory
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        same = labels[:, None, -1] == labels[None, :, -1]
        centres = (same.to(embeddings) @ embeddings) / same.sum(1, keepdim=True)
        to_centre = (embeddings - centres).square().sum(1).mean()
        from_origin = (embeddings.mean(0) - self.origin).square().sum()
        return to_centre + self.push / (1 + from_origin)


def build(raw: Path) -> Splits:
    """The items of each split with their names; a dataset with files reads `raw`."""
    rows = {
        number: [
            (f"{direction}/{colour}-{number}.png", (direction, f"{colour} {direction}"))
            for direction in ("across", "along")
            for colour in ("red", "blue")
        ]
        for number in range(4)
    }
    return {"train": rows[0] + rows[1], "test": rows[2] + rows[3]}


def picture(_root: Path, item: str) -> Image.Image:
    """The picture of an item; of files it would be `hbench.datasets.pictures.open_upright`."""
    direction, _, name = item.partition("/")
    image = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(image)
    for at in range(int(name[-5]), SIDE, 4):
        ends = (0, at, SIDE, at) if direction == "across" else (at, 0, at, SIDE)
        draw.line(ends, fill=name.partition("-")[0])
    return image


SPEC = Spec(
    name="stripes",
    title="Sixteen pictures of stripes",
    levels=("direction", "kind"),
    build=build,
    on_disk=False,  # no markers and no files: nothing is downloaded
    counts={"test": {"images": 8, "kind": 4}},
    licence="CC0",
    citation="nobody",
    picture=picture,
)
