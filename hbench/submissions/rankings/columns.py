"""Reads rankings in tables, CSV or parquet: rows of query, item and score, or one row per query
with the list of its items.

Columns are known by the names that ranx, PyTerrier, ir_measures and Google Landmarks give them; a
column of another name is taken for the lists where its cells show them, and no other does. Columns
that are not needed are left out, and said.
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
    """The reader of a table of text that is a ranking, or was meant as one; None for any other
    table.
    """
    first_rows = text.dialect.rows  # as many as tell what the table is
    if not first_rows or len(first_rows[0]) < 2:  # one column holds no query and its list
        return None

    header, *rows = first_rows
    if any(folded(name) in words.VECTORS for name in header):  # embeddings
        return None
    # a run without a header, a row for each item, a row for each query; else perhaps a mistake
    if _is_run(first_rows):
        return partial(_read_text_run, text=text)
    if roles := roles_of_rows(
        header, [name for place, name in enumerate(header) if not _are_numbers(rows, place)]
    ):
        return partial(_read_text_rows, text=text, roles=roles)
    if roles := roles_of_lists(header, rows):
        return partial(_read_text_lists, text=text, roles=roles)

    is_meant = _was_meant(first_rows, suffix_of(text.path))
    return _refusing_reader(_why_no_ranking(header)) if is_meant else None


def _was_meant(rows: Sequence[Sequence[str]], suffix: str) -> bool:
    """Whether a table that lacks something of a ranking was meant as one, so that the error says
    what it lacks: by the names in its first row, or by lists or scores under no header. `rows`: its
    first rows; `suffix`: of its file.
    """
    header = rows[0]
    if first_of(header, words.QUERIES):
        is_ranking = first_of(header, (*words.LISTS, *ORDERS)) or first_of(header, words.RETRIEVED)
        # a table of labels has these
        return bool(is_ranking) and not {"query", "gallery", "item"} <= set(map(folded, header))
    # no header: a query with its list, or rows of query, item and score, whose queries repeat; or
    # the column images of Kaggle's landmark challenges, without that of the queries
    is_list = len(header) == 2 and are_several(header[1]) and suffix == ".csv"
    repeated = len({row[0] for row in rows}) < len(rows)
    is_rows = len(header) == 3 and repeated and _are_numbers(rows, 2) and not _are_numbers(rows, 1)
    return is_list or is_rows or bool(first_of(header, ("images",)))


def _are_numbers(rows: Sequence[Sequence[str]], place: int) -> bool:
    """Whether the cells of the column at this place, from 0, are numbers, perhaps with decimal
    commas; rows may be shorter than others."""
    cells = [row[place] for row in rows if len(row) > place]
    return bool(cells) and all(re.fullmatch(NUMBER, cell.replace(",", ".")) for cell in cells)


def _is_run(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the rows are those of a TREC run, query Q0 item rank score tag, without a header, but
    with another delimiter than blanks."""
    fits = all(len(row) == 6 and row[1].casefold() in ("q0", "0") for row in rows)
    return fits and _are_numbers(rows, 3) and _are_numbers(rows, 4)


def _read_text_run(path: Path, text: TextTable) -> Lines:
    """The lines of a run whose columns are separated otherwise than in TREC's form."""
    roles = Roles("query", "item", "score", BY_SCORE, "rank")
    return _read_text_rows(path, text, roles, names=("query", "Q0", "item", "rank", "score", "tag"))


def _why_no_ranking(header: Sequence[str]) -> SubmissionError:
    """Why a table with this header, which was meant as a ranking, is none: an error for the reader
    to raise. It says what is missing beside the columns that are known."""
    found = listed(header) or "nothing"
    expected = (
        "the header id,images with the lists between blanks; or columns query, item and "
        "score or rank"
    )
    if not any(asks(name) or folded(name) in (*words.RETRIEVED, *words.LISTS) for name in header):
        columns = "id,images" if len(header) == 2 else "query,item,score"
        return SubmissionError(
            "line 1 is no header that is known",
            expected=expected,
            found=found,
            fix=f"write {columns} above it, or for it",
        )
    if first_of(header, words.RETRIEVED):
        return SubmissionError("it has no column score or rank", expected=expected, found=found)
    if first_of(header, ORDERS):
        return SubmissionError("it has no column item", expected=expected, found=found)

    return SubmissionError(
        "it is not known which column has the lists", expected=expected, found=found
    )


def _refusing_reader(error: SubmissionError) -> Callable[[Path], Lines]:
    """A reader that refuses its file for this reason, as soon as somebody reads it."""

    def reader(path: Path) -> Lines:
        """Raise the error, with the file's name."""
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
    """The lines of a table of text with a row for each item; `roles`: which of its columns hold
    what; `names`: of the columns of a table without a header, else none. Decimal commas become
    points."""
    cells = text.texts(names or text.dialect.rows[0], header=not names)
    values = cells[roles.value].combine_chunks()  # texts, as all cells
    # what the table was taken for, in words
    said = f"rows of {roles.said}"
    if text.dialect.delimiter != ",":
        said += f" between {CALLED.get(text.dialect.delimiter, repr(text.dialect.delimiter))}"

    # in a table whose columns are parted by commas they are no decimal ones
    has_commas = (
        text.dialect.delimiter != ","
        and pc.any(pc.match_substring_regex(values, DECIMAL_COMMA)).as_py()
    )
    has_points = pc.any(pc.match_substring(values, ".")).as_py()
    if has_commas and not has_points:  # beside points, commas are not decimal: they stay
        place = cells.column_names.index(roles.value)
        cells = cells.set_column(place, roles.value, pc.replace_substring(values, ",", "."))
        said += ", decimal commas"
    return _lines_of_rows(path, cells, roles, said)


def _lines_of_rows(path: Path, table: pa.Table, roles: Roles, form: str) -> Lines:
    """The lines of a table with a row for each item; `roles`: which columns hold query, item and
    score; `form`: what the table was taken for, in words. Where there is no score, a rank or
    distance r is the score −r, so that the smallest comes first.
    """
    if table[roles.query].null_count or table[roles.items].null_count:
        raise SubmissionError(f"{path} has rows without a query or an item")
    values = _as_floats(table[roles.value])
    query, item = (
        pa.chunked_array([texts_of(table[name], str(path))]) for name in (roles.query, roles.items)
    )
    found = lines_with_scores(path, query, item, values if roles.order == BY_SCORE else -values)
    # scores that rise from line to line may be distances; stated ranks tell it more surely, and by
    # a rank or a distance nothing can be mistaken
    if roles.ranks:
        remarks = remark_on_ranks(found, _as_floats(table[roles.ranks]))
    else:
        remarks = remark_on_rising_scores(found) if roles.order == BY_SCORE else ()
    return replace(found, form=form, order=roles.order, left_out=roles.left_out, remarks=remarks)


def _as_floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of numbers, or of texts that are numbers, as floats; NaN for texts that are none.
    Large integers may be rounded: `safe=False` lets Arrow do so."""
    if pa.types.is_large_string(column.type):
        return as_numbers(pc.ascii_trim_whitespace(column.combine_chunks()))
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64))


def _read_text_lists(path: Path, text: TextTable, roles: Roles) -> Lines:
    """The lines of a table of text with a row for each query, as Google Landmarks' submission:
    no value is ever "missing" ("NA" is an id), an empty list is allowed. `roles`: which columns
    hold the queries and their lists.
    """
    table = text.texts(text.dialect.rows[0])  # by the names in the header
    cells = table[roles.items].combine_chunks()
    lists, said = _split_cells(cells)
    if text.encoding:
        said += f", in {text.encoding}"
    form = f"lists of items under {roles.said}{said}"
    # lists have no column of values: `value` carries what the table was taken for
    return _lines_of_lists(
        path, table[roles.query].combine_chunks(), lists, replace(roles, value=form)
    )


def _lines_of_lists(path: Path, queries: pa.Array, lists: pa.Array, roles: Roles) -> Lines:
    """The lines of a table with one query and its whole list a row, best first.

    `queries` (Q,): texts; `lists` (Q,): lists of texts, of which empty ones are places that were
    not filled; `roles.value`: what the table was taken for, in words. Raises SubmissionError for a
    query with two lists.
    """
    counts = pc.value_counts(queries)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    if repeated:
        raise SubmissionError(
            f"{path} lists {len(repeated):,} queries more than once",
            expected="one row per query",
            found=listed(repeated),
        )

    items = lists.flatten()
    # of each item the query, its row, as often as the list is long; a missing list has no item
    of = np.repeat(
        np.arange(len(queries)),
        pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False),
    )
    named = pc.not_equal(items, "")  # a place that was not filled is no item
    kept = of[named.to_numpy(zero_copy_only=False).astype(bool)]

    return Lines(
        queries, kept, items.filter(named), None, form=roles.value, left_out=roles.left_out
    )


def _split_cells(cells: pa.Array) -> tuple[pa.Array, str]:
    """The cells, one for each query, as lists of names, and in words how they were split, where not
    by blanks: by what most of the first 100 cells show."""
    filled = cells.filter(pc.not_equal(pc.utf8_trim_whitespace(cells), ""))
    first = filled.slice(0, 100).to_pylist()
    if first and all(IN_BRACKETS.match(cell) for cell in first):
        return pa.array(
            [_in_brackets(cell) for cell in cells.to_pylist()], pa.large_list(pa.large_string())
        ), ", in brackets"
    # a blank after a comma belongs to it
    has_blanks = any(re.search(r"[^,;|] +", cell.strip()) for cell in first)

    def is_in_most(mark: str) -> bool:
        """Whether more than half of the first cells hold a mark."""
        return 2 * sum(mark in cell for cell in first) > len(first)

    # blanks win, and so do two marks at once: then a mark may be part of the names
    between = list(filter(is_in_most, BETWEEN))
    if not first or has_blanks or len(between) != 1:
        return pc.split_pattern(cells, " "), ""
    closed = pc.replace_substring_regex(cells, f"{re.escape(between[0])} +", between[0])
    return pc.split_pattern(closed, between[0]), f", between {CALLED[between[0]]}"


def _in_brackets(cell: str) -> list[str]:
    """The names in a list as Python or NumPy prints it: ['a', 'b'], [1 2 3].

    >>> _in_brackets("['a.jpg', 'b c.jpg']"), _in_brackets("[1 22  3]")
    (['a.jpg', 'b c.jpg'], ['1', '22', '3'])
    """
    if quoted := QUOTED.findall(cell):
        return [single or double for single, double in quoted]  # by the kind of their quotes
    inner = cell.strip().strip("[]()")
    return [part for part in re.split(r"[,\s]+", inner) if part]


def parquet_reader(path: Path) -> Callable[[Path], Lines] | None:
    """The reader of a parquet file whose columns are those of a ranking, a row per listed item or
    a list per query; or one that refuses a file that was meant as a ranking and lacks something.
    None for any other file.
    """
    fields = _parquet_fields(path)
    names = list(fields)  # of the columns; none where it is no parquet file
    if any(folded(name) in words.VECTORS for name in names):  # embeddings
        return None

    # whatever is no number may hold names
    texts = [
        name
        for name, kind in fields.items()
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind))
    ]
    # which column is the query, the item, the rank or score; None where that is not sure
    if roles := roles_of_rows(names, texts):
        return partial(_read_parquet_rows, roles=roles)

    lists = [
        name
        for name, kind in fields.items()
        if folded(name) in words.LISTS and _is_list_of_names(kind)
    ]
    asked = [name for name in names if asks(name)]
    # with several columns of either kind it is not known which counts
    if len(lists) == len(asked) == 1:
        others = tuple(name for name in names if name not in (asked[0], lists[0]))
        found = Roles(asked[0], lists[0], others=others)
        return partial(_read_parquet_lists, roles=found)

    # a manifest of a dataset has a query and an item, too
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
    """Whether a type of Arrow is that of lists of texts or whole numbers."""
    value = getattr(kind, "value_type", None)
    return value is not None and (
        pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_integer(value)
    )


def _read_parquet_lists(path: Path, roles: Roles) -> Lines:
    """The lines of a parquet file with a query and its list in each row; `roles`: which columns
    hold them. Raises SubmissionError for a row without a query."""
    table = _table(path, [roles.query, roles.items])
    if table[roles.query].null_count:
        raise SubmissionError(f"{path} has rows without a query or an item")
    queries = texts_of(table[roles.query], str(path))
    lists = table[roles.items].combine_chunks()
    kind = pa.large_list(pa.large_string())
    return _lines_of_lists(
        path, queries, lists.cast(kind), replace(roles, value=f"lists of items under {roles.said}")
    )


def _table(path: Path, columns: list[str]) -> pa.Table:
    """These columns of a parquet file, or of all parquet files of a folder, one behind another."""
    return pa.concat_tables([parquet_table(file, columns=columns) for file in _parquet_files(path)])


def _parquet_files(path: Path) -> list[Path]:
    """The parquet files of a folder, or the one that a path names; none where it is of another
    format.
    """
    if path.is_dir():
        return sorted(path.glob("*.parquet"))
    return [path] if path.suffix.lower() == ".parquet" else []


def _parquet_fields(path: Path) -> dict[str, Any]:
    """The types of the columns of a parquet file, or of a folder's first part, by name."""
    files = _parquet_files(path)
    if not files:
        return {}
    try:
        with open_parquet(files[0]) as file:
            return {field.name: field.type for field in file.schema_arrow}
    except (pa.ArrowException, OSError, ValueError):
        return {}  # damaged: the reader of embeddings says so
