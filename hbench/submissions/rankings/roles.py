"""Tells which columns of a table hold the queries, the items and what orders them, by the names
that ranx, PyTerrier, ir_measures and Google Landmarks give them; a column of another name is taken
where it can be nothing else.

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

USUAL = ["id", "images"]
NUMBERS = re.compile(r"^[\[\](),;|\s\d.eE+-]*\.[\[\](),;|\s\d.eE+-]*$")  # vectors, not ids


@dataclass(frozen=True)
class Roles:
    """The names of the columns of a ranking by what they hold, and the others; "": there is none.

    `query`; `items`: an item in each row, or its whole list where there is no `value`, the column
    that orders the rows; `order`: in words, how (by score, by rank, nearest first); `ranks`: stated
    beside scores, which order; `others`: columns that are left out.
    """

    query: str
    items: str
    value: str = ""
    order: str = ""
    ranks: str = ""
    others: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Which columns were taken for query, item and value, in words."""
        query, items, value = map(in_a_line, (self.query, self.items, self.value))
        return f"query {query}, item {items}, {value}" if self.value else f"{query},{items}"

    @property
    def left_out(self) -> tuple[str, ...]:
        """The other columns as they are named to people."""
        said = []
        for name in self.others:
            index = " (an index)" if _is_index(name) else ""
            said.append(f"column {in_a_line(name)}{index}")
        return tuple(said)


def _is_index(name: str) -> bool:
    """Whether a column of this name numbers the rows, as pandas writes one without a name."""
    return words.is_index(name, counts_rows=True)


def asks(name: str) -> bool:
    """Whether a column of a table with one row per query may name the query."""
    return folded(name) in words.QUERIES or (words.is_id(name) and folded(name) not in words.LISTS)


def roles_of_rows(names: Sequence[str], texts: Sequence[str]) -> Roles | None:
    """The roles of the columns of a table of query, item and score, rank or distance; None for
    another table. `texts`: the columns of texts; if no column has a usual name for items, they are
    in the only one of these beside the query."""
    query = first_of(names, words.QUERIES)
    value, order = _column_that_orders(names)
    others = [name for name in texts if name not in (query, value) and not _is_index(name)]
    # without a usual name the items are in the only other column of texts
    item = first_of(names, words.RETRIEVED) or (others[0] if len(others) == 1 else "")
    if not (query and item and value):
        return None

    # ranks beside scores or distances are only compared with them; alone they are the value
    ranks = first_of(names, words.POSITIONS) if order != BY_RANK else ""
    used = [query, item, value]
    if ranks:
        used.append(ranks)
    return Roles(
        query, item, value, order, ranks, tuple(name for name in names if name not in used)
    )


def _column_that_orders(names: Sequence[str]) -> tuple[str, str]:
    """The column by which rows are ordered, a score before a distance before a rank, and how; ""
    for both where there is none."""
    if name := first_of(names, words.SCORES):
        return name, BY_SCORE
    if name := first_of(names, words.DISTANCES):
        return name, BY_DISTANCE
    if name := first_of(names, words.POSITIONS):
        return name, BY_RANK
    return "", ""


def roles_of_lists(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Roles | None:
    """The roles of the columns of a table with one row per query; None where the first row is no
    header, or where it is not sure which column has the lists, or which the query."""

    def has_several(place: int) -> bool:
        """Whether a cell of the column at this place holds several names."""
        return any(are_several(row[place]) for row in rows if len(row) > place)

    several = [
        place
        for place, name in enumerate(header)
        if folded(name) not in words.VECTORS and has_several(place)
    ]
    named = [place for place, name in enumerate(header) if folded(name) in words.LISTS]
    # A column with a usual name for lists, and with several names in a cell, has the lists; if
    # there is none, any column with several names in a cell may have them. A file headed id,images
    # is a ranking even where every list has one item
    is_usual = [folded(name) for name in header if not _is_index(name)][:2] == USUAL
    sure = named if is_usual else [place for place in several if place in named]
    of_lists = sure or several
    others = [(place, name) for place, name in enumerate(header) if place not in of_lists]
    # the query: a column with a usual name, else any other one
    usual = [name for _, name in others if asks(name)]
    asked = usual or [name for _, name in others if not _is_index(name)]

    # a first row of names that are not known may be a header, unless one of its cells is a list
    has_known_name = any(asks(name) or folded(name) in words.LISTS for name in header)
    is_header = has_known_name or not any(map(are_several, header))
    if not is_header or len(of_lists) != 1:
        return None
    # of several columns that may name the query it is not known which does, but in a file headed
    # id,images: there the first one does
    if not asked or (len(asked) > 1 and not is_usual):
        return None

    items = header[of_lists[0]]
    return Roles(
        asked[0], items, others=tuple(name for name in header if name not in (asked[0], items))
    )


def are_several(cell: str) -> bool:
    """Whether a cell holds several names, with blanks between them, and not the numbers of a
    vector; blanks beside a bracket do not count."""
    return bool(re.search(r"[^\s\]\[]\s+[^\s]", cell.strip())) and not NUMBERS.match(cell)
