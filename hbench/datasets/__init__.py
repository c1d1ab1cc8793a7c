"""Loads datasets by name, folder or table, and builds published ones from their SPEC (one file each
in `benchmarks`).

>>> glyphs = load("glyphs")
>>> glyphs.levels, len(glyphs.train), len(glyphs.tests["test"])
(('script', 'case', 'base', 'character'), 9474, 11164)
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path

from hbench.core import paths
from hbench.core.arguments import checked
from hbench.core.errors import DataError, IntegrityError, UnknownName, UsageError
from hbench.datasets import benchmarks
from hbench.datasets.dataset import Dataset, Protocol, read, save
from hbench.datasets.own.data import read_single
from hbench.datasets.own.qrels import is_qrels, read_qrels
from hbench.datasets.pictures import open_picture
from hbench.datasets.spec import Spec, specs
from hbench.sheets import sheet
from hbench.sheets.columns import NOTHING, Chosen
from hbench.sheets.dialect import suffix_of

__all__ = [
    "Dataset",
    "Protocol",
    "Spec",
    "assemble",
    "folders",
    "load",
    "own_names",
    "read",
    "save",
    "specs",
]


OPENED = (
    "opened as in the papers: hidden colours of transparent pixels are shown, EXIF rotation "
    "is ignored"
)


@checked
def load(
    name_or_path: str | Path,
    policies: str | Sequence[str] = (),
    *,
    item: str | None = None,
    levels: str | Sequence[str] = (),
    separator: str | None = None,
    taxonomy: str | Path | None = None,
    several: bool = False,
    level_names: str | Sequence[str] = (),
    taxon: str | None = None,
) -> Dataset:
    """Load a dataset by name ("sop", "sop@1"), from its folder, or from a table of your own.

    Args:
        name_or_path: a name of `hbench.list_datasets()` or of your own, a folder, or a table (.csv,
            .tsv, .parquet).
        policies: mend the names in a table (docs/labels.md), a list or a text with commas; a built
            dataset takes none.
        item: the column of ids of a table. Default: the one that looks so; `dataset.read` says
            which.
        levels: its columns of names, coarse to fine. Default: those that nest.
        separator: what stands between the names of a path in a cell, such as ">".
        taxonomy: a table of taxa, whose ids a column holds.
        several: whether an item may have several paths (docs/labels.md). Default: no.
        level_names: what the levels of paths in one column are called, coarse to fine.
        taxon: the column of the ids of `taxonomy`. Default: that in which most rows find theirs.

    Returns:
        A Dataset with its manifests for training and testing.

    Raises:
        UnknownName: a dataset, column or policy that does not exist.
        DataError: files that are not on this disk or not readable.
        IntegrityError: files that changed since the dataset was built.
        TreeError: names that do not form a tree.
        UsageError: choices that do not apply, such as policies for a built dataset.
    """
    path = Path(name_or_path)
    policies = (policies,) if isinstance(policies, str) else tuple(policies)
    policies = tuple(name.strip() for text in policies for name in text.split(",") if name.strip())
    columns = Chosen(
        item,
        _words(levels),
        separator,
        taxonomy=None if taxonomy is None else Path(taxonomy),
        several=several,
        level_names=_words(level_names),
        taxon=taxon,
    )
    # a table that is not there is refused by its reader, which says so
    if path.is_file() or suffix_of(path) in sheet.SUFFIXES:
        # a table of query, item and grade lists positives, unless the caller says of columns or
        # policies, which only a table of names has
        if columns == NOTHING and not policies and path.is_file() and is_qrels(path):
            return read_qrels(path)
        data = read_single(path, policies, columns if columns != NOTHING else None)
        return _with_options(data, _options(columns, policies))

    _refuse_choices(str(name_or_path), policies, columns)
    return _by_name(str(name_or_path))


def _by_name(named: str) -> Dataset:
    """Load a dataset that is built or published, by its name, "sop" or with a version "sop@1", or
    by its folder. Raises DataError for a published one that is not on this disk."""
    path = Path(named)
    name, _, version = named.partition("@")
    plain = name == Path(name).name and name not in {"", ".", ".."}  # a name, and no path
    built = next(
        (folder for folder in folders(name) if plain and (folder / "dataset.json").exists()), None
    )
    if name not in specs:
        return _own_dataset(path, built, version, is_plain=plain)
    if built is None and specs[name].markers:
        raise DataError(
            f"{name} is not on this disk",
            expected=f"a built dataset in {' or '.join(map(str, folders(name)))}",
            fix=specs[name].advice,
        )

    # one that needs no files, such as glyphs, is made each time
    dataset = (
        assemble(specs[name], None)
        if built is None or not specs[name].markers
        else _as_published(read(built))
    )
    return _of_version(dataset, version)


def _options(columns: Chosen, policies: Sequence[str]) -> dict[str, object]:
    """What a user said about a table, as arguments of `load`, and plain JSON values: a report keeps
    them, so that the table can be read again so. What was not said is left out."""
    said = {
        "policies": list(policies),
        "item": columns.item,
        "levels": list(columns.levels),
        "separator": columns.separator,
        "taxonomy": None if columns.taxonomy is None else str(columns.taxonomy.absolute()),
        "several": columns.several,
        "level_names": list(columns.level_names),
        "taxon": columns.taxon,
    }
    return {name: value for name, value in said.items() if value}


def _with_options(data: Dataset, options: dict[str, object]) -> Dataset:
    """The dataset of a table with what was said about it kept in its record."""
    if data.read is None or not options:
        return data
    return dataclasses.replace(data, read=dataclasses.replace(data.read, options=options))


def _words(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names that are given in a list, or in one text with commas between."""
    return tuple(names.split(",") if isinstance(names, str) else names)


def _own_dataset(path: Path, built: Path | None, version: str, *, is_plain: bool) -> Dataset:
    """Read a dataset that is none of the published: a folder at `path`, or one that was `built` by
    its name, in this folder, None where there is none. `version`: the one asked for, "" for any;
    `is_plain`: what was given is a name, and no path. Raises UnknownName or DataError."""
    # a folder that is no dataset is read, too, where nothing else is meant: the refusal says why
    if path.is_dir() and ((path / "dataset.json").exists() or built is None):
        # a published dataset that was built into a folder of the user's is opened as one
        return _as_published(read(path))
    # even where the working folder has a folder of this name, such as that of its images
    if built is not None:
        return _of_version(read(built), version)
    if not is_plain:
        problem = "is neither a dataset nor a table" if path.exists() else "does not exist"
        raise DataError(
            f"{path} {problem}",
            expected=f"a dataset's name, its folder, or {', '.join(sheet.SUFFIXES)}",
        )
    name = path.name.partition("@")[0]
    raise UnknownName("dataset", name, [*specs, *own_names()], searched=paths.data_home())


def _refuse_choices(name: str, policies: Sequence[str], columns: Chosen) -> None:
    """Raise UsageError for choices that only a table leaves open; `name`: what is loaded, which is
    none."""
    tables = f"one of {', '.join(sheet.SUFFIXES)}"
    if columns != NOTHING:
        raise UsageError(
            "the columns of a table can be chosen",
            expected=tables,
            found=name,
            fix="leave --item, --levels, --level-names, --separator, --taxonomy and --several out",
        )
    if policies:
        raise UsageError(
            "a policy mends the names of a table",
            expected=tables,
            found=name,
            fix="leave --policy out: the policies of a built dataset were chosen when it was built",
        )


def folders(name: str) -> list[Path]:
    """List the folders in which a dataset of this name may be: the data folder, then, where that is
    read-only, the cache.
    """
    return [paths.data_home() / name, paths.cache_home() / "datasets" / name]


def own_names() -> list[str]:
    """List the datasets that the user built under names of their own."""
    # `folders` gives the places of a dataset of any name: their parents hold all
    names = {
        path.parent.name for folder in folders("x") for path in folder.parent.glob("*/dataset.json")
    }
    return sorted(names - set(specs))


def assemble(spec: Spec, raw: Path | None) -> Dataset:
    """Make the dataset that `spec` builds from the folder of its raw files, None for one that needs
    none; raises IntegrityError where a split has another digest than published.
    """
    folder = raw or Path()
    splits = spec.manifests(folder)
    for split, digest in spec.digests.items():
        if splits[split].digest != digest:
            raise IntegrityError(
                f"{spec.name}/{split} is not the published one",
                expected=f"digest {digest}",
                found=splits[split].digest,
            )

    train = splits.pop("train", None)
    names = spec.official_names(folder)
    lists = spec.lists(folder)
    dataset = Dataset(
        spec.name,
        spec.version,
        spec.protocol,
        train,
        splits,
        official_names=names,
        lists=lists,
        card=card(spec),
    )
    # copies of a dataset hold their images in other folders: the one with the first item is taken
    item = next(iter(splits.values())).items[0]
    root = next(
        (images for images in spec.images if (folder / images / item).exists()), spec.images[0]
    )

    return dataset.rooted(folder / root, spec.picture)


def card(spec: Spec) -> dict[str, object]:
    """Collect what a person wants to know about a dataset, as plain JSON values."""
    names = ("title", "homepage", "licence", "citation", "size", "defects", "manual", "layout")
    facts = {name: getattr(spec, name) for name in names if getattr(spec, name)}
    return facts | ({"pixels": OPENED} if spec.picture is open_picture else {})


def _of_version(dataset: Dataset, version: str) -> Dataset:
    """The dataset, if it is of the version that was asked for, "" for any; else DataError."""
    if version not in {"", dataset.version}:
        name = dataset.name
        there = f"{dataset.name}@{dataset.version}"
        raise DataError(
            f"another version of {name} is on this disk", expected=f"{name}@{version}", found=there
        )
    return dataset


def _as_published(dataset: Dataset) -> Dataset:
    """The dataset with its images opened as its papers do, if it is a published one; any other
    unchanged."""
    return (
        dataset.rooted(dataset.root, specs[dataset.name].picture)
        if dataset.name in specs
        else dataset
    )


# last, since they import from this module
for _module in pkgutil.iter_modules(benchmarks.__path__):
    for _spec in vars(importlib.import_module(f"{benchmarks.__name__}.{_module.name}")).values():
        if isinstance(_spec, Spec):
            specs.register(_spec.name)(_spec)
