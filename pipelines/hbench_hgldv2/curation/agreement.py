"""Compares two curators: which labels they placed differently, and how far they agree beyond chance
(Cohen's κ)."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from sklearn.metrics import cohen_kappa_score

from hbench.cli import terminal
from hbench.core.errors import ComparisonError
from hbench_hgldv2.artefact import read_rows
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.replay import LabelPlace, Placed, replay
from hbench_hgldv2.grouping.cluster import read_clusters
from hbench_hgldv2.labels.label import Label


class Disagreement(NamedTuple):
    """A label that two curators placed differently. `first`, `second`: the two places, in words."""

    class_id: str
    label: str
    landmarks: int
    first: str
    second: str


class Agreement(NamedTuple):
    """The agreement of two curators: the share of labels with equal places and Cohen's κ, per label
    and weighted by landmarks."""

    labels: int
    observed: float
    kappa: float
    weighted_observed: float
    weighted_kappa: float
    queue: list[Disagreement]


def run(
    work: Path, first: Path, second: Path, *, as_json: Annotated[bool, "Print it as JSON."] = False
) -> None:
    """Compare two curators' decisions files.

    \b
    hbench hgldv2 agreement a.yaml b.yaml
    """
    labels = read_rows(work / "labels.csv", Label)
    clusters = read_clusters(work)
    # for each file of decisions, the place of every label after the decisions
    ours, theirs = (
        replay(labels, clusters, decisions_file.load(path)).rows for path in (first, second)
    )
    result = compare(ours, theirs, labels)
    if as_json:
        content = result._asdict()
        queue = [row._asdict() for row in content.pop("queue")]
        # JSON has no NaN, the value of κ where both curators use a single place
        measures = {name: None if math.isnan(value) else value for name, value in content.items()}
        terminal.show_json(measures | {"queue": queue})
        return

    terminal.show(
        f"{result.labels:,} labels placed by both: agreement {result.observed:.3f}, κ "
        f"{result.kappa:.3f}; "
        f"by landmarks {result.weighted_observed:.3f}, κ {result.weighted_kappa:.3f}"
    )
    rows = [[*map(str, row)] for row in result.queue]
    terminal.show_table(f"{len(rows)} to talk about", Disagreement._fields, rows)


def compare(
    first: Sequence[Placed], second: Sequence[Placed], labels: Sequence[Label]
) -> Agreement:
    """Measure the agreement of two curators over the labels that both placed (in a group or as
    dropped).

    `first` and `second` hold one row per label, with the place that the curator's decisions give
    the label. Raises ComparisonError when the curators placed no common label.
    """
    # class id -> place, for the labels that the curator placed
    ours = _places_in(first)
    theirs = _places_in(second)
    shared = [label for label in labels if label.class_id in ours and label.class_id in theirs]
    if not shared:
        raise ComparisonError(
            "the two curators placed no label in common",
            expected="labels placed by both",
            found=f"{len(ours)} and {len(theirs)} placed labels",
        )

    # for each label, its places according to the two curators
    pairs = [(ours[label.class_id], theirs[label.class_id]) for label in shared]
    once = [1] * len(pairs)
    landmarks = [label.landmarks for label in shared]
    queue = [
        Disagreement(
            class_id=label.class_id,
            label=label.label,
            landmarks=label.landmarks,
            first=a.described,
            second=b.described,
        )
        for label, (a, b) in zip(shared, pairs, strict=True)
        if a != b
    ]
    # labels with many landmarks come first, because they matter most
    queue.sort(key=lambda row: (-row.landmarks, row.class_id))

    return Agreement(
        labels=len(shared),
        observed=_observed(pairs, once),
        kappa=kappa(pairs, once),
        weighted_observed=_observed(pairs, landmarks),
        weighted_kappa=kappa(pairs, landmarks),
        queue=queue,
    )


def _places_in(rows: Iterable[Placed]) -> dict[str, LabelPlace]:
    """Return {class id: place} for the labels that a curator has placed."""
    return {
        row.class_id: LabelPlace(row.status, row.group)
        for row in rows
        if row.status != "unassigned"
    }


def kappa(pairs: Sequence[tuple[LabelPlace, LabelPlace]], weights: Sequence[int]) -> float:
    """Compute Cohen's κ of weighted pairs, the places of a label according to two curators.

    κ = (p_o − p_e) / (1 − p_e). p_o is the share of the weight of pairs with equal places. p_e =
    Σ_g p_first(g)·p_second(g), where p_first(g) is the share of the weight that the first curator
    gives place g. The result is nan if p_e = 1.
    """
    # pairs of weight 0 are left out, so that the test for a single place sees only what counts
    counted = [(pair, weight) for pair, weight in zip(pairs, weights, strict=True) if weight]
    places = dict.fromkeys(place for pair, _ in counted for place in pair)
    number = {place: n for n, place in enumerate(places)}
    if len(number) < 2:  # both use the same single place, so p_e = 1
        return float("nan")
    first = [number[place] for (place, _), _ in counted]
    second = [number[place] for (_, place), _ in counted]
    return float(cohen_kappa_score(first, second, sample_weight=[weight for _, weight in counted]))


def _observed(pairs: Sequence[tuple[LabelPlace, LabelPlace]], weights: Sequence[int]) -> float:
    """The share of the weight that pairs with equal places have; nan where the total weight is
    0."""
    total = sum(weights)
    agreed = sum(weight for (a, b), weight in zip(pairs, weights, strict=True) if a == b)
    return agreed / total if total else float("nan")
