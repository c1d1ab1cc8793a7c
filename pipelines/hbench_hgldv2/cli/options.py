"""Declares the options that several steps share, each once, so that it is called and explained alike everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hbench.cli import refuse_gone

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE = click.Path(path_type=Path, exists=True)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)

decisions = click.option("--decisions", type=FILE, help="Decisions; by default decisions.yaml in the work folder.")
names = click.option(
    "--names", type=FILE, help="Wanted group names, a line each (name or name,kind): they become suggestions."
)
reference = click.option("--reference", type=FILE, help="A mapping.csv to measure against; quality takes the folder's.")
seed = click.option("--seed", default=0, show_default=True, help="Of everything drawn at random.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


def raw(help: str, *, required: bool = False) -> Decorator:
    """`--raw`, the folder of GLDv2's downloaded metadata; `help` says what it is for."""
    return click.option("--raw", type=FOLDER, required=required, help=f"Folder of GLDv2's metadata: {help}")


def asking_wikimedia(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a step that asks Wikimedia: who asks, how often, and from which cache."""
    options = [
        click.option("--contact", help="Your mail address or URL: Wikimedia asks every client to say whom to write to."),
        click.option("--offline", is_flag=True, help="Answer from the cache only."),
        click.option("--rate", default=1.0, show_default=True, help="Most requests per second."),
        click.option(
            "--cache", type=click.Path(path_type=Path), help="Response cache; by default cache.sqlite in the work folder."
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def gone(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Refuse an option that once was, saying what to use instead."""
    if value is not None:
        refuse_gone(f"hgldv2 {context.info_name} --{option.name}")
