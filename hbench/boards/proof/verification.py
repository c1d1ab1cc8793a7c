"""Verifies a row: its file is scored again, a new row is built from that report, and the two rows
are compared field by field.

The new row is built as by `leaderboard add`, which refuses left-out items, and another protocol,
ties or relevance than the leaderboard's. Fields that no file can prove, such as the method's name,
year, backbone and setup, are not verified.
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

CONTENT = ("content", "sha256")  # the fields that identify a file
NOISE = Decimal("0.0005")  # percent by which another block size may change a mean
ROUNDING = Decimal("0.05")  # points by which another processor's rounding may change a net's scores


class GivenFile(NamedTuple):
    """The identity of a file: the sha256 of its content, and that of the file itself."""

    content: str
    sha256: str


class Check(NamedTuple):
    """The comparison of one field of a row, such as a score, with the same field made again."""

    source: str  # of the row
    field: str  # its name, or the metric
    recorded: Decimal | str  # scores are decimals in percent
    rescored: Decimal | str | None  # None: missing now
    differs: bool  # for a score, by more than the recorded precision


def rescored(
    row: Row, board: Leaderboard, given: Submission, data: Dataset, nodes: Path | None = None
) -> Document:
    """Score the file of a row again, under the conditions and with the metrics of the row. Return
    the new report as it would be stored.

    Args:
        board: the leaderboard of the row.
        given: what the row's file holds.
        data: the dataset of the leaderboard.
        nodes: the file with the vectors of names, if the row's queries are names. Raises UsageError
            if the file is missing then, or if it is given for other queries.
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
    # those of a run's signature, or the defaults for a published row
    settings = recorded(row, board)
    if nodes is None:
        return report_on(examine(given, data, replace(settings, metrics=metrics))).document

    # The examination needs some metric. Those of the row may not exist for items, so it is H-AP,
    # whose scores are not used.
    examined = examine(given, data, replace(settings, metrics="H-AP"))
    return report_on_nodes(examined, read_nodes(nodes, data.levels), metrics=metrics).document


def computed_metrics(row: Row, board: Leaderboard) -> list[str]:
    """Return the metrics of a row that hbench computes. Raises ComparisonError if there are none.

    The table of a paper may have other metrics, too. A row of a run with other metrics raises
    ComparisonError, since each of its scores must be reproducible from its file.
    """
    # hbench computes neither the foreign metrics of published tables, nor metrics of a package that
    # is not installed (`lacks`)
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
    """Return the identity of a submission's file."""
    return GivenFile(given.content, given.source.sha256)


def checked(row: Row, board: Leaderboard, given: Submission, data: Dataset) -> list[Check]:
    """Score the file of a run again, and return a comparison (a Check) for each score of the row.
    `given` is what the file holds, and `data` the dataset of the leaderboard.

    Raises ComparisonError if the file, a score or another field differs, or if another row has the
    same file and conditions; SubmissionError if the file cannot be scored, or the leaderboard does
    not accept its report.
    """
    assert row.run is not None
    # two rows of one file and the same conditions, of which one names the file by another digest:
    # one file must not be ranked twice
    _refuse_second_row(row, board, identity_of(given))
    # `verify` takes all rows of a method and a file, so the leaderboard only gets this row
    alone = board.model_copy(update={"rows": (row,)})
    checks = verify(
        alone, row.method, identity_of(given), lambda row: rescored(row, board, given, data)
    )
    refuse_differences(checks)
    return checks


def verify(
    board: Leaderboard, method: str, given: GivenFile, rescore: Callable[[Row], Document]
) -> list[Check]:
    """Compare the rows of a method with an embedding file.

    The compared rows are the first of these that exist: the rows whose file this is; all rows of
    runs, whose content then differs; all rows, which are from papers, by their scores only. A score
    is equal if it rounds to the recorded digits, up to the noise of float32 similarities.

    Args:
        given: the sha256 of the file's content, and that of the file itself.
        rescore: scores the file again under the conditions of a row, and returns the report.

    Raises:
        UnknownName: a method without rows.
        ComparisonError: nothing can be compared.
        SubmissionError: the leaderboard does not accept the report.
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
    """The rows of a method. Raises UnknownName if there are none."""
    rows = [row for row in board.rows if row.method == method]
    if not rows:
        raise UnknownName("method", method, dict.fromkeys(row.method for row in board.rows))
    return rows


def refuse_differences(checks: Sequence[Check]) -> None:
    """Raise ComparisonError if some check says that the content, another field or a score differs.
    For a score, the check allows what its recorded digits leave open.
    """
    wrong = [check for check in checks if check.differs]
    if any(check.field in CONTENT for check in wrong):  # then the scores may differ as well
        raise _of_another_file(checks)
    if wrong:
        problem, fix = "the row is not the one that its file gives", None
        # only scores are decimals; other fields are texts
        if all(isinstance(check.recorded, Decimal) for check in wrong):
            problem = f"{len(wrong)} of {len(checks)} scores differ from the recorded ones"
            # if all differences are so small that the rounding of another processor may explain
            # them, the message says so
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
    """Whether a new score is at most `points` from the recorded one. False if the score is missing,
    or the field is no score."""
    if not isinstance(check.rescored, Decimal) or not isinstance(check.recorded, Decimal):
        return False
    return abs(check.rescored - check.recorded) <= points


def _of_another_file(checks: Sequence[Check]) -> ComparisonError:
    """Return the error for a file that is not the row's. It states how many scores are equal, and
    by how much the others differ. `checks` has a check of every score, and one of the content or
    the sha256 of the file, which differs.
    """
    scores = [check for check in checks if check.field not in CONTENT]
    equal = sum(not check.differs for check in scores)
    apart = [f"{check.field} by {_distance(check)}" for check in scores if check.differs]
    content = next(check for check in checks if check.field in CONTENT)
    differing = f"; {examples(apart)} differ" if apart else ""
    fix = None
    # the sha256, which rows of old versions have, also differs for equal vectors in another format
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
    """How far a score is from the recorded one, in points, with the recorded digits; "no value" if
    the score is missing."""
    if not (isinstance(check.recorded, Decimal) and isinstance(check.rescored, Decimal)):
        return "no value"
    return str(abs(check.rescored - check.recorded).quantize(check.recorded))


def _checks(
    board: Leaderboard, row: Row, given: GivenFile, rescore: Callable[[Row], Document]
) -> Iterator[Check]:
    """Yield a check for every score of a row, and for every other field that differs. If the file
    is not the row's, its digest is the only such field for which a check is yielded. Raises
    ComparisonError if the dataset has changed since the row was made, or if the head of the
    leaderboard states other levels or tests.

    `given`: the sha256 of the file's content, and that of the file itself. `rescore`: scores the
    file again under the conditions of a row, and returns the report.
    """
    metrics = computed_metrics(row, board)
    document = rescore(row)
    if row.run and document.dataset_digest != row.run.dataset_digest:
        raise ComparisonError(
            f"{board.dataset} is not what it was when the row of {row.method!r} was made",
            expected=f"digest {row.run.dataset_digest}",
            found=f"digest {document.dataset_digest}",
        )

    # a row of hbench is of the levels and tests that the head of the board states; rows of papers
    # need not be
    if row.run:
        _refuse_other_head(board, document)
    # for another file, only its digest is reported, since other fields may differ just as well:
    # that of the content or, for rows of old versions, which have none, that of the file
    if row.run and not row.run.is_of(*given):
        found = given.content if row.run.content else given.sha256
        field = CONTENT[0] if row.run.content else CONTENT[1]
        yield Check(
            source=row.source, field=field, recorded=row.run.digest, rescored=found, differs=True
        )
    elif row.run:
        yield from _checked_fields(row, row.run, board, document)

    scores = scores_under(board, document)
    for metric in metrics:
        value = scores[metric].value if metric in scores else None  # a fraction, unlike the row's
        yield _checked_score(row, metric, value, factor_of(board.key(metric)))


def _refuse_second_row(row: Row, board: Leaderboard, given: GivenFile) -> None:
    """Raise ComparisonError if one file has two rows under the same conditions: this row, which
    names the file by its sha256, as old versions did, and another row, which names it by the digest
    of its content. `given` are both digests of the file. `Leaderboard` itself only finds rows with
    equal digests.
    """
    # The identity of a run's row is a tuple: the digest of the file, the digest of the vectors of
    # names, and the conditions. All but the first are compared, since the digests of the file may
    # be of two kinds.
    beside = row.identity[1:]
    others = [
        each.method
        for each in board.rows
        if each.run and each.run.content == given.content and each.identity[1:] == beside
    ]
    if row.run and row.run.sha256 and others:
        raise ComparisonError(
            "one file is two rows", expected="one row", found=examples([*others, row.method])
        )


def _refuse_other_head(board: Leaderboard, document: Document) -> None:
    """Raise ComparisonError if the head of a leaderboard states other levels or tests than those of
    the scores."""
    # a head names its tests if there are several, over which scores are averaged
    tests = document.tests if len(document.tests) > 1 else ()
    # a head may omit the levels, which then count as right, but not state others
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
    """Yield a check for every field of a row, except its scores, that differs from a new row. The
    new row is built from `document`, the new report on the file, as `leaderboard add` builds rows.
    `run`: the `run` of the row. Raises SubmissionError if the row omits a doubt that the report
    states.
    """
    anew = row_of(document, board, RowDetails(method=row.method))
    assert anew.run is not None
    # a row may state more doubts than the report does, but not fewer
    hidden = [doubt for doubt in document.doubts if doubt not in (run.doubt or "")]
    if hidden:
        raise SubmissionError(
            "the row does not say what speaks against its file", found="; ".join(hidden)
        )
    # `found` is what the row has, `expected` what it should have. The vectors of names, if these
    # were the queries, are compared apart: rows of old versions state the checksum of their file in
    # place of that of their content, and only the report has both.
    for each in (
        *_differing(row, anew),
        *_differing_names(run, document.names),
        *_differing_in_run(run, anew.run),
    ):
        yield Check(
            source=row.source,
            field=each.field,
            recorded=str(each.found),
            rescored=str(each.expected),
            differs=True,
        )


def _checked_score(row: Row, metric: str, value: float | None, factor: float) -> Check:
    """Compare a recorded score with the new one.

    They count as equal up to half a unit of the last recorded digit plus the noise of float32.

    Args:
        value: the new score as a fraction; None if there is none.
        factor: from the fraction to the recorded unit, usually 100.
    """
    score = row.scores[metric]
    # Decimal(float) has dozens of digits. Twice the decimal places of rows are more than enough:
    # only the noise of the float is cut off.
    again = None if value is None else round(Decimal(factor * value), 2 * PLACES)
    allowed = Decimal("0.5").scaleb(int(score.as_tuple().exponent)) + NOISE
    differs = again is None or abs(again - score) > allowed
    return Check(source=row.source, field=metric, recorded=score, rescored=again, differs=differs)


class _OtherField(NamedTuple):
    """A field of a row with its value, and the value that it should have."""

    field: str
    found: object
    expected: object


def _differing(row: Row, anew: Row) -> Iterator[_OtherField]:
    """Yield the fields of a row that contradict the row `anew`, which was built from the same file.
    A run's row may be of an earlier year than `anew`, but must not exclude any of its scores from
    the ranking (`unranked`), as a paper's row may."""
    if row.dim != anew.dim:
        yield _OtherField(field="dim", found=row.dim, expected=anew.dim)
    if row.unranked:
        yield _OtherField(field="unranked", found=", ".join(row.unranked), expected="nothing")
    if row.year is not None and anew.year is not None and row.year > anew.year:
        yield _OtherField(field="year", found=row.year, expected=f"{anew.year} or before")


def _differing_names(run: RunProvenance, names: SubmittedFile | None) -> Iterator[_OtherField]:
    """Yield the field `names` if the vectors of names are not those of the row."""
    # rows of old versions have the sha256 of the file instead of the content
    of_file = (None,) if names is None else (names.content, names.sha256)
    if run.names not in of_file:
        yield _OtherField(field="names", found=run.names, expected=of_file[0])


def _differing_in_run(run: RunProvenance, anew: RunProvenance) -> Iterator[_OtherField]:
    """Yield the fields in which `run`, as the row states it, contradicts `anew`, the same run made
    just now. The row's dates and versions may be earlier, but not later. The row may append further
    doubts to those of `anew`."""
    if run.queries != anew.queries:
        yield _OtherField(field="queries", found=run.queries, expected=anew.queries)
    if run.date > anew.date:
        yield _OtherField(field="date", found=run.date, expected=f"{anew.date} or before")
    if (run.verified or "").partition(",")[0] > anew.date:  # the mark begins with its date
        yield _OtherField(field="verified", found=run.verified, expected=f"{anew.date} or before")
    if not (run.doubt or "").startswith(anew.doubt or ""):
        yield _OtherField(field="doubt", found=run.doubt, expected=anew.doubt)
    # the signature contains hbench's version (major.minor), which may be older in the row
    version = Signature.parse(run.signature).version
    made = str(replace(Signature.parse(anew.signature), version=version))
    # compared as text: two spellings of the same conditions would allow two rows for one file
    if run.signature != made:
        yield _OtherField(field="signature", found=run.signature, expected=made)
    if version != ".".join(run.hbench.split(".")[:2]):
        yield _OtherField(
            field="hbench", found=run.hbench, expected=f"{version}.…, as in the signature"
        )
    elif _numbers(run.hbench) > _numbers(anew.hbench):
        yield _OtherField(field="hbench", found=run.hbench, expected=f"{anew.hbench} or before")


def _numbers(version: str) -> list[int]:
    """The numbers in a version, so that versions can be compared: 0.10 is after 0.9."""
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)]
