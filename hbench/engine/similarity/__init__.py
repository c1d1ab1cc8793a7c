"""Turns raw vectors into float32 rows whose inner product ranks the gallery of any one query.

A similarity is a function `(queries (Q, D), gallery (G, D), *, option: float = default …) -> (query rows, gallery rows)`.
Options are numbers, written `lorentz(curvature=0.1)`, and part of the signature. Packages add similarities under the
entry-point group `hbench.similarities`.

>>> query_rows, gallery_rows = l2(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0], [2.0, 0.0]]))
>>> float((query_rows.read(np.array([0])) @ gallery_rows.read(np.array([0])).T)[0, 0])  # q·g − |g|²/2
-1.5
>>> named("lorentz")[0]
'lorentz(curvature=1)'
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName, UsageError
from hbench.core.registry import Registry
from hbench.engine.similarity import codes, hyperbolic
from hbench.engine.similarity.rows import (
    Rows,
    SelectedRows,
    as_vectors,
    far_centre,
    float_type,
    move_rows,
    squared_norms,
    where,
)  # fmt: skip

__all__ = [
    "Rows", "SelectedRows", "Similarity", "as_vectors", "float_type", "move_rows", "named", "similarities",
    "squared_norms", "where",
]  # fmt: skip

Similarity = Callable[[NDArray[np.floating], NDArray[np.floating]], tuple[Rows, Rows]]
similarities: Registry[Callable[..., tuple[Rows, Rows]]] = Registry("similarity", group="hbench.similarities")
similarities.register("lorentz")(hyperbolic.lorentz)
similarities.register("poincare")(hyperbolic.poincare)
similarities.register("hamming")(codes.hamming)
SYNONYMS = {
    "euclidean": "l2", "euclid": "l2", "l2sq": "l2", "squared_euclidean": "l2", "ip": "dot", "inner_product": "dot",
    "inner": "dot", "cos": "cosine", "angular": "cosine", "hyperbolic": "lorentz",
}  # fmt: skip  # by which other libraries call them
SPELLING = re.compile(r"(?P<name>[\w-]+)(\((?P<options>[^()]*)\))?")


def named(text: str) -> tuple[str, Similarity]:
    """The similarity a text spells, with every option in its name; UnknownName or UsageError otherwise."""
    match = SPELLING.fullmatch(text.strip())
    if match is None:
        raise UnknownName("similarity", text, similarities)
    if match["name"] in SYNONYMS and match["name"] not in similarities:
        raise UnknownName("similarity", text, similarities, meant=repr(SYNONYMS[match["name"]]))
    function = similarities[match["name"]]
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    given = _options(text, match["options"] or "")
    for option in given:
        if option not in defaults:
            raise UnknownName(f"option of the similarity {match['name']!r}", option, defaults)
    if not defaults:
        return match["name"], function
    chosen = defaults | given
    for option, value in chosen.items():
        if not value > 0 or value == np.inf:
            raise UsageError(f"{option} of {text!r} is out of range", expected="a positive number", found=f"{value:g}")
    spelled = ",".join(f"{option}={value!r}".removesuffix(".0") for option, value in chosen.items())
    return f"{match['name']}({spelled})", partial(function, **chosen)


def _options(text: str, options: str) -> dict[str, float]:
    pairs = [part.strip().partition("=")[::2] for part in options.split(",") if part.strip()]
    try:
        return {key.strip(): float(value) for key, value in pairs}
    except ValueError:
        raise UsageError(
            f"an option of {text!r} is not a number", expected="lorentz(curvature=0.1), for example", found=options
        ) from None


@similarities.register("dot")
def dot(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g."""
    return Rows(queries), Rows(gallery)


@similarities.register("cosine")
def cosine(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g / |g|, which ranks as the cosine does: |q| is the same for the whole gallery of a query.

    A gallery whose norms are all equal is left as it is, since dividing would only round. Queries that are the gallery
    are divided by their norms, too: then s(i, j) = s(j, i).
    """
    norms = np.sqrt(squared_norms(gallery))
    if norms.min(initial=np.inf) == norms.max(initial=0):
        return dot(queries, gallery)
    rows = Rows(gallery, scale=(1 / norms).astype(float_type(gallery)))
    return rows if queries is gallery else Rows(queries), rows


@similarities.register("l2")
def l2(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g − |g|²/2, which ranks as −|q − g| does; the second term rides along as one more dimension.

    Vectors far from 0 are moved there first, which no distance notices: float32 would lose their differences.
    """
    shift = far_centre(gallery)
    halves = Rows(gallery, shift=shift).squared_norms() / 2
    ones = np.ones(len(queries), float_type(queries))
    return Rows(queries, shift=shift, last=ones), Rows(gallery, shift=shift, last=-halves.astype(float_type(gallery)))
