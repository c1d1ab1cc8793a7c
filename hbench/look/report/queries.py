"""Chooses the queries that are worth a look, and prepares their strips: the worst, the best, the most severe, the changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.engine.top_k import NO_ITEM
from hbench.look.report.runs import Floats, Reported, ReportedRun, TopLists
from hbench.metrics.names import goodness

SHOWN = 8
RESULTS = 10


class ResultTile(NamedTuple):
    """A result: its position in the manifest, its id, its level and its similarity."""

    item: int
    name: str
    level: int
    score: float


class StripRow(NamedTuple):
    """What one run finds for a query, and the query's value."""

    run: int
    name: str
    value: float
    tiles: list[ResultTile]


class QueryStrip(NamedTuple):
    """A query: its position in the manifest, its id, its class from coarse to fine, and what each run finds."""

    item: int
    name: str
    path: tuple[str, ...]
    rows: list[StripRow]


class Chapter(NamedTuple):
    """Some queries, under a heading with a sentence that says what to make of them."""

    key: str
    heading: str
    words: str
    strips: list[QueryStrip]


def chapters_of(reported: Reported) -> list[Chapter]:
    """The worst, best and most severe queries of the first run; none where its values or results are not kept."""
    run = reported.runs[0]
    if reported.by not in run.values or run.top is None or reported.manifest is None:
        return []
    by, values = reported.by, goodness(reported.by, run.values[reported.by])
    chosen = [
        ("severe", "Most severe", "The first result shares nothing, or as little as any: mistakes that a user notices at once. "
         "Look for what the two pictures have in common (background, colour, text); wrong labels show up here, too.",
         severe(values, run.top)),
        ("worst", f"Worst {by}", "What the query looks for comes late. Are these odd pictures of their class, or is a whole class "
         "missing from the list? The classes page tells the two apart.", ranked(values)),
        ("best", f"Best {by}", "What the model has learned. Near copies of the query at the front make a benchmark easy.",
         ranked(-values)),
    ]  # fmt: skip
    fine = reported.manifest.labels[reported.manifest.query, -1]
    return [
        Chapter(key, heading, words, strips_of(reported, one_per_class(at, fine))) for key, heading, words, at in chosen
    ]


def ranked(values: Floats) -> NDArray[np.int64]:
    """The queries by the goodness of their values, worst first, those without one left out."""
    order = np.argsort(values, kind="stable")
    defined: NDArray[np.int64] = order[~np.isnan(values[order])]
    return defined


def severe(values: Floats, top: TopLists) -> NDArray[np.int64]:
    """The queries by the level of their first result, lowest first; among them by the goodness of their values."""
    order = np.lexsort((values, top.levels[:, 0]))
    listed: NDArray[np.int64] = order[(~np.isnan(values) & (top.items[:, 0] != NO_ITEM))[order]]
    return listed


def one_per_class(queries: NDArray[np.int64], classes: NDArray[np.int32], most: int = SHOWN) -> NDArray[np.int64]:
    """The first query of each class, in their order: twelve pictures of one object say no more than one.

    >>> one_per_class(np.array([3, 1, 2, 0]), np.array([7, 8, 7, 8])).tolist()
    [3, 2]
    """
    first = np.sort(np.unique(classes[queries], return_index=True)[1])
    chosen: NDArray[np.int64] = queries[first][:most]
    return chosen


def strips_of(reported: Reported, queries: NDArray[np.int64]) -> list[QueryStrip]:
    """The strips of some queries, with a row of each run that has results."""
    manifest = reported.manifest
    assert manifest is not None
    asked = np.flatnonzero(manifest.query)[queries]
    strips = []
    for query, item in zip(queries.tolist(), asked.tolist(), strict=True):
        path = tuple(names[n] for names, n in zip(manifest.tree.names, manifest.labels[item].tolist(), strict=True))
        rows = [
            _results(number, run, query, by=reported.by, items=manifest.items)
            for number, run in enumerate(reported.runs)
            if run.top is not None
        ]
        strips.append(QueryStrip(item, str(manifest.items[item]), path, rows))
    return strips


def _results(number: int, run: ReportedRun, query: int, *, by: str, items: NDArray[Any]) -> StripRow:
    assert run.top is not None
    rows = zip(run.top.items[query], run.top.levels[query], run.top.scores[query], strict=True)
    tiles = [
        ResultTile(int(item), str(items[item]), int(level), float(score))
        for item, level, score in rows
        if item != NO_ITEM
    ]
    value = run.values[by][query] if by in run.values else np.nan
    return StripRow(number, run.name, float(value), tiles[:RESULTS])


def items_of(chapters: list[Chapter]) -> set[int]:
    """The positions of all items that are shown."""
    strips = [strip for chapter in chapters for strip in chapter.strips]
    return {strip.item for strip in strips} | {
        tile.item for strip in strips for row in strip.rows for tile in row.tiles
    }
