"""Options for threads, memory, shards and devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.terminal import say

if TYPE_CHECKING:
    from hbench.engine.job import Execute

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A number of bytes, as 500M or 2G."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{value!r} is no size; write it as 500M or 2G")
    return int(float(match[1]) * UNITS[match[2].upper()])


OPTIONS = [
    click.option("--threads", type=click.IntRange(min=1), help="Threads that rank.  [default: all processors]"),
    click.option(
        "--max-memory",
        metavar="SIZE",
        callback=size,
        help="Hold no more beyond the embeddings, as 500M.  [default: 300M]",
    ),
    click.option(
        "--resume",
        type=click.Path(path_type=Path, file_okay=False),
        help="Keep finished blocks in this folder; go on from them.",
    ),
    click.option("--shard", help="Compute part i/n only and write it to --out; `hbench merge` joins the parts."),
    click.option("--workers", type=click.IntRange(min=1), help="Rank in so many processes (needs hbench[cluster])."),
    click.option("--device", help="Rank on a GPU: cuda, cuda:1.  [default: the processors]"),
    click.option("--scheduler", help="Rank on a dask cluster, as tcp://HOST:PORT (needs hbench[cluster])."),
]  # fmt: skip


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@contextmanager
def execute(chosen: dict[str, Any], files: list[tuple[Path, Path | None]]) -> Iterator[Execute]:
    """Who computes the blocks, by the options; a cluster reads the files for itself."""
    from hbench.engine.executors.kept_blocks import kept_in
    from hbench.engine.executors.threads import on_threads
    from hbench.evaluation import embeddings

    made: Execute = partial(on_threads, threads=chosen["threads"], announce=say)
    kept = chosen["resume"]
    if chosen["device"]:
        from hbench.engine.executors.gpu import on_device

        if chosen["shard"] or chosen["workers"] or chosen["scheduler"]:
            raise click.UsageError("--device ranks in this process: leave --shard, --workers and --scheduler out.")
        made, kept = on_device(chosen["device"]), kept and kept / chosen["device"].partition(":")[0]
    with ExitStack() as stack:
        if chosen["scheduler"] or chosen["workers"]:
            from hbench.engine.executors import dask

            client = stack.enter_context(dask.connected(chosen["scheduler"], chosen["workers"] or 0))
            reader = dask.FileReader(embeddings.read_for_worker, embeddings.joined)
            made = dask.on_cluster(client, [dask.File(path.resolve(), ids) for path, ids in files], reader)
        yield kept_in(kept, made) if kept else made
