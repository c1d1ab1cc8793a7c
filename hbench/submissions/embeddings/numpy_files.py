"""NumPy's own files: one array (.npy) and the zip archive of several (.npz), mapped where they lie
uncompressed.
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
    """One array of an .npz: mapped where it is stored, read (and its checksum compared) where it is
    compressed.
    """
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            # a member's header has 30 bytes, the lengths of name and extra field at its end; in a
            # file that is cut off they are missing, and no .npy follows
            file.seek(info.header_offset + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4).ljust(4, b"\0"))
        return mapped_npy(
            path, info.header_offset + 30 + name_length + extra_length, info.file_size
        )
    with archive.open(info) as stream:
        _header(stream, path, info.file_size)  # raises for what is missing or pickled
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def header_of(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of one array of an .npz, also of pickled objects, which are not read."""
    with archive.open(archive.getinfo(f"{name}.npy")) as stream:
        shape, _fortran, dtype = npy_header(stream)
    return shape, dtype


def mapped_npy(path: Path, offset: int, size: int) -> NDArray[Any]:
    """The array of a .npy that begins `offset` bytes into a file and takes `size`, mapped
    read-only.
    """
    with path.open("rb") as file:
        file.seek(offset)
        shape, fortran, dtype = _header(file, path, size)
        return mapped(path, dtype, shape, offset=file.tell(), order="F" if fortran else "C")


def _header(file: IO[bytes], path: Path, size: int) -> NpyHeader:
    """The head of the array at the file's current place, which takes `size` bytes with its head:
    shape, order and type. Raises SubmissionError for pickled objects, ValueError where the bytes
    are too few for the shape.
    """
    start = file.tell()
    head = npy_header(file)
    if head.dtype.hasobject:
        raise pickled(path)
    needed = math.prod(head.shape) * head.dtype.itemsize
    of_numbers = size - (file.tell() - start)
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
    """The array in a file from the byte `offset` on, of this type, shape and order (C: rows side by
    side), mapped read-only; an empty one cannot be mapped and is made."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order=order)


def write_npz(
    path: Path, ids: NDArray[np.object_], vectors: NDArray[Any], metadata: Mapping[str, str]
) -> None:
    """Write ids and vectors as one archive; of the metadata it keeps only the list of the items
    that were left out."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        arrays = {"ids": ids.astype(str), "vectors": vectors}
        if "hbench.left_out" in metadata:
            arrays["left_out"] = np.array(parse_json(metadata["hbench.left_out"]))
        np.savez(file, allow_pickle=False, **arrays)


def write_npy(
    path: Path, ids: NDArray[np.object_], vectors: NDArray[Any], metadata: Mapping[str, str]
) -> None:
    """Write vectors as .npy, which has no place for ids or metadata, and the ids beside it."""
    # first, so that vectors that are there have their ids
    write_text(
        path.with_name(f"{path.stem}.ids.json"), json.dumps(ids.tolist(), ensure_ascii=False)
    )
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
