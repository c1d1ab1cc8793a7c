"""Turns raw vectors into rows whose inner products rank the gallery for each query.

A similarity is a function `(queries (Q, D), gallery (G, D), *, option: float = default …) -> (query
rows, gallery rows)`. Options are numbers, written as in `lorentz(curvature=0.1)`, and part of the
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
}  # fmt: skip  # names in other libraries
SPELLING = re.compile(r"(?P<name>[\w-]+)(\((?P<options>[^()]*)\))?")


def named(text: str) -> tuple[str, Similarity]:
    """The name and the function of the similarity in a text such as `lorentz(curvature=0.1)`.

    The returned name states every option, also those with their default values, since signatures
    quote it. Raises UnknownName or UsageError for any other text.
    """
    # groups: the name, and the options as one text, None if there are no parentheses
    match = SPELLING.fullmatch(text.strip())
    if match is None:
        raise UnknownName("similarity", text, similarities)
    # a plugin may have registered a synonym as a name of its own
    if match["name"] in SYNONYMS and match["name"] not in similarities:
        raise UnknownName("similarity", text, similarities, meant=repr(SYNONYMS[match["name"]]))

    # {name: default} of the options, which are the keyword-only parameters of the function
    function = similarities[match["name"]]
    parameters = inspect.signature(function).parameters.values()
    defaults = {
        option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY
    }
    # (name, value) of each given option, as texts: [::2] drops the "=" in the middle
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
    # every option is a curvature or similar, which has no meaning at 0 or infinity
    for option, value in chosen.items():
        if not value > 0 or value == np.inf:
            raise UsageError(
                f"{option} of {text!r} is out of range",
                expected="a positive number",
                found=f"{value:g}",
            )

    # 1.0 is spelled 1, so that each curvature has one name
    spelled = ",".join(f"{option}={value!r}".removesuffix(".0") for option, value in chosen.items())
    return f"{match['name']}({spelled})", partial(function, **chosen)


@similarities.register("dot")
def dot(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g, for queries (Q, D) and gallery (G, D)."""
    # one object for both sides, if they are the same array: callers then know that s is symmetric
    rows = Rows(gallery)
    return rows if queries is gallery else Rows(queries), rows


@similarities.register("cosine")
def cosine(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g / |g|, for queries (Q, D) and gallery (G, D). s ranks as the
    cosine does, since |q| is the same for the whole list of a query.

    If all norms in the gallery are equal, nothing is divided, since that would only add rounding
    errors. Queries that are the gallery are divided by their norms, too, so that s(i, j) = s(j, i).
    """
    norms = np.sqrt(squared_norms(gallery))
    # `initial` stands for the norms of an empty gallery, which numpy refuses without
    if norms.min(initial=np.inf) == norms.max(initial=0):
        return dot(queries, gallery)
    rows = Rows(gallery, scale=(1 / norms).astype(float_type(gallery)))
    # one object for both sides, if they are the same array: callers then know that s is symmetric
    return rows if queries is gallery else Rows(queries), rows


@similarities.register("l2")
def l2(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g − |g|²/2, for queries (Q, D) and gallery (G, D). s ranks as
    −|q − g| does. The second term is stored as one more dimension of the gallery's rows, which is
    multiplied by 1 in the queries' rows.

    Vectors far from 0 are first moved near 0, since float32 would lose their differences. All are
    moved by the same `shift` (D,), which changes no distance.
    """
    shift = far_centre(gallery)  # (D,), None where the vectors are not far from 0
    halves = (
        squared_norms(gallery) if shift is None else Rows(gallery, shift=shift).squared_norms()
    ) / 2
    ones = np.ones(len(queries), float_type(queries))
    return Rows(queries, shift=shift, last=ones), Rows(
        gallery, shift=shift, last=-halves.astype(float_type(gallery))
    )


# Hyperbolic space has curvature −c. Both distances below are increasing functions of an expression
# that is an inner product of D + 1 numbers, so one matrix product is enough to rank. Terms that are
# the same for the whole gallery of a query are left out: near the origin they would be large
# compared to the differences between items, which float32 would lose. For points far out, float32
# still loses differences; vectors in float64 are ranked in float64.


@similarities.register("lorentz")
def lorentz(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, curvature: float = 1.0
) -> tuple[Rows, Rows]:
    """Rows whose products are s = q·g − q₀u(g), where x₀ = √(1/c + |x|²), u(g) = g₀ − 1/√c, and c
    is the `curvature`. s ranks as −d(q, g) = −1/√c arcosh(c(q₀g₀ − q·g)) does: arcosh increases,
    q₀g₀ − q·g = q₀/√c − s, and q₀/√c is the same for all items of a query's gallery.

    The vectors, queries (Q, D) and gallery (G, D), are the space coordinates of points on the
    hyperboloid (Nickel and Kiela 2018; MERU, Desai et al. 2023). Their time coordinate x₀ follows
    from them. u(g) is computed as |g|²/(g₀ + 1/√c), to avoid the difference of two close numbers.
    The gallery's rows store −u(g) as one more dimension, and the queries' rows q₀.
    """
    squares = squared_norms(gallery)
    above = squares / (np.sqrt(1 / curvature + squares) + curvature**-0.5)
    times = np.sqrt(1 / curvature + squared_norms(queries)).astype(float_type(queries))
    return Rows(queries, last=times), Rows(gallery, last=-above.astype(float_type(gallery)))


@similarities.register("poincare")
def poincare(
    queries: NDArray[np.floating], gallery: NDArray[np.floating], *, curvature: float = 1.0
) -> tuple[Rows, Rows]:
    """Rows whose products are s = w(g)·(q·g − |g|²(1 + c|q|²)/2) with w(g) = 1/(1 − c|g|²), for
    queries (Q, D) and gallery (G, D) in the Poincaré ball of `curvature` c.

    s ranks as the negative distance: d(q, g) = 1/√c arcosh(1 + 2c|q − g|² / ((1 − c|q|²)(1 −
    c|g|²))) (Nickel and Kiela 2017; Hyp-ViT, HIER) increases with |q − g|²·w(g), which is
    |q|² − 2s. Raises SubmissionError for vectors outside of the ball of radius 1/√c.
    """
    norms = {"queries": squared_norms(queries), "gallery": squared_norms(gallery)}
    # |x|² ≥ 1/c: on the border of the ball or outside, where the distance is not defined
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
    kind = float_type(gallery)  # the type in which rows are multiplied
    last = (1 + curvature * norms["queries"]) / 2
    ranked = Rows(
        gallery, scale=weight.astype(kind), last=-(norms["gallery"] * weight).astype(kind)
    )

    return Rows(queries, last=last.astype(float_type(queries))), ranked


@similarities.register("hamming")
def hamming(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """Rows whose products are s = Σ_i (±1)(±1) = B − 2·(bits that differ), for queries (Q, D) and
    gallery (G, D) of packed codes of B = 8 D bits, as `numpy.packbits` makes them.

    s is exact, as all sums are integers below 2²⁴, which float32 holds. The bits are kept as
    float16 and multiplied as float32. Raises SubmissionError if an entry is not a byte. For
    unpacked codes of ±1, `dot` gives the same ranking.
    """
    rows = Rows(_unpacked(queries, "queries"))
    return rows, rows if queries is gallery else Rows(_unpacked(gallery, "gallery"))


def _unpacked(packed: NDArray[np.floating], what: str) -> NDArray[np.float16]:
    """The bits of `packed` bytes (N, D), as +1 and −1: (N, 8 D). The bytes may be given as floats.
    `what`: their name in an error, "queries" or "gallery"."""
    bits = np.empty((len(packed), 8 * packed.shape[1]), np.float16)
    for start in range(0, len(packed), TILE):
        part = packed[start : start + TILE]
        # a number that is no byte is changed by the conversion
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

        # int8, because the bits are uint8, which has no −1
        bits[start : start + TILE] = 2 * np.unpackbits(codes, axis=1).astype(np.int8) - 1

    return bits
