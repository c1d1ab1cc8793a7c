"""Ranks by hyperbolic distance, as inner products of D + 1 numbers: distances need not be computed to be ordered.

The space has curvature −c. Both distances grow with an expression that is linear in the gallery's side, so one matrix
product ranks. What is the same for the whole gallery of a query is left out: near the origin it would be large beside the
differences, and float32 would lose them. It still does for points far out; vectors in float64 are ranked in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.engine.similarity.rows import Rows, float_type, squared_norms


def lorentz(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, curvature: float = 1.0
) -> tuple[Rows, Rows]:
    """s = q·g − q₀u(g) with x₀ = √(1/c + |x|²) and u(g) = g₀ − 1/√c, which ranks as −d(q, g) = −1/√c arcosh(c(q₀g₀ − q·g)) does.

    The vectors are the D space coordinates of points on the hyperboloid (Nickel and Kiela 2018; MERU, Desai et al. 2023);
    the time coordinate x₀ follows from them. u(g) = |g|²/(g₀ + 1/√c) is computed so, without a difference of near numbers.
    """
    radius, squares = curvature**-0.5, squared_norms(gallery)
    above = squares / (np.sqrt(1 / curvature + squares) + radius)
    times = np.sqrt(1 / curvature + squared_norms(queries))
    return (
        Rows(queries, last=times.astype(float_type(queries))),
        Rows(gallery, last=-above.astype(float_type(gallery))),
    )


def poincare(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, curvature: float = 1.0
) -> tuple[Rows, Rows]:
    """s = w(g)·(q·g − |g|²(1 + c|q|²)/2), w(g) = 1/(1 − c|g|²), which ranks as the negative distance in the ball does.

    d(q, g) = 1/√c arcosh(1 + 2c|q − g|² / ((1 − c|q|²)(1 − c|g|²))) (Nickel and Kiela 2017; Hyp-ViT, HIER) grows with
    |q − g|²·w(g), and that is |q|² − 2s. Raises SubmissionError for vectors outside of the ball of radius 1/√c.
    """
    norms = [_norms_inside(vectors, what, curvature) for vectors, what in ((queries, "queries"), (gallery, "gallery"))]
    weight = 1 / (1 - curvature * norms[1])
    last = (1 + curvature * norms[0]) / 2
    return (
        Rows(queries, last=last.astype(float_type(queries))),
        Rows(
            gallery,
            scale=weight.astype(float_type(gallery)),
            last=-(norms[1] * weight).astype(float_type(gallery)),
        ),
    )


def _norms_inside(vectors: NDArray[np.floating], what: str, curvature: float) -> NDArray[np.float64]:
    norms = squared_norms(vectors)
    outside = np.flatnonzero(curvature * norms >= 1)
    if len(outside):
        raise SubmissionError(
            f"{len(outside)} of the {what} lie outside of the Poincaré ball",
            expected=f"|x| < 1/√curvature = {curvature**-0.5:g}",
            found=f"|x| up to {norms.max() ** 0.5:g}, rows {examples(outside)}",
            fix="state the model's own curvature, as poincare(curvature=0.1), or map the vectors into the ball first",
        )
    return norms
