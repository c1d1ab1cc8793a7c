"""The first results of every query, kept beside a report in parquet: a row per query with three
lists, best first.

Columns `query`, `test`, `items` (ids), `scores` (similarities, float32) and `levels` (0 … L); the
metadata tells whose they are (`Document.marks`).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError
from hbench.core.files import replacing
from hbench.engine.top_k import NO_ITEM, TopResults
from hbench.records.document import Document, table_beside

SUFFIX = ".top-k.parquet"
COLUMNS = {
    "query": pa.string(),
    "test": pa.string(),
    "items": pa.list_(pa.string()),
    "scores": pa.list_(pa.float32()),
    "levels": pa.list_(pa.uint8()),
}


def table_of(
    test: str,
    queries: NDArray[Any],
    ranked: NDArray[Any],
    top: TopResults,
    scores: NDArray[np.float64],
) -> pa.Table:
    """The results of one test, a row per query with its lists of items, similarities and levels:
    `queries` (Q,) and `ranked` (G,) ids, `scores` (Q, k) similarities; `top`: the places of the
    first k items among the ranked ones, and their levels, (Q, k) each."""
    # some lists are shorter than k. `offsets` (Q + 1,): where each query's results begin and end
    # where those of all queries lie one after another
    some = top.items != NO_ITEM
    offsets = pa.array(np.concatenate([[0], np.cumsum(some.sum(axis=1))]), pa.int32())
    items = pa.array(ranked, pa.string()).take(pa.array(top.items[some]))
    lists = (items, pa.array(scores[some].astype(np.float32)), pa.array(top.levels[some]))
    found = [pa.ListArray.from_arrays(offsets, values) for values in lists]
    columns = [pa.array(queries, pa.string()), pa.array([test] * len(queries), pa.string()), *found]
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def write(path: Path, table: pa.Table, document: Document) -> None:
    """Write the results of a report, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(document.marks()), temporary, compression="zstd"
        )


def read(path: Path, document: Document) -> pa.Table:
    """The results beside a report; SubmissionError when they are missing, damaged, foreign, or
    another report's.
    """
    table = table_beside(path, document, tuple(COLUMNS), what="first results", option="--top-k 20")
    found = {name: table.schema.field(name).type for name in COLUMNS}
    if found != COLUMNS:
        raise SubmissionError(
            f"{path} does not hold first results", expected=str(COLUMNS), found=str(found)
        )
    return table
