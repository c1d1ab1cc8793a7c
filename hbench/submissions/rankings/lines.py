"""The lines of a ranking before they are put in order: one per returned item, with its query, name
and score.

Every form of file becomes these; what a form says beside them, such as ranks, is compared with them
here.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.submissions.problems import SubmissionProblem, found

# a score; anything else is named as no finite number
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
BY_SCORE = "by score"
BY_RANK = "by rank"
BY_DISTANCE = "nearest first"


@dataclass(frozen=True)
class Lines:
    """One row per returned item, in the order of the file.

    `queries` (Q,): the ids, each once. `of` (n,): the query of each line, by its place among these.
    `items` (n,): the names of the items. `scores` (n,): higher is better; None where the lists are
    in order. `form`: what the file was taken for, in words; `order`: by what its lists are ordered;
    `left_out`: what of the file does not count, in words; `remarks`: what contradicts itself.
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
    """The lines of a file with a score each; `query`, `item`, `scores` (n,), in its order.
    `numbers`: the number of each line in the file, None: they count from 1. SubmissionError is
    raised for scores that are no finite numbers, and says what was `expected` and how to `fix` it.
    """
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        shown = bad + 1 if numbers is None else numbers[bad]  # people count from 1
        raise SubmissionError(
            f"{path} has {len(bad):,} scores that are not finite numbers",
            found=f"rows {examples(shown)}",
            expected=expected,
            fix=fix,
        )
    queries, items = (column.cast(pa.large_string()).combine_chunks() for column in (query, item))
    # each query once, in the order of its first line, and of every line which of these it has
    encoded = queries.dictionary_encode()
    of = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Lines(encoded.dictionary, of, items, scores, order=BY_SCORE)


def as_numbers(texts: pa.Array) -> NDArray[np.float64]:
    """The numbers (n,) that texts are, such as "+1e-3", NaN for those that are none; Arrow, which
    reads them, knows no sign +."""
    numbers = pc.if_else(pc.match_substring_regex(texts, NUMBER), pc.ascii_ltrim(texts, "+"), "nan")
    return np.asarray(numbers.cast(pa.float64()).to_numpy(zero_copy_only=False))


def remark_on_rising_scores(lines: Lines) -> tuple[SubmissionProblem, ...]:
    """A remark where the scores rise from line to line in every list, as distances do in results
    that are written nearest first."""
    if lines.scores is None or len(lines.of) < 2:
        return ()
    is_within = np.diff(lines.of) == 0  # whether a line is of the same query as the one before it
    # queries are numbered by their first line, so they ascend where each one's lines are together
    is_grouped = bool((np.diff(lines.of) >= 0).all())
    rises = np.diff(lines.scores)[is_within]
    # lines that are not query by query were not written list by list, and their order says nothing
    if not is_grouped or not len(rises) or not (rises > 0).all():
        return ()
    telling = np.unique(lines.of[1:][is_within])  # queries whose lists have several lines
    names = lines.queries.take(pa.array(telling[:5])).to_pylist()  # as many as a message shows
    kind = "lists, all that tell, in which the scores ascend in the order of the lines"
    fix = "are these distances? The scores decide: negate them, or call the column distance"
    return tuple(found(kind, names, len(telling), fix, fatal=False))


def remark_on_ranks(lines: Lines, ranks: NDArray[np.float64]) -> tuple[SubmissionProblem, ...]:
    """A remark where the stated ranks (n,) contradict the scores in every list that has several of
    both: by distances, which grow with the rank, or otherwise."""
    # no scores, no ranks, or ranks that are no numbers: nothing to compare
    if lines.scores is None or not len(ranks) or not np.isfinite(ranks).all():
        return ()

    # queries are numbered by their first line, so they ascend where each one's lines are together
    steps = np.diff(lines.of)  # from line to line: 0 within a list
    are_grouped = bool((steps >= 0).all())
    sorted_already = are_grouped and bool((np.diff(ranks)[steps == 0] >= 0).all())
    # lines by query, then by rank: of each list, which begins at `first` and ends at `last`, the
    # scores at its first and last rank are compared with its lowest and highest
    order = np.arange(len(ranks)) if sorted_already else np.lexsort((ranks, lines.of))
    of = lines.of[order]
    scores = lines.scores[order]
    by_rank = ranks[order]
    first = np.flatnonzero(np.diff(of, prepend=-1))  # −1 is no query: the first line begins a list
    last = np.append(first[1:], len(of)) - 1
    low = np.minimum.reduceat(scores, first)
    high = np.maximum.reduceat(scores, first)
    # lists of one score, or of one rank, contradict nothing
    telling = np.flatnonzero((low < high) & (by_rank[first] < by_rank[last]))
    if not len(telling):
        return ()

    names = lines.queries.take(pa.array(of[first[telling[:5]]])).to_pylist()  # a message shows 5
    if ((scores[first] == low) & (scores[last] == high))[telling].all():
        kind = "lists, all that tell, in which rank 1 has the lowest score"
        fix = "are these distances? The scores decide: negate them if they are"
    elif (scores[first] < high)[telling].all():
        kind = "lists, all that tell, in which rank 1 has not the highest score"
        fix = "the scores decide, and the ranks say nothing"
    else:
        return ()

    return tuple(found(kind, names, len(telling), fix, fatal=False))
