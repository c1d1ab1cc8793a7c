"""Scoring arrays: vectors and labels in memory become a report, in a notebook or inside somebody's training loop.

>>> report = score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]], metrics=["H-AP", "R@1"])
>>> report.scores["H-AP"], report.document.scores["H-AP"].queries
(1.0, 2)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array, checked
from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.engine.executors.threads import on_threads
from hbench.engine.ranker import Side
from hbench.engine.settings import Settings
from hbench.engine.similarity import SelectedRows, as_vectors
from hbench.engine.similarity.rows import float_type
from hbench.evaluation.measurement import Retrieval, job_of, measure
from hbench.evaluation.summary import Subject, report_of
from hbench.records.queries import queries_of_tree
from hbench.records.report import Report
from hbench.tree import LabelTree, as_labels, default_levels
from hbench.tree.names import NameTable, Row, class_rows, remarks_on, stripped
from hbench.tree.partial import is_partial, known_levels
from hbench.tree.policies import listed, mend_to_tree

UNKNOWN = -1  # a label of the losses where nothing is known


@checked
def score(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    level_names: Sequence[str] | None = None,
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

    `vectors` (N, D): numpy arrays or torch tensors of any float type. `labels` (N, L), or (N,) for one level: numbers or names,
    coarse to fine; no -1, which the losses take for unknown. A query is never in its own list; with a `gallery` (G, D) and
    `gallery_labels` (G, L) the queries rank that instead. `level_names`: by default level1 (coarse) … levelL (fine).

    `metrics`: names such as "H-AP", "AP/level1" or "R@10" (`hbench.list_metrics()`), as a list or a text with commas; by default
    H-AP, wAP, ASI, NDCG, and AP, mAP@R and R@k of every level. `similarity`: "cosine", "dot", "l2", "hamming",
    "poincare(curvature=…)" or "lorentz". `relevance`, of H-AP: "alpha", whose exponent is `alpha`, "sum_wap" or "exponential".
    `protocol`: "paper", the papers' equations, or "official", the released evaluators'. `ties`, what comes first among equal
    scores: "pessimistic", the lower level, or "optimistic". `unit`: what intervals are taken over, the classes of a level (by
    default the finest) or "query". `policies` (docs/own-data.md) mend labels that are names, such as "unknown" for names that end
    early; without it a missing name (None, NaN, "") is refused. `threads`: by default all processors; `memory`: the most bytes held
    beyond the vectors.

    Scores are fractions in [0, 1]. Raises SubmissionError for vectors that cannot be ranked, TreeError for labels that do not form
    a tree, UnknownName for names, UsageError for options that do not go together.
    """
    _refuse_files(vectors, labels)
    labels = as_paths(labels, "labels")
    gallery_labels = None if gallery_labels is None else as_paths(gallery_labels, "gallery labels")
    policies = listed(policies)
    if (gallery is None) != (gallery_labels is None):
        raise SubmissionError("a gallery needs its labels", expected="gallery and gallery_labels together, or neither")
    ranked = None if gallery is None or gallery_labels is None else (gallery, gallery_labels)
    test, tree = _retrieval_of_arrays(
        vectors, labels, ranked, level_names=level_names, policies=policies, needs_direction=similarity == "cosine"
    )
    settings = Settings(metrics, protocol, ties, similarity, relevance, alpha, unit)
    conditions = settings.resolve(tree.levels, partial=test.queries.known is not None)
    of_sides = [side.labels for side in (test.queries, test.gallery) if side is not None]  # both, in their order
    digest = hashlib.sha256(
        b"".join(np.ascontiguousarray(array).tobytes() for array in (tree.paths, *of_sides))
    ).hexdigest()
    measurement = measure(job_of(test, conditions, memory=memory), execute=partial(on_threads, threads=threads))
    warnings = _remarks_on_names(tree, test) if _are_names(labels) else ()
    queries = queries_of_tree("test", test.ids, test.queries.labels, tree)
    return report_of({"test": measurement}, queries, Subject("arrays", "1", digest), conditions, warnings=warnings)


def _remarks_on_names(tree: LabelTree, test: Retrieval) -> list[str]:
    labels = np.concatenate([side.labels for side in (test.queries, test.gallery) if side is not None])
    items = tree.counts(labels)[-1].tolist()
    return remarks_on(NameTable(tree.levels, dict(zip(class_rows(tree), items, strict=True))))


def _refuse_files(*arrays: ArrayLike) -> None:
    """Raise UsageError for the name of a file in place of an array."""
    files = [str(array) for array in arrays if isinstance(array, str | Path)]
    if files:
        raise UsageError(
            "hbench.score takes arrays", expected="vectors (N, D) and labels (N, L)", found=", ".join(files),
            fix="of files: hbench.evaluate(FILE, DATASET), where DATASET may be a table of labels",
        )  # fmt: skip


def _retrieval_of_arrays(
    vectors: ArrayLike,
    labels: ArrayLike,
    gallery: tuple[ArrayLike, ArrayLike] | None,
    *,
    level_names: Sequence[str] | None,
    policies: Sequence[str],
    needs_direction: bool,
) -> tuple[Retrieval, LabelTree]:
    names = None
    if _are_names(labels) or (gallery is not None and _are_names(gallery[1])):
        labels, gallery, names = _numbered(labels, gallery, level_names, policies)
    elif policies:
        raise UsageError("a policy mends names, not numbers", expected="labels of names", found="numbers")
    sides = [_side(vectors, labels, "vectors", needs_direction)]
    if gallery is not None:
        sides.append(_side(*gallery, "gallery vectors", needs_direction))
        dimensions = [rows.shape[1] for rows, _ in sides]
        if len(set(dimensions)) > 1:
            raise SubmissionError(
                "queries and gallery differ in dimension", expected=f"{dimensions[0]}", found=f"{dimensions[1]}"
            )
    depths = [paths.shape[1] for _, paths in sides]
    if len(set(depths)) > 1:
        raise SubmissionError("queries and gallery differ in levels", expected=f"{depths[0]}", found=f"{depths[1]}")
    numbers = np.concatenate([paths for _, paths in sides])
    if rows := int((numbers == UNKNOWN).any(axis=1).sum()):
        raise SubmissionError(
            "some labels are -1, which stands for an unknown class", expected="other numbers, or names",
            found=f"{rows:,} rows with -1",
            fix='give names, "" where nothing is known, and policies=["unknown"]; or give that class another number',
        )  # fmt: skip
    tree, renumbered = LabelTree.from_labels(numbers, levels=level_names, names=names)
    asked, known = len(sides[0][1]), known_levels(tree)[renumbered[:, -1]] if is_partial(tree) else None
    both: Any = (slice(asked), sides[0][0]), (slice(asked, None), sides[-1][0])
    queries, ranked = (Side(rows, renumbered[at], None, None if known is None else known[at]) for at, rows in both)
    ids = np.array([str(position) for position in range(asked)], dtype=object)
    return Retrieval(queries, None if gallery is None else ranked, None, ids), tree


def as_paths(labels: Any, what: str) -> Any:
    """Labels as an array: a Series or list of paths (lists, tuples) as (N, L), the masked ones as missing names, bytes as texts.

    Raises SubmissionError for paths of different lengths.
    """
    if hasattr(labels, "detach"):
        return labels.detach().cpu()
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
        named = np.array(labels.data, dtype=object)
        named[np.ma.getmaskarray(labels)] = None
        return named
    given = labels.to_numpy() if hasattr(labels, "to_numpy") else labels
    is_flat = isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1
    if is_flat and len(given) and all(isinstance(path, list | tuple | np.ndarray) for path in given):
        given = given.tolist()
    if isinstance(given, list) and given and all(isinstance(path, list | tuple | np.ndarray) for path in given):
        lengths = sorted({len(path) for path in given})
        if len(lengths) > 1:
            raise SubmissionError(
                f"the {what} are paths of different lengths", expected="a class at every level, coarse to fine",
                found=f"{lengths[0]} to {lengths[-1]} levels",
                fix='fill the shorter ones with "", and give policies=["unknown"] where nothing is known below',
            )  # fmt: skip
    array = as_array(given, what)
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else given


def _refuse_other_kinds(sides: Sequence[NDArray[Any]]) -> None:
    """Raise SubmissionError where queries and gallery share no finest class because their labels are of different kinds."""
    kinds = [sorted({type(name).__name__ for name in side[:, -1].tolist()}) for side in sides]
    names = [{str(name) for name in side[:, -1].tolist()} for side in sides]
    if len(sides) > 1 and kinds[0] != kinds[1] and names[0].isdisjoint(names[1]):
        raise SubmissionError(
            "the labels of queries and gallery are of different kinds, so that none is the same",
            expected="one kind of names on both sides", found=f"{', '.join(kinds[0])} and {', '.join(kinds[1])}",
        )  # fmt: skip


def _are_names(labels: ArrayLike) -> bool:
    return np.asarray(labels).dtype.kind in "OU"


def _numbered(
    labels: ArrayLike,
    gallery: tuple[ArrayLike, ArrayLike] | None,
    level_names: Sequence[str] | None,
    policies: Sequence[str],
) -> tuple[ArrayLike, tuple[ArrayLike, ArrayLike] | None, tuple[tuple[str, ...], ...]]:
    """Labels that are names, (N, L) or (N,), as numbers that the queries and the gallery share, and the names by number.

    Raises SubmissionError for other shapes, and for a missing name (None, NaN, NA, "") that no policy mends.
    """
    sides = [np.asarray(names, dtype=object) for names in (labels, *(gallery or ())[1:])]
    columns = [names[:, None] if names.ndim == 1 else names for names in sides]
    if any(names.ndim != 2 or names.shape[1] != columns[0].shape[1] for names in columns):
        raise SubmissionError(
            "the labels are not names (N, L), or queries and gallery differ in levels",
            found=", ".join(str(names.shape) for names in sides),
        )  # fmt: skip
    _refuse_other_kinds(columns)
    rows = [tuple(map(_text_of, row)) for row in np.concatenate(columns).tolist()]
    levels = tuple(level_names or default_levels(columns[0].shape[1]))
    if policies:
        rows, levels = _mended(rows, levels, policies)
    if incomplete := sum("" in row for row in rows):
        raise SubmissionError(
            f"{incomplete:,} of the labels have no name at some level", expected="a name at every level",
            fix='fill them in; or, where only finer names are missing, policies=["unknown"] scores what is known',
        )  # fmt: skip
    tree, numbers = LabelTree.from_names(rows, levels=levels)
    asked = len(columns[0])
    return numbers[:asked], None if gallery is None else (gallery[0], numbers[asked:]), tree.names


def _text_of(name: Any) -> str:
    """The text of a name; "" for what Python, numpy and pandas write for a missing one."""
    is_missing = (
        name is None
        or type(name).__name__ in ("NAType", "NaTType")
        or (isinstance(name, float | np.floating) and np.isnan(name))
        or (isinstance(name, np.datetime64 | np.timedelta64) and np.isnat(name))
    )
    return "" if is_missing else str(name)


def _mended(rows: list[Row], levels: Row, policies: Sequence[str]) -> tuple[list[Row], Row]:
    mended = mend_to_tree(NameTable.of(levels, rows), policies, "the labels")
    kept = [after for row in rows if (after := mended.final[stripped(row)]) is not None]
    if len(kept) < len(rows) or mended.table.levels != levels:
        raise UsageError("a policy may not leave out rows or levels here", expected="a policy that leaves out no row and no level",
                         found=", ".join(policies), fix="leave the rows out of both arrays")  # fmt: skip
    return kept, levels


def _side(
    vectors: ArrayLike, labels: ArrayLike, what: str, needs_direction: bool
) -> tuple[SelectedRows, NDArray[np.int64]]:
    array, paths = as_vectors(vectors, what), as_labels(labels)
    rows = SelectedRows(array, np.arange(len(array)))
    if len(rows) != len(paths):
        raise SubmissionError(
            f"{what} and labels differ in number", expected=f"{len(rows)} rows of labels", found=f"{len(paths)}",
            fix="the vectors are transposed: give vectors.T" if rows.shape[1] == len(paths) else None,
        )  # fmt: skip
    shortest = 1 / float(np.finfo(float_type(array)).max)  # a length below it has no reciprocal
    zero = np.flatnonzero(np.sqrt(rows.scan.squares) < shortest)
    if needs_direction and len(zero):
        raise SubmissionError(
            f"{len(zero)} of the {what} have a length of 0, or next to it, and no cosine",
            found=f"rows {examples(zero)}",
            fix='use similarity="dot" or "l2", or look at the model',
        )
    return rows, paths
