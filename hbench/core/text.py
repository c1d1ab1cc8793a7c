"""Formats numbers and errors for people: percent, intervals, the first line of an error, the first
problem of a record.

>>> (
...     percent(0.53124),
...     percent(None),
...     percent_range(0.5, 0.6),
...     points(-0.0123),
...     points_range(-0.5, 0.012),
... )
('53.12', '–', '50.00 … 60.00', '-1.23', '-50.00 … +1.20')
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

NONE = "–"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def percent(value: float | None, digits: int = 2, factor: int = 100) -> str:
    """Format a fraction in percent, as published tables print it; None and NaN become an en dash.

    `factor`: 1 for values that are no fractions, such as ranks.
    """
    return NONE if value is None or math.isnan(value) else f"{factor * value:.{digits}f}"


def percent_range(low: float | None, high: float | None, factor: int = 100) -> str:
    """Format the ends of an interval of fractions in percent; an en dash where `low` is None.
    `factor`: 1 for values that are no fractions, such as ranks."""
    return (
        NONE if low is None else f"{percent(low, factor=factor)} … {percent(high, factor=factor)}"
    )


def points(value: float, digits: int = 2, factor: int = 100) -> str:
    """Format a difference of fractions in percentage points, with its sign; an en dash for NaN.
    `factor`: 1 for values that are no fractions, such as ranks."""
    return NONE if math.isnan(value) else f"{factor * value:+.{digits}f}"


def points_range(low: float, high: float, factor: int = 100) -> str:
    """Format the ends of the interval of a difference of fractions in percentage points, with
    signs. `factor`: 1 for values that are no fractions, such as ranks."""
    return f"{points(low, factor=factor)} … {points(high, factor=factor)}"


def counted(count: int, one: str, several: str = "") -> str:
    """A number with its word, in the singular or the plural; the plural has an s if `several` does
    not name it.

    >>> counted(1, "row"), counted(2000, "row"), counted(2, "query", "queries")
    ('1 row', '2,000 rows', '2 queries')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its type if it has no message.

    >>> first_line(ValueError("no header\\n  in x")), first_line(EOFError())
    ('no header', 'EOFError')
    """
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def first_problem(error: ValidationError) -> str:
    """Return the first problem that pydantic found in a record: the path of its key, and what is
    wrong."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def csv_text(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a header and rows as CSV text; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def list_meant_by(text: str) -> str:
    """Return the list in TOML that a user most likely meant by a text: "[0.5, 1]" for "0.5,1", and
    "[0.5]" for "0.5". Parts that are no numbers are quoted."""
    parts = [part.strip() for part in text.split(",")]
    return f"[{', '.join(part if NUMBER.fullmatch(part) else json.dumps(part) for part in parts)}]"
