"""Shows what names retrieve, as strips whose queries are nodes of the tree, given by their
paths."""

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
    right_of,
    worst_first,
)
from hbench.metrics.names import goodness
from hbench.records.shown import shown
from hbench.sheets.paths import JOINED
from hbench.submissions.embeddings import Embeddings


class RankedNodes(NamedTuple):
    """The nodes of one depth, which are queries.

    Attributes:
        test: the retrieval by these nodes.
        values: (n,) a metric's value of each node.
        first_level: (n,) the level of each node's first result.
        lists: the first k results of each node.
    """

    test: NodeTest
    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    lists: TopLists


def sheet_by_name(
    examined: Examined, nodes: Embeddings, choice: Choice, *, model: str, by: str, k: int
) -> StripSheet:
    """Rank the gallery for every node, and show the first k results of the chosen nodes.

    Args:
        examined: the items, of a dataset with a single test.
        nodes: the vectors of nodes.
        choice: how the nodes to show are chosen.
        model: what the strips call the model: the name of the file of the items' vectors.
        by: the metric by which nodes are chosen.
        k: the number of first results.
    """
    ((_, manifest),) = examined.data.tests.items()
    # a test for each depth of the tree, whose queries are the depth's nodes; the conditions are for
    # `by` alone
    tests, conditions, _ = asked_by_name(examined, nodes, by)
    ranked = [_rank_gallery(test, manifest, conditions, k) for test in tests]

    # `_places`: for each chosen node, all ranked nodes of its depth, and its row among them
    strips = [
        _strip(manifest, of_depth, row, model=model, by=by)
        for of_depth, row in _places(ranked, _choose_nodes(ranked, choice, by))
    ]
    caption = _signature(examined, conditions, tests)
    return StripSheet(strips, manifest.tree.levels, caption, manifest.picture, by)


def _places(ranked: list[RankedNodes], chosen: Queries) -> list[tuple[RankedNodes, int]]:
    """Return for each chosen node its depth and its row in that depth. `chosen` has positions among
    the nodes of all depths."""
    places = [(depth, row) for depth in ranked for row in range(len(depth.values))]
    return [places[at] for at in chosen.tolist()]


def _signature(examined: Examined, conditions: Conditions, tests: Sequence[NodeTest]) -> str:
    """Return the signature, which must be quoted with the values of names. It names the tests, one
    for each depth, and the conditions."""
    data = examined.data
    names = [test.name for test in tests]
    return str(conditions.signature(f"{data.name}@{data.version}", names))


def _rank_gallery(
    test: NodeTest, manifest: Manifest, conditions: Conditions, k: int
) -> RankedNodes:
    """Rank the gallery for the nodes of one depth. For each node, keep the value of the metric, the
    level of the first result, the first `k` results and the first right one."""
    job = test.job(conditions)
    top = RightResults(len(test.retrieval.ids), k)  # the ids are the nodes' paths
    # one pass computes the values of the nodes, and writes the first results to `top`
    measured = measure(replace(job, top=top))
    lists = lists_of(manifest, job.ranker, top, conditions.words.similarity)
    # values[0] is of the only metric, by which nodes are chosen
    return RankedNodes(test, measured.values[0], measured.first_level, lists)


def _choose_nodes(ranked: list[RankedNodes], choice: Choice, by: str) -> Queries:
    """Choose nodes. The result has positions among the nodes of all depths, counted in the order of
    `ranked`.

    `choice` has a way and its value: names for the way "queries", one name for "class_name", and
    the number of nodes for any other way. `by` is the metric that orders the nodes. Raises
    UnknownName for a name that is no node with a vector.
    """
    # the nodes' paths
    ids = [str(name) for depth in ranked for name in depth.test.retrieval.ids]
    way, value = choice
    if way == "queries":
        return np.array([_place_of(name, ids) for name in value])
    if way == "class_name":
        # the positions of all nodes whose path has this name
        below = [place for place, name in enumerate(ids) if value in name.split(JOINED)]
        if not below:
            raise UnknownName("node with a vector", value, ids)
        # the node itself and the nodes below it, but no more than a page shows
        return np.array(below[:SHOWN_RESULTS])
    if way == "at_random":
        number = min(value, len(ids))
        # a fixed seed chooses the same nodes each time
        drawn: Queries = np.random.default_rng(0).choice(len(ids), size=number, replace=False)
        return drawn

    # (n,): higher is better
    values = goodness(by, np.concatenate([depth.values for depth in ranked]))
    if way == "severe":
        # (n,): the level of each node's first result
        first_level = np.concatenate([depth.first_level for depth in ranked])
        return most_severe_first(values, first_level)[:value]
    return worst_first(-values if way == "best" else values)[:value]


def _place_of(name: str, ids: list[str]) -> int:
    """Return the position of a node in `ids`, by its path, or by its own name if no other node has
    this name. Raises UnknownName for any other name."""
    if name in ids:
        return ids.index(name)
    places = [place for place, path in enumerate(ids) if path.split(JOINED)[-1] == name]
    if len(places) != 1:
        close = [ids[place] for place in places]
        raise UnknownName("node with a vector", name, close or ids)
    return places[0]


def _strip(manifest: Manifest, depth: RankedNodes, row: int, *, model: str, by: str) -> Strip:
    """Make the strip of a node, with its path, level and value.

    Args:
        manifest: the items of the test.
        depth: all ranked nodes of the depth at which this node is, with their results.
        row: the node's position among the nodes of `depth`.
        model: the name of the items' file.
        by: the metric of the value.
    """
    path = str(depth.test.retrieval.ids[row])
    value = float(depth.values[row])
    k = depth.lists.items.shape[1]  # all kept results are shown
    # the first right result, an item of this node, if it comes after the results that are shown
    right = right_of(manifest, depth.lists, row, shown=k, depth=depth.test.depth)
    hits = hits_of(manifest, depth.lists, row)
    about = f"{depth.test.name} · {by} {shown(by, value, 1)}"
    rows = [StripRow(model, hits, value=value, right=right)]
    # a position below 0 marks a query that is not an item of the manifest
    return Strip(query=path, position=-1 - row, about=about, rows=rows, name=path.split(JOINED)[-1])
