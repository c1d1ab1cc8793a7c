"""A ranking: for each query the gallery items a system returned, best first; what is submitted instead of embeddings.

Three forms are told apart by what they hold: Google Landmarks' CSV `id,images` (space-separated, best first), a TREC
run (`query Q0 item rank score tag`), and parquet with the columns query, item and score (or rank).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.core.untrusted import open_parquet, parquet_table
from hbench.evaluation.embeddings import digest
from hbench.evaluation.embeddings.files import READERS as EMBEDDING_SUFFIXES
from hbench.evaluation.embeddings.files import readable
from hbench.evaluation.embeddings.ids import Ids

QUERY_NAMES = ("query", "query_id", "qid")
ITEM_NAMES = ("item", "item_id", "gallery_id", "docid")
TREC_FIELDS = 6
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"  # a score; anything else is named as no finite number
FIRST_BYTES = 1 << 16


@dataclass(frozen=True)
class Ranking:
    """`queries` (Q,) str; the list of query i is `names[items[offsets[i]:offsets[i + 1]]]`, best first.

    `names` (M,) str: the different items of the file; `items` int64 (n,): every listed one by its row in `names`.
    `scores` float64 (n,), None where the file states an order and no scores. Equal scores are a tie: here they lie
    in the order of their names, and a ties policy decides what they are worth. A list may be empty.
    """

    queries: Ids
    names: Ids
    offsets: NDArray[np.int64]
    items: NDArray[np.int64]
    scores: NDArray[np.float64] | None
    sha256: str
    source: str

    @property
    def depth(self) -> int:
        """The length of the longest list: the cut up to which the ranking says anything."""
        return int(np.diff(self.offsets).max(initial=0))

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class _Lines:
    """One row per returned item: its query (a row of `queries`), its name, and its score."""

    queries: pa.Array
    of: NDArray[np.int64]
    items: pa.Array
    scores: NDArray[np.float64] | None


def kind_of(path: Path) -> Literal["embeddings", "ranking"]:
    """Whether a file or folder holds a ranking, by its content; anything else is taken for embeddings."""
    return "embeddings" if _reader_of(Path(path)) is None else "ranking"


def read(path: Path) -> Ranking:
    """The ranking in a file; raises SubmissionError when it is missing, damaged, empty, or no ranking."""
    path = Path(path)
    if not path.exists():
        raise SubmissionError(f"{path} does not exist", expected="a ranking file")
    reader = _reader_of(path)
    if reader is None:
        raise SubmissionError(
            f"{path} is not a ranking",
            expected="a CSV headed id,images, a TREC run of six columns, or parquet with query, item and score or rank",
        )
    with readable(path):
        lines = reader(path)
    if not len(lines.queries):
        raise SubmissionError(f"{path} is empty", expected="one list of items per query", found="no query")
    return _ranked(lines, path)


def _ranked(lines: _Lines, path: Path) -> Ranking:
    """Lists by query, each by descending score and then by name."""
    encoded = lines.items.dictionary_encode()
    names = encoded.dictionary
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(lines.of, kind="stable")
    if lines.scores is not None:
        by_name = np.empty(len(names), np.int64)
        by_name[pc.sort_indices(names).to_numpy()] = np.arange(len(names))
        order = np.lexsort((by_name[codes], -lines.scores, lines.of))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(lines.of, minlength=len(lines.queries)))]).astype(np.int64)
    return Ranking(
        queries=_objects(lines.queries),
        names=_objects(names),
        offsets=offsets,
        items=codes[order],
        scores=None if lines.scores is None else lines.scores[order],
        sha256=digest(sorted(path.glob("*.parquet")) if path.is_dir() else [path]),
        source=path.name,
    )


def _read_landmarks(path: Path) -> _Lines:
    """Google Landmarks' submission: no value is ever "missing" ("NA" is an id), an empty list is allowed."""
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(
            column_names=["id", "images"], skip_rows=1, block_size=min(max(path.stat().st_size, FIRST_BYTES), 2**31 - 1)
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types={"id": pa.string(), "images": pa.large_string()}),
    ).combine_chunks()
    queries = table["id"].combine_chunks()
    counts = pc.value_counts(queries)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    if repeated:
        raise SubmissionError(
            f"{path} lists {len(repeated):,} queries more than once",
            expected="one row per query",
            found=examples(repeated),
        )
    lists = pc.split_pattern(table["images"].combine_chunks(), " ")
    items = lists.flatten()
    of = np.repeat(np.arange(len(queries)), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    named = pc.not_equal(items, "")
    return _Lines(queries, of[named.to_numpy(zero_copy_only=False).astype(bool)], items.filter(named), None)


def _read_trec(path: Path) -> _Lines:
    """A TREC run; as in trec_eval the score orders, and the column of ranks says nothing."""
    whole = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=["line"]),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\x1f", quote_char=False),  # a whole line is one cell
        convert_options=pyarrow.csv.ConvertOptions(column_types={"line": pa.large_string()}),
    )
    lines = pc.ascii_trim_whitespace(whole["line"].combine_chunks())
    fields = pc.ascii_split_whitespace(lines.filter(pc.not_equal(lines, "")))
    lengths = pc.list_value_length(fields).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != TREC_FIELDS)
    if len(wrong):
        raise SubmissionError(
            f"{path} has {len(wrong):,} lines without six columns",
            expected="query Q0 item rank score tag", found=f"rows {examples(wrong + 1)}",
        )  # fmt: skip
    query, item, score = (pc.list_element(fields, place) for place in (0, 2, 4))
    numbers = pc.if_else(pc.match_substring_regex(score, NUMBER), pc.ascii_ltrim(score, "+"), "nan")
    return _scored(pa.chunked_array([query]), pa.chunked_array([item]), numbers.cast(pa.float64()).to_numpy(), path)


def _read_rows(path: Path) -> _Lines:
    """Parquet rows of query, item and score; rank r is the score −r where there is no score."""
    names = _parquet_names(path)
    query = next(name for name in names if name in QUERY_NAMES)
    item = next(name for name in names if name in ITEM_NAMES)
    value = "score" if "score" in names else "rank"
    table = _table(path, [query, item, value])
    if table[query].null_count or table[item].null_count:
        raise SubmissionError(f"{path} has rows without a query or an item")
    scores = table[value].cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
    return _scored(table[query], table[item], scores if value == "score" else -scores, path)


def _table(path: Path, columns: list[str]) -> pa.Table:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return pa.concat_tables([parquet_table(file, columns=columns) for file in files])


def _scored(query: pa.ChunkedArray, item: pa.ChunkedArray, scores: NDArray[np.float64], path: Path) -> _Lines:
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise SubmissionError(
            f"{path} has {len(bad):,} scores that are not finite numbers", found=f"rows {examples(bad + 1)}"
        )
    queries, items = (column.cast(pa.large_string()).combine_chunks() for column in (query, item))
    encoded = queries.dictionary_encode()
    of = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return _Lines(encoded.dictionary, of, items, scores)


def _is_landmarks(path: Path) -> bool:
    header = _first_line(path).removeprefix("\ufeff").replace('"', "")
    return [name.strip().casefold() for name in header.split(",")] == ["id", "images"]


def _is_trec(path: Path) -> bool:
    fields = _first_line(path).split()
    return len(fields) == TREC_FIELDS and _is_number(fields[3]) and _is_number(fields[4])


def _is_rows(path: Path) -> bool:
    names = _parquet_names(path)
    return (
        any(name in QUERY_NAMES for name in names)
        and any(name in ITEM_NAMES for name in names)
        and ("score" in names or "rank" in names)
    )


def _parquet_names(path: Path) -> list[str]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.suffix.lower() == ".parquet" else []
    if not files:
        return []
    try:
        with open_parquet(files[0]) as file:
            return list(file.schema_arrow.names)
    except (pa.ArrowException, OSError, ValueError):
        return []  # damaged: the reader of embeddings says so


def _first_line(path: Path) -> str:
    """The first line of a file of text; empty for one of another kind."""
    if path.is_dir() or path.suffix.lower() in EMBEDDING_SUFFIXES:
        return ""
    with path.open("rb") as file:
        first = file.readline(FIRST_BYTES)
    try:
        return first.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _reader_of(path: Path) -> Callable[[Path], _Lines] | None:
    return next((read for recognises, read in FORMS if path.exists() and recognises(path)), None)


def _objects(texts: pa.Array) -> Ids:
    return np.asarray(texts.to_numpy(zero_copy_only=False), dtype=object)


FORMS: tuple[tuple[Callable[[Path], bool], Callable[[Path], _Lines]], ...] = (
    (_is_landmarks, _read_landmarks), (_is_trec, _read_trec), (_is_rows, _read_rows),
)  # fmt: skip
