"""Loads datasets by name, folder or table, and builds published ones from their SPEC. Each SPEC has
a module in `benchmarks`.

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
        policies: mend the names in a table (docs/labels.md): a list, or one text with commas. A
            built dataset takes none.
        item: the column of the table that holds the items' ids. Default: it is guessed, and
            `dataset.read` says which column it is.
        levels: the table's columns of names, coarse to fine. Default: those that nest.
        separator: the text between the names of a path in a cell, such as ">".
        taxonomy: a table of taxa. A column of the dataset's table holds their ids.
        several: whether an item may have several paths (docs/labels.md). Default: no.
        level_names: the names of the levels, coarse to fine, if one column holds whole paths.
        taxon: the column that holds ids of `taxonomy`. Default: the column with most known ids.

    Returns:
        A Dataset with its manifests for training and testing.

    Raises:
        UnknownName: a dataset, column or policy does not exist.
        DataError: files are not on this disk or not readable.
        IntegrityError: files changed since the dataset was built.
        TreeError: the names do not form a tree.
        UsageError: a choice does not apply, such as a policy for a built dataset.
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
    # a path with the suffix of a table counts as a table even if there is no such file: the reader
    # of tables refuses it with a clear message
    if path.is_file() or suffix_of(path) in sheet.SUFFIXES:
        # a table of query, item and grade lists positives; but choices of columns or policies only
        # make sense for a table of names
        if columns == NOTHING and not policies and path.is_file() and is_qrels(path):
            return read_qrels(path)
        # None: nothing was chosen. A built manifest (.parquet) refuses any choice
        data = read_single(path, policies, columns if columns != NOTHING else None)
        # the choices are stored in `data.read`: a report keeps them, to read the table again
        return _with_options(data, _options(columns, policies))

    _refuse_choices(str(name_or_path), policies, columns)
    return _by_name(str(name_or_path))


def _by_name(named: str) -> Dataset:
    """Load a built or published dataset by its name ("sop", or "sop@1" with a version) or by its
    folder. Raises DataError if it is published, but not on this disk, or if another version is."""
    path = Path(named)
    name, _, version = named.partition("@")
    plain = name == Path(name).name and name not in {"", ".", ".."}  # a name, not a path
    # `folders`: where a dataset of this name may be stored, in the data folder and in the cache
    built = next(
        (folder for folder in folders(name) if plain and (folder / "dataset.json").exists()), None
    )
    if name not in specs:
        return _own_dataset(path, built, version, is_plain=plain)
    # the markers of a spec are the paths that identify its raw files; without any it needs no files
    if built is None and specs[name].markers:
        raise DataError(
            f"{name} is not on this disk",
            expected=f"a built dataset in {' or '.join(map(str, folders(name)))}",
            fix=specs[name].advice,
        )

    # A dataset that needs no files, such as glyphs, is assembled each time. Others are built, as
    # was tested above: they are read, and their images are opened as in the papers.
    dataset = (
        assemble(specs[name], None)
        if built is None or not specs[name].markers
        else _as_published(read(built))
    )
    return _of_version(dataset, version)


def _options(columns: Chosen, policies: Sequence[str]) -> dict[str, object]:
    """Return what a user said about a table, as arguments of `load` in plain JSON values. Choices
    that were not made are left out. A report keeps these options, so that the table can be read
    again in the same way."""
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
    """Return the dataset of a table with the user's `options` stored in its record `read`."""
    if data.read is None or not options:
        return data
    return dataclasses.replace(data, read=dataclasses.replace(data.read, options=options))


def _words(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names that are given as a list, or as one text with commas between them."""
    return tuple(names.split(",") if isinstance(names, str) else names)


def _own_dataset(path: Path, built: Path | None, version: str, *, is_plain: bool) -> Dataset:
    """Read a dataset whose name is not that of a published one.

    Args:
        path: what the user gave, as a path: it may be the folder of the dataset.
        built: the folder of a dataset that was built under this name; None if there is none.
        version: the requested version, "" for any.
        is_plain: whether the user gave a name, not a path.

    Raises UnknownName or DataError if there is no such dataset.
    """
    # Without a dataset that was built under this name, a folder that has no dataset.json is read,
    # too: the error then names this file.
    if path.is_dir() and ((path / "dataset.json").exists() or built is None):
        # the folder may hold a published dataset that the user built there: its images are opened
        # as in its papers
        return _as_published(read(path))
    # what was built under this name is preferred to a folder of this name that is no dataset, such
    # as the folder of its images
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
    """Raise UsageError for choices that only apply to tables; `name`: the dataset that is loaded,
    which is not a table."""
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
    """List the folders in which a dataset of this name may be stored: one in the data folder, then
    one in the cache, which is used if the data folder is read-only."""
    return [paths.data_home() / name, paths.cache_home() / "datasets" / name]


def own_names() -> list[str]:
    """List the datasets that the user built under names of their own."""
    # the folders of any name, here "x", have the parents that hold all datasets
    names = {
        path.parent.name for folder in folders("x") for path in folder.parent.glob("*/dataset.json")
    }
    return sorted(names - set(specs))


def assemble(spec: Spec, raw: Path | None) -> Dataset:
    """Make the dataset of a SPEC from its raw files; raises IntegrityError if a split has another
    digest than published. `raw`: the folder of the raw files, None if the dataset needs none."""
    # a dataset that needs no files does not read its raw folder, but its functions take one
    folder = raw or Path()
    splits = spec.manifests(folder)  # {split: manifest}
    for split, digest in spec.digests.items():
        if splits[split].digest != digest:
            raise IntegrityError(
                f"{spec.name}/{split} is not the published one",
                expected=f"digest {digest}",
                found=splits[split].digest,
            )

    train = splits.pop("train", None)  # the other splits are tests
    names = spec.official_names(folder)  # {level: {name: name in the released evaluators}}
    lists = spec.lists(folder)  # {test: table of query, item and level}, where labels do not decide
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
    # users' copies of a dataset have their images in different folders of `spec.images`: the folder
    # that has the first item is taken
    item = next(iter(splits.values())).items[0]
    root = next(
        (images for images in spec.images if (folder / images / item).exists()), spec.images[0]
    )

    # spec.picture opens the image of an item, given the folder of the images
    return dataset.rooted(folder / root, spec.picture)


def card(spec: Spec) -> dict[str, object]:
    """Collect the facts about a published dataset that its card shows, as plain JSON values."""
    names = ("title", "homepage", "licence", "citation", "size", "defects", "manual", "layout")
    facts = {name: getattr(spec, name) for name in names if getattr(spec, name)}
    return facts | ({"pixels": OPENED} if spec.picture is open_picture else {})


def _of_version(dataset: Dataset, version: str) -> Dataset:
    """Return the dataset if it has the requested version ("": any); raise DataError otherwise."""
    if version not in {"", dataset.version}:
        name = dataset.name
        there = f"{dataset.name}@{dataset.version}"
        raise DataError(
            f"another version of {name} is on this disk", expected=f"{name}@{version}", found=there
        )
    return dataset


def _as_published(dataset: Dataset) -> Dataset:
    """Return a published dataset such that its images are opened as in its papers; return any other
    dataset unchanged."""
    return (
        dataset.rooted(dataset.root, specs[dataset.name].picture)
        if dataset.name in specs
        else dataset
    )


# at the end, since the modules of benchmarks may import from this module
for _module in pkgutil.iter_modules(benchmarks.__path__):
    for _spec in vars(importlib.import_module(f"{benchmarks.__name__}.{_module.name}")).values():
        if isinstance(_spec, Spec):
            specs.register(_spec.name)(_spec)
