"""Reads and writes lists of relevance judgements, for benchmarks that name positives pair by pair instead of by labels.

A list is a table with the columns `query`, `item` and `level`. The level -1 leaves an item out of the query's list; a pair
that is not listed has level 0.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from hbench.core.errors import DataError, IntegrityError
from hbench.core.text import first_line
from hbench.core.untrusted import parquet_table

LEFT_OUT = -1
SCHEMA = pa.schema([("query", pa.string()), ("item", pa.string()), ("level", pa.int8())])


def list_of(pairs: Iterable[tuple[str, str, int]]) -> pa.Table:
    """Make the sorted table of (query, item, level); raises DataError for a pair that occurs twice."""
    rows = sorted(pairs)
    if len({row[:2] for row in rows}) != len(rows):
        raise DataError("a pair of query and item is listed twice", expected="each pair once")
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def digest_of(table: pa.Table) -> str:
    """The sha256 of the sorted rows."""
    rows = zip(*(table[name].to_pylist() for name in SCHEMA.names), strict=True)
    return hashlib.sha256(
        "\n".join(f"{query}\t{item}\t{level}" for query, item, level in sorted(rows)).encode()
    ).hexdigest()


def read_list(path: Path, digest: str) -> pa.Table:
    """Read a list from a parquet file; raises DataError where it is missing, IntegrityError where it lacks `digest`."""
    try:
        table = parquet_table(path).select(SCHEMA.names).cast(SCHEMA)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read", found=first_line(error), fix="build the dataset again") from None
    if digest_of(table) != digest:
        raise IntegrityError(f"{path} has other content than recorded", fix="build the dataset again")
    return table
