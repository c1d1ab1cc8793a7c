"""Compares many models: finds the files of a folder to score and the reports that are up to date,
and ranks the models with their differences from the best.
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

BESIDE = (BY_QUERY, SUFFIX)  # suffixes of the files that an evaluation writes beside its report


def files_in(folder: Path) -> list[Path]:
    """Return the embedding files of a folder, sorted by name, without hidden files and files that
    an evaluation wrote. Raises SubmissionError if there are none, or if two have the same name but
    for its suffix (a.npz, a.parquet): their reports would have the same path.
    """
    if not folder.is_dir():
        raise SubmissionError(f"{folder} is not a folder", expected="a folder of embedding files")

    # READERS: {suffix of a format of embeddings: its reader}. BESIDE: the suffixes of files that an
    # evaluation writes beside its report
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in READERS
        and not path.name.endswith(BESIDE)
        and not path.name.startswith(".")
    ]
    if not files:
        raise SubmissionError(
            f"{folder} holds no embedding files",
            expected=f"files that end in {', '.join(READERS)}",
            found=examples(path.name for path in sorted(folder.iterdir())) or "an empty folder",
        )
    of_stem = Counter(path.stem for path in files)
    if twice := [path.name for path in files if of_stem[path.stem] > 1]:
        raise SubmissionError(
            f"{folder} holds several files of one name, whose reports would be one file",
            expected="files of different names before their endings",
            found=examples(twice),
            fix="rename them, or score each by hbench evaluate",
        )

    return files


def passed_over(folder: Path, files: Collection[Path]) -> list[str]:
    """Return the names of the files in a folder that are not to be scored. Files that belong to
    one of `files`, such as reports, values by query and ids, are left out.
    """
    stems = {file.stem for file in files}  # files that are written beside another share its stem
    names = []
    for path in sorted(folder.iterdir()):
        is_hidden = path.name.startswith(".")
        # ends as an evaluation's files do, or is named after a file to be scored: for a.npy these
        # are a.json, a.ids.json, a_ids.txt
        is_beside = (
            path.name.endswith(BESIDE) or path.name.split(".")[0].removesuffix("_ids") in stems
        )
        if path not in files and not is_hidden and not is_beside:
            names.append(path.name)
    return names


def earlier(path: Path, examined: Examined) -> Document | None:
    """Read the report at `path` if it is on the same file and dataset as `examined`, compared by
    digest; its conditions may differ. Return None if it is on others, is not a report or does not
    exist."""
    if not path.exists():
        return None
    try:
        document = reports.read(path)
    except SubmissionError:
        return None
    subject = examined.subject
    embedding = document.embedding
    # the two sha256; vectors in memory have no file, so None on both sides is equal, too
    same_file = (embedding and embedding.sha256) == (subject.source and subject.source.sha256)
    return document if same_file and document.dataset_digest == subject.digest else None


def finished(path: Path, examined: Examined) -> Document | None:
    """Read the report at `path` if it makes this evaluation unnecessary: it is on the same file,
    dataset and conditions, has all requested metrics, and its values by query exist. Else None."""
    # None for a report that is of another file or dataset, or does not exist
    document = earlier(path, examined)
    if document is None or not path.with_suffix(BY_QUERY).exists():
        return None
    try:
        # raises if the table belongs to another evaluation
        reports.read_by_query(path.with_suffix(BY_QUERY), document)
    except SubmissionError:
        return None
    same = (
        document.signature == examined.signature()
        # the unit of the intervals: the name of a level, or "query"
        and document.unit == examined.conditions.unit
        and set(map(str, examined.conditions.metrics)) <= set(document.scores)
        # if values by a second protocol (`also`) are requested, the report must have official ones
        and bool(document.official) >= bool(examined.also)
    )
    return document if same else None


def widened(path: Path, examined: Examined) -> Examined:
    """Add the metrics of an earlier report at `path` on the same file to those to be measured, so
    that a report is never replaced by one with fewer metrics.

    Raises SubmissionError if the report has content that this evaluation would lose: scores under
    other trees, or first results.
    """
    document = earlier(path, examined)
    if document is None:
        return examined

    # {what this evaluation does not write: whether the report has it}. First results are in a file
    # with the report's name and SUFFIX
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
    # the names of metrics that only the earlier report has
    missing = [name for name in document.scores if name not in set(map(str, asked))]
    if not missing:
        return examined

    names = (*asked, *parse_metrics(missing, examined.conditions.levels))
    return replace(examined, conditions=replace(examined.conditions, metrics=names))


@dataclass(frozen=True)
class ModelStanding:
    """A model in the ranking. `document`: its report. `score`: by the main metric. `behind`: the
    paired difference from the best model; None for the best. `path`: the file of the report.
    """

    document: Document
    score: Score
    behind: Difference | None
    path: Path

    def record(self) -> dict[str, Any]:
        """Return the document of the model for `--json`."""
        source = self.document.embedding
        return {
            "method": self.document.method,
            "file": source and source.file,
            "sha256": source and source.sha256,
            # by the metric that ranks the models; `scores` has all metrics
            "score": self.score.model_dump(),
            "scores": {name: score.model_dump() for name, score in self.document.scores.items()},
            "behind_best": self.behind and self.behind.record(),
            "doubts": list(self.document.doubts),
        }


def main_metric(documents: Collection[Document], preferred: Sequence[str]) -> str:
    """Choose the metric to rank models by: the first of the preferred ones that more than half of
    the reports have, else the most frequent one.
    """
    counts = Counter(metric for document in documents for metric in document.scores)
    usual = [name for name in preferred if 2 * counts[name] > len(documents)]
    return usual[0] if usual else counts.most_common(1)[0][0]


def not_comparable(documents: Mapping[Path, Document], metric: str) -> dict[Path, ComparisonError]:
    """Return {file: reason} of the reports that cannot be ranked with the others: they do not have
    the metric, or their signature (the conditions of the scores) is not the most frequent one.
    `documents`: {file: report}.
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
    """Rank reports by their score of the metric, best first, and compute the paired difference of
    each from the best. Equal scores are sorted by file name; undefined scores, whose goodness is
    −inf, come last.

    `documents`: {file: report}. Raises ComparisonError for reports on different queries.
    """
    paths = sorted(documents, key=lambda path: (-_goodness(documents[path], metric), path.name))
    # `_values`: the table of a report's values by query
    best = _values(paths[0], documents[paths[0]], metric)
    unit = documents[paths[0]].unit
    # For each report but the best: its differences by metric. The tables have a single metric, so
    # each of these lists has a single difference.
    differences = [
        differences_of(_values(path, documents[path], metric), best, unit=unit)
        for path in paths[1:]
    ]
    # the p-values are corrected for all models together. None: the best is not compared with itself
    behind = [None, *(family[0] for family in corrected_together(differences))]
    return [
        ModelStanding(
            document=documents[path],
            score=documents[path].scores[metric],
            behind=difference,
            path=path,
        )
        for path, difference in zip(paths, behind, strict=True)
    ]


def _values(path: Path, document: Document, metric: str) -> pa.Table:
    """Read the values by query that are stored beside the report at `path`, for one metric."""
    table = reports.read_by_query(path.with_suffix(BY_QUERY), document)
    return with_metrics_alone(table, table, [metric])


def _goodness(document: Document, metric: str) -> float:
    """Return a report's score with distances negated, so that higher is better; −inf for an
    undefined score."""
    value = document.scores[metric].value
    return -float("inf") if value is None else goodness(metric, value)
