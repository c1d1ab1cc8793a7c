"""Turns raw vectors into float32 rows whose inner product ranks the gallery of any one query.

A similarity is a function `(queries (Q, D), gallery (G, D), *, option: float = default …) -> (query
rows, gallery rows)`. Options are numbers, written `lorentz(curvature=0.1)`, and part of the
signature. Packages add similarities under the entry-point group `hbench.similarities`.

>>> query_rows, gallery_rows = l2(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0], [2.0, 0.0]]))
>>> float(
...     (query_rows.read(np.array([0])) @ gallery_rows.read(np.array([0])).T)[0, 0]
... )  # q·g − |g|²/2
-1.5
>>> named("lorentz")[0]
'lorentz(curvature=1)'
"""

import inspect
import re
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UnknownName, UsageError, examples
from hbench.core.registry import Registry
from hbench.engine.similarity.rows import (
    TILE,
    Rows,
    SelectedRows,
    as_vectors,
    far_centre,
    float_type,
    scan_of,
    squared_norms,
    where,
)

__all__ = [
    "Rows", "SelectedRows", "Similarity", "as_vectors", "float_type", "named", "scan_of",
    "similarities", "squared_norms", "where",
]  # fmt: skip

Similarity = Callable[[NDArray[np.floating], NDArray[np.floating]], tuple[Rows, Rows]]
similarities: Registry[Callable[..., tuple[Rows, Rows]]] = Registry(
    "similarity", group="hbench.similarities"
)
SYNONYMS = {
    "euclidean": "l2", "euclid": "l2", "l2sq": "l2", "squared_euclidean": "l2", "ip": "dot",
    "inner_product": "dot",
    "inner": "dot", "cos": "cosine", "angular": "cosine", "hyperbolic": "lorentz",
}  # fmt: skip  # by which other libraries call them
SPELLING = re.compile(r"(?P<name>[\w-]+)(\((?P<options>[^()]*)\))?")


def named(text: str) -> tuple[str, Similarity]:
    """The name and function of the similarity that a text such as `lorentz(curvature=0.1)` spells.

    The name has every option, also those by default, for signatures quote it. Raises UnknownName or
    UsageError for anything else.
    """
    match = SPELLING.fullmatch(text.strip())
    if match is None:
        raise UnknownName("similarity", text, similarities)
    # a plugin may have registered one of these names
    if match["name"] in SYNONYMS and match["name"] not in similarities:
        raise UnknownName("similarity", text, similarities, meant=repr(SYNONYMS[match["name"]]))

    # the keyword-only parameters of a similarity's function are its options, all of them numbers:
    # {name: default}
    function = similarities[match["name"]]
    parameters = inspect.signature(function).parameters.values()
    defaults = {
        option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY
    }
    # (name, value) of each option that is given, as texts: [::2] leaves the "=" out
    pairs = [
        part.strip().partition("=")[::2]
        for part in (match["options"] or "").split(",")
        if part.strip()
    ]

    try:
        given = {key.strip(): float(value) for key, value in pairs}
    except ValueError:
        reason = f"an option of {text!r} is not a number"
        expected = "lorentz(curvature=0.1), for example"
        raise UsageError(reason, expected=expected, found=match["options"]) from None

    for option in given:
        if option not in defaults:
            raise UnknownName(f"option of the similarity {match['name']!r}", option, defaults)

    if not defaults:
        return match["name"], function

    chosen = defaults | given
    # every option is a curvature or the like: no sense at 0 or infinity
    for option, value in chosen.items():
        if not value > 0 or value == np.inf:
            raise UsageError(
                f"{option} of {text!r} is out of range",
                expected="a positive number",
                found=f"{value:g}",
            )

    # 1.0 is spelled 1, so that one curvature has one name
    spelled = ",".join(f"{option}={value!r}".removesuffix(".0") for option, value in chosen.items())
    return f"{match['name']}({spelled})", partial(function, **chosen)


@similarities.register("dot")
def dot(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g, of queries (Q, D) and gallery (G, D) as they are; one object
    for both sides where they are the same array."""
    rows = Rows(gallery)
    return rows if queries is gallery else Rows(queries), rows


@similarities.register("cosine")
def cosine(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g / |g|, of queries (Q, D) and gallery (G, D), which ranks as
    the cosine does: |q| is the same for the whole list of a query.

    A gallery whose norms are all equal is left as it is, since dividing would only round. Queries
    that are the gallery are divided by their norms, too: then s(i, j) = s(j, i).
    """
    norms = np.sqrt(squared_norms(gallery))
    if norms.min(initial=np.inf) == norms.max(initial=0):
        return dot(queries, gallery)
    rows = Rows(gallery, scale=(1 / norms).astype(float_type(gallery)))
    return rows if queries is gallery else Rows(queries), rows


@similarities.register("l2")
def l2(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g − |g|²/2, of queries (Q, D) and gallery (G, D), which ranks
    as −|q − g| does; the second term rides along as one more dimension, times 1 in the queries.

    Vectors far from 0 are moved there first, by `shift` (D,), which no distance notices: float32
    would lose their differences.
    """
    shift = far_centre(gallery)  # (D,), None where the vectors are not far from 0
    halves = (
        squared_norms(gallery) if shift is None else Rows(gallery, shift=shift).squared_norms()
    ) / 2
    ones = np.ones(len(queries), float_type(queries))
    return Rows(queries, shift=shift, last=ones), Rows(
        gallery, shift=shift, last=-halves.astype(float_type(gallery))
    )


# Hyperbolic space has curvature −c. Both distances grow with an expression that is linear in the
# gallery's side, so one matrix product of D + 1 numbers ranks. What is the same for the whole
# gallery of a query is left out: near the origin it would be large beside the differences, and
# float32 would lose them. It still does for points far out; vectors in float64 are ranked in
# float64.


@similarities.register("lorentz")
def lorentz(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, curvature: float = 1.0
) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g − q₀u(g) with x₀ = √(1/c + |x|²) and u(g) = g₀ − 1/√c, which
    ranks as −d(q, g) = −1/√c arcosh(c(q₀g₀ − q·g)) does; c is the `curvature`.

    The vectors, queries (Q, D) and gallery (G, D), are the space coordinates of points on the
    hyperboloid (Nickel and Kiela 2018; MERU, Desai et al. 2023); the time coordinate x₀ follows
    from them. u(g) is computed as |g|²/(g₀ + 1/√c), without a difference of near numbers; it rides
    along as one more dimension, times q₀ in the queries.
    """
    squares = squared_norms(gallery)
    above = squares / (np.sqrt(1 / curvature + squares) + curvature**-0.5)
    times = np.sqrt(1 / curvature + squared_norms(queries)).astype(float_type(queries))
    return Rows(queries, last=times), Rows(gallery, last=-above.astype(float_type(gallery)))


@similarities.register("poincare")
def poincare(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, curvature: float = 1.0
) -> tuple[Rows, Rows]:
    """Rows whose products are s = w(g)·(q·g − |g|²(1 + c|q|²)/2), w(g) = 1/(1 − c|g|²), of queries
    (Q, D) and gallery (G, D) in the ball of `curvature` c; it ranks as the negative distance there.

    d(q, g) = 1/√c arcosh(1 + 2c|q − g|² / ((1 − c|q|²)(1 − c|g|²))) (Nickel and Kiela 2017;
    Hyp-ViT, HIER) grows with |q − g|²·w(g), and that is |q|² − 2s. Raises SubmissionError for
    vectors outside of the ball of radius 1/√c.
    """
    norms = {"queries": squared_norms(queries), "gallery": squared_norms(gallery)}
    # |x|² ≥ 1/c: on the border or beyond, where no distance is defined
    for what, squares in norms.items():
        outside = np.flatnonzero(curvature * squares >= 1)
        if len(outside):
            raise SubmissionError(
                f"{len(outside)} of the {what} lie outside of the Poincaré ball",
                expected=f"|x| < 1/√curvature = {curvature**-0.5:g}",
                found=f"|x| up to {squares.max() ** 0.5:g}, rows {examples(outside)}",
                fix="state the model's own curvature, as poincare(curvature=0.1), or map the "
                "vectors into the ball first",
            )

    # s as one product of D + 1 numbers: w(g)·g with q, and −w(g)·|g|² with (1 + c|q|²)/2
    weight = 1 / (1 - curvature * norms["gallery"])
    kind = float_type(gallery)
    last = (1 + curvature * norms["queries"]) / 2
    ranked = Rows(
        gallery, scale=weight.astype(kind), last=-(norms["gallery"] * weight).astype(kind)
    )

    return Rows(queries, last=last.astype(float_type(queries))), ranked


@similarities.register("hamming")
def hamming(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = Σ_i (±1)(±1) = B − 2·(bits that differ), for queries (Q, D) and
    gallery (G, D) of packed codes of B = 8 D bits, as `numpy.packbits` makes them.

    Exact: the sums are integers below 2²⁴. The bits are held as float16. Raises SubmissionError
    where an entry is not a byte. Codes of ±1, one entry a bit, are ranked so by `dot` as they are.
    """
    rows = Rows(_unpacked(queries, "queries"))
    return rows, rows if queries is gallery else Rows(_unpacked(gallery, "gallery"))


def _unpacked(packed: NDArray[np.floating], what: str) -> NDArray[np.float16]:
    """The bits (N, 8 D) of `packed` bytes (N, D), which may be held as floats, as +1 and −1; `what`
    names them in an error, "queries" or "gallery"."""
    bits = np.empty((len(packed), 8 * packed.shape[1]), np.float16)
    for start in range(0, len(packed), TILE):
        part = packed[start : start + TILE]
        # what is no byte is not equal to its nearest byte
        codes = np.clip(part, 0, 255).astype(np.uint8)
        bad = np.flatnonzero((codes != part).any(axis=1))
        if len(bad):
            raise SubmissionError(
                f"the {what} are not packed binary codes",
                expected="integers of 0 to 255, eight bits each (numpy.packbits)",
                found=f"other numbers in rows {examples(start + bad)}",
                fix="pack them with numpy.packbits(bits, axis=1); for codes of ±1 use --similarity "
                "dot",
            )

        # int8: the bits are uint8, which has no −1
        bits[start : start + TILE] = 2 * np.unpackbits(codes, axis=1).astype(np.int8) - 1

    return bits
