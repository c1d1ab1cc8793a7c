"""A submission is a file of embeddings or rankings; with a dataset it becomes a report.

>>> names, remarks = feasible([MetricName.parse(text) for text in ("R@10", "R@1000", "AP")], 100, asked=False)
>>> ", ".join(map(str, names)), remarks
('mAP@100, NDCG@100, R@10', ['a ranking of depth 100 cannot give R@1000, AP'])
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hbench.core.errors import DataError, SubmissionError, UsageError, examples
from hbench.datasets import Dataset, load, specs
from hbench.datasets.manifest import Manifest, name_table_of
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, conditions
from hbench.evaluation import embeddings as embedding_files
from hbench.evaluation.embeddings import Embeddings
from hbench.evaluation.embeddings.doubts import doubts_of
from hbench.evaluation.embeddings.files import VECTORS_ALONE
from hbench.evaluation.embeddings.ids import SubmissionProblem, refuse
from hbench.evaluation.measurement import Examined, OnTest, Submission, report_on
from hbench.evaluation.rankings import files as run_files
from hbench.evaluation.rankings import level_sequences as run_levels
from hbench.evaluation.rankings.files import Ranking
from hbench.evaluation.reports.report import Report, Subject, SubmittedFile
from hbench.metrics.names import MetricName, default_metrics, parse_metrics
from hbench.tree.names import remarks_on
from hbench.tree.partial import known_levels


def evaluate(
    submission: str | Path | Submission,
    dataset: str | Path | Dataset,
    *,
    metrics: str | Sequence[str] | None = None,
    protocol: str = "paper",
    also_official: bool = False,
    ties: str = "pessimistic",
    similarity: str | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    unit: str | None = None,
    method: str | None = None,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> Report:
    """Score a file (or what was read from it; a pair is queries and gallery) on every test of a dataset.

    `unit`: what intervals are taken over, the classes of a level (the finest by default) or "query".
    `also_official`: compute the released evaluator's values in the same ranking pass. `memory` bounds what is held
    beyond the embeddings, in bytes; `execute` says who computes. Raises SubmissionError with every problem of the file
    at once, UnknownName for names, before any work starts.
    """
    if isinstance(submission, str | Path):
        submission = read(Path(submission), movable=True)
    examined = examine(
        submission, dataset, metrics=metrics, protocol=protocol, also_official=also_official, ties=ties,
        similarity=similarity, relevance=relevance, alpha=alpha, unit=unit, method=method,
    )  # fmt: skip
    return report_on(examined, memory=memory, execute=execute, on_test=on_test)


def examine(
    submission: str | Path | Submission,
    dataset: str | Path | Dataset,
    *,
    metrics: str | Sequence[str] | None = None,
    protocol: str = "paper",
    also_official: bool = False,
    ties: str = "pessimistic",
    similarity: str | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    unit: str | None = None,
    method: str | None = None,
    doubted: bool = True,
) -> Examined:
    """Read and check everything; raises as `evaluate` does. `doubted`: pass over the vectors for what speaks against them,
    which a report must say and a picture need not."""
    whole = dataset if isinstance(dataset, Dataset) else load(dataset)
    given = read(Path(submission)) if isinstance(submission, str | Path) else submission
    data, left_out = without_items(whole, source_of(given).left_out)
    _refuse_empty(data)
    default: list[str | MetricName] = [*default_metrics(data.levels), *data.protocol.all_metrics]
    names = parse_metrics(default if metrics is None else metrics, data.levels)
    warnings = partial_labels_of(data)
    partial = bool(warnings)
    if partial:
        _refuse_partial(given, data, also_official=also_official)
    if isinstance(given, Ranking) and not all(run_levels.is_full(given, test) for test in data.tests.values()):
        names, impossible = feasible(names, given.depth, asked=metrics is not None)
        warnings += impossible
    chosen = conditions(
        data.levels, metrics=names, relevance=relevance, alpha=alpha, ties=ties, partial=partial, unit=unit,
        similarity=similarity or data.protocol.similarity, protocol=protocol_name(protocol, data),
    )  # fmt: skip
    chosen = replace(chosen, left_out=f"{len(left_out)}({_short_digest(left_out)})" if left_out else "")
    problems = problems_of(given, data, cosine=chosen.similarity_name == "cosine")
    refuse(source_of(given).file, problems)
    doubts = doubts_of(given, data) if doubted else ()
    subject = Subject(data.name, data.version, digest_of(whole), _checked(method), source_of(given), doubts)
    also = protocol_name("official", data) if also_official else None
    remarks = (*warnings, *_remarks_on_left_out(left_out), *_remarks_on_names(data), *map(str, problems))
    return Examined(given, data, chosen, also, subject, remarks)


def without_items(data: Dataset, items: Sequence[str]) -> tuple[Dataset, list[str]]:
    """The dataset without those of its test items that could not be embedded, and which these are; with all of them where
    positives are listed pair by pair, of which none may be missing."""
    listed = set(items)
    left_out = sorted({item for test in data.tests.values() for item in test.items if item in listed})
    if not left_out or data.lists:
        return data, []
    return replace(data, tests={name: _without(test, listed) for name, test in data.tests.items()}), left_out


def _without(test: Manifest, items: set[str]) -> Manifest:
    kept = np.array([item not in items for item in test.items])
    columns = {name: getattr(test, name)[kept] for name in ("items", "labels", "query", "gallery")}
    return replace(test, **columns, ignore=None if test.ignore is None else test.ignore[kept])


def _short_digest(items: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(items).encode()).hexdigest()[:8]


def _remarks_on_left_out(items: Sequence[str]) -> list[str]:
    if not items:
        return []
    return [
        f"{len(items):,} items that could not be embedded are neither queries nor in the gallery: {examples(items)}"
    ]


def _refuse_empty(data: Dataset) -> None:
    """Refuse a test in which nothing is asked or nothing can be found."""
    for name, test in data.tests.items():
        for side, mask in (("queries", test.query), ("gallery items", test.gallery)):
            if not mask.any():
                raise DataError(
                    f"the test {name!r} of {data.name} has no {side}", expected="at least one query and one gallery item",
                    found=f"{len(test):,} items", fix="look at the columns query and gallery of its manifest",
                )  # fmt: skip


def _remarks_on_names(data: Dataset) -> list[str]:
    """What to know of the names of somebody's own classes; those of published sets are as their authors meant them."""
    return [] if data.name in specs else remarks_on(name_table_of(list(data.tests.values())))


def _checked(method: str | None) -> str | None:
    """A method's name; UsageError for one with half a surrogate pair, as a terminal of another encoding hands over: it fits into
    no report."""
    try:
        (method or "").encode()
    except UnicodeEncodeError as error:
        raise UsageError("the method's name is no text", expected="UTF-8", found=ascii(method)) from error
    return method


def read(path: Path, *, ids: Path | None = None, movable: bool = False) -> Embeddings | Ranking:
    """The embeddings or the ranking in a file, told apart by its content; `movable`: they are read to be evaluated once."""
    if path.suffix.lower() not in VECTORS_ALONE and run_files.kind_of(path) == "ranking":
        return run_files.read(path)
    return replace(embedding_files.read(path, ids=ids), movable=movable)


def problems_of(given: Submission, dataset: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
    """Everything that is wrong with a submission for a dataset, in one pass; remarks have `fatal` False."""
    tests = dataset.tests.values()
    known = {item for manifest in dataset.manifests.values() for item in manifest.items}
    if isinstance(given, Ranking):
        return [problem for manifest in tests for problem in run_levels.problems(given, manifest, known=known)]
    queries, gallery = given if isinstance(given, tuple) else (given, given)
    asked = np.concatenate([manifest.items[manifest.query] for manifest in tests])
    ranked = np.concatenate([manifest.items[manifest.gallery] for manifest in tests])
    if queries is gallery:
        wanted = np.array(list(dict.fromkeys([*asked, *ranked])), dtype=object)
        return embedding_files.problems(queries, wanted=wanted, known=known, cosine=cosine)
    own = [
        replace(problem, kind=f"{problem.kind} in {part.source}")
        for part, wanted in ((queries, asked), (gallery, ranked))
        for problem in embedding_files.problems(part, wanted=wanted, known=known, cosine=cosine)
    ]
    if own and set(asked) <= set(gallery.ids) and set(ranked) <= set(queries.ids):
        raise SubmissionError(
            f"queries and gallery are swapped: {queries.source} holds the gallery's items, {gallery.source} the queries'",
            fix="give each file to the other of --query and --gallery",
        )
    return [*own, *embedding_files.problems_between(queries, gallery)]


def _refuse_partial(given: Submission, data: Dataset, *, also_official: bool) -> None:
    """Refuse what partial labels cannot be scored by."""
    if isinstance(given, Ranking) or data.lists:
        raise SubmissionError(
            "partial labels are scored by embeddings alone",
            expected="an embedding file, positives by label",
            found="a ranking" if isinstance(given, Ranking) else "listed positives",
        )
    if also_official:
        raise UsageError("the released evaluators know no partial labels", fix="leave the official values out")


def partial_labels_of(dataset: Dataset) -> list[str]:
    """How far the queries of each test are known, in words, where some labels end early."""
    found = []
    for name, test in dataset.tests.items():
        known = known_levels(test.tree)[test.labels[:, -1]]
        if (known < test.tree.depth).any():
            asked = np.bincount(known[test.query], minlength=test.tree.depth + 1)
            parts = [
                f"{count:,} to {level}" for level, count in zip(test.levels, asked[1:].tolist(), strict=True) if count
            ]
            items = int((known[test.gallery] < test.tree.depth).sum())
            found.append(
                f"{name}: partial labels: queries are known {', '.join(parts)}; {items:,} gallery items end early and are "
                "left out where their level is unknown"
            )
    return found


def feasible(names: Sequence[MetricName], depth: int, *, asked: bool) -> tuple[tuple[MetricName, ...], list[str]]:
    """The metrics that a ranking of this depth can give, and a remark on the others; asked-for ones are refused by
    name."""
    possible = [name for name in names if not name.needs_full_ranking and (name.cut or 0) <= depth]
    left_out = ", ".join(str(name) for name in names if name not in possible)
    if not left_out:
        return tuple(possible), []
    if asked or not possible:
        raise SubmissionError(
            f"a ranking of depth {depth} cannot give {left_out}",
            expected=f"metrics cut at k ≤ {depth}, as R@k, mAP@k, NDCG@k, P@k",
            fix="submit embeddings, or longer lists",
        )
    best = [MetricName("mAP", cut=depth), MetricName("NDCG@", cut=depth)]
    return tuple(dict.fromkeys([*best, *possible])), [f"a ranking of depth {depth} cannot give {left_out}"]


def protocol_name(name: str, dataset: Dataset) -> str:
    """`official` in the variant that the dataset's released evaluator is."""
    return dataset.protocol.official if name == "official" else name


def digest_of(dataset: Dataset) -> str:
    """sha256 over the digests of the test manifests."""
    lines = [f"{name} {manifest.digest}\n" for name, manifest in sorted(dataset.tests.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _printable(name: str) -> str:
    """A file's name whose bytes are no UTF-8 with a mark for each such byte, since reports are UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def source_of(given: Submission) -> SubmittedFile:
    """The file or files of a submission, for the report's head."""
    if isinstance(given, Ranking):
        return SubmittedFile(file=_printable(given.source), sha256=given.sha256, items=len(given))
    parts = given if isinstance(given, tuple) else (given,)
    joined = hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()
    return SubmittedFile(
        file=_printable(" + ".join(part.source for part in parts)),
        sha256=parts[0].sha256 if len(parts) == 1 else joined,
        items=sum(map(len, parts)),
        dim=parts[0].dim,
        dtype=parts[0].dtype,
        left_out=tuple(sorted({item for part in parts for item in part.left_out})),
    )
