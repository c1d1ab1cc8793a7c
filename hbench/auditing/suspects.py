"""Lists the items whose neighbours propose another label. For far suspects, it is a class with
another parent; for near suspects, it is a sibling.
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
# if the lower bound of wrong labels is smaller, sureness is limited to LIKELY, unless hardly any
# labels are between right and swapped ones
FEWEST_WRONG = 20
LIKELY = 0.5  # from this sureness on, a suspect is listed before groups
RECALL = 0.5  # if fewer groups made on purpose are found, no upper bound of wrong labels is stated
NORMAL = 1.645  # the .95 quantile of the normal distribution, for the variation of counts
BETWEEN = " | "  # separates the ids of neighbours in a cell


@dataclass(frozen=True)
class SuspectList:
    """Suspects of one kind, best first: those that are more likely wrong than right, then groups,
    then the others.

    Attributes:
        kind: "far" or "near".
        items: indices of items in the pool, (S,).
        proposed: the classes that their neighbours propose, (S,).
        evidence: for the proposed class, in nats, (S,).
        sureness: the probability that the label is wrong, (S,); NaN if it cannot be trusted, and in
            groups.
        group: the number of each suspect's group, from 1, (S,); 0 without a group.
        curve: the curve from evidence to sureness.
        at_least: a lower bound on the number of labels that are wrong in this way, including those
            that are not listed; None if it cannot be trusted.
        at_most: likewise an upper bound; None also if a class that is often taken for another one
            would not be seen.
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
    """Find the far and the near suspects: items whose label seems to be wrong, and whose right
    class seems to be far from the label (under another parent) or near it (a sibling).

    The evidence against a label is the logarithm of how much likelier the votes of an item's
    neighbours are under another class. An item is in the list of the alternative with more
    evidence, the far list if both are equal. Evidence above 0 contradicts the label. Strangeness,
    how far an item is from its neighbours by the standard of a class, tells whether it would be at
    home in the other class.

    Args:
        votes: the classes of the items and of their neighbours (N, k).
        distances: 1 − cos between each item and its neighbours, (N, k).
        most: the largest number of suspects in each list.
    """
    strangeness = Strangeness.of(votes, distances)
    evidence = Evidence(votes)
    everyone = np.arange(len(votes.classes))
    found = evidence.alternatives(everyone, votes.classes)
    # (N,): the number of items of each item's class
    sizes = np.bincount(votes.classes, minlength=len(votes.paths))[votes.classes]
    # a class of one or two items has too few votes to be compared with its siblings
    near = np.where(sizes >= SMALLEST, found.near.evidence, -np.inf)
    found = Alternatives(found.far, Best(near, found.near.classes))

    is_far = found.far.evidence >= found.near.evidence
    # groups of items of one class that all seem to belong to one other class
    groups = groups_of(votes, contradicted(found, everyone), strangeness)
    group = np.zeros(len(everyone), np.int64)
    for number, each in enumerate(groups, start=1):
        group[each.items] = number  # 0 means no group
    # of labels made wrong in groups on purpose, the shares that `groups_of` finds again: the upper
    # bounds on the number of wrong labels add groups that were not found
    recall = recall_of_groups(votes, strangeness)
    of_far = Candidates(kind=FAR, best=found.far, chosen=is_far, group=group, recall=recall.far)
    of_near = Candidates(
        kind=NEAR, best=found.near, chosen=~is_far, group=group, recall=recall.near
    )
    listed = partial(_list_of_kind, evidence=evidence, strangeness=strangeness, most=most)
    return Suspects((listed(of_far), listed(of_near)), tuple(groups))


class Candidates(NamedTuple):
    """The items from which the list of one kind is made."""

    kind: str  # "far" or "near"
    best: Best  # the best alternatives of this kind, of all N items
    chosen: NDArray[np.bool_]  # whether an item may be in this list, (N,)
    group: Indices  # the number of each item's group, 0 without one, (N,)
    recall: float  # the share of relabelled items that the search for groups finds


def _list_of_kind(
    some: Candidates, evidence: Evidence, strangeness: Strangeness, most: int
) -> SuspectList:
    """The suspects of one kind, far (the proposed class has another parent) or near (a sibling), at
    most `most`, with their sureness: the probability that the label is wrong.

    Items in groups have no sureness: it is calibrated with labels that are wrong one by one, which
    says nothing about mistakes that were made together.

    Args:
        some: of all N items, the best alternative of this kind, whether the item may be listed, and
            its group, 0 without one; and the share of items, relabelled on purpose, that the search
            for groups finds.
        evidence: computes the alternatives of labels that are swapped to calibrate the sureness.
        strangeness: computes how strange an item would be in a class.
        most: the largest number of suspects.
    """
    best = some.best
    everyone = np.arange(len(best.evidence))
    seen = Seen.of(everyone, best, strangeness)
    is_alone = some.group == 0
    # evidence is −inf for an item without an alternative
    observed = seen.at(np.isfinite(best.evidence) & is_alone)
    curve = calibrate_sureness(evidence, strangeness, observed, is_far=some.kind == FAR)

    # evidence of 0 or less supports the label
    items = np.flatnonzero(some.chosen & (best.evidence > 0))
    sureness = np.where(is_alone, curve.of(seen), np.nan)[items]
    # both are None if the curve cannot be trusted
    at_least, at_most = _numbers_of_wrong_labels(curve, sureness, len(everyone))
    if at_least is not None and at_least < FEWEST_WRONG and not curve.is_apart:
        # There may be so few wrong labels that most of the sure suspects are right labels of items
        # that merely look like another class. Only if hardly any labels are between right and
        # swapped ones (`is_apart`), the sureness stays.
        sureness = np.minimum(sureness, LIKELY)
    # the odds that a label is wrong also order items in groups, which have no sureness
    odds = curve.odds(seen)[items]
    order = _order(sureness, odds, some.group[items])
    if at_most is not None:
        at_most = _at_most_with_groups(at_most, some.group[items], some.recall)

    listed = items[order][:most]
    return SuspectList(
        kind=some.kind,
        items=listed,
        proposed=best.classes[listed],
        evidence=best.evidence[listed],
        sureness=sureness[order][:most],
        group=some.group[listed],
        curve=curve,
        at_least=at_least,
        at_most=at_most,
    )


def _order(sureness: NDArray[np.float64], odds: NDArray[np.float64], group: Indices) -> Indices:
    """The order of suspects, as indices (m,): first those that are more likely wrong than right,
    then those in groups, then the others. Each part is sorted by group, then by odds. A `sureness`
    of NaN counts as not likely."""
    is_likely = np.nan_to_num(sureness) >= LIKELY
    part = np.where(is_likely, 0, np.where(group == 0, 2, 1))
    return np.lexsort((-odds, group, part))


def _at_most_with_groups(at_most: int, groups: Indices, recall: float) -> int | None:
    """The upper bound on wrong labels, with those in groups added. None if the search for groups
    would miss too many.

    All items in groups count as wrong. Dividing by the recall adds those that were not found. The
    last factor adds one more group of average size: since mistakes come in whole groups, there may
    by chance be a group more or less. `groups` (S,) are the groups of the suspects, 0 without one.
    """
    if not recall >= RECALL:  # true for NaN as well
        return None
    found = len(np.unique(groups[groups > 0]))
    in_groups = int((groups > 0).sum())
    return at_most + math.ceil(in_groups / recall * (1 + 1 / max(found, 1)))


def _numbers_of_wrong_labels(
    curve: Sureness, sureness: NDArray[np.float64], items: int
) -> tuple[int | None, int | None]:
    """The lower and upper bounds on the number of wrong labels outside of groups; (None, None) if
    the curve is not trusted.

    There are three estimates of this number: the sum of the `sureness` (S,) of all suspects, except
    the NaN of those in groups; `curve.share` times the number of all `items`; and `curve.most`, the
    largest likely share, times that number. The lower bound is the smaller of the first two, and
    the upper bound the larger of the first and the third, each moved outwards by the variation of a
    count.
    """
    if not curve.is_trusted:
        return None, None
    least = min(float(np.nansum(sureness)), curve.share * items)
    most = max(float(np.nansum(sureness)), curve.most * items)
    # a count n has the standard deviation √n (Poisson); each bound holds with 95 % confidence
    by_chance = NORMAL * np.sqrt([least, most])
    # + 1, since √n is too small for counts near 0
    return max(0, int(least - by_chance[0])), int(np.ceil(most + by_chance[1] + 1))


def table_of(pool: Pool, lists: tuple[SuspectList, ...], votes: Votes) -> pa.Table:
    """A table with a row per suspect, best first within each list. `level` is the first level at
    which the label and the proposed path differ."""
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
                    # the number of shared levels is the index of the first that differs
                    "level": levels[int(votes.common(own, proposed))],
                    "label": labels[own],
                    "proposed": labels[proposed],
                    # empty in groups, and if the sureness cannot be trusted
                    "sureness": None if np.isnan(sureness) else round(sureness, 4),
                    "evidence": round(evidence, 3),  # a log-likelihood ratio: more speaks for wrong
                    "group": group or None,  # 0 means no group
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
