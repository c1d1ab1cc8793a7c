"""Compares many models: which files of a folder to score, which reports are current, which model
leads by how much.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hbench.core.errors import ComparisonError, SubmissionError, examples
from hbench.evaluation.examination import Examined
from hbench.metrics.names import goodness, parse_metrics
from hbench.records import document as reports
from hbench.records.differences import (
    Difference,
    corrected_together,
    differences_of,
    with_metrics_alone,
)
from hbench.records.document import BY_QUERY, Document, Score
from hbench.records.results import SUFFIX
from hbench.submissions.embeddings.files import READERS

BESIDE = (BY_QUERY, SUFFIX)  # what an evaluation leaves beside its report


def files_in(folder: Path) -> list[Path]:
    """The embedding files of a folder, by name, without hidden ones and without what an evaluation
    wrote beside them. Raises SubmissionError where there is none, or two would share a report.
    """
    if not folder.is_dir():
        raise SubmissionError(f"{folder} is not a folder", expected="a folder of embedding files")

    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in READERS
        and not path.name.endswith(BESIDE)
        and not path.name.startswith(".")
    ]
    stems = [path.stem for path in files]
    if not files or len(set(stems)) < len(stems):
        raise SubmissionError(
            f"{folder} holds no embedding files, or two of the same name",
            expected=f"files of different names before {', '.join(READERS)}",
            found=examples(path.name for path in files) if files else "none",
        )

    return files


def passed_over(folder: Path, files: Collection[Path]) -> list[str]:
    """The files of a folder that are none of those to score, and not what hbench wrote beside them:
    a report, values by query, results, ids.
    """
    stems = {file.stem for file in files}  # what is written beside a file begins with its stem
    names = []
    for path in sorted(folder.iterdir()):
        is_hidden = path.name.startswith(".")
        is_beside = (
            path.name.endswith(BESIDE) or path.name.split(".")[0].removesuffix("_ids") in stems
        )
        if path not in files and not is_hidden and not is_beside:
            names.append(path.name)
    return names


def earlier(path: Path, examined: Examined) -> Document | None:
    """The report at `path` where it is of the very file and dataset that were examined, by their
    digests, under whichever conditions; None where it is of others, or there is none."""
    if not path.exists():
        return None
    try:
        document = reports.read(path)
    except SubmissionError:
        return None
    subject = examined.subject
    embedding = document.embedding
    # for vectors in memory there is no file on either side, and None equals None
    same_file = (embedding and embedding.sha256) == (subject.source and subject.source.sha256)
    return document if same_file and document.dataset_digest == subject.digest else None


def finished(path: Path, examined: Examined) -> Document | None:
    """The report at `path` where it is of this very file, dataset and conditions, holds all metrics
    that are asked for, and its values by query lie beside it."""
    document = earlier(path, examined)
    if document is None or not path.with_suffix(BY_QUERY).exists():
        return None
    try:
        # raises where the table is another evaluation's
        reports.read_by_query(path.with_suffix(BY_QUERY), document)
    except SubmissionError:
        return None
    same = (
        document.signature == examined.signature()
        and document.unit == examined.conditions.unit
        and set(map(str, examined.conditions.metrics)) <= set(document.scores)
        # the official values are there, if they are asked for
        and bool(document.official) >= bool(examined.also)
    )
    return document if same else None


def widened(path: Path, examined: Examined) -> Examined:
    """What is to be measured, with the metrics that the report at `path` has of this file, so that
    a full report is never replaced by a smaller one.

    Raises SubmissionError where the report holds what this evaluation would lose: scores under
    other trees, or first results.
    """
    # the report there, if it is of this file and dataset, under whichever conditions; else None
    document = earlier(path, examined)
    if document is None:
        return examined

    held = {
        "scores under other trees": document.trees,
        "first results": path.with_suffix(SUFFIX).exists(),
    }
    lost = [part for part, is_held in held.items() if is_held]
    if lost:
        raise SubmissionError(
            f"{path} holds {' and '.join(lost)}, which this evaluation would lose",
            expected="a report of these settings, with these metrics",
            found=document.signature,
            fix="--out another folder",
        )

    asked = examined.conditions.metrics
    missing = [name for name in document.scores if name not in set(map(str, asked))]
    if not missing:
        return examined

    names = (*asked, *parse_metrics(missing, examined.conditions.levels))
    return replace(examined, conditions=replace(examined.conditions, metrics=names))


@dataclass(frozen=True)
class ModelStanding:
    """A model's report, its score by the main metric, and the paired difference from the best
    model's, None for the best.
    """

    document: Document
    score: Score
    behind: Difference | None

    def record(self) -> dict[str, Any]:
        """The model as `--json` has it: its file, scores, and difference from the best."""
        source = self.document.embedding
        return {
            "method": self.document.method,
            "file": source and source.file,
            "sha256": source and source.sha256,
            "score": self.score.model_dump(),
            "scores": {name: score.model_dump() for name, score in self.document.scores.items()},
            "behind_best": self.behind and self.behind.record(),
            "doubts": list(self.document.doubts),
        }


def main_metric(documents: Collection[Document], preferred: Sequence[str]) -> str:
    """The metric to rank models by: the first of the preferred ones that most reports have, else
    the one that most have.
    """
    counts = Counter(metric for document in documents for metric in document.scores)
    # more than half of the reports have it
    usual = [name for name in preferred if 2 * counts[name] > len(documents)]
    return usual[0] if usual else counts.most_common(1)[0][0]


def not_comparable(documents: Mapping[Path, Document], metric: str) -> dict[Path, ComparisonError]:
    """The reports, of `documents` by their files, that cannot be ranked with the others, with the
    reason: those without the metric, and those whose signature (the conditions of an evaluation) is
    not that of most.
    """
    usual = Counter(document.signature for document in documents.values()).most_common(1)[0][0]
    return {
        path: ComparisonError(
            f"{path.name} is not compared", expected=f"{metric}, {usual}", found=document.signature
        )
        for path, document in documents.items()
        if metric not in document.scores or document.signature != usual
    }


def standings(documents: Mapping[Path, Document], metric: str) -> list[ModelStanding]:
    """The reports, of `documents` by their files, ranked by their score of the metric, best first,
    by the file's name among equals, undefined scores last; each with its paired difference from the
    best one, None for that itself.

    Raises ComparisonError for reports of other queries.
    """
    paths = sorted(documents, key=lambda path: (-_goodness(documents[path], metric), path.name))
    best = _values(paths[0], documents[paths[0]], metric)
    unit = documents[paths[0]].unit
    # each a list of one difference: `_values` has one metric
    differences = [
        differences_of(_values(path, documents[path], metric), best, unit=unit)
        for path in paths[1:]
    ]
    behind = [None, *(family[0] for family in corrected_together(differences))]
    return [
        ModelStanding(documents[path], documents[path].scores[metric], difference)
        for path, difference in zip(paths, behind, strict=True)
    ]


def _values(path: Path, document: Document, metric: str) -> pa.Table:
    """The values by query that lie beside the report at `path`, of one metric alone."""
    table = reports.read_by_query(path.with_suffix(BY_QUERY), document)
    return with_metrics_alone(table, table, [metric])


def _goodness(document: Document, metric: str) -> float:
    """A report's score so that higher is better, distances negated; undefined is the worst."""
    value = document.scores[metric].value
    return -float("inf") if value is None else goodness(metric, value)
