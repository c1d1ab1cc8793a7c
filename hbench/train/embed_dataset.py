"""Embeds a dataset's images with any model, into a file that `hbench evaluate` takes; resumable in parts.

A model is a checkpoint of `hbench train`, or SOURCE:NAME of a backbone, whose own features are the embeddings.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from hbench.core.errors import DataError, UnknownName, UsageError
from hbench.core.files import replacing, write_text
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.evaluation import embeddings
from hbench.train import run
from hbench.train.images.batches import all_tests, images_of
from hbench.train.loop import RECIPE
from hbench.train.models.backbones import build_backbone
from hbench.train.models.embed_images import Views, embedded
from hbench.train.models.model import build_model
from hbench.train.processes import ALONE
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Images, Model
from hbench.train.run import PRECISIONS, training_manifest

RANDOM = "random"


class Embedder(NamedTuple):
    """A model, how it wants its images, and what tells it from any other."""

    model: nn.Module
    images: Images
    identity: str


@dataclass(frozen=True)
class EmbedOptions:
    """`batch` images at a time, at `scales` of their size, mirrored too where `flip`; resumed by `part` images."""

    batch: int = 64
    workers: int = 0
    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    precision: str = "float32"
    part: int = 4096


AS_THEY_ARE = EmbedOptions()


def embedder(source: str, *, size: int | None = None, weights: str = "pretrained") -> Embedder:
    """The model of a run's folder or checkpoint, or of SOURCE:NAME with its own pooling and no projection.

    Raises UnknownName, and DataError where a checkpoint or weights cannot be had.
    """
    folder = Path(source)
    if folder.exists() or ":" not in source:
        return _from_checkpoint(folder)
    backbone = build_backbone(source, weights=weights, pools=True)
    side = size or backbone.size
    images = Images(size=side, resize=round(side * 8 / 7), mean=backbone.mean, std=backbone.std)
    return Embedder(backbone.net, images, f"{source} {weights} {side}")


def embed(
    given: Embedder,
    data: Dataset,
    file: Path,
    *,
    split: str = "test",
    manner: EmbedOptions = AS_THEY_ARE,
    device: torch.device = ALONE.device,
    watch: Callable[[int, int], None] = lambda _done, _all: None,
) -> None:
    """Write the embeddings of every item of a split, in manifest order. Interrupted, it goes on where it stopped.

    `watch` is told how many images are done and of how many. Raises UsageError for a file that exists.
    """
    if file.exists():
        raise UsageError(f"{file} exists", fix="remove it, or another --out")
    manifest = _items(data, split)
    images = images_of(data.name, manifest, given.images, vary=False)
    model = Views(given.model, manner.scales, flip=manner.flip).to(device).eval()
    request = {"model": given.identity, "manifest": manifest.digest, "split": split, **asdict(manner)}
    parts = _take_parts(file, request)
    rows = np.arange(len(manifest))
    for number, start in enumerate(range(0, len(rows), manner.part)):
        part = parts / f"{number:06d}.npy"
        if not part.exists():
            chosen = rows[start : start + manner.part]
            pieces = embedded(model, images, chosen, batch=manner.batch, workers=manner.workers, device=device)
            with torch.autocast(device.type, PRECISIONS[manner.precision], enabled=manner.precision != "float32"):
                vectors = np.concatenate(list(_told(pieces, start, len(rows), watch)))
            with replacing(part) as temporary, temporary.open("wb") as written:
                np.save(written, vectors, allow_pickle=False)
        watch(min(start + manner.part, len(rows)), len(rows))
    whole = np.concatenate([np.load(part, allow_pickle=False) for part in sorted(parts.glob("*.npy"))])
    embeddings.write(file, manifest.items.tolist(), whole, metadata={key: str(value) for key, value in request.items()})
    shutil.rmtree(parts)


def _from_checkpoint(path: Path) -> Embedder:
    folder = run.latest(path)
    recipe_file = next((each / RECIPE for each in (folder, folder.parent) if (each / RECIPE).exists()), None)
    if recipe_file is None:
        raise DataError(f"{folder} has no recipe beside it", expected=f"{RECIPE} in it or in its run's folder")
    recipe = resolve(str(recipe_file))
    settings = Model(**{**recipe.model.model_dump(), "weights": RANDOM})
    model = build_model(settings)
    run.load_model(folder, model)
    digest = hashlib.sha256((folder / run.MODEL).read_bytes()).hexdigest()
    return Embedder(model, recipe.images, f"checkpoint {digest}")


def _items(data: Dataset, split: str) -> Manifest:
    """The training manifest, the items of all tests, or one of several tests by its name."""
    if split == "train":
        return training_manifest(data)
    if split == "test":
        return all_tests(data)
    if split not in data.tests:
        raise UnknownName("split", split, ["train", "test", *data.tests])
    return data.tests[split]


def _take_parts(file: Path, request: dict[str, object]) -> Path:
    """The folder of finished parts; those of another request are refused."""
    parts = file.with_name(f"{file.name}.parts")
    wanted = json.dumps(request, indent=1)
    about = parts / "request.json"
    if about.exists() and about.read_text(encoding="utf-8") != wanted:
        raise UsageError(
            f"{parts} holds parts of another model, split or manner", fix="remove it, or give another --out"
        )
    write_text(about, wanted)
    return parts


def _told(
    pieces: Iterator[np.ndarray], start: int, number: int, watch: Callable[[int, int], None]
) -> Iterator[np.ndarray]:
    for piece in pieces:
        start += len(piece)
        watch(start, number)
        yield piece
