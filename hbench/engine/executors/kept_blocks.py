"""Keeps every finished block in a folder, so that an interrupted evaluation resumes where it
stopped.

Several processes, on one or many machines, may fill one folder, each with its share of the blocks.
A final run then finds all blocks there.

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
    """One of several shares of the blocks: share `number`, counted from 1, out of `of` shares."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Read a share from `i/n`. Raises UsageError for any other text."""
        numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise UsageError(
                "not a share of the blocks", expected="i/n with 1 ≤ i ≤ n", found=repr(text[:40])
            )
        return cls(int(numbers[1]), int(numbers[2]))

    def of_blocks(self, blocks: int) -> range:
        """The numbers of the blocks, out of 0 … blocks − 1, that belong to this share. Each block
        belongs to one share, and the sizes of the shares differ by one at most."""
        return range(blocks * (self.number - 1) // self.of, blocks * self.number // self.of)


def kept_in(folder: Path, execute: Execute) -> Execute:
    """Return an executor that takes blocks from the folder if they are there. It lets `execute`
    compute the others, and keeps them in the folder.

    Each job has a subfolder, named by its digest, so blocks of different evaluations never mix.
    """

    def resumed(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        """Yield the kept blocks first, then compute and keep the others."""
        # 16 digits name the folder; each file has the whole digest, which is compared
        paths = {block: folder / job.digest[:16] / f"block-{block:06}.npz" for block in blocks}
        missing = []
        for block in blocks:
            values = _values_in_file(paths[block], job, block)
            if values is None:
                missing.append(block)
            else:
                yield block, values
        for block, values in execute(job, missing):
            # with the digest as the header that `_values_in_file` compares
            files.write(paths[block], {"job": job.digest}, _arrays_of(values))
            yield block, values

    return resumed


def _values_in_file(path: Path, job: Job, block: int) -> Values | None:
    """The values of a block from its file, or None if there is no file that can be used; the block
    is then computed again.

    The arrays must have the types and shapes of this block's values: numpy would broadcast arrays
    of other shapes over the block's queries.
    """
    if not path.exists():
        return None
    try:
        header, arrays = files.read(path)
    except SubmissionError:
        return None
    # empty values of this block have the expected types and shapes
    expected = job.nothing(len(job.ranker.rows(block)))
    shapes = {name: (array.dtype, array.shape) for name, array in _arrays_of(expected).items()}
    found = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    if header != {"job": job.digest} or found != shapes:
        return None
    # in the file, "0." begins the names of the first other view's arrays
    others = [_values_in(arrays, f"{number}.") for number in range(len(job.others))]
    return _values_in(arrays, "")._replace(others=tuple(others))


ARRAYS = ("values", "first_level", "tied", "counts")


def _arrays_of(values: Values) -> dict[str, NDArray[Any]]:
    """The arrays of a block's `values`, by their names in its file: "values" and so on for the
    dataset's own view, and "0.values" and so on for the first other view of the labels.
    """
    arrays = {name: getattr(values, name) for name in ARRAYS}
    for number, other in enumerate(values.others):
        arrays |= {f"{number}.{name}": getattr(other, name) for name in ARRAYS}
    return arrays


def _values_in(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Values:
    """The values under one view, made of the arrays in a block's file. `prefix`: what the names of
    the view's arrays begin with: "" for the dataset's own view, "0." for the first other one."""
    values, first_level, tied, counts = (arrays[prefix + name] for name in ARRAYS)
    return Values(values, first_level, tied, counts)
