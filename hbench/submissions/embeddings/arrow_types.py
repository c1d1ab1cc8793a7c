"""Arrow's types of ids and vectors: extension types by their storage, and a type that is not taken
by its name.

>>> texts_of(pa.array([7, 12]).dictionary_encode(), "emb.parquet").to_pylist()
['7', '12']
"""

import uuid

import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.errors import SubmissionError, shorten

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
    """The type that values of an extension type are stored in; any other type as it is."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def storage(column: pa.Array) -> pa.Array:
    """A column as it is stored, without extension types and runs."""
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def texts_of(column: pa.Array | pa.ChunkedArray, source: str) -> pa.Array:
    """Ids as large strings. Raises SubmissionError for a null, and for a type that holds no ids."""
    if column.null_count:
        raise SubmissionError(f"{source} has {column.null_count:,} rows without an id")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    # the empty array gives a column without chunks its type
    return pa.concat_arrays(
        [pa.array([], pa.large_string()), *(_texts_of(chunk, source) for chunk in chunks)]
    )


def _texts_of(column: pa.Array, source: str) -> pa.Array:
    """Ids of any type that has one plain spelling, as texts. Raises SubmissionError for floats,
    flags and nested values, which have several or none."""
    name = str(column.type)
    # the values without the type that a program put around them
    plain = storage(column)
    # 16 bytes, in the spelling that everybody writes: 8-4-4-4-12 hex digits
    if _is_uuid(column.type):
        return pa.array(
            [str(uuid.UUID(bytes=value)) for value in plain.to_pylist()], pa.large_string()
        )

    kind = plain.type
    if pa.types.is_dictionary(kind):  # a table of values, and a number in it for each row
        plain = plain.dictionary_decode()
        return _texts_of(plain, source)
    if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        raise not_taken(source, "ids", name, IDS)

    try:
        if pa.types.is_fixed_size_binary(kind):  # which arrow casts to texts by way of bytes alone
            plain = plain.cast(pa.binary())
        return plain.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise SubmissionError(
            f"the ids in {source} are {shorten(name)} that is no UTF-8",
            expected=IDS,
            found=str(error),
        ) from None
    except pa.ArrowException:
        raise not_taken(source, "ids", name, IDS) from None


def _is_uuid(kind: pa.DataType) -> bool:
    """Whether values are UUIDs, in 16 bytes each; a file may call anything so."""
    if not isinstance(kind, pa.BaseExtensionType) or kind.extension_name != "arrow.uuid":
        return False
    stored = kind.storage_type
    return bool(pa.types.is_fixed_size_binary(stored) and stored.byte_width == 16)


def not_taken(source: object, what: str, name: str, expected: str) -> SubmissionError:
    """The refusal of ids or vectors (`what`) of an Arrow type that is not taken, by its `name`; it
    is no damage of the file `source`."""
    return SubmissionError(f"the {what} in {source} are {shorten(name)}", expected=expected)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of whichever of Arrow's five kinds."""
    return any(is_kind(kind) for is_kind in LIST_KINDS)


def lists_of(column: pa.Array, source: object) -> pa.Array:
    """Vectors as an Arrow array of lists of numbers. Raises SubmissionError, which names the type,
    for any other column.
    """
    plain = storage(column)
    if pa.types.is_dictionary(plain.type):  # equal vectors stored once
        plain = plain.dictionary_decode()
    kind = plain.type
    value = storage_type(kind.value_type) if is_list(kind) else None
    if value is None or not (pa.types.is_floating(value) or pa.types.is_integer(value)):
        raise not_taken(source, "vectors", str(column.type), LISTS)
    return plain
