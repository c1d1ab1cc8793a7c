"""Evaluates names as queries: every node of the tree that has a vector ranks the gallery.

For a node at depth m the tree is cut at m: an item that shares the first c labels on the node's
path is at level min(c, m). So the items below the node are its finest positives, and the metrics
are those of a tree of m levels. The nodes of one depth are a test of the report, which has the name
of their level.
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
    """The nodes of one `depth` as queries against the gallery of a test.

    `retrieval`: the n nodes and the gallery. `classes`: for each level the names along the paths to
    the nodes. `has_parent` (n,): whether the parent of a node has a vector, too.
    """

    name: str
    depth: int
    retrieval: Retrieval
    classes: tuple[pa.Array, ...]
    has_parent: NDArray[np.bool_]

    def job(self, conditions: Conditions, *, memory: int | None = None) -> Job:
        """Make the job that ranks the gallery for these nodes, under the tree cut at their depth.
        `memory`: the most bytes held beyond the vectors."""
        cut = replace(conditions, levels=conditions.levels[: self.depth])
        job = job_of(self.retrieval, cut, memory=memory)
        # the name tells kept blocks of different depths apart, whose conditions may be equal
        return replace(job, conditions=f"{job.conditions} {self.name}")


class AskedByName(NamedTuple):
    """The tests of nodes, the conditions that they share, and remarks on names left out."""

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
    """Report on names as queries: scores over all nodes, and the means of each depth.

    Args:
        examined: the gallery's vectors and the dataset.
        nodes: a vector for each node, whose id is the name of the node or the path to it.
        metrics: by default the usual ones. A metric of one level, such as R@1, is named without a
            level, and taken at each node's own level.
        memory: the most bytes held beyond the vectors; None: the default.
        execute: computes the blocks.
        on_test: called with the name of a test; returns a function for progress.

    Raises:
        SubmissionError: nodes that are not in the tree or cannot be ranked.
        UsageError: rankings, listed positives, released evaluators, and metrics that name a level.
    """
    asked = asked_by_name(examined, nodes, metrics)
    asked = asked._replace(remarks=[*examined.warnings, *asked.remarks])
    names = EmbeddingSubmission(nodes).source
    if names.sha256:  # empty for vectors in memory, which have no file
        # `content`: the digest of ids and vectors, the same in any file format
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
    """Measure the nodes of every depth, each depth as a test, and report means over all nodes.

    `subject`: the submission and the dataset, for the report's head. `memory`: the most bytes held
    beyond the vectors; None: the default. `execute`: computes the blocks. `on_test`: called with
    the name of a test; returns a function that is called with the number of finished blocks and
    that of all.
    """
    conditions = asked.conditions
    # {test: measurement}, a test for each depth. The metric "consistency" compares the lists of a
    # node and of its parent, so `_of_edges` sets it to NaN for nodes whose parent has no vector.
    measurements = {}
    for test in asked.tests:
        job = test.job(conditions, memory=memory)
        measured = measure(job, execute=execute, on_block=on_test(test.name) if on_test else None)
        measurements[test.name] = _of_edges(measured, test, conditions)

    levels = conditions.levels
    # for each test a table of its nodes, with the names along their paths (`classes`)
    queries = [
        named_queries(test.name, test.retrieval.ids, test.classes, levels) for test in asked.tests
    ]
    return report_of(
        measurements,
        pa.concat_tables(queries),
        subject,
        conditions,
        warnings=asked.remarks,
        is_pooled=True,  # every node has the same weight, although depths differ in their number
    )


def asked_by_name(
    examined: Examined, nodes: Embeddings, metrics: str | Sequence[str] | None = None
) -> AskedByName:
    """Find the nodes in the trees of a dataset's tests, and make a test from the nodes of each
    depth: the nodes are its queries, and the dataset's gallery is ranked.

    `metrics`: names, as a list or a text with commas; None: the usual ones. Raises SubmissionError
    and UsageError as `report_on_nodes` states.
    """
    data = examined.data
    # `lists`: positives that are given pair by pair; `also`: a second protocol, the released
    # evaluator's
    if data.lists or examined.also is not None:
        raise UsageError(
            "names are scored by labels and the papers' equations",
            expected="a label tree, and --protocol paper",
        )
    # a ranking has no vectors; the error then says that "asking by name" needs them
    embedded = examined.submission.embeddings("asking by name")

    galleries = {}
    for name, manifest in data.tests.items():
        # `parts`: the embeddings of the queries and, if it has its own file, the gallery
        own = retrieval_of(manifest, *embedded.parts)
        # the prefix of the new tests' names, needed only if the dataset has several tests
        prefix = "" if len(data.tests) == 1 else f"{name}/"
        # a test without a separate gallery ranks its queries
        galleries[prefix] = (manifest.tree, own.gallery or own.queries)
    return asked_of(galleries, nodes, conditions_by_name(examined.conditions, metrics))


def asked_of(
    galleries: Mapping[str, tuple[LabelTree, Side]],
    nodes: Embeddings,
    conditions: Conditions,
) -> AskedByName:
    """Make a test from the nodes of each depth, for each gallery.

    `galleries`: {prefix of the tests' names, "" or "TEST/": (label tree, gallery)}. `nodes`:
    vectors whose ids are names of nodes, or paths to them.
    """
    tests: list[NodeTest] = []
    remarks: list[str] = []
    for prefix, (tree, gallery) in galleries.items():
        refuse_vectors(
            nodes, gallery.vectors.shape[1], cosine=conditions.words.similarity == "cosine"
        )
        placed = placed_in(tree, nodes.ids.tolist())
        # bool (n,): which of the n nodes found have items in the gallery, and so positives
        some = _in_gallery(gallery, placed)
        remarks += _remarks(nodes, placed, some)
        tests += _tests(tree, placed.of(some), nodes, gallery=gallery, prefix=prefix)

    # in the signature: how many nodes each test has
    numbers = ",".join(f"{len(test.retrieval.ids)}@{test.name}" for test in tests)
    words = replace(conditions.words, queries=f"nodes({numbers})")
    return AskedByName(tests, replace(conditions, words=words), remarks)


def conditions_by_name(conditions: Conditions, asked: str | Sequence[str] | None) -> Conditions:
    """Adapt conditions to nodes as queries: the metrics are those of all levels and of the node's
    own level, and intervals are taken over queries, since each node is a unit.

    `asked`: the names of metrics; None: the usual ones. Raises UsageError for metrics of another
    level and for the released evaluators.
    """
    if conditions.words.protocol != "paper":
        raise UsageError(
            "names are scored by labels and the papers' equations",
            expected="a label tree, and --protocol paper",
        )
    names = USUAL if asked is None else asked
    # Metrics without a level (AP) are at the finest level. In the test of a node the tree is cut at
    # the node's depth, so this is the node's own level. A metric at the finest level of the whole
    # tree, such as AP/species, is taken as one without a level.
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
    # consistency compares the lists of a node and its parent; it has no value for partial labels
    if conditions.words.partial:
        metrics = [name for name in metrics if name.base != CONSISTENCY]
    return replace(conditions, metrics=tuple(metrics), unit=QUERY)


def refuse_vectors(
    given: Embeddings,
    dimension: int,
    *,
    cosine: bool,
    what: str = "names",
    fix: str = "take both from one model: hbench embed --names",
) -> None:
    """Raise SubmissionError if vectors that items are compared with are invalid, have length 0
    (with `cosine`), or differ from the items' vectors in their `dimension`. `what`: whose vectors
    they are; `fix`: what to do about another dimension. Both are for the error."""
    # which names or items the ids mean is checked elsewhere: here each id counts as expected, so
    # that only duplicate ids and the vectors are judged
    known = set(given.ids.tolist())
    problems = embedding_files.problems(given, wanted=given.ids, known=known, cosine=cosine)
    refuse(given.source, problems)
    if given.dim != dimension:
        raise SubmissionError(
            f"the vectors of the {what} have another dimension than those of the items",
            expected=f"{dimension}",
            found=f"{given.dim}",
            fix=fix,
        )


def _in_gallery(gallery: Side, nodes: PlacedNodes) -> NDArray[np.bool_]:
    """Return whether the gallery has an item below each of n nodes, bool (n,). Raises
    SubmissionError if it has none below any node."""
    labels, _ = Paths(gallery.labels, gallery.more).all_labels()
    present = [np.unique(column) for column in labels.T]
    # (n, L): whether the gallery has each label on the path to a node. The label at a node's depth
    # is the node itself
    here = [np.isin(column, there) for column, there in zip(nodes.labels.T, present, strict=True)]
    own: NDArray[np.bool_] = np.stack(here, axis=1)[np.arange(len(nodes.rows)), nodes.depths - 1]
    if not own.any():
        raise SubmissionError("no node has an item in the gallery", expected="names of its classes")
    return own


def _remarks(nodes: Embeddings, placed: PlacedNodes, some: NDArray[np.bool_]) -> Iterator[str]:
    """Yield remarks on the names that are left out: those that are no nodes, and those of nodes
    without gallery items. `some` (n,): which of the n placed nodes have gallery items."""
    yield from placed.remarks(len(nodes))
    if not some.all():
        empty = nodes.ids[placed.rows[~some]].tolist()
        number = f"{len(empty):,} nodes"
        yield f"{number} have no item in the gallery, and are left out: {examples(empty)}"


def _tests(
    tree: LabelTree, nodes: PlacedNodes, vectors: Embeddings, *, gallery: Side, prefix: str
) -> Iterator[NodeTest]:
    """Yield a test for each depth that has nodes, coarse to fine. The gallery's labels are cut at
    that depth. `nodes`: the nodes that are queries; `nodes.rows` are their rows in `vectors`.
    `prefix`: put before the name of the level to make the test's name."""
    # the paths of all nodes that have a vector
    given = set()
    for path, depth in zip(nodes.labels.tolist(), nodes.depths.tolist(), strict=True):
        given.add(tuple(path[:depth]))

    for depth in np.unique(nodes.depths).tolist():
        here = nodes.of(nodes.depths == depth)
        paths = here.labels[:, :depth]
        # all levels of each path are known, which has to be stated under partial labels only
        known = None if gallery.known is None else np.full(len(paths), depth, np.uint8)
        rows: Any = SelectedRows(vectors.vectors, here.rows)
        asked = Side(rows, paths, ignore=None, known=known)
        names = _names_along(tree, paths)  # for each level of the whole tree, the nodes' names
        # a node's id is the path of names to it, "Birds > Owl". Below its depth names are "", hence
        # names[:depth]
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
            # The metric "consistency" compares the list of a node with that of its parent, so the
            # parent needs a vector, too.
            has_parent=np.array([tuple(path[:-1]) in given for path in paths.tolist()]),
        )


def _names_along(tree: LabelTree, paths: Labels) -> list[list[str]]:
    """Return the names along the paths (n, m) to nodes of depth m: for every level of the tree a
    list of n names, "" below level m. So the tests of all depths have the same columns."""
    names = [[""] * len(paths) for _ in tree.levels]
    for level, column in enumerate(paths.T):
        of_level = tree.names[level]
        names[level] = [of_level[node] for node in column.tolist()]
    return names


def _cut_side(side: Side, depth: int) -> Side:
    """Cut the labels of a gallery at a depth, 1 … L; they are known at most to that depth. So are
    those of further paths of items, in `side.more`. `ignore` is dropped, since a node is in no
    ignore group."""
    known = None if side.known is None else np.minimum(side.known, np.uint8(depth))
    more = side.more
    if more is not None:
        of_more = None if more.known is None else np.minimum(more.known, np.uint8(depth))
        more = more._replace(labels=more.labels[:, :depth], known=of_more)
    return Side(side.vectors, side.labels[:, :depth], ignore=None, known=known, more=more)


def _of_edges(measured: Measurement, test: NodeTest, conditions: Conditions) -> Measurement:
    """Set consistency to NaN for nodes whose parent has no vector: it compares the lists of a node
    and its parent."""
    values = measured.values.copy()
    for row, name in enumerate(conditions.metrics):
        if name.base == CONSISTENCY:
            values[row, ~test.has_parent] = np.nan
    return replace(measured, values=values)
