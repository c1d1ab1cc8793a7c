"""Reads rankings in tables, CSV or parquet: rows of query, item and score, or one row per query
with the list of its items.

Columns are recognised by the names that ranx, PyTerrier, ir_measures and Google Landmarks use. A
column of another name is taken for the lists only if its cells hold several names each and it is
the only such column. Columns that are not needed are left out, and the user is told so.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError
from hbench.core.text import counted
from hbench.core.untrusted import open_parquet, parquet_table
from hbench.sheets import words
from hbench.sheets.dialect import CALLED, suffix_of
from hbench.sheets.text import TextTable
from hbench.sheets.words import first_of, folded
from hbench.submissions.embeddings.arrow_types import texts_of
from hbench.submissions.problems import listed
from hbench.submissions.rankings.lines import (
    BY_SCORE,
    DECIMAL_COMMA,
    NUMBER,
    Lines,
    as_numbers,
    lines_with_scores,
    remark_on_ranks,
    remark_on_rising_scores,
)
from hbench.submissions.rankings.roles import (
    Roles,
    are_several,
    asks,
    roles_of_lists,
    roles_of_rows,
)

BETWEEN = (",", ";", "|")
ORDERS = (*words.SCORES, *words.POSITIONS, *words.DISTANCES)
IN_BRACKETS = re.compile(r"^\s*[\[(].*[\])]\s*$", re.DOTALL)
QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def text_reader(text: TextTable) -> Callable[[Path], Lines] | None:
    """The function that reads a text table as a ranking; None if the table is no ranking.

    For a table that was meant as a ranking but lacks something, the function raises
    SubmissionError, which says what is missing. `Roles` are the names of the columns of queries,
    items and scores, by role.
    """
    first_rows = text.dialect.rows  # only the first rows of the file are looked at
    if not first_rows or len(first_rows[0]) < 2:  # one column cannot hold a query and its list
        return None

    header, *rows = first_rows
    if any(folded(name) in words.VECTORS for name in header):  # it holds embeddings
        return None
    if _is_run(first_rows):  # the columns of a TREC run, without a header
        return partial(_read_text_run, text=text)

    text_columns = [name for place, name in enumerate(header) if not _are_numbers(rows, place)]
    if roles := roles_of_rows(header, text_columns):  # one row per listed item
        return partial(_read_text_rows, text=text, roles=roles)
    if roles := roles_of_lists(header, rows):  # one row per query
        return partial(_read_text_lists, text=text, roles=roles)

    is_meant = _was_meant(first_rows, suffix_of(text.path))
    return _refusing_reader(_why_no_ranking(header)) if is_meant else None


def _was_meant(rows: Sequence[Sequence[str]], suffix: str) -> bool:
    """Whether an incomplete table was meant as a ranking, so that an error can say what is missing.

    The names in the first row tell this, or lists or scores without a header. `rows` are the
    table's first rows, `suffix` is that of its file.
    """
    header = rows[0]
    # `first_of` returns the first column with one of these names, "" if there is none
    if first_of(header, words.QUERIES):
        # a list of results, an order of rows, or a result in each row
        is_ranking = first_of(header, (*words.LISTS, *ORDERS, *words.RETRIEVED))
        # a table with the columns query, gallery and item holds the labels of a dataset
        is_labels = {"query", "gallery", "item"} <= set(map(folded, header))
        return bool(is_ranking) and not is_labels

    # Without a header: a query and its list in each row. Only in a .csv, the format of these lists;
    # elsewhere a second column with several words may be anything.
    is_list = len(header) == 2 and are_several(header[1]) and suffix == ".csv"
    # without a header: rows of query, item and score, in which queries repeat
    repeated = len({row[0] for row in rows}) < len(rows)
    is_rows = len(header) == 3 and repeated and _are_numbers(rows, 2) and not _are_numbers(rows, 1)
    # the lists of Kaggle's landmark challenges, whose column of queries is missing
    has_images = bool(first_of(header, ("images",)))
    return is_list or is_rows or has_images


def _are_numbers(rows: Sequence[Sequence[str]], place: int) -> bool:
    """Whether all cells of a column are numbers, perhaps with decimal commas. `place` is the index
    of the column; rows that are too short to have it are skipped."""
    cells = [row[place] for row in rows if len(row) > place]
    return bool(cells) and all(re.fullmatch(NUMBER, cell.replace(",", ".")) for cell in cells)


def _is_run(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the rows are those of a TREC run without a header: query, Q0, item, rank, score, tag.
    A run with blanks as delimiter is read elsewhere (`trec`)."""
    fits = all(len(row) == 6 and row[1].casefold() in ("q0", "0") for row in rows)
    return fits and _are_numbers(rows, 3) and _are_numbers(rows, 4)


def _read_text_run(path: Path, text: TextTable) -> Lines:
    """The lines of a TREC run whose columns have another delimiter than blanks."""
    roles = Roles(query="query", items="item", value="score", order=BY_SCORE, ranks="rank")
    return _read_text_rows(path, text, roles, names=("query", "Q0", "item", "rank", "score", "tag"))


def _why_no_ranking(header: Sequence[str]) -> SubmissionError:
    """The error for a table that was meant as a ranking but is none; the caller raises it. The
    message says which column is missing, judged by the columns that the header names."""
    found = listed(header) or "nothing"
    expected = (
        "the header id,images with the lists between blanks; or columns query, item and "
        "score or rank"
    )
    # no column is called like one of queries, items or lists
    if not any(asks(name) or folded(name) in (*words.RETRIEVED, *words.LISTS) for name in header):
        columns = "id,images" if len(header) == 2 else "query,item,score"
        return SubmissionError(
            "line 1 is no header that is known",
            expected=expected,
            found=found,
            fix=f"write {columns} above it, or for it",
        )
    if first_of(header, words.RETRIEVED):  # a column of items
        return SubmissionError("it has no column score or rank", expected=expected, found=found)
    if first_of(header, ORDERS):  # a column of scores, ranks or distances
        return SubmissionError("it has no column item", expected=expected, found=found)

    return SubmissionError(
        "it is not known which column has the lists", expected=expected, found=found
    )


def _refusing_reader(error: SubmissionError) -> Callable[[Path], Lines]:
    """A reader that raises this error when it is called, with the path of the file added."""

    def reader(path: Path) -> Lines:
        """Raise the error with the path of the file."""
        raise SubmissionError(
            f"{path} is not a ranking: {error.problem}",
            expected=error.expected,
            found=error.found,
            fix=error.fix,
        )

    return reader


def _read_text_rows(
    path: Path, text: TextTable, roles: Roles, *, names: Sequence[str] = ()
) -> Lines:
    """The lines of a text table with one row per listed item. Decimal commas become points.

    Args:
        roles: which columns hold the query, the item and the score (`value`).
        names: the names of the columns of a table without a header; empty if it has a header.
    """
    cells = text.texts(names or text.dialect.rows[0], header=not names)
    values = cells[roles.value].combine_chunks()  # the scores, still as texts
    said = f"rows of {roles.said}"  # how the table was understood; the user is told
    if text.dialect.delimiter != ",":
        said += f" between {CALLED.get(text.dialect.delimiter, repr(text.dialect.delimiter))}"

    # where commas separate the columns, they cannot be decimal commas as well
    has_commas = (
        text.dialect.delimiter != ","
        and pc.any(pc.match_substring_regex(values, DECIMAL_COMMA)).as_py()
    )
    has_points = pc.any(pc.match_substring(values, ".")).as_py()
    if has_commas and not has_points:  # if points occur too, the commas may be no decimal marks
        place = cells.column_names.index(roles.value)
        cells = cells.set_column(place, roles.value, pc.replace_substring(values, ",", "."))
        said += ", decimal commas"
    return _lines_of_rows(path, cells, roles, said)


def _lines_of_rows(path: Path, table: pa.Table, roles: Roles, form: str) -> Lines:
    """The lines of a table with one row per listed item. Where the table has no score, a rank or
    distance r becomes the score −r, so that the smallest comes first.

    Args:
        path: of the file, for errors.
        roles: which columns hold the query, the item and the score.
        form: how the table was understood, in words.
    """
    if table[roles.query].null_count or table[roles.items].null_count:
        raise SubmissionError(f"{path} has rows without a query or an item")
    values = _as_floats(table[roles.value])
    query, item = (
        pa.chunked_array([texts_of(table[name], str(path))]) for name in (roles.query, roles.items)
    )
    found = lines_with_scores(path, query, item, values if roles.order == BY_SCORE else -values)
    # A column called score may hold distances. Signs of this are ranks in another column
    # (`roles.ranks`) that contradict the scores, or, if there are no ranks, scores that rise from
    # line to line. A column that is called rank or distance needs no remark.
    if roles.ranks:
        remarks = remark_on_ranks(found, _as_floats(table[roles.ranks]))
    else:
        remarks = remark_on_rising_scores(found) if roles.order == BY_SCORE else ()
    return replace(found, form=form, order=roles.order, left_out=roles.left_out, remarks=remarks)


def _as_floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of numbers, or of numbers written as texts, as floats; NaN for any other text."""
    if pa.types.is_large_string(column.type):
        return as_numbers(pc.ascii_trim_whitespace(column.combine_chunks()))
    # by default Arrow refuses to cast an integer that a float64 can only hold rounded
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64))


def _read_text_lists(path: Path, text: TextTable, roles: Roles) -> Lines:
    """The lines of a text table with one row per query, like a Google Landmarks submission. `roles`
    says which columns hold the queries and their lists.

    No cell counts as missing, so "NA" is an id. A list may be empty.
    """
    table = text.texts(text.dialect.rows[0])  # the first row is the header, with the columns' names
    cells = table[roles.items].combine_chunks()
    lists, how = _split_cells(cells)
    if text.encoding:
        how += f", in {text.encoding}"
    form = f"lists of items under {roles.said}{how}"
    # Lists have no column of scores that `value` could name. In its place, `_lines_of_lists` takes
    # the words that say how the table was understood.
    return _lines_of_lists(
        path, table[roles.query].combine_chunks(), lists, replace(roles, value=form)
    )


def _lines_of_lists(path: Path, queries: pa.Array, lists: pa.Array, roles: Roles) -> Lines:
    """The lines of a table in which each row has one query and its whole list, best first. Raises
    SubmissionError if a query has two lists.

    Args:
        path: of the file, for errors.
        queries: texts, (Q,).
        lists: lists of texts, (Q,). An empty text in a list is an unfilled position and is skipped.
        roles: its `value` says, in words, how the table was understood; its `left_out` names the
            columns that were not used.
    """
    counts = pc.value_counts(queries)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    if repeated:
        raise SubmissionError(
            f"{path} lists {counted(len(repeated), 'query', 'queries')} more than once",
            expected="one row per query",
            found=listed(repeated),
        )

    items = lists.flatten()
    # (n,): the row of each item's query; a missing list (null) has no items
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    query_of_item = np.repeat(np.arange(len(queries)), lengths)

    named = pc.not_equal(items, "")  # an empty text is no item
    # the row of each remaining item's query; a null in a list is no item either: None becomes False
    kept = query_of_item[named.to_numpy(zero_copy_only=False).astype(bool)]
    return Lines(
        queries=queries,
        of=kept,
        items=items.filter(named),
        scores=None,
        form=roles.value,
        left_out=roles.left_out,
    )


def _split_cells(cells: pa.Array) -> tuple[pa.Array, str]:
    """Split the cells, one for each query, into lists of names. The first 100 filled cells decide
    how. The second result says this in words; it is "" for the usual split at blanks."""
    filled = cells.filter(pc.not_equal(pc.utf8_trim_whitespace(cells), ""))
    first = filled.slice(0, 100).to_pylist()
    if first and all(IN_BRACKETS.match(cell) for cell in first):
        lists = [_in_brackets(cell) for cell in cells.to_pylist()]
        return pa.array(lists, pa.large_list(pa.large_string())), ", in brackets"
    # whether blanks separate names; a blank directly after a mark, as in "a, b", does not
    has_blanks = any(re.search(r"[^,;|] +", cell.strip()) for cell in first)

    def is_in_most(mark: str) -> bool:
        """Whether more than half of the first cells hold a mark."""
        return 2 * sum(mark in cell for cell in first) > len(first)

    # blanks take precedence; two different marks are ambiguous, since names may contain one
    marks = list(filter(is_in_most, BETWEEN))
    if not first or has_blanks or len(marks) != 1:
        return pc.split_pattern(cells, " "), ""
    mark = marks[0]
    without_blanks = pc.replace_substring_regex(cells, f"{re.escape(mark)} +", mark)
    return pc.split_pattern(without_blanks, mark), f", between {CALLED[mark]}"


def _in_brackets(cell: str) -> list[str]:
    """The names in a list as Python or NumPy prints it: ['a', 'b'], [1 2 3].

    >>> _in_brackets("['a.jpg', 'b c.jpg']"), _in_brackets("[1 22  3]")
    (['a.jpg', 'b c.jpg'], ['1', '22', '3'])
    """
    if quoted := QUOTED.findall(cell):
        return [single or double for single, double in quoted]  # one of the two groups is empty
    inner = cell.strip().strip("[]()")
    return [part for part in re.split(r"[,\s]+", inner) if part]


def parquet_reader(path: Path) -> Callable[[Path], Lines] | None:
    """The function that reads a parquet file as a ranking, with a row per listed item or a list per
    query; None if the file is no ranking.

    For a file that was meant as a ranking but lacks something, the function raises SubmissionError,
    which says what is missing.
    """
    fields = _parquet_fields(path)
    names = list(fields)  # of the columns; empty if the file cannot be opened as parquet
    if any(folded(name) in words.VECTORS for name in names):  # it holds embeddings
        return None

    # a column of any type but numbers may hold names of items
    texts = [
        name
        for name, kind in fields.items()
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind))
    ]
    if roles := roles_of_rows(names, texts):  # one row per listed item
        return partial(_read_parquet_rows, roles=roles)

    lists = [
        name
        for name, kind in fields.items()
        if folded(name) in words.LISTS and _is_list_of_names(kind)
    ]
    of_queries = [name for name in names if asks(name)]  # columns called like one of queries
    # one row per query; several columns of lists, or of queries, would be ambiguous
    if len(lists) == len(of_queries) == 1:
        others = tuple(name for name in names if name not in (of_queries[0], lists[0]))
        found = Roles(of_queries[0], lists[0], others=others)
        return partial(_read_parquet_lists, roles=found)

    # Columns of queries and of listed items, or of their scores, show that a ranking was meant. A
    # dataset's manifest has the columns query and item as well, but is no ranking.
    is_labels = {"query", "gallery", "item"} <= set(map(folded, names))
    is_ranking = first_of(names, (*words.RETRIEVED, *ORDERS)) and not is_labels
    if first_of(names, words.QUERIES) and is_ranking:
        return _refusing_reader(_why_no_ranking(names))
    return None


def _read_parquet_rows(path: Path, roles: Roles) -> Lines:
    """The lines of a parquet file with a row for each item; `roles`: which columns hold query,
    item, score and perhaps rank. No other column is read."""
    needed = [name for name in (roles.query, roles.items, roles.value, roles.ranks) if name]
    return _lines_of_rows(path, _table(path, needed), roles, f"a table of {roles.said}")


def _is_list_of_names(kind: Any) -> bool:
    """Whether an Arrow type is that of lists of texts or of whole numbers."""
    value = getattr(kind, "value_type", None)
    return value is not None and (
        pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_integer(value)
    )


def _read_parquet_lists(path: Path, roles: Roles) -> Lines:
    """The lines of a parquet file with a query and its list in each row. `roles` says which columns
    hold the queries and the lists. Raises SubmissionError for a row without a query; a row without
    a list has no results."""
    table = _table(path, [roles.query, roles.items])
    if table[roles.query].null_count:
        raise SubmissionError(f"{path} has rows without a query")
    queries = texts_of(table[roles.query], str(path))
    lists = table[roles.items].combine_chunks()
    kind = pa.large_list(pa.large_string())
    # Usually `value` is the column that orders the rows. Here the items of a list are in order of
    # rank, so `value` is a text about the lists; `roles.said` names their columns.
    return _lines_of_lists(
        path, queries, lists.cast(kind), replace(roles, value=f"lists of items under {roles.said}")
    )


def _table(path: Path, columns: list[str]) -> pa.Table:
    """These columns of a parquet file, or of all parquet files of a folder, concatenated."""
    return pa.concat_tables([parquet_table(file, columns=columns) for file in _parquet_files(path)])


def _parquet_files(path: Path) -> list[Path]:
    """The parquet files of a folder, or the parquet file at `path` itself; empty for a file of
    another format.
    """
    if path.is_dir():
        return sorted(path.glob("*.parquet"))
    return [path] if path.suffix.lower() == ".parquet" else []


def _parquet_fields(path: Path) -> dict[str, Any]:
    """The type of each column by its name, in a parquet file or the first one of a folder; empty if
    there is none, or it is damaged."""
    files = _parquet_files(path)
    if not files:
        return {}
    try:
        with open_parquet(files[0]) as file:
            return {field.name: field.type for field in file.schema_arrow}
    except (pa.ArrowException, OSError, ValueError):
        return {}  # then the file is read as embeddings, and that reader reports the damage
