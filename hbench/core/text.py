"""Writes numbers and errors as people read them: percent, intervals, the first line of an error,
the first misfit of a record.

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
    """A fraction in percent, as published tables print it; an en dash for none, also NaN.

    `factor`: 1 for what is no fraction, such as a rank.
    """
    return NONE if value is None or math.isnan(value) else f"{factor * value:.{digits}f}"


def percent_range(low: float | None, high: float | None, factor: int = 100) -> str:
    """The ends of an interval, given as fractions, in percent; an en dash for none. `factor`: 1 for
    what is no fraction."""
    return (
        NONE if low is None else f"{percent(low, factor=factor)} … {percent(high, factor=factor)}"
    )


def points(value: float, digits: int = 2, factor: int = 100) -> str:
    """A difference of fractions in points of percent, with its sign; an en dash for NaN."""
    return NONE if math.isnan(value) else f"{factor * value:+.{digits}f}"


def points_range(low: float, high: float, factor: int = 100) -> str:
    """The ends of an interval of a difference of fractions, in points of percent with their signs;
    `factor`: 1 for what is no fraction."""
    return f"{points(low, factor=factor)} … {points(high, factor=factor)}"


def first_line(error: Exception) -> str:
    """The first line of what an error of a library says, or its name where it says nothing.

    >>> first_line(ValueError("no header\\n  in x")), first_line(EOFError())
    ('no header', 'EOFError')
    """
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def first_problem(error: ValidationError) -> str:
    """The first misfit that pydantic found in a record: the path of its key, and what is wrong."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def csv_text(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A header and rows as CSV; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def list_meant_by(text: str) -> str:
    """How the list is written that was meant by a text: [0.5, 1] by 0.5,1, and [0.5] by 0.5."""
    parts = [part.strip() for part in text.split(",")]
    return f"[{', '.join(part if NUMBER.fullmatch(part) else json.dumps(part) for part in parts)}]"
