"""Exports a leaderboard as a table for people, as records for machines (CSV, JSON), and its sources
as BibTeX.

>>> from decimal import Decimal
>>> from hbench.boards import Paper
>>> row = Row(
...     method="a|b",
...     scores={"R@1": Decimal("81.0")},
...     paper=Paper(citation="Me, 2026", table="Tab. 1"),
... )
>>> content = table([Standing(1, row.scores["R@1"], (row,))], ["R@1"], citations={})
>>> content.header, content.cells
(('place', 'method', 'R@1', 'source'), [('1', 'a|b', '81.0', 'Me Tab. 1')])
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from hbench.boards import Citation, Leaderboard, Paper, Row, RunProvenance, Setup, Standing, as_one
from hbench.boards.identities import impossible
from hbench.core.tables import without_formula
from hbench.core.text import NONE, csv_text
from hbench.datasets.metadata import publications
from hbench.metrics.names import goodness
from hbench.records.tables import PrintedTable

Places = set[int]  # the indices of the lines whose cell of a column is marked


def table(
    standings: Sequence[Standing],
    metrics: Sequence[str],
    citations: Mapping[str, Citation],
    levels: Sequence[str] = (),
) -> PrintedTable:
    """Return a leaderboard as a table for people, with a line for each standing (the rows of
    several papers that print one result, or a single row).

    The columns are place, method, year, backbone, dimension, training set, the scores of `metrics`
    and the sources; empty columns are left out. The training set is a column only if all lines
    state it: an empty cell would look like the dataset's own training set. The notes below the
    table are the remarks and the full sources.

    Args:
        standings: the results, in the order of the lines.
        metrics: the names of the metrics that become columns.
        citations: by key, the leaderboard's citations, for the full sources.
        levels: the names of the levels, coarse to fine, for remarks on scores of several levels
            that contradict each other; empty if the levels are not all scored on one test.
    """
    header = ("place", "method", "year", "backbone", "dim", "trained on", *metrics, "source")
    marks: dict[str, int] = {}  # the number of each remark; `_line` adds to it
    # as_one merges the rows of a standing
    all_state_it = all(as_one(standing.rows).setup.trained_on for standing in standings)
    lines = [
        _line(standing, metrics, marks, levels=levels, trained_on=all_state_it)
        for standing in standings
    ]

    def is_used(place: int) -> bool:
        """Whether a column is shown: it always is, or has a value in some line."""
        always = header[place] in ("place", *metrics)
        return always or any(line[place] != NONE for line in lines)

    used = list(filter(is_used, range(len(header))))

    def kept(line: Sequence[str]) -> tuple[str, ...]:
        """The cells of a line in the columns that are shown."""
        return tuple(line[place] for place in used)

    notes = [f"[{number}] {text}" for text, number in marks.items()]
    notes += [
        full_source(key, citation) for key, citation in cited_by(standings, citations).items()
    ]
    return PrintedTable(header=kept(header), cells=list(map(kept, lines)), notes=notes)


def with_best(
    content: PrintedTable, board: Leaderboard, standings: Sequence[Standing]
) -> PrintedTable:
    """Return the table `content`, which has a line for each of `standings`, with the best cells of
    each metric marked as bold and the second best as underlined. Scores that are not comparable
    with the others are not considered.
    """
    # for each line, the indices of the columns whose cells are marked
    bold: list[list[int]] = [[] for _ in standings]
    underlined: list[list[int]] = [[] for _ in standings]
    for column, metric in enumerate(content.header):
        if metric not in board.metrics:
            continue
        first, second = two_best(_comparable(board, standings, metric), metric)
        for line in first:
            bold[line].append(column)
        for line in second:
            underlined[line].append(column)
    return content._replace(bold=bold, underlined=underlined)


def two_best(scores: Sequence[Decimal | None], metric: str) -> tuple[Places, Places]:
    """Return the indices of the lines with the best score, and of those with the second best.
    `scores` has each line's score by `metric`, None if unknown. Both results are empty if all known
    scores are equal, since no line is then better than another.
    """
    known = sorted(
        {score for score in scores if score is not None},
        key=lambda score: goodness(metric, score),  # higher is better, also for distances
        reverse=True,
    )
    if len(known) < 2:
        return set(), set()
    first, second = known[:2]
    return _where(scores, first), _where(scores, second)


def _where(scores: Sequence[Decimal | None], score: Decimal) -> Places:
    """The indices of the lines with this score."""
    return {place for place, each in enumerate(scores) if each == score}


def _comparable(
    board: Leaderboard, standings: Sequence[Standing], metric: str
) -> list[Decimal | None]:
    """Return for each standing its score by a metric, or None if it has no score that is comparable
    with the others: its row says so, or was made under other conditions than the leaderboard's."""
    rows = [as_one(standing.rows) for standing in standings]  # the rows of a result, merged
    # Either the queries of all rows of a table are items (`setup.queries` is None), or those of all
    # rows are names of the label tree, so the first row tells which.
    by_name = bool(rows) and rows[0].setup.queries is not None
    return [
        row.scores.get(metric)
        if metric not in row.unranked and board.compares(row, by_name=by_name)
        else None
        for row in rows
    ]


def _line(
    standing: Standing,
    metrics: Sequence[str],
    marks: dict[str, int],
    *,
    levels: Sequence[str],
    trained_on: bool,
) -> tuple[str, ...]:
    """Return the cells of a standing's line, one for each column of `table`. The standing's remarks
    become numbers in brackets after the method.

    Args:
        metrics: the names of the metrics that are columns.
        marks: the number of each remark of earlier lines, from 1; new remarks are added here.
        levels: the names of the levels, coarse to fine, if all are scored on one test; else empty.
            With them, remarks also tell which scores of different levels contradict each other.
        trained_on: whether the column of training sets is filled.
    """
    # a result that several papers print has one line, with the merged values of their rows
    merged = as_one(standing.rows)
    remarked = [remark for row in standing.rows for remark in remarks(row, levels)]
    numbers = [marks.setdefault(remark, len(marks) + 1) for remark in remarked]
    values = [
        standing.place,
        " ".join([merged.method, *(f"[{number}]" for number in dict.fromkeys(numbers))]),
        merged.year,
        merged.backbone,
        merged.dim,
        merged.setup.trained_on if trained_on else None,
        *map(merged.scores.get, metrics),
    ]
    cells = [NONE if value is None else str(value) for value in values]
    sources = dict.fromkeys(map(short_source, standing.rows))
    return (*cells, ", ".join(sources))


def remarks(row: Row, levels: Sequence[str]) -> list[str]:
    """Return the remarks on a row: its doubt, the scores that are not comparable, with the reason,
    and the scores that contradict each other (`impossible` yields a sentence for these).

    A remark on a paper's row begins with the paper's table, since several papers may print one
    result. A remark on a run has no such beginning, so that several runs can share it. `levels`:
    the names of the levels, coarse to fine, if all are scored on one test; else empty.
    """
    source = row.paper or row.run
    doubt = [source.doubt] if source and source.doubt else []
    unranked = [f"{metric} is not ranked: {reason}" for metric, reason in row.unranked.items()]
    texts = [*doubt, *unranked, *impossible(row, levels)]
    return [f"{short_source(row)}: {text}" for text in texts] if row.paper else texts


def short_source(row: Row) -> str:
    """The first author and the table of a row's paper, such as "Ramzi Tab. 1", without the year,
    which has its own column. For a run, its digest and date."""
    if row.paper is None:
        return row.source
    first_author = row.paper.citation.partition(",")[0]
    return f"{first_author} {row.paper.table}"


def full_source(key: str, citation: Citation) -> str:
    """The note below a table that spells out a short source. `key` is the citation's key, which
    begins with the first author."""
    later = " (later work, transcribed, not checked)" if citation.later else ""
    return f"{key.partition(',')[0]}: {citation.text}{later}"


def title(board: Leaderboard) -> str:
    """The title of a table: the dataset, the unit percent, the tests over which scores are
    averaged, and the protocol."""
    tests = f", mean over {', '.join(board.averaged)}" if board.averaged else ""
    return f"{board.dataset}@{board.version}: percent{tests}, {board.protocol} protocol"


def cited_by(
    standings: Iterable[Standing], citations: Mapping[str, Citation]
) -> dict[str, Citation]:
    """The citations of the rows in these standings, sorted by key."""
    used = {row.paper.citation for standing in standings for row in standing.rows if row.paper}
    # a key without a citation is skipped here, since `Leaderboard` refuses it anyway
    return {key: citations[key] for key in sorted(used) if key in citations}


def bibtex(citations: Mapping[str, Citation]) -> str:
    """The sources as BibTeX entries (hbench.datasets.metadata.publications); empty if there are
    none."""
    return publications.bibtex({name: citation.text for name, citation in citations.items()})


def as_json(board: Leaderboard, standings: Iterable[Standing]) -> dict[str, Any]:
    """Return what describes the leaderboard (dataset, metrics, citations …) and, under "rows", a
    record for each row, with the place of its standing. Scores are in percent. Fields that a row
    lacks, or that have their default, are left out.
    """
    about = board.model_dump(mode="json", exclude={"rows"}, exclude_defaults=True)
    rows = []
    for place, row in _rows(standings):
        known = row.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        # floats become JSON numbers; the model would dump a Decimal as a text
        scores = {metric: float(score) for metric, score in row.scores.items()}
        rows.append({"place": place} | known | {"scores": scores})
    return {**about, "unit": "percent", "rows": rows}


def as_csv(board: Leaderboard, standings: Iterable[Standing]) -> str:
    """Return a leaderboard as CSV with one line per row: its description, a column per metric, the
    scores that are not ranked, then setup and provenance. Cells are empty where a row has no value.

    The columns of setup, paper and run are named "setup.FIELD" and so on; the deviations between
    seeds are in one cell, as a JSON object by metric. A text that a spreadsheet would take for a
    formula gets an apostrophe in front.
    """
    # the tables inside of a row, by the name of the row's field
    inner: dict[str, type[BaseModel]] = {"setup": Setup, "paper": Paper, "run": RunProvenance}
    header = ["dataset", "version", "protocol", "place", "method", "year", "backbone", "dim"]
    header += [*board.metrics, "unranked"]
    header += [f"{name}.{field}" for name, model in inner.items() for field in model.model_fields]

    lines = []
    for place, row in _rows(standings):
        unranked = "; ".join(f"{metric}: {reason}" for metric, reason in row.unranked.items())
        about = [
            board.dataset,
            board.version,
            board.protocol,
            place,
            row.method,
            row.year,
            row.backbone,
            row.dim,
        ]
        # a row has either no paper or no run: the table is None then, and its cells are empty
        tables = [(getattr(row, name), model) for name, model in inner.items()]
        details = [
            _cell(getattr(values, field, None))
            for values, model in tables
            for field in model.model_fields
        ]
        lines.append(
            map(without_formula, [*about, *map(row.scores.get, board.metrics), unranked, *details])
        )

    return csv_text(header, lines)


def _cell(value: Any) -> Any:
    """The value of a field for a cell of the CSV: a mapping from metrics to numbers is written as
    JSON, an empty one as an empty cell."""
    if not isinstance(value, Mapping):
        return value
    return json.dumps({name: float(number) for name, number in value.items()}) if value else None


def _rows(standings: Iterable[Standing]) -> Iterator[tuple[int | None, Row]]:
    """Each row of the standings, with the place of its standing."""
    return ((standing.place, row) for standing in standings for row in standing.rows)
