"""Reads a ranking, which can be submitted instead of embeddings: for each query, the gallery items
that a system returned, best first.

Three forms of files are distinguished by their content: a table with one row per query, such as
Google Landmarks' CSV `id,images` (space-separated, best first); a TREC run (`query Q0 item rank
score tag`); and rows, CSV or parquet, with the columns query, item and score (or rank). CSV and
runs may be compressed (.gz). JSON is read as well (`json_runs`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.core.text import counted
from hbench.sheets import sheet
from hbench.sheets.dialect import is_compressed, suffix_of
from hbench.sheets.text import TextTable
from hbench.submissions import content
from hbench.submissions.embeddings import digest
from hbench.submissions.embeddings.files import VECTORS_ALONE, readable
from hbench.submissions.embeddings.ids import Ids, rows_in
from hbench.submissions.problems import SubmissionProblem
from hbench.submissions.rankings import json_runs, trec
from hbench.submissions.rankings.columns import parquet_reader, text_reader
from hbench.submissions.rankings.lines import Lines

FORMS = (
    "a CSV headed id,images, a TREC run of six columns, or CSV or parquet with query, item and "
    "score or rank"
)
PADDING = ("-1", "-1.0")  # faiss and others write these where they found no further item
Reader = Callable[[Path], Lines]


@dataclass(frozen=True)
class Ranking:
    """A submitted ranking: the list of query i is `names[items[offsets[i]:offsets[i + 1]]]`, best
    first. A list may be empty.

    Equal scores are a tie. Tied items are stored in the order of their names, and a ties policy
    decides how they are ranked.

    Attributes:
        queries: the ids of the queries, str (Q,).
        names: the ids of all listed items, each once, str (M,).
        offsets: (Q + 1,).
        items: every listed item, as its index in `names`, (n,).
        scores: of the listed items, (n,); None where the file gives an order without scores.
        sha256: of the file.
        source: the name of the file.
        understood: how the file was understood, in sentences.
        remarks: contradictions in the file.
    """

    queries: Ids
    names: Ids
    offsets: NDArray[np.int64]
    items: NDArray[np.int64]
    scores: NDArray[np.float64] | None
    sha256: str
    source: str
    understood: tuple[str, ...] = ()
    remarks: tuple[SubmissionProblem, ...] = ()

    @cached_property
    def depth(self) -> int:
        """The last rank that an item has in the longest list; beyond it, nothing is known of any
        query. The query itself and padding have no rank. A repeat holds one, as a wrong result."""
        lists = self.list_of_line
        own_list = rows_in(self.names, self.queries)[self.items]  # the list whose query the item is
        has_rank = (own_list != lists) & ~np.isin(self.names, PADDING)[self.items]
        ranked = np.concatenate([[0], np.cumsum(has_rank)])  # (n + 1,), lines with a rank before
        ranks = ranked[1:] - ranked[self.offsets[:-1]][lists]
        return int(ranks[has_rank].max(initial=0))

    @property
    def list_of_line(self) -> NDArray[np.int64]:
        """The index of the list, or query, to which each line belongs, int64 (n,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def repeats(self) -> NDArray[np.bool_]:
        """Whether each line repeats an item that stands earlier in the same list, bool (n,)."""
        # one number for each pair of a list and an item; `unique` returns the first line of each
        pairs = self.list_of_line * len(self.names) + self.items
        _, first_lines = np.unique(pairs, return_index=True)
        again = np.ones(len(pairs), bool)
        again[first_lines] = False
        return again

    @cached_property
    def content(self) -> str:
        """The sha256 of the lists themselves, which does not depend on the file format."""
        return content.of_lists(
            self.queries, self.names, offsets=self.offsets, items=self.items, scores=self.scores
        )

    def __len__(self) -> int:
        return len(self.queries)


def kind_of(path: Path) -> Literal["embeddings", "ranking"]:
    """Whether a file or folder holds a ranking, judged by its content. A file that was meant as a
    ranking counts as one, so that it is refused as one. Anything else counts as embeddings."""
    return "embeddings" if _reader_of(Path(path)) is None else "ranking"


def read(path: Path) -> Ranking:
    """The ranking in a file; raises SubmissionError when it is missing, damaged, empty, or no
    ranking.
    """
    path = Path(path)
    if not path.exists():
        raise SubmissionError(f"{path} does not exist", expected="a ranking file")
    reader = _reader_of(path)
    if reader is None:
        raise SubmissionError(f"{path} is not a ranking", expected=FORMS)
    with readable(path):
        lines = reader(path)
    if not len(lines.queries):
        raise SubmissionError(
            f"{path} is empty", expected="one list of items per query", found="no query"
        )
    return _ranking_of_lines(lines, path)


def _ranking_of_lines(lines: Lines, path: Path) -> Ranking:
    """Build a ranking from lines, one per listed item. Each query's list is sorted by descending
    score, then by name; without scores it keeps the order of the lines. `lines.of` (n,) is the
    query of each line, as its index in `lines.queries`."""
    # `names` (M,) holds each item once; `codes` (n,) is the index in `names` of each line's item
    encoded = lines.items.dictionary_encode()
    names = encoded.dictionary
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # stable: without scores each list stays in the order of its lines
    order = np.argsort(lines.of, kind="stable")

    if lines.scores is not None:
        alphabetical = np.empty(len(names), np.int64)  # the position of each name in the alphabet
        alphabetical[pc.sort_indices(names).to_numpy()] = np.arange(len(names))
        # by query, then by score, then by name: the last key of lexsort is the first to sort by
        order = np.lexsort((alphabetical[codes], -lines.scores, lines.of))

    lengths = np.bincount(lines.of, minlength=len(lines.queries))  # (Q,), of the lists
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Ranking(
        queries=_objects(lines.queries),
        names=_objects(names),
        offsets=offsets,
        items=codes[order],
        scores=None if lines.scores is None else lines.scores[order],
        sha256=digest(sorted(path.glob("*.parquet")) if path.is_dir() else [path]),
        source=path.name,
        understood=(_in_words(lines, path),),
        remarks=lines.remarks,
    )


def _in_words(lines: Lines, path: Path) -> str:
    """One sentence that says how the file was understood, and how many queries and items it has."""
    counts = (
        f"{counted(len(lines.queries), 'query', 'queries')}, "
        f"{counted(len(lines.items), 'item')} listed"
    )
    left_out = f"; left out: {examples(lines.left_out)}" if lines.left_out else ""
    return f"{path.name}: {lines.form}; {counts}, {lines.order}{left_out}"


def _reader_of(path: Path) -> Reader | None:
    """The function that reads a file as a ranking, chosen by the file's content; None if the file
    is no ranking or does not exist. For a file that was meant as a ranking but cannot be read as
    one, this function or the returned one raises SubmissionError."""
    if not path.exists():
        return None
    if path.is_dir() or suffix_of(path) == ".parquet":
        return parquet_reader(path)
    return None if suffix_of(path) in VECTORS_ALONE else _reader_of_text(path)


def _reader_of_text(path: Path) -> Reader | None:
    """The function that reads a text file as a ranking, chosen by the content of the file; None if
    the file is no ranking. See `_reader_of`."""
    if suffix_of(path) in (".json", *sheet.LINES):
        return json_runs.reader(path)
    text = TextTable(path)
    head = text.head  # the first lines, None where the bytes are no text
    # whether the suffix, such as .run, means a TREC run: then even a damaged file is meant as one
    is_named = suffix_of(path) in trec.SUFFIXES
    # runs are read as UTF-8 only: no program writes one in another encoding, and `text.encoding` is
    # "" for UTF-8. The functions `_no_…` raise the error of a damaged run
    if head is None or (is_named and text.encoding):
        return _no_text if is_named else None
    if not head.lines:
        return _no_line if is_named else None
    if trec.is_run(head):
        return trec.read
    # if no other reader fits, the file may still be meant as a run: `trec.read` raises its error
    return text_reader(text) or (trec.read if trec.is_meant(path, head) else None)


def _no_text(path: Path) -> Lines:
    """Raise SubmissionError for a file that is named like a TREC run, such as x.run, but is no text
    in UTF-8. This function is returned in place of a reader, so it takes a path as readers do."""
    if is_compressed(path):
        raise SubmissionError(
            f"{path} is not a ranking: it is no text in UTF-8, compressed by gzip",
            expected=FORMS,
            fix="take .gz from its name if it is not compressed",
        )
    raise SubmissionError(
        f"{path} is not a ranking: it is not a text in UTF-8",
        expected=FORMS,
        fix="save it as UTF-8",
    )


def _no_line(path: Path) -> Lines:
    """Raise SubmissionError for a file that is named like a TREC run, such as x.run, but is empty.
    The signature is that of a reader, which stands in for one."""
    raise SubmissionError(f"{path} is not a ranking: it is empty", expected=FORMS, found="no line")


def _objects(texts: pa.Array) -> Ids:
    """Arrow texts (N,) as a NumPy array of Python strings."""
    return np.asarray(texts.to_numpy(zero_copy_only=False), dtype=object)
