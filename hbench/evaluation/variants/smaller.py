"""Scores the same vectors at smaller sizes: with fewer coordinates, or fewer bits per coordinate.

Keeping the first coordinates is meant for nets that were trained for it (Matryoshka); principal
components, fitted on other vectors, work for any net. 32 and 16 bits are floats. 8 bits are whole
numbers −127 … 127, scaled so that the largest coordinate of a vector is ±127. 1 bit is the sign;
such vectors are ranked by the number of signs that differ.

>>> VectorSize(64, 8).bytes, str(VectorSize(64, 1)), str(VectorSize(64, 32, is_rotated=True))
(64, '64 × 1 bit', '64 components × 32 bits')
>>> shrunk(np.array([[254.0, -1.4, 9.0]], np.float32), VectorSize(2, 8)).tolist()
[[254.0, -2.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import one_blas_thread
from hbench.core.errors import UsageError
from hbench.datasets import Dataset
from hbench.engine.settings import Settings
from hbench.engine.similarity.products import product_of
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.evaluation.examination import examine
from hbench.evaluation.submission import Submission
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.metrics.names import MetricName
from hbench.records.differences import Difference, differences_of
from hbench.records.report import Report
from hbench.submissions.embeddings import Embeddings

BITS = (32, 16, 8, 1)
STORED_BITS = {"float64": 64, "float16": 16, "bfloat16": 16, "int8": 8, "uint8": 8}
SIGN = 1  # bits of a coordinate of which only the sign is kept
CUTTABLE = ("cosine", "dot", "l2")  # similarities that stay meaningful without some coordinates
LARGEST = 127  # the largest whole number of 8 bits whose negative also fits into 8 bits


class VectorSize(NamedTuple):
    """The size of a vector. `dims`: the number of coordinates. `bits`: per coordinate.
    `is_rotated`: whether the coordinates are principal components."""

    dims: int
    bits: int
    is_rotated: bool = False

    @property
    def bytes(self) -> int:
        """The bytes of one vector, rounded up."""
        return -(-self.dims * self.bits // 8)

    def __str__(self) -> str:
        """Format the size for people: "64 × 8 bits", "64 components × 32 bits"."""
        unit = "bit" if self.bits == SIGN else "bits"
        components = " components" if self.is_rotated else ""
        return f"{self.dims}{components} × {self.bits} {unit}"


class Components(NamedTuple):
    """Principal components of other vectors, such as those of the training set.

    `mean` (D,). `axes` (D, D): a column for each axis, by falling variance. `of_directions`:
    whether vectors are first scaled to length 1, for cosines, which do not depend on lengths.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    of_directions: bool

    @classmethod
    def of(cls, vectors: NDArray[Any], *, of_directions: bool) -> Components:
        """Fit the principal components of vectors (N, D) in float64. `of_directions`: scale the
        vectors to length 1 first."""
        rows = (
            unit_vectors(vectors, np.float64) if of_directions else np.asarray(vectors, np.float64)
        )
        mean = rows.mean(axis=0)
        # with several threads the last bits would depend on their number
        with one_blas_thread():
            _, axes = np.linalg.eigh(np.cov(rows - mean, rowvar=False))
        return cls(mean, axes[:, ::-1], of_directions)  # eigh returns the smallest variance first

    def rotated(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return the coordinates (N, D) of vectors (N, D) along the principal axes, the one with
        the largest variance first."""
        rows = (
            unit_vectors(vectors, np.float64)
            if self.of_directions
            else np.asarray(vectors, np.float64)
        )
        # axes × vectors: threads share the vectors, which are more than the axes
        turned: NDArray[np.float64] = product_of(self.axes.T, rows - self.mean).T
        return turned


@dataclass(frozen=True)
class SmallerScore:
    """The scores at one size.

    `differences`: from the scores of the whole vectors, one for each metric; empty for the whole
    vectors themselves. `lost`: (level, share of the queries whose first result is right with the
    whole vectors but wrong at this size). `gained`: the same for wrong and then right.
    """

    size: VectorSize
    report: Report
    differences: tuple[Difference, ...] = ()
    lost: tuple[tuple[str, float], ...] = ()
    gained: tuple[tuple[str, float], ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the document of this size for `--json`. `components`: whether the coordinates are
        principal components. `differences`: of the scores from those of the whole vectors. `lost`,
        `gained`: {level: share of the queries whose first result became wrong, or right}."""
        return {
            "size": str(self.size),
            "dims": self.size.dims,
            "bits": self.size.bits,
            "components": self.size.is_rotated,
            "bytes": self.size.bytes,
            "signature": self.report.signature,
            "scores": {name: s.model_dump() for name, s in self.report.document.scores.items()},
            "differences": [each.record() for each in self.differences],
            "lost": dict(self.lost),
            "gained": dict(self.gained),
        }


def sizes_of(
    whole: VectorSize, dims: Sequence[int], bits: Sequence[int], *, with_components: bool
) -> list[VectorSize]:
    """Return the sizes to try: every number of coordinates in `dims` with every number of bits per
    coordinate in `bits`; `with_components`, also the same sizes of principal components. Larger
    sizes come first, components after plain coordinates. `whole`: the size of the vectors
    themselves, which is left out.

    Raises UsageError for more coordinates than the vectors have, and for a number of bits that is
    not in BITS or above that of the vectors.
    """
    if wrong := [each for each in dims if not 1 <= each <= whole.dims]:
        raise UsageError(
            "a smaller vector has fewer coordinates",
            expected=f"1 … {whole.dims}",
            found=", ".join(map(str, wrong)),
        )
    if wrong := [each for each in bits if each not in BITS or each > whole.bits]:
        expected = ", ".join(str(each) for each in BITS if each <= whole.bits)
        raise UsageError(
            "no coordinate is kept in so many bits",
            expected=expected,
            found=", ".join(map(str, wrong)),
        )
    kinds = (False, True) if with_components else (False,)
    # without a given number of coordinates, or of bits, take that of the whole vectors
    sizes = {
        VectorSize(dims=each, bits=kept, is_rotated=is_rotated)
        for is_rotated in kinds
        for each in dims or [whole.dims]
        for kept in bits or [whole.bits]
    }
    return sorted(sizes - {whole}, key=lambda size: (size.is_rotated, -size.dims, -size.bits))


def whole_size(given: EmbeddingSubmission) -> VectorSize:
    """Return the size of the vectors as they are stored: the larger one if the types of queries and
    gallery differ, and 32 bits for types that are read as float32."""
    bits = max(STORED_BITS.get(part.dtype, 32) for part in given.parts)
    return VectorSize(given.queries.dim, bits)


def shrunk(vectors: NDArray[Any], size: VectorSize) -> NDArray[Any]:
    """Keep the first coordinates of vectors (N, D) at the precision of a size: floats (N, dims), or
    packed signs, uint8 (N, bytes).
    """
    cut = np.asarray(vectors[:, : size.dims])
    if size.bits == SIGN:  # 8 signs in a byte, to be ranked by the number of bits that differ
        return np.packbits(cut > 0, axis=1)
    if size.bits == 8:
        # whole numbers −LARGEST … LARGEST, converted back to floats. Each vector is scaled by its
        # own largest coordinate, so that it does not depend on other vectors
        largest = np.abs(cut).max(axis=1, keepdims=True).astype(np.float64)
        step = np.where(largest > 0, largest, 1) / LARGEST  # avoids 0/0 for a vector of zeros
        return (np.rint(cut / step) * step).astype(np.float32)
    return cut.astype(np.float16 if size.bits == 16 else np.float32)


def smaller(
    given: EmbeddingSubmission, size: VectorSize, components: Components | None
) -> EmbeddingSubmission:
    """Return the submission with its vectors at another size. `components`: the principal
    components, which a size of components (`is_rotated`) needs; other sizes ignore them."""

    def of_part(part: Embeddings) -> Embeddings:
        """The queries or the gallery with smaller vectors."""
        vectors = part.vectors
        if size.is_rotated and components is not None:
            vectors = components.rotated(vectors)
        made = shrunk(vectors, size)
        return replace(part, vectors=made, dtype=str(made.dtype))

    queries = of_part(given.queries)
    gallery = None if len(given.parts) == 1 else of_part(given.gallery)
    return EmbeddingSubmission(queries, gallery)


def default_metrics(levels: Sequence[str]) -> list[str]:
    """Return the metrics that are shown by default: H-AP, and R@1 at each of the `levels`, finest
    first."""
    return ["H-AP", *(f"R@1/{level}" for level in reversed(levels))]


def score_smaller(
    given: Submission,
    data: Dataset,
    settings: Settings,
    sizes: Sequence[VectorSize],
    *,
    components: Components | None = None,
    report: Callable[[Any], Report],
) -> list[SmallerScore]:
    """Score the whole vectors and each of the sizes, and test the differences query by query.

    Args:
        given: the submission, of vectors.
        data: the dataset.
        settings: of the evaluation. Signs are ranked by the similarity "hamming" in any case.
        sizes: the sizes to try (`sizes_of`).
        components: the principal components, if some size is one of these.
        report: measures an examined submission (hbench.evaluation.examination.Examined).

    Raises:
        UsageError: a similarity whose vectors cannot be cut.
    """
    # A ranking has no vectors; the error then says that "a smaller size" needs them. The new
    # submission is not movable: reordering vectors in place would spoil the next size.
    vectors = EmbeddingSubmission(*given.embeddings("a smaller size").parts)
    if settings.metrics is None:
        settings = replace(settings, metrics=default_metrics(data.levels))
    similarity = settings.similarity or data.protocol.similarity
    # CUTTABLE: similarities that stay meaningful without some coordinates
    if similarity not in CUTTABLE:
        raise UsageError(
            f"vectors ranked by {similarity} cannot be cut",
            expected=f"--similarity {', '.join(CUTTABLE)}",
        )

    whole = report(examine(vectors, data, settings))
    found = [SmallerScore(whole_size(vectors), whole)]
    before = whole.by_query
    for size in sizes:
        ranked_by = "hamming" if size.bits == SIGN else similarity
        of_size = replace(settings, similarity=ranked_by)
        # doubts about the vectors are in the report of the whole ones
        made = report(examine(smaller(vectors, size, components), data, of_size, doubted=False))
        differences = tuple(differences_of(made.by_query, before, unit=settings.unit))
        # by level, the shares of queries whose first result became wrong, or right
        lost, gained = changes(whole, made, data.levels)
        found.append(SmallerScore(size, made, differences, lost, gained))
    return found


Shares = tuple[tuple[str, float], ...]


def changes(whole: Report, made: Report, levels: Sequence[str]) -> tuple[Shares, Shares]:
    """Compare the first results of the `whole` vectors and of smaller ones (`made`). Return, for
    each level, the share of queries whose first result was right and became wrong, and the share
    for which it was wrong and became right. `levels`: coarse to fine."""
    lost = []
    gained = []
    for level in levels:
        name = str(MetricName.parse(f"R@1/{level}").at(levels))  # R@1 of the finest has no level
        if name not in whole.values:
            continue
        before = whole.values[name]  # (Q,): 1, 0, or NaN if it is undefined
        after = made.values[name]
        asked = ~np.isnan(before) & ~np.isnan(after)
        if asked.any():
            lost.append((level, float((before > after)[asked].mean())))
            gained.append((level, float((after > before)[asked].mean())))
    return tuple(lost), tuple(gained)


def losses_in_words(score: SmallerScore) -> str:
    """Say in a sentence what a size costs, level by level, the finest first: of 100 queries, how
    many no longer have a right first result at the level, and in parentheses how many newly have
    one. For example:

    "64 × 32 bits: of 100 queries 3.1 lose the species (1.2 gain it), 0.2 the order (0.1)".
    """
    gained = dict(score.gained)
    parts: list[str] = []
    for level, share in reversed(score.lost):  # `lost` is coarse to fine; shares are in [0, 1]
        verb = "lose " if not parts else ""
        gain = " gain it" if not parts else ""
        parts.append(f"{100 * share:.1f} {verb}the {level} ({100 * gained[level]:.1f}{gain})")
    return f"{score.size}: of 100 queries {', '.join(parts)}"
