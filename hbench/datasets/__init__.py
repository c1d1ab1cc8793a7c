"""Loads datasets by name, folder or table, and builds published ones from their SPEC (one file each in `benchmarks`).

>>> glyphs = load("glyphs")
>>> glyphs.levels, len(glyphs.train), len(glyphs.tests["test"])
(('script', 'case', 'base', 'character'), 9474, 11164)
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path

from hbench.core import paths
from hbench.core.errors import DataError, IntegrityError, UnknownName, UsageError
from hbench.core.tables import SUFFIXES, kind_of
from hbench.datasets import benchmarks
from hbench.datasets.dataset import Dataset, Protocol, read, save
from hbench.datasets.manifest import open_picture
from hbench.datasets.own_data import read_single
from hbench.datasets.spec import Spec, specs

__all__ = ["Dataset", "Protocol", "Spec", "assemble", "folders", "load", "own_names", "read", "save", "specs"]


OPENED = "opened as the papers did: colours hidden under transparency are shown, EXIF turns nothing"


def load(name_or_path: str | Path, policies: Sequence[str] = ()) -> Dataset:
    """A dataset by its registered name ("sop", "sop@1"), from a built dataset's folder, or from one table
    (.csv, .tsv, .parquet), whose names the policies (hbench.tree.policies) mend.

    Raises UnknownName for a name that is not registered, DataError where its files are not on this disk,
    IntegrityError where they are not what was built.
    """
    path = Path(name_or_path)
    name, _, version = str(name_or_path).partition("@")
    if kind_of(path) in SUFFIXES:
        return read_single(path, policies)
    if policies:
        raise UsageError(
            "a policy mends the names of a table", expected=f"one of {', '.join(SUFFIXES)}", found=str(name_or_path),
            fix="leave --policy out: it was chosen when the dataset was built",
        )  # fmt: skip
    if name not in specs:
        if path.is_dir() and ((path / "dataset.json").exists() or not _own_folder(name)):
            return _as_published(read(path))
        if folder := _own_folder(name):  # also where a folder of this name, such as that of its images, lies here
            return read(folder)
        raise UnknownName("dataset", name, [*specs, *own_names()])
    dataset = _registered(specs[name])
    if version not in {"", dataset.version}:
        raise DataError(
            f"{name} is here in another version", expected=f"{name}@{version}", found=f"{name}@{dataset.version}"
        )
    return dataset


def folders(name: str) -> list[Path]:
    """Where a dataset of this name is looked for: the data folder, then the cache (the data folder may be
    read-only)."""
    return [paths.data_home() / name, paths.cache_home() / "datasets" / name]


def own_names() -> list[str]:
    """The datasets that somebody built under names of their own."""
    names = {path.parent.name for folder in folders("x") for path in folder.parent.glob("*/dataset.json")}
    return sorted(names - set(specs))


def assemble(spec: Spec, raw: Path | None) -> Dataset:
    """The dataset that `spec` builds from the raw folder; raises IntegrityError when a pinned digest differs."""
    folder = raw or Path()
    splits = spec.manifests(folder)
    for split, digest in spec.digests.items():
        if splits[split].digest != digest:
            raise IntegrityError(
                f"{spec.name}/{split} is not the published one", expected=f"digest {digest}", found=splits[split].digest
            )
    train = splits.pop("train", None)
    names = spec.official_names(folder) if spec.official_names else {}
    dataset = Dataset(spec.name, spec.version, spec.protocol, train, splits, official_names=names, card=card(spec))
    if spec.lists is not None:
        dataset = dataclasses.replace(dataset, lists=spec.lists(folder))
    item = next(iter(dataset.tests.values())).items[0]
    folders_of_images = [folder / images for images in spec.images]
    return dataset.rooted(
        next((f for f in folders_of_images if (f / item).exists()), folders_of_images[0]), spec.picture
    )


def card(spec: Spec) -> dict[str, object]:
    """What a person wants to know of a dataset, as plain JSON values."""
    names = ("title", "homepage", "licence", "citation", "size", "defects", "manual", "layout")
    facts = {name: getattr(spec, name) for name in names if getattr(spec, name)}
    return facts | ({"pixels": OPENED} if spec.picture is open_picture else {})


def _own_folder(name: str) -> Path | None:
    """The folder of a dataset that somebody built under a name of their own."""
    plain = name == Path(name).name and name not in {"", ".", ".."}
    return next((folder for folder in folders(name) if plain and (folder / "dataset.json").exists()), None)


def _as_published(dataset: Dataset) -> Dataset:
    """The dataset with its images opened as its papers did, where it is a published one."""
    return dataset.rooted(dataset.root, specs[dataset.name].picture) if dataset.name in specs else dataset


def _registered(spec: Spec) -> Dataset:
    if not spec.markers:
        return assemble(spec, None)
    for folder in folders(spec.name):
        if (folder / "dataset.json").exists():
            return _as_published(read(folder))
    raise DataError(
        f"{spec.name} is not on this disk",
        expected=f"a built dataset in {' or '.join(map(str, folders(spec.name)))}",
        fix=f"hbench download {spec.name}, then hbench build {spec.name} (or: hbench build {spec.name} --root DIR)",
    )


for _module in pkgutil.iter_modules(benchmarks.__path__):  # last, since they use what is defined above
    for _spec in vars(importlib.import_module(f"{benchmarks.__name__}.{_module.name}")).values():
        if isinstance(_spec, Spec):
            specs.register(_spec.name)(_spec)
