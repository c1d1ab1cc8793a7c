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

UNKNOWN = -1  # a label of the losses where nothing is known


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

    A query is never in its own list. Scores are fractions in [0, 1]. What the numbers mean is on
    docs/metrics.md; options as the released evaluators have them, on docs/protocols.md.

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
        needs_direction=similarity == "cosine",
    )
    settings = Settings(metrics, protocol, ties, similarity, relevance, alpha, unit)
    sides = [side for side in (test.queries, test.gallery) if side is not None]
    # the right paths of the item that has most
    most = max(Paths(side.labels, side.more).most for side in sides)
    conditions = settings.resolve(tree.levels, partial=test.queries.known is not None, several=most)
    # what a report calls the dataset: a name, a version, and a digest by which labels are told
    # apart, since arrays have none of the three
    subject = Subject("arrays", "1", _digest_of(tree, sides))
    execute = partial(on_threads, threads=threads)
    # names are the queries: one test without a name, of the tree, whose items are all ranked
    if nodes is not None:
        by_name = conditions_by_name(conditions, metrics)
        asked = asked_of({"": (tree, _all_items(test))}, _vectors_of(nodes), by_name)
        return report_of_names(asked, subject, memory=memory, execute=execute)

    measurement = measure(job_of(test, conditions, memory=memory), execute=execute)
    warnings = _remarks_on_names(tree, test) if given[0].are_names else []
    # rows of their own in the gallery are stated only where some items of the one array are no
    # queries (`_without_nameless_queries`)
    if test.self_rows is not None:
        number = len(sides[-1].labels) - len(test.ids)
        warnings.append(
            f"{number:,} items without a label are distractors: only ranked, and right for no query"
        )
    if most > 1:
        items = sum(side.more.owners for side in sides if side.more is not None)
        warnings.append(several_in_words(items, most))

    queries = queries_of_tree("test", test.ids, test.queries.labels, tree)
    return report_of({"test": measurement}, queries, subject, conditions, warnings=warnings)


def _vectors_of(nodes: Mapping[str | tuple[str, ...], ArrayLike]) -> Embeddings:
    """The vectors (D,) of nodes of the label tree as embeddings, whose ids are the nodes' names.

    A key is the name of a node, "owl", or, where several nodes share it, the names from the top to
    the node, ("Birds", "owl"), which become one text. Raises UsageError for what is no dictionary,
    and for a node that is there twice.
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
    # levels are for files, whose columns may be named as them; a dictionary has none
    return read_nodes(vector_by_text, levels=())


def _all_items(test: Retrieval) -> Side:
    """The items that nodes of the tree rank: all of them. Raises UsageError where a gallery was
    given, too: the nodes are the queries, so the vectors are the gallery."""
    if test.gallery is not None:
        raise UsageError(
            "nodes rank the vectors", expected="no gallery", fix="give the gallery as vectors"
        )
    return test.queries


def _digest_of(tree: LabelTree, sides: Sequence[Side]) -> str:
    """sha256, as hex digits, of the tree and of the labels of the `sides`, the queries and, if
    there is one, the gallery: it stands for the dataset in a report, and reports on other labels
    are not compared with it."""
    parts: list[np.ndarray] = [tree.paths, *(side.labels for side in sides)]
    # the further paths of items that have several, and the item of each
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
    """Say what is odd about the names of the labels, such as two spellings of one class; by how
    many items, of queries and gallery, each finest class has."""
    sides = [side for side in (test.queries, test.gallery) if side is not None]
    # of all right paths: an item with several counts in each of its classes
    labels = []
    for side in sides:
        of_paths, _ = Paths(side.labels, side.more).all_labels()
        labels.append(of_paths)
    *_, of_finest = tree.counts(np.concatenate(labels))  # items by class, for each level
    items = dict(zip(class_rows(tree), of_finest.tolist(), strict=True))
    return remarks_on(NameTable(tree.levels, items))


def _refuse_files(*arrays: ArrayLike) -> None:
    """Raise UsageError for the name of a file in place of an array."""
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
    """The test of queries and, if there is one, a gallery, with the tree of their labels.

    `given`: the queries, then the gallery; `level_names`: of the L levels, coarse to fine, None for
    the usual ones; `needs_direction`: whether vectors of length 0 are refused, which have no
    cosine. Labels that are names are mended by the `policies`, and numbered.
    """
    sides = given
    names = None  # of each level by number, where the labels are names
    if any(side.are_names for side in given):
        sides, names = sides_with_numbers(given, level_names, policies)
    elif policies:
        raise UsageError(
            "a policy mends names, not numbers", expected="labels of names", found="numbers"
        )
    rows = [_vectors_of_side(side, needs_direction) for side in sides]
    # (N + E, L) each: the first paths of all items, then the further ones of some
    paths = [as_labels(side.labels) for side in sides]
    _refuse_different([each.shape[1] for each in rows], [each.shape[1] for each in paths])
    numbers = np.concatenate(paths)
    _refuse_unknown(numbers)
    # one tree of both sides' labels, so that equal numbers mean the same class
    tree, renumbered = LabelTree.from_labels(numbers, levels=level_names, names=names)
    # paths that end early are known to fewer levels than the tree has
    known = known_levels(tree)[renumbered[:, -1]] if is_partial(tree) else None
    # the queries' labels come first, then the gallery's
    queries = sides[0].placed(rows[0], *_part(renumbered, known, slice(len(paths[0]))))
    gallery = None
    if len(sides) > 1:
        gallery = sides[1].placed(rows[1], *_part(renumbered, known, slice(len(paths[0]), None)))
    # arrays have no ids: the position of a row stands for one
    ids = np.array([str(position) for position in range(len(rows[0]))], dtype=object)
    # no `self_rows`: where there is no gallery, query q is row q, and no query is in a gallery
    return _without_nameless_queries(
        Retrieval(queries, gallery, self_rows=None, ids=ids), tree
    ), tree


def _without_nameless_queries(test: Retrieval, tree: LabelTree) -> Retrieval:
    """The test without queries whose item has no name at any level: it stays in the gallery alone,
    as a distractor. Raises SubmissionError for such queries against a gallery of its own.
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
    """Which items (N,), by their labels (N, L), are of a class, and no distractors: those have the
    name NO_CLASS at every level, so the finest one tells."""
    finest = np.array([name != NO_CLASS for name in tree.names[-1]])
    return np.asarray(finest[labels[:, -1]])


def _part(labels: Labels, known: Known | None, at: slice) -> tuple[Labels, Known | None]:
    """The rows `at` of labels (N, L), those of queries or gallery, and how many levels of each are
    known (N,); None where all are known to the finest."""
    return labels[at], None if known is None else known[at]


def _refuse_unknown(numbers: NDArray[np.int64]) -> None:
    """Raise SubmissionError where a label in `numbers` (N, L) is −1: the losses take it for
    unknown, and here it would be a class like any other."""
    if unknown := int((numbers == UNKNOWN).any(axis=1).sum()):
        raise SubmissionError(
            "some labels are -1, which stands for an unknown class",
            expected="other numbers, or names",
            found=f"{unknown:,} rows with -1",
            fix='give names, "" where nothing is known, and policies=["unknown"]; or give that '
            "class another number",
        )


def _refuse_different(dimensions: Sequence[int], depths: Sequence[int]) -> None:
    """Raise SubmissionError where queries and gallery differ in the dimension of their vectors, or
    in their number of levels; `dimensions` and `depths` have one of each side, or of the single
    one.
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
    """The vectors (N, D) of the queries or of the gallery. Raises SubmissionError for another
    number of labels, and, if `needs_direction`, for vectors of length 0, which have no cosine.
    """
    what = side.what
    array = as_vectors(side.vectors, what)
    rows = SelectedRows(array, np.arange(len(array)))
    # behind the first paths of all items stand the further paths of some, the `owners`
    items = len(side.labels) - len(side.owners)
    if len(rows) != items:
        raise SubmissionError(
            f"{what} and labels differ in number",
            expected=f"{len(rows)} rows of labels",
            found=f"{items}",
            fix="the vectors are transposed: give vectors.T" if rows.shape[1] == items else None,
        )

    # cosine multiplies by the reciprocal of a length, which is infinite for lengths below this one
    # in the type of the products
    shortest = 1 / float(np.finfo(float_type(array)).max)
    zero = np.flatnonzero(np.sqrt(rows.scan.squares) < shortest)
    if needs_direction and len(zero):
        raise SubmissionError(
            f"{len(zero)} of the {what} have a length of 0, or next to it, and no cosine",
            found=f"rows {examples(zero)}",
            fix='use similarity="dot" or "l2", or look at the model',
        )

    return rows
