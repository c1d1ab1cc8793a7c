"""Builds a published dataset from its raw files, and checks its counts and image files on the way."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hbench.core import paths
from hbench.core.errors import DataError, IntegrityError, examples
from hbench.core.untrusted import check_picture
from hbench.datasets import assemble, folders
from hbench.datasets.dataset import Dataset
from hbench.datasets.manifest import Manifest
from hbench.datasets.own_data import images_below
from hbench.datasets.spec import Spec


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
    for split, published in expected.items():
        numbers = counted(dataset.manifests[split], dataset.official_names)
        errors += [
            f"{split}: {numbers[what]:,} {what}, published {number:,}"
            for what, number in published.items()
            if numbers[what] != number
        ]
    return errors


ADOPTED = "adopted.txt"  # in the raw folder: where the user's own files lie


def raw_folder(spec: Spec) -> Path:
    """Where downloads of a dataset go and its build looks by default."""
    return paths.data_home() / spec.source / "raw"


def find_raw(spec: Spec, root: Path | None) -> Path:
    """The folder that holds the spec's marker, absolute: `root`, or one up to two levels below it; raises DataError."""
    start = root or raw_folder(spec)
    adopted = start / ADOPTED
    if root is None and adopted.exists():
        start = Path(adopted.read_text(encoding="utf-8").strip())
    for candidates in ([start], start.glob("*/"), start.glob("*/*/")):
        for folder in sorted(candidates):
            if any((folder / marker).exists() for marker in spec.markers):
                return folder.absolute()
    raise DataError(
        f"the raw files of {spec.name} are not in {start}",
        expected=f"{' or '.join(spec.markers)} there, or up to two folders below",
        fix=spec.manual or f"hbench download {spec.name}, or say where they lie with --root",
    )


def build(spec: Spec, root: Path | None, *, unofficial: bool = False) -> tuple[Dataset, Joined | None, list[str]]:
    """The dataset of the raw files, how its items and the files on disk meet, and which counts differ.

    Raises IntegrityError for counts other than the published ones, or for images of which some, not all, are missing,
    unless `unofficial`; the version of an unofficial dataset ends in its digest.
    """
    raw = find_raw(spec, root) if spec.markers else None
    dataset = assemble(spec, raw)
    errors = count_errors(dataset, spec.counts)
    files = None
    if dataset.root is not None and raw is not None and spec.on_disk:
        files = joined(dataset.manifests.values(), dataset.root)
    if unofficial:
        if errors:
            digest = next(iter(dataset.tests.values())).digest
            dataset = dataclasses.replace(dataset, version=f"{spec.version}+{digest[:8]}")
        return dataset, files, errors
    if errors:
        raise IntegrityError(
            f"{raw} is not the published {spec.name}",
            found=examples(errors, most=8),
            expected="the counts of the papers",
            fix="fetch the files again, or build with --unofficial (the version will say so)",
        )
    if files is not None and 0 < len(files.missing) < files.items:
        raise IntegrityError(
            f"images of {spec.name} are missing in {raw}",
            expected=f"{files.items:,} images",
            found=str(files),
            fix=f"hbench download {spec.name} --repair, or build with --unofficial",
        )
    return dataset, files, errors


def writable_folder(name: str) -> Path:
    """Where a build of this name is written: the first of its folders in which writing is allowed."""
    for folder in folders(name):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if os.access(existing, os.W_OK):
            return folder
    raise DataError(
        "neither the data nor the cache folder can be written",
        found=examples(folders(name)),
        fix="say where with --out DIR, or set HBENCH_HOME",
    )


def unreadable(root: Path, items: Iterable[str]) -> str:
    """A remark on the pictures whose headers cannot be read, all of them by name; "" where there are none."""
    reasons = []
    for item in items:
        try:
            if (root / item).is_file():
                check_picture(root / item)
        except OSError as error:
            reasons.append(f"{item} ({str(error).replace(str(root / item), 'it')})")
    return (
        f"{len(reasons):,} pictures cannot be read: {', '.join(reasons)}; replace them, or leave them out"
        if reasons
        else ""
    )
