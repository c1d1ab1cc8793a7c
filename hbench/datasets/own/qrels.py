"""Reads relevance judgements (qrels) as a dataset: for each query, the relevant items and their
grades, in the formats of trec_eval, ir_measures, ranx and BEIR.

A level is a grade: with two grades, an item with the higher one is at level 2 of 2. A pair that is
not judged, or with a grade of 0 or less, has level 0.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from hbench.core.errors import DataError, examples
from hbench.core.tables import text_rows
from hbench.core.text import first_line
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import TEST, Dataset, Protocol, digest_of, list_of
from hbench.datasets.manifest import Manifest
from hbench.sheets import words
from hbench.sheets.dialect import suffix_of
from hbench.sheets.rows import Row
from hbench.sheets.sheet import TEXTS
from hbench.sheets.text import TextTable
from hbench.sheets.understood import Understood
from hbench.tree.partial import NO_CLASS

FIELDS = 4  # query iteration item grade
SUFFIXES = (*TEXTS, "", ".qrel", ".qrels", ".trec", ".test", ".dev")
NAMES = ("query", "iteration", "item", "grade")


def is_qrels(path: Path) -> bool:
    """Whether a file holds judgements: TREC's four columns, or a header of query, item, grade. Only
    the first lines of the file are looked at."""
    if suffix_of(path) not in SUFFIXES:
        return False
    text = TextTable(path)
    if text.head is None or not text.head.lines:  # no text, or an empty one
        return False
    if all(_is_line(line) for line in text.head.lines):
        return True
    header, *rows = text.dialect.rows or [[]]
    columns = _columns_of(header)
    # a table of items with a flag `query` and a level called "level" has the same header
    return columns is not None and not _are_items(header, rows, columns)


def _are_items(header: list[str], rows: list[list[str]], columns: tuple[str, str, str]) -> bool:
    """Whether a table with the header of judgements is a table of items after all. Then its only
    level is called "level", and its column `query` has truth values, not ids. `columns`: those of
    query, item and grade."""
    query, _, grade = columns
    place = header.index(query)
    flags = {row[place].lower() for row in rows if len(row) == len(header)}
    return words.folded(grade) == "level" and flags <= {"0", "1", "true", "false"}


def _is_line(line: str) -> bool:
    """Whether a line is a judgement in TREC's format: query, iteration, item, grade."""
    fields = line.split()
    return len(fields) == FIELDS and fields[1] in ("0", "1", "Q0") and _is_whole(fields[3])


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number, perhaps a negative one."""
    return text.removeprefix("-").isdigit()


def _columns_of(header: list[str]) -> tuple[str, str, str] | None:
    """Return the columns of query, item and grade; None if the table is not one of judgements.

    BEIR calls its column of grades "score", as rankings call their scores. So "score" counts as
    grades only beside a column "query-id", which BEIR writes with a hyphen.
    """
    # `first_of` returns "" if there is no such column
    query = words.first_of(header, words.QUERIES)
    item = words.first_of(header, words.RETRIEVED)
    is_beir = words.folded(query) == "query-id"
    grade = words.first_of(header, (*words.GRADES, "score") if is_beir else words.GRADES)
    return (query, item, grade) if query and item and grade else None


def read_qrels(path: Path) -> Dataset:
    """Read a file of judgements as a dataset. Raises DataError if the file is damaged, a grade is
    not a whole number, a pair is judged twice, or nothing is relevant."""
    try:
        rows = _rows_of(TextTable(path))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(
            f"{path} cannot be read", expected="judgements", found=first_line(error)
        ) from None
    bad = [grade for _, _, grade in rows if not _is_whole(grade)]
    if bad:
        raise DataError(
            f"{path} has grades that are not whole numbers",
            expected="0, 1, 2 …",
            found=examples(map(repr, bad)),
        )
    # a dictionary has each pair once, so if it is shorter, some pairs are repeated
    grades = {(query, item): int(grade) for query, item, grade in rows}
    if len(grades) < len(rows):
        times = Counter((query, item) for query, item, _ in rows)
        twice = [f"{query} and {item}" for (query, item), count in times.items() if count > 1]
        raise DataError(
            f"{path} judges {len(twice):,} pairs more than once",
            expected="one grade for each query and item",
            found=examples(twice),
        )

    relevant_grades = sorted({grade for grade in grades.values() if grade > 0})
    if not relevant_grades:
        raise DataError(f"{path} judges nothing as relevant", expected="grades above 0")
    # only the order of grades counts: grades 1 and 3 are levels 1 and 2
    level_of = {grade: level for level, grade in enumerate(relevant_grades, start=1)}
    # pairs with grades of 0 and below were judged as not relevant
    listed = [(query, item, level_of[g]) for (query, item), g in grades.items() if g > 0]
    levels = tuple(f"grade{grade}" for grade in relevant_grades)
    return _dataset(path, grades, listed, levels)


def _rows_of(text: TextTable) -> list[tuple[str, ...]]:
    """Read query, item and grade of each judgement, as texts, in TREC's format or under a header.
    The file has been recognised as judgements before (`is_qrels`), so it has first lines
    (`text.head`). Outside of TREC's format, the first line is a header with the columns needed.

    Raises DataError for lines in TREC's format that do not have four columns.
    """
    assert text.head is not None
    if all(_is_line(line) for line in text.head.lines):
        fields = [line.split() for line in text.lines().to_pylist()]
        # blank lines are left out, but count in the numbers of lines, which begin with 1
        short = [n for n, parts in enumerate(fields, 1) if parts and len(parts) != FIELDS]
        if short:
            raise DataError(
                f"{text.path} has {len(short):,} lines without four columns",
                expected=" ".join(NAMES),
                found=f"lines {examples(short)}",
            )
        return [(query, item, grade) for query, _, item, grade in filter(None, fields)]
    header = text.dialect.rows[0]
    columns = _columns_of(header)
    assert columns is not None
    return text_rows(text.texts(header), columns)


def _dataset(
    path: Path,
    grades: dict[tuple[str, str], int],
    listed: list[tuple[str, str, int]],
    levels: tuple[str, ...],
) -> Dataset:
    """Make a dataset with one test of judgements.

    Args:
        path: the file of judgements.
        grades: {(query, item): grade} of all judged pairs.
        listed: (query, item, level from 1) of the relevant pairs.
        levels: the names of the levels, by rising grade.
    """
    table = list_of(listed)
    # facts in words about how the file was read, which the dataset shows to its user
    read = _understood(path.name, grades, listed, levels)
    tests = {TEST: _manifest(grades, levels)}
    version = digest_of(table)[:12]
    return Dataset(
        name=path.stem,
        version=version,
        protocol=Protocol(),
        train=None,
        tests=tests,
        lists={TEST: table},
        read=read,
    )


def _manifest(grades: dict[tuple[str, str], int], levels: tuple[str, ...]) -> Manifest:
    """Make the manifest of the queries and the judged items. `grades`: {(query, item): grade}.

    Each query is a separate class, so that confidence intervals treat queries as independent. The
    other items are of NO_CLASS, since the list of pairs, not labels, says what is relevant.
    """
    queries = dict.fromkeys(query for query, _ in grades)
    gallery = dict.fromkeys(item for _, item in grades)
    items = [*queries, *(item for item in gallery if item not in queries)]
    rows: list[Row] = [(item if item in queries else NO_CLASS,) * len(levels) for item in items]
    return manifests.from_names(
        items,
        rows,
        levels=levels,
        query=np.array([item in queries for item in items]),
        gallery=np.array([item in gallery for item in items]),
    )


def _understood(
    source: str,
    grades: dict[tuple[str, str], int],
    listed: list[tuple[str, str, int]],
    levels: tuple[str, ...],
) -> Understood:
    """Record how a file of judgements was understood. `source`: the file's name.
    `grades`: {(query, item): grade} of all judged pairs. `listed`: (query, item, level from 1) of
    the relevant pairs. `levels`: the names of the levels, by rising grade."""
    queries = {query for query, _ in grades}
    gallery = {item for _, item in grades}
    facts = [f"{len(listed):,} relevant of {len(grades):,} judged pairs"]
    if both := len(queries & gallery):
        facts.append(f"{both:,} ids are of a query and of an item: left out of their own lists")
    times = Counter(number for *_, number in listed)
    at_level = [f"{level} ({times[number]:,})" for number, level in enumerate(levels, start=1)]
    what = f"judgements (qrels): {len(queries):,} queries, {len(gallery):,} items"
    return Understood(source, what, (*facts, f"levels {' › '.join(at_level)}"))
