"""Keeps finished embeddings in parts beside the file that they will make, so that an interrupted
embedding is resumed.

    FILE.parts/request.json     what identifies these embeddings
    FILE.parts/000004096.npz    rows of the manifest, and their vectors
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hbench.core import files
from hbench.core.errors import DataError, SubmissionError, UsageError, examples
from hbench.core.files import write_text
from hbench.datasets.manifest import Manifest
from hbench.submissions import embeddings

Piece = tuple[NDArray[np.int64], NDArray[np.float32]]  # rows (n,) and their vectors (n, D)


def take_parts(file: Path, request: dict[str, object]) -> Path:
    """Return the folder of finished parts of a file, after noting the request there: the values
    that identify these embeddings, by name. Raises UsageError where parts of another request are.
    """
    parts = file.with_name(f"{file.name}.parts")
    text = json.dumps(request, indent=1)
    about = parts / "request.json"
    # parts of a call that refuses unreadable images hold every image, so they fit a call that
    # leaves these out
    strict = json.dumps({**request, "skip_unreadable": False}, indent=1)
    if about.exists() and about.read_text(encoding="utf-8") not in {text, strict}:
        reason = f"{parts} holds parts for another model, split or options"
        raise UsageError(reason, fix="remove it, or name another --out")
    write_text(about, text)
    return parts


def in_words(request: dict[str, object]) -> dict[str, str]:
    """Turn what is said of embeddings into texts, as a file of embeddings keeps only those; what is
    None is not said."""
    return {key: str(value) for key, value in request.items() if value is not None}


def next_row(parts: Path) -> int:
    """Return the row of the manifest at which to go on: the one after the last row in any part, 0
    if there is none. A part that cannot be read, as it was being written when the process died, is
    removed, with those after it: rows are embedded in order.
    """
    following = 0
    parts_in_order = sorted(parts.glob("*.npz"))
    for number, part in enumerate(parts_in_order):
        try:
            _, arrays = files.read(part)
            rows = arrays["rows"]
        except (SubmissionError, KeyError):
            rows = np.zeros(0, np.int64)

        if not len(rows):  # no part is written without rows, so this one cannot be read
            for unusable in parts_in_order[number:]:
                unusable.unlink()
            return following

        following = int(rows[-1]) + 1
    return following


def write_part(parts: Path, part: Piece) -> None:
    """Write a part, named by its first row, so that the names sort in the order of the images."""
    rows, vectors = part
    files.write(parts / f"{int(rows[0]):09d}.npz", {}, {"rows": rows, "vectors": vectors})


def in_parts(
    pieces: Iterator[Piece], images: int, seconds: float, on_row: Callable[[int], None]
) -> Iterator[Piece]:
    """Join pieces, such as batches, into parts of at least so many images, or of the images of so
    many seconds, whichever comes first: by time, too, since a slow net must not lose hours of work.
    `on_row` is called after each piece with the row of the manifest after its last one."""
    waiting: list[Piece] = []
    began = time.monotonic()
    for piece in pieces:
        waiting.append(piece)
        rows, _vectors = piece
        on_row(int(rows[-1]) + 1)
        is_full = sum(len(rows) for rows, _ in waiting) >= images
        if is_full or time.monotonic() - began >= seconds:
            yield _one_piece(waiting)
            waiting = []
            began = time.monotonic()
    if waiting:
        yield _one_piece(waiting)


def _one_piece(pieces: list[Piece]) -> Piece:
    """Join pieces, (rows, vectors) each, into one, in their order."""
    rows, vectors = zip(*pieces, strict=True)
    return np.concatenate(rows), np.concatenate(vectors)


def join_parts(parts: Path, file: Path, manifest: Manifest, request: dict[str, object]) -> None:
    """Write the embeddings of all parts in a folder to one file, with the `request` that identifies
    them; images of the manifest that no part has could not be read, and are named as left out.
    Raises DataError if that is all of them."""
    # the arrays of each part, without what identifies it
    parts_kept = [arrays for _, arrays in map(files.read, sorted(parts.glob("*.npz")))]
    if not parts_kept:
        raise DataError("none of the images can be read", found=examples(manifest.items))
    rows = np.concatenate([part["rows"] for part in parts_kept])
    whole = np.concatenate([part["vectors"] for part in parts_kept])
    # `rows` are those of the manifest that some part has
    left_out = np.delete(manifest.items, rows).tolist()
    embeddings.write(
        file, manifest.items[rows].tolist(), whole, metadata=in_words(request), left_out=left_out
    )
