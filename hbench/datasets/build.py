"""Builds a published dataset from its raw files, and checks its counts and image files."""

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
    """The comparison of a folder's files with the items: `missing` items have no file, `surplus` files no item."""

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
    """Compare the items of all manifests with the image files below `folder`."""
    items = {str(item) for manifest in manifests for item in manifest.items}
    files = set(images_below(folder))
    return Joined(len(items), tuple(sorted(items - files)), tuple(sorted(files - items)))


def counted(manifest: Manifest, official: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, int]:
    """Count the images, queries and gallery items of a manifest, and the names of each level.

    Names with the same name in `official` ({level: {name: official name}}) count once.
    """
    nodes = {}
    for level, names in zip(manifest.levels, manifest.tree.names, strict=True):
        renamed = (official or {}).get(level, {})
        nodes[level] = len({renamed.get(name, name) for name in names})
    masks = {"queries": int(manifest.query.sum()), "gallery": int(manifest.gallery.sum())}
    return {"images": len(manifest), **masks, **nodes}


def count_errors(dataset: Dataset, expected: Mapping[str, Mapping[str, int]]) -> list[str]:
    """List the counts that differ from those published, {split: {"images" or a level: n}}, in one line each."""
    errors = []
    for split, published in expected.items():
        numbers = counted(dataset.manifests[split], dataset.official_names)
        errors += [
            f"{split}: {numbers[what]:,} {what}, published {number:,}"
            for what, number in published.items()
            if numbers[what] != number
        ]
    return errors


ADOPTED = "adopted.txt"  # a file in the raw folder that names the folder of the user's copy


def raw_folder(spec: Spec) -> Path:
    """The default folder of a dataset's raw files, for downloads and builds."""
    return paths.data_home() / spec.source / "raw"


def find_raw(spec: Spec, root: Path | None) -> Path:
    """Find the folder with a marker of the spec: `root`, or one at most two levels below; raises DataError."""
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
        expected=f"{' or '.join(spec.markers)} there, or at most two folders below",
        fix=spec.manual or f"hbench download {spec.name}, or name the folder that holds them with --root DIR",
    )


def build(spec: Spec, root: Path | None, *, unofficial: bool = False) -> tuple[Dataset, Joined | None, list[str]]:
    """Build a dataset from its raw files; return it, its items compared with the image files, and the counts that differ.

    Unless `unofficial`, raises IntegrityError for other counts than published, and where some of the images, but not all,
    are missing. The version of an unofficial dataset ends in its digest.
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
            fix="download the files again, or build with --unofficial (the version will say so)",
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
    """Choose the folder for a build of this name: the first that can be written."""
    for folder in folders(name):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if os.access(existing, os.W_OK):
            return folder
    raise DataError(
        "neither the data folder nor the cache folder can be written",
        found=examples(folders(name)),
        fix="name a folder with --out DIR, or set HBENCH_HOME",
    )


def unreadable(root: Path, items: Iterable[str]) -> str:
    """Name every picture whose header cannot be read, in one sentence; "" where there are none."""
    reasons = []
    for item in items:
        try:
            if (root / item).is_file():
                check_picture(root / item)
        except OSError as error:
            reasons.append(f"{item} ({str(error).replace(str(root / item), 'it')})")
    listed = f"{len(reasons):,} pictures cannot be read: {', '.join(reasons)}; replace them, or leave them out"
    return listed if reasons else ""
