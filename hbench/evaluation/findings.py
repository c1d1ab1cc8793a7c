"""Finds facts that a reader of scores has to know: wrong first results, ties, inversions, queries
without positives, too few units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hbench.engine.settings import Conditions
from hbench.evaluation.measurement import Measurement
from hbench.metrics.relevance import has_inversion
from hbench.metrics.significance import MIN_UNITS
from hbench.records.queries import units_in_words

UNRELATED = "unrelated"
MIN_QUERIES = 100  # with fewer queries all may be right by chance
# pages give advice on the remarks that begin with these texts
WITH_TIES = "have items of equal score and other level"
WITHOUT_POSITIVES = "have no positive at any level"
WITHOUT_KNOWN = "have no positive whose level is known"
WITH_INVERSION = "have a relevance inversion"


def few_units(units: NDArray[np.int64], unit: str, *, partial: bool = False) -> list[str]:
    """Make a remark if there are too few units to trust an interval; an empty list otherwise.

    Units of different sizes are as informative as 1/Σ s² units of equal size, where s is the share
    of the queries that belong to a unit.

    `units` (n,): the number of the unit to which each scored query belongs. `unit`: what the units
    are, the name of a level, or "query" if each query is a unit. `partial`: whether paths may end
    above the finest level, which the remark then mentions.
    """
    sizes = np.bincount(units)
    number = int((sizes > 0).sum())
    # 1/Σ s² with the shares s = size/Σ size; the maximum avoids 0/0 where there are no queries
    effective = sizes.sum() ** 2 / max(1, (sizes.astype(float) ** 2).sum())
    # rounded, so that exactly MIN_UNITS equal units are enough despite rounding errors
    if number == 0 or round(effective, 6) >= MIN_UNITS:
        return []
    over = f"the intervals are over {units_in_words(unit, number, partial=partial)}"
    if number >= MIN_UNITS:
        # rounded down: 11.98 is not yet MIN_UNITS
        equal = math.floor(10 * effective) / 10
        over += f", whose sizes differ so that they say as much as {equal:.1f} equal ones"
    return [f"{over}: with fewer than {MIN_UNITS} no interval can be trusted"]


def first_levels(measurement: Measurement, levels: Sequence[str]) -> dict[str, int]:
    """Count the queries by the level of the item at rank 1: {level: count}, finest first. The last
    key, "unrelated", is for items that share no level. `levels`: names, coarse to fine."""
    counts = np.bincount(measurement.first_level, minlength=len(levels) + 1).tolist()
    return dict(reversed(list(zip([UNRELATED, *levels], counts, strict=True))))


def doubts_of_values(measurements: Mapping[str, Measurement], levels: int) -> tuple[str, ...]:
    """Return a doubt for each test whose results are suspiciously good: if the item at rank 1 is of
    the finest class for every query, labels may have leaked. Tests with few queries are left out:
    they may be perfect by chance.

    `measurements`: {test: measurement}; the `first_level` (Q,) of each are the levels of the items
    at rank 1. `levels`: L, the number of levels, which is also the level of an item of the query's
    finest class.
    """
    perfect = [
        name
        for name, each in measurements.items()
        if len(each.first_level) >= MIN_QUERIES and bool((each.first_level == levels).all())
    ]
    return tuple(
        f"{name}: every query's first result is of its finest class (R@1 = 100): the test is too "
        "easy, or labels leaked"
        for name in perfect
    )


def remarks(measurements: Mapping[str, Measurement], conditions: Conditions) -> list[str]:
    """Return remarks on each test: how many queries have ties, relevance inversions, or no
    positives.

    `measurements`: {test: measurement}. Of each, `tied` (Q,) tells whether items of equal score
    differ in level, and `counts` (Q, L + 1) the number of items of each level, from 0.
    """
    found = []
    whole = conditions
    for name, each in measurements.items():
        # Where queries are nodes of the tree, the queries of a test are nodes of one depth, and the
        # levels below that depth do not count: `counts` has no columns for them. [:… − 1] since
        # counts have a column for level 0, which has no name
        conditions = replace(whole, levels=whole.levels[: each.counts.shape[1] - 1])
        asked = len(each.tied)
        tied = int(each.tied.sum())
        # the number of queries without a positive at any level; column 0 of the counts is for items
        # that share no level with the query
        alone = int((each.counts[:, 1:].sum(axis=1) == 0).sum())
        inversions = int(has_inversion(conditions.relevance(each.counts), each.counts).sum())
        left_out = f"{WITHOUT_POSITIVES} and are left out of the means, but for R@k, where they "
        left_out += "count as 0"
        if conditions.words.partial:
            # If labels end early, the level of some items is unknown, and `counts` leaves them out.
            # It may still be known that such an item shares a coarser node with the query: it is
            # then a positive in the AP of that node's level. So a query without positives in
            # `counts` is only left out of the metrics of all levels
            left_out = f"{WITHOUT_KNOWN} and are left out of the means of H-AP and others of all "
            left_out += "levels"
        # {what is true of some queries: the number of these queries}. `words.ties` is "pessimistic"
        # or "optimistic", and the option --ties chooses the other one
        facts = {
            f"{WITH_TIES}, in {conditions.words.ties} order (the other: --ties)": tied,
            left_out: alone,
            f"{WITH_INVERSION}: a coarser level worth no less than a finer one": inversions,
        }
        found += [
            f"{name}: {count:,} of {asked:,} queries {fact}"
            for fact, count in facts.items()
            if count
        ]
        found += [f"{name}: {remark}" for remark in _without_positives(each, conditions, alone)]
        found += [f"{name}: {remark}" for remark in _beyond_gallery(each, conditions)]

    return found


def _without_positives(measurement: Measurement, conditions: Conditions, alone: int) -> list[str]:
    """Make remarks on queries without a positive at a level of some R@k: hbench counts them as 0,
    other packages leave them out.

    `measurement.counts` (Q, L + 1): the number of items of each level, from 0. `alone`: how many
    queries have no positive at any level; another remark is about these, so a level at which no
    other query lacks positives gets none here. Partial labels get none either, since an item whose
    level is unknown, and which `counts` leaves out, may still be a positive of a coarser level.
    """
    if conditions.words.partial:
        return []
    asked = len(measurement.counts)
    # the levels of the R@k among the metrics; an R@k that names no level is of the finest
    levels = {
        name.level or conditions.levels[-1] for name in conditions.metrics if name.base == "R"
    }
    found = []
    for place, level in enumerate(conditions.levels, start=1):
        # a positive of level l is an item of level l or finer
        without = int((measurement.counts[:, place:].sum(axis=1) == 0).sum())
        if level in levels and without > alone:
            found.append(
                f"{without:,} of {asked:,} queries have no positive of their {level}: in R@k they "
                "count as 0"
            )
    return found


def _beyond_gallery(measurement: Measurement, conditions: Conditions) -> list[str]:
    """Make a remark on the R@k whose cut k is at least the length of the longest list: all
    positives are within the cut then, so these metrics say nothing about the ranking."""
    # the items of all levels, 0 … L, are a query's whole list
    longest = int(measurement.counts.sum(axis=1).max(initial=0))
    beyond = sorted(
        {
            str(name)
            for name in conditions.metrics
            if name.base == "R" and (name.cut or 0) >= longest > 0
        }
    )
    if not beyond:
        return []
    return [
        f"lists have {longest:,} items at most, so {', '.join(beyond)} asks only whether there is "
        "a positive"
    ]
