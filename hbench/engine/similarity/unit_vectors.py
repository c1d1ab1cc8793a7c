"""Scales vectors to length 1.

>>> unit_vectors([[3.0, 4.0], [0.0, 0.0]], np.float64).tolist()
[[0.6, 0.8], [0.0, 0.0]]
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def unit_vectors(vectors: ArrayLike, dtype: type[np.float32] | type[np.float64]) -> NDArray[Any]:
    """Scale vectors (N, D) to length 1, in this type. A vector of zeros has no direction and stays
    zero."""
    rows = np.asarray(vectors, dtype)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[Any] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit
