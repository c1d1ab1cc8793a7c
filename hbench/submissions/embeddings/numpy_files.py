"""Reads and writes NumPy's own files: one array (.npy), and a zip archive of several arrays (.npz).
Arrays that are stored uncompressed are memory-mapped.
"""

import json
import math
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hbench.core.files import replacing, write_text
from hbench.core.untrusted import NpyHeader, npy_header, parse_json
from hbench.submissions.embeddings.conversions import pickled


def member(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    """One array of an .npz. An uncompressed member is memory-mapped; a compressed one is read, and
    its checksum is compared.
    """
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            # The header of a zip member has 30 bytes, of which the last 4 are the lengths of its
            # name and extra field. If the file is cut off there, zeros stand in, and `mapped_npy`
            # then raises since no array follows.
            file.seek(info.header_offset + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4).ljust(4, b"\0"))
        return mapped_npy(
            path, info.header_offset + 30 + name_length + extra_length, info.file_size
        )
    with archive.open(info) as stream:
        _header(stream, path, info.file_size)  # raises for pickled objects and missing bytes
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def header_of(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of one array of an .npz, from its header alone. The array may be of
    pickled objects, which are not opened."""
    with archive.open(archive.getinfo(f"{name}.npy")) as stream:
        shape, _fortran, dtype = npy_header(stream)
    return shape, dtype


def mapped_npy(path: Path, offset: int, size: int) -> NDArray[Any]:
    """The array of a .npy, memory-mapped and read-only. The .npy begins `offset` bytes into the
    file at `path` and has `size` bytes.
    """
    with path.open("rb") as file:
        file.seek(offset)
        shape, fortran, dtype = _header(file, path, size)
        return mapped(path, dtype, shape, offset=file.tell(), order="F" if fortran else "C")


def _header(file: IO[bytes], path: Path, size: int) -> NpyHeader:
    """Read the header of a .npy at the current position of `file`: shape, order and type. `size` is
    the number of bytes of the header and the array. Raises SubmissionError for pickled objects,
    ValueError if there are too few bytes for the shape.
    """
    start = file.tell()
    head = npy_header(file)
    if head.dtype.hasobject:
        raise pickled(path)
    needed = math.prod(head.shape) * head.dtype.itemsize
    header_bytes = file.tell() - start
    of_numbers = size - header_bytes
    if of_numbers < needed:
        raise ValueError(
            f"{of_numbers:,} bytes of numbers, but shape {head.shape} of {head.dtype} "
            f"needs {needed:,}"
        )
    return head


def mapped(
    path: Path,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    *,
    offset: int,
    order: Literal["C", "F"] = "C",
) -> NDArray[Any]:
    """The array that begins at the byte `offset` of a file, memory-mapped and read-only. `order` is
    "C" if rows are contiguous, "F" if columns are."""
    if math.prod(shape) == 0:  # an empty array cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order=order)


def write_npz(
    path: Path, ids: NDArray[np.object_], vectors: NDArray[Any], metadata: Mapping[str, str]
) -> None:
    """Write ids and vectors as one archive. Of the metadata, only the list of left-out items is
    stored."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        # fixed-width texts, since an array of objects could only be pickled
        arrays = {"ids": ids.astype(str), "vectors": vectors}
        if "hbench.left_out" in metadata:
            arrays["left_out"] = np.array(parse_json(metadata["hbench.left_out"]))
        np.savez(file, allow_pickle=False, **arrays)


def write_npy(
    path: Path, ids: NDArray[np.object_], vectors: NDArray[Any], metadata: Mapping[str, str]
) -> None:
    """Write vectors as .npy, and their ids as .ids.json beside it. The metadata are not stored,
    since .npy has no place for them."""
    # the ids first, so that a file of vectors never lacks its ids
    write_text(
        path.with_name(f"{path.stem}.ids.json"), json.dumps(ids.tolist(), ensure_ascii=False)
    )
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
