"""A leaderboard as a table for people, as records for machines (CSV, JSON), its sources as BibTeX.

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

Places = set[int]  # the lines of a column that are marked


def table(
    standings: Sequence[Standing],
    metrics: Sequence[str],
    citations: Mapping[str, Citation],
    levels: Sequence[str] = (),
) -> PrintedTable:
    """Place, method, year, backbone, dimension, the scores of `metrics` and the sources, without
    empty columns; and what was trained on, where all say so, since elsewhere an empty cell would
    look like the dataset's own training set. `levels`: those of one test, whose scores are compared
    with each other. Remarks and sources in full are the notes below the table.
    """
    header = ("place", "method", "year", "backbone", "dim", "trained on", *metrics, "source")
    marks: dict[str, int] = {}  # the number of each remark, filled line by line
    all_say_so = all(as_one(standing.rows).setup.trained_on for standing in standings)
    lines = [
        _line(standing, metrics, marks, levels=levels, trained_on=all_say_so)
        for standing in standings
    ]

    def is_used(place: int) -> bool:
        """Whether a column is always shown, or says something of some standing."""
        always = header[place] in ("place", *metrics)
        return always or any(line[place] != NONE for line in lines)

    used = list(filter(is_used, range(len(header))))

    def kept(line: Sequence[str]) -> tuple[str, ...]:
        """What a line has in the used columns."""
        return tuple(line[place] for place in used)

    notes = [f"[{number}] {text}" for text, number in marks.items()]
    notes += [
        full_source(key, citation) for key, citation in cited_by(standings, citations).items()
    ]
    return PrintedTable(kept(header), list(map(kept, lines)), notes)


def with_best(
    content: PrintedTable, board: Leaderboard, standings: Sequence[Standing]
) -> PrintedTable:
    """Return the table of standings, `content`, with the best cells of every metric in bold and the
    second underlined: by line, the numbers of columns. Scores that are not comparable with the
    others, by their row or their conditions, are left aside, and so are columns of no metric.
    """
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
    """Return the lines of the best score, and those of the second, of the scores of all lines;
    equal ones share. Both are empty where all known scores are equal: then none is ahead."""
    known = sorted(
        {score for score in scores if score is not None},
        key=lambda score: goodness(metric, score),
        reverse=True,
    )
    if len(known) < 2:
        return set(), set()
    first, second = known[:2]
    return _where(scores, first), _where(scores, second)


def _where(scores: Sequence[Decimal | None], score: Decimal) -> Places:
    """The lines that have this score."""
    return {place for place, each in enumerate(scores) if each == score}


def _comparable(
    board: Leaderboard, standings: Sequence[Standing], metric: str
) -> list[Decimal | None]:
    """List the score of every standing by a metric, or None where it has none that is comparable
    with the others."""
    rows = [as_one(standing.rows) for standing in standings]
    # a table is of rows whose queries are items, or of those whose queries are names
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
    """Write a standing as the cells of a line.

    Its remarks become numbers in brackets behind the method; `marks` has the number of each text so
    far, and gets the new ones. `levels`: those whose scores are compared; `trained_on`: whether
    all rows say what they were trained on, so that the column is filled.
    """
    first = as_one(standing.rows)  # a result that several papers print is one line
    texts = [text for row in standing.rows for text in remarks(row, levels)]
    numbers = [marks.setdefault(text, len(marks) + 1) for text in texts]
    values = [
        standing.place,
        " ".join([first.method, *(f"[{number}]" for number in dict.fromkeys(numbers))]),
        first.year,
        first.backbone,
        first.dim,
        first.setup.trained_on if trained_on else None,
        *map(first.scores.get, metrics),
    ]
    texts = [NONE if value is None else str(value) for value in values]
    sources = dict.fromkeys(map(short_source, standing.rows))
    return (*texts, ", ".join(sources))


def remarks(row: Row, levels: Sequence[str]) -> list[str]:
    """Return the remarks on a row: its doubts, which scores are not comparable, and why, and which
    no ranking can have together.

    Those of a paper begin with its table, since several papers may print one result; those of runs
    do not, so that runs of one kind share a remark. `levels`: those whose scores are compared.
    """
    source = row.paper or row.run
    doubt = [source.doubt] if source and source.doubt else []
    unranked = [f"{metric} is not ranked: {reason}" for metric, reason in row.unranked.items()]
    texts = [*doubt, *unranked, *impossible(row, levels)]
    return [f"{short_source(row)}: {text}" for text in texts] if row.paper else texts


def short_source(row: Row) -> str:
    """The first author and the table of a row's paper, such as "Ramzi Tab. 1", since the year has
    its own column; of a run, its digest and date."""
    if row.paper is None:
        return row.source
    first_author = row.paper.citation.partition(",")[0]
    return f"{first_author} {row.paper.table}"


def full_source(key: str, citation: Citation) -> str:
    """Write the line below a table that spells out a short source; `key`: of the citation, which
    begins with the first author."""
    later = " (later work, transcribed, not checked)" if citation.later else ""
    return f"{key.partition(',')[0]}: {citation.text}{later}"


def title(board: Leaderboard) -> str:
    """Write the title of a table: the dataset, that scores are percent, of which tests they are the
    mean, and under which protocol."""
    tests = f", mean over {', '.join(board.averaged)}" if board.averaged else ""
    return f"{board.dataset}@{board.version}: percent{tests}, {board.protocol} protocol"


def cited_by(
    standings: Iterable[Standing], citations: Mapping[str, Citation]
) -> dict[str, Citation]:
    """Select the citations that the rows of these standings have, sorted by key. A key without a
    citation is left out: the leaderboard itself is refused for it."""
    used = {row.paper.citation for standing in standings for row in standing.rows if row.paper}
    return {key: citations[key] for key in sorted(used) if key in citations}


def bibtex(citations: Mapping[str, Citation]) -> str:
    """An entry per source, as hbench.datasets.metadata.publications has it; empty for no
    sources."""
    return publications.bibtex({name: citation.text for name, citation in citations.items()})


def as_json(board: Leaderboard, standings: Iterable[Standing]) -> dict[str, Any]:
    """Return the leaderboard's description and a record per row, with its place and all that is
    known; scores are percent. What has its default, and what a row lacks, is left out.
    """
    about = board.model_dump(mode="json", exclude={"rows"}, exclude_defaults=True)
    rows = []
    # the place last, since standings, not rows, have it; scores as numbers, where rows keep the
    # digits of decimals
    for place, row in _rows(standings):
        known = row.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        scores = {metric: float(score) for metric, score in row.scores.items()}
        rows.append({"place": place} | known | {"scores": scores})
    return {**about, "unit": "percent", "rows": rows}


def as_csv(board: Leaderboard, standings: Iterable[Standing]) -> str:
    """One line per row: what it is, a column per metric, then setup and provenance; empty where a
    row has none. A text that a spreadsheet would take for a formula begins with an apostrophe.
    The columns of setup, paper and run are named "setup.FIELD" and so on."""
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
        # None for a row without such a table: all of its cells are empty
        tables = [(getattr(row, name), model) for name, model in inner.items()]
        details = [
            getattr(values, field, None) for values, model in tables for field in model.model_fields
        ]
        lines.append(
            map(without_formula, [*about, *map(row.scores.get, board.metrics), unranked, *details])
        )

    return csv_text(header, lines)


def _rows(standings: Iterable[Standing]) -> Iterator[tuple[int | None, Row]]:
    """The rows of standings, each with the place of its standing."""
    return ((standing.place, row) for standing in standings for row in standing.rows)
