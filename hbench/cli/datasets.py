"""hbench datasets: list the benchmarks, or show one's card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli import terminal
from hbench.cli.names import DATASET

if TYPE_CHECKING:
    from hbench.datasets import Dataset, Spec
    from hbench.datasets.manifest import Manifest


SHOWN_FILES = 8  # of a card


@click.command(short_help="list the benchmarks, or show one's card")
@click.argument("name", type=DATASET, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the list as CSV.")
def command(name: str | None, *, as_json: bool, as_csv: bool) -> None:
    """List the benchmarks with what is on this disk, or show the card of NAME: a benchmark, or your
    own dataset.

    \b
    hbench datasets
    hbench datasets cub200
    """
    if as_csv and (as_json or name):
        raise click.UsageError("--csv prints the list, without NAME and --json.")
    if name is None:
        _list_datasets(as_json=as_json, as_csv=as_csv)
    else:
        _card(name, as_json=as_json)


def _list_datasets(*, as_json: bool, as_csv: bool) -> None:
    """Print all published datasets and the user's own, a row each."""
    from hbench.datasets import own_names, specs

    rows = [*(_row_of_published(specs[name]) for name in specs), *map(_row_of_own, own_names())]
    if as_json:
        terminal.show_json(rows)
        return
    # {key of a row: header of its column}
    columns = {
        "name": "name",
        "title": "title",
        "test_images": "test images",
        "here": "here",
        "size": "size",
        "levels": "levels, coarse to fine",
        "licence": "licence",
    }
    left = [name for key, name in columns.items() if key != "test_images"]
    texts = []
    for row in rows:
        cells = {key: str(row[key]) for key in columns} | {"levels": " / ".join(row["levels"])}
        if as_csv:  # a number, without the comma for people
            cells["test_images"] = cells["test_images"].replace(",", "")
        texts.append(list(cells.values()))
    terminal.show_table(None, [*columns.values()], texts, left=left, as_csv=as_csv)


def _row_of_published(spec: Spec) -> dict[str, Any]:
    """Make the row of a published dataset, with the keys that --json prints: texts, and the levels
    as a list. `test_images` is "" if the number is not published, `here` "ready", "raw files" or
    "" for what is on this disk."""
    # the number of images of each test, of its gallery if it has a separate one. Tests of a dataset
    # may share images, so take the first test with a number
    numbers = [
        counts.get("images", counts.get("gallery"))
        for split, counts in spec.counts.items()
        if split != "train"
    ]
    number = next((count for count in numbers if count), None)

    return {
        "name": spec.name,
        "title": spec.title,
        "levels": list(spec.levels),
        "test_images": f"{number:,}" if number else "",
        "size": spec.size or ("by hand" if spec.manual else "not published"),
        "licence": spec.licence.split(";")[0],  # the first; the tree may have another
        "here": here(spec),
    }


def _row_of_own(name: str) -> dict[str, Any]:
    """Make the row of a user's own dataset, with the keys of `_row_of_published`. It has nothing to
    download, and is always ready. `test_images`: of all tests together."""
    from hbench.datasets import load

    dataset = load(name)
    return {
        "name": name,
        "title": dataset.card.get("title", name),
        "levels": list(dataset.levels),
        "test_images": f"{sum(map(len, dataset.tests.values())):,}",
        "size": "",
        "licence": "your own",
        "here": "ready",
    }


def here(spec: Spec) -> str:
    """Say how much of a dataset is on this disk: "ready", "raw files", or ""."""
    from hbench.datasets import folders
    from hbench.datasets.build import raw_folder

    if not spec.markers or any((folder / "dataset.json").exists() for folder in folders(spec.name)):
        return "ready"
    return "raw files" if raw_folder(spec).exists() else ""


def _card(name: str, *, as_json: bool) -> None:
    """Print what is published about a dataset, and then what is on this disk. A dataset that is not
    on this disk is an error only if nothing is published about it, as for a user's own."""
    from hbench.core.errors import DataError
    from hbench.datasets import card, load, specs

    published = name in specs
    spec = specs[name] if published else None
    facts: dict[str, Any] = {"name": name}
    if spec is not None:
        protocol = spec.protocol
        averaged = ", averaged over the tests" if protocol.averaged else ""
        scored = f"{', '.join(protocol.all_metrics)} ({protocol.similarity}){averaged}"
        # card(spec): facts for people, such as its title, homepage and licence
        facts |= card(spec) | {
            "version": spec.version,
            "levels": list(spec.levels),
            "protocol": scored,
        }
        facts["published counts"] = {split: dict(counts) for split, counts in spec.counts.items()}
        facts["files"] = _files_to_fetch(spec)
    try:
        facts |= _facts_of_built(load(name))
    except DataError as error:  # it is not built here, or what is here is damaged
        if spec is None:
            raise
        facts["on this disk"] = error.problem
        facts["next"] = error.fix
    if as_json:
        terminal.show_json(facts)
    else:
        _show_facts(facts)


def _files_to_fetch(spec: Spec) -> list[str]:
    """Describe the files that a download would fetch: the first SHOWN_FILES by name and size, and
    how many others. Empty if none are needed, or if they have to be fetched by hand."""
    from hbench.datasets.download.sources import own_file, sources_of

    sources = sources_of(spec)
    if not sources:
        return []
    lines = []
    for source in sources[:SHOWN_FILES]:
        size = f"{source.size:,} bytes" if source.size else "size not published"
        lines.append(f"{source.file} ({size})")
    if len(sources) > SHOWN_FILES:
        more = len(sources) - SHOWN_FILES
        lines.append(f"… {more} more: hbench download {spec.name} --dry-run")
    return [*lines, f"addresses can be changed in {own_file()}"]


def _facts_of_built(dataset: Dataset) -> dict[str, Any]:
    """Collect the facts of a built dataset for its card, {name: fact}: version, levels, counts of
    each split ({name of what is counted: number}), tree of each split, digests, and the folder of
    its images."""
    from hbench.datasets.build import count_contents

    trees = {
        f"tree of {split}": _lines_of_tree(manifest)
        for split, manifest in dataset.manifests.items()
    }
    facts: dict[str, Any] = {
        "version": dataset.version,
        "levels": list(dataset.levels),
        # classes that have the same name in the released evaluators are counted as one
        "counts": {
            split: count_contents(manifest, dataset.official_names)
            for split, manifest in dataset.manifests.items()
        },
        **trees,
    }
    if "background" in dataset.card:  # the colour under transparent images
        facts["background"] = dataset.card["background"]
    facts["digests"] = {split: manifest.digest for split, manifest in dataset.manifests.items()}
    # no folder of images is known: None, or Path() for a dataset whose pictures are drawn
    facts["images"] = str(dataset.root) if dataset.root and dataset.root != Path() else ""
    return facts


def _lines_of_tree(manifest: Manifest) -> list[str]:
    """Describe each level in a line: its number of nodes, how many of them a node of the level
    above has, and its largest and smallest node, each with its number of images."""
    import numpy as np

    from hbench.tree.statistics import statistics

    # an item of several paths counts in each of its classes
    labels, _ = manifest.paths.all_labels()  # (paths, L); the last level is the class
    items = np.bincount(labels[:, -1], minlength=len(manifest.tree.paths))  # (C,)
    return [
        f"{level.level}: {level.nodes:,} nodes, {level.branching.least} to {level.branching.most} "
        f"in a node above (median {level.branching.median:g}); "
        f"{level.largest[0]} {level.largest[1]:,} images … "
        f"{level.smallest[0]} {level.smallest[1]:,}"
        for level in statistics(manifest.tree, items)
    ]


def _show_facts(facts: dict[str, Any]) -> None:
    """Print each fact in a line, with its name in the left column. A fact with several lines (a
    dictionary or a list, except `levels`) has its name in the first one. An empty fact is left out.
    """
    for name, value in facts.items():
        if isinstance(value, dict):
            lines = [f"{key}: {_text(one)}" for key, one in value.items()]
        elif isinstance(value, list | tuple) and name != "levels":
            lines = [str(one) for one in value]
        else:
            lines = [" / ".join(value)] if name == "levels" else str(value).splitlines()
        if not any(lines):  # no line, or empty ones only
            continue
        title = name.replace("_", " ")
        for line in lines:
            terminal.show(f"{title:<18}{line}")
            title = ""


def _text(value: Any) -> str:
    """Format a value for a card: counts as "5,924 images, 100 classes", others by str."""
    if isinstance(value, dict):
        return ", ".join(f"{number:,} {what}" for what, number in value.items())
    return str(value)
