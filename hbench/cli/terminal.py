"""Writes to the terminal: data to stdout, progress and remarks to stderr, no bars where no one watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from hbench.core.errors import visible


def say(text: str) -> None:
    """A remark for the person at the terminal (stderr)."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(visible(text), markup=False)


def show(text: str) -> None:
    """Data (stdout): as it is for a program, without what would steer the terminal for a person."""
    click.echo(visible(text) if watched(sys.stdout) else text)


def show_json(value: Any) -> None:
    """Data for a machine: one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def show_table(
    title: str | None,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str | None = None,
    *,
    left: Collection[str] = (),
) -> None:
    """A table on stdout: the first column and those named in `left` to the left, the others to the right.

    It is plain and unwrapped when stdout is no terminal.
    """
    table = Table(
        title=title and visible(title),
        caption=caption and visible(caption),
        title_justify="left",
        caption_justify="left",
        expand=False,
    )
    for position, name in enumerate(header):
        table.add_column(visible(name), justify="left" if position == 0 or name in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(visible, row))
    width = None if watched(sys.stdout) else 10_000
    Console(width=width, highlight=False, markup=False).print(table)


def watched(stream: TextIO | None) -> bool:
    """Whether a terminal shows stdout or stderr; None is one that was closed."""
    return stream is not None and stream.isatty()


def progress() -> Progress:
    """Bars on stderr with counts, elapsed and remaining time; silent when stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not watched(sys.stderr),
        transient=True,
    )
