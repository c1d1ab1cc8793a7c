"""Makes batches of image tensors for training and embedding, from files that worker processes
decode, or from images in memory.

A batch is (images (B, C, H, W), rows int64 (B,) of the manifest). Images from files are uint8;
images in memory are float32 and normalised. Every image is varied with its own seed, so that
neither the number of workers nor resuming an epoch changes it. Workers make pieces of batches, and
live as long as the training. A GPU receives the pieces through pinned memory while it computes.
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
Unreadable = dict[str, DataError]  # {item: error}
Keys = list[tuple[int, int]]  # (row, seed) of every image of a batch
NONE = "none"
SHIFTED = "shifted"
CPU = torch.device("cpu")
MOST_NAMED = 100  # unreadable images that an error names
MOST_HELD = 2**31  # bytes of pixels that the augmentation `shifted` keeps in memory
# images that a worker makes at once; it limits the memory of workers and queue for large batches
PIECE = 256

# {(dataset, side in pixels): function that makes its images (N, H, W) in memory}
HELD: dict[tuple[str, int], Callable[[Manifest], NDArray[np.uint8]]] = {
    ("glyphs", glyphs.SIDE): glyphs.images
}


class Files(Dataset[Batch]):
    """The images of a manifest, opened from files. A batch with unreadable images is replaced by
    {item: error}.

    `skips`: leave unreadable images out instead, so that a batch may have fewer images, or none.
    """

    skips = False

    def __init__(self, manifest: Manifest, prepare: Prepare) -> None:
        """Keep the items of the manifest. `prepare`: converts a picture to the tensor (C, H, W) for
        the net. Raises DataError if the images are not on this disk."""
        if manifest.picture is None:
            fix = "hbench download NAME, then hbench build NAME"
            raise DataError("the images of this dataset are not on this disk", fix=fix)
        self.items = manifest.items
        self.open = manifest.picture  # a function from an item to its picture
        self.prepare = prepare

    def __getitems__(self, keys: Keys) -> Batch | Unreadable:
        """Open and prepare the pictures of a batch. Return (images, rows), or {item: error} if some
        are unreadable and are not to be skipped (`self.skips`). torch's loader calls this with all
        keys, (row, seed) each, of a batch at once.

        Random numbers for a picture are drawn with its own seed, so that they do not depend on the
        worker or on the order of pictures.
        """
        images = []
        rows = []
        problems = {}
        for row, seed in keys:
            try:
                image = self.open(self.items[row])
                with torch.random.fork_rng(devices=[]):
                    # unlike torch.manual_seed this does not also seed the GPUs, for every image
                    torch.default_generator.manual_seed(seed)
                    images.append(self.prepare(image))
                rows.append(row)
            except DataError as error:
                # not raised here: the loader would turn an error in a worker into a traceback
                problems[str(self.items[row])] = error

        if problems and not self.skips:
            return problems

        pixels = torch.stack(images) if images else torch.empty(0)  # all may have been left out
        return pixels, torch.tensor(rows, dtype=torch.int64)


class Held(Dataset[Batch]):
    """Images that are kept in memory, and varied by `shift_images` unless `scale` is None."""

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        settings: Images,
        scale: tuple[float, float] | None,
        outside: Outside = "zeros",
    ) -> None:
        """Keep the images.

        Args:
            pixels: uint8 (N, H, W, C), or (N, H, W) if grey.
            settings: these have the mean and deviation of each colour, for normalising.
            scale: the smallest and the largest factor by which an image is scaled when it is
                varied; None: images are not varied.
            outside: what is shown beyond the edge of a shifted image: black ("zeros"), or the pixel
                at the edge ("border").
        """
        channels_last = pixels if pixels.ndim == 4 else pixels[..., None]  # grey: one channel
        self.pixels = torch.from_numpy(channels_last).permute(0, 3, 1, 2)  # (N, C, H, W)
        self.mean = torch.tensor(settings.mean)[:, None, None]
        self.std = torch.tensor(settings.std)[:, None, None]
        self.scale = scale
        self.outside = outside

    def __getitems__(self, keys: Keys) -> Batch:
        """Return a batch, (normalised images float32 (B, C, H, W), rows (B,)), for its keys, (row,
        seed) each. torch's loader calls this with all keys of a batch at once.

        Each image is varied with its own seed, unless `self.scale` is None: scaled by a factor
        between the two numbers of `scale`, rotated and shifted. `self.outside` is what is shown
        beyond its edge, black or the pixel at the edge.
        """
        rows, seeds = (np.array(column, dtype=np.int64) for column in zip(*keys, strict=True))
        images = self.pixels[torch.from_numpy(rows)].float() / 255
        if self.scale is not None:
            images = shift_images(images, seeds, self.scale, self.outside)
        return (images - self.mean) / self.std, torch.from_numpy(rows)


def images_of(name: str, manifest: Manifest, settings: Images, *, vary: bool) -> Dataset[Batch]:
    """Make the images of a manifest of the dataset `name`. They are kept in memory if the dataset
    generates them there (HELD), or if the augmentation is `shifted`; else they are opened from
    files.
    `vary`: whether to vary them, as for training."""
    chosen = settings.augment if vary else NONE
    # the function that generates this dataset's images at this size, if there is one
    held = HELD.get((name, settings.size))
    if held is not None:
        if chosen not in (NONE, SHIFTED):
            raise UnknownName("augmentation of images in memory", chosen, [NONE, SHIFTED])
        # `scale`, the range of factors of a shifted image; with None images are not varied
        return Held(held(manifest), settings, settings.scale if chosen == SHIFTED else None)
    if chosen == SHIFTED:
        # the pixels at the edge continue outside: black would frame the scan of a white paper
        return Held(decode_images(manifest, settings), settings, settings.scale, outside="border")
    return Files(manifest, variation_of(settings) if vary else augmentations[NONE](settings))


def decode_images(manifest: Manifest, settings: Images) -> NDArray[np.uint8]:
    """Decode all images of a manifest into memory, uint8 (N, H, W, C), without augmentation. So
    small images are decoded only once in a run.

    Raises ConfigError for more bytes than MOST_HELD, DataError that names unreadable images.
    """
    refuse_too_large(len(manifest), settings)
    files = Files(manifest, augmentations[NONE](settings))
    rows = np.arange(len(manifest))
    # without workers, since their images would have to be copied between processes
    pieces = [images.numpy() for images, _ in in_order(files, rows, batch=PIECE, workers=0)]
    return np.concatenate(pieces).transpose(0, 2, 3, 1)


def refuse_too_large(images: int, settings: Images) -> None:
    """Raise ConfigError if the augmentation `shifted` would keep more than MOST_HELD bytes of
    pixels in memory. `images`: their number."""
    needed = images * settings.size**2 * len(settings.mean)  # one byte for each colour of a pixel
    if settings.augment == SHIFTED and needed > MOST_HELD:
        raise ConfigError(
            f"{SHIFTED} images are held in memory",
            expected=f"at most {MOST_HELD:,} bytes of pixels",
            found=f"{needed:,}",
            fix="--set images.augment=crop decodes them anew each time",
        )


def workers_for(images: Dataset[Batch], settings: Images) -> int:
    """Return the number of processes that decode images: that of the recipe or, by default, one per
    processor, at most 10, and 0 for images in memory, which need no decoding.
    """
    if settings.workers is not None:
        return settings.workers
    if not isinstance(images, Files):
        return 0
    return min(10, os.cpu_count() or 1)


class Batches:
    """Makes batches on a device, for one epoch after another, with the same worker processes."""

    def __init__(self, images: Dataset[Batch], *, workers: int, device: torch.device = CPU) -> None:
        """Make the loader. `workers`: number of processes that decode; 0: decode in this process.
        `device`: where batches are copied to."""
        self.device = device
        # the pieces of the next epoch: the loader refers to this list, which `of` refills
        self._pieces: list[Keys] = []
        # The loader gets its own generator. By default it would draw from torch's generator, which
        # would change the random numbers of a resumed run.
        self._loader: DataLoader[Any] = DataLoader(
            images,
            batch_sampler=self._pieces,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=_as_it_is,  # the dataset returns whole pieces already
            generator=torch.Generator(),
            pin_memory=device.type == "cuda",
        )

    def of(self, batches: Iterable[Keys]) -> Iterator[Batch]:
        """Yield the batches of an epoch in order. `batches`: the keys of each, (row, seed) of every
        image. Raises DataError that names the unreadable images of a batch.

        The workers make pieces of batches, so that they share the work on a large batch. The pieces
        of a batch are joined on the device.
        """
        pieces_of_batches = [_in_pieces(keys) for keys in batches]
        # refilled in place: the loader has a reference to this list, and iterates over it
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
            # A piece without images is a float tensor, and would turn the pieces that it is joined
            # with into floats, so it is dropped. If no piece has images, one of them is the batch.
            loaded = [piece for piece in loaded if len(piece[1])] or loaded[:1]
            parts = [self._on_device(*piece) for piece in loaded]
            if len(parts) == 1:
                yield parts[0]
            else:
                images, rows = zip(*parts, strict=True)
                yield torch.cat(images), torch.cat(rows)
        next(loader, None)  # exhaust the loader, so that the workers end their epoch

    def _on_device(self, images: Tensor, rows: Tensor) -> Batch:
        """Copy a batch to the device without waiting: the copy may not be finished on return."""
        return (
            images.to(self.device, non_blocking=True),
            rows.to(self.device, non_blocking=True),
        )


def _in_pieces(keys: Keys) -> list[Keys]:
    """Split the keys of a batch into pieces of PIECE images; the last piece may have fewer."""
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
    """Yield batches of `batch` images for these rows (n,) of a manifest, in this order."""
    keys = [(int(row), 0) for row in rows]  # any seed will do: nothing is random here
    batches = (keys[start : start + batch] for start in range(0, len(keys), batch))
    return Batches(images, workers=workers, device=device).of(batches)


def all_tests(dataset: datasets.Dataset) -> Manifest:
    """Join the items of all tests into one manifest, test after test. An item of several tests is
    kept only in the first."""
    tests = list(dataset.tests.values())
    if len(tests) == 1:
        return tests[0]
    items = np.concatenate([test.items for test in tests])
    # np.unique sorts by name: sort the positions of the first occurrences to restore the order
    _, places = np.unique(items.astype(str), return_index=True)
    first = np.sort(places)
    columns: dict[str, Any] = {}
    for name in ("labels", "query", "gallery"):
        joined = np.concatenate([getattr(test, name) for test in tests])
        columns[name] = joined[first]
    # ignore groups belong to a single test, so they are dropped
    return dataclasses.replace(tests[0], items=items[first], ignore=None, **columns)


def _as_it_is(batch: Any) -> Any:
    """Return the argument. It is a function of the module since lambdas cannot be pickled, which
    sending it to workers requires."""
    return batch


def _unreadable(problems: Unreadable) -> DataError:
    """Combine the errors of the unreadable images of a batch. A single error is returned itself;
    for several, the error names the images and the reason of the first one."""
    first = next(iter(problems.values()))
    if len(problems) == 1:
        return first
    reasons = f"{examples(problems, most=MOST_NAMED)}; the first: {first.found}"
    return DataError(f"{len(problems)} images cannot be read", found=reasons, fix=first.fix)
