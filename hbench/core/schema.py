"""Checks TOML texts against frozen pydantic models. An error names the key with the problem and
suggests a known key for an unknown one.

>>> class Point(BaseModel):
...     model_config = STRICT
...     x: int
...     y: int = 0
>>> parse(Point, "x = 1", source="point.toml")
Point(x=1, y=0)
>>> parse(Point, "x = 1\\nyy = 2", source="point.toml")
Traceback (most recent call last):
hbench.core.errors.ConfigError: point.toml breaks its schema
  found:    unknown key 'yy'
  next:     did you mean 'y'?
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from hbench.core.errors import ConfigError, closest
from hbench.core.text import list_meant_by
from hbench.core.untrusted import parse_toml

# no value is converted to another type; the validator is built at its first use
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
SHOWN_PROBLEMS = 5
REWORDED = {
    "missing": "missing",
    "int_type": "expected an integer",
    "string_type": "expected a text",
    "bool_type": "expected true or false",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "tuple_type": "expected a list",
}


class Strict(BaseModel):
    """A frozen record that refuses unknown keys. Unlike under STRICT, values may be converted to
    the type of their field."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


Model = TypeVar("Model", bound=BaseModel)


def parse(
    model: type[Model],
    text: str,
    *,
    source: str,
    parse_float: Callable[[str], Decimal] = Decimal,
    refuse: Callable[[Mapping[str, Any]], None] = lambda _values: None,
) -> Model:
    """Make the instance of a record that a TOML text describes.

    Raises ConfigError that names `source` and the first problems, each with the path of its key.

    Args:
        model: the class of the record.
        text: the TOML.
        source: what messages call the text, such as the name of its file.
        parse_float: converts the text of a number with a decimal point. Default: Decimal, which
            is printed exactly as it was written.
        refuse: called with the values before they are checked against the model; raises for values
            that need a special message.
    """
    try:
        values = parse_toml(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML", found=str(error)) from None
    refuse(values)
    return build(model, values, source=source)


def build(model: type[Model], values: Mapping[str, Any], *, source: str) -> Model:
    """Make the instance of a record from `values`, which may hold dictionaries and lists.

    Raises ConfigError that names `source` and the first problems, each with the path of its key,
    and suggests known keys for unknown ones.
    """
    try:
        # the fields of frozen records are tuples, and a strict record converts no list
        return model.model_validate(_lists_as_tuples(values))
    except ValidationError as error:
        details = error.errors(include_url=False)
    # outside of the except clause, so that a traceback does not show pydantic's error as well
    shown = [_problem(values, detail) for detail in details[:SHOWN_PROBLEMS]]
    more = [f"and {len(details) - SHOWN_PROBLEMS} more"] if len(details) > SHOWN_PROBLEMS else []
    fixes = dict.fromkeys(  # each suggestion once, in order
        filter(None, (_suggestion(model, detail) for detail in details[:SHOWN_PROBLEMS]))
    )
    raise ConfigError(
        f"{source} breaks its schema",
        found="\n            ".join([*shown, *more]),  # aligned below the first, after "found:"
        fix="; ".join(fixes) or None,
    )


def _lists_as_tuples(value: Any) -> Any:
    """Convert all lists in a value to tuples: TOML and JSON have lists, frozen records tuples."""
    if isinstance(value, Mapping):
        return {key: _lists_as_tuples(item) for key, item in value.items()}
    return tuple(map(_lists_as_tuples, value)) if isinstance(value, list) else value


def _problem(values: Mapping[str, Any], detail: ErrorDetails) -> str:
    """Describe one error of pydantic (`detail`) in a sentence: the path of the key, what is wrong,
    and what was found. `values`: the content of the file."""
    path = detail["loc"]
    kind = detail["type"]
    if kind == "extra_forbidden":
        where = path[:-1]
        said = f"unknown key {str(path[-1])!r}"
    else:
        where = path
        # REWORDED has plain words for pydantic's most frequent kinds of errors
        said = REWORDED.get(
            kind, detail["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        )
        # the value is shown unless it is a table or list, which would be too long
        scalar = isinstance(detail["input"], str | int | float | Decimal)
        if isinstance(detail["input"], float) and not math.isfinite(detail["input"]):
            said = "expected a finite number"  # not one below a bound, which says less
        if kind == "tuple_type" and scalar:  # a single value in place of a list
            said += f", such as {list_meant_by(str(detail['input']))}"
        said += f", found {detail['input']!s}" if scalar and kind != "missing" else ""
        said += ", found no value" if detail["input"] is None else ""
    # `_place` reads the values, to call an element of a list by its first value, too: row 2 ('b')
    place = _place(values, where)
    return f"{place}: {said}" if place else said


def _place(values: Any, path: Sequence[int | str]) -> str:
    """Write the path of a key in the file's `values` for people: "optimizer.lr". An element of a
    list is named by its number, counted from 1, and by its first value if that is a text, most
    often a name: "row 2 ('b'), year".
    """
    parts: list[str] = []
    for step in path:
        if isinstance(values, str | int | float | Decimal):
            break  # the steps into a plain value are pydantic's names of what it may be
        # an integer step is an index into the list whose name is the last of the `parts`
        values = _value_at(values, step)
        if isinstance(step, int):
            parts[-1] += f" {step + 1}"
            first = next(iter(values.values()), None) if isinstance(values, dict) else None
            if isinstance(first, str):
                parts[-1] += f" ({first!r})"
            parts[-1] += ", "
        else:
            # keys are joined by dots, except after the number of an element
            parts.append(f".{step}" if parts and not parts[-1].endswith(", ") else step)

    return "".join(parts).removesuffix(", ")


def _value_at(values: Any, step: int | str) -> Any:
    """Return the value of a key in a table, or at an index in a list; None if there is none."""
    if isinstance(values, dict):
        return values.get(step)
    if isinstance(values, list) and isinstance(step, int) and step < len(values):
        return values[step]
    return None


def _suggestion(model: type[BaseModel], detail: ErrorDetails) -> str | None:
    """Suggest known keys for an unknown key: similar ones of the record in which it was found. None
    if `detail`, an error of pydantic, is not about an unknown key, or if no known key is similar.
    `model`: the outermost record."""
    if detail["type"] != "extra_forbidden":
        return None
    *steps, unknown = detail["loc"]  # the keys and indices that lead to the unknown key
    fields = _fields(model)
    for step in steps:
        # an index in a list or a key of a dictionary stays within the same record
        inner = _model_in(fields[str(step)]) if step in fields else None
        fields = _fields(inner) if inner else fields
    known = closest(str(unknown), fields)
    return f"did you mean {' or '.join(map(repr, known))}?" if known else None


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The annotations of a record's fields: {key in the file: annotation}."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the model within an annotation: Row in tuple[Row, ...], dict[str, Row] or Row | None.
    None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
