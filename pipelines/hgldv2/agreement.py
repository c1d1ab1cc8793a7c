"""Agreement of two curators: per label, Cohen's κ, and the queue of labels to talk about, most landmarks first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hbench.errors import ComparisonError
from pipelines.hgldv2.explain import describe
from pipelines.hgldv2.labels import Label
from pipelines.hgldv2.operations import Place
from pipelines.hgldv2.replay import Placed


class Disagreement(NamedTuple):
    """A label two curators put in different places."""

    class_id: str
    label: str
    landmarks: int
    first: str
    second: str


class Agreement(NamedTuple):
    """`observed` is the share of equal places, `kappa` Cohen's (nan when chance alone gives 1), weighted ones count
    landmarks.
    """

    labels: int
    observed: float
    kappa: float
    weighted_observed: float
    weighted_kappa: float
    queue: list[Disagreement]


def compare(first: Sequence[Placed], second: Sequence[Placed], labels: Sequence[Label]) -> Agreement:
    """The agreement of two mappings over the labels both curators placed (in a group or dropped).

    Raises ComparisonError when they share none.
    """
    ours, theirs = (
        {row.class_id: Place(row.status, row.group) for row in rows if row.status != "unassigned"}
        for rows in (first, second)
    )
    shared = [label for label in labels if label.class_id in ours and label.class_id in theirs]
    if not shared:
        raise ComparisonError(
            "the two curators placed no label in common",
            expected="labels placed by both",
            found=f"{len(ours)} and {len(theirs)} placed labels",
        )
    pairs = [(ours[label.class_id], theirs[label.class_id]) for label in shared]
    plain, weighted = [1] * len(pairs), [label.landmarks for label in shared]
    queue = [
        Disagreement(label.class_id, label.label, label.landmarks, describe(a), describe(b))
        for label, (a, b) in zip(shared, pairs, strict=True)
        if a != b
    ]
    queue.sort(key=lambda row: (-row.landmarks, row.class_id))
    return Agreement(
        len(shared),
        _observed(pairs, plain),
        kappa(pairs, plain),
        _observed(pairs, weighted),
        kappa(pairs, weighted),
        queue,
    )


def kappa(pairs: Sequence[tuple[object, object]], weights: Sequence[int]) -> float:
    """Cohen's κ = (p_o − p_e) / (1 − p_e), p_e = Σ_g p_first(g)·p_second(g), each pair counted with its weight; nan
    when p_e = 1.
    """
    total = sum(weights)
    if not total:
        return float("nan")
    first, second = Counter[object](), Counter[object]()
    for (a, b), weight in zip(pairs, weights, strict=True):
        first[a] += weight
        second[b] += weight
    chance = sum(first[group] * second[group] for group in first) / total**2
    return float("nan") if chance == 1 else (_observed(pairs, weights) - chance) / (1 - chance)


def _observed(pairs: Sequence[tuple[object, object]], weights: Sequence[int]) -> float:
    total = sum(weights)
    return (
        sum(weight for (a, b), weight in zip(pairs, weights, strict=True) if a == b) / total if total else float("nan")
    )
