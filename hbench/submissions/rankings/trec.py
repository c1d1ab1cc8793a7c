"""Reads TREC runs, `query Q0 item rank score tag`, the format of trec_eval, Anserini, PyTerrier,
ranx and ir_measures.

As in trec_eval, the lists are sorted by score and the column of ranks is not used; ranks that
contradict the scores give a remark. For a damaged file that was meant as a run, by its suffix or
its content, the error names what is wrong with the run.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples, shorten
from hbench.core.text import counted
from hbench.sheets.dialect import Head, suffix_of
from hbench.sheets.text import TextTable
from hbench.submissions.problems import in_a_line
from hbench.submissions.rankings.lines import (
    DECIMAL_COMMA,
    Lines,
    as_numbers,
    lines_with_scores,
    remark_on_ranks,
)

FIELDS = 6
COLUMNS = "query Q0 item rank score tag"
SUFFIXES = (".trec", ".run", ".res", ".txt")
MOST_FIELDS = 12  # a line with more fields is no line of a run, but, say, a vector
COUNTS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def is_run(head: Head) -> bool:
    """Whether the first line, or the second below a header, has the six columns of a run."""
    return any(_is_line(line) for line in head.lines[:2])


def is_meant(path: Path, head: Head) -> bool:
    """Whether a file was meant as a run: by its suffix, or by the Q0 in its second column."""
    # Many more columns than a run has are a table of numbers. A comma in the first field means that
    # the line is one of a CSV.
    fields = head.lines[0].split() if head.lines else []
    if suffix_of(path) in SUFFIXES:
        return len(fields) <= MOST_FIELDS
    return (
        3 < len(fields) <= MOST_FIELDS and fields[1] in ("Q0", "q0", "0") and "," not in fields[0]
    )


def read(path: Path) -> Lines:
    """The lines of a TREC run; a header and empty lines are skipped. Raises SubmissionError for
    lines without six columns, and for scores that are no numbers."""
    lines = pc.ascii_trim_whitespace(TextTable(path).lines())
    # (n,): the line numbers of lines that are not empty, counted from 1, for errors
    filled = pc.not_equal(lines, "")
    numbers = np.flatnonzero(filled.to_numpy(zero_copy_only=False)) + 1
    fields = pc.ascii_split_whitespace(
        lines if len(numbers) == len(lines) else lines.filter(filled)
    )
    # a file with a header alone keeps it, and is refused below since its score is no number
    if len(fields) > 1 and _is_header(fields[0].as_py()):
        fields = fields.slice(1)
        numbers = numbers[1:]

    lengths = pc.list_value_length(fields).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != FIELDS)
    if len(wrong):
        raise _refusal(
            path,
            numbers[wrong],
            fields[int(wrong[0])].as_py(),
            all_of_them=len(wrong) == len(fields),
        )

    # the columns Q0 and tag are not needed
    query, item, rank, score = (pc.list_element(fields, place) for place in (0, 2, 3, 4))
    found = lines_with_scores(
        path,
        pa.chunked_array([query], pa.large_string()),
        pa.chunked_array([item], pa.large_string()),
        as_numbers(score),
        numbers=numbers,
        expected=f"a TREC run, {COLUMNS}",
        fix=_about_commas(score),  # None if no score has a decimal comma
    )

    return replace(found, form="a TREC run", remarks=remark_on_ranks(found, _ranks(rank)))


def _ranks(texts: pa.Array) -> NDArray[np.float64]:
    """Ranks as numbers, (n,). If some text is no number, the result is empty, (0,): ranks only
    serve a remark, so this is no error."""
    try:
        return np.asarray(texts.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return np.zeros(0)


def _is_line(line: str) -> bool:
    """Whether a line has the six columns of a run, with numbers for rank and score."""
    fields = line.split()
    return len(fields) == FIELDS and _is_number(fields[3]) and _is_number(fields[4])


def _is_number(text: str) -> bool:
    """Whether a text is a number as Python reads it, such as 1e-3, nan or inf."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_header(fields: list[str]) -> bool:
    """Whether a line names the columns: it has words in place of the rank and the score."""
    return len(fields) == FIELDS and all(
        name.isalpha() and not _is_number(name) for name in fields[3:5]
    )


def _about_commas(scores: pa.Array) -> str | None:
    """The advice of an error about scores with decimal commas; None if no score has one."""
    comma = scores.filter(pc.match_substring_regex(scores, DECIMAL_COMMA))
    if not len(comma):
        return None
    text = shorten(str(comma[0]))
    return f"the scores have decimal commas: write {text.replace(',', '.')} for {text}"


def _refusal(
    path: Path, numbers: NDArray[np.int64], fields: list[str], *, all_of_them: bool
) -> SubmissionError:
    """The error for lines without six columns.

    Args:
        path: of the file.
        numbers: the line numbers of the wrong lines, (n,).
        fields: the columns of the first wrong line.
        all_of_them: whether all lines are wrong; then the file is no ranking at all.
    """
    count = len(fields)
    in_words = COUNTS[count] if count < len(COUNTS) else f"{count:,}"
    columns = "column" if count == 1 else "columns"
    told = f"line {numbers[0]:,} has {in_words} {columns}"
    if not all_of_them:
        return SubmissionError(
            f"{path} has {counted(len(numbers), 'line')} without six columns",
            expected=COLUMNS,
            found=f"rows {examples(numbers)}; {told}: {in_a_line(' '.join(fields))}",
        )

    return SubmissionError(
        f"{path} is not a ranking: {told}; a TREC run has six: {COLUMNS}",
        expected=COLUMNS,
        found=in_a_line(" ".join(fields)),
        fix=_about_columns(fields),
    )


def _about_columns(fields: list[str]) -> str | None:
    """The advice of an error about a line that does not have the six columns of a run.

    Three cases are recognised: a run without tag, judgements (query, 0, item, relevance), and rows
    of query, item and score. None in any other case.
    """
    if (
        len(fields) == 5
        and fields[1].casefold() == "q0"
        and _is_number(fields[3])
        and _is_number(fields[4])
    ):
        return "add the last column, the tag, any word that names the system"
    if len(fields) == 4 and fields[1] in ("0", "Q0") and _is_number(fields[3]):
        return "these look like judgements (qrels); submit the run that they judge"
    if len(fields) == 3 and _is_number(fields[2]):
        return "write Q0 after the query, and a rank and a tag around the score"
    return None
