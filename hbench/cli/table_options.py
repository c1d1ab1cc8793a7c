"""Options that say how a table given by --dataset is read, on every verb that takes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.names import FILE, POLICY

if TYPE_CHECKING:
    from hbench.datasets import Dataset

POLICIES = click.option(
    "--policy",
    "policies",
    type=POLICY,
    metavar="NAME",
    multiple=True,
    help="Mend the table's names: trim, normalise, add-root, fill-from-same-name, unknown, "
    "fill-from-parent, repeat-leaf, cut, by-path, majority-parent, drop, or recommended (what the "
    "refusal proposes first). Repeatable.",
)
ITEM_HELP = "The table's column of ids.  [default: the one that looks so]"


def table_options(*item: str) -> list[Callable[[Any], Any]]:
    """The options of a table; `item`: what the column of ids is called."""
    return [
        click.option(*item, "item_column", metavar="COLUMN", help=ITEM_HELP),
        click.option(
            "--levels",
            metavar="A,B,C",
            help="Its columns of names, coarse to fine; one column of paths, or of taxon ids.  "
            "[default: those that nest]",
        ),
        click.option(
            "--level-names",
            metavar="A,B,C",
            help="What the levels of paths in one column are called.",
        ),
        click.option(
            "--separator",
            metavar="TEXT",
            help="What stands between the names of a path in a cell, such as '>'.",
        ),
        click.option(
            "--taxonomy", type=FILE, help="A table of taxa, whose ids a column of the table holds."
        ),
        click.option(
            "--taxon",
            metavar="COLUMN",
            help="The table's column of ids of --taxonomy.  [default: where most rows find theirs]",
        ),
        click.option(
            "--several",
            is_flag=True,
            help="Items of the table may have several paths: lists, cells a;b, or rows.",
        ),
        POLICIES,
    ]


TABLE = table_options("--item-column", "--item")
# of a verb whose --item is a query
TABLE_BESIDE_ITEMS = table_options("--item-column")
NAMES = (
    "item_column",
    "levels",
    "level_names",
    "separator",
    "taxonomy",
    "taxon",
    "several",
    "policies",
)


def loaded(dataset: str, options: dict[str, Any], *, kept: Path | None = None) -> Dataset:
    """Load the dataset as the options of its table say, which are taken out of `options`; where
    none is given, as the report `kept` says that it was read.
    """
    from hbench import datasets

    said = {name: options.pop(name) for name in NAMES}
    if kept is not None and not any(said.values()):
        from hbench.records import document as reports

        return datasets.load(dataset, **reports.read(kept).table_options())
    return datasets.load(
        dataset,
        said["policies"],
        item=said["item_column"],
        levels=_listed(said["levels"]),
        level_names=_listed(said["level_names"]),
        separator=said["separator"],
        taxonomy=said["taxonomy"],
        taxon=said["taxon"],
        several=said["several"],
    )


def loaded_if_named(dataset: str | None, options: dict[str, Any]) -> Dataset | None:
    """Load the dataset that was named, if one was. The options of its table are taken out of
    `options` all the same.
    """
    if dataset is not None:
        return loaded(dataset, options)
    for name in NAMES:
        options.pop(name)
    return None


def _listed(text: str | None) -> list[str]:
    """The words between the commas of an option."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]
