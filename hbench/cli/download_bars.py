"""The bars of a download: one for all bytes, one for each file that is on its way or being unpacked."""

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

from hbench.fetch.all import Tell
from hbench.source import Source


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
                if what == "end":
                    if source.file in tasks:
                        progress.remove_task(tasks.pop(source.file))
                    return
                if source.file not in tasks:
                    tasks[source.file] = progress.add_task(
                        source.file, total=source.size, completed=_here(source, folder)
                    )
                if what == "files":
                    progress.update(tasks[source.file], description=f"{source.file}: unpacking", total=None)
                else:
                    progress.advance(total, number)
                progress.advance(tasks[source.file], number)

        yield tell


def _here(source: Source, folder: Path) -> int:
    """The bytes of a file that came in an earlier run."""
    part = (folder / source.file).with_name(f".{Path(source.file).name}.part")
    return part.stat().st_size if part.exists() else 0
