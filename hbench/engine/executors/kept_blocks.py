"""Resuming: every finished block is kept in a folder, so that an interrupted evaluation resumes
where it stopped.

Several processes, on one machine or many, may fill one folder, each with its share of the blocks; a
last run finds them all.

>>> Share.parse("2/3").of_blocks(10)
range(3, 6)
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hbench.core import files
from hbench.core.errors import SubmissionError, UsageError
from hbench.engine.job import Execute, Job, Values


class Share(NamedTuple):
    """Share `number` of `of` shares of the blocks, from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Read `i/n`; UsageError for anything else."""
        numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise UsageError(
                "not a share of the blocks", expected="i/n with 1 ≤ i ≤ n", found=repr(text[:40])
            )
        return cls(int(numbers[1]), int(numbers[2]))

    def of_blocks(self, blocks: int) -> range:
        """The numbers of the blocks, out of 0 … blocks − 1, that this share takes; all shares
        together take each block once, and differ by one block at most."""
        return range(blocks * (self.number - 1) // self.of, blocks * self.number // self.of)


def kept_in(folder: Path, execute: Execute) -> Execute:
    """Take the blocks from the folder that are there; let `execute` compute the others, and keep
    them.

    Blocks lie in a subfolder named by the job's digest, so different evaluations never mix.
    """

    def resumed(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        """Yield the kept blocks first, then compute and keep the others."""
        # 16 digits name the folder; every file holds all of them, and is compared
        paths = {block: folder / job.digest[:16] / f"block-{block:06}.npz" for block in blocks}
        missing = []
        for block in blocks:
            values = _values_in_file(paths[block], job, block)
            if values is None:
                missing.append(block)
            else:
                yield block, values
        for block, values in execute(job, missing):
            files.write(paths[block], {"job": job.digest}, _arrays_of(values))
            yield block, values

    return resumed


def _values_in_file(path: Path, job: Job, block: int) -> Values | None:
    """The values of a block as kept in a file; None where there is none that can be used, which
    costs no more than computing them again.

    They must have the shapes and types of the block's, for numpy would spread others over its
    queries.
    """
    if not path.exists():
        return None
    try:
        header, arrays = files.read(path)
    except SubmissionError:
        return None
    # empty values of this block tell the types and shapes, by the names of the arrays in a file
    expected = job.nothing(len(job.ranker.rows(block)))
    shapes = {name: (array.dtype, array.shape) for name, array in _arrays_of(expected).items()}
    found = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    if header != {"job": job.digest} or found != shapes:
        return None
    others = [_values_in(arrays, f"{number}.") for number in range(len(job.others))]
    return _values_in(arrays, "")._replace(others=tuple(others))


ARRAYS = ("values", "first_level", "tied", "counts")


def _arrays_of(values: Values) -> dict[str, NDArray[Any]]:
    """The arrays of a block's `values` by the names that they have in its file: "values" and so on,
    or "0.values" for those of other views of the labels, with the view's number in front.
    """
    arrays = {name: getattr(values, name) for name in ARRAYS}
    for number, other in enumerate(values.others):
        arrays |= {f"{number}.{name}": getattr(other, name) for name in ARRAYS}
    return arrays


def _values_in(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Values:
    """The values made of the arrays of a block's file whose names begin with this prefix: "" for
    the dataset's own view, "0." for the first other one."""
    values, first_level, tied, counts = (arrays[prefix + name] for name in ARRAYS)
    return Values(values, first_level, tied, counts)
