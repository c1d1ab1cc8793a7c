"""hbench download: fetch a dataset's files, resumably and verified, or say how to get them."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import DownloadColumn, TaskID, TimeRemainingColumn, TransferSpeedColumn

from hbench.cli import terminal
from hbench.cli.names import DATASET, FOLDER
from hbench.core.errors import DataError, UsageError, examples
from hbench.core.files import free_bytes, write_text
from hbench.datasets.download.all_files import (
    DownloadOptions,
    OnDownload,
    check_all,
    fetch_all,
    summary,
)
from hbench.datasets.download.all_files import adopt as adopt_files
from hbench.datasets.download.sources import sources_of, state_of
from hbench.datasets.spec import RemoteFile

if TYPE_CHECKING:
    from hbench.datasets import Spec


def _bytes_here(source: RemoteFile, folder: Path) -> int:
    """The bytes of a file that need not be fetched, since earlier runs have fetched them."""
    if state_of(folder, source) not in {"missing", "partial"}:
        return source.size or 0
    part = (folder / source.file).with_name(f".{Path(source.file).name}.part")
    return part.stat().st_size if part.exists() else 0


@contextmanager
def bars(sources: Sequence[RemoteFile], folder: Path) -> Iterator[OnDownload]:
    """Show progress bars on stderr, if it is a terminal: one of all files, and one of each file in
    work. Yields the function that moves them, `on_progress(source, what, number)`.

    `sources`: the files. `folder`: where they go; it may have parts of files from an earlier run.
    The bar of all files counts bytes, and has no length if no file states its size.
    """
    bytes_to_come = sum(source.size or 0 for source in sources) or None
    with terminal.progress(
        DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    ) as progress:
        # measured before the first byte arrives, which would be counted twice otherwise
        here = {source.file: _bytes_here(source, folder) for source in sources}
        already = sum(here[source.file] for source in sources if source.size)
        total = progress.add_task("all files", total=bytes_to_come, completed=already)
        tasks: dict[str, TaskID] = {}
        unpacked: Counter[str] = Counter()  # files, by the archive they are from
        # files are fetched by several threads, which share `tasks`
        lock = threading.Lock()

        def on_progress(source: RemoteFile, what: str, number: int) -> None:
            """Move a file's bar by its bytes while it is fetched; then name the number of files
            unpacked from it, of which the total is unknown. Bytes also move the bar of all files
            (`total`). Called from several threads.

            `what`: "bytes" (`number` more arrived; below 0: were discarded), "files" (`number` more
            were unpacked) or "end", which removes the bar.
            """
            with lock:
                if what == "end":
                    if source.file in tasks:  # a file with nothing to do never got a bar
                        progress.remove_task(tasks.pop(source.file))
                    return

                if source.file not in tasks:  # the first call for this file: add its bar
                    tasks[source.file] = progress.add_task(
                        source.file, total=source.size, completed=here[source.file]
                    )

                task = tasks[source.file]
                if what == "files":
                    unpacked[source.file] += number
                    text = f"{source.file}: {unpacked[source.file]:,} files unpacked"
                    progress.update(task, description=text)
                else:
                    progress.advance(total, number)
                    progress.advance(task, number)

        yield on_progress


SERIES = 8  # this many numbered files, all alike, are shown in one line
EXISTING = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command(short_help="fetch a benchmark's files, resumably and verified")
@click.argument("name", type=DATASET)
@click.option(
    "--root", type=FOLDER, help="Folder for the files; by default in hbench's data folder."
)
@click.option(
    "--part",
    type=click.Choice(["metadata", "images"]),
    help="Only the annotations, or only the images.",
)
@click.option("--mirror", metavar="URL", help="A base address to try before all others: URL/FILE.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Files fetched at the same time.",
)
@click.option(
    "--verify-only",
    is_flag=True,
    help="Fetch nothing: read every file again and compare checksums.",
)
@click.option("--repair", is_flag=True, help="Read every file again and replace what is wrong.")
@click.option("--remove-archives", is_flag=True, help="Remove each archive once it is unpacked.")
@click.option("--adopt", type=EXISTING, help="Take the files in this folder as they are.")
@click.option(
    "--offline",
    is_flag=True,
    help="Fetch nothing: say what is here and what is missing; with --adopt, unpack it.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be fetched, and from where.")
def command(
    name: str,
    *,
    root: Path | None,
    part: str | None,
    mirror: str | None,
    jobs: int,
    adopt: Path | None,
    verify_only: bool,
    repair: bool,
    remove_archives: bool,
    offline: bool,
    dry_run: bool,
) -> None:
    """Fetch the files of the dataset NAME; run it again to resume after any interruption.

    \b
    hbench download cub200
    hbench download gldv2 --part metadata --root /data/gldv2
    """
    from hbench.datasets import specs
    from hbench.datasets.build import raw_folder

    if verify_only and repair:
        raise UsageError("--verify-only and --repair contradict each other")
    _refuse_dry_adoption(adopt, dry_run=dry_run)
    spec = specs[name]
    folder = root or raw_folder(spec)
    sources = sources_of(spec, part=part, mirror=mirror)
    # `markers` are paths by which raw files are recognised; a dataset that is drawn has none
    if not spec.markers:
        terminal.say(f"{name} needs no files")
        return
    _refuse_without_addresses(spec, sources, adopt)
    # use files that are elsewhere on the disk. If they are an unpacked dataset, all is done
    if adopt is not None and _adopt(spec, sources, folder, adopt):
        return
    if offline:
        # how many archives to unpack at a time: only those just adopted; None: unpack nothing
        at_once = jobs if adopt else None
        _stay_offline(name, sources, DownloadOptions(folder), at_once=at_once)
    elif dry_run:
        _list_files(sources, folder)
    elif verify_only:
        if problems := check_all(sources, folder):
            raise summary(problems)
        terminal.say(f"{len(sources)} files of {name} in {folder} are right")
    else:
        _fetch(sources, DownloadOptions(folder, repair, remove_archives), jobs)
    # At the end, so that everything that can be fetched was fetched. Whether the files that people
    # have to fetch are there is not known here: `hbench build` looks for them.
    if spec.manual and not verify_only:
        raise DataError(
            f"files of {name} must be fetched by hand",
            # further lines begin where the first does, behind "  expected: "
            expected=spec.manual.replace("\n", "\n" + " " * 12),
            fix=f"put them into {folder}, or: hbench download {name} --adopt DIR; then hbench "
            f"build {name}",
        )
    if not (dry_run or offline or verify_only):
        terminal.say(f"{len(sources)} files of {name} are in {folder}; next: hbench build {name}")


def _refuse_dry_adoption(adopt: Path | None, *, dry_run: bool) -> None:
    """Raise UsageError for --adopt beside --dry-run: adopting copies files, or records where they
    lie, at once, while --dry-run promises to change nothing."""
    if adopt is not None and dry_run:
        raise UsageError(
            "--adopt takes files at once, and --dry-run takes none",
            fix="leave one out; --adopt DIR --offline takes your files and fetches nothing",
        )


def _refuse_without_addresses(
    spec: Spec, sources: Sequence[RemoteFile], adopt: Path | None
) -> None:
    """Raise DataError for a dataset whose files have no known address, unless files of a user's
    folder are adopted."""
    if not sources and not spec.manual and adopt is None:
        raise DataError(f"no address of a file of {spec.name} is known", fix=spec.advice)


def _stay_offline(
    name: str, sources: list[RemoteFile], options: DownloadOptions, *, at_once: int | None
) -> None:
    """Print which files of the dataset `name` are here, and raise DataError if some are missing.
    Archives that are here and verified are unpacked first, `at_once` at a time; None: unpack
    nothing."""
    here = [source for source in sources if state_of(options.folder, source) == "verified"]
    if at_once and here:
        _fetch(here, options, at_once)  # a file that is here is not fetched, only unpacked
    _list_files(sources, options.folder)
    if missing := [
        source.file
        for source in sources
        if state_of(options.folder, source) in {"missing", "partial"}
    ]:
        raise DataError(
            f"files of {name} are not here, and --offline fetches nothing",
            found=examples(missing),
            fix=f"hbench download {name}",
        )


def _fetch(sources: list[RemoteFile], options: DownloadOptions, at_once: int) -> None:
    """Fetch and unpack files, `at_once` of them at a time, with progress bars. All files that
    failed are named together at the end, so that one does not stop the others."""
    with bars(sources, options.folder) as on_progress:
        with_bars = dataclasses.replace(options, on_progress=on_progress)
        problems = fetch_all(sources, with_bars, jobs=at_once)
    if problems:
        raise summary(problems)


def _adopt(spec: Spec, sources: list[RemoteFile], folder: Path, existing: Path) -> bool:
    """Use the files in the user's folder `existing`. An unpacked dataset stays where it is: return
    True. Else `sources` are found there by name and verified, and False is returned: plain files
    are copied into `folder`, and archives stay, to be unpacked into `folder` later."""
    from hbench.datasets.build import ADOPTED, find_raw

    try:
        raw = find_raw(spec, existing)
    except DataError:  # it is not unpacked there
        files = adopt_files(sources, folder, existing)
        if not files:
            archives = [Path(source.file).name for source in sources if source.unpack]
            raise DataError(
                f"{existing} holds nothing of {spec.name}",
                expected=f"{examples([*spec.markers, *archives])}, there or in a folder below",
                fix="name the folder that they lie in",
            ) from None
        terminal.say(f"{len(files)} of {len(sources)} files are taken from {existing}")
        return False
    # record the place, so that the build finds it without a path; nothing is copied
    write_text(folder / ADOPTED, f"{raw.resolve()}\n")
    terminal.say(f"{spec.name} is used as it lies in {raw}; next: hbench build {spec.name}")
    return True


def _list_files(sources: list[RemoteFile], folder: Path) -> None:
    """Print the files to fetch into a folder, and below them the number of bytes, as far as known,
    and the free space. Files that differ only in their numbers, as images_000.tar … images_499.tar,
    and have the same part and state, share a line."""
    if not sources:
        return

    alike: dict[tuple[str, str, str], list[RemoteFile]] = {}
    for source in sources:
        key = (re.sub(r"\d+", "#", source.file), source.part, state_of(folder, source))
        alike.setdefault(key, []).append(source)

    rows = []
    for files in alike.values():
        if len(files) >= SERIES:  # the fewest files that share a line
            rows.append(_row_of_files(files, folder))
        else:
            rows += [_row_of_files([file], folder) for file in files]

    unknown = sum(source.size is None for source in sources)
    sizes = f"{sum(source.size or 0 for source in sources):,} bytes"
    if unknown:
        sizes += f" and {unknown} of unknown size"
    amount = "1 file" if len(sources) == 1 else f"{len(sources)} files"
    header = ["file", "bytes", "part", "state", "first address"]
    caption = f"{amount}, {sizes}, to {folder}, where {free_bytes(folder):,} bytes are free"
    terminal.show_table(None, header, rows, caption=caption, left=header[2:])


def _row_of_files(files: list[RemoteFile], folder: Path) -> list[str]:
    """Make the row of a file, or of a series of files with the same part and state: name, bytes,
    part, state, and the address of the first. The bytes are "?" unless all sizes are known, since a
    partial sum would be misleading."""
    first = files[0]
    name = first.file
    if len(files) > 1:
        name += f" … {Path(files[-1].file).name} ({len(files)} files)"
    size = "?"
    if all(file.size for file in files):
        size = f"{sum(file.size or 0 for file in files):,}"
    return [name, size, first.part, state_of(folder, first), first.urls[0]]
