"""The first results of every query, which are stored in parquet beside a report: a row per query
with three lists, best first.

The columns are `query`, `test`, `items` (ids), `scores` (similarities, float32) and `levels`
(0 … L). The metadata tie the file to its report (`Document.marks`).
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
    """The first results of one test, as a table with a row per query.

    Args:
        test: the name of the test.
        queries: the ids of the queries, (Q,).
        ranked: the ids of the gallery items, (G,).
        top: the first k items of each query, as indices into `ranked`, and their levels, (Q, k)
            each.
        scores: the similarities of these items, (Q, k).
    """
    # some lists are shorter than k; `offsets` (Q + 1,) are their bounds in one flat array
    some = top.items != NO_ITEM  # (Q, k): where a list has an item
    offsets = pa.array(np.concatenate([[0], np.cumsum(some.sum(axis=1))]), pa.int32())
    items = pa.array(ranked, pa.string()).take(pa.array(top.items[some]))
    lists = (items, pa.array(scores[some].astype(np.float32)), pa.array(top.levels[some]))
    found = [pa.ListArray.from_arrays(offsets, values) for values in lists]
    columns = [pa.array(queries, pa.string()), pa.array([test] * len(queries), pa.string()), *found]
    # COLUMNS: query, test, items, scores, levels
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def write(path: Path, table: pa.Table, document: Document) -> None:
    """Write the first results of a report, completely or not at all."""
    with replacing(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(document.marks()), temporary, compression="zstd"
        )


def read(path: Path, document: Document) -> pa.Table:
    """Read the first results beside a report. Raises SubmissionError if they are missing, damaged,
    of other types, or belong to another report.
    """
    table = table_beside(path, document, tuple(COLUMNS), what="first results", option="--top-k 20")
    found = {name: table.schema.field(name).type for name in COLUMNS}
    if found != COLUMNS:
        raise SubmissionError(
            f"{path} does not hold first results", expected=str(COLUMNS), found=str(found)
        )
    return table
