"""Checks TOML texts against frozen pydantic models; a misfit is refused with the key's place and a
suggestion.

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

import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from hbench.core.errors import ConfigError, closest
from hbench.core.text import list_meant_by
from hbench.core.untrusted import parse_toml

# converts nothing; made when used
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
    """A frozen record without unknown keys; values may be converted, which STRICT does not
    allow."""

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
    """The instance that a TOML text describes.

    Raises ConfigError that names `source` and the first problems, each with the path of its key.

    Args:
        model: the record that the text is checked against.
        text: the TOML.
        source: what messages call it, such as its file.
        parse_float: makes a number of the digits of one with a point. Default: a Decimal, which is
            written again as it was read.
        refuse: raises for values, as they stand in the text, that need a message of their own,
            before the model is asked.
    """
    try:
        values = parse_toml(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML", found=str(error)) from None
    refuse(values)
    return build(model, values, source=source)


def build(model: type[Model], values: Mapping[str, Any], *, source: str) -> Model:
    """The instance of a record that plain values, dictionaries and lists, describe. Raises
    ConfigError that names `source` and the first problems, each with the path of its key, and the
    keys that may be meant by unknown ones."""
    try:
        return model.model_validate(_lists_as_tuples(values))
    except ValidationError as error:
        details = error.errors(include_url=False)
    # raised out here, so that Python shows no error of pydantic above this one
    shown = [_problem(values, detail) for detail in details[:SHOWN_PROBLEMS]]
    more = [f"and {len(details) - SHOWN_PROBLEMS} more"] if len(details) > SHOWN_PROBLEMS else []
    fixes = dict.fromkeys(
        filter(None, (_suggestion(model, detail) for detail in details[:SHOWN_PROBLEMS]))
    )
    raise ConfigError(
        f"{source} breaks its schema",
        found="\n            ".join([*shown, *more]),
        fix="; ".join(fixes) or None,
    )


def _lists_as_tuples(value: Any) -> Any:
    """A value with tuples for lists, which TOML and JSON have, but no frozen record."""
    if isinstance(value, Mapping):
        return {key: _lists_as_tuples(item) for key, item in value.items()}
    return tuple(map(_lists_as_tuples, value)) if isinstance(value, list) else value


def _problem(values: Mapping[str, Any], detail: ErrorDetails) -> str:
    """One error of pydantic (`detail`) in a sentence: the place in the file whose content is
    `values`, what is wrong, and what stands there."""
    path = detail["loc"]
    kind = detail["type"]
    if kind == "extra_forbidden":
        where = path[:-1]
        said = f"unknown key {str(path[-1])!r}"
    else:
        where = path
        said = REWORDED.get(
            kind, detail["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        )
        # a table or list would fill the message
        scalar = isinstance(detail["input"], str | int | float | Decimal)
        if kind == "tuple_type" and scalar:
            said += f", such as {list_meant_by(str(detail['input']))}"
        said += f", found {detail['input']!s}" if scalar and kind != "missing" else ""
    place = _place(values, where)
    return f"{place}: {said}" if place else said


def _place(values: Any, path: Sequence[int | str]) -> str:
    """The path of a key in the file's `values` in words: optimizer.lr, or, in an element of a list
    of tables, row 2 ('b'), year: by its number from 1 and its first value, most often a name.
    """
    parts: list[str] = []
    for step in path:
        # a number follows the name of its list: "row 2 ('Smith 2020')"
        values = _value_at(values, step)
        if isinstance(step, int):
            parts[-1] += f" {step + 1}"
            first = next(iter(values.values()), None) if isinstance(values, dict) else None
            if isinstance(first, str):
                parts[-1] += f" ({first!r})"
            parts[-1] += ", "
        else:
            # dots join keys, which a number of an element interrupts
            parts.append(f".{step}" if parts and not parts[-1].endswith(", ") else step)

    return "".join(parts).removesuffix(", ")


def _value_at(values: Any, step: int | str) -> Any:
    """What a table has under a key, or a list at a place; None where there is nothing."""
    if isinstance(values, dict):
        return values.get(step)
    if isinstance(values, list) and isinstance(step, int) and step < len(values):
        return values[step]
    return None


def _suggestion(model: type[BaseModel], detail: ErrorDetails) -> str | None:
    """The keys that may be meant by an unknown one, of the record in which it stands, in a
    sentence; None for any other error (`detail`, as pydantic gives it), and where no key is
    near."""
    if detail["type"] != "extra_forbidden":
        return None
    *steps, unknown = detail["loc"]
    fields = _fields(model)
    for step in steps:
        # a number in a list, or a name in a dictionary, leads to no other record
        inner = _model_in(fields[str(step)]) if step in fields else None
        fields = _fields(inner) if inner else fields
    known = closest(str(unknown), fields)
    return f"did you mean {' or '.join(map(repr, known))}?" if known else None


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The annotations of a record's fields, by the keys that a file has for them."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model an annotation holds: Row of tuple[Row, ...], dict[str, Row], Row | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
