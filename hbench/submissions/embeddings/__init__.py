"""Reads embeddings, one vector per id, from files, checks them, and joins them to a dataset's items
by id.

The order of the rows never matters. A memory-mapped file stays mapped, and vectors are not copied
if their format and type allow it.

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
    """Vectors with their ids, in the order of the file.

    Attributes:
        ids: str (N,).
        vectors: float16, float32 or float64 (N, D). They may be memory-mapped and read-only.
        sha256: of the file; for several files, of their `sha256sum` lines in order of name.
        source: the name of the file, or of the files.
        dtype: the type in the file. Integers and bfloat16 are converted to floats when read.
        left_out: the items that could not be embedded.
        read_as: which parts of the file were taken for vectors and ids, in words; "" if they have
            usual names.
        image_size: the side of the images in pixels; None if the file does not state it.
        made: the command that made the embeddings; None if the file does not state it.
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
        """The dimension D of the vectors."""
        return int(self.vectors.shape[1])

    @cached_property
    def content(self) -> str:
        """The sha256 of the ids and vectors themselves, whatever the file format."""
        return content.of_vectors(self.ids, self.vectors)

    @cached_property
    def scan(self) -> Scan:
        """The squared lengths and content keys of the vectors, from one pass over them."""
        return scan(self.vectors)

    def __len__(self) -> int:
        return len(self.ids)

    def without_zeros(self) -> "Embeddings":
        """The embeddings without vectors that are all zero; their items are added to `left_out`.

        Published files with embeddings of taxa have such vectors where a model did not know a name.
        """
        is_zero = self.scan.squares == 0  # (N,), from the squared lengths of the vectors
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
    """Read the embeddings in a file or folder. `ids` is the file of ids for a format that does not
    store them.

    Raises SubmissionError for a missing, damaged, pickled, empty or misshapen file, UsageError for
    an unknown suffix.
    """
    return _embeddings_of_stored(open_stored(Path(path), ids), Path(path))


def from_table(table: pa.Table, path: Path) -> Embeddings:
    """The embeddings in a table in memory with a column of ids. `path` is the file from which the
    table was made. Raises the errors of `read`."""
    return _embeddings_of_stored(stored_table(table, path), path)


def _embeddings_of_stored(stored: Stored, path: Path) -> Embeddings:
    """Check the content of a file, and convert its vectors to floats. What else the file states,
    such as the size of the images, is passed on. `path` names the file in errors. Raises
    SubmissionError if the vectors are empty, are no table, or differ in number from the ids."""
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
            # as many ids as columns suggest that each column is a vector
            fix="the matrix is transposed: save vectors.T" if len(stored.ids) == shape[1] else None,
        )

    vectors = _as_floats(stored, str(path))
    source = _named(path, stored.files)  # the name of the submission in a report
    return Embeddings(
        stored.ids,
        vectors,
        digest(stored.files),
        source,
        stored.dtype,
        left_out=stored.left_out,
        read_as=stored.read_as,
        image_size=stored.image_size,
        made=stored.made,
    )


def joined(ids: NDArray[Any], vectors: NDArray[Any]) -> Embeddings:
    """Embeddings from arrays in memory: ids (N,) and vectors (N, D). Their `sha256` is "", since
    there is no file. Raises SubmissionError if the numbers of ids and vectors differ."""
    if len(ids) != len(vectors):
        raise SubmissionError(
            "ids and vectors differ in number",
            expected=f"{len(vectors):,} ids",
            found=f"{len(ids):,}",
        )
    return Embeddings(
        ids=ids, vectors=vectors, sha256="", source="arrays", dtype=str(vectors.dtype)
    )


def refuse_suffix(path: Path) -> None:
    """Raise UsageError if embeddings cannot be written to a file with this suffix."""
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
    """Write float vectors (N, D) and their ids (N,) as .parquet, .npz or .npy (with .ids.json).

    The file is written completely or not at all. `metadata` becomes the key-value metadata of a
    parquet file, with "hbench." before each key. `left_out` are the items that could not be
    embedded; .parquet and .npz store them.
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
    if left_out:  # passed on as metadata, which each writer stores if its format can
        words["hbench.left_out"] = json.dumps(list(left_out))
    WRITERS[path.suffix](path, names, vectors, words)


def align(embeddings: Embeddings, items: Sequence[str] | Ids) -> NDArray[np.int64]:
    """The row of each item among the embeddings, int64 (n,), so that `vectors[rows]` are the
    vectors of the items. Raises SubmissionError if the embeddings lack an item.
    """
    rows = pc.index_in(text_array(items), value_set=text_array(embeddings.ids))
    if rows.null_count:  # an item that was not found
        refuse(embeddings.source, problems_of_ids(embeddings.ids, wanted=items))
    return numbers(rows, np.dtype(np.int32)).astype(np.int64)


def problems(
    embeddings: Embeddings,
    *,
    wanted: Sequence[str] | Ids,
    known: Collection[str] = (),
    cosine: bool,
) -> list[SubmissionProblem]:
    """All problems of embeddings, first those of the ids, then those of the vectors.

    If the names in the file do not say which parts are vectors and ids, a remark tells how it was
    understood.

    Args:
        wanted: the ids of the items that need a vector, (n,).
        known: the ids of other items of the dataset. Any further id is a fault.
        cosine: whether the similarity is the cosine. Then a zero vector is a fault, since it has no
            direction.
    """
    every = problems_of_ids(embeddings.ids, wanted=wanted, known=known)
    every += _problems_of_vectors(embeddings, cosine=cosine)
    if embeddings.read_as:  # the message begins with the count: "12 vectors, of feats"
        no_examples = ()
        every += found(embeddings.read_as, no_examples, len(embeddings), fatal=False)
    return every


def problems_between(query: Embeddings, gallery: Embeddings) -> list[SubmissionProblem]:
    """The problems that prevent comparing the vectors of two files: different dimensions, or an id
    that has another vector in each file.
    """
    if query.dim != gallery.dim:
        # the message begins with the count: "2 dimensions, …"
        text = f"dimensions, {query.dim} in {query.source} and {gallery.dim} in {gallery.source}"
        fix = "embed queries and gallery with the same model"
        return [SubmissionProblem(text, count=2, fix=fix)]

    # for the id of each query, the row of the gallery with the same id; null if there is none
    rows = pc.index_in(text_array(query.ids), value_set=text_array(gallery.ids))
    # (n,): the rows of the ids in both files, among the queries and in the gallery
    shared = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))
    other = rows.drop_null().to_numpy()
    differs = np.zeros(len(shared), dtype=bool)
    # in blocks, since indexing copies the vectors
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
    """The problems of ids: missing, unknown and duplicate ones. If missing and unknown ids differ
    only in spelling, the problem says how.

    Args:
        ids: of the embeddings, (N,).
        wanted: the ids that must be there.
        known: other ids of the dataset. They are ignored, with a remark.
    """
    texts = text_array(ids)
    needed = text_array(wanted)
    counts = pc.value_counts(texts)  # a struct array with the fields "values" and "counts"
    several = np.flatnonzero(numbers(counts.field("counts"), np.dtype(np.int64)) > 1)
    duplicate = counts.field("values").take(index_array(several))

    missing = needed.filter(pc.invert(pc.is_in(needed, value_set=texts)))
    foreign = texts.filter(pc.invert(pc.is_in(texts, value_set=needed)))
    elsewhere = pc.is_in(foreign, value_set=text_array(known))
    other = foreign.filter(elsewhere)
    unknown = foreign.filter(pc.invert(elsewhere))
    # a difference in spelling, such as another suffix; it also explains the unknown ids, which then
    # need no fix of their own
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
    """The problems of vectors: NaN, Inf, zero vectors (if `cosine`), and a remark on integers.

    The lengths are known from the scan. Only rows whose length is 0 or not finite as a float32 need
    to be examined one by one.
    """
    # from each kind of fault to the rows that have it; FAULTS are pairs of a kind and its fix
    rows: dict[str, list[int]] = {kind: [] for kind, _ in FAULTS}
    # vectors are ranked as float32, in which a tiny length becomes 0 and a huge one infinite
    with np.errstate(over="ignore", under="ignore"):
        squares = embeddings.scan.squares.astype(np.float32)
    for row in np.flatnonzero(~np.isfinite(squares) | (cosine & (squares == 0))).tolist():
        rows[_fault(np.asarray(embeddings.vectors[row]))].append(row)
    problems = [
        problem
        for kind, fix in FAULTS
        # a message names 5 ids at most, so no more are gathered, even if a million are faulty
        for problem in found(kind, embeddings.ids[rows[kind][:5]], len(rows[kind]), fix)
    ]

    # bfloat16 is tested by name, since NumPy has no such type
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
    """The name of the fault, as in FAULTS, of a vector (D,) whose length is 0 or not finite."""
    if np.isnan(vector).any():
        return "vectors with NaN"
    if np.isinf(vector).any():
        return "vectors with Inf"
    # all numbers are finite, yet the length overflows or underflows float32
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
    """The sha256 of a file. For several files, the sha256 of the lines that `sha256sum` prints for
    them, in order of name."""
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
    """The name of a submission in a report: the names of its `files`. For a folder, which may hold
    a thousand files, its own name and the number of files."""
    if path.is_dir():
        what = "file" if len(files) == 1 else "files"
        return f"{path.resolve().name} ({len(files):,} {what})"
    return ", ".join(file.name for file in files)


def _as_floats(stored: Stored, source: str) -> NDArray[Any]:
    """The vectors (N, D) of a file as floats in the processor's byte order.

    Floats are returned without a copy if their byte order is right. bfloat16 and integers of one or
    two bytes become float32, which holds them exactly; longer integers become float64. `source` is
    for errors.
    """
    vectors = stored.vectors
    if stored.dtype == "bfloat16":
        # its bits were read as uint16; they are the upper half of a float32
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
    """Convert vectors (N, D) to a type, with the function `values` applied to one block of rows
    after the other, so that temporary copies stay small."""
    result = np.empty(vectors.shape, dtype)
    for block in blocks(*vectors.shape):
        result[block] = values(vectors[block])
    return result


def _strings(texts: pa.Array) -> list[str]:
    """The first 5 texts of an array, since a message shows no more."""
    return [str(text) for text in texts.slice(0, 5).to_pylist()]
