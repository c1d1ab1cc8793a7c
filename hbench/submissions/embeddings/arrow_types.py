"""Reads ids and vectors of the many Arrow types that can hold them. Extension types are read by
their storage; a type that cannot be used is named in the error.

>>> texts_of(pa.array([7, 12]).dictionary_encode(), "emb.parquet").to_pylist()
['7', '12']
"""

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, shorten
from hbench.core.text import counted
from hbench.submissions.problems import MEND_ROWS, rows_in_words

IDS = "strings or integers"
LISTS = "lists of numbers, best fixed_size_list<float>[D]"

LIST_KINDS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of an extension type are stored; any other type itself."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def storage(column: pa.Array) -> pa.Array:
    """The plain values of a column, without extension types and run-end encoding."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def nulls_of(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each value of a column is missing, (n,)."""
    return np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))


def texts_of(column: pa.Array | pa.ChunkedArray, source: str, *, first: int = 0) -> pa.Array:
    """Ids as large strings. Raises SubmissionError for a null, and for a type that cannot hold ids.
    `source` is the file, and `first` the number of its rows before this column, for errors."""
    if column.null_count:
        raise SubmissionError(
            f"{source} has {counted(column.null_count, 'row')} without an id",
            found=rows_in_words(np.flatnonzero(nulls_of(column)).tolist(), first=first),
            fix=MEND_ROWS,
        )
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    # the empty array gives a column without chunks its type
    return pa.concat_arrays(
        [pa.array([], pa.large_string()), *(_texts_of(chunk, source) for chunk in chunks)]
    )


def _texts_of(column: pa.Array, source: str) -> pa.Array:
    """Ids of any type whose values have one obvious spelling, as texts. Raises SubmissionError for
    floats, booleans and nested values, which have several spellings or none."""
    name = str(column.type)
    plain = storage(column)  # without extension types and run-end encoding
    if _is_uuid(column.type):  # in the usual spelling, 8-4-4-4-12 hex digits
        return pa.array(
            [str(uuid.UUID(bytes=value)) for value in plain.to_pylist()], pa.large_string()
        )

    kind = plain.type
    if pa.types.is_dictionary(kind):
        plain = plain.dictionary_decode()
        return _texts_of(plain, source)  # the values in the dictionary may be of any type again
    if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        raise not_taken(source, "ids", name, IDS)

    try:
        if pa.types.is_fixed_size_binary(kind):  # Arrow cannot cast this type to texts directly
            plain = plain.cast(pa.binary())
        return plain.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise SubmissionError(
            f"the ids in {source} are {shorten(name)} that is no UTF-8",
            expected=IDS,
            found=str(error),
        ) from None
    except pa.ArrowException:  # Arrow has no cast from this type to texts
        raise not_taken(source, "ids", name, IDS) from None


def _is_uuid(kind: pa.DataType) -> bool:
    """Whether values of this type are UUIDs of 16 bytes each."""
    if not isinstance(kind, pa.BaseExtensionType) or kind.extension_name != "arrow.uuid":
        return False
    # a damaged or hostile file may give this name to any type, so the storage is checked as well
    stored = kind.storage_type
    return bool(pa.types.is_fixed_size_binary(stored) and stored.byte_width == 16)


def not_taken(source: object, what: str, name: str, expected: str) -> SubmissionError:
    """The error for ids or vectors (`what`) of an Arrow type that cannot be used. `name` is the
    name of the type, and `source` the file, which is not damaged."""
    return SubmissionError(f"the {what} in {source} are {shorten(name)}", expected=expected)


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, in any of Arrow's five list types."""
    return any(is_kind(kind) for is_kind in LIST_KINDS)


def lists_of(column: pa.Array, source: object) -> pa.Array:
    """A column of vectors as a plain Arrow array of lists of numbers. Raises SubmissionError, which
    names the type, for any other column.
    """
    plain = storage(column)
    if pa.types.is_dictionary(plain.type):  # equal vectors were stored once
        plain = plain.dictionary_decode()
    kind = plain.type
    value = storage_type(kind.value_type) if is_list(kind) else None
    if value is None or not (pa.types.is_floating(value) or pa.types.is_integer(value)):
        raise not_taken(source, "vectors", str(column.type), LISTS)
    return plain
