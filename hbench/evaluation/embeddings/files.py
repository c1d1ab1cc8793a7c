"""Formats of embedding files: one entry per suffix in READERS, from a path (and a file of ids) to what is stored there.

Vectors stay where they lie: .npy, uncompressed .npz members, .safetensors and single-batch Arrow files are mapped.
Nothing is ever unpickled; formats that need it, or another library, are refused with the line that converts them.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from hbench.core.errors import SubmissionError, UsageError
from hbench.core.text import first_line
from hbench.core.untrusted import load_tensors, open_zip, parse_json
from hbench.evaluation.embeddings import ids as id_files
from hbench.evaluation.embeddings.arrow_files import left_out_of, read_ipc, read_parquet, write_parquet
from hbench.evaluation.embeddings.conversions import foreign, pickled
from hbench.evaluation.embeddings.ids import ID_NAMES, VECTOR_NAMES, Ids, as_ids, only
from hbench.evaluation.embeddings.numpy_files import mapped, mapped_npy, member, write_npy, write_npz


class Stored(NamedTuple):
    """The content of a file: ids (N,), vectors (N, D) in the file's type (bfloat16 as uint16), every file read; the items that it
    says could not be embedded."""

    ids: Ids
    vectors: NDArray[Any]
    dtype: str
    files: tuple[Path, ...]
    left_out: tuple[str, ...] = ()


Reader = Callable[[Path, Path | None], Stored]
DAMAGED = (pa.ArrowException, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, TypeError)


def read_npy(path: Path, ids: Path | None) -> Stored:
    """A NumPy array, mapped, and its ids from the file beside it."""
    with readable(path):
        vectors = mapped_npy(path, 0, path.stat().st_size)
    return _joined(path, vectors, None, ids)


def read_npz(path: Path, ids: Path | None) -> Stored:
    """A NumPy archive of `vectors` (or `embeddings`) and `ids`; members stored without compression are mapped."""
    with readable(path), open_zip(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        vectors = member(archive, only(names, VECTOR_NAMES, "array of vectors", path), path)
        inner_ids = None
        if any(name in ID_NAMES for name in names):
            inner_ids = as_ids(member(archive, only(names, ID_NAMES, "array of ids", path), path), path.name)
        left_out = as_ids(member(archive, "left_out", path), path.name).tolist() if "left_out" in names else []
    return _joined(path, vectors, inner_ids, ids)._replace(left_out=tuple(left_out))


def read_safetensors(path: Path, ids: Path | None) -> Stored:
    """A safetensors file with a tensor `embeddings`, mapped; ids as a JSON list in its metadata `ids`, or beside it."""
    with readable(path, SafetensorError):
        with safe_open(path, "numpy") as file:  # checks the header and that the tensors fill the file
            name = only(list(file.keys()), VECTOR_NAMES, "tensor of vectors", path)
            listed = (file.metadata() or {}).get("ids")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entry = parse_json(file.read(length))[name]
        if entry["dtype"] not in SAFETENSORS:
            raise SubmissionError(f"the vectors in {path} are {entry['dtype']}", expected=", ".join(SAFETENSORS))
        dtype, code = SAFETENSORS[entry["dtype"]]
        vectors = mapped(path, np.dtype(code), tuple(entry["shape"]), offset=8 + length + entry["data_offsets"][0])
        inner_ids = None if listed is None else as_ids(parse_json(listed), path.name)
    return _joined(path, vectors, inner_ids, ids, dtype=dtype)


def read_torch(path: Path, ids: Path | None) -> Stored:
    """A torch file that holds a tensor, or a dict of tensors and lists of ids, and nothing that must be unpickled."""
    try:
        import torch
    except ImportError:
        raise SubmissionError(
            f"{path} needs torch to be read", fix="pip install torch, or save the tensor as .npz or .safetensors"
        ) from None
    with readable(path):
        try:
            content = load_tensors(path, mapped=True)
        except UnpicklingError:
            raise pickled(path) from None
    held = content if isinstance(content, dict) else {"embeddings": content}
    tensor = held[only([str(name) for name in held], VECTOR_NAMES, "tensor of vectors", path)]
    named = next((held[name] for name in held if name in ID_NAMES), None)
    listed = named.tolist() if isinstance(named, torch.Tensor) else named
    inner_ids = None if listed is None else as_ids(listed, path.name)
    if not isinstance(tensor, torch.Tensor):
        raise SubmissionError(f"the vectors in {path} are not a tensor", found=type(tensor).__name__)
    dtype = str(tensor.dtype).removeprefix("torch.")
    whole = tensor.detach().contiguous()
    return _joined(
        path, (whole.view(torch.uint16) if dtype == "bfloat16" else whole).numpy(), inner_ids, ids, dtype=dtype
    )


def read_arrow(path: Path, ids: Path | None) -> Stored:
    """An Arrow IPC (feather) file or stream, or a Hugging Face dataset saved to disk."""
    return _tabular(path, ids, read_ipc)


def read_parts(path: Path, ids: Path | None) -> Stored:
    """A parquet file or a folder of parquet files."""
    stored = _tabular(path, ids, read_parquet)
    with readable(path):
        return stored._replace(left_out=left_out_of(stored.files))


READERS: dict[str, Reader] = {
    ".npz": read_npz, ".npy": read_npy, ".parquet": read_parts, ".safetensors": read_safetensors,
    ".arrow": read_arrow, ".arrows": read_arrow, ".feather": read_arrow, ".ipc": read_arrow,
    ".pt": read_torch, ".pth": read_torch,
}  # fmt: skip

VECTORS_ALONE = frozenset(READERS) - {".parquet"}  # suffixes of files that hold no ranking

WRITERS: dict[str, Callable[[Path, Ids, NDArray[Any], Mapping[str, str]], None]] = {
    ".parquet": write_parquet, ".npz": write_npz, ".npy": write_npy,
}  # fmt: skip

KEEP_LEFT_OUT = (".parquet", ".npz")

SAFETENSORS = {
    "F16": ("float16", "<f2"), "F32": ("float32", "<f4"), "F64": ("float64", "<f8"), "BF16": ("bfloat16", "<u2"),
    "I8": ("int8", "<i1"), "U8": ("uint8", "<u1"), "I16": ("int16", "<i2"), "U16": ("uint16", "<u2"),
    "I32": ("int32", "<i4"), "U32": ("uint32", "<u4"), "I64": ("int64", "<i8"), "U64": ("uint64", "<u8"),
}  # fmt: skip


def open_stored(path: Path, ids: Path | None) -> Stored:
    """Read `path` by its suffix, or a folder by the files in it."""
    if not path.exists():
        raise SubmissionError(f"{path} does not exist", expected="an embedding file")
    if path.is_dir():
        return _folder_reader(path)(path, ids)
    if path.suffix.lower() not in READERS:
        raise foreign(path) or UsageError(
            f"{path} is not an embedding file by its suffix",
            expected=", ".join(READERS),
            found=path.suffix or "no suffix",
        )
    if path.stat().st_size == 0:
        raise SubmissionError(f"{path} is empty", expected="ids and vectors", found="0 bytes")
    return READERS[path.suffix.lower()](path, ids)


@contextmanager
def readable(path: Path, *others: type[Exception]) -> Iterator[None]:
    """Turn what parsers raise on a damaged file into one SubmissionError."""
    try:
        yield
    except (*DAMAGED, *others) as error:
        raise SubmissionError(
            f"{path} cannot be read: it is damaged, cut off, or not a {path.suffix or 'folder of parts'}",
            found=first_line(error), fix="write or copy it again and compare its sha256sum",
        ) from None  # fmt: skip


def _folder_reader(path: Path) -> Reader:
    if any(path.glob("*.parquet")):
        return read_parts
    if any(path.glob("*.arrow")):
        return read_arrow
    parts = sorted(child.name for child in path.iterdir() if child.is_dir() and any(child.glob("*.arrow")))
    raise SubmissionError(
        f"{path} is not a folder of embeddings",
        expected="part-*.parquet, or the *.arrow files of a saved dataset",
        found=f"the splits {', '.join(parts)}" if parts else "neither",
        fix=f"name one of them, such as {path / parts[0]}" if parts else None,
    )


def _tabular(path: Path, ids: Path | None, read: Callable[[Path], tuple[Ids, NDArray[Any], list[Path]]]) -> Stored:
    with readable(path):
        inner_ids, vectors, files = read(path)
    stored = _joined(path, vectors, inner_ids, ids)
    return stored._replace(files=tuple(files))


def _joined(path: Path, vectors: NDArray[Any], inner_ids: Ids | None, ids: Path | None, *, dtype: str = "") -> Stored:
    """Vectors with the ids of their own file, else of the file given or lying beside it."""
    if inner_ids is not None and ids is not None:
        raise UsageError(f"{path} has its own ids", found=f"--ids {ids} as well", fix="leave --ids out")
    sidecar = None if inner_ids is not None else ids or id_files.beside(path)
    if inner_ids is None and sidecar is None:
        raise SubmissionError(
            f"{path} has no ids",
            expected=f"ids in it, or {path.stem}.ids.txt beside it with one id per vector",
            fix="name the file of ids with --ids FILE",
        )
    chosen = inner_ids if sidecar is None else id_files.read(sidecar)
    files = (path,) if sidecar is None else (path, sidecar)
    return Stored(chosen, vectors, dtype or str(vectors.dtype), files)  # type: ignore[arg-type]
