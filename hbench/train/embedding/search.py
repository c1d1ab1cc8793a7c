"""Retrieves items of a dataset's gallery for a user's own pictures.

Such a picture has no label. So results are framed by the levels that each shares with the first
result, and the finest class that most of them share is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from hbench.core.errors import DataError, SubmissionError, UsageError, examples
from hbench.datasets.manifest import Manifest
from hbench.datasets.pictures import open_upright
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.engine.top_k import candidates
from hbench.look.strips import Picture, Strip, StripRow, StripSheet
from hbench.look.strips.results import Results
from hbench.look.strips.retrievals import Hit, class_name
from hbench.sheets.paths import JOINED
from hbench.submissions.embeddings import Embeddings
from hbench.train.embedding.embed_dataset import Embedder
from hbench.train.images.transforms import Normalise, augmentations


class SearchedItems(NamedTuple):
    """The gallery to search. `rows` (G,): its rows in a test's manifest. `vectors` (G, D): of
    length 1. `name`: of the dataset."""

    manifest: Manifest
    rows: NDArray[np.int64]
    vectors: NDArray[np.float32]
    name: str


def gallery_of(manifest: Manifest, embeddings: Embeddings, name: str) -> SearchedItems:
    """Take the gallery of a test, with its vectors from embeddings, which may have another order
    and further items. `name`: of the dataset. Raises SubmissionError for items without a vector."""
    rows = np.flatnonzero(manifest.gallery)  # `manifest.gallery` is a mask of the items
    row_of_item = {item: row for row, item in enumerate(embeddings.ids.tolist())}
    missing = [item for item in manifest.items[rows].tolist() if item not in row_of_item]
    if missing:
        raise SubmissionError(
            f"{embeddings.source} lacks {len(missing):,} items of the gallery",
            found=examples(missing),
            fix="embed the dataset by this model: hbench embed",
        )
    order = [row_of_item[item] for item in manifest.items[rows].tolist()]
    return SearchedItems(
        manifest, rows, unit_vectors(np.asarray(embeddings.vectors)[order], np.float32), name
    )


def search(model: Embedder, pictures: Sequence[Path], gallery: SearchedItems, *, k: int) -> Results:
    """Embed pictures, and find the k nearest items of a gallery by cosine. Items with equal scores
    are in the gallery's order.

    Raises DataError for a picture that cannot be read, UsageError if the gallery's vectors have
    another dimension than the model's.
    """
    images = [_read(picture) for picture in pictures]
    asked = embedded_pictures(model, images)  # (Q, D), of length 1
    if asked.shape[1] != gallery.vectors.shape[1]:
        raise UsageError(
            "the gallery was embedded by another model",
            expected=f"vectors of {asked.shape[1]} dimensions",
            found=f"{gallery.vectors.shape[1]}",
        )

    strips = []
    # A Strip needs a row for its query. The pictures are not in the manifest, so they get the rows
    # after its last one.
    own_rows = range(len(gallery.manifest), len(gallery.manifest) + len(pictures))
    for picture, vector, row in zip(pictures, asked, own_rows, strict=True):
        hits = _nearest_in_gallery(vector, gallery, k)
        about = agreement(gallery.manifest, hits)  # a sentence on the class of most hits
        strips.append(
            Strip(
                query=str(picture), position=row, about=about, rows=[StripRow(gallery.name, hits)]
            )
        )
    # a function that returns the picture of an item of the gallery, or of one of `pictures`
    opened = _picture_of(gallery.manifest, dict(zip(map(str, pictures), images, strict=True)))
    # Each hit is framed by the levels that it shares with the first hit. `gallery.rows` has the
    # items of the gallery; the manifest may have others, too.
    caption = (
        f"{gallery.name}: {len(gallery.rows):,} items; framed by what they share with the first"
    )
    return Results(StripSheet(strips, gallery.manifest.levels, caption, opened))


def embedded_pictures(model: Embedder, images: Sequence[Image.Image]) -> NDArray[np.float32]:
    """Embed pictures in the same way as a dataset is embedded: float32 (Q, D), of length 1."""
    prepare = model.prepare or augmentations["none"](model.images)  # returns (C, H, W)
    net = nn.Sequential(Normalise(model.images), model.model).eval()
    with torch.inference_mode():
        # in batches of one image, since there are only a few pictures
        vectors = [net(prepare(image)[None])[0].float().numpy() for image in images]
    return unit_vectors(np.stack(vectors), np.float32)


def _nearest_in_gallery(
    vector: NDArray[np.float32], gallery: SearchedItems, k: int
) -> tuple[Hit, ...]:
    """Find the k items nearest to a vector (D,) by cosine, best first, each with the number of
    levels that it shares with the nearest one."""
    # cosines, since the vector and the gallery's vectors (G, D) are of length 1
    scores = (gallery.vectors @ vector)[None]  # (1, G)
    # `best` calls the function for the sort keys of columns with equal scores; all keys are 0, so
    # these columns keep the gallery's order
    nearest = candidates(scores, k).best(k, lambda row, _column: np.zeros_like(row))
    _row_of_scores, _place, columns, best_scores = nearest  # (k,) each
    rows = gallery.rows[columns]
    labels = gallery.manifest.labels[rows]  # (k, L)
    # compare each item with the nearest one, since the picture has no label. The product over
    # levels is 1 down to the first difference, so its sum is the number of shared levels
    levels = np.cumprod(labels == labels[:1], axis=1).sum(axis=1)  # (k,)
    return tuple(
        Hit(
            rank=rank,
            item=str(gallery.manifest.items[row]),
            score=float(score),
            level=int(level),
            position=int(row),
            name=class_name(gallery.manifest, int(row)),
        )
        for rank, (row, score, level) in enumerate(
            zip(rows, best_scores, levels, strict=True), start=1
        )
    )


def agreement(manifest: Manifest, hits: Sequence[Hit]) -> str:
    """Name the finest class to which more than half of the results belong, in a sentence. `hits`:
    the results, whose `position` is a row of the manifest."""
    labels = manifest.labels[[hit.position for hit in hits]]
    said = "no class has most of the results"  # replaced at each level that has such a class
    for level in range(1, manifest.tree.depth + 1):
        paths, counts = np.unique(labels[:, :level], axis=0, return_counts=True)
        most = int(counts.argmax())
        if 2 * counts[most] <= len(hits):
            return said  # no class of a finer level can have more of them
        path = enumerate(paths[most].tolist())  # (level, label), coarse to fine, level from 0
        names = [manifest.tree.names[at][label] for at, label in path]
        said = f"{counts[most]} of {len(hits)} are of {JOINED.join(names)}"
    return said


def _picture_of(manifest: Manifest, asked: dict[str, Image.Image]) -> Picture | None:
    """Return a function that gives the picture of an item: one of the gallery, opened by the
    manifest, or one that was asked, already open in `asked`, by its path. None for a dataset whose
    pictures cannot be opened."""
    opened = manifest.picture
    if opened is None:
        return None
    return lambda item: asked[item] if item in asked else opened(item)


def _read(picture: Path) -> Image.Image:
    """Read a picture from anywhere. Raises DataError if it cannot be read, with other advice than
    for the picture of a dataset's item."""
    try:
        return open_upright(picture.parent, picture.name)
    except DataError as error:
        raise DataError(
            f"{picture} cannot be read as a picture",
            expected="a file such as .jpg, .png or .webp",
            found=error.found,
        ) from None
