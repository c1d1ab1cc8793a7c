"""Options of verbs that show embeddings: those of queries and gallery may be in a file each, as for
`hbench evaluate`.
"""

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
    """Pair the files of queries with those of galleries, the first with the first and so on. Raises
    click's UsageError where their numbers differ; `hint`: a text that follows it.
    """
    from hbench.look.inputs import TwoFiles

    if len(query) != len(gallery):
        raise click.UsageError(
            f"Give --query and --gallery together, a file each: found {len(query)} and "
            f"{len(gallery)}.{hint}"
        )
    return [TwoFiles(*pair) for pair in zip(query, gallery, strict=True)]
