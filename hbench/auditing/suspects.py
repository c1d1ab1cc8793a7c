"""Lists the items whose neighbours say another label: far suspects, which leave their path above
their parent, and near ones, which leave their own class alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.auditing.evidence import Alternatives, Best, Evidence, Indices, Votes
from hbench.auditing.groups import SuspectGroup, contradicted, groups_of, recall_of_groups
from hbench.auditing.pool import Pool
from hbench.auditing.strangeness import Strangeness
from hbench.auditing.sureness import Seen, Sureness, calibrate_sureness
from hbench.auditing.swaps import SMALLEST

FAR, NEAR = "far", "near"
SHOWN_NEIGHBOURS = 4
FEWEST_WRONG = 20  # labels that are wrong at least, below which none is said to be surely so
LIKELY = 0.5  # sureness, from which a suspect comes before groups
RECALL = 0.5  # of groups made on purpose, below which nothing is said of how many are wrong at most
NORMAL = 1.645  # a quantile, for numbers that vary by chance
BETWEEN = " | "  # ids of neighbours in a cell


@dataclass(frozen=True)
class SuspectList:
    """Suspects of one kind, best first: those that are more likely wrong than not, then groups,
    then the others.

    Attributes:
        kind: "far" or "near".
        items: places in the pool, (S,).
        proposed: the classes that their neighbours propose, (S,).
        evidence: in nats, (S,).
        sureness: that the label is wrong, (S,), NaN where it is not to be trusted, and in groups.
        group: the number of each suspect's group, from 1 on, (S,), 0 without one.
        curve: by which evidence becomes sureness.
        at_least: how many labels are wrong in this way, also beyond the listed ones; None where
            nothing is to be trusted.
        at_most: likewise, None where a class that is taken for another one would not be seen.
    """

    kind: str
    items: Indices
    proposed: Indices
    evidence: NDArray[np.float64]
    sureness: NDArray[np.float64]
    group: Indices
    curve: Sureness
    at_least: int | None
    at_most: int | None


class Suspects(NamedTuple):
    """The far and the near list, and the groups of both, the largest first."""

    lists: tuple[SuspectList, SuspectList]
    groups: tuple[SuspectGroup, ...]


def suspects_of(votes: Votes, distances: NDArray[np.float64], *, most: int) -> Suspects:
    """The far and the near suspects, at most so many of each; an item is in one list, that of the
    alternative with more evidence, and far where both have as much. `votes`: the classes of items
    and their neighbours (N, k); `distances` (N, k): to these."""
    strangeness = Strangeness.of(votes, distances)
    evidence = Evidence(votes)
    everyone = np.arange(len(votes.classes))
    # for each item the best class of another branch, and the best sibling, with the evidence for it
    found = evidence.alternatives(everyone, votes.classes)
    sizes = np.bincount(votes.classes, minlength=len(votes.paths))[votes.classes]
    # the votes of a class of one or two items say nothing of its nearest relatives
    near = np.where(sizes >= SMALLEST, found.near.evidence, -np.inf)
    found = Alternatives(found.far, Best(near, found.near.classes))

    is_far = found.far.evidence >= found.near.evidence
    groups = groups_of(votes, contradicted(found, everyone), strangeness)
    group = np.zeros(len(everyone), np.int64)
    for number, each in enumerate(groups, start=1):
        group[each.items] = number  # 0 is that of items in no group
    # which share of labels that are wrong together the search for groups finds
    recall = recall_of_groups(votes, strangeness)
    of_far = Candidates(FAR, found.far, is_far, group, recall.far)
    of_near = Candidates(NEAR, found.near, ~is_far, group, recall.near)
    listed = partial(_list_of_kind, evidence=evidence, strangeness=strangeness, most=most)
    return Suspects((listed(of_far), listed(of_near)), tuple(groups))


class Candidates(NamedTuple):
    """What a list is made of: the `best` alternatives of all items (N,), which of them are of this
    `kind`, the number of their group, and the `recall` of groups."""

    kind: str
    best: Best
    chosen: NDArray[np.bool_]
    group: Indices
    recall: float


def _list_of_kind(
    some: Candidates, evidence: Evidence, strangeness: Strangeness, most: int
) -> SuspectList:
    """The suspects of a kind, with their sureness, at most so many (`most`).

    Items in groups have none: what is known of labels that are wrong one by one says nothing of
    mistakes that were made together.
    """
    best = some.best
    everyone = np.arange(len(best.evidence))
    # what is seen of every item: its evidence against the label, and how strange it is
    seen = Seen.of(everyone, best, strangeness)
    is_alone = some.group == 0
    observed = seen.at(np.isfinite(best.evidence) & is_alone)
    # from what is seen to how sure a label is wrong
    curve = calibrate_sureness(evidence, strangeness, observed, is_far=some.kind == FAR)

    # evidence of 0 or less speaks for the label
    items = np.flatnonzero(some.chosen & (best.evidence > 0))
    sureness = np.where(is_alone, curve.of(seen), np.nan)[items]
    at_least, at_most = _numbers_of_wrong_labels(curve, sureness, len(everyone))
    if at_least is not None and at_least < FEWEST_WRONG and not curve.is_apart:
        # so few that a handful of look-alikes makes most of those that are said to be sure: none
        # is then said to be more than likely
        sureness = np.minimum(sureness, LIKELY)
    odds = curve.odds(seen)[items]
    order = _order(sureness, odds, some.group[items])
    if at_most is not None:
        at_most = _at_most_with_groups(at_most, some.group[items], some.recall)

    listed = items[order][:most]
    return SuspectList(
        some.kind,
        listed,
        best.classes[listed],
        best.evidence[listed],
        sureness[order][:most],
        some.group[listed],
        curve,
        at_least,
        at_most,
    )


def _order(sureness: NDArray[np.float64], odds: NDArray[np.float64], group: Indices) -> Indices:
    """Those that are more likely wrong than not by their odds, then groups, then the others.
    `sureness` NaN: not known. Within a part by group, then by odds; places (m,)."""
    is_likely = np.nan_to_num(sureness) >= LIKELY
    part = np.where(is_likely, 0, np.where(group == 0, 2, 1))
    return np.lexsort((-odds, group, part))


def _at_most_with_groups(at_most: int, groups: Indices, recall: float) -> int | None:
    """How many labels are wrong at most where all groups are, as many as were not found, and one
    more; None where too few would be found. `groups` (S,): of suspects, 0 without one."""
    if not recall >= RECALL:
        return None
    found = len(np.unique(groups[groups > 0]))
    in_groups = int((groups > 0).sum())
    return at_most + math.ceil(in_groups / recall * (1 + 1 / max(found, 1)))


def _numbers_of_wrong_labels(
    curve: Sureness, sureness: NDArray[np.float64], items: int
) -> tuple[int | None, int | None]:
    """How many labels are wrong at least and at most, by the suspects outside of groups; (None,
    None) where the curve is not to be trusted.

    Two counts say so: the sum of the `sureness` (S,) of all suspects, the probability that each is
    wrong, NaN of those in groups; and the curve's shares, the smallest and the largest that is
    likely, of all `items`. The smallest of these is lowered, and the largest raised, by what chance
    may change in a count.
    """
    if not curve.is_trusted:
        return None, None
    least = min(float(np.nansum(sureness)), curve.share * items)
    most = max(float(np.nansum(sureness)), curve.most * items)
    # the deviation of a count n is √n (Poisson); NORMAL of them hold 95 % to one side
    by_chance = NORMAL * np.sqrt([least, most])
    # one more, since √n is too little for counts of a few
    return max(0, int(least - by_chance[0])), int(np.ceil(most + by_chance[1] + 1))


def table_of(pool: Pool, lists: tuple[SuspectList, ...], votes: Votes) -> pa.Table:
    """A row per suspect, best first within the lists: item, split, list, level where it leaves its
    path, label, proposed path, sureness, evidence, group, and its nearest neighbours."""
    labels = pool.labels
    levels = pool.manifest.levels
    ids = pool.manifest.items
    rows = []
    for each in lists:
        for item, proposed, sureness, evidence, group in zip(
            each.items.tolist(),
            each.proposed.tolist(),
            each.sureness.tolist(),
            each.evidence.tolist(),
            each.group.tolist(),
            strict=True,
        ):
            own = int(votes.classes[item])
            rows.append(
                {
                    "item": str(ids[item]),
                    "split": str(pool.split[item]),
                    "list": each.kind,
                    # the first level at which label and proposal differ
                    "level": levels[int(votes.common(own, proposed))],
                    "label": labels[own],
                    "proposed": labels[proposed],
                    # a chance of being wrong; empty where none is known: in groups, and where the
                    # swapped labels that calibrate it say too little
                    "sureness": None if np.isnan(sureness) else round(sureness, 4),
                    "evidence": round(evidence, 3),  # a log-likelihood ratio: more speaks for wrong
                    "group": group or None,
                    "neighbours": BETWEEN.join(
                        ids[votes.neighbours[item][:SHOWN_NEIGHBOURS]].astype(str)
                    ),
                }
            )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("item", "split", "list", "level", "label", "proposed")),
        ("sureness", pa.float64()),
        ("evidence", pa.float64()),
        ("group", pa.int64()),
        ("neighbours", pa.string()),
    ]
)
