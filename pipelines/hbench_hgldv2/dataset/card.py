"""Writes the card of the assembled dataset: its sizes, how balanced its super-categories are, how
its landmarks were placed, and which labels look inconsistent.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import jinja2

from hbench_hgldv2.dataset.landmarks import Sourced, by_source, labelled
from hbench_hgldv2.grouping import quality
from hbench_hgldv2.labels.kinds import usual_kinds_first

SMALLEST = 17  # landmarks of the smallest super-category of the release
CARD = Path(__file__).with_name("card.md.jinja")
REASONS = ("recovered", "assigned", "ambiguous", "dropped", "unassigned")


def imbalance(sizes: Iterable[int]) -> dict[str, float]:
    """Measure the imbalance of positive group sizes: the share of the largest group ("top1") and of
    the ten largest ("top10"), the ratio of largest to smallest, and "effective" = exp(−Σ p·ln p),
    the number of equally large groups with the same entropy.

    >>> imbalance([10, 10])
    {'top1': 0.5, 'top10': 1.0, 'ratio': 1.0, 'effective': 2.0}
    """
    ordered = sorted(sizes, reverse=True)
    total = sum(ordered)
    largest = ordered[0]
    entropy = -sum(size / total * math.log(size / total) for size in ordered)
    shares = {"top1": largest / total, "top10": sum(ordered[:10]) / total}
    # rounded, so that ten equal groups give 10 and not 9.999999999999998
    return {**shares, "ratio": largest / ordered[-1], "effective": round(math.exp(entropy), 9)}


def card(
    splits: Mapping[str, Sequence[Sourced]],
    odd: Sequence[quality.Inconsistency],
    sources: Mapping[str, str],
) -> str:
    """Return the card of the dataset as Markdown.

    Args:
        splits: split -> rows of its landmarks.
        odd: pairs of labels that are near each other but in different groups; all are listed.
        sources: file name of an input -> sha256.
    """
    # split -> super-category -> number of landmarks
    groups: dict[str, Counter[str]] = {}
    kinds: dict[str, str] = {}  # super-category -> natural or human-made
    for name, rows in splits.items():
        with_label = labelled(rows)
        groups[name] = Counter(row.hierarchical_label for row in with_label)
        kinds |= {row.hierarchical_label: row.natural_or_human_made for row in with_label}
    of_kind = Counter(kinds.values())
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )

    return environment.from_string(CARD.read_text(encoding="utf-8")).render(
        splits=list(splits),
        groups=groups,
        kinds=kinds,
        total=sum(groups.values(), Counter[str]()),
        # split -> where a super-category is from, or why there is none -> number of landmarks
        counts={name: by_source(rows) for name, rows in splits.items()},
        odd=odd,
        sources=sources,
        smallest=SMALLEST,  # super-categories with fewer landmarks are marked
        reasons=REASONS,  # the keys of `counts` that get a column each, beside "labelled"
        imbalance={name: imbalance(sizes.values()) for name, sizes in groups.items() if sizes},
        # each kind with its number of super-categories: the usual kinds first, then others in use
        of_kind=[(kind, of_kind[kind]) for kind in usual_kinds_first(sorted(of_kind))],
    )
