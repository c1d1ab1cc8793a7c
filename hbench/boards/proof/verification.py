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
from hbench.boards.reported import scores_under
from hbench.boards.rows import PLACES
from hbench.boards.runs import RowDetails, recorded, row_of
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
from hbench.records.document import Document, SubmittedFile

CONTENT = ("content", "sha256")  # the fields that tell a file from others
NOISE = Decimal("0.0005")  # percent: what another block size may move a mean by
ROUNDING = Decimal("0.05")  # points by which other processors' rounding may move a net's scores


class GivenFile(NamedTuple):
    """What tells a file from others: the sha256 of its content, and of its bytes."""

    content: str
    sha256: str


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
    """Score a row's file, which is read as `given`, again, under the conditions and by the metrics
    of the row, and return the report; `nodes`: the vectors of the names, where these are its
    queries.

    Raises UsageError where names are needed, or not.
    """
    asks_by_name = row.setup.queries is not None
    if asks_by_name and nodes is None:
        raise UsageError(
            f"the queries of {row.method!r} are names",
            fix="give the vectors of the names by --nodes",
        )
    if nodes is not None and not asks_by_name:
        raise UsageError(f"the queries of {row.method!r} are items", fix="leave --nodes out")
    metrics = computed_metrics(row, board)
    settings = recorded(row, board)
    if nodes is None:
        return report_on(examine(given, data, replace(settings, metrics=metrics))).document

    # names have metrics of their own, which items may not have: so the items are examined by any
    examined = examine(given, data, replace(settings, metrics="H-AP"))
    return report_on_nodes(examined, read_nodes(nodes, data.levels), metrics=metrics).document


def computed_metrics(row: Row, board: Leaderboard) -> list[str]:
    """Return the metrics of a row that hbench computes. Raises ComparisonError where there is none,
    or a run has others, too: the table of a paper may have metrics of its own, while every score of
    a run is to be had from its file.
    """
    metrics = [
        metric
        for metric in row.scores
        if metric not in board.foreign_metrics and not board.lacks(metric)
    ]
    foreign = ", ".join(metric for metric in row.scores if metric not in metrics)
    if not metrics:
        raise ComparisonError(
            f"no score of {row.method!r} is one that hbench computes", found=foreign
        )
    if row.run and foreign:
        raise ComparisonError(
            f"a row of a run has scores that hbench does not compute: {row.method!r}",
            found=foreign,
        )
    return metrics


def identity_of(given: Submission) -> GivenFile:
    """Return what tells a submission's file from others: the sha256 of its content and bytes."""
    return GivenFile(given.content, given.source.sha256)


def checked(row: Row, board: Leaderboard, given: Submission, data: Dataset) -> list[Check]:
    """Compare a row of a run with its file, which is read as `given`, scored again.

    Raises ComparisonError where the file, a score or another field differs, SubmissionError where
    the file cannot be scored, or a leaderboard does not take its report.
    """
    assert row.run is not None
    _refuse_second_row(row, board, identity_of(given))
    # so that no other row of this method, or of this file, is compared in its place
    alone = board.model_copy(update={"rows": (row,)})
    checks = verify(
        alone, row.method, identity_of(given), lambda row: rescored(row, board, given, data)
    )
    refuse_differences(checks)
    return checks


def verify(
    board: Leaderboard, method: str, given: GivenFile, rescore: Callable[[Row], Document]
) -> list[Check]:
    """Compare every row of `method` with an embedding file, which `rescore` evaluates for a row.

    Which rows are compared: those of this very file; where there are none, all rows of runs, whose
    content then differs; where there are none of these either, the published ones, by their scores
    alone. `given`: the checksums of the file's content and of its bytes. A score is equal when it
    rounds to the recorded digits, up to the noise of float32 similarities.

    Raises UnknownName for the method, ComparisonError where nothing can be compared,
    SubmissionError where a leaderboard does not take the report.
    """
    rows = rows_of(board, method)
    same_file = [row for row in rows if row.run and row.run.is_of(*given)]
    of_runs = [row for row in rows if row.run]
    return [
        check
        for row in same_file or of_runs or rows
        for check in _checks(board, row, given, rescore)
    ]


def rows_of(board: Leaderboard, method: str) -> list[Row]:
    """The rows of a method; raises UnknownName where there are none."""
    rows = [row for row in board.rows if row.method == method]
    if not rows:
        raise UnknownName("method", method, dict.fromkeys(row.method for row in board.rows))
    return rows


def refuse_differences(checks: Sequence[Check]) -> None:
    """Raise ComparisonError when the content differs, a score by more than its recorded precision,
    or another field at all.
    """
    wrong = [check for check in checks if check.differs]
    if any(check.field in CONTENT for check in wrong):  # of another file all scores may differ
        raise _of_another_file(checks)
    if wrong:
        problem, fix = "the row is not the one that its file gives", None
        # scores are decimals as they were printed; other fields are texts and numbers
        if all(isinstance(check.recorded, Decimal) for check in wrong):
            problem = f"{len(wrong)} of {len(checks)} scores differ from the recorded ones"
            if all(is_within(check, ROUNDING) for check in wrong):
                fix = (
                    f"none differs by more than {ROUNDING} points, which another make of processor "
                    "than the row's may come to by its rounding"
                )
        raise ComparisonError(
            problem,
            expected=examples(f"{check.field} {check.recorded}" for check in wrong),
            found=examples(f"{check.field} {check.rescored}" for check in wrong),
            fix=fix,
        )


def is_within(check: Check, points: Decimal) -> bool:
    """Whether a score, made again, is at most so many points from the recorded one; not where it is
    missing, or for a field that is no score."""
    if not isinstance(check.rescored, Decimal) or not isinstance(check.recorded, Decimal):
        return False
    return abs(check.rescored - check.recorded) <= points


def _of_another_file(checks: Sequence[Check]) -> ComparisonError:
    """Make the error for a file that is not the row's: it says how many of its scores are equal,
    and how far the others are apart. `checks`: of the content or the bytes, one of which differs,
    and of every score."""
    scores = [check for check in checks if check.field not in CONTENT]
    equal = sum(not check.differs for check in scores)
    apart = [f"{check.field} by {_distance(check)}" for check in scores if check.differs]
    content = next(check for check in checks if check.field in CONTENT)
    differing = f"; {examples(apart)} differ" if apart else ""
    fix = None
    # rows of former versions name the bytes: perhaps the same vectors in another container
    if content.field == "sha256" and not apart:
        fix = (
            "hbench leaderboard add … --replace records the content in place of the file's checksum"
        )
    return ComparisonError(
        f"another file than the row's: {equal} of {len(scores)} scores are equal{differing}",
        expected=f"{content.field} {content.recorded}",
        found=f"{content.field} {content.rescored}",
        fix=fix,
    )


def _distance(check: Check) -> str:
    """Write how far a score is from the recorded one, in points, with the recorded digits; "no
    value" where one of them is missing."""
    if not (isinstance(check.recorded, Decimal) and isinstance(check.rescored, Decimal)):
        return "no value"
    return str(abs(check.rescored - check.recorded).quantize(check.recorded))


def _checks(
    board: Leaderboard, row: Row, given: GivenFile, rescore: Callable[[Row], Document]
) -> Iterator[Check]:
    """Yield a check for every score of a row, and for every other field of it that differs; of
    another file than the row's, that is its content alone. `given`: the file's checksums;
    `rescore`: evaluates it for a row. Raises ComparisonError where the dataset has changed.
    """
    metrics = computed_metrics(row, board)
    document = rescore(row)
    if row.run and document.dataset_digest != row.run.dataset_digest:
        raise ComparisonError(
            f"{board.dataset} is not what it was when the row of {row.method!r} was made",
            expected=f"digest {row.run.dataset_digest}",
            found=f"digest {document.dataset_digest}",
        )

    if row.run:  # the head: levels and tests that the leaderboard states for all of its rows
        _refuse_other_head(board, document)
    # of another file the fields would differ for that reason alone
    if row.run and not row.run.is_of(*given):
        found = given.content if row.run.content else given.sha256
        field = CONTENT[0] if row.run.content else CONTENT[1]
        yield Check(row.source, field, row.run.digest, found, differs=True)
    elif row.run:
        yield from _checked_fields(row, row.run, board, document)

    scores = scores_under(board, document)
    for metric in metrics:
        value = scores[metric].value if metric in scores else None
        yield _checked_score(row, metric, value, factor_of(board.key(metric)))


def _refuse_second_row(row: Row, board: Leaderboard, given: GivenFile) -> None:
    """Raise ComparisonError for a row that names its file by its bytes' checksum, as former
    versions did, where another row has the same file by its content, under the same conditions."""
    # the identity of a row of a run is its digest, which differs here, its names and its conditions
    _digest, *beside = row.identity
    others = [
        each.method
        for each in board.rows
        if each.run and each.run.content == given.content and [*each.identity[1:]] == beside
    ]
    if row.run and row.run.sha256 and others:  # two rows by content are found by their identity
        raise ComparisonError(
            "one file is two rows", expected="one row", found=examples([*others, row.method])
        )


def _refuse_other_head(board: Leaderboard, document: Document) -> None:
    """Raise ComparisonError for a leaderboard whose head says other levels or tests than those that
    its scores are of."""
    tests = document.tests if len(document.tests) > 1 else ()  # of one test nothing is averaged
    # a head may leave the levels out, but not say others
    said = (board.levels or document.levels, set(board.averaged))
    if said != (document.levels, set(tests)):
        raise ComparisonError(
            f"the head of the leaderboard is not that of {board.dataset}",
            expected=f"levels {', '.join(document.levels)}; averaged {', '.join(tests) or 'none'}",
            found=f"levels {', '.join(board.levels)}; "
            f"averaged {', '.join(board.averaged) or 'none'}",
        )


def _checked_fields(
    row: Row, run: RunProvenance, board: Leaderboard, document: Document
) -> Iterator[Check]:
    """Yield a check for every field of a row, but for its scores, that its file gives otherwise:
    the row is built anew from `document`, the report on the file. Raises SubmissionError where the
    row hides what speaks against its file."""
    anew = row_of(document, board, RowDetails(method=row.method))
    # a row may say more against its file than the report does, but not less
    assert anew.run is not None
    hidden = [doubt for doubt in document.doubts if doubt not in (run.doubt or "")]
    if hidden:
        raise SubmissionError(
            "the row does not say what speaks against its file", found="; ".join(hidden)
        )
    for each in (
        *_differing(row, anew),
        *_differing_names(run, document.names),
        *_differing_in_run(run, anew.run),
    ):
        yield Check(row.source, each.field, str(each.found), str(each.expected), differs=True)


def _checked_score(row: Row, metric: str, value: float | None, factor: float) -> Check:
    """Compare a recorded score with `value`, the same as it is now, None without one; `factor`: by
    which that becomes what is printed, most often 100. They may differ by half of the last recorded
    digit, and by the noise of float32."""
    score = row.scores[metric]
    # twice the digits that rows have: what is cut is the tail of a float alone
    again = None if value is None else round(Decimal(factor * value), 2 * PLACES)
    allowed = Decimal("0.5").scaleb(int(score.as_tuple().exponent)) + NOISE
    differs = again is None or abs(again - score) > allowed
    return Check(row.source, metric, score, again, differs=differs)


class _OtherField(NamedTuple):
    """A field of a row as it is, and as it should be."""

    field: str
    found: object
    expected: object


def _differing(row: Row, anew: Row) -> Iterator[_OtherField]:
    """Yield the fields of a row that are not those of the row built anew. `anew`: made of the file
    that is verified, and so never left out of the ranking (`unranked`); the row may be older than
    its check."""
    if row.dim != anew.dim:
        yield _OtherField("dim", row.dim, anew.dim)
    if row.unranked:
        yield _OtherField("unranked", ", ".join(row.unranked), "nothing")
    if row.year is not None and anew.year is not None and row.year > anew.year:
        yield _OtherField("year", row.year, f"{anew.year} or before")


def _differing_names(run: RunProvenance, names: SubmittedFile | None) -> Iterator[_OtherField]:
    """Yield the vectors of names where they are not the row's; rows of former versions have the
    checksum of their file.
    """
    of_file = (None,) if names is None else (names.content, names.sha256)
    if run.names not in of_file:
        yield _OtherField("names", run.names, of_file[0])


def _differing_in_run(run: RunProvenance, anew: RunProvenance) -> Iterator[_OtherField]:
    """Yield the fields of a run that are not those of the run made anew. A row may be older than
    its check, so days and versions may be earlier, but not later; and it may say more doubts."""
    if run.queries != anew.queries:  # how many there were
        yield _OtherField("queries", run.queries, anew.queries)
    if run.date > anew.date:
        yield _OtherField("date", run.date, f"{anew.date} or before")
    if (run.verified or "").partition(",")[0] > anew.date:  # the mark begins with its day
        yield _OtherField("verified", run.verified, f"{anew.date} or before")
    if not (run.doubt or "").startswith(anew.doubt or ""):
        yield _OtherField("doubt", run.doubt, anew.doubt)
    # the version that made the row counts, if it is none that is yet to come
    version = Signature.parse(run.signature).version
    made = str(replace(Signature.parse(anew.signature), version=version))
    if run.signature != made:  # letter by letter: one file is one row
        yield _OtherField("signature", run.signature, made)
    if version != ".".join(run.hbench.split(".")[:2]):
        yield _OtherField("hbench", run.hbench, f"{version}.…, as in the signature")
    elif _numbers(run.hbench) > _numbers(anew.hbench):
        yield _OtherField("hbench", run.hbench, f"{anew.hbench} or before")


def _numbers(version: str) -> list[int]:
    """The numbers in a version, by which versions are ordered: 0.10 is after 0.9."""
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)]
