"""Keeps finished embeddings in parts beside the final file, so that an interrupted embedding can be
resumed.

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
    """Return the folder of a file's finished parts, and write the request to it. `request`: {name:
    value} of the values that identify the embeddings. Raises UsageError if the folder has parts of
    another request.
    """
    parts = file.with_name(f"{file.name}.parts")
    text = json.dumps(request, indent=1)
    about = parts / "request.json"
    # parts of a call that does not skip unreadable images have every image, so a call that skips
    # them can use these parts
    strict = json.dumps({**request, "skip_unreadable": False}, indent=1)
    if about.exists() and about.read_text(encoding="utf-8") not in {text, strict}:
        reason = f"{parts} holds parts for another model, split or options"
        raise UsageError(reason, fix="remove it, or name another --out")
    write_text(about, text)
    return parts


def in_words(request: dict[str, object]) -> dict[str, str]:
    """Convert values that identify embeddings to texts, for the metadata of a file. None is left
    out."""
    return {key: str(value) for key, value in request.items() if value is not None}


def next_row(parts: Path) -> int:
    """Return the row of the manifest at which to continue: the one after the last row in any part,
    0 without parts. Rows are embedded in order, so an unreadable part, which was being written when
    the process died, is removed together with those after it.
    """
    following = 0
    parts_in_order = sorted(parts.glob("*.npz"))
    for number, part in enumerate(parts_in_order):
        try:
            _, arrays = files.read(part)
            rows = arrays["rows"]
        except (SubmissionError, KeyError):
            rows = np.zeros(0, np.int64)

        if not len(rows):  # unreadable, since a part always has rows
            for unusable in parts_in_order[number:]:
                unusable.unlink()
            return following

        following = int(rows[-1]) + 1
    return following


def write_part(parts: Path, part: Piece) -> None:
    """Write a part. Its name is the number of its first row, so that names sort like the rows."""
    rows, vectors = part
    files.write(parts / f"{int(rows[0]):09d}.npz", {}, {"rows": rows, "vectors": vectors})


def in_parts(
    pieces: Iterator[Piece], images: int, seconds: float, on_row: Callable[[int], None]
) -> Iterator[Piece]:
    """Join pieces, such as the rows and vectors of a batch, to parts of at least this number of
    `images`, or of the images that took this number of `seconds`, whichever comes first. The time
    limit keeps a slow net from losing hours of work. `on_row`: called after each piece with the row
    after its last one."""
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
    """Concatenate pieces, (rows, vectors) each."""
    rows, vectors = zip(*pieces, strict=True)
    return np.concatenate(rows), np.concatenate(vectors)


def join_parts(parts: Path, file: Path, manifest: Manifest, request: dict[str, object]) -> None:
    """Write the embeddings of all parts in a folder to one file, with the `request` as metadata.
    Images of the manifest that no part has were unreadable, and are listed as left out. Raises
    DataError if all were unreadable."""
    # the arrays of each part, without its header
    parts_kept = [arrays for _, arrays in map(files.read, sorted(parts.glob("*.npz")))]
    if not parts_kept:
        raise DataError("none of the images can be read", found=examples(manifest.items))
    rows = np.concatenate([part["rows"] for part in parts_kept])
    whole = np.concatenate([part["vectors"] for part in parts_kept])
    left_out = np.delete(manifest.items, rows).tolist()
    embeddings.write(
        file, manifest.items[rows].tolist(), whole, metadata=in_words(request), left_out=left_out
    )
