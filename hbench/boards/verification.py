"""Verifies rows: scores their file again, builds the row anew from that report, and compares the
two field by field.

The row that is built anew meets all that `leaderboard add` asks for: no items left out, the
leaderboard's protocol, ties and relevance. What no file can tell, such as a method's name, year,
backbone and setup, is the author's word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from hbench.boards import Leaderboard, Row, RunProvenance
from hbench.boards.rows import PLACES
from hbench.boards.runs import recorded, row_of, scores_under
from hbench.core.errors import (
    ComparisonError,
    SubmissionError,
    UnknownName,
    UsageError,
    examples,
)
from hbench.datasets import Dataset
from hbench.engine.settings import Signature
from hbench.evaluation.by_name.nodes import read as read_nodes
from hbench.evaluation.by_name.queries import report_on_nodes
from hbench.evaluation.evaluate import report_on
from hbench.evaluation.examination import examine
from hbench.evaluation.submission import Submission
from hbench.metrics.names import factor_of
from hbench.records.document import Document

NOISE = Decimal("0.0005")  # percent: what another block size may move a mean by


class Check(NamedTuple):
    """A recorded score, in percent, or another field, and the same made again; `differs`: by more
    than the recorded precision.
    """

    source: str
    field: str
    recorded: Decimal | str
    rescored: Decimal | str | None
    differs: bool


def rescored(
    row: Row, board: Leaderboard, given: Submission, data: Dataset, nodes: Path | None = None
) -> Document:
    """Score a row's file again, under the conditions and by the metrics of the row, and return the
    report; `nodes`: the vectors of the names, where these are its queries.

    Raises UsageError where names are needed, or not.
    """
    if (row.setup.queries is not None) != (nodes is not None):
        raise UsageError(
            f"the queries of {row.method!r} are {'names' if nodes is None else 'items'}",
            fix="give the vectors of the names by --nodes"
            if nodes is None
            else "leave --nodes out",
        )
    metrics = computed_metrics(row, board)
    settings = recorded(row, board)
    if nodes is None:
        return report_on(examine(given, data, replace(settings, metrics=metrics))).document

    examined = examine(given, data, replace(settings, metrics="H-AP"))
    return report_on_nodes(examined, read_nodes(nodes, data.levels), metrics=metrics).document


def computed_metrics(row: Row, board: Leaderboard) -> list[str]:
    """Return the metrics of a row that hbench computes. Raises ComparisonError where there is none,
    or a run has others, too.
    """
    metrics = [metric for metric in row.scores if metric not in board.foreign_metrics]
    if not metrics or (row.run and len(metrics) < len(row.scores)):
        foreign = [metric for metric in row.scores if metric not in metrics]
        raise ComparisonError(
            f"no score of {row.method!r} is one that hbench computes"
            if not metrics
            else f"a row of a run has scores that hbench does not compute: {row.method!r}",
            found=", ".join(foreign),
        )
    return metrics


def checked(row: Row, board: Leaderboard, given: Submission, data: Dataset) -> list[Check]:
    """Compare a row of a run with its file, scored again.

    Raises ComparisonError where the file, a score or another field differs, SubmissionError where
    the file cannot be scored, or a leaderboard does not take its report.
    """
    assert row.run is not None
    alone = board.model_copy(update={"rows": (row,)})
    checks = verify(
        alone, row.method, given.source.sha256, lambda row: rescored(row, board, given, data)
    )
    refuse_differences(checks)
    return checks


def verify(
    board: Leaderboard, method: str, sha256: str, rescore: Callable[[Row], Document]
) -> list[Check]:
    """Compare every row of `method` with the embedding file of that hash, which `rescore` evaluates
    for a row.

    A row of a run must be of this very file, and is compared in every field; a published one is
    compared in its scores. A score is equal when it rounds to the recorded digits, up to the noise
    of float32 similarities. Raises UnknownName for the method, ComparisonError where nothing can be
    compared, SubmissionError where a leaderboard does not take the report.
    """
    rows = [row for row in board.rows if row.method == method]
    if not rows:
        raise UnknownName("method", method, dict.fromkeys(row.method for row in board.rows))
    hashes = [row.run.sha256 for row in rows if row.run]
    if hashes and sha256 not in hashes:
        raise ComparisonError(
            f"this is not the file that the row of {method!r} was made from",
            expected=f"sha256 {' or '.join(hashes)}",
            found=f"sha256 {sha256}",
        )
    same_file = [row for row in rows if row.run and row.run.sha256 == sha256]
    return [check for row in same_file or rows for check in _checks(board, row, rescore)]


def refuse_differences(checks: Sequence[Check]) -> None:
    """Raise ComparisonError when a score differs by more than its recorded precision, or another
    field at all.
    """
    wrong = [check for check in checks if check.differs]
    if wrong:
        raise ComparisonError(
            f"{len(wrong)} of {len(checks)} scores differ from the recorded ones"
            if all(isinstance(check.recorded, Decimal) for check in wrong)
            else "the row is not the one that its file gives",
            expected=examples(f"{check.field} {check.recorded}" for check in wrong),
            found=examples(f"{check.field} {check.rescored}" for check in wrong),
        )


def _checks(board: Leaderboard, row: Row, rescore: Callable[[Row], Document]) -> Iterator[Check]:
    """Yield a check for every score of a row, and for every other field of it that differs."""
    metrics = computed_metrics(row, board)
    document = rescore(row)
    if row.run and document.dataset_digest != row.run.dataset_digest:
        raise ComparisonError(
            f"{board.dataset} is not what it was when the row of {row.method!r} was made",
            expected=f"digest {row.run.dataset_digest}",
            found=f"digest {document.dataset_digest}",
        )

    if row.run:
        anew = row_of(document, board, method=row.method)
        assert anew.run is not None
        hidden = [doubt for doubt in document.doubts if doubt not in (row.run.doubt or "")]
        if hidden:
            raise SubmissionError(
                "the row does not say what speaks against its file", found="; ".join(hidden)
            )
        for field, recorded_as, made in (
            *_differing(row, anew),
            *_differing_in_run(row.run, anew.run),
        ):
            yield Check(row.source, field, str(recorded_as), str(made), differs=True)

    scores = scores_under(board, document)
    for metric in metrics:
        score = row.scores[metric]
        value = scores[metric].value if metric in scores else None
        again = (
            None
            if value is None
            else round(Decimal(factor_of(board.key(metric)) * value), 2 * PLACES)
        )
        allowed = Decimal("0.5").scaleb(int(score.as_tuple().exponent)) + NOISE
        yield Check(
            row.source, metric, score, again, differs=again is None or abs(again - score) > allowed
        )


def _differing(row: Row, anew: Row) -> Iterator[tuple[str, object, object]]:
    """Yield the fields of a row that are not those of the row built anew: name, as it is, as it
    should be.
    """
    if row.dim != anew.dim:
        yield "dim", row.dim, anew.dim
    if row.unranked:
        yield "unranked", ", ".join(row.unranked), "nothing"
    if row.year is not None and anew.year is not None and row.year > anew.year:
        yield "year", row.year, f"{anew.year} or before"


def _differing_in_run(
    run: RunProvenance, anew: RunProvenance
) -> Iterator[tuple[str, object, object]]:
    """Yield the fields of a run that are not those of the run made anew."""
    if run.sha256 != anew.sha256:
        yield "sha256", run.sha256, anew.sha256
    if run.names != anew.names:
        yield "names", run.names, anew.names
    if run.queries != anew.queries:
        yield "queries", run.queries, anew.queries
    if run.date > anew.date:
        yield "date", run.date, f"{anew.date} or before"
    if not (run.doubt or "").startswith(anew.doubt or ""):
        yield "doubt", run.doubt, anew.doubt
    version = Signature.parse(run.signature).version
    made = str(replace(Signature.parse(anew.signature), version=version))
    if run.signature != made:  # letter by letter: one file is one row
        yield "signature", run.signature, made
    if version != ".".join(run.hbench.split(".")[:2]):
        yield "hbench", run.hbench, f"{version}.…, as in the signature"
    elif _numbers(run.hbench) > _numbers(anew.hbench):
        yield "hbench", run.hbench, f"{anew.hbench} or before"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)]
