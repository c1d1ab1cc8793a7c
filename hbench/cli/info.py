"""hbench info: what a bug report needs to say of the machine."""

from __future__ import annotations

from typing import Any

import click

from hbench.cli.terminal import show_json, show_table


@click.command("info")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def command(as_json: bool) -> None:
    """Print versions, processor, folders and environment variables: what a bug report needs.

    Example: hbench info --json
    """
    from hbench.core.environment import environment
    from hbench.engine.block_values import kernels_are_compiled

    found = environment()
    found["processor"]["kernels"] = "compiled" if kernels_are_compiled() else "compiled when first needed"
    show_json(found) if as_json else show_environment(found)


def show_environment(found: dict[str, Any]) -> None:
    """The description of the machine as one table of two columns."""
    rows = [[name, str(value)] for name, value in {**found["versions"], **found["processor"]}.items()]
    for name, folder in found["folders"].items():
        state = "not there yet" if not folder["exists"] else f"{folder['owner']}'s"
        state += "" if folder["only_by_owner"] in {True, None} else ", others may write to it"
        state += ", read-only" if folder["writable"] is False else ""
        rows.append([f"{name} folder", f"{folder['path']} ({state})"])
    rows += [[name, value] for name, value in found["variables"].items()]
    show_table(None, ["", "here"], rows, left=["here"])
