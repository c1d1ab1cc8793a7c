"""Reads the predictions of users' tools in several formats: tables with a column of paths, of each
level, or of each class, lineages with ranks, and JSON documents.

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
# a line of Kraken 2 for a read: classified or not, id, taxon, lengths, hits along the read
OF_READ = re.compile(r"^[CU]\t[^\t]+\t[^\t]*\t\d+(?:\|\d+)?(?:\t|$)")
# a line of Kraken 2's summary: percent, reads below, reads there, counts, rank, taxon id, name
OF_REPORT = re.compile(r"^ *\d+\.\d+\t\d+\t\d+\t(?:\d+\t\d+\t)?[A-Z]\d*\t\d+\t")
NAMED_TAXON = re.compile(r"^(.*) \(taxid \d+\)$")
ABOVE_ALL = frozenset(["root", "cellular organisms", "unclassified"])  # taxa that say nothing
NOTHING = frozenset(["", "unassigned", "unclassified", "unknown", "none", "na", "nan", "blank"])


class Prediction(NamedTuple):
    """A prediction of a node for an item."""

    item: str
    names: Row  # the path to the node, coarse to fine
    score: float | None = None  # the chance of the node; None if none is given
    by_level: tuple[float, ...] = ()  # the chance of each name, or () if there are none


class Predictions(NamedTuple):
    """All predictions in a file, and how the file was understood."""

    rows: list[Prediction]
    understood: Understood


def read(path: Path, levels: Sequence[str], names: Set[str]) -> Predictions:
    """Read a file of predictions for a tree with these `levels`, whose nodes have the `names`. Both
    serve to recognise the columns of a table.

    Raises DataError if the format is not known.
    """
    head = head_of(path) if path.is_file() else None
    # programs that classify DNA sequences write text without a header, so that the pattern of the
    # lines tells the format
    if head is not None and head.lines:
        if all(map(OF_REPORT.match, head.lines)):  # a summary of Kraken 2: it has no items
            raise _no_reads(path.name)
        if all(map(OF_READ.match, head.lines)):
            return _of_reads(path)
        # SINTAX writes an id and a lineage, such as d:Bacteria(1.00),p:Firmicutes(0.98)
        if any(_is_with_confidence(line.split("\t")) for line in head.lines):
            return of_table(_table_of_lineages(path), levels, names, path.name)
    document = _document_in(path)  # a JSON value; None for other files
    if document is not None:
        return _of_found(predictions_in(document, path.name), path.name)
    return of_table(read_sheet(path).table, levels, names, path.name)


def _document_in(path: Path) -> str | None:
    """Return the text of a JSON document; None for any other file, also for JSON whose records are
    the rows of a table. If the file has a JSON value in each line, the text is a list of them."""
    kind = suffix_of(path)
    if kind not in (".json", ".jsonl", ".ndjson") or not path.is_file():
        return None
    text = read_document(path)
    if kind != ".json":
        # splitlines would also split at line breaks that JSON allows inside texts, such as U+2028
        lines = [line for line in text.split("\n") if line.strip()]
        text = f"[{','.join(lines)}]"
    try:
        return text if is_document(text) else None
    except ValueError:  # broken JSON: the reader of tables reports where
        return None


def _of_reads(path: Path) -> Predictions:
    """Read Kraken 2's taxon of each read, which is the item. Its path is the name of the taxon
    alone, or empty if the read is not classified. Raises DataError if the taxa are only numbers,
    since a tree of names does not have them: Kraken 2 writes names with --use-names."""
    rows = []
    for line in TextTable(path).lines().to_pylist():
        status, read, taxon, *_ = line.split("\t")
        named = NAMED_TAXON.match(taxon)
        if status == "U":  # unclassified: an empty path
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
            # a taxon such as the root is above all levels, so the path is empty
            rows.append(Prediction(read, () if name in ABOVE_ALL else (name,)))
    form = "the taxon of every read, by Kraken 2"
    return Predictions(
        rows, Understood(source=path.name, what=f"predictions of {_items(rows)}", facts=(form,))
    )


def _no_reads(source: str) -> DataError:
    """Make the error for Kraken 2's summary, which has the number of reads of each taxon, but not
    the reads."""
    return DataError(
        f"{source} counts reads by taxon, and predicts none of them",
        expected="a taxon of every read",
        found="a report of Kraken 2",
        fix="give what kraken2 --use-names --output FILE writes",
    )


def _of_found(found: DocumentRows, source: str) -> Predictions:
    """Make the predictions of a JSON document, whose paths are still texts. `source`: the file's
    name."""
    rows = [Prediction(item, _names(path), score) for item, path, score in found.rows]
    return Predictions(
        rows, Understood(source=source, what=f"predictions of {_items(rows)}", facts=(found.form,))
    )


def of_table(table: pa.Table, levels: Sequence[str], names: Set[str], source: str) -> Predictions:
    """Read the predictions in a table. Rows without an item are left out.

    Its format is the first of these that fits: a column per level; a column of chances per class;
    columns "Predicted 1", "Predicted 2" and so on; or paths in one column.

    `levels`, `names`: the names of the tree's levels and of all its nodes. `source`: how messages
    call the table.
    """
    item = _column(table, IDS) or next(
        (name for name in table.column_names if words.is_id(name) and name.lower() not in levels),
        "",
    )
    rest = [name for name in table.column_names if name != item]
    if not item:  # no column is called like ids: the first column is assumed to have them
        item, *rest = table.column_names
    items = texts(table, item)
    score = _column(table.select(rest), SCORES)
    # {column of a level's names: column of its chances, or ""}. The columns are called like levels,
    # or are 0, 1, … in an array that pandas wrote.
    of_levels = _level_columns(rest, levels) or _numbered_columns(rest, levels)
    # columns called by a class, or by the path to it
    classes = [name for name in rest if name in names or _last(name) in names]
    predicted = [name for name in rest if name.lower().startswith("predicted ")]
    if of_levels:
        rows, form = _rows_of_level_columns(table, items, of_levels, score)
    # all columns are classes, but for one at most, which may be anything
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
    """Say how many different items have predictions."""
    return f"{len({row.item for row in rows}):,} items"


def _no_form(source: str, columns: Sequence[str]) -> DataError:
    """Make the error for a table without predictions in any known format."""
    return DataError(
        f"{source} holds no predictions",
        expected="item, path and, perhaps, score; or a column per level; or one per class",
        found=", ".join(columns),
        fix="name the columns item, path and score",
    )


def _is_with_confidence(cells: Sequence[str]) -> bool:
    """Whether the cells of a line are those of SINTAX: an id, and a lineage with a confidence at
    each rank."""
    return len(cells) > 1 and WITH_CONFIDENCE.match(cells[1]) is not None


def _table_of_lineages(path: Path) -> pa.Table:
    """Read the ids and lineages in a file of SINTAX, which has no header. A sequence that SINTAX
    could not classify has an id, but no lineage."""
    cells = [line.split("\t") for line in TextTable(path).lines().to_pylist() if line]
    taxa = [each[1] if len(each) > 1 else "" for each in cells]
    return pa.table({"item": [each[0] for each in cells], "taxon": taxa})


def _column(table: pa.Table, wanted: Sequence[str]) -> str:
    """Return the column that is called by the first of the `wanted` words that the table has; "" if
    it has none."""
    return words.first_of(table.column_names, wanted)


def _level_columns(columns: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """Find the columns of names at the levels, coarse to fine: {column: the column of its chances,
    "" if there is none}."""
    # columns by the rank that their names mean: "taxon_genus_name" is found for the level "genus"
    by_word = {words.rank_of(name): name for name in columns}
    found = {}
    for level in levels:
        column = by_word.get(words.folded(level))
        if column is None:
            continue
        # the name of the level beside a word for chances, as in "genus score" or "prob_genus"
        chance = OF_LEVEL.format(re.escape(words.folded(level)), "|".join(SCORES))
        scores = [name for name in columns if re.fullmatch(chance, words.folded(name))]
        found[column] = scores[0] if scores else ""
    # with several levels, a single column called like a level may hold paths
    return found if len(found) > 1 or len(levels) == 1 else {}


def _numbered_columns(columns: Sequence[str], levels: Sequence[str]) -> dict[str, str]:
    """Find the columns 0, 1, … of an array that pandas wrote, if there is one for each level and no
    other column: {column: ""}, since there are no chances. Empty for other columns."""
    numbers = [str(number) for number in range(len(levels))]
    return dict.fromkeys(numbers, "") if len(levels) > 1 and list(columns) == numbers else {}


def _rows_of_level_columns(
    table: pa.Table, items: Sequence[str], columns: dict[str, str], score: str
) -> tuple[list[Prediction], str]:
    """Make the predictions of a table with a column per level, and name that format. `columns`:
    {column of a level: column of its chances, or ""}, coarse to fine; `items`: the item of each
    row; `score`: the column of chances of whole paths, or ""."""
    names = list(zip(*(texts(table, name) for name in columns), strict=True))  # of each row
    # chances are only used if each level has them
    chances = [name for name in columns.values() if name]
    if chances and len(chances) == len(columns):
        numbers = zip(*(texts(table, name) for name in chances), strict=True)
        rows = []
        for item, row, each in zip(items, names, numbers, strict=True):
            kept = _names_said(row)  # a path may end early
            by_level = tuple(_number(text) or 0.0 for text in each[: len(kept)])
            rows.append(Prediction(item=item, names=kept, score=None, by_level=by_level))
        return rows, "a column per level, each with its chance"
    scores = texts(table, score) if score else [""] * len(items)
    rows = [
        Prediction(item=item, names=_names_said(row), score=_number(text))
        for item, row, text in zip(items, names, scores, strict=True)
    ]
    return rows, "a column per level"


def _rows_of_candidates(
    table: pa.Table, items: Sequence[str], columns: Sequence[str], names: Set[str]
) -> tuple[list[Prediction], str]:
    """Make the predictions of a table with `columns` of predicted names, coarse to fine, and name
    that format. A cell of the last column may list several candidates, "a, b", each of which
    becomes a prediction. `items`: the item of each row; `names`: those of the tree."""
    rows = []
    for item, *cells in zip(items, *(texts(table, name) for name in columns), strict=True):
        *above, last = cells
        # a cell that is a name of the tree is not a list, even with a comma
        candidates = [last] if last in names else last.split(", ")
        for each in candidates:
            # `_names_said`: the path ends at its last name that is not "unknown", "NA" or the like
            rows.append(Prediction(item, _names_said([*above, each])))
    return rows, "predicted columns, coarse to fine"


def _rows_of_class_columns(
    table: pa.Table, items: Sequence[str], classes: Sequence[str]
) -> tuple[list[Prediction], str]:
    """Make the predictions of a table with a column of chances per class, and name that format: a
    prediction for each item and class. An empty cell is a chance of 0. `items`: the item of each
    row; `classes`: the columns, which are called by a class or by its path."""
    rows = []
    for name in classes:
        path = _names(name)
        for item, text in zip(items, texts(table, name), strict=True):
            rows.append(Prediction(item=item, names=path, score=_number(text) or 0.0))
    return rows, f"a column per class ({len(classes):,})"


def _rows_of_path_column(
    table: pa.Table, items: Sequence[str], column: str, score: str
) -> tuple[list[Prediction], str]:
    """Make the predictions of a table with a column of paths, and name that format. A cell may hold
    several paths, in lines or as a list.

    `items`: the item of each row; `score`: the column of the paths' chances, or "". SINTAX's
    lineages, such as d:Bacteria(0.9),p:Firmicutes(0.8), have a chance at each rank instead.
    """
    scores = texts(table, score) if score else [""] * len(items)
    rows = []
    for item, cell, number in zip(items, table[column].to_pylist(), scores, strict=True):
        several = cell if isinstance(cell, list) else (cell or "").split("\n")
        for each in several:
            if WITH_CONFIDENCE.match(each.strip()):
                ranks = ONE_RANK.findall(each)
                by_level = tuple(float(chance) for _, chance in ranks)
                rows.append(
                    Prediction(
                        item=item,
                        names=tuple(name for name, _ in ranks),
                        score=None,
                        by_level=by_level,
                    )
                )
            else:
                rows.append(Prediction(item=item, names=_names(each), score=_number(number)))
    return rows, f"paths in {column}"


def _names(text: str) -> Row:
    """Split a text at the first of SEPARATORS that it contains into the names of a path, coarse to
    fine, down to the last that is a class ("NA" and the like are none). `split_path` also removes
    prefixes of ranks (k__) and a number in front of the path."""
    text = text.strip()
    # whether the separator is " > " or ">", the text is split at the mark without blanks
    mark = next((each.strip() for each in SEPARATORS if each in text), None)
    # a comma may be part of a name, but if names have prefixes of ranks, it is a separator
    if mark is None and "," in text and PREFIX.match(text):
        mark = ","
    names = split_path(text, mark) if mark else (PREFIX.sub("", text),)
    return _names_said(names)


def _names_said(names: Sequence[str]) -> Row:
    """Return the names of a path down to the last that is a class. "unknown", "NA" and the like are
    not classes; before the last class, they become ""."""
    return stripped("" if name.strip().casefold() in NOTHING else name.strip() for name in names)


def _last(path: str) -> str:
    """Return the last name of a path in a text; "" if the path is empty."""
    names = _names(path)
    return names[-1] if names else ""


def _number(text: str) -> float | None:
    """Read the chance in a cell, "0.9" or "90%"; None for an empty cell. Raises DataError for any
    other text."""
    if not text.strip():
        return None
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        raise DataError(
            "a chance is no number", expected="0 … 1, or percent", found=repr(text)
        ) from None
    return value / 100 if text.strip().endswith("%") else value
