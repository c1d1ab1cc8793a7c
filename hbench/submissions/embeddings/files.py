"""Formats of embedding files: one entry per suffix in READERS, from a path (and a file of ids) to
what is stored there.

Vectors stay where they lie: .npy, uncompressed .npz members, .safetensors and single-batch Arrow
files are mapped. Nothing is ever unpickled; formats that need it, or another library, are refused
with the line that converts them.
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
from hbench.submissions.embeddings.conversions import foreign, pickled
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
    """The content of a file: ids (N,), vectors (N, D) in the file's type (bfloat16 as uint16),
    every file read; the items that it says could not be embedded; what was taken for vectors and
    ids, in words, where names do not say it; the side of the images, and the command that made the
    embeddings, where it says so."""

    ids: Ids
    vectors: NDArray[Any]
    dtype: str
    files: tuple[Path, ...]
    left_out: tuple[str, ...] = ()
    read_as: str = ""
    image_size: int | None = None
    made: str | None = None


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
    """A NumPy array, mapped from disk, with its ids from the file `ids`, or one that lies beside
    it."""
    with readable(path):
        vectors = mapped_npy(path, 0, path.stat().st_size)
    return _with_ids(path, vectors, None, ids)


def read_npz(path: Path, ids: Path | None) -> Stored:
    """A NumPy archive of `vectors` (or `embeddings`) and `ids`, or of the only arrays that can be
    these, or of one array for each id; members stored without compression are mapped."""
    with readable(path), open_zip(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        ids_named = [name for name in names if words.folded(name) in words.SURE_IDS]
        vectors_named = [name for name in names if words.folded(name) in words.VECTORS]
        usual = [*vectors_named, *ids_named]
        # Where both have usual names, the names decide: no header is read, so that shapes and kinds
        # are not known, and no other member is looked at. `left_out`, as hbench writes it, has the
        # ids of images that could not be embedded.
        parts = [ArrayPart(name, (), "?") for name in usual]
        if not (vectors_named and ids_named):
            parts = [_member_part(archive, name, path) for name in names if name != "left_out"]
        if not usual and are_all_vectors(parts):
            return _stored_one_by_one(
                path, {part.name: member(archive, part.name, path) for part in parts}, ids
            )

        name = vectors_among(parts, path, "array of vectors")
        vectors = member(archive, name, path)
        number = len(vectors) if vectors.ndim else 0  # of a single number, which is refused later
        of_ids = ids_among(parts, number, path, "array of ids", given=ids is not None)
        # the ids may be objects, which only a pickle holds
        # an array of objects of the length of the vectors
        has_objects = any(part.kind == "O" and part.shape == vectors.shape[:1] for part in parts)
        if of_ids is None and ids is None and has_objects:
            raise pickled(path)

        inner_ids = None if of_ids is None else as_ids(member(archive, of_ids, path), path.name)
        left_out: tuple[str, ...] = ()
        if "left_out" in names:
            left_out = tuple(as_ids(member(archive, "left_out", path), path.name).tolist())

    stored = _with_ids(path, vectors, inner_ids, ids)
    # nothing is said of usual names; then what `_with_ids` says of a file of ids is kept
    return stored._replace(left_out=left_out, read_as=as_words(name, of_ids) or stored.read_as)


def _member_part(archive: zipfile.ZipFile, name: str, path: Path) -> ArrayPart:
    """An array of the .npz at `path` by its header, to tell what it may be; its values are read
    only where they are asked for."""
    shape, dtype = header_of(archive, name)
    kind = "O" if dtype.hasobject else dtype.kind
    return ArrayPart(name, shape, kind, lambda: member(archive, name, path).tolist())


def _stored_one_by_one(
    path: Path, arrays: Mapping[str, NDArray[Any]], ids: Path | None, *, dtype: str = ""
) -> Stored:
    """What is stored in a file that has one array per item, by its id: these arrays, flattened, are
    the vectors. `ids`: a file of ids, which such a file must not have (UsageError); `dtype`: the
    type in the file, where that of the arrays is another."""
    if ids is not None:
        raise UsageError(
            f"{path} has its own ids", found=f"--ids {ids} as well", fix="leave --ids out"
        )
    vectors = np.stack([array.reshape(-1) for array in arrays.values()])
    said = "vectors, one under each id"
    return Stored(
        as_ids(list(arrays), path.name),
        vectors,
        dtype or str(vectors.dtype),
        (path,),
        read_as=said,
    )


def read_safetensors(path: Path, ids: Path | None) -> Stored:
    """A safetensors file with a tensor `embeddings`, mapped; ids as a JSON list in its metadata
    `ids`, or beside it.
    """
    with readable(path, SafetensorError):
        # checks the header, and that the tensors fill the file
        with safe_open(path, "numpy") as file:
            name = vectors_among(_tensor_parts(file), path, "tensor of vectors")
            metadata = file.metadata() or {}
            of_ids = next(iter(words.ids_in(metadata)), None)

        # the library has no way to map: the file is the length of a header, the header in JSON, and
        # the tensors at its offsets
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")  # of the header
            entry = parse_json(file.read(length))[name]

        if entry["dtype"] not in SAFETENSORS:
            raise SubmissionError(
                f"the vectors in {path} are {entry['dtype']}", expected=", ".join(SAFETENSORS)
            )

        # the name of the type, and numpy's code for its numbers, little-endian
        dtype, code = SAFETENSORS[entry["dtype"]]
        vectors = mapped(
            path,
            np.dtype(code),
            tuple(entry["shape"]),
            offset=8 + length + entry["data_offsets"][0],
        )
        inner_ids = None if of_ids is None else as_ids(parse_json(metadata[of_ids]), path.name)

    stored = _with_ids(path, vectors, inner_ids, ids, dtype=dtype)
    return stored._replace(read_as=as_words(name, of_ids) or stored.read_as)


def _tensor_parts(file: Any) -> list[ArrayPart]:
    """The tensors of an open safetensors file, to tell which are vectors: an F in the type, as in
    F32 and BF16, is that of floats; I64 and others are whole numbers."""
    names = list(file.keys())
    views = [(name, file.get_slice(name)) for name in names]
    return [
        ArrayPart(name, tuple(view.get_shape()), "f" if "F" in view.get_dtype() else "i")
        for name, view in views
    ]


def read_torch(path: Path, ids: Path | None) -> Stored:
    """Read a torch file that holds a tensor, or a dict of tensors and lists of ids. Raises
    SubmissionError for anything that must be unpickled, since that runs code. `ids`: a file of ids,
    for vectors without them.
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

    # by name; each as a part (name, shape, kind of values), by which vectors and ids are told
    held = by_name(content)
    parts = [held_part(name, part) for name, part in held.items()]
    # a vector under each id; a sparse tensor is refused below, by its layout
    if (
        not named(parts, (*words.VECTORS, *words.SURE_IDS))
        and are_all_vectors(parts)
        and not are_sparse(held)
    ):
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
    # the name of the list of ids; None where there is none, or ids come from another file
    of_ids = ids_among(parts, number, path, "list of ids", given=ids is not None)
    inner_ids = None
    if of_ids is not None:
        listed = held[of_ids]
        values = listed.tolist() if hasattr(listed, "tolist") else listed
        inner_ids = as_ids(values, path.name)
    dtype = str(tensor.dtype).removeprefix("torch.")
    stored = _with_ids(path, numpy_of(tensor), inner_ids, ids, dtype=dtype)

    # which names were taken, in words, where they are not usual ones
    return stored._replace(read_as=as_words(name, of_ids) or stored.read_as)


def read_arrow(path: Path, ids: Path | None) -> Stored:
    """An Arrow IPC (feather) file or stream, or a Hugging Face dataset saved to disk."""
    return _tabular(path, ids, read_ipc)


def read_parts(path: Path, ids: Path | None) -> Stored:
    """The content of a parquet file, or of a folder of parquet files, with what its metadata say:
    the items that could not be embedded, the size of the images, and the command that made it."""
    stored = _tabular(path, ids, read_parquet)
    with readable(path):
        return stored._replace(
            left_out=left_out_of(stored.files),
            image_size=image_size_of(stored.files),
            made=made_by(stored.files),
        )


def stored_table(table: pa.Table, path: Path) -> Stored:
    """The content of a table in memory with a column of ids, made from that of the file at
    `path`."""
    return _tabular(path, None, lambda _: read_table(table, path))


READERS: dict[str, Reader] = {
    ".npz": read_npz, ".npy": read_npy, ".parquet": read_parts, ".safetensors": read_safetensors,
    ".arrow": read_arrow, ".arrows": read_arrow, ".feather": read_arrow, ".ipc": read_arrow,
    ".pt": read_torch, ".pth": read_torch,
}  # fmt: skip

TEXTS: dict[str, Callable[[Path], TableRead]] = {
    ".csv": read_csv, ".tsv": read_csv, ".jsonl": read_jsonl, ".ndjson": read_jsonl,
}  # fmt: skip
# Not among READERS, the suffixes by which embedding files are found in a folder: most CSV files are
# tables of something else.

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
    """What is stored in an embedding file, read by its suffix, or in a folder, by the files in it;
    `ids`: the file of ids for vectors that have none of their own, None where they do or it lies
    beside them. Raises SubmissionError for files that cannot be read, UsageError for an unknown
    suffix."""
    if not path.exists():
        raise SubmissionError(f"{path} does not exist", expected="an embedding file")
    if path.is_dir():
        return _folder_reader(path)(path, ids)
    # also compressed: suffix_of is .csv for a file called .csv.gz; an empty one is refused below
    if suffix_of(path) in TEXTS and path.stat().st_size:
        return _tabular(path, ids, TEXTS[suffix_of(path)])
    if path.suffix.lower() not in {**READERS, **TEXTS}:
        raise foreign(path) or UsageError(
            f"{path} is not an embedding file by its suffix",
            expected=", ".join((*READERS, *TEXTS)),
            found=path.suffix or "no suffix",
        )
    if path.stat().st_size == 0:
        raise SubmissionError(f"{path} is empty", expected="ids and vectors", found="0 bytes")

    return READERS[path.suffix.lower()](path, ids)


@contextmanager
def readable(path: Path, *others: type[Exception]) -> Iterator[None]:
    """Turn what parsers raise meanwhile on a damaged file, the errors DAMAGED and these `others`,
    into one SubmissionError that names the file."""
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
    """The reader for a folder, by the files in it: parts in parquet, or a dataset saved by
    `datasets`."""
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
        fix=f"name one of them, such as {path / parts[0]}" if parts else _how_many(path),
    )


def _tabular(path: Path, ids: Path | None, read: Callable[[Path], TableRead]) -> Stored:
    """The content of a table, read by the function of its format; one without ids takes those of
    the file `ids`, or of one beside it."""
    with readable(path):
        found = read(path)
    stored = _with_ids(path, found.vectors, found.ids, ids)
    return stored._replace(files=tuple(found.files), read_as=found.read_as)


def _with_ids(
    path: Path, vectors: NDArray[Any], inner_ids: Ids | None, ids: Path | None, *, dtype: str = ""
) -> Stored:
    """Vectors (N, D) with the ids of their own file (`inner_ids`, None where it has none), else of
    the file given (`ids`) or lying beside it. `dtype`: the type in the file, where that of the
    vectors is another. Raises UsageError for ids of both, SubmissionError for none."""
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
        return Stored(inner_ids, vectors, kind, (path,))
    # a file beside the vectors whose name does not end in "ids" may be that of something else
    is_named_so = sidecar == ids or sidecar.stem.endswith("ids")
    said = "" if is_named_so else f"vectors, with the ids of {sidecar.name}"
    return Stored(id_files.read(sidecar), vectors, kind, (path, sidecar), read_as=said)


def _how_many(folder: Path) -> str | None:
    """What to do with a folder of embedding files of other formats; None where it has none."""
    files = [path for path in folder.iterdir() if path.suffix.lower() in READERS]
    return f"hbench evaluate-all {folder} scores each of its {len(files)} files" if files else None
