"""Embeddings in Arrow's formats: parquet files, IPC (feather) files and streams, and folders of
such files.

A row has an `id` (string or integer) and an `embedding` (a list of numbers, preferably of fixed
size), or a number in each of the columns f0, f1 …; other columns are ignored. Ids are read in one
pass and vectors in another, batch by batch, so that only one array of vectors is ever in memory. If
an IPC file has a single uncompressed batch, its vectors are not copied but stay in the mapped file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError
from hbench.core.files import replacing
from hbench.core.tables import numbers
from hbench.core.text import counted
from hbench.core.untrusted import (
    arrow_batches,
    arrow_schema,
    open_parquet,
    parquet_batches,
    parse_json,
    read_json,
)
from hbench.sheets import words
from hbench.submissions.embeddings.arrow_types import (
    is_list,
    lists_of,
    nulls_of,
    storage,
    storage_type,
    texts_of,
)
from hbench.submissions.embeddings.ids import Ids, from_texts, the_one_named
from hbench.submissions.embeddings.parts import as_words, dimension_columns
from hbench.submissions.problems import MEND_ROWS, rows_in_words

BLOCK_BYTES = 16 << 20
BATCH_ROWS = 1024  # larger batches of float16 cost more memory and time

Batches = Callable[[Path, Sequence[str]], Iterator[pa.RecordBatch]]


class TableRead(NamedTuple):
    """The ids and vectors that were read from a table.

    `read_as` says, in words, which columns were taken for vectors and ids; "" if they have usual
    names.
    """

    ids: Ids | None  # (N,)
    vectors: NDArray[Any]  # (N, D)
    files: list[Path]
    read_as: str = ""


class VectorColumns(NamedTuple):
    """The names of the columns that hold ids and vectors."""

    ids: str
    vectors: tuple[str, ...]  # one column of lists, or one column for each dimension

    @property
    def said(self) -> str:
        """Which columns were taken for vectors and ids, in words; "" if they have usual names."""
        first = self.vectors[0]
        last = self.vectors[-1]
        return as_words(first if first == last else f"the columns {first} … {last}", self.ids)


def read_parquet(path: Path) -> TableRead:
    """The ids and vectors of a parquet file, or of every *.parquet of a folder, in order of
    name."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return _read_parts(files, _parquet_schema, _parquet_columns)


def read_table(table: pa.Table, path: Path) -> TableRead:
    """The ids and vectors of a table in memory. `path` is the file from which the table was
    made."""
    # the table is read like a file of one part
    return _read_parts(
        [path],
        lambda _: table.schema,
        lambda _, names: iter(table.select(list(names)).to_batches()),
    )


def left_out_of(files: Sequence[Path]) -> tuple[str, ...]:
    """The items that could not be embedded, from the JSON list in each parquet file's metadata."""
    listed = (
        (_parquet_schema(file).metadata or {}).get(b"hbench.left_out", b"[]") for file in files
    )
    return tuple(str(item) for text in listed for item in parse_json(text))


def image_size_of(files: Sequence[Path]) -> int | None:
    """The side, in pixels, of the embedded images; None unless all files state the same one."""
    said = {(_parquet_schema(file).metadata or {}).get(b"hbench.image_size") for file in files}
    size = said.pop() if len(said) == 1 else None
    return int(size) if size and size.isdigit() else None


def made_by(files: Sequence[Path]) -> str | None:
    """The command that made the embeddings; None unless all files state the same one."""
    said = {(_parquet_schema(file).metadata or {}).get(b"hbench.made") for file in files}
    command = said.pop() if len(said) == 1 else None
    return command.decode(errors="replace") if command else None


def read_ipc(path: Path) -> TableRead:
    """The ids and vectors of an Arrow IPC file or stream, or of a folder that Hugging Face's
    `save_to_disk` wrote."""
    return _read_parts(_saved_files(path) if path.is_dir() else [path], arrow_schema, _ipc_columns)


def _read_parts(
    files: Sequence[Path], schema_of: Callable[[Path], pa.Schema], batches_of: Batches
) -> TableRead:
    """Read the ids of all files, then their vectors, batch by batch.

    The number of ids tells how large the array of vectors must be, so that it is allocated once.

    Args:
        files: the parts of one table.
        schema_of: returns the columns of a file with their types.
        batches_of: yields the batches of a file with only the named columns.
    """
    ids: list[Ids] = []
    columns = []
    for file in files:
        columns.append(_columns_of_ids_and_vectors(schema_of(file), file, batches_of))
        for first, batch in _with_first_rows(batches_of(file, [columns[-1].ids])):
            texts = texts_of(batch.column(0), str(file), first=first)
            ids.append(from_texts(texts, file.name))

    # the empty array is the result if there are no files or batches
    all_ids = np.concatenate([np.zeros(0, dtype=object), *ids])
    # A generator, so that only one batch is in memory at a time. Batches without rows are left out,
    # since the dimension is read from the first list of a batch.
    parts = (
        (file, _vectors_of_batch(batch, file, first))
        for file, of_file in zip(files, columns, strict=True)
        for first, batch in _with_first_rows(batches_of(file, of_file.vectors))
        if len(batch)
    )

    # `said`: which columns were taken, in words; all parts of one table have the same columns
    return TableRead(
        ids=all_ids,
        vectors=_stack_parts(parts, len(all_ids)),
        files=list(files),
        read_as=columns[0].said if columns else "",
    )


def _columns_of_ids_and_vectors(
    schema: pa.Schema, file: Path, batches_of: Batches
) -> VectorColumns:
    """Find the columns of ids and vectors in a file with this schema: those with usual names, else
    the only ones of a fitting type. `batches_of` reads the file if the schema is not enough. Raises
    SubmissionError if no column fits, or several do."""
    kinds = {field.name: storage_type(field.type) for field in schema}
    id_name = _id_column(kinds, file)
    known = [name for name in kinds if words.folded(name) in words.VECTORS]
    if known:
        return VectorColumns(
            id_name, (the_one_named(list(kinds), known, "column of vectors", file),)
        )

    lists = [
        name
        for name, kind in kinds.items()
        if is_list(kind) and _are_numbers(storage_type(kind.value_type))
    ]
    # no column has a usual name for vectors here; columns with a less usual one are preferred to
    # columns with any other name
    lists = [name for name in lists if words.folded(name) in words.OTHER_VECTORS] or lists
    # lists of one number are, say, labels
    if len(lists) == 1 and _length_of_first_list(file, lists[0], batches_of) > 1:
        return VectorColumns(id_name, (lists[0],))

    # one column for each dimension (f0, f1 …), of floats, or else of any numbers; () if there are
    # none
    floats = dimension_columns([name for name, kind in kinds.items() if pa.types.is_floating(kind)])
    wide = floats or dimension_columns(
        [name for name, kind in kinds.items() if _are_numbers(kind) and name != id_name]
    )
    # without such columns, the_one_named raises
    return VectorColumns(
        id_name, wide or (the_one_named(list(kinds), words.VECTORS, "column of vectors", file),)
    )


def _id_column(kinds: Mapping[str, pa.DataType], file: Path) -> str:
    """The name of the column of ids: one with a sure name for ids; else the only column of texts
    that has another name for ids or is an index; else the only column of whole numbers with another
    name for ids. Raises SubmissionError if none fits, or several do.

    `kinds` is the type of each column by its name.
    """
    sure = [name for name in kinds if words.folded(name) in words.SURE_IDS]
    texts = []
    whole_numbers = []  # considered last, since they may as well be labels
    for name, kind in kinds.items():
        has_id_name = words.folded(name) in words.OTHER_IDS
        # counts_rows=False: only names that programs give, such as "__index_level_0__", mean an
        # index here. Names such as "index" or "no." mean one if the values number the rows, but
        # here an index must have texts as values.
        is_index = words.is_index(name, counts_rows=False)
        if (has_id_name or is_index) and _are_texts(kind):
            texts.append(name)
        elif has_id_name and pa.types.is_integer(kind):
            whole_numbers.append(name)
    others = texts or whole_numbers
    if not sure and len(others) == 1:
        return others[0]
    # returns the single sure name; for none or several it raises and names the expected ones
    expected = sure or others or ["id", "ids", "image_id"]
    return the_one_named(list(kinds), expected, "id column", file)


def _are_texts(kind: pa.DataType) -> bool:
    """Whether values of this type are neither numbers nor lists, so that they can be ids."""
    return not _are_numbers(kind) and not is_list(kind)


def _are_numbers(kind: pa.DataType) -> bool:
    """Whether values of this type are floats or integers; booleans are not."""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _length_of_first_list(file: Path, name: str, batches_of: Batches) -> int:
    """The length of the first list in a column; 0 if the column is empty, or if the first batch
    with rows has a null."""
    column = next((batch.column(0) for batch in batches_of(file, [name]) if len(batch)), None)
    return 0 if column is None or column.null_count else len(storage(column)[0])


def blocks(count: int, dim: int) -> Iterator[slice]:
    """Slices that together cover `count` rows of `dim` numbers. Each has at most 16 MiB as float32,
    but at least one row."""
    step = max(1, BLOCK_BYTES // (4 * max(1, dim)))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _stack_parts(parts: Iterator[tuple[Path, NDArray[Any]]], total: int) -> NDArray[Any]:
    """Concatenate parts (n, D) into one array (total, D). Each part comes with its file, for
    errors. Raises SubmissionError if a part has another dimension or type than the first.
    """
    _, first = next(parts, (None, np.zeros((0, 0), np.float32)))
    if len(first) == total:  # a single part is not copied, so that it may stay memory-mapped
        return first

    vectors = np.empty((total, first.shape[1]), first.dtype)
    vectors[: len(first)] = first
    row = len(first)
    for file, part in parts:
        if part.shape[1] != first.shape[1] or part.dtype != first.dtype:
            raise SubmissionError(
                f"the vectors in {file} are of another dimension or type",
                expected=f"{first.dtype} of dimension {first.shape[1]} as in row 0",
                found=f"{part.dtype} of dimension {part.shape[1]} at row {row:,}",
            )
        vectors[row : row + len(part)] = part
        row += len(part)

    return vectors


def _with_first_rows(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each batch of a file behind the number of the file's rows that come before it."""
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


def _vectors_of_batch(batch: pa.RecordBatch, source: Path, first: int) -> NDArray[Any]:
    """The vectors (n, D) in a batch of n rows that has only their columns: one column of lists of D
    numbers, which is not copied, or D columns of numbers.

    Raises SubmissionError for missing numbers, and for lists of different lengths. `source` is the
    file, and `first` the number of its rows before this batch, both for errors.
    """
    if batch.num_columns == 1:  # refused there if it has no lists: a single number is no vector
        return _vectors_of_lists(batch.column(0), source, first)
    if nulls := sum(column.null_count for column in batch.columns):
        empty = np.any([nulls_of(column) for column in batch.columns], axis=0)
        raise SubmissionError(
            f"{source} has {counted(nulls, 'null')} inside its vectors",
            expected="numbers",
            found=rows_in_words(np.flatnonzero(empty).tolist(), first=first),
            fix=MEND_ROWS,
        )
    columns = [storage(column) for column in batch.columns]  # plain numbers
    return np.column_stack(
        [numbers(column, np.dtype(column.type.to_pandas_dtype())) for column in columns]
    )


def _vectors_of_lists(column: pa.Array, source: Path, first: int) -> NDArray[Any]:
    """The vectors (n, D) in a column of n ≥ 1 lists of D numbers. The numbers of all lists are
    contiguous in memory already, so nothing is copied.

    Raises SubmissionError for missing lists or numbers, and for lists of different lengths. `first`
    is the number of rows of the file `source` before this column, for errors.
    """
    column = lists_of(column, source)
    kind = column.type
    if column.null_count:
        raise SubmissionError(
            f"{source} has {counted(column.null_count, 'row')} without a vector",
            found=rows_in_words(np.flatnonzero(nulls_of(column)).tolist(), first=first),
            fix=MEND_ROWS,
        )

    width = len(column[0])
    if not pa.types.is_fixed_size_list(kind):
        widths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        other = np.flatnonzero(widths != width)
        if len(other):
            raise SubmissionError(
                f"the vectors in {source} differ in dimension",
                expected=f"{width} as in the first of them",
                found=f"{widths[other[0]]} in {rows_in_words(other.tolist(), first=first)}",
                fix=MEND_ROWS,
            )

    values = storage(column.flatten())  # (n·D,): plain numbers, without Arrow's extension types
    if values.null_count:
        rows = np.unique(np.flatnonzero(nulls_of(values)) // width)
        raise SubmissionError(
            f"{source} has {counted(values.null_count, 'null')} inside its vectors",
            expected="numbers",
            found=rows_in_words(rows.tolist(), first=first),
            fix=MEND_ROWS,
        )

    # `numbers` reads the bytes of the array in place, as the NumPy type that is equal to Arrow's
    return numbers(values, np.dtype(values.type.to_pandas_dtype())).reshape(len(column), width)


def _parquet_schema(path: Path) -> pa.Schema:
    """The columns of a parquet file with their types, and the file's metadata. No values are
    read."""
    with open_parquet(path) as file:
        return file.schema_arrow


def _parquet_columns(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a parquet file with only the columns `names`, in this order."""
    with open_parquet(path, mapped=True) as file:
        for batch in parquet_batches(
            file, rows=BATCH_ROWS, columns=names, size=path.stat().st_size
        ):
            yield batch.select(list(names))


def _ipc_columns(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of an IPC file or stream with only the columns `names`, in this order."""
    schema = arrow_schema(path)
    places = [schema.get_field_index(name) for name in names]
    # If fields are selected, Arrow copies them. That suits ids, but lists of vectors should stay in
    # the memory map: for them all fields are opened.
    has_lists = any(pa.types.is_nested(storage_type(schema.field(place).type)) for place in places)
    batches = arrow_batches(path, [] if has_lists else places)
    return (batch.select(list(names)) for batch in batches)


def _saved_files(folder: Path) -> list[Path]:
    """The data files of a saved Hugging Face dataset: those that its state.json names, since cache
    files may be stored beside them. Without a state.json, all *.arrow files.
    """
    state = folder / "state.json"
    if not state.is_file():
        return sorted(folder.glob("*.arrow"))
    described = read_json(state)
    if described.get("_indices_files"):
        raise SubmissionError(
            f"{folder} selects rows by an index",
            expected="the rows themselves",
            fix="dataset.flatten_indices().save_to_disk(…)",
        )
    # only the name is used, so that no file outside the folder is read, whatever state.json says
    return [folder / Path(entry["filename"]).name for entry in described["_data_files"]]


def write_parquet(path: Path, ids: Ids, vectors: NDArray[Any], metadata: Mapping[str, str]) -> None:
    """Write ids (N,) and vectors (N, D) as one parquet file, block by block, with `metadata` in its
    schema. Vectors are neither compressed nor encoded by a dictionary, since their numbers hardly
    repeat."""
    dim = vectors.shape[1]
    kind = pa.list_(pa.from_numpy_dtype(vectors.dtype), dim)
    schema = pa.schema(
        {"id": pa.string(), "embedding": kind}, metadata={"hbench.dim": str(dim), **metadata}
    )

    with (
        replacing(path) as temporary,
        pq.ParquetWriter(
            temporary, schema, compression="none", use_dictionary=False, write_statistics=["id"]
        ) as writer,
    ):
        for block in blocks(len(ids), dim):
            # the numbers of all rows in one flat array; the type has the length of each vector
            values = pa.array(np.ascontiguousarray(vectors[block]).reshape(-1))
            columns = [
                pa.array(ids[block], pa.string()),
                pa.FixedSizeListArray.from_arrays(values, type=kind),
            ]
            writer.write_table(pa.table(columns, schema=schema))
