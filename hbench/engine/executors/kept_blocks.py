"""Resuming: every finished block is kept in a folder, so that an interrupted evaluation goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hbench.core import files
from hbench.core.errors import SubmissionError
from hbench.engine.job import Execute, Job, Values


def kept_in(folder: Path, execute: Execute) -> Execute:
    """Take the blocks from the folder that are there; let `execute` compute the others, and keep them.

    Blocks lie in a subfolder by the job's digest: other vectors, labels or conditions never meet.
    """

    def resumed(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        paths = {block: folder / job.digest[:16] / f"block-{block:06}.npz" for block in blocks}
        missing = []
        for block in blocks:
            values = _kept(paths[block], job.digest)
            if values is None:
                missing.append(block)
            else:
                yield block, values
        for block, values in execute(job, missing):
            files.write(paths[block], {"job": job.digest}, values._asdict())
            yield block, values

    return resumed


def _kept(path: Path, digest: str) -> Values | None:
    """The values in a file; None where there is none that can be used, which costs no more than computing them again."""
    if not path.exists():
        return None
    try:
        header, arrays = files.read(path)
    except SubmissionError:
        return None
    return Values(**arrays) if header == {"job": digest} and set(arrays) == set(Values._fields) else None
