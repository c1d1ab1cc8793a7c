"""Wraps manifests as torch datasets: with the labels of all levels, or like those of torchvision,
with a root and a split.

>>> import hbench
>>> images = torch_dataset(hbench.load("glyphs").train)
>>> image, labels, index = images[0]
>>> image.shape, labels.tolist(), index
(torch.Size([3, 32, 32]), [4, 8, 242, 370], 0)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.datasets import VisionDataset
from torchvision.transforms import v2

from hbench.core.arguments import checked, checked_class
from hbench.core.errors import DataError, UnknownName
from hbench.datasets import build, specs
from hbench.datasets.dataset import Dataset, read
from hbench.datasets.download.all_files import DownloadOptions, fetch_all, summary
from hbench.datasets.download.sources import sources_of
from hbench.datasets.manifest import Manifest

Transform = Callable[[Image.Image], Any]
TO_TENSOR = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()])


@checked
def torch_dataset(manifest: Manifest, transform: Transform | None = None) -> ManifestImages:
    """Make a torch dataset of (image, labels int64 (L,) coarse to fine, index).

    Args:
        manifest: such as `hbench.load("cub200").train`.
        transform: gets the image in RGB, decoded by Pillow as in torchvision's datasets. Default:
            it becomes a float tensor (3, H, W) in 0 … 1.

    Returns:
        A torch.utils.data.Dataset.

    Raises:
        DataError: images that are not on this disk.
    """
    return ManifestImages(manifest, transform or TO_TENSOR)


@checked
def vision_dataset(name: str) -> Callable[..., VisionImages]:
    """Return a class like torchvision's, whose items are (image, number of the fine class).

    `vision_dataset("cub200")(root, split, transform, target_transform, download=False)`: `root`
    holds the built dataset or its raw files, `split` is "train" or a test.

    Args:
        name: a published dataset.

    Returns:
        The class.

    Raises:
        UnknownName: a dataset or split that does not exist.
        DataError: files that are missing.
    """
    # the look-up raises for an unknown name; the partial is called like a class
    return partial(VisionImages, name=specs[name].name)


class ManifestImages(torch.utils.data.Dataset[tuple[Any, torch.Tensor, int]]):
    """Items of a manifest as (image, labels int64 (L,) coarse to fine, index)."""

    def __init__(self, manifest: Manifest, transform: Transform) -> None:
        """Keep the items of the manifest. `transform`: gets an image in RGB. Raises DataError if
        the images are not on this disk."""
        if manifest.picture is None:
            fix = "hbench download NAME, then hbench build NAME"
            raise DataError("the images of this dataset are not on this disk", fix=fix)
        self.items = manifest.items
        self.picture = manifest.picture  # a function from an item to its picture
        self.transform = transform
        self.labels = torch.from_numpy(manifest.labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, torch.Tensor, int]:
        """Return the transformed image of an item, its labels (L,), and its index."""
        # accepts numpy's integers; TypeError for anything else, such as 1.5 or a slice
        index = operator.index(index)
        return (
            self.transform(self.picture(self.items[index]).convert("RGB")),
            self.labels[index],
            index,
        )


@checked_class
class VisionImages(VisionDataset):  # type: ignore[misc]  # torchvision has no types
    """One split of a published dataset as (image, fine class), with the attributes of torchvision's
    datasets.

    `split` is "train" or a test. `classes`: the names of the fine classes. `targets`: the number of
    each item's fine class. `labels` (N, L): of all levels, coarse to fine.
    """

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        transform: Transform | None = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = False,
        *,
        name: str,
    ) -> None:
        """Read or build the published dataset `name` in `root`, a folder with the built dataset or
        its raw files. `split`: "train" or a test. `transform` and `target_transform` are applied to
        each image and to each number of a fine class. `download`: fetch the raw files first."""
        super().__init__(root, transform=transform, target_transform=target_transform)
        dataset = _dataset(name, Path(root), download=download)
        splits = dataset.tests | ({"train": dataset.train} if dataset.train is not None else {})
        if split not in splits:
            raise UnknownName("split", split, sorted(splits))

        self.manifest = splits[split]
        if self.manifest.picture is None:
            raise DataError(
                f"the images of {name} are not in {root}",
                fix=f"hbench download {name} --root {root}",
            )

        # attributes that torchvision's datasets have: classes, of the finest level, and targets
        self.classes = list(self.manifest.tree.names[-1])
        self.class_to_idx = {known: number for number, known in enumerate(self.classes)}
        self.labels = self.manifest.labels
        self.targets: list[int] = self.labels[:, -1].tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return (image, fine class) of an item, after the transforms, if there are any."""
        assert self.manifest.picture is not None  # __init__ refuses a manifest without pictures
        image: Any = self.manifest.picture(self.manifest.items[index]).convert("RGB")
        target: Any = self.targets[index]
        image = self.transform(image) if self.transform else image
        return image, self.target_transform(target) if self.target_transform else target


def _dataset(name: str, root: Path, *, download: bool) -> Dataset:
    """Read the published dataset `name` in `root`, or build it from the raw files there, which
    `download` fetches first. Raises DataError for missing files."""
    if (root / "dataset.json").exists():
        return read(root)
    spec = specs[name]
    # {file: error} of the files that could not be fetched
    if download and (problems := fetch_all(sources_of(spec), DownloadOptions(root))):
        raise summary(problems)
    dataset, _comparison_with_files, _remarks = build.build_published(spec, root)
    return dataset
