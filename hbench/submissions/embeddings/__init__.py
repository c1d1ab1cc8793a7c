"""Embeddings: one vector per id, as a file holds them; read, checked and joined to a dataset's
items by id.

The order of the rows never matters, the vectors are never copied whole, and a memory-mapped file
stays mapped.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "emb.npz"
...     write(path, ["b", "a"], np.eye(2, dtype=np.float16))
...     found = read(path)
...     align(found, ["a", "b"]).tolist()
[1, 0]
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError
from hbench.core.tables import index_array, numbers, text_array
from hbench.engine.scan import Scan, scan
from hbench.submissions import content
from hbench.submissions.embeddings.arrow_files import blocks
from hbench.submissions.embeddings.files import KEEP_LEFT_OUT as KEEP_LEFT_OUT
from hbench.submissions.embeddings.files import WRITERS, Stored, open_stored, stored_table
from hbench.submissions.embeddings.ids import Ids, as_ids
from hbench.submissions.embeddings.spellings import likely_cause
from hbench.submissions.problems import SubmissionProblem, found, refuse


@dataclass(frozen=True)
class Embeddings:
    """`ids` (N,) str and `vectors` float16, float32 or float64 (N, D) in file order, perhaps mapped
    and then read-only.

    `dtype` is the type in the file; integers and bfloat16 are widened when read. `sha256` is the
    file's; for several files that of their `sha256sum` lines in order of name. `left_out`: items
    that could not be embedded. `read_as`: what in the file was taken for vectors and ids, in words,
    where its names do not say it. `image_size`: the side of the images, and `made`: the command
    that made the embeddings, where the file says so.
    """

    ids: Ids
    vectors: NDArray[Any]
    sha256: str
    source: str
    dtype: str
    left_out: tuple[str, ...] = ()
    read_as: str = ""
    image_size: int | None = None
    made: str | None = None

    @property
    def dim(self) -> int:
        """D, how many numbers a vector has."""
        return int(self.vectors.shape[1])

    @cached_property
    def content(self) -> str:
        """The sha256 of the ids and vectors themselves, whatever file they came from."""
        return content.of_vectors(self.ids, self.vectors)

    @cached_property
    def scan(self) -> Scan:
        """The squared lengths and content keys of the vectors, for which they are read once."""
        return scan(self.vectors)

    def __len__(self) -> int:
        return len(self.ids)

    def without_zeros(self) -> "Embeddings":
        """The embeddings without the vectors that are all zero, whose items count as left out:
        published files of taxa have some, where a model knew no name."""
        is_zero = self.scan.squares == 0
        if not is_zero.any():
            return self
        left_out = tuple(self.ids[is_zero].tolist())
        return replace(
            self,
            ids=self.ids[~is_zero],
            vectors=self.vectors[~is_zero],
            left_out=(*self.left_out, *left_out),
        )


def read(path: Path, *, ids: Path | None = None) -> Embeddings:
    """The embeddings in a file or folder, with `ids` from a file of their own where the format has
    no place for them.

    Raises SubmissionError for a missing, damaged, pickled, empty or misshapen file, UsageError for
    an unknown suffix.
    """
    return _embeddings_of_stored(open_stored(Path(path), ids), Path(path))


def from_table(table: pa.Table, path: Path) -> Embeddings:
    """The embeddings in a table with a column of ids, made from that of the file at `path`; raises
    as `read`.
    """
    return _embeddings_of_stored(stored_table(table, path), path)


def _embeddings_of_stored(stored: Stored, path: Path) -> Embeddings:
    """The embeddings that a file holds, once its content has been read: ids and vectors of one
    number, with vectors widened to floats. `path` names the file in errors. Raises SubmissionError
    for vectors that are no table, are empty, or have another number of ids."""
    shape = stored.vectors.shape
    if len(shape) != 2 or 0 in shape:
        raise SubmissionError(
            f"{path} holds no {'vectors' if 0 in shape else 'table of vectors'}",
            expected="shape (items, dimension)",
            found=f"shape {shape}",
        )
    if len(stored.ids) != len(stored.vectors):
        raise SubmissionError(
            f"{path} has different numbers of ids and vectors",
            expected=f"{len(stored.vectors):,} ids, one per vector",
            found=f"{len(stored.ids):,}",
            # as many ids as columns: the vectors are the columns
            fix="the matrix is transposed: save vectors.T" if len(stored.ids) == shape[1] else None,
        )

    vectors = _as_floats(stored, str(path))
    named = _named(path, stored.files)
    return Embeddings(
        stored.ids,
        vectors,
        digest(stored.files),
        named,
        stored.dtype,
        left_out=stored.left_out,
        read_as=stored.read_as,
        image_size=stored.image_size,
        made=stored.made,
    )


def joined(ids: NDArray[Any], vectors: NDArray[Any]) -> Embeddings:
    """Embeddings that were made in memory: ids (N,) and vectors (N, D), with no digest, since there
    is no file. Raises SubmissionError where their numbers differ."""
    if len(ids) != len(vectors):
        raise SubmissionError(
            "ids and vectors differ in number",
            expected=f"{len(vectors):,} ids",
            found=f"{len(ids):,}",
        )
    return Embeddings(ids, vectors, "", "arrays", str(vectors.dtype))


def refuse_suffix(path: Path) -> None:
    """Raise UsageError for a file in whose format embeddings are not written."""
    if path.suffix not in WRITERS:
        raise UsageError(
            f"{path}: no such format to write",
            expected=", ".join(WRITERS),
            found=path.suffix or "no suffix",
        )


def write(
    path: str | Path,
    ids: Sequence[str],
    vectors: NDArray[Any],
    *,
    metadata: Mapping[str, str] | None = None,
    left_out: Sequence[str] = (),
) -> None:
    """Write float vectors (N, D) and their ids as .parquet, .npz or .npy (+ .ids.json), whole or
    not at all.

    `metadata` becomes the parquet file's key-value metadata, each key prefixed by "hbench.";
    `left_out`: the items that could not be embedded, which .parquet and .npz keep.
    """
    path = Path(path)
    refuse_suffix(path)
    names = as_ids(ids, "the list given")
    if vectors.ndim != 2 or len(names) != len(vectors) or vectors.dtype.kind != "f":
        raise UsageError(
            "these cannot be written as embeddings",
            expected="one vector of floats per id",
            found=f"{len(names):,} ids, {vectors.dtype} of shape {vectors.shape}",
        )
    words = {f"hbench.{key}": value for key, value in (metadata or {}).items()}
    if left_out:  # travels as metadata, which writers put where their format has a place for it
        words["hbench.left_out"] = json.dumps(list(left_out))
    WRITERS[path.suffix](path, names, vectors, words)


def align(embeddings: Embeddings, items: Sequence[str] | Ids) -> NDArray[np.int64]:
    """The row of each of the items, ids, among the embeddings, int64 (n,): `vectors[rows]` are
    theirs. Raises SubmissionError if one is missing.
    """
    rows = pc.index_in(text_array(items), value_set=text_array(embeddings.ids))
    if rows.null_count:  # some item was not found
        refuse(embeddings.source, problems_of_ids(embeddings.ids, wanted=items))
    return numbers(rows, np.dtype(np.int32)).astype(np.int64)


def problems(
    embeddings: Embeddings,
    *,
    wanted: Sequence[str] | Ids,
    known: Collection[str] = (),
    cosine: bool,
) -> list[SubmissionProblem]:
    """Every problem at once: ids against the `wanted` items, then the numbers, block by block.

    Ids outside `wanted` are a fault unless they are `known` (other items of the dataset); a zero
    vector has no direction and is a fault only under `cosine`. What a file was taken for, where it
    does not say so itself, is told as a problem that is not fatal.
    """
    every = problems_of_ids(embeddings.ids, wanted=wanted, known=known)
    every += _problems_of_vectors(embeddings, cosine=cosine)
    if embeddings.read_as:
        every += found(embeddings.read_as, (), len(embeddings), fatal=False)
    return every


def problems_between(query: Embeddings, gallery: Embeddings) -> list[SubmissionProblem]:
    """Find what keeps two files from being compared: different dimensions, or different vectors for
    an id that both have.
    """
    if query.dim != gallery.dim:
        text = f"dimensions, {query.dim} in {query.source} and {gallery.dim} in {gallery.source}"
        fix = "embed queries and gallery with the same model"
        return [SubmissionProblem(text, count=2, fix=fix)]

    # of every query's id the row of the gallery with the same id, null where there is none
    rows = pc.index_in(text_array(query.ids), value_set=text_array(gallery.ids))
    shared = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))  # rows of the queries
    other = rows.drop_null().to_numpy()  # and of the gallery
    differs = np.zeros(len(shared), dtype=bool)
    # some rows at a time, so that the copies stay small
    for block in blocks(len(shared), query.dim):
        differs[block] = (query.vectors[shared[block]] != gallery.vectors[other[block]]).any(axis=1)
    return found(
        "ids with another vector as query than in the gallery",
        query.ids[shared[differs]],
        int(differs.sum()),
        "embed each image once, or give one file for both",
    )


def problems_of_ids(
    ids: Ids, *, wanted: Sequence[str] | Ids, known: Collection[str] = ()
) -> list[SubmissionProblem]:
    """Duplicate ids, `wanted` ones that are missing, and unknown ones, as problems; ids of the
    dataset that are not wanted here (`known`) are a remark. Where missing and unknown ids differ
    only in spelling, the problem says how."""
    texts = text_array(ids)
    needed = text_array(wanted)
    # a struct of values and counts
    counts = pc.value_counts(texts)
    several = np.flatnonzero(numbers(counts.field("counts"), np.dtype(np.int64)) > 1)
    duplicate = counts.field("values").take(index_array(several))
    missing = needed.filter(pc.invert(pc.is_in(needed, value_set=texts)))
    foreign = texts.filter(pc.invert(pc.is_in(texts, value_set=needed)))
    # ids of the dataset outside of this test: they do no harm
    elsewhere = pc.is_in(foreign, value_set=text_array(known))
    other = foreign.filter(elsewhere)
    unknown = foreign.filter(pc.invert(elsewhere))
    # such as another folder or suffix; with it the unknown ids need no advice of their own
    cause = likely_cause(missing.to_pylist(), unknown.to_pylist()) if len(missing) else None

    return [
        *found(
            "missing ids", _strings(missing), len(missing), cause or "embed these items as well"
        ),
        *found(
            "unknown ids",
            _strings(unknown),
            len(unknown),
            None if cause else "remove these rows, or choose their dataset",
        ),
        *found("duplicate ids", _strings(duplicate), len(duplicate), "keep one row per id"),
        *found(
            "ids of the dataset that its test leaves out",
            _strings(other),
            len(other),
            "they are ignored",
            fatal=False,
        ),
    ]


def _problems_of_vectors(embeddings: Embeddings, *, cosine: bool) -> list[SubmissionProblem]:
    """The faults of vectors: NaN, Inf, zero (under `cosine`), and a remark on integers.

    Only rows whose length is 0 or not finite as a float32 are looked at one by one; all others are
    sound, and the scan has their lengths already.
    """
    rows: dict[str, list[int]] = {kind: [] for kind, _ in FAULTS}
    # as float32, in which they are ranked: there a tiny length becomes 0, a huge one infinite
    with np.errstate(over="ignore", under="ignore"):
        squares = embeddings.scan.squares.astype(np.float32)
    for row in np.flatnonzero(~np.isfinite(squares) | (cosine & (squares == 0))).tolist():
        rows[_fault(np.asarray(embeddings.vectors[row]))].append(row)
    problems = [
        problem
        for kind, fix in FAULTS
        # no more ids than a message names: of a million faults, the others are not gathered
        for problem in found(kind, embeddings.ids[rows[kind][:5]], len(rows[kind]), fix)
    ]

    # numpy knows no bfloat16
    is_float = embeddings.dtype == "bfloat16" or np.dtype(embeddings.dtype).kind not in "iub"
    if not is_float:
        problems += found(
            f"{embeddings.dtype} vectors",
            (),
            len(embeddings),
            "they are scored as floats",
            fatal=False,
        )

    return problems


def _fault(vector: NDArray[Any]) -> str:
    """The kind of fault, one of FAULTS, of a vector (D,) whose length is 0 or not finite."""
    if np.isnan(vector).any():
        return "vectors with NaN"
    if np.isinf(vector).any():
        return "vectors with Inf"
    # the length is beyond the floats although no number of the vector is
    return "vectors whose length leaves float32" if vector.any() else "zero vectors"


FAULTS = (
    ("vectors with NaN", "look for half-precision overflow or a division by zero in the model"),
    ("vectors with Inf", "look for half-precision overflow in the model"),
    (
        "zero vectors",
        "they have no direction under cosine similarity: embed these images again, or --leave-out "
        "zero",
    ),
    ("vectors whose length leaves float32", "scale them"),
)


def digest(files: Sequence[Path]) -> str:
    """sha256 of a file; of several, that of the lines `sha256sum` prints for them in order of
    name."""
    sums = []
    for path in sorted(files, key=lambda file: file.name):
        with path.open("rb") as file:
            sums.append((hashlib.file_digest(file, "sha256").hexdigest(), path.name))
    if len(sums) == 1:
        return sums[0][0]
    return hashlib.sha256(
        "".join(f"{checksum}  {name}\n" for checksum, name in sums).encode()
    ).hexdigest()


def _named(path: Path, files: Sequence[Path]) -> str:
    """Return the name that a report gives the `files` that were read at `path`: their names, or of
    a folder, which may have a thousand, its own name and their number."""
    if path.is_dir():
        what = "file" if len(files) == 1 else "files"
        return f"{path.resolve().name} ({len(files):,} {what})"
    return ", ".join(file.name for file in files)


def _as_floats(stored: Stored, source: str) -> NDArray[Any]:
    """The vectors (N, D) of a file as floats in the processor's byte order: such floats as they
    are, bfloat16 and integers of one or two bytes as float32, which holds them exactly, others as
    float64. Block by block, so that little more than the result is held. `source` is for errors.
    """
    vectors = stored.vectors
    if stored.dtype == "bfloat16":
        # it was read as uint16; a bfloat16 is the upper half of a float32
        return _widened(
            vectors, np.dtype(np.float32), lambda part: (part.astype("<u4") << 16).view("<f4")
        )
    if vectors.dtype.kind == "f" and vectors.dtype.itemsize <= 8:
        native = vectors.dtype.newbyteorder("=")
        return vectors if vectors.dtype == native else _widened(vectors, native, lambda part: part)
    if vectors.dtype.kind in "iub":
        small = vectors.dtype.itemsize <= 2
        return _widened(vectors, np.dtype(np.float32 if small else np.float64), lambda part: part)

    raise SubmissionError(
        f"the vectors in {source} are {vectors.dtype}",
        expected="float16, bfloat16, float32 or float64",
    )


def _widened(
    vectors: NDArray[Any], dtype: np.dtype[Any], values: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[Any]:
    """The vectors (N, D) in another type, made of what `values` makes of a block of rows, so that
    no second array of all of them is needed."""
    result = np.empty(vectors.shape, dtype)
    for block in blocks(*vectors.shape):
        result[block] = values(vectors[block])
    return result


def _strings(texts: pa.Array) -> list[str]:
    """The first texts of an array: as many as a message shows."""
    return [str(text) for text in texts.slice(0, 5).to_pylist()]
