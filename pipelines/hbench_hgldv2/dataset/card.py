"""Writes the dataset card: the content of an assembled hierarchy, its imbalance, and its known inconsistencies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2

from hbench_hgldv2.grouping.quality import Inconsistency
from hbench_hgldv2.labels.released import Released

SMALLEST = 17  # landmarks of the smallest super-category of the release

CARD = Path(__file__).with_name("card.md.jinja")
REASONS = ("recovered", "assigned", "ambiguous", "dropped", "unassigned")


class Imbalance(NamedTuple):
    """The imbalance of group sizes: shares of the largest and the ten largest, largest over smallest, exp(entropy)."""

    top1: float
    top10: float
    ratio: float
    effective: float


def imbalance(sizes: Sequence[int]) -> Imbalance:
    """Measure the imbalance of positive group sizes; effective = exp(−Σ p·ln p) is the number of groups of equal size.

    >>> imbalance([10, 10])
    Imbalance(top1=0.5, top10=1.0, ratio=1.0, effective=2.0)
    """
    total, ordered = sum(sizes), sorted(sizes, reverse=True)
    entropy = -sum(size / total * math.log(size / total) for size in sizes)
    return Imbalance(
        ordered[0] / total, sum(ordered[:10]) / total, ordered[0] / ordered[-1], round(math.exp(entropy), 9)
    )


def card(
    splits: Mapping[str, Sequence[Released]],
    counts: Mapping[str, Mapping[str, int]],
    odd: Sequence[Inconsistency],
    sources: Mapping[str, str],
) -> str:
    """Write the card as Markdown from rows and counts per split, inconsistencies, and the sha256 of the inputs."""
    labelled = {name: [row for row in rows if row.hierarchical_label] for name, rows in splits.items()}
    groups = {name: Counter(row.hierarchical_label for row in rows) for name, rows in labelled.items()}
    kinds = {row.hierarchical_label: row.natural_or_human_made for rows in labelled.values() for row in rows}
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    return environment.from_string(CARD.read_text(encoding="utf-8")).render(
        splits=list(splits),
        groups=groups,
        kinds=kinds,
        total=sum(groups.values(), Counter[str]()),
        counts=counts,
        odd=odd,
        sources=sources,
        smallest=SMALLEST,
        reasons=REASONS,
        imbalance={name: imbalance(list(sizes.values())) for name, sizes in groups.items() if sizes},
        of_kind=Counter(kinds.values()),
    )
