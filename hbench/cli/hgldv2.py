"""hbench hgldv2: run the pipeline that builds H-GLDv2's super-categories, a package of its own."""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from hbench.core.errors import UsageError

VERBS = "hbench.verbs"  # the entry-point group of the verbs that other packages bring


def _pipeline() -> click.Command:
    found = entry_points(group=VERBS)
    if "hgldv2" not in found.names:
        raise UsageError("the package hbench_hgldv2 is not installed", fix="install hbench again: pip install hbench")
    command: click.Command = found["hgldv2"].load()
    return command


command = _pipeline()
