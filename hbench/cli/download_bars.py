"""The bars of a download: one for all bytes, one for each file that is on its way, one while it is unpacked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from hbench.fetch import Source
from hbench.fetch.all import Tell


@contextmanager
def bars(sources: Sequence[Source], folder: Path) -> Iterator[Tell]:
    """Bars on stderr, silent where it is no terminal; yields the function that moves them."""
    bytes_to_come = sum(source.size or 0 for source in sources) or None
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as progress:
        total = progress.add_task("all files", total=bytes_to_come)
        tasks: dict[str, TaskID] = {}
        lock = threading.Lock()

        def tell(source: Source, what: str, number: int) -> None:
            with lock:
                if source.file not in tasks:
                    part = folder / source.file
                    here = part.with_name(f".{part.name}.part")
                    tasks[source.file] = progress.add_task(
                        source.file, total=source.size, completed=here.stat().st_size if here.exists() else 0
                    )
            if what == "bytes":
                progress.advance(tasks[source.file], number)
                progress.advance(total, number)
            else:
                progress.update(tasks[source.file], description=f"{source.file}: unpacking", total=None)
                progress.advance(tasks[source.file], number)

        yield tell
