"""Chooses queries that are worth a look (the worst, the best, the most severe), and prepares their
strips."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.engine.top_k import NO_ITEM
from hbench.look.report.runs import Reported
from hbench.look.strips import Strip, StripRow, strip_of
from hbench.look.strips.retrievals import (
    Queries,
    hits_of,
    known_first,
    most_severe_first,
    right_of,
    worst_first,
)
from hbench.metrics.names import goodness

SHOWN_RESULTS = 8  # queries of a chapter
RESULTS = 10  # results of a query
GLIMPSE = 3  # results of a query on the overview, without the right one
GLIMPSED_QUERIES = 3  # queries of a chapter on the overview


class Chapter(NamedTuple):
    """Some queries as strips, with a heading and a text that explains them. `key`: names the
    chapter in links."""

    key: str
    heading: str
    words: str
    strips: list[Strip]


def chapters_of(reported: Reported) -> list[Chapter]:
    """Choose the worst, best and most severe queries of the first run, each as a chapter. Without
    the dataset, or the first run's values or results, there are no chapters."""
    run = reported.runs[0]
    if reported.by not in run.values or run.top is None or reported.manifest is None:
        return []

    by = reported.by
    # (Q,): higher is better
    values = goodness(reported.by, run.values[reported.by])
    # (key, heading, text, all queries in the chapter's order)
    chosen = [
        (
            "severe",
            "Most severe",
            "The first result shares nothing with the query, or little: mistakes that a user "
            "notices at once. Look for what the two pictures have in common (background, colour, "
            "text), and for wrong labels.",
            # lowest level of the first result first; a query without any result made no mistake,
            # and NaN leaves it out
            most_severe_first(
                np.where(run.top.items[:, 0] == NO_ITEM, np.nan, values), run.top.levels[:, 0]
            ),
        ),
        (
            "worst",
            f"Worst {by}",
            "The positives come late. These may be unusual pictures of their "
            "class, or the whole class may be "
            "bad: the classes page shows which.",
            # queries whose label ends early come last: low values are no fault of the model there
            known_first(reported.manifest, worst_first(values)),
        ),
        (
            "best",
            f"Best {by}",
            "The model has learned these. Near copies of the query at the front "
            "make a benchmark easy.",
            known_first(reported.manifest, worst_first(-values)),
        ),
    ]
    # a chapter has at most one query of each class, so that it shows different mistakes
    fine = reported.manifest.labels[reported.manifest.query, -1]

    return [
        Chapter(key, heading, words, strips_of(reported, one_per_class(at, fine)))
        for key, heading, words, at in chosen
    ]


def glimpses_of(chapters: list[Chapter], depth: int) -> list[Chapter]:
    """Shorten the chapters of the worst and best queries for the overview.

    Each chapter keeps its first GLIMPSED_QUERIES queries. Of the first run, each query keeps the
    first GLIMPSE results, and the first right result if it comes later. The chapter of the most
    severe queries is left out, since most of these are among the worst. `depth` is the finest
    level: a result of this level is right.
    """
    shown = [chapter for chapter in chapters if chapter.key != "severe"]

    def shortened(strip: Strip) -> Strip:
        """Return the strip with only the first run's row, cut to the first results."""
        row = strip.rows[0]
        # `row.shown` has the listed results, then the first right one if it comes later. `right` is
        # the first result of the query's own finest class, None if the strip shows none.
        right = next((hit for hit in row.shown if hit.level == depth), None)
        late = right if right is not None and right.rank > GLIMPSE else None
        return strip._replace(rows=[row._replace(hits=row.hits[:GLIMPSE], right=late)])

    return [
        chapter._replace(strips=list(map(shortened, chapter.strips[:GLIMPSED_QUERIES])))
        for chapter in shown
    ]


def one_per_class(
    queries: Queries, classes: NDArray[np.int32], most: int = SHOWN_RESULTS
) -> Queries:
    """Keep the first query of each class, in order, and at most `most` queries. Several pictures of
    one object would show the same.

    `queries` are positions among all queries; `classes` (Q,) has the class of every query.

    >>> one_per_class(np.array([3, 1, 2, 0]), np.array([7, 8, 7, 8])).tolist()
    [3, 2]
    """
    # the places in `queries` at which a class occurs first, in ascending order
    first = np.sort(np.unique(classes[queries], return_index=True)[1])
    return queries[first][:most]


def strips_of(reported: Reported, queries: Queries) -> list[Strip]:
    """Make the strips of some queries, given by their positions among the test's queries. A strip
    has a row for each run that has results."""
    manifest = reported.manifest
    by = reported.by
    assert manifest is not None  # without the dataset `chapters_of` chooses no queries
    # runs and values count the queries from 0; these are the queries' positions among all items
    positions = np.flatnonzero(manifest.query).tolist()

    strips = []
    for query in queries.tolist():
        rows = []
        for number, run in enumerate(reported.runs):
            if run.top is not None:
                # NaN without a file of values
                value = float(run.values[by][query]) if by in run.values else math.nan
                hits = hits_of(manifest, run.top, query, positions[query])[:RESULTS]
                # the first right result, if it comes after the listed ones
                right = right_of(manifest, run.top, query, positions[query], shown=RESULTS)
                rows.append(StripRow(run.name, hits, number, value, right))
        strips.append(strip_of(manifest, query, rows))

    return strips


def items_of(chapters: list[Chapter]) -> set[int]:
    """Collect the positions of all items in the strips, which are the queries and the results that
    are shown. Their pictures are drawn."""
    strips = [strip for chapter in chapters for strip in chapter.strips]
    hits = {hit.position for strip in strips for row in strip.rows for hit in row.shown}
    return hits | {strip.position for strip in strips}
