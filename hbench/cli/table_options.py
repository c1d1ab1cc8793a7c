"""Options that say how a table given by --dataset is read, on every verb that takes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.names import FILE, POLICY
from hbench.cli.option_blocks import block, words_of
from hbench.cli.terminal import say

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
    """Return the decorators of the options for tables, whose values become a TableOptions. `item`:
    the names of the option for the column of ids, since `--item` is a query in some verbs."""
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


@dataclass(frozen=True)
class TableOptions:
    """The options of how to read a table of names; None or empty for those not given."""

    item_column: str | None
    levels: str | None
    level_names: str | None
    separator: str | None
    taxonomy: Path | None
    taxon: str | None
    several: bool
    policies: tuple[str, ...]

    @property
    def is_said(self) -> bool:
        """Whether any of the options was given."""
        return any(getattr(self, field.name) for field in fields(self))

    def load(self, dataset: str, *, kept: Path | None = None) -> Dataset:
        """Load a dataset, as `load_silently` does, and say how its table was understood."""
        data = self.load_silently(dataset, kept=kept)
        if data.read is not None:
            say(f"read: {data.read}")
        return data

    def load_silently(self, dataset: str, *, kept: Path | None = None) -> Dataset:
        """Load a dataset by its name, folder or table, with these options.

        `kept`: the file of a report, expected to be on this dataset. If it is given and none of the
        options is, a table is read as it was read for the report.
        """
        from hbench import datasets

        if kept is not None and not self.is_said:
            from hbench.records import document as reports

            return datasets.load(dataset, **reports.read(kept).table_options())
        return datasets.load(
            dataset,
            self.policies,
            item=self.item_column,
            levels=words_of(self.levels),
            level_names=words_of(self.level_names),
            separator=self.separator,
            taxonomy=self.taxonomy,
            taxon=self.taxon,
            several=self.several,
        )

    def load_if_named(self, dataset: str | None) -> Dataset | None:
        """Load a dataset if one was named; None otherwise."""
        return None if dataset is None else self.load(dataset)


TABLE = block("table", TableOptions, table_options("--item-column", "--item"))
# of a verb whose --item is a query
TABLE_BESIDE_ITEMS = block("table", TableOptions, table_options("--item-column"))
