"""Makes batches of image tensors for training and embedding: files decoded in worker processes, or
images in memory.

A batch is (images (B, C, H, W), rows int64 (B,) of the manifest). Images from files are uint8,
others float32 and normalised. Every image is varied by a seed of its own, so that neither the
number of workers nor a resumed epoch changes it. Workers make pieces of batches, and live as long
as the training; a GPU gets the pieces through pinned memory while it computes.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hbench import datasets
from hbench.core.errors import ConfigError, DataError, UnknownName, examples
from hbench.datasets.benchmarks import glyphs
from hbench.datasets.manifest import Manifest
from hbench.train.images.sampler import EpochBatches
from hbench.train.images.transforms import (
    Outside,
    Prepare,
    augmentations,
    shift_images,
    variation_of,
)
from hbench.train.recipes.recipe import Images

Batch = tuple[Tensor, Tensor]  # images and their rows, as above
Unreadable = dict[str, DataError]  # by item
Keys = list[tuple[int, int]]  # row and seed of every image of a batch
NONE = "none"
SHIFTED = "shifted"
CPU = torch.device("cpu")
MOST_NAMED = 100  # unreadable images that an error names
MOST_HELD = 2**31  # bytes of pixels that `shifted` holds
# images that a worker makes at once, which bounds its memory and the queue for any size of batch
PIECE = 256

# images that are held in memory, by dataset and side in pixels: what makes them, (N, H, W)
HELD: dict[tuple[str, int], Callable[[Manifest], NDArray[np.uint8]]] = {
    ("glyphs", glyphs.SIDE): glyphs.images
}


class Files(Dataset[Batch]):
    """The images of a manifest, opened a whole batch at a time; instead of a batch with unreadable
    images, their errors.

    `skips`: unreadable images are left out, so that a batch may have fewer images than requested,
    or none.
    """

    skips = False

    def __init__(self, manifest: Manifest, prepare: Prepare) -> None:
        """`prepare`: makes of a picture the tensor (C, H, W) that the net takes."""
        if manifest.picture is None:
            fix = "hbench download NAME, then hbench build NAME"
            raise DataError("the images of this dataset are not on this disk", fix=fix)
        self.items = manifest.items
        self.open = manifest.picture
        self.prepare = prepare

    def __getitems__(self, keys: Keys) -> Batch | Unreadable:
        """Open and prepare the pictures of a batch, by their rows of the manifest; return (images,
        rows), or the errors by item. Torch's loader calls this with all keys of a batch at once.

        What is random in a picture is seeded by its own draw, so depends on no worker and no
        order."""
        images = []
        rows = []
        problems = {}
        for row, draw in keys:
            try:
                image = self.open(self.items[row])
                with torch.random.fork_rng(devices=[]):
                    # torch.manual_seed would also seed GPUs, for every image
                    torch.default_generator.manual_seed(draw)
                    images.append(self.prepare(image))
                rows.append(row)
            except DataError as error:
                # returned, since a loader turns errors raised in workers into tracebacks
                problems[str(self.items[row])] = error

        if problems and not self.skips:
            return problems

        pixels = torch.stack(images) if images else torch.empty(0)  # all may have been left out
        return pixels, torch.tensor(rows, dtype=torch.int64)


class Held(Dataset[Batch]):
    """Images held in memory, uint8 (N, H, W) or (N, H, W, C); they are varied unless `scale`, the
    smallest and the largest factor of their size, is None.

    `outside`: what a variation shows beyond an image's edge, black ("zeros") or the pixel at the
    edge ("border").
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        settings: Images,
        scale: tuple[float, float] | None,
        outside: Outside = "zeros",
    ) -> None:
        """`pixels`: (N, H, W, C), or (N, H, W) if grey; `scale`: by which factors a shifted image
        is scaled, None for images that are not varied; `outside`: what lies beyond its border."""
        channels_last = pixels if pixels.ndim == 4 else pixels[..., None]  # grey: one channel
        self.pixels = torch.from_numpy(channels_last).permute(0, 3, 1, 2)  # (N, C, H, W)
        self.mean = torch.tensor(settings.mean)[:, None, None]
        self.std = torch.tensor(settings.std)[:, None, None]
        self.scale = scale
        self.outside = outside

    def __getitems__(self, keys: Keys) -> Batch:
        """Return (images float32 (B, C, H, W), normalised, rows (B,)) of the keys of a batch, rows
        and seeds; each image is varied by its own seed. Torch's loader calls this with all keys of
        a batch at once. `pixels` (N, C, H, W) uint8: all images, in memory; `scale`: None where
        images are not varied."""
        rows, draws = (np.array(column, dtype=np.int64) for column in zip(*keys, strict=True))
        images = self.pixels[torch.from_numpy(rows)].float() / 255
        if self.scale is not None:
            images = shift_images(images, draws, self.scale, self.outside)
        return (images - self.mean) / self.std, torch.from_numpy(rows)


def images_of(name: str, manifest: Manifest, settings: Images, *, vary: bool) -> Dataset[Batch]:
    """Make the images of a manifest of the dataset `name`, varied for training, or fixed for
    embedding: held in memory where the dataset's are drawn there (HELD) or `shifted` asks for it,
    else opened from files."""
    chosen = settings.augment if vary else NONE
    # what draws the images of this dataset at this size, if any does: there are no files of them
    held = HELD.get((name, settings.size))
    if held is not None:
        if chosen not in (NONE, SHIFTED):
            raise UnknownName("augmentation of images in memory", chosen, [NONE, SHIFTED])
        return Held(held(manifest), settings, settings.scale if chosen == SHIFTED else None)
    if chosen == SHIFTED:
        return Held(decode_images(manifest, settings), settings, settings.scale, outside="border")
    return Files(manifest, variation_of(settings) if vary else augmentations[NONE](settings))


def decode_images(manifest: Manifest, settings: Images) -> NDArray[np.uint8]:
    """Decode all images of a manifest as they are embedded, uint8 (N, H, W, C), so that small ones
    are decoded once a run.

    Raises ConfigError for more bytes than MOST_HELD, DataError that names unreadable images.
    """
    refuse_too_large(len(manifest), settings)
    files = Files(manifest, augmentations[NONE](settings))
    rows = np.arange(len(manifest))
    # without workers: what they make would be copied from process to process
    pieces = [images.numpy() for images, _ in in_order(files, rows, batch=PIECE, workers=0)]
    return np.concatenate(pieces).transpose(0, 2, 3, 1)


def refuse_too_large(images: int, settings: Images) -> None:
    """Raise ConfigError where `shifted` would hold more bytes of pixels than MOST_HELD, of this
    number of images."""
    needed = images * settings.size**2 * len(settings.mean)  # a byte for each of C colours
    if settings.augment == SHIFTED and needed > MOST_HELD:
        raise ConfigError(
            f"{SHIFTED} images are held in memory",
            expected=f"at most {MOST_HELD:,} bytes of pixels",
            found=f"{needed:,}",
            fix="--set images.augment=crop decodes them anew each time",
        )


def workers_for(images: Dataset[Batch], settings: Images) -> int:
    """Return the number of processes that decode: the recipe's, or one per processor, at most 10; 0
    for images in memory.
    """
    if settings.workers is not None:
        return settings.workers
    if not isinstance(images, Files):
        return 0
    return min(10, os.cpu_count() or 1)


class Batches:
    """Makes batches on a device, epoch after epoch, with the same worker processes."""

    def __init__(self, images: Dataset[Batch], *, workers: int, device: torch.device = CPU) -> None:
        """`workers`: processes that decode, 0 for this one; `device`: where batches are copied."""
        self.device = device
        # of the next epoch; the loader holds this very list, which is filled anew for each
        self._pieces: list[Keys] = []
        # A separate generator: by default a loader draws from torch's, which would change a resumed
        # run.
        self._loader: DataLoader[Any] = DataLoader(
            images,
            batch_sampler=self._pieces,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=_as_it_is,  # a dataset gives whole pieces already
            generator=torch.Generator(),
            pin_memory=device.type == "cuda",
        )

    def of(self, batches: Iterable[Keys]) -> Iterator[Batch]:
        """Yield the batches of an epoch, whose keys these are, in order; raises DataError that
        names the unreadable images of a batch.

        The loader is asked for pieces of a batch, since a worker makes a whole piece before it
        begins another; the pieces of a batch are joined on the device.
        """
        pieces_of_batches = [_in_pieces(keys) for keys in batches]
        # in place: the loader holds this very list, and goes through it when `iter` is called
        self._pieces[:] = itertools.chain.from_iterable(pieces_of_batches)
        loader = iter(self._loader)
        for pieces in pieces_of_batches:
            loaded = [next(loader) for _ in pieces]
            problems: Unreadable = {}
            for piece in loaded:
                if isinstance(piece, dict):
                    problems |= piece
            if problems:
                raise _unreadable(problems)
            # A piece without images is of floats, which would make the others floats.
            loaded = [piece for piece in loaded if len(piece[1])] or loaded[:1]
            parts = [self._on_device(*piece) for piece in loaded]
            if len(parts) == 1:
                yield parts[0]
            else:
                images, rows = zip(*parts, strict=True)
                yield torch.cat(images), torch.cat(rows)
        next(loader, None)  # lets the workers end their epoch

    def _on_device(self, images: Tensor, rows: Tensor) -> Batch:
        """Send a batch to the device; it may still be on its way, as the host does not wait."""
        return (
            images.to(self.device, non_blocking=True),
            rows.to(self.device, non_blocking=True),
        )


def _in_pieces(keys: Keys) -> list[Keys]:
    """Cut the keys of a batch into pieces of PIECE images, of which the last may have fewer."""
    return [keys[start : start + PIECE] for start in range(0, len(keys), PIECE)]


def keys_of(plan: EpochBatches) -> Iterator[Keys]:
    """Yield the keys of every batch of an epoch: (row, seed) of each image."""
    for rows, draws in zip(plan.rows.tolist(), plan.draws.tolist(), strict=True):
        yield list(zip(rows, draws, strict=True))


def in_order(
    images: Dataset[Batch],
    rows: NDArray[np.int64],
    *,
    batch: int,
    workers: int,
    device: torch.device = CPU,
) -> Iterator[Batch]:
    """Yield the images of these rows (n,) of a manifest with their rows, `batch` at a time."""
    keys = [(int(row), 0) for row in rows]  # of one seed, since nothing in them is random
    batches = (keys[start : start + batch] for start in range(0, len(keys), batch))
    return Batches(images, workers=workers, device=device).of(batches)


def all_tests(dataset: datasets.Dataset) -> Manifest:
    """Join the items of all tests, each once, in the order of the first test that has them."""
    tests = list(dataset.tests.values())
    if len(tests) == 1:
        return tests[0]
    items = np.concatenate([test.items for test in tests])
    # np.unique orders by name: the places at which each item comes first, put back in order
    _, places = np.unique(items.astype(str), return_index=True)
    first = np.sort(places)
    columns: dict[str, Any] = {}
    for name in ("labels", "query", "gallery"):
        joined = np.concatenate([getattr(test, name) for test in tests])
        columns[name] = joined[first]
    # `ignore`, what each query leaves out of its ranking, belongs to a single test
    return dataclasses.replace(tests[0], items=items[first], ignore=None, **columns)


def _as_it_is(batch: Any) -> Any:
    """Return the argument; a function of the module, which workers can be sent, unlike a lambda."""
    return batch


def _unreadable(problems: Unreadable) -> DataError:
    """Make one error of all unreadable images of a batch, at least one: that of the image itself
    if there is one, else one that names the images and the first one's reason."""
    first = next(iter(problems.values()))
    if len(problems) == 1:
        return first
    reasons = f"{examples(problems, most=MOST_NAMED)}; the first: {first.found}"
    return DataError(f"{len(problems)} images cannot be read", found=reasons, fix=first.fix)
