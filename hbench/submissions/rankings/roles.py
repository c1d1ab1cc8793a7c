"""Finds the columns of a table that hold the queries, the items, and the scores or ranks that order
the items. They are recognised by the names that ranx, PyTerrier, ir_measures and Google Landmarks
use. A column of another name is taken if it is the only candidate.

>>> roles_of_rows(["qid", "docno", "score", "tag"], texts=["qid", "docno", "tag"])
Roles(query='qid', items='docno', value='score', order='by score', ranks='', others=('tag',))
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hbench.sheets import words
from hbench.sheets.words import first_of, folded
from hbench.submissions.problems import in_a_line
from hbench.submissions.rankings.lines import BY_DISTANCE, BY_RANK, BY_SCORE

USUAL = ["id", "images"]  # the header of a Google Landmarks submission
NUMBERS = re.compile(r"^[\[\](),;|\s\d.eE+-]*\.[\[\](),;|\s\d.eE+-]*$")  # vectors, not ids


@dataclass(frozen=True)
class Roles:
    """The names of the columns of a ranking by their role; "" where there is no such column.

    Attributes:
        query: the column of the queries.
        items: the column of the items. Each cell has one item if there is a `value`, else the
            query's whole list.
        value: the column of scores, ranks or distances that orders the rows.
        order: how `value` orders the rows, in words (by score, by rank, nearest first).
        ranks: a column of ranks beside scores or distances; it does not order the rows.
        others: the columns that are left out.
    """

    query: str
    items: str
    value: str = ""
    order: str = ""
    ranks: str = ""
    others: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The names of the columns of queries, items and values, in words."""
        query, items, value = map(in_a_line, (self.query, self.items, self.value))
        return f"query {query}, item {items}, {value}" if self.value else f"{query},{items}"

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that are left out, in words for the user."""
        said = []
        for name in self.others:
            index = " (an index)" if _is_index(name) else ""
            said.append(f"column {in_a_line(name)}{index}")
        return tuple(said)


def _is_index(name: str) -> bool:
    """Whether a column of this name numbers the rows, such as the unnamed index of pandas."""
    return words.is_index(name, counts_rows=True)


def asks(name: str) -> bool:
    """Whether a column of a table with one row per query may name the query."""
    return folded(name) in words.QUERIES or (words.is_id(name) and folded(name) not in words.LISTS)


def roles_of_rows(names: Sequence[str], texts: Sequence[str]) -> Roles | None:
    """The roles of the columns of a table with rows of query, item and a score, rank or distance;
    None for any other table. `names` are all columns, `texts` those that hold texts."""
    query = first_of(names, words.QUERIES)
    value, order = _column_that_orders(names)
    candidates = [name for name in texts if name not in (query, value) and not _is_index(name)]
    # if no column has a usual name for items, the only other column of texts is taken
    item = first_of(names, words.RETRIEVED) or (candidates[0] if len(candidates) == 1 else "")
    if not (query and item and value):
        return None

    # ranks beside scores or distances are only checked against these; else they are the value
    ranks = first_of(names, words.POSITIONS) if order != BY_RANK else ""
    used = [query, item, value]
    if ranks:
        used.append(ranks)
    return Roles(
        query=query,
        items=item,
        value=value,
        order=order,
        ranks=ranks,
        others=tuple(name for name in names if name not in used),
    )


def _column_that_orders(names: Sequence[str]) -> tuple[str, str]:
    """The column that orders the rows, and how it does so, in words; "" for both if there is none.
    A score is preferred to a distance, and a distance to a rank."""
    if name := first_of(names, words.SCORES):
        return name, BY_SCORE
    if name := first_of(names, words.DISTANCES):
        return name, BY_DISTANCE
    if name := first_of(names, words.POSITIONS):
        return name, BY_RANK
    return "", ""


def roles_of_lists(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Roles | None:
    """The roles of the columns of a table with one row per query; None if the first row is no
    header, or if it is not clear which column has the lists or the queries.

    `header` is the first row, `rows` are the next ones.
    """

    def has_several(place: int) -> bool:
        """Whether some cell of this column holds several names."""
        return any(are_several(row[place]) for row in rows if len(row) > place)

    several = [
        place
        for place, name in enumerate(header)
        if folded(name) not in words.VECTORS and has_several(place)
    ]
    named = [place for place, name in enumerate(header) if folded(name) in words.LISTS]
    # The column of lists has cells with several names, and a usual name if some such column has
    # one. In a file headed id,images (`is_usual`) the name alone suffices, since every list may
    # have one item only.
    is_usual = [folded(name) for name in header if not _is_index(name)][:2] == USUAL
    sure = named if is_usual else [place for place in several if place in named]
    of_lists = sure or several
    # the queries are in a column with a usual name, else in any other column
    others = [name for place, name in enumerate(header) if place not in of_lists]
    usual = [name for name in others if asks(name)]
    of_queries = usual or [name for name in others if not _is_index(name)]

    # a first row without a known name may still be a header, unless one of its cells is a list
    has_known_name = any(asks(name) or folded(name) in words.LISTS for name in header)
    is_header = has_known_name or not any(map(are_several, header))
    if not is_header or len(of_lists) != 1:
        return None
    # several candidates for the queries are ambiguous, except under id,images: there the first
    # column has the queries
    if not of_queries or (len(of_queries) > 1 and not is_usual):
        return None

    items = header[of_lists[0]]
    return Roles(
        of_queries[0],
        items,
        others=tuple(name for name in header if name not in (of_queries[0], items)),
    )


def are_several(cell: str) -> bool:
    """Whether a cell holds several names separated by blanks. Blanks next to a square bracket do
    not separate names, and the numbers of a vector are no names."""
    return bool(re.search(r"[^\s\]\[]\s+[^\s]", cell.strip())) and not NUMBERS.match(cell)
