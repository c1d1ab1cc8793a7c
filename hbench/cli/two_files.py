"""Options of verbs that show embeddings from a file of queries and another one of the gallery, as
`hbench evaluate` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.names import FILE

if TYPE_CHECKING:
    from hbench.look.inputs import TwoFiles

OPTIONS = [
    click.option(
        "--query",
        "query",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="Embeddings of the queries, where they are in a file of their own; repeatable, each "
        "with its --gallery.",
    ),
    click.option(
        "--gallery",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="Embeddings of the gallery, likewise.",
    ),
]


def pairs_of(query: Sequence[Path], gallery: Sequence[Path], *, hint: str = "") -> list[TwoFiles]:
    """Pair the files of queries with those of galleries, in their order. Raises click's UsageError
    if their numbers differ. `hint`: text appended to the message."""
    from hbench.look.inputs import TwoFiles

    if len(query) != len(gallery):
        raise click.UsageError(
            f"Give --query and --gallery together, a file each: found {len(query)} and "
            f"{len(gallery)}.{hint}"
        )
    return [TwoFiles(*pair) for pair in zip(query, gallery, strict=True)]
