"""Reads and writes the formats of embedding files. READERS has a function for each suffix, which
returns what is stored at a path.

Vectors in .npy, uncompressed .npz members, .safetensors and single-batch Arrow files are
memory-mapped. Nothing is ever unpickled. Formats that need unpickling, or another library, are
refused with a command that converts the file.
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

from hbench.core.errors import SubmissionError, UsageError, shorten
from hbench.core.text import first_line
from hbench.core.untrusted import load_tensors, open_zip, parse_json
from hbench.sheets import words
from hbench.sheets.dialect import suffix_of
from hbench.submissions.embeddings import ids as id_files
from hbench.submissions.embeddings.arrow_files import (
    TableRead,
    image_size_of,
    left_out_of,
    made_by,
    read_ipc,
    read_parquet,
    read_table,
    write_parquet,
)
from hbench.submissions.embeddings.conversions import foreign, pickled, unknown_suffix
from hbench.submissions.embeddings.ids import Ids, as_ids
from hbench.submissions.embeddings.numpy_files import (
    header_of,
    mapped,
    mapped_npy,
    member,
    write_npy,
    write_npz,
)
from hbench.submissions.embeddings.parts import (
    ArrayPart,
    are_all_vectors,
    as_words,
    ids_among,
    named,
    vectors_among,
)
from hbench.submissions.embeddings.text_vectors import read_csv, read_jsonl
from hbench.submissions.embeddings.torch_files import are_sparse, by_name, held_part, numpy_of
from hbench.submissions.problems import listed


class Stored(NamedTuple):
    """The content of an embedding file, before its vectors are checked and converted to floats."""

    ids: Ids  # (N,)
    vectors: NDArray[Any]  # (N, D) in the type of the file, bfloat16 as uint16
    dtype: str  # the name of the type in the file
    files: tuple[Path, ...]  # every file that was read
    left_out: tuple[str, ...] = ()  # items that could not be embedded, as the file states
    read_as: str = ""  # which parts are vectors and ids, in words; "" if they have usual names
    image_size: int | None = None  # side of the images in pixels, if the file states it
    made: str | None = None  # the command that made the embeddings, if the file states it


Reader = Callable[[Path, Path | None], Stored]
DAMAGED = (
    pa.ArrowException,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
)


def read_npy(path: Path, ids: Path | None) -> Stored:
    """Read a NumPy array, memory-mapped, with ids from the file `ids` or from a file beside it."""
    with readable(path):
        vectors = mapped_npy(path, 0, path.stat().st_size)
    return _with_ids(path, vectors, None, ids)


def read_npz(path: Path, ids: Path | None) -> Stored:
    """Read a NumPy archive: arrays called `vectors` (or `embeddings`) and `ids`; else the only
    arrays that can be these; else one array for each id. Uncompressed members are memory-mapped.
    `ids` is the file of ids that the user gave, else None. Raises UsageError if there are both ids
    inside and a given file."""
    with readable(path), open_zip(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        ids_named = [name for name in names if words.folded(name) in words.SURE_IDS]
        vectors_named = [name for name in names if words.folded(name) in words.VECTORS]
        usual = [*vectors_named, *ids_named]
        # If both have usual names, the names decide: no headers are read, so shapes and kinds stay
        # unknown, and other members are ignored. Otherwise all members are described below. hbench
        # itself writes the member `left_out`, with the ids of images that could not be embedded.
        parts = [ArrayPart(name=name, shape=(), kind="?") for name in usual]
        if not (vectors_named and ids_named):
            parts = [_member_part(archive, name, path) for name in names if name != "left_out"]
        if not usual and are_all_vectors(parts):
            return _stored_one_by_one(
                path, {part.name: member(archive, part.name, path) for part in parts}, ids
            )

        name = vectors_among(parts, path, "array of vectors")
        vectors = member(archive, name, path)
        number = len(vectors) if vectors.ndim else 0  # a single number is refused later
        of_ids = ids_among(parts, number, path, "array of ids", given=ids is not None)
        # an array of objects with one entry per vector may be the ids, but is stored as a pickle
        has_objects = any(part.kind == "O" and part.shape == vectors.shape[:1] for part in parts)
        if of_ids is None and ids is None and has_objects:
            raise pickled(path)

        inner_ids = None if of_ids is None else as_ids(member(archive, of_ids, path), path.name)
        left_out: tuple[str, ...] = ()
        if "left_out" in names:
            left_out = tuple(as_ids(member(archive, "left_out", path), path.name).tolist())

    stored = _with_ids(path, vectors, inner_ids, ids)
    # for the user: which arrays were taken, "" for usual names; or else which file of ids
    return stored._replace(left_out=left_out, read_as=as_words(name, of_ids) or stored.read_as)


def _member_part(archive: zipfile.ZipFile, name: str, path: Path) -> ArrayPart:
    """Describe an array of the .npz at `path` from its header. Its values are only read when the
    part's `values` are called."""
    shape, dtype = header_of(archive, name)
    kind = "O" if dtype.hasobject else dtype.kind
    return ArrayPart(name, shape, kind, lambda: member(archive, name, path).tolist())


def _stored_one_by_one(
    path: Path, arrays: Mapping[str, NDArray[Any]], ids: Path | None, *, dtype: str = ""
) -> Stored:
    """The content of a file that stores one array per item, under the item's id.

    Args:
        path: of the file, for errors.
        arrays: from each id to an array (D,) or (1, D), which is flattened. D is the same for all.
        ids: a file of ids that the user gave, which is refused with a UsageError; else None.
        dtype: the name of the type in the file, if it is not that of the arrays.
    """
    if ids is not None:
        raise UsageError(
            f"{path} has its own ids", found=f"--ids {ids} as well", fix="leave --ids out"
        )
    vectors = np.stack([array.reshape(-1) for array in arrays.values()])
    said = "vectors, one under each id"
    return Stored(
        ids=as_ids(list(arrays), path.name),
        vectors=vectors,
        dtype=dtype or str(vectors.dtype),
        files=(path,),
        read_as=said,
    )


def read_safetensors(path: Path, ids: Path | None) -> Stored:
    """Read a safetensors file with a tensor `embeddings`, memory-mapped. The ids are a JSON list in
    the file's metadata `ids`, or stored in a file beside it, or in the file `ids` that the user
    gave. Other usual names of both are known, too (`words`). Raises UsageError if there are both
    ids inside and a given file.
    """
    with readable(path, SafetensorError):
        # safe_open checks the header, and that the tensors fill the file
        with safe_open(path, "numpy") as file:
            name = vectors_among(_tensor_parts(file), path, "tensor of vectors")
            metadata = file.metadata() or {}
            of_ids = next(iter(words.ids_in(metadata)), None)

        # The library cannot memory-map a tensor, so its position is looked up here. The file has
        # the length of the header in 8 bytes, the header in JSON, and then the tensors.
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entry = parse_json(file.read(length))[name]

        if entry["dtype"] not in SAFETENSORS:
            raise SubmissionError(
                f"the vectors in {path} are {entry['dtype']}", expected=", ".join(SAFETENSORS)
            )

        # the name of the type, and NumPy's code for its numbers, little-endian
        dtype, code = SAFETENSORS[entry["dtype"]]
        vectors = mapped(
            path,
            np.dtype(code),
            tuple(entry["shape"]),
            offset=8 + length + entry["data_offsets"][0],
        )
        inner_ids = None if of_ids is None else as_ids(parse_json(metadata[of_ids]), path.name)

    stored = _with_ids(path, vectors, inner_ids, ids, dtype=dtype)
    # `read_as` tells the user which names were taken for vectors and ids, "" for the usual ones
    return stored._replace(read_as=as_words(name, of_ids) or stored.read_as)


def _tensor_parts(file: Any) -> list[ArrayPart]:
    """Describe the tensors of an open safetensors file, so that the vectors can be found."""
    names = list(file.keys())
    views = [(name, file.get_slice(name)) for name in names]
    # the names of float types, F32 or BF16, have an F; those of integers, such as I64, do not
    return [
        ArrayPart(
            name=name, shape=tuple(view.get_shape()), kind="f" if "F" in view.get_dtype() else "i"
        )
        for name, view in views
    ]


def read_torch(path: Path, ids: Path | None) -> Stored:
    """Read a torch file that holds a tensor, or a dict of tensors and lists of ids. `ids` is a file
    of ids, if the torch file has none. Raises SubmissionError for anything that must be unpickled,
    since that runs code.
    """
    try:
        import torch
    except ImportError:
        raise SubmissionError(
            f"{path} needs torch to be read",
            fix="pip install torch, or save the tensor as .npz or .safetensors",
        ) from None

    with readable(path):
        try:
            content = load_tensors(path, mapped=True)
        except UnpicklingError:
            raise pickled(path) from None

    held = by_name(content)  # from the name of each entry to a tensor or another value
    # the name, shape and kind of each entry, by which vectors and ids are found
    parts = [held_part(name, part) for name, part in held.items()]
    # no entry has a name for vectors or ids, and each is one vector, whose id is its name; sparse
    # tensors are refused below
    if (
        not named(parts, (*words.VECTORS, *words.SURE_IDS))
        and are_all_vectors(parts)
        and not are_sparse(held)
    ):
        # the type is passed by name, since `numpy_of` returns bfloat16 as uint16
        dtype = str(next(iter(held.values())).dtype).removeprefix("torch.")
        return _stored_one_by_one(
            path, {name: numpy_of(part) for name, part in held.items()}, ids, dtype=dtype
        )

    name = vectors_among(parts, path, "tensor of vectors")
    tensor = held[name]
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        found = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise SubmissionError(
            f"the vectors in {path} are not a tensor", expected="a dense tensor", found=str(found)
        )

    number = len(tensor) if tensor.ndim else 0
    # the name of the list of ids; None if there is none, or the ids are in another file
    of_ids = ids_among(parts, number, path, "list of ids", given=ids is not None)
    inner_ids = None
    if of_ids is not None:
        listed = held[of_ids]
        inner_ids = as_ids(listed.tolist() if hasattr(listed, "tolist") else listed, path.name)
    dtype = str(tensor.dtype).removeprefix("torch.")
    stored = _with_ids(path, numpy_of(tensor), inner_ids, ids, dtype=dtype)

    # for the user: which entries were taken or, if all names are usual (""), which file of ids
    return stored._replace(read_as=as_words(name, of_ids) or stored.read_as)


def read_arrow(path: Path, ids: Path | None) -> Stored:
    """Read an Arrow IPC (feather) file or stream, or a Hugging Face dataset saved to disk."""
    return _tabular(path, ids, read_ipc)


def read_parts(path: Path, ids: Path | None) -> Stored:
    """Read a parquet file, or a folder of parquet files, with their metadata: the items that could
    not be embedded, the size of the images, and the command that made the embeddings.

    `ids` is a separate file with the ids; None if they are a column of the file.
    """
    stored = _tabular(path, ids, read_parquet)
    # the vectors are read; the metadata of the files that held them are read separately
    with readable(path):
        return stored._replace(
            left_out=left_out_of(stored.files),
            image_size=image_size_of(stored.files),
            made=made_by(stored.files),
        )


def stored_table(table: pa.Table, path: Path) -> Stored:
    """The content of a table in memory with a column of ids. `path` is the file from which the
    table was made."""
    return _tabular(path, None, lambda _: read_table(table, path))


READERS: dict[str, Reader] = {
    ".npz": read_npz, ".npy": read_npy, ".parquet": read_parts, ".safetensors": read_safetensors,
    ".arrow": read_arrow, ".arrows": read_arrow, ".feather": read_arrow, ".ipc": read_arrow,
    ".pt": read_torch, ".pth": read_torch,
}  # fmt: skip

TEXTS: dict[str, Callable[[Path], TableRead]] = {
    ".csv": read_csv, ".tsv": read_csv, ".jsonl": read_jsonl, ".ndjson": read_jsonl,
}  # fmt: skip
# TEXTS are kept apart from READERS, by whose suffixes embedding files are found in a folder: most
# CSV files are tables of something else.

VECTORS_ALONE = frozenset(READERS) - {".parquet"}  # suffixes of files that hold no ranking

WRITERS: dict[str, Callable[[Path, Ids, NDArray[Any], Mapping[str, str]], None]] = {
    ".parquet": write_parquet, ".npz": write_npz, ".npy": write_npy,
}  # fmt: skip

KEEP_LEFT_OUT = (".parquet", ".npz")

SAFETENSORS = {
    "F16": ("float16", "<f2"), "F32": ("float32", "<f4"), "F64": ("float64", "<f8"),
    "BF16": ("bfloat16", "<u2"),
    "I8": ("int8", "<i1"), "U8": ("uint8", "<u1"), "I16": ("int16", "<i2"),
    "U16": ("uint16", "<u2"),
    "I32": ("int32", "<i4"), "U32": ("uint32", "<u4"), "I64": ("int64", "<i8"),
    "U64": ("uint64", "<u8"),
}  # fmt: skip


def open_stored(path: Path, ids: Path | None) -> Stored:
    """Read an embedding file by its suffix, or a folder by the files in it. Raises SubmissionError
    for files that cannot be read, UsageError for an unknown suffix.

    Args:
        ids: the file of ids. None if the vectors are stored with their ids, or the file of ids is
            found beside them by its name.
    """
    if not path.exists():
        raise SubmissionError(f"{path} does not exist", expected="an embedding file")
    if path.is_dir():
        return _folder_reader(path)(path, ids)
    # `suffix_of` is .csv for .csv.gz, too, as compressed tables are read
    text_suffix = suffix_of(path)
    if text_suffix not in TEXTS and path.suffix.lower() not in READERS:
        # `foreign` returns an error for a known format that is not read, else None
        raise foreign(path) or unknown_suffix(path, (*READERS, *TEXTS))
    if path.stat().st_size == 0:
        raise SubmissionError(f"{path} is empty", expected="ids and vectors", found="0 bytes")
    if text_suffix in TEXTS:
        return _tabular(path, ids, TEXTS[text_suffix])

    return READERS[path.suffix.lower()](path, ids)


@contextmanager
def readable(path: Path, *others: type[Exception]) -> Iterator[None]:
    """A context in which a parser's errors on a damaged file become one SubmissionError that names
    the file. These errors are DAMAGED and `others`."""
    try:
        yield
    except (*DAMAGED, *others) as error:
        raise SubmissionError(
            f"{path} cannot be read: it is damaged, cut off, or not a "
            f"{path.suffix or 'folder of parts'}",
            found=shorten(first_line(error), 300),
            fix="write or copy it again and compare its sha256sum",
        ) from None


def _folder_reader(path: Path) -> Reader:
    """The reader for a folder, chosen by the files in it: parquet files, or a dataset saved by
    Hugging Face `datasets`. Raises SubmissionError for any other folder."""
    if any(path.glob("*.parquet")):
        return read_parts
    if any(path.glob("*.arrow")):
        return read_arrow
    parts = sorted(
        child.name for child in path.iterdir() if child.is_dir() and any(child.glob("*.arrow"))
    )
    raise SubmissionError(
        f"{path} is not a folder of embeddings",
        expected="part-*.parquet, or the *.arrow files of a saved dataset",
        found=f"the splits {listed(parts)}" if parts else "neither",
        fix=f"name one of them, such as {path / parts[0]}" if parts else _advice_on(path),
    )


def _tabular(path: Path, ids: Path | None, read: Callable[[Path], TableRead]) -> Stored:
    """The content of a table that the function `read` returns. If the table has no ids, they are
    read from the file `ids`, or from a file beside it."""
    with readable(path):
        found = read(path)
    stored = _with_ids(path, found.vectors, found.ids, ids)
    return stored._replace(files=tuple(found.files), read_as=found.read_as)


def _with_ids(
    path: Path, vectors: NDArray[Any], inner_ids: Ids | None, ids: Path | None, *, dtype: str = ""
) -> Stored:
    """Combine vectors (N, D) with their ids. Raises UsageError if there are both `inner_ids` and
    `ids`, SubmissionError if no ids are found.

    Args:
        inner_ids: the ids in the same file, (N,); None if it has none.
        ids: the file of ids that the user gave. None: a file of ids is looked for beside `path`.
        dtype: the name of the type in the file, if it is not that of `vectors`.
    """
    if inner_ids is not None and ids is not None:
        raise UsageError(
            f"{path} has its own ids", found=f"--ids {ids} as well", fix="leave --ids out"
        )

    sidecar = None if inner_ids is not None else ids or id_files.beside(path)
    if inner_ids is None and sidecar is None:
        raise SubmissionError(
            f"{path} has no ids",
            expected=f"ids in it, or {path.stem}.ids.txt beside it with one id per vector",
            fix="name the file of ids with --ids FILE",
        )

    kind = dtype or str(vectors.dtype)
    if sidecar is None:
        assert inner_ids is not None
        return Stored(ids=inner_ids, vectors=vectors, dtype=kind, files=(path,))
    # a file beside the vectors whose name does not end in "ids" is a guess, so the user is told
    is_named_so = sidecar == ids or sidecar.stem.endswith("ids")
    said = "" if is_named_so else f"vectors, with the ids of {sidecar.name}"
    return Stored(
        ids=id_files.read(sidecar), vectors=vectors, dtype=kind, files=(path, sidecar), read_as=said
    )


def _advice_on(folder: Path) -> str | None:
    """The advice of an error about a folder of several embedding files; None if it has none."""
    files = [path for path in folder.iterdir() if path.suffix.lower() in READERS]
    return f"hbench evaluate-all {folder} scores each of its {len(files)} files" if files else None
