"""Reads and writes artefacts: files of the work folder. Next to each artefact stands `<file>.json`,
the record of how the file was made.

A record holds the sha256 of the file and of its inputs, the settings, and the counts per reason. It
holds no time and no folder, so the same inputs and settings give the same bytes. A step whose
output has a valid record need not run again.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, TextIO, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from hbench.cli import terminal
from hbench.core.errors import DataError, IntegrityError
from hbench.core.files import replacing, write_text
from hbench.core.text import first_problem
from hbench.core.untrusted import read_json
from hbench_hgldv2.steps import maker

Row = TypeVar("Row", bound=tuple[Any, ...])
SEPARATOR = "|"  # does not occur in Commons titles and QIDs


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class ArtefactRecord:
    """The record of how an artefact was made: the step, its settings, its inputs {file name:
    sha256}, and `counts` per reason."""

    step: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    sha256: str = ""


def made_by(step: str, inputs: Iterable[Path], settings: Mapping[str, Any]) -> ArtefactRecord:
    """Make the record of a step that is about to run on `inputs`. Raises DataError when an input
    does not exist."""
    return ArtefactRecord(
        step=step, inputs={path.name: sha256(path) for path in inputs}, settings=dict(settings)
    )


def is_done(record: ArtefactRecord, *paths: Path) -> bool:
    """Return whether all files of a step are intact and were made by the step, from the inputs and
    with the settings in `record`. If so, print that the step's main file, the last of `paths`, is
    up to date."""
    for path in paths:
        kept = record_of(path)
        # is_made_from without inputs tells only whether the file is still as the step wrote it
        if kept is None or not is_made_from(path) or _origin(kept) != _origin(record):
            return False
    terminal.say(f"{paths[-1]} is up to date")
    return True


def is_made_from(path: Path, *inputs: Path) -> bool:
    """Whether `path` is intact and was made, with any settings, from the present content of
    `inputs`."""
    record = record_of(path)
    if record is None or not path.exists() or record.sha256 != sha256(path):
        return False
    return all(record.inputs.get(file.name) == sha256(file) for file in inputs)


def record_of(path: Path) -> ArtefactRecord | None:
    """Read the record next to `path`; None where there is none, for example next to a file made by
    hand. Raises IntegrityError where the file next to `path` is not a record."""
    try:
        return ArtefactRecord(**read_json(_record_path(path)))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        # a problem is "key: message"; where the whole record is wrong, the key is empty
        reason = first_problem(error).removeprefix(": ")
    except (ValueError, TypeError, OSError) as error:
        reason = str(error)
    raise IntegrityError(
        f"{_record_path(path)} is not a record of a step", found=reason, fix="run the step again"
    )


def write(
    path: Path, record: ArtefactRecord, counts: Mapping[str, int], fill: Callable[[Path], object]
) -> None:
    """Let `fill` write the artefact, whole or not at all; then write its record.

    `record` is the record from `made_by`, which says how the artefact is made; the counts and the
    hash of the file are filled in here. `counts` describe the content by name, for people who read
    the record. Names are sorted, so that the same inputs and counts give the same bytes.
    """
    with replacing(path) as temporary:
        fill(temporary)
    inputs = dict(sorted(record.inputs.items()))
    finished = replace(
        record, inputs=inputs, counts=dict(sorted(counts.items())), sha256=sha256(path)
    )
    write_text(
        _record_path(path), json.dumps(asdict(finished), indent=1, ensure_ascii=False) + "\n"
    )


def write_rows(
    path: Path,
    rows: Sequence[Row],
    row_type: type[Row],
    *,
    record: ArtefactRecord,
    counts: Mapping[str, int],
) -> None:
    """Write rows as UTF-8 CSV with a record of the step. The header holds the fields of `row_type`;
    a cell that is a tuple of strings is joined by "|"."""
    text = rows_text(rows, row_type)
    write(path, record, counts, lambda temporary: temporary.write_bytes(text.encode()))


def rows_text(rows: Iterable[Row], row_type: type[Row]) -> str:
    """Return rows as CSV text with a header, one line per row."""
    return csv_text([_columns(row_type), *(map(_cell, row) for row in rows)])


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    """Return cells as CSV text whose lines end in "\\n". A cell with a lone carriage return is
    quoted, because readers would otherwise take it for the end of the line.

    >>> csv_text([["a", "b,c"], ["\\r", ""]])
    'a,"b,c"\\n"\\r",\\n'
    """
    lines = []
    for row in rows:
        line = io.StringIO()
        # csv.writer quotes a carriage return only if its own line terminator contains one
        csv.writer(line, lineterminator="\r\n").writerow(row)
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """Read the rows of a CSV artefact.

    Raises DataError when it is missing or has other columns, IntegrityError when it differs from
    its record.
    """
    # raises IntegrityError where the content differs from its record
    checked(path)
    hints = get_type_hints(row_type)
    # one parser per column: it turns the text of a cell into a value of the field's type
    parsers = [_PARSERS[hints[name]] for name in _columns(row_type)]
    with open_table(path) as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        if tuple(header) != _columns(row_type):
            raise DataError(
                f"{path} has other columns than this step reads",
                expected=", ".join(_columns(row_type)),
                found=", ".join(header) or "an empty file",
                fix="it may be the file of another step",
            )
        try:
            return [_parsed(row_type, parsers, cells) for cells in reader]
        except ValueError as error:
            raise DataError(
                f"{path} cannot be read at line {reader.line_num}", found=str(error)
            ) from None


def _parsed(
    row_type: type[Row], parsers: Iterable[Callable[[str], Any]], cells: Iterable[str]
) -> Row:
    """Make a row from the texts of its cells; each column has its own parser."""
    return row_type(*(parse(cell) for parse, cell in zip(parsers, cells, strict=True)))


@contextmanager
def open_table(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 CSV file. Raises DataError where the file is missing or not UTF-8, and in place
    of a ValueError, KeyError (a missing column) or csv.Error that the block of `with` raises while
    it reads the rows."""
    try:
        # "utf-8-sig" skips the mark that spreadsheet programs write at the start of a file
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield lines
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", fix=_how_to_make(path)) from None
    except (ValueError, KeyError, csv.Error) as error:
        found = f"no column {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(
            f"{path} cannot be read", expected="a table (CSV) in UTF-8", found=found
        ) from None


def checked(path: Path) -> Path:
    """Return the path after comparing the file with its record, if it has one; files written by
    hand have none.

    Raises DataError where the file is missing, IntegrityError where it has changed.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", fix=_how_to_make(path))
    record = record_of(path)
    if record is not None and record.sha256 != sha256(path):
        raise IntegrityError(
            f"{path} has changed since the step {record.step!r} wrote it",
            expected=f"sha256 {record.sha256[:12]}…",
            found=f"{sha256(path)[:12]}…",
            fix=f"run the step again, or delete {_record_path(path).name} to vouch for it",
        )
    return path


def sha256(path: Path) -> str:
    """The sha256 of a file's bytes, as hex; raises DataError if the file does not exist."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", fix=_how_to_make(path)) from None


def counts_text(what: str, counts: Mapping[str, int]) -> str:
    """Return counts per reason as one line.

    >>> counts_text("landmarks", {"kept": 1200, "dropped": 3})
    'landmarks: 3 dropped, 1,200 kept'
    """
    return f"{what}: " + ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


def _how_to_make(path: Path) -> str:
    """Advice on a missing file of the work folder: the command that makes it."""
    step = maker(path.name)
    return f"hbench hgldv2 --work {path.parent} {step} makes it" if step else "check the path"


def _origin(record: ArtefactRecord) -> str:
    """The step, inputs and settings of a record, as one text that can be compared."""
    return json.dumps(
        [record.step, dict(record.inputs), dict(record.settings)], sort_keys=True, default=str
    )


def _record_path(path: Path) -> Path:
    """The path of a file's record, next to the file."""
    return path.with_name(path.name + ".json")


def _columns(row_type: type[Row]) -> tuple[str, ...]:
    """The columns of a CSV artefact: the fields of its named tuple."""
    return row_type._fields  # type: ignore[attr-defined,no-any-return]


def _cell(value: Any) -> str:
    """The text of a value. Floats are rounded to six decimals, since processors differ in the last
    digits."""
    if isinstance(value, tuple):
        return SEPARATOR.join(value)
    return f"{value:.6f}" if isinstance(value, float) else str(value)


_PARSERS: Mapping[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: {"True": True, "False": False}.__getitem__,
    tuple[str, ...]: lambda cell: tuple(cell.split(SEPARATOR)) if cell else (),
}
