"""The lines of a ranking before they are sorted: one per returned item, with its query, name and
score.

The readers of all file formats return these lines. Ranks that a file states beside its scores are
compared with the scores here.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.core.text import counted
from hbench.submissions.problems import SubmissionProblem, found

# how a score is written; any other text is refused as no finite number
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
BY_SCORE = "by score"
BY_RANK = "by rank"
BY_DISTANCE = "nearest first"


@dataclass(frozen=True)
class Lines:
    """The lines of a ranking, one per returned item, in the order of the file.

    Attributes:
        queries: the ids of the queries, each once, (Q,).
        of: the query of each line, as its index in `queries`, (n,).
        items: the ids of the items, (n,).
        scores: higher is better, (n,); None where the lines of each list are in order already.
        form: how the file was understood, in words.
        order: by what the lists are ordered, in words.
        left_out: the parts of the file that are not used, in words.
        remarks: contradictions in the file.
    """

    queries: pa.Array
    of: NDArray[np.int64]
    items: pa.Array
    scores: NDArray[np.float64] | None
    form: str = "a ranking"
    order: str = "in the order of the lists"
    left_out: tuple[str, ...] = ()
    remarks: tuple[SubmissionProblem, ...] = ()


def lines_with_scores(
    path: Path,
    query: pa.ChunkedArray,
    item: pa.ChunkedArray,
    scores: NDArray[np.float64],
    *,
    numbers: NDArray[np.int64] | None = None,
    expected: str | None = None,
    fix: str | None = None,
) -> Lines:
    """The lines of a file in which each line has a score. Raises SubmissionError for scores that
    are no finite numbers.

    Args:
        path: of the file, for errors.
        query: the query's id in each line, (n,).
        item: the item's id in each line, (n,).
        scores: (n,).
        numbers: the number of each line in the file, for errors, (n,). None: lines count from 1.
        expected: what an error says was expected.
        fix: what an error says to do.
    """
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        shown = bad + 1 if numbers is None else numbers[bad]  # people count from 1
        raise SubmissionError(
            f"{path} has {counted(len(bad), 'score that is no', 'scores that are no')} finite "
            "number",
            found=f"rows {examples(shown)}",
            expected=expected,
            fix=fix,
        )
    queries, items = (column.cast(pa.large_string()).combine_chunks() for column in (query, item))
    # the dictionary has each query once, in the order of their first lines
    encoded = queries.dictionary_encode()
    of = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Lines(encoded.dictionary, of, items, scores, order=BY_SCORE)


def as_numbers(texts: pa.Array) -> NDArray[np.float64]:
    """Texts such as "+1e-3" as numbers, (n,); NaN for a text that is no number."""
    # Arrow cannot parse a sign +, so it is removed
    numbers = pc.if_else(pc.match_substring_regex(texts, NUMBER), pc.ascii_ltrim(texts, "+"), "nan")
    return np.asarray(numbers.cast(pa.float64()).to_numpy(zero_copy_only=False))


def remark_on_rising_scores(lines: Lines) -> tuple[SubmissionProblem, ...]:
    """A remark if the scores rise from line to line in every list: they may be distances, written
    nearest first."""
    if lines.scores is None or len(lines.of) < 2:
        return ()
    is_within = np.diff(lines.of) == 0  # whether a line has the same query as the line before
    # queries are numbered by their first lines, so the numbers only ascend if each query's lines
    # are together
    is_grouped = bool((np.diff(lines.of) >= 0).all())
    rises = np.diff(lines.scores)[is_within]
    # if the lines of a query are scattered, the order of the lines says nothing
    if not is_grouped or not len(rises) or not (rises > 0).all():
        return ()
    telling = np.unique(lines.of[1:][is_within])  # queries whose lists have several lines
    names = lines.queries.take(pa.array(telling[:5])).to_pylist()  # a message shows 5
    kind = "lists, all that tell, in which the scores ascend in the order of the lines"
    fix = "are these distances? The scores decide: negate them, or call the column distance"
    return tuple(found(kind, names, len(telling), fix, fatal=False))


def remark_on_ranks(lines: Lines, ranks: NDArray[np.float64]) -> tuple[SubmissionProblem, ...]:
    """A remark if the stated ranks (n,) contradict the scores in every list that has at least two
    different ranks and scores. The remark says whether the scores look like distances, which grow
    with the rank."""
    # without scores, or without ranks that are numbers, there is nothing to compare
    if lines.scores is None or not len(ranks) or not np.isfinite(ranks).all():
        return ()

    # `lines.of` has the number of each line's query. Queries are numbered in the order of their
    # first lines, so these numbers ascend only if each query's lines are together.
    steps = np.diff(lines.of)  # 0 between lines of one list
    are_grouped = bool((steps >= 0).all())
    sorted_already = are_grouped and bool((np.diff(ranks)[steps == 0] >= 0).all())
    # sort the lines by query, then by rank
    order = np.arange(len(ranks)) if sorted_already else np.lexsort((ranks, lines.of))
    of = lines.of[order]
    scores = lines.scores[order]
    by_rank = ranks[order]
    # the first and last line of each list, and its lowest and highest score; the prepended −1 is no
    # query, so that line 0 begins a list
    first = np.flatnonzero(np.diff(of, prepend=-1))
    last = np.append(first[1:], len(of)) - 1
    low = np.minimum.reduceat(scores, first)
    high = np.maximum.reduceat(scores, first)
    # a list with one score only, or one rank only, contradicts nothing
    telling = np.flatnonzero((low < high) & (by_rank[first] < by_rank[last]))
    if not len(telling):
        return ()

    names = lines.queries.take(pa.array(of[first[telling[:5]]])).to_pylist()  # a message shows 5
    # The first case: in every telling list, rank 1 has the lowest score, and the last rank the
    # highest. The second case: in every telling list, rank 1 has a score below the highest.
    if ((scores[first] == low) & (scores[last] == high))[telling].all():
        kind = "lists, all that tell, in which rank 1 has the lowest score"
        fix = "are these distances? The scores decide: negate them if they are"
    elif (scores[first] < high)[telling].all():
        kind = "lists, all that tell, in which rank 1 has not the highest score"
        fix = "the scores decide, and the ranks say nothing"
    else:
        return ()

    return tuple(found(kind, names, len(telling), fix, fatal=False))
