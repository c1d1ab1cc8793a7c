"""Reads what people's tools predict, by its form: tables of paths, of levels, of chances by class,
lineages with ranks, and documents of JSON.

>>> table = pa.table({"file": ["a"], "Taxon": ["k__Aves; f__Strigidae"], "Confidence": ["0.9"]})
>>> read = of_table(table, ("class", "family"), frozenset(["Aves", "Strigidae"]), "t.tsv")
>>> read.rows
[Prediction(item='a', names=('Aves', 'Strigidae'), score=0.9, by_level=())]
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from hbench.core.errors import DataError
from hbench.core.tables import texts
from hbench.sheets import words
from hbench.sheets.dialect import head_of, suffix_of
from hbench.sheets.paths import PREFIX, SEPARATORS, split_path
from hbench.sheets.prediction_documents import DocumentRows, is_document, predictions_in
from hbench.sheets.rows import Row, stripped
from hbench.sheets.sheet import read as read_sheet
from hbench.sheets.sheet import read_document
from hbench.sheets.text import TextTable
from hbench.sheets.understood import Understood

PATHS = (
    "path", "prediction", "predicted", "taxon", "taxonomy", "lineage", "label", "class", "answer",
    "pred", "predicted_label", "predicted_class", "category", "name",
)  # fmt: skip
SCORES = (
    "score", "confidence", "probability", "prob", "mass", "p", "share", "prediction_score",
    "combined_score",
)  # fmt: skip
IDS = (
    "item",
    "feature id",
    "feature_id",
    "#otu id",
    "otu",
    "query",
    "read",
    "sample",
    "cell",
    "barcode",
)
OF_LEVEL = "(?:{0}[ _.-](?:{1})|(?:{1})[ _.-]{0})"
# vsearch and USEARCH: d:Bacteria(1.00),p:Firmicutes(0.98)
WITH_CONFIDENCE = re.compile(r"^[a-z]:[^(),]+\([0-9.]+\)(?:,[a-z]:[^(),]+\([0-9.]+\))*$")
ONE_RANK = re.compile(r"[a-z]:([^(),]+)\(([0-9.]+)\)")
# Kraken 2 of every read: classified or not, its id, a taxon, lengths, and hits along it
OF_READ = re.compile(r"^[CU]\t[^\t]+\t[^\t]*\t\d+(?:\|\d+)?(?:\t|$)")
# its summary: percent, reads below, reads there, more counts, rank, taxon id, name
OF_REPORT = re.compile(r"^ *\d+\.\d+\t\d+\t\d+\t(?:\d+\t\d+\t)?[A-Z]\d*\t\d+\t")
NAMED_TAXON = re.compile(r"^(.*) \(taxid \d+\)$")
ABOVE_ALL = frozenset(["root", "cellular organisms", "unclassified"])  # taxa that say nothing
NOTHING = frozenset(["", "unassigned", "unclassified", "unknown", "none", "na", "nan", "blank"])


class Prediction(NamedTuple):
    """A row of somebody's table: the names from the top to a node, the chance that it has, None
    where none is given; or one `by_level` (L′,), coarse to fine."""

    item: str
    names: Row
    score: float | None = None
    by_level: tuple[float, ...] = ()


class Predictions(NamedTuple):
    """All rows of a file, and what it was taken for."""

    rows: list[Prediction]
    understood: Understood


def read(path: Path, levels: Sequence[str], names: Set[str]) -> Predictions:
    """Read a file of predictions for a tree of `levels`, whose nodes have the `names`.

    Raises DataError for one in which no form is found.
    """
    head = head_of(path) if path.is_file() else None
    # programs for sequences write texts without a header, known by the shape of their lines
    if head is not None and head.lines:
        if all(map(OF_REPORT.match, head.lines)):  # a summary of Kraken 2: counts, and no items
            raise _no_reads(path.name)
        if all(map(OF_READ.match, head.lines)):
            return _of_reads(path)
        if any(_is_with_confidence(line.split("\t")) for line in head.lines):
            return of_table(_table_of_lineages(path), levels, names, path.name)
    document = _document_in(path)
    if document is not None:
        return _of_found(predictions_in(document, path.name), path.name)
    return of_table(read_sheet(path).table, levels, names, path.name)


def _document_in(path: Path) -> str | None:
    """The text of a document of JSON, or of one in every line; None for any other file."""
    kind = suffix_of(path)
    if kind not in (".json", ".jsonl", ".ndjson") or not path.is_file():
        return None
    text = read_document(path)
    if kind != ".json":
        text = f"[{','.join(line for line in text.splitlines() if line.strip())}]"
    try:
        return text if is_document(text) else None
    except ValueError:  # the reader of tables says where it is broken
        return None


def _of_reads(path: Path) -> Predictions:
    """The taxa of reads by Kraken 2, which has their names where --use-names was given.

    Raises DataError for numbers of taxa alone: no tree of names has them.
    """
    rows = []
    for line in TextTable(path).lines().to_pylist():
        status, read, taxon, *_ = line.split("\t")
        named = NAMED_TAXON.match(taxon)
        if status == "U":  # unclassified: nothing is said of the read
            rows.append(Prediction(read, ()))
        elif named is None:
            raise DataError(
                f"{path.name} has the numbers of taxa, and not their names",
                expected="a name and its number, such as Vulpes vulpes (taxid 9627)",
                found=repr(taxon),
                fix="run kraken2 with --use-names, or give a table of item and lineage",
            )
        else:
            name = named[1].strip()
            # the root and the like are above all levels, and say nothing
            rows.append(Prediction(read, () if name in ABOVE_ALL else (name,)))
    form = "the taxon of every read, by Kraken 2"
    return Predictions(rows, Understood(path.name, f"predictions of {_items(rows)}", (form,)))


def _no_reads(source: str) -> DataError:
    """The refusal of Kraken 2's summary, which says how many reads each taxon has, not which."""
    return DataError(
        f"{source} counts reads by taxon, and predicts none of them",
        expected="a taxon of every read",
        found="a report of Kraken 2",
        fix="give what kraken2 --use-names --output FILE writes",
    )


def _of_found(found: DocumentRows, source: str) -> Predictions:
    """The predictions in a JSON document, whose paths are still texts; `source`: the file."""
    rows = [Prediction(item, _names(path), score) for item, path, score in found.rows]
    return Predictions(rows, Understood(source, f"predictions of {_items(rows)}", (found.form,)))


def of_table(table: pa.Table, levels: Sequence[str], names: Set[str], source: str) -> Predictions:
    """The predictions in a table, of the first of these forms that it has: a column per level, a
    column of chances per class, columns of candidates, or paths in one column. Rows without an item
    are left out.

    `levels`, `names`: those of the tree; `source`: how messages call the table.
    """
    item = _column(table, IDS) or next(
        (name for name in table.column_names if words.is_id(name) and name.lower() not in levels),
        "",
    )
    rest = [name for name in table.column_names if name != item]
    if not item:  # no column is called like ids: the first one holds them
        item, *rest = table.column_names
    items = texts(table, item)
    score = _column(table.select(rest), SCORES)
    # of each level, coarse to fine, the columns of its name and its chance
    by_rank = _level_columns(rest, levels) or _numbered_columns(rest, levels)
    classes = [name for name in rest if name in names or _last(name) in names]
    # "Predicted 1", "Predicted 2" …: candidates, the best one first
    predicted = [name for name in rest if name.lower().startswith("predicted ")]
    if by_rank:
        rows, form = _rows_of_level_columns(table, items, by_rank, score)
    # nearly all columns are names of classes: one may be something else
    elif len(classes) > 1 and len(classes) >= len(rest) - 1:
        rows, form = _rows_of_class_columns(table, items, classes)
    elif len(predicted) > 1:
        rows, form = _rows_of_candidates(table, items, predicted, names)
    else:
        column = _column(table.select(rest), PATHS) or next(
            (name for name in rest if name != score), ""
        )
        if not column:
            raise _no_form(source, table.column_names)
        rows, form = _rows_of_path_column(table, items, column, score)
    rows = [row for row in rows if row.item]
    facts = (form, *([f"chances in {score}"] if score else []))
    return Predictions(rows, Understood(source, f"predictions of {_items(rows)}", facts))


def _items(rows: Sequence[Prediction]) -> str:
    """How many different items have predictions, in words."""
    return f"{len({row.item for row in rows}):,} items"


def _no_form(source: str, columns: Sequence[str]) -> DataError:
    """The refusal of a table whose columns are no predictions in any known form."""
    return DataError(
        f"{source} holds no predictions",
        expected="item, path and, perhaps, score; or a column per level; or one per class",
        found=", ".join(columns),
        fix="name the columns item, path and score",
    )


def _is_with_confidence(cells: Sequence[str]) -> bool:
    """Whether a line is one of SINTAX: an id, and a lineage with a confidence at every rank."""
    return len(cells) > 1 and WITH_CONFIDENCE.match(cells[1]) is not None


def _table_of_lineages(path: Path) -> pa.Table:
    """The ids and lineages in a file of SINTAX, which has no header, and nothing behind the ids of
    what it could not place."""
    cells = [line.split("\t") for line in TextTable(path).lines().to_pylist() if line]
    taxa = [each[1] if len(each) > 1 else "" for each in cells]
    return pa.table({"item": [each[0] for each in cells], "taxon": taxa})


def _column(table: pa.Table, wanted: Sequence[str]) -> str:
    """The column of a table that is called by one of these words, of the first that is found; ""
    where none is."""
    return words.first_of(table.column_names, wanted)


def _level_columns(columns: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """The columns of names at the levels, coarse to fine, each with that of its chance, or ""."""
    by_word = {words.rank_of(name): name for name in columns}
    found = {}
    for level in levels:
        column = by_word.get(words.folded(level))
        if column is None:
            continue
        # such as "genus score" or "prob_genus"
        chance = OF_LEVEL.format(re.escape(words.folded(level)), "|".join(SCORES))
        scores = [name for name in columns if re.fullmatch(chance, words.folded(name))]
        found[column] = scores[0] if scores else ""
    # one column of many levels may as well hold paths
    return found if len(found) > 1 or len(levels) == 1 else {}


def _numbered_columns(columns: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """The columns 0, 1, … of an array that pandas wrote, if they are all that there are, one for
    each level; each with "", since it has no chance beside it. Empty for other columns."""
    numbers = [str(number) for number in range(len(levels))]
    return dict.fromkeys(numbers, "") if len(levels) > 1 and list(columns) == numbers else {}


def _rows_of_level_columns(
    table: pa.Table, items: Sequence[str], columns: dict[str, str], score: str
) -> tuple[list[Prediction], str]:
    """Rows of a table with a column per level, and what form that is. `columns`: each with the
    column of its chance, or ""; `score`: one column of chances of whole paths, or ""."""
    names = list(zip(*(texts(table, name) for name in columns), strict=True))
    # chances of some levels alone are not used: a path is not sure to a level that has none
    chances = [name for name in columns.values() if name]
    if chances and len(chances) == len(columns):
        numbers = zip(*(texts(table, name) for name in chances), strict=True)
        rows = []
        for item, row, each in zip(items, names, numbers, strict=True):
            # without what is empty behind the last name
            kept = _names_said(row)
            by_level = tuple(_number(text) or 0.0 for text in each[: len(kept)])
            rows.append(Prediction(item, kept, None, by_level))
        return rows, "a column per level, each with its chance"
    scores = texts(table, score) if score else [""] * len(items)
    rows = [
        Prediction(item, _names_said(row), _number(text))
        for item, row, text in zip(items, names, scores, strict=True)
    ]
    return rows, "a column per level"


def _rows_of_candidates(
    table: pa.Table, items: Sequence[str], columns: Sequence[str], names: Set[str]
) -> tuple[list[Prediction], str]:
    """Rows of a table with `columns` of predicted names, coarse to fine, and what form that is. A
    cell of the last one may list several candidates, "a, b", each of which becomes a row; `names`:
    those of the tree."""
    rows = []
    for item, *cells in zip(items, *(texts(table, name) for name in columns), strict=True):
        *above, last = cells
        # a name with a comma in it, which the tree has, is no list
        candidates = [last] if last in names else last.split(", ")
        for each in candidates:
            rows.append(Prediction(item, _names_said([*above, each])))
    return rows, "predicted columns, coarse to fine"


def _rows_of_class_columns(
    table: pa.Table, items: Sequence[str], classes: Sequence[str]
) -> tuple[list[Prediction], str]:
    """Rows of a table with a column of chances for each class, and what form that is: a row for
    every item and class; an empty cell is a chance of 0."""
    rows = []
    for name in classes:
        path = _names(name)
        for item, text in zip(items, texts(table, name), strict=True):
            rows.append(Prediction(item, path, _number(text) or 0.0))
    return rows, f"a column per class ({len(classes):,})"


def _rows_of_path_column(
    table: pa.Table, items: Sequence[str], column: str, score: str
) -> tuple[list[Prediction], str]:
    """Rows of a table whose cells hold a path, or several: in lines, or as a list; and what form
    that is. `score`: the column of their chances, or ""; lineages as SINTAX writes them,
    d:Bacteria(0.9),p:Firmicutes(0.8), have a chance at every rank."""
    scores = texts(table, score) if score else [""] * len(items)
    rows = []
    for item, text, number in zip(items, table[column].to_pylist(), scores, strict=True):
        several = text if isinstance(text, list) else (text or "").split("\n")
        for each in several:
            if WITH_CONFIDENCE.match(each.strip()):
                ranks = ONE_RANK.findall(each)
                by_level = tuple(float(chance) for _, chance in ranks)
                rows.append(Prediction(item, tuple(name for name, _ in ranks), None, by_level))
            else:
                rows.append(Prediction(item, _names(each), _number(number)))
    return rows, f"paths in {column}"


def _names(text: str) -> Row:
    """The names of a path that stands in one text, coarse to fine, without ranks before them (k__)
    and an id in front; split at the first separator that it has."""
    text = text.strip()
    # " > " is looked for before ">", but either is split at the mark alone
    mark = next((each.strip() for each in SEPARATORS if each in text), None)
    # a comma may be part of a name, but not where ranks stand before names
    if mark is None and "," in text and PREFIX.match(text):
        mark = ","
    names = split_path(text, mark) if mark else (PREFIX.sub("", text),)
    return _names_said(names)


def _names_said(names: Sequence[str]) -> Row:
    """The names down to the last that says something: "unknown", "NA" and the like say nothing."""
    return stripped("" if name.strip().casefold() in NOTHING else name.strip() for name in names)


def _last(path: str) -> str:
    """The last name of a path that stands in one text; "" for one that says nothing."""
    names = _names(path)
    return names[-1] if names else ""


def _number(text: str) -> float | None:
    """The chance in a cell, "0.9" or "90%"; None for an empty one. Raises DataError for another
    text."""
    if not text.strip():
        return None
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        raise DataError(
            "a chance is no number", expected="0 … 1, or percent", found=repr(text)
        ) from None
    return value / 100 if text.strip().endswith("%") else value
