"""Checks of a build: its counts against the published ones, its items against the files on disk, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hbench.datasets.dataset import Dataset
from hbench.datasets.own import images_below
from hbench.errors import examples
from hbench.manifest import Manifest


@dataclass(frozen=True)
class Joined:
    """How the labels and the files of a folder meet: `missing` are items without a file, `surplus` files without
    an item."""

    items: int
    missing: tuple[str, ...]
    surplus: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.items - len(self.missing):,} of {self.items:,} images are there"]
        if self.missing:
            parts.append(f"{len(self.missing):,} missing ({examples(self.missing, most=3)})")
        if self.surplus:
            parts.append(f"{len(self.surplus):,} files without a label ({examples(self.surplus, most=3)})")
        return "; ".join(parts)


def joined(manifests: Iterable[Manifest], folder: Path) -> Joined:
    """The items of all manifests against the image files below `folder`."""
    items = {str(item) for manifest in manifests for item in manifest.items}
    files = set(images_below(folder))
    return Joined(len(items), tuple(sorted(items - files)), tuple(sorted(files - items)))


def counted(manifest: Manifest, official: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, int]:
    """The number of images, queries and gallery items of a manifest, and of the names of each level.

    Names that are one under `official` ({level: {name: official name}}) count once.
    """
    nodes = {}
    for level, names in zip(manifest.levels, manifest.tree.names, strict=True):
        same = (official or {}).get(level, {})
        nodes[level] = len({same.get(name, name) for name in names})
    masks = {"queries": int(manifest.query.sum()), "gallery": int(manifest.gallery.sum())}
    return {"images": len(manifest), **masks, **nodes}


def count_errors(dataset: Dataset, expected: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What differs from the published counts, one line per number; `expected` is {split: {"images" or a level: n}}."""
    errors = []
    for split, numbers in expected.items():
        found = counted(dataset.manifests[split], dataset.official_names)
        errors += [
            f"{split}: {found[what]:,} {what}, published {number:,}"
            for what, number in numbers.items()
            if found[what] != number
        ]
    return errors
