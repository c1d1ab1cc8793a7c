"""Scoring arrays: vectors and labels in memory become a report, in a notebook or inside somebody's
training loop.

>>> report = score(
...     [[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]], metrics=["H-AP", "R@1"]
... )
>>> report.scores["H-AP"], report.document.scores["H-AP"].queries
(1.0, 2)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import checked
from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.engine.executors.threads import on_threads
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.similarity import SelectedRows, as_vectors
from hbench.engine.similarity.rows import float_type
from hbench.evaluation.arrays.labels import (
    GivenSide,
    given_side,
    names_of_columns,
    sides_with_numbers,
)
from hbench.evaluation.by_name.nodes import path_text
from hbench.evaluation.by_name.nodes import read as read_nodes
from hbench.evaluation.by_name.queries import asked_of, conditions_by_name, report_of_names
from hbench.evaluation.measurement import Retrieval, job_of, measure, several_in_words
from hbench.evaluation.summary import Subject, report_of
from hbench.records.queries import queries_of_tree
from hbench.records.report import Report
from hbench.submissions.embeddings import Embeddings
from hbench.tree import Labels, LabelTree, as_labels
from hbench.tree.names import NameTable, class_rows, remarks_on
from hbench.tree.partial import NO_CLASS, Known, is_partial, known_levels
from hbench.tree.policies import policy_names
from hbench.tree.several import Paths

UNKNOWN = -1  # the label by which the losses mark an unknown class


@checked
def score(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    level_names: Sequence[str] | None = None,
    nodes: Mapping[str | tuple[str, ...], ArrayLike] | None = None,
    metrics: str | Sequence[str] | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    protocol: str = "paper",
    ties: str = "pessimistic",
    similarity: str = "cosine",
    policies: str | Sequence[str] = (),
    unit: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Report:
    """Score vectors by their labels, against each other or against a gallery, and return a report.

    A query is never in its own list. Scores are fractions in [0, 1], but those of hops@k are
    numbers. What they mean is on docs/metrics.md; options as the released evaluators have them, on
    docs/protocols.md.

    Args:
        vectors: (N, D), numpy arrays or torch tensors of any float type.
        labels: (N, L), or (N,) for one level: numbers or names, coarse to fine; no -1, which the
            losses take for unknown. Where items have several right paths (docs/labels.md),
            (N, P, L), or for each item a list of its paths. A DataFrame has a column per level.
        gallery: (G, D), what the queries rank instead of each other. Default: they rank themselves.
        gallery_labels: (G, L), given together with `gallery`.
        level_names: L names, coarse to fine. Default: the columns of a DataFrame, or else level1 …
            levelL.
        nodes: vectors (D,) by the name of a node, or by the names from the top to it: these are the
            queries then, and `vectors` what they rank (docs/by-name.md).
        metrics: names such as "H-AP", "AP/level1" or "R@10" (`hbench.list_metrics()`), as a list or
            a text with commas. Default: H-AP, wAP, ASI, NDCG, and AP, mAP@R and R@k of every level.
        relevance: of H-AP: "alpha" (default), "sum_wap" or "exponential".
        alpha: the exponent of the relevance "alpha". Default: 1.
        protocol: "paper" (default), the papers' equations, or "official", the released evaluators'.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        similarity: "cosine" (default), "dot", "l2", "hamming", "poincare(curvature=…)" or
            "lorentz".
        policies: mend labels that are names (docs/labels.md), such as "unknown" for paths that
            end early. Without it a missing name (None, NaN, "") is refused.
        unit: what intervals are taken over: the classes of a level, or "query". Default: the
            finest.
        threads: of the processor. Default: all.
        memory: the most bytes held beyond the vectors.

    Returns:
        A Report: `report.scores["H-AP"]`, intervals, values by query, tables, `report.write(path)`.

    Raises:
        SubmissionError: vectors that cannot be ranked, such as NaN, or labels that do not fit them.
        TreeError: labels that do not form a tree.
        UnknownName: a metric, level, similarity or policy that does not exist.
        UsageError: options that do not go together.

    Example:
        >>> report = score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]])
        >>> report.scores["H-AP"]
        1.0
    """
    _refuse_files(vectors, labels)
    if (gallery is None) != (gallery_labels is None):
        raise SubmissionError(
            "a gallery needs its labels", expected="gallery and gallery_labels together, or neither"
        )

    # the queries, then the gallery, if there is one
    given = [given_side(vectors, labels, "vectors", "labels")]
    if gallery is not None:
        given.append(given_side(gallery, gallery_labels, "gallery vectors", "gallery labels"))
    test, tree = _retrieval_of_arrays(
        given,
        level_names=level_names or names_of_columns([labels, gallery_labels]),
        policies=policy_names(policies),
        needs_direction=similarity == "cosine",  # a vector of length 0 has none
    )
    settings = Settings(metrics, protocol, ties, similarity, relevance, alpha, unit)
    sides = [side for side in (test.queries, test.gallery) if side is not None]
    # the largest number of right paths of an item
    most = max(Paths(side.labels, side.more).most for side in sides)
    # `known` is set only for labels of which some paths end early
    conditions = settings.resolve(tree.levels, partial=test.queries.known is not None, several=most)
    # arrays have no dataset: give the report a name, a version, and a digest of the labels instead
    subject = Subject(dataset="arrays", version="1", digest=_digest_of(tree, sides))
    execute = partial(on_threads, threads=threads)
    # nodes as queries: a single test without a name, in which all items are ranked
    if nodes is not None:
        by_name = conditions_by_name(conditions, metrics)
        asked = asked_of({"": (tree, _all_items(test))}, _vectors_of(nodes), by_name)
        return report_of_names(asked, subject, memory=memory, execute=execute)

    measurement = measure(job_of(test, conditions, memory=memory), execute=execute)
    warnings = _remarks_on_names(tree, test) if given[0].are_names else []
    # `self_rows` is set only if some items were removed from the queries because they have no name
    # (`_without_nameless_queries`)
    if test.self_rows is not None:
        # the gallery, which is the last side, has all items; the queries are those with a name
        number = len(sides[-1].labels) - len(test.ids)
        warnings.append(
            f"{number:,} items without a label are distractors: only ranked, and right for no query"
        )
    if most > 1:
        # how many items have several paths
        items = sum(side.more.owners for side in sides if side.more is not None)
        warnings.append(several_in_words(items, most))

    queries = queries_of_tree("test", test.ids, test.queries.labels, tree)
    return report_of({"test": measurement}, queries, subject, conditions, warnings=warnings)


def _vectors_of(nodes: Mapping[str | tuple[str, ...], ArrayLike]) -> Embeddings:
    """Convert the vectors (D,) of nodes of the label tree to embeddings, whose ids are the names of
    the nodes.

    A key is the name of a node, "owl", or, if several nodes share that name, the names from the top
    down to the node, ("Birds", "owl"), which become one text. Raises UsageError if `nodes` is no
    dictionary, or if two keys name the same node.
    """
    if not isinstance(nodes, Mapping):
        raise UsageError(
            "nodes must be vectors by name",
            expected='{"owl": (D,), …}',
            found=type(nodes).__name__,
        )
    vector_by_text = {}
    for name, vector in nodes.items():
        is_path = isinstance(name, tuple)
        text = path_text(tuple(map(str, name))) if is_path else str(name)
        if text in vector_by_text:
            raise UsageError(
                f"two keys of nodes are one name, {text!r}",
                expected="each node once",
                found=examples(map(repr, nodes)),
            )
        vector_by_text[text] = vector
    # `levels` is used for files with a column per level; a dictionary has no columns
    return read_nodes(vector_by_text, levels=())


def _all_items(test: Retrieval) -> Side:
    """Return the gallery for nodes as queries: all items. Raises UsageError if a gallery was given
    as well, since the vectors are the gallery then."""
    if test.gallery is not None:
        raise UsageError(
            "nodes rank the vectors", expected="no gallery", fix="give the gallery as vectors"
        )
    return test.queries


def _digest_of(tree: LabelTree, sides: Sequence[Side]) -> str:
    """Return the sha256, as hex digits, of the tree and the labels. In a report it stands for the
    dataset: reports with different digests are not compared. `sides`: the queries and, if there is
    one, the gallery."""
    parts: list[np.ndarray] = [tree.paths, *(side.labels for side in sides)]
    # for items with several paths: the further paths, and the item of each
    parts += [
        part
        for side in sides
        if side.more is not None
        for part in (side.more.items, side.more.labels)
    ]
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    ).hexdigest()


def _remarks_on_names(tree: LabelTree, test: Retrieval) -> list[str]:
    """Make remarks on oddities in the names of the labels, such as two spellings of one class."""
    sides = [side for side in (test.queries, test.gallery) if side is not None]
    # of all right paths: an item with several paths counts in each of its classes
    labels = []  # for each side (N + E, L): the first path of each item, and the further paths
    for side in sides:
        of_paths, _ = Paths(side.labels, side.more).all_labels()
        labels.append(of_paths)
    *_, of_finest = tree.counts(np.concatenate(labels))  # items by class, for each level
    # {names on the path to a finest class: number of items}
    items = dict(zip(class_rows(tree), of_finest.tolist(), strict=True))
    return remarks_on(NameTable(tree.levels, items))


def _refuse_files(*arrays: ArrayLike) -> None:
    """Raise UsageError if the name of a file was given in place of an array."""
    files = [str(array) for array in arrays if isinstance(array, str | Path)]
    if files:
        raise UsageError(
            "hbench.score takes arrays",
            expected="vectors (N, D) and labels (N, L)",
            found=", ".join(files),
            fix="of files: hbench.evaluate(FILE, DATASET), where DATASET may be a table of labels",
        )


def _retrieval_of_arrays(
    given: Sequence[GivenSide],
    *,
    level_names: Sequence[str] | None,
    policies: Sequence[str],
    needs_direction: bool,
) -> tuple[Retrieval, LabelTree]:
    """Make a test from arrays, and the tree of its labels.

    Args:
        given: the queries and, if there is one, the gallery.
        level_names: of the L levels, coarse to fine; None: the default names.
        policies: how to mend labels that are names.
        needs_direction: whether to refuse vectors of length 0, which have no cosine.
    """
    sides = given
    names = None  # for labels that are names: the names of each level, indexed by number
    if any(side.are_names for side in given):
        sides, names = sides_with_numbers(given, level_names, policies)
    elif policies:
        raise UsageError(
            "a policy mends names, not numbers", expected="labels of names", found="numbers"
        )
    rows = [_vectors_of_side(side, needs_direction) for side in sides]
    # of each side, (N + E, L): the first paths of its N items, then E further paths of some items
    paths = [as_labels(side.labels) for side in sides]
    _refuse_different([each.shape[1] for each in rows], [each.shape[1] for each in paths])
    numbers = np.concatenate(paths)
    _refuse_unknown(numbers)
    # one tree of both sides' labels, so that equal numbers mean the same class
    tree, renumbered = LabelTree.from_labels(numbers, levels=level_names, names=names)
    # (N + E,): how many levels of each path are known, where some end early. The finest label of a
    # path tells its class
    known = known_levels(tree)[renumbered[:, -1]] if is_partial(tree) else None
    # The queries' labels come first, then the gallery's. `_part` returns the labels and the numbers
    # of known levels of one side.
    queries = sides[0].placed(rows[0], *_part(renumbered, known, slice(len(paths[0]))))
    gallery = None
    if len(sides) > 1:
        gallery = sides[1].placed(rows[1], *_part(renumbered, known, slice(len(paths[0]), None)))
    # arrays have no ids: use the position of a row as its id
    ids = np.array([str(position) for position in range(len(rows[0]))], dtype=object)
    # `self_rows` is None: without a gallery, query q is itself row q of the gallery; with one, the
    # gallery does not contain the queries. Queries without a name at any level are removed or
    # refused.
    return _without_nameless_queries(
        Retrieval(queries, gallery, self_rows=None, ids=ids), tree
    ), tree


def _without_nameless_queries(test: Retrieval, tree: LabelTree) -> Retrieval:
    """Remove the queries whose item has no name at any level. Such an item stays in the gallery as
    a distractor. Raises SubmissionError if there are such queries and a separate gallery.
    """
    is_query = _is_named(tree, test.queries.labels)  # (N,)
    if is_query.all():
        return test
    if test.gallery is not None:
        raise SubmissionError(
            f"{int((~is_query).sum()):,} of the labels have no name at any level",
            expected="a name of each query; items of the gallery without one are distractors",
        )
    return test.of_queries(np.flatnonzero(is_query))


def _is_named(tree: LabelTree, labels: Labels) -> NDArray[np.bool_]:
    """Return, for labels (N, L), whether each item has a class, bool (N,). A distractor has the
    name NO_CLASS at every level, so looking at the finest level is enough."""
    finest = np.array([name != NO_CLASS for name in tree.names[-1]])
    return np.asarray(finest[labels[:, -1]])


def _part(labels: Labels, known: Known | None, at: slice) -> tuple[Labels, Known | None]:
    """Select the rows `at` of labels (N, L) and of `known` (N,), the number of known levels of each
    row; None if all are complete."""
    return labels[at], None if known is None else known[at]


def _refuse_unknown(numbers: NDArray[np.int64]) -> None:
    """Raise SubmissionError if a label in `numbers` (N, L) is −1: for the losses that means
    unknown, but here it would count as a class."""
    if unknown := int((numbers == UNKNOWN).any(axis=1).sum()):
        raise SubmissionError(
            "some labels are -1, which stands for an unknown class",
            expected="other numbers, or names",
            found=f"{unknown:,} rows with -1",
            fix='give names, "" where nothing is known, and policies=["unknown"]; or give that '
            "class another number",
        )


def _refuse_different(dimensions: Sequence[int], depths: Sequence[int]) -> None:
    """Raise SubmissionError if queries and gallery differ in the dimension of their vectors or in
    their number of levels. `dimensions`, `depths`: one number for the queries and, if there is a
    gallery, one for it.
    """
    if len(set(dimensions)) > 1:
        raise SubmissionError(
            "queries and gallery differ in dimension",
            expected=f"{dimensions[0]}",
            found=f"{dimensions[1]}",
        )
    if len(set(depths)) > 1:
        raise SubmissionError(
            "queries and gallery differ in levels", expected=f"{depths[0]}", found=f"{depths[1]}"
        )


def _vectors_of_side(side: GivenSide, needs_direction: bool) -> SelectedRows:
    """Return the vectors (N, D) of queries or gallery. Raises SubmissionError if the number of
    labels differs from N and, with `needs_direction`, for vectors of length 0, which have no
    cosine.
    """
    what = side.what
    array = as_vectors(side.vectors, what)
    rows = SelectedRows(array, np.arange(len(array)))
    # `labels` has the first path of each item, then the further paths, one for each of `owners`
    items = len(side.labels) - len(side.owners)
    if len(rows) != items:
        raise SubmissionError(
            f"{what} and labels differ in number",
            expected=f"{len(rows)} rows of labels",
            found=f"{items}",
            fix="the vectors are transposed: give vectors.T" if rows.shape[1] == items else None,
        )

    # For cosines, vectors are multiplied by the reciprocal of their length. If a vector is shorter
    # than `shortest`, the reciprocal overflows to infinity in the float type that is used.
    shortest = 1 / float(np.finfo(float_type(array)).max)
    zero = np.flatnonzero(np.sqrt(rows.scan.squares) < shortest)  # `squares`: squared lengths
    if needs_direction and len(zero):
        raise SubmissionError(
            f"{len(zero)} of the {what} have a length of 0, or next to it, and no cosine",
            found=f"rows {examples(zero)}",
            fix='use similarity="dot" or "l2", or look at the model',
        )

    return rows
