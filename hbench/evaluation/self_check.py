"""Computes known values again on this machine: three small sets of vectors under both protocols, every metric.

The vectors are written as formulas, so that nobody needs a generator of random numbers to make them; their expected values
(self_check.json) were computed by double loops and by the released definitions (tests/evaluation/test_self_check.py). Small
sets do not go by the compiled kernels; so a larger one is scored by these, and some of its queries alone by the formulas.
"""

from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.untrusted import parse_json
from hbench.evaluation.arrays import score

TOLERANCE = 1e-9
METRICS = ("H-AP", "wAP", "ASI", "NDCG", "AP#coarse", "AP#middle", "AP", "R@1", "R@10", "mAP@R", "mAP@100")
LEVELS = ("coarse", "middle", "fine")
MANY = 2_100  # items, each of them a query: so many go by the kernels
FEW = 200  # of these queries, which alone go by the formulas


class Deviation(NamedTuple):
    """A metric of a case: what was expected, what this machine computes, and how far it is off."""

    case: str
    metric: str
    expected: float
    found: float

    @property
    def size(self) -> float:
        return abs(self.found - self.expected)


def deviations() -> list[Deviation]:
    """Every known value beside the one computed now."""
    expected = parse_json(resources.files("hbench.evaluation").joinpath("self_check.json").read_text(encoding="utf-8"))
    found = {name: values_of(case) for name, case in cases().items()}
    known = [
        Deviation(name, metric, value, found[name][metric])
        for name, own in expected.items()
        for metric, value in own.items()
    ]
    return [*known, *of_kernels()]


def of_kernels() -> list[Deviation]:
    """The mean of every metric over some queries, by the formulas and by the compiled kernels."""
    items, labels = whole_vectors(MANY, 6), labels_of(MANY)
    gallery: dict[str, Any] = {"gallery": items, "gallery_labels": labels, "similarity": "dot"}
    few, many = (
        score(items[:queries], labels[:queries], **gallery, metrics=METRICS, level_names=LEVELS)
        for queries in (FEW, MANY)
    )
    means = {name: (float(few.per_query[name].mean()), float(many.per_query[name][:FEW].mean())) for name in METRICS}
    return [Deviation("kernels", name, expected, found) for name, (expected, found) in means.items()]


def cases() -> dict[str, dict[str, Any]]:
    """Return the cases by name, as the arguments of `hbench.score`."""
    tied, labels = whole_vectors(300, 6), labels_of(300)
    smooth: dict[str, Any] = {"vectors": smooth_vectors(120), "labels": labels_of(120), "similarity": "cosine"}
    return {
        "ties, paper": {"vectors": tied, "labels": labels, "similarity": "dot"},
        "ties, official": {"vectors": tied, "labels": labels, "similarity": "dot", "protocol": "official"},
        "cosine, paper": smooth,
        "cosine, gallery": {
            "vectors": smooth["vectors"][:30], "labels": labels_of(120)[:30],
            "gallery": smooth["vectors"][30:], "gallery_labels": labels_of(120)[30:], "similarity": "cosine",
        },
    }  # fmt: skip


def values_of(case: Mapping[str, Any]) -> dict[str, float]:
    """Every metric of a case."""
    report = score(**case, metrics=METRICS, level_names=LEVELS)
    return {name: float(str(report.document.scores[name].value)) for name in METRICS}


def whole_vectors(count: int, dim: int) -> NDArray[np.float32]:
    """Small whole numbers that depend on the class, whose products are exact everywhere and often equal; (count, dim)."""
    rows, columns = np.meshgrid(np.arange(count), np.arange(dim), indexing="ij")
    own = (labels_of(count)[:, 2:] + 1) * (columns + 2) % 11
    values: NDArray[np.float32] = (own - 5 + (rows * rows + 3 * rows * columns) % 7 - 3).astype(np.float32)
    return values


def smooth_vectors(count: int, dim: int = 9) -> NDArray[np.float64]:
    """Vectors no two of whose similarities are near enough to be swapped by rounding; (count, dim)."""
    rows, columns = np.meshgrid(np.arange(count), np.arange(dim), indexing="ij")
    own = np.sin(labels_of(count)[:, 2:] * (columns + 1.25) + columns)
    values: NDArray[np.float64] = own + 0.9 * np.sin(rows * rows * (columns + 1.55))
    return values


def labels_of(count: int) -> NDArray[np.int64]:
    """Labels (count, 3), coarse to fine: 4, 8 and 24 classes."""
    fine = np.arange(count) * 7 % 24
    return np.stack([fine // 6, fine // 3, fine], axis=1)
