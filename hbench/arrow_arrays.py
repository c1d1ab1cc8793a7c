"""Arrow arrays and numpy arrays, one as the other, without a copy where that can be; Arrow's own conversions would load
pandas, which takes longer than most evaluations of a thousand items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers in an arrow array without nulls, of the type that it holds; (N,)."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def text_array(texts: Iterable[str]) -> pa.Array:
    """An arrow array of texts."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def bytes_of_texts(strings: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Where the strings of an array (N,) start and end, int32 (N + 1,), in all their bytes."""
    if len(strings) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    _, offsets, text = strings.buffers()
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    return ends - ends[0], np.frombuffer(text or b"", np.uint8)[ends[0] : ends[-1]]
