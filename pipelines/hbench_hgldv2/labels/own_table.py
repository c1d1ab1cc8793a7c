"""Reads a curator's own table of labels, for example of birds or museum objects, and finds the
columns that hold the ids, the labels and the counts.

A column is chosen for a part only when no other column's title fits that part. The choice is
printed, and `--columns` overrides it.

>>> parts_of("birds.csv", ["taxonID", "vernacularName", "n", "order"], {})
{'id': 'taxonID', 'label': 'vernacularName', 'count': 'n'}
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from hbench.core.errors import DataError, UnknownName, UsageError, examples
from hbench.core.tables import text_rows
from hbench.sheets import sheet
from hbench.sheets.column_values import plain_id
from hbench.sheets.understood import Understood
from hbench_hgldv2.artefact import SEPARATOR, record_of
from hbench_hgldv2.labels.label import GROUP, Label

# The known column titles of each part; case, spaces, hyphens and underscores make no difference.
TITLES = {
    "id": (
        "id", "class_id", "label_id", "category_id", "taxon_id", "species_id", "concept_id",
        "object_id", "term_id", "gbif_id", "aat_id", "taxon_key", "qid", "key", "code",
    ),
    "label": (
        "label", "name", "class_name", "category_name", "scientific_name", "vernacular_name",
        "common_name", "english_name", "pref_label", "preferred_label", "title", "term",
    ),
    "count": (
        "count", "counts", "n", "number", "total", "frequency", "images", "n_images", "num_images",
        "items", "n_items", "objects", "records", "observations", "occurrences", "landmarks",
    ),
}  # fmt: skip
WHOLE_NUMBER = re.compile(r"\d+")
UNUSABLE_ID = re.compile(rf"^{GROUP}|[{re.escape(SEPARATOR)}\x00-\x1f\x7f]")
EXAMPLE = "id=taxonID,label=vernacularName,count=n"


class LabelTable(NamedTuple):
    """The labels of a table, sorted by count, with the column of each part, a sentence on how the
    table was read, and the number of rows that were left out because they have no label."""

    labels: list[Label]
    columns: dict[str, str]
    understood: Understood
    unlabelled: int


class TableRow(NamedTuple):
    """The texts of a row that are used, and the row's number; the first row below the header has
    number 1."""

    number: int
    class_id: str
    label: str
    counted: str


def chosen_columns(text: str | None) -> dict[str, str]:
    """Read the columns that the user assigned to parts from a text such as "id=taxonID,count=n".

    Raises UsageError for a text of another form, UnknownName for an unknown part.
    """
    if text is None:
        return {}

    chosen: dict[str, str] = {}
    for pair in text.split(","):
        part, equals, column = (piece.strip() for piece in pair.partition("="))
        if not (equals and column):
            raise UsageError(
                "--columns cannot be read", expected=f"pairs such as {EXAMPLE}", found=repr(pair)
            )
        if part not in TITLES:
            raise UnknownName("part of --columns", part, TITLES)
        if part in chosen:
            raise UsageError(
                f"--columns names {part} twice",
                expected="one column for each of id, label and count",
                found=f"{chosen[part]} and {column}",
            )
        chosen[part] = column
    return chosen


def parts_of(source: str, titles: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Find the columns of the id, the label and the count. The column of a part is the chosen one
    or, without a choice, the only one whose title fits.

    Raises UnknownName for a chosen column that the table does not have, and DataError that names
    every part for which no column fits or several do. `source` is the name of the table in errors;
    `titles` are its column titles; `chosen` maps a part to the column that the user named for it.
    """
    for column in chosen.values():
        if column not in titles:
            raise UnknownName("column", column, titles)

    free = [title for title in titles if title not in chosen.values()]
    # part ("id", "label", "count") -> the columns that could be it, by titles known for the part
    fitting = {
        part: [chosen[part]] if part in chosen else _with_title(free, known)
        for part, known in TITLES.items()
    }
    unclear = {part: columns for part, columns in fitting.items() if len(columns) != 1}
    if unclear:
        # the option that would settle it, with the first column that fits, where one does
        pairs = [f"{part}={next(iter(columns), 'COLUMN')}" for part, columns in unclear.items()]
        problems = [_problem(part, columns) for part, columns in unclear.items()]
        raise DataError(
            f"{source} has no single column for the {' and the '.join(unclear)}",
            expected="one column for the id, one for the label and one for the count",
            found="; ".join([*problems, f"the columns are {examples(titles, most=12)}"]),
            fix=f"say which: --columns {','.join(pairs)}",
        )

    return {part: columns[0] for part, columns in fitting.items()}


def read(path: Path, chosen: Mapping[str, str]) -> LabelTable:
    """Read the labels of a table in CSV, TSV or parquet.

    Raises DataError for a file that is not a table, for columns that cannot be told apart, and for
    rows that cannot be used, with their row numbers. `chosen` maps a part ("id", "label" or
    "count") to the column that the user named for it.
    """
    # `how_written` says in words what is unusual about the file's format; "" if nothing is
    _, table, how_written = sheet.read(path)
    columns = parts_of(path.name, table.column_names, chosen)  # part -> column
    rows = _rows_of(table, columns)  # cells are texts
    labelled = [row for row in rows if row.label]
    _refuse_unusable(path, labelled)  # so every count below is a whole number

    # A Label counts landmarks by split, and `label.landmarks` is their sum. The table has one
    # count, which is stored as that of the training split, with 0 for the index split.
    labels = [
        Label(row.class_id, row.label, int(row.counted), n_index=0, n_ambiguous=0, examples=())
        for row in labelled
    ]
    labels.sort(key=lambda label: (-label.landmarks, label.class_id))
    unlabelled = len(rows) - len(labelled)
    facts = [how_written] if how_written else []
    facts += [f"{part} by {column}" for part, column in columns.items()]
    facts += _facts_on(labels, unlabelled)
    left_out = _unused(table.column_names, columns)
    understood = Understood(
        source=path.name,
        what=f"{len(labels):,} labels",
        facts=tuple(facts),
        left_out=left_out,
        hints=("--columns id=…,label=…,count=… says otherwise",) if left_out else (),
    )
    return LabelTable(labels, columns, understood, unlabelled)


def _unused(titles: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The titles of the columns that are no part, each with the remark "not used"."""
    used = set(columns.values())
    return {title: "not used" for title in titles if title not in used}


def is_own(labels: Path) -> bool:
    """Whether the labels were read from a curator's own table, according to the record next to
    labels.csv."""
    record = record_of(labels)
    return record is not None and "columns" in record.settings


def _facts_on(labels: Sequence[Label], unlabelled: int) -> list[str]:
    """Describe the number of landmarks of all labels, the rows without a label, and the ids that
    share the text of their label with another id."""
    facts = [f"{sum(label.landmarks for label in labels):,} counted in all"]
    if unlabelled:
        facts.append(f"rows without a label, left out: {unlabelled:,}")

    times = Counter(label.label for label in labels)
    shared = sum(count for count in times.values() if count > 1)
    if shared:
        facts.append(f"labels whose text several ids share: {shared:,}")
    return facts


def _with_title(titles: Sequence[str], known: Sequence[str]) -> list[str]:
    """Select the titles that are among the known ones."""
    folded = {_folded(title) for title in known}
    return [title for title in titles if _folded(title) in folded]


def _folded(title: str) -> str:
    """A title without case, spaces, hyphens and underscores: "Taxon ID", "taxon_id" and "taxonID"
    become one."""
    return re.sub(r"[\s_-]", "", title).casefold()


def _problem(part: str, columns: Sequence[str]) -> str:
    """Say why the column of a part is unclear. `columns` are the columns that fit: none, or
    several."""
    if not columns:
        return f"no column has a title of a {part}, such as {examples(TITLES[part], most=3)}"
    return f"{' and '.join(columns)} may each be the {part}"


def _rows_of(table: pa.Table, columns: Mapping[str, str]) -> list[TableRow]:
    """Read the three columns, those of TITLES, as texts without outer spaces. Ids and counts that
    were stored as floats lose their decimals. `columns`: {"id", "label" or "count": column}."""
    cells = text_rows(table, [columns[part] for part in TITLES])
    return [
        TableRow(
            number=number,
            class_id=plain_id(class_id),
            label=" ".join(label.split()),
            counted=plain_id(count),
        )
        for number, (class_id, label, count) in enumerate(cells, start=1)
    ]


def _refuse_unusable(path: Path, rows: Sequence[TableRow]) -> None:
    """Raise DataError for a table without labels; for an id that is missing, repeated or unusable;
    and for a count that is not a whole number.

    SEPARATOR joins ids in a cell of the files that are written, and GROUP begins the ids of group
    names among the embeddings, so neither may be in an id.
    """
    if not rows:
        raise DataError(f"{path} has no labels", expected="rows with an id, a label and a count")

    times = Counter(row.class_id for row in rows)
    # what each row must have -> the rows that do not have it
    problems = {
        "an id": [row for row in rows if not row.class_id],
        "an id of its own": [row for row in rows if row.class_id and times[row.class_id] > 1],
        f"an id without {SEPARATOR} and line breaks, not beginning with {GROUP}": [
            row for row in rows if UNUSABLE_ID.search(row.class_id)
        ],
        "a count that is a whole number": [
            row for row in rows if not WHOLE_NUMBER.fullmatch(row.counted)
        ],
    }
    wrong = {expected: found for expected, found in problems.items() if found}
    if wrong:
        raise DataError(
            f"{path} has rows that cannot be used",
            expected="in each row " + ", ".join(wrong),
            found="; ".join(_shown(found) for found in wrong.values()),
            fix="mend these rows, or leave them out of the table",
        )


def _shown(rows: Sequence[TableRow]) -> str:
    """The first rows with a problem: their number, id, label and count."""
    cells = (f"row {row.number}: {row.class_id!r}, {row.label!r}, {row.counted!r}" for row in rows)
    return examples(cells, most=3)
