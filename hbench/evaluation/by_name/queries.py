"""Evaluates names as queries: every node of the tree that has a vector ranks the gallery.

A node at depth m sees the tree cut at m: an item that shares its first c labels with the node is at
level min(c, m). So its positives are its subtree, and the metrics are those of a tree of m levels.
The nodes of one depth are a test of the report, named as their level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.core.tables import text_array
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job
from hbench.engine.settings import QUERY, Conditions
from hbench.engine.sides import Side
from hbench.engine.similarity import SelectedRows
from hbench.evaluation.by_name.nodes import PlacedNodes, placed_in
from hbench.evaluation.examination import Examined
from hbench.evaluation.measurement import Measurement, OnTest, Retrieval, job_of, measure
from hbench.evaluation.submission.embedding import EmbeddingSubmission, retrieval_of
from hbench.evaluation.summary import Subject, report_of
from hbench.metrics.names import parse_metrics
from hbench.records.queries import named_queries
from hbench.records.report import Report
from hbench.sheets.paths import JOINED
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.problems import refuse
from hbench.tree import Labels, LabelTree
from hbench.tree.several import Paths

CONSISTENCY = "consistency"
USUAL = ("H-AP", "wAP", "ASI", "NDCG", "AP", "mAP@R", "P@1", "P@10", "R@10", CONSISTENCY)


@dataclass(frozen=True)
class NodeTest:
    """The nodes of one depth against the gallery of a test. `has_parent` (n,): whether the node
    above has a vector, too.
    """

    name: str
    depth: int
    retrieval: Retrieval
    classes: tuple[pa.Array, ...]
    has_parent: NDArray[np.bool_]

    def job(self, conditions: Conditions, *, memory: int | None = None) -> Job:
        """The ranking of the gallery for these nodes, in the tree that is cut at their depth: below
        it a node says nothing. `memory`: the most bytes to hold."""
        cut = replace(conditions, levels=conditions.levels[: self.depth])
        job = job_of(self.retrieval, cut, memory=memory)
        # kept blocks of another depth, whose conditions may read alike, are not these
        return replace(job, conditions=f"{job.conditions} {self.name}")


class AskedByName(NamedTuple):
    """The tests of nodes, the conditions of all of them, and remarks on what is left out."""

    tests: list[NodeTest]
    conditions: Conditions
    remarks: list[str]


def report_on_nodes(
    examined: Examined,
    nodes: Embeddings,
    *,
    metrics: str | Sequence[str] | None = None,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> Report:
    """The report on names as queries: scores over all of them, and the means of each depth.

    `nodes`: a vector for each node, whose id is its name or path. `metrics`: by default the usual
    hierarchical ones, and those of one level, taken at the node's own; one that names its level is
    refused. `memory`: bytes that ranking may hold, None for the usual; `on_test`: takes the name of
    a test, and returns what is told of its progress.

    Raises SubmissionError for nodes that cannot be placed or ranked, UsageError for what names
    cannot be scored by: rankings, listed positives, the released evaluators, metrics of one level.
    """
    asked = asked_by_name(examined, nodes, metrics)
    asked = asked._replace(remarks=[*examined.warnings, *asked.remarks])
    names = EmbeddingSubmission(nodes).source
    if names.sha256:  # of vectors in memory there is no file, and no digest
        names = names.model_copy(update={"content": nodes.content})
    subject = replace(examined.subject, names=names)
    return report_of_names(asked, subject, memory=memory, execute=execute, on_test=on_test)


def report_of_names(
    asked: AskedByName,
    subject: Subject,
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> Report:
    """Measure the nodes of every depth, each depth as a test, and report; scores are means over all
    nodes. `memory` and `on_test` as for `report_on_nodes`.
    """
    conditions = asked.conditions
    # by test, that is by depth of the nodes
    measurements = {}
    for test in asked.tests:
        job = test.job(conditions, memory=memory)
        measured = measure(job, execute=execute, on_block=on_test(test.name) if on_test else None)
        measurements[test.name] = _of_edges(measured, test, conditions)

    levels = conditions.levels
    queries = [
        named_queries(test.name, test.retrieval.ids, test.classes, levels) for test in asked.tests
    ]
    return report_of(
        measurements,
        pa.concat_tables(queries),
        subject,
        conditions,
        warnings=asked.remarks,
        is_pooled=True,  # depths have few or many nodes: each node counts once
    )


def asked_by_name(
    examined: Examined, nodes: Embeddings, metrics: str | Sequence[str] | None = None
) -> AskedByName:
    """Place the nodes in the trees of a dataset's tests, and make a test of the nodes of each
    depth: they are its queries, and the pictures of the dataset's gallery are ranked.

    `metrics`: names, in a list or a text with commas, None for the usual ones. Raises as
    `report_on_nodes`.
    """
    data = examined.data
    if data.lists or examined.also is not None:
        raise UsageError(
            "names are scored by labels and the papers' equations",
            expected="a label tree, and --protocol paper",
        )
    embedded = examined.submission.embeddings("asking by name")

    galleries = {}
    for name, manifest in data.tests.items():
        own = retrieval_of(manifest, *embedded.parts)
        # in front of the names of the new tests, where there is more than one old one
        prefix = "" if len(data.tests) == 1 else f"{name}/"
        # without a gallery of its own, a test ranks its queries
        galleries[prefix] = (manifest.tree, own.gallery or own.queries)
    return asked_of(galleries, nodes, conditions_by_name(examined.conditions, metrics))


def asked_of(
    galleries: Mapping[str, tuple[LabelTree, Side]],
    nodes: Embeddings,
    conditions: Conditions,
) -> AskedByName:
    """Make the tests of nodes of each depth against galleries.

    `galleries`: each with its label tree, by what goes before the names of its tests, "" or
    "TEST/"; `nodes`: vectors whose ids are names of nodes, or paths to them.
    """
    tests: list[NodeTest] = []
    remarks: list[str] = []
    for prefix, (tree, gallery) in galleries.items():
        refuse_vectors(
            nodes, gallery.vectors.shape[1], cosine=conditions.words.similarity == "cosine"
        )
        placed = placed_in(tree, nodes.ids.tolist())
        some = _in_gallery(gallery, placed)  # a node without an item below it has no positive
        remarks += _remarks(nodes, placed, some)
        tests += _tests(tree, placed.of(some), nodes, gallery=gallery, prefix=prefix)

    numbers = ",".join(f"{len(test.retrieval.ids)}@{test.name}" for test in tests)
    words = replace(conditions.words, queries=f"nodes({numbers})")
    return AskedByName(tests, replace(conditions, words=words), remarks)


def conditions_by_name(conditions: Conditions, asked: str | Sequence[str] | None) -> Conditions:
    """The conditions of queries by name: metrics of all levels and of the node's own level, by
    default the usual ones. Raises UsageError for metrics of another level, and for the released
    evaluators. `asked`: names of metrics. Every node stands for itself, so intervals go by queries.
    """
    if conditions.words.protocol != "paper":
        raise UsageError(
            "names are scored by labels and the papers' equations",
            expected="a label tree, and --protocol paper",
        )
    names = USUAL if asked is None else asked
    # in the tree that is cut at a node's depth, the finest level is the node's own: AP/species of
    # the whole tree means the same as AP
    finest = conditions.levels[-1]
    metrics = [
        replace(name, level=None if name.level == finest else name.level)
        for name in parse_metrics(names, conditions.levels)
    ]
    of_a_level = [str(name) for name in metrics if name.level is not None]
    if of_a_level:
        raise UsageError(
            "each name is scored at its own level",
            expected="metrics without a level, such as AP or R@10",
            found=", ".join(of_a_level),
        )
    # the consistency compares the lists of a node and of its parent; partial labels have none
    if conditions.words.partial:
        metrics = [name for name in metrics if name.base != CONSISTENCY]
    return replace(conditions, metrics=tuple(metrics), unit=QUERY)


def refuse_vectors(nodes: Embeddings, dimension: int, *, cosine: bool) -> None:
    """Raise SubmissionError for vectors of names that cannot be ranked by: broken ones, of length 0
    if `cosine`, or of another dimension than the items' vectors."""
    known = set(nodes.ids.tolist())
    problems = embedding_files.problems(nodes, wanted=nodes.ids, known=known, cosine=cosine)
    refuse(nodes.source, problems)
    if nodes.dim != dimension:
        raise SubmissionError(
            "the vectors of the names have another dimension than those of the items",
            expected=f"{dimension}",
            found=f"{nodes.dim}",
            fix="take both from one model: hbench embed --names",
        )


def _in_gallery(gallery: Side, nodes: PlacedNodes) -> NDArray[np.bool_]:
    """Whether the gallery has an item below each of the n placed `nodes`, (n,). Raises
    SubmissionError where it has none below any."""
    labels, _ = Paths(gallery.labels, gallery.more).all_labels()
    present = [np.unique(column) for column in labels.T]
    # (n, L): whether the gallery has each label on the path to a node; the label at the node's own
    # depth is the node itself
    here = [np.isin(column, there) for column, there in zip(nodes.labels.T, present, strict=True)]
    own: NDArray[np.bool_] = np.stack(here, axis=1)[np.arange(len(nodes.rows)), nodes.depths - 1]
    if not own.any():
        raise SubmissionError("no node has an item in the gallery", expected="names of its classes")
    return own


def _remarks(nodes: Embeddings, placed: PlacedNodes, some: NDArray[np.bool_]) -> Iterator[str]:
    """Say which names are left out: those that are no nodes, and those of nodes without an item in
    the gallery. `some` (n,): which of the placed nodes have one."""
    yield from placed.remarks(len(nodes))
    if not some.all():
        empty = nodes.ids[placed.rows[~some]].tolist()
        number = f"{len(empty):,} nodes"
        yield f"{number} have no item in the gallery, and are left out: {examples(empty)}"


def _tests(
    tree: LabelTree, nodes: PlacedNodes, vectors: Embeddings, *, gallery: Side, prefix: str
) -> Iterator[NodeTest]:
    """Yield a test for each depth at which there are nodes, coarse to fine; the gallery's labels
    are cut at that depth, below which a node says nothing. `prefix`: what goes before the tests'
    names, which are those of levels."""
    # the paths of all nodes that have a vector
    given = set()
    for path, depth in zip(nodes.labels.tolist(), nodes.depths.tolist(), strict=True):
        given.add(tuple(path[:depth]))

    for depth in np.unique(nodes.depths).tolist():
        here = nodes.of(nodes.depths == depth)
        paths = here.labels[:, :depth]
        # how many levels of each path are known, which only partial labels ask for: all
        known = None if gallery.known is None else np.full(len(paths), depth, np.uint8)
        rows: Any = SelectedRows(vectors.vectors, here.rows)
        asked = Side(rows, paths, ignore=None, known=known)
        names = _names_along(tree, paths)
        # a node's id is the path of names to it, "Birds > Owl"
        # ("" below its depth, which is cut off)
        ids = [JOINED.join(path) for path in zip(*names[:depth], strict=True)]
        yield NodeTest(
            name=prefix + tree.levels[depth - 1],
            depth=depth,
            retrieval=Retrieval(
                asked,
                _cut_side(gallery, depth),
                self_rows=None,  # no node is in the gallery
                ids=np.array(ids, dtype=object),
            ),
            classes=tuple(map(text_array, names)),
            # whether the node above has a vector, too: the consistency compares their lists
            has_parent=np.array([tuple(path[:-1]) in given for path in paths.tolist()]),
        )


def _names_along(tree: LabelTree, paths: Labels) -> list[list[str]]:
    """The names along the paths (n, m) to nodes of depth m: for every level of the tree a list (n,)
    of names, "" below level m, so that tests of all depths have the same columns."""
    names = [[""] * len(paths) for _ in tree.levels]
    for level, column in enumerate(paths.T):
        of_level = tree.names[level]
        names[level] = [of_level[node] for node in column.tolist()]
    return names


def _cut_side(side: Side, depth: int) -> Side:
    """The gallery under the tree that is cut at a depth, 1 … L: the labels of all paths end there,
    and are known no further. `ignore` is dropped: no node is in a group with items."""
    known = None if side.known is None else np.minimum(side.known, np.uint8(depth))
    more = side.more
    if more is not None:
        of_more = None if more.known is None else np.minimum(more.known, np.uint8(depth))
        more = more._replace(labels=more.labels[:, :depth], known=of_more)
    return Side(side.vectors, side.labels[:, :depth], ignore=None, known=known, more=more)


def _of_edges(measured: Measurement, test: NodeTest, conditions: Conditions) -> Measurement:
    """The measurement without the consistency, NaN, of nodes whose parent has no vector: it
    compares the lists of the two ends of an edge."""
    values = measured.values.copy()
    for row, name in enumerate(conditions.metrics):
        if name.base == CONSISTENCY:
            values[row, ~test.has_parent] = np.nan
    return replace(measured, values=values)
