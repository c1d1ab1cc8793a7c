"""Embeds images with a model: in the order of a manifest, shared among processes, and optionally at
several scales and mirrored.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from hbench.datasets.manifest import Manifest
from hbench.train.images.batches import Batch, images_of, in_order, workers_for
from hbench.train.processes import Processes, gather_objects
from hbench.train.recipes.recipe import Recipe

Vectors = NDArray[np.float32]


def embeddings_of_images(
    model: nn.Module,
    images: Dataset[Batch],
    rows: NDArray[np.int64],
    *,
    batch: int,
    workers: int,
    device: torch.device,
) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """Embed the images of some rows (n,) of a manifest. Yield rows (≤ batch,) with their
    embeddings, float32 (≤ batch, D), on the host.

    The model is in evaluation mode meanwhile, and in its former mode afterwards. `workers`: the
    number of processes that decode.
    """
    mode = model.training
    model.eval()
    try:
        # `places` (≤ batch,): the rows of the images in a batch; unreadable images were left out
        for pixels, places in in_order(images, rows, batch=batch, workers=workers, device=device):
            if not len(places):  # all images of the batch were unreadable and left out
                continue
            # filled up: the net would be compiled again for another size
            if getattr(model, "is_compiled", False):
                pixels = torch.cat(
                    [pixels, pixels[:1].expand(batch - len(pixels), *pixels.shape[1:])]
                )
            with torch.inference_mode():
                yield places.cpu().numpy(), model(pixels)[: len(places)].float().cpu().numpy()
    finally:
        model.train(mode)


def embed_all(
    model: nn.Module, name: str, manifest: Manifest, recipe: Recipe, processes: Processes
) -> Vectors:
    """Embed all images of a manifest of the dataset `name`, in order: (N, D). Each of W processes
    embeds every W-th image, and all of them get all embeddings."""
    images = images_of(name, manifest, recipe.images, vary=False)
    number = len(manifest)
    rows = np.arange(processes.rank, number, processes.world)
    workers = workers_for(images, recipe.images)
    pieces = embeddings_of_images(
        model, images, rows, batch=recipe.sampler.batch, workers=workers, device=processes.device
    )
    embedded_here = [vectors for _, vectors in pieces]
    # the vectors of each process, in order of rank
    parts = gather_objects(np.concatenate(embedded_here) if embedded_here else None, processes)
    # with fewer images than processes some processes have no part (None), but at least one has
    width = next(part.shape[1] for part in parts if part is not None)
    # filled with NaN, so that a row that no process embedded would be noticed
    whole = np.full((number, width), np.nan, dtype=np.float32)
    for rank, part in enumerate(parts):
        if part is not None:
            whole[rank :: processes.world] = part
    return whole


class Views(nn.Module):
    """Embeds images as the normalised mean over several views: several scales and, if `flip`,
    their mirror images.
    """

    def __init__(
        self, model: nn.Module, scales: Sequence[float] = (1.0,), *, flip: bool = False
    ) -> None:
        """Wrap a model. `scales`: factors of height and width; 1 is the image itself. `flip`: also
        embed mirrored images."""
        super().__init__()
        self.model, self.scales, self.flip = model, tuple(scales), flip

    def forward(self, images: Tensor) -> Tensor:
        """Embed images (B, C, H, W): (B, D), of length 1."""
        resized = partial(
            functional.interpolate, mode="bilinear", antialias=True, align_corners=False
        )
        views = [
            images if scale == 1 else resized(images, scale_factor=scale) for scale in self.scales
        ]
        if self.flip:
            views += [view.flip(-1) for view in views]
        # (views, B, D), of length 1, so that every view has the same weight
        embeddings = torch.stack([functional.normalize(self.model(view)) for view in views])
        return functional.normalize(embeddings.mean(0))
