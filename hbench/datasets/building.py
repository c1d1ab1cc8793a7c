"""A build: from the raw files of a published dataset to a dataset folder, counts and files checked on the way."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from hbench import paths
from hbench.datasets import assemble, folders
from hbench.datasets.check import Joined, count_errors, joined
from hbench.datasets.dataset import Dataset
from hbench.datasets.spec import Spec
from hbench.errors import DataError, IntegrityError, examples

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
    found = (
        None
        if dataset.root is None or raw is None or not spec.on_disk
        else joined(dataset.manifests.values(), dataset.root)
    )
    if unofficial:
        if errors:
            digest = next(iter(dataset.tests.values())).digest
            dataset = dataclasses.replace(dataset, version=f"{spec.version}+{digest[:8]}")
        return dataset, found, errors
    if errors:
        raise IntegrityError(
            f"{raw} is not the published {spec.name}",
            found=examples(errors, most=8),
            expected="the counts of the papers",
            fix="fetch the files again, or go on with --unofficial (the version will say so)",
        )
    if found is not None and 0 < len(found.missing) < found.items:
        raise IntegrityError(
            f"images of {spec.name} are missing in {raw}",
            expected=f"{found.items:,} images",
            found=str(found),
            fix=f"hbench download {spec.name} --repair, or go on with --unofficial",
        )
    return dataset, found, errors


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
