"""Says what a submission holds, whatever file it lies in: the sha256 of its canonical content.

Vectors: a line `hbench vectors <f4 3 2` (type, in little-endian order, items, dimension), and, for
every 4,096 items in order of their ids, the sha256 of these ids as a JSON list, of a zero byte, and
of their vectors. Lists: `hbench lists 3`, the queries in order of their ids, what each lists, best
first, and the scores, where there are any. The container, its metadata and the order of its rows
change nothing.

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
THREADS = 8  # beyond which a disk is slower than they are


def of_vectors(ids: Sequence[str] | NDArray[Any], vectors: NDArray[Any]) -> str:
    """The sha256 of ids (N,) and their vectors (N, D), in whatever order they come."""
    order = _by_name(ids)  # (N,): so that the order of the file changes nothing
    named = np.asarray(ids, dtype=object)
    dtype = vectors.dtype.newbyteorder("<")  # the same bytes on every machine

    def piece(start: int) -> bytes:
        """The digest of PIECE items, from this place in the order of ids on; the whole is a digest
        of these, so that threads can compute them at the same time."""
        rows = order[start : start + PIECE]
        digest = hashlib.sha256(json.dumps(named[rows].tolist()).encode() + b"\0")
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
    """The sha256 of queries (Q,) and their lists: offsets (Q + 1,), items (n,), which are places in
    `names` (M,), and scores (n,) or None.
    """
    whole = hashlib.sha256(f"hbench lists {len(queries)}\n".encode())
    # the zero byte ends the JSON text, which has none in it, before the scores begin
    # in order of the queries' names, so that the order of the file changes nothing
    for query in _by_name(queries).tolist():
        start, end = offsets[query], offsets[query + 1]
        listed = names[items[start:end]].tolist()
        whole.update(json.dumps([str(queries[query]), listed]).encode() + b"\0")
        if scores is not None:
            whole.update(np.ascontiguousarray(scores[start:end], dtype="<f8").data)
    return whole.hexdigest()


def of_parts(contents: Sequence[str]) -> str:
    """The digest of a submission from those of its parts: of one part its own, of queries and
    gallery that of both texts, in this order."""
    if len(contents) == 1:
        return contents[0]
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def _by_name(ids: Sequence[str] | NDArray[Any]) -> NDArray[np.int64]:
    """The places (N,) of ids in order of their names, letter by letter; equal ones as they come."""
    order = pc.sort_indices(text_array(ids))
    return np.asarray(order.to_numpy(), dtype=np.int64)
