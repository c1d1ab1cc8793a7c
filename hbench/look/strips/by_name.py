"""Shows what names retrieve: strips whose queries are nodes of the tree, each with its path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import Conditions
from hbench.evaluation.by_name.queries import NodeTest, asked_by_name
from hbench.evaluation.examination import Examined
from hbench.evaluation.measurement import measure
from hbench.look.strips import Strip, StripRow, StripSheet
from hbench.look.strips.retrievals import (
    SHOWN_RESULTS,
    Choice,
    Queries,
    RightResults,
    TopLists,
    hits_of,
    lists_of,
    most_severe_first,
    right_result_beyond,
    worst_first,
)
from hbench.metrics.names import goodness
from hbench.records.shown import shown
from hbench.sheets.paths import JOINED
from hbench.submissions.embeddings import Embeddings


class RankedNodes(NamedTuple):
    """The n nodes of one depth of the tree, whose names are the queries.

    `values` (n,): of a metric; `first_level` (n,): the level that the first result shares with the
    node; `lists`: the first k results of every node."""

    test: NodeTest
    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    lists: TopLists


def sheet_by_name(
    examined: Examined, nodes: Embeddings, choice: Choice, *, model: str, by: str, k: int
) -> StripSheet:
    """Rank the gallery of the only test of a dataset for every node of the tree, and show the first
    k results of the chosen nodes.

    `nodes`: the vectors of the nodes' names; `choice`: which nodes are shown; `model`: the name of
    the file of items, as the strips show it; `by`: the metric that orders the nodes.
    """
    ((_, manifest),) = examined.data.tests.items()
    tests, conditions, _ = asked_by_name(examined, nodes, by)
    ranked = [_rank_gallery(test, manifest, conditions, k) for test in tests]

    strips = [
        _strip(manifest, depth, row, model=model, by=by)
        for depth, row in _places(ranked, _choose_nodes(ranked, choice, by))
    ]
    caption = _signature(examined, conditions, tests)
    return StripSheet(strips, manifest.tree.levels, caption, manifest.picture, by)


def _places(ranked: list[RankedNodes], chosen: Queries) -> list[tuple[RankedNodes, int]]:
    """Find the depth, and the row in it, of each chosen node; nodes are chosen by their place in a
    list of all nodes, in which those of the first depth come first."""
    places = [(depth, row) for depth in ranked for row in range(len(depth.values))]
    return [places[at] for at in chosen.tolist()]


def _signature(examined: Examined, conditions: Conditions, tests: Sequence[NodeTest]) -> str:
    """Write the signature of the values of names: all that decides them, and without which they
    cannot be quoted."""
    data = examined.data
    names = [test.name for test in tests]
    return str(conditions.signature(f"{data.name}@{data.version}", names))


def _rank_gallery(
    test: NodeTest, manifest: Manifest, conditions: Conditions, k: int
) -> RankedNodes:
    """Rank the gallery for the nodes of one depth, and keep their values and first k results."""
    job = test.job(conditions)
    top = RightResults(len(test.retrieval.ids), k)
    measured = measure(replace(job, top=top))
    lists = lists_of(manifest, job.ranker, top, conditions.words.similarity)
    return RankedNodes(test, measured.values[0], measured.first_level, lists)


def _choose_nodes(ranked: list[RankedNodes], choice: Choice, by: str) -> Queries:
    """Choose nodes in the way that was asked for; returns their places in a list of all nodes, in
    which those of the first depth come first.

    `by`: the metric of the values. Raises UnknownName for a name that is no node with a vector.
    """
    # a node's id is its path, "animal/dog"
    ids = [str(name) for depth in ranked for name in depth.test.retrieval.ids]
    way, value = choice
    if way == "queries":
        return np.array([_place_of(name, ids) for name in value])
    if way == "class_name":
        below = [place for place, name in enumerate(ids) if value in name.split(JOINED)]
        if not below:
            raise UnknownName("node with a vector", value, ids)
        return np.array(below[:SHOWN_RESULTS])
    if way == "at_random":
        number = min(value, len(ids))
        drawn: Queries = np.random.default_rng(0).choice(len(ids), size=number, replace=False)
        return drawn

    values = goodness(by, np.concatenate([depth.values for depth in ranked]))
    if way == "severe":
        first_level = np.concatenate([depth.first_level for depth in ranked])
        return most_severe_first(values, first_level)[:value]
    return worst_first(-values if way == "best" else values)[:value]


def _place_of(name: str, ids: list[str]) -> int:
    """Find the place of a node among `ids`, which are paths, by its path or, if one node alone is
    named so, by its own name; raises UnknownName, with those that may be meant."""
    if name in ids:
        return ids.index(name)
    places = [place for place, path in enumerate(ids) if path.split(JOINED)[-1] == name]
    if len(places) != 1:
        close = [ids[place] for place in places]
        raise UnknownName("node with a vector", name, close or ids)
    return places[0]


def _strip(manifest: Manifest, depth: RankedNodes, row: int, *, model: str, by: str) -> Strip:
    """Make the strip of the node in a row of a depth: its path, level and value, and its results.

    `model`: the name of the file; `by`: the metric of the value.
    """
    path = str(depth.test.retrieval.ids[row])
    value = float(depth.values[row])
    k = depth.lists.items.shape[1]
    right = right_result_beyond(manifest, depth.lists, row, shown=k, depth=depth.test.depth)
    hits = hits_of(manifest, depth.lists, row)
    about = f"{depth.test.name} · {by} {shown(by, value, 1)}"
    rows = [StripRow(model, hits, value=value, right=right)]
    no_item = -1 - row  # a negative position: a node is no item, and has no picture
    return Strip(path, no_item, about, rows, path.split(JOINED)[-1])
