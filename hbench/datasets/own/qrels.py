"""Reads judgements (qrels) as a dataset: for each query the items that are relevant, and by what
grade, as trec_eval, ir_measures, ranx and BEIR take them.

A level is a grade: an item of the second of two grades is at level 2 of 2. Items that are not
judged, or by a grade of 0 or less, are right for no query.
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
    """Whether a file holds judgements: TREC's four columns, or a header of query, item, grade."""
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
    """Whether a table that looks like judgements has items in its rows, and its only level is
    called "level": a flag says then whether each is a query, where judgements have its id.
    `columns`: those of query, item and grade."""
    query, _, grade = columns
    place = header.index(query)
    flags = {row[place].lower() for row in rows if len(row) == len(header)}
    return words.folded(grade) == "level" and flags <= {"0", "1", "true", "false"}


def _is_line(line: str) -> bool:
    """Whether a line is a judgement in TREC's form, query iteration item grade."""
    fields = line.split()
    return len(fields) == FIELDS and fields[1] in ("0", "1", "Q0") and _is_whole(fields[3])


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number, perhaps a negative one."""
    return text.removeprefix("-").isdigit()


def _columns_of(header: list[str]) -> tuple[str, str, str] | None:
    """The columns of query, item and grade; None for another table. BEIR calls its grades score,
    and hence its ids by dashes.
    """
    query = words.first_of(header, words.QUERIES)
    item = words.first_of(header, words.RETRIEVED)
    is_beir = words.folded(query) == "query-id"
    grade = words.first_of(header, (*words.GRADES, "score") if is_beir else words.GRADES)
    return (query, item, grade) if query and item and grade else None


def read_qrels(path: Path) -> Dataset:
    """The dataset of a file of judgements. Raises DataError for a damaged file, grades that are not
    whole numbers, an item that is judged twice, and a file in which nothing is relevant.
    """
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
    # a dictionary has each pair once: fewer pairs than lines are repeated ones
    grades = {(query, item): int(grade) for query, item, grade in rows}
    if len(grades) < len(rows):
        times = Counter((query, item) for query, item, _ in rows)
        twice = [f"{query} and {item}" for (query, item), count in times.items() if count > 1]
        raise DataError(
            f"{path} judges {len(twice):,} pairs more than once",
            expected="one grade for each query and item",
            found=examples(twice),
        )

    steps = sorted({grade for grade in grades.values() if grade > 0})
    if not steps:
        raise DataError(f"{path} judges nothing as relevant", expected="grades above 0")
    # grades 1 and 3 are levels 1 and 2: only their order counts
    level_of = {grade: level for level, grade in enumerate(steps, start=1)}
    # grades of 0 and below are judged, and not relevant
    listed = [(query, item, level_of[g]) for (query, item), g in grades.items() if g > 0]
    return _dataset(path, grades, listed, tuple(f"grade{grade}" for grade in steps))


def _rows_of(text: TextTable) -> list[tuple[str, ...]]:
    """Query, item and grade, as texts, of each line of judgements, in TREC's form or under a
    header. Raises DataError for lines without four columns."""
    assert text.head is not None
    if all(_is_line(line) for line in text.head.lines):
        fields = [line.split() for line in text.lines().to_pylist()]
        # lines are counted from 1, also the blank ones, which hold nothing
        short = [n for n, parts in enumerate(fields, 1) if parts and len(parts) != FIELDS]
        if short:
            raise DataError(
                f"{text.path} has {len(short):,} lines without four columns",
                expected=" ".join(NAMES),
                found=f"lines {examples(short)}",
            )
        return [(query, item, grade) for query, _, item, grade in filter(None, fields)]
    columns = _columns_of(text.dialect.rows[0])
    assert columns is not None
    return text_rows(text.texts(text.dialect.rows[0]), columns)


def _dataset(
    path: Path,
    grades: dict[tuple[str, str], int],
    listed: list[tuple[str, str, int]],
    levels: tuple[str, ...],
) -> Dataset:
    """The dataset of one test that judgements make.

    `grades`: by (query, item), of all judged pairs; `listed`: (query, item, level from 1) of those
    that are relevant; `levels`: names, by rising grade.
    """
    table = list_of(listed)
    read = _understood(path.name, grades, listed, levels)
    tests = {TEST: _manifest(grades, levels)}
    version = digest_of(table)[:12]
    return Dataset(path.stem, version, Protocol(), None, tests, lists={TEST: table}, read=read)


def _manifest(grades: dict[tuple[str, str], int], levels: tuple[str, ...]) -> Manifest:
    """The queries, each a class of its own, over which intervals are taken, and the judged items,
    of no class, for the lists of pairs say what is right. `grades`: by (query, item)."""
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
    """What a file of judgements was taken for.

    `grades`: by (query, item), of all judged pairs; `listed`: (query, item, number of the level
    from 1) of those that are relevant.
    """
    queries = {query for query, _ in grades}
    gallery = {item for _, item in grades}
    facts = [f"{len(listed):,} relevant of {len(grades):,} judged pairs"]
    if both := len(queries & gallery):
        facts.append(f"{both:,} ids are of a query and of an item: left out of their own lists")
    times = Counter(number for *_, number in listed)
    at_level = [f"{level} ({times[number]:,})" for number, level in enumerate(levels, start=1)]
    what = f"judgements (qrels): {len(queries):,} queries, {len(gallery):,} items"
    return Understood(source, what, (*facts, f"levels {' › '.join(at_level)}"))
