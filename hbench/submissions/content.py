"""Computes the sha256 of a submission's canonical content. The file format, its metadata and the
order of its rows do not change this digest.

For vectors, the digest covers a line `hbench vectors <f4 3 2` (type in little-endian order, number
of items, dimension). Then, for every 4,096 items in order of their ids, follows the sha256 of these
ids as a JSON list, a zero byte, and their vectors. For lists, the digest covers a line
`hbench lists 3` and then, for every query in order of the ids, its items, best first, and their
scores, if there are any.

>>> vectors = np.eye(3, dtype=np.float32)
>>> of_vectors(["c", "a", "b"], vectors) == of_vectors(["a", "b", "c"], vectors[[1, 2, 0]])
True
>>> of_vectors(["a", "b", "c"], vectors) == of_vectors(["a", "b", "c"], vectors.astype("f8"))
False
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.tables import text_array

PIECE = 4096  # items whose digest is taken at a time, so that several threads can share the work
THREADS = 8  # more threads than this would wait for the disk


def of_vectors(ids: Sequence[str] | NDArray[Any], vectors: NDArray[Any]) -> str:
    """The sha256 of ids (N,) and their vectors (N, D). The order of the items does not matter."""
    order = _by_name(ids)  # (N,), the indices that sort the ids
    named = np.asarray(ids, dtype=object)
    dtype = vectors.dtype.newbyteorder("<")  # the same bytes on every machine

    def piece(start: int) -> bytes:
        """The digest of the PIECE items that begin at position `start` of `order` (N,), the indices
        that sort the items by id; `named` (N,) and `vectors` (N, D) are the items' ids and vectors.
        The whole digest is taken over these digests, so that threads can compute them in parallel.
        """
        rows = order[start : start + PIECE]
        # JSON text never holds a zero byte, so this one marks where the vectors begin
        digest = hashlib.sha256(json.dumps(named[rows].tolist()).encode() + b"\0")
        # row by row and in little-endian order, so that equal numbers have equal bytes
        digest.update(np.ascontiguousarray(vectors[rows], dtype=dtype).data.cast("B"))
        return digest.digest()

    items, dim = vectors.shape
    whole = hashlib.sha256(f"hbench vectors {dtype.str} {items} {dim}\n".encode())
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for part in pool.map(piece, range(0, len(order), PIECE)):
            whole.update(part)
    return whole.hexdigest()


def of_lists(
    queries: NDArray[Any],
    names: NDArray[Any],
    *,
    offsets: NDArray[np.int64],
    items: NDArray[np.int64],
    scores: NDArray[np.float64] | None,
) -> str:
    """The sha256 of queries and their lists of items. The order of the queries does not matter.

    Args:
        queries: the ids of the queries, (Q,).
        names: the ids of all listed items, each once, (M,).
        offsets: (Q + 1,); the list of query i is `items[offsets[i]:offsets[i + 1]]`.
        items: every listed item, best first, as its index in `names`, (n,).
        scores: of the listed items, (n,); None where the lists have an order only.
    """
    whole = hashlib.sha256(f"hbench lists {len(queries)}\n".encode())
    for query in _by_name(queries).tolist():
        start, end = offsets[query], offsets[query + 1]
        listed = names[items[start:end]].tolist()
        # JSON text never holds a zero byte, so this one marks where the scores begin
        whole.update(json.dumps([str(queries[query]), listed]).encode() + b"\0")
        if scores is not None:
            whole.update(np.ascontiguousarray(scores[start:end], dtype="<f8").data)
    return whole.hexdigest()


def of_parts(contents: Sequence[str]) -> str:
    """Combine the digests of a submission's parts into one. A single part keeps its digest. For
    separate files of queries and gallery, it is the sha256 of both digests, in this order."""
    if len(contents) == 1:
        return contents[0]
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def _by_name(ids: Sequence[str] | NDArray[Any]) -> NDArray[np.int64]:
    """The indices (N,) that sort the ids as texts; equal ids keep their order."""
    order = pc.sort_indices(text_array(ids))
    return np.asarray(order.to_numpy(), dtype=np.int64)
