"""Lists every key of a recipe with its meaning, its possible values and its default.

>>> [row.default for row in rows() if row.key == "sampler.batch"]
['256']
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hbench.core.registry import Registry
from hbench.train.images.sampler import samplers
from hbench.train.images.transforms import augmentations
from hbench.train.models.model import poolings
from hbench.train.recipes.files import UNSET
from hbench.train.recipes.recipe import Recipe

HEADER = ("key", "allowed", "default", "meaning")
KINDS = {
    "boolean": "true, false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "table",
}
PER_LOSS = "NAME"  # of the tables in `losses`
NAMES: Mapping[str, Registry[Any]] = {
    "images.augment": augmentations,
    "model.pooling": poolings,
    "sampler.name": samplers,
}
SAME_AS = {"proxies": "optimizer"}  # tables with the keys of another


class Key(NamedTuple):
    """A dotted key of a recipe, its possible values, its default, and its meaning."""

    key: str
    allowed: str
    default: str
    meaning: str


def rows() -> list[Key]:
    """List all keys, in the order of a recipe's file."""
    schema = Recipe.model_json_schema()
    return list(_keys(schema, schema["$defs"]))


def markdown() -> str:
    """Write the keys as a table in Markdown, those in the first column as code."""
    lines = [HEADER, ("---",) * len(HEADER), *rows()]  # only the rows are of class Key
    cells = [[f"`{row[0]}`" if isinstance(row, Key) else row[0], *row[1:]] for row in lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _keys(
    table: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], prefix: str = ""
) -> Iterator[Key]:
    """Yield the keys of a table in a JSON schema, and those of the tables within it. A Key has the
    dotted key, its possible values, its default and its meaning, as texts.

    `known`: {name: schema} of all tables (`$defs`), to which others refer. `prefix`: the keys that
    lead to this table, each followed by a dot. A recipe has a table for each loss, all with the
    same keys, which are listed once as `losses.NAME.`.
    """
    required = table.get("required", [])
    for name, schema in table["properties"].items():
        key = f"{prefix}{name}"
        if key in SAME_AS:  # a table with the keys of another one, where they are listed
            meaning = " ".join(schema["description"].split())
            yield Key(key=key, allowed=f"table, as {SAME_AS[key]}", default=UNSET, meaning=meaning)
            continue
        if inner := _table_in(schema, known):
            yield from _keys(inner, known, f"{key}.")
            continue
        if of_each := _table_in(schema.get("additionalProperties") or {}, known):
            yield from _keys(of_each, known, f"{key}.{PER_LOSS}.")
            continue
        default = "must be set" if name in required else _in_toml(schema.get("default"))
        # a key whose value is a registered name, such as a sampler's, lists these names
        allowed = ", ".join(NAMES[key]) if key in NAMES else _allowed(schema)
        yield Key(key, allowed, default, " ".join(schema["description"].split()))


def _table_in(schema: Any, known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the schema of the table that a key has as its value; None for a key with a plain
    value. `schema`: of the key; it refers to the table by `$ref`, or in one of its alternatives.
    `known`: {name: schema} of all tables."""
    if not isinstance(schema, Mapping):
        return None
    choices = [schema, *schema.get("anyOf", ())]
    names = [choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice]
    return known[names[0]] if names else None


def _allowed(schema: Mapping[str, Any]) -> str:
    """Describe the possible values of a key by its JSON schema: the names to choose from, or a type
    with bounds, or several of these. null (unset) is left out."""
    if "anyOf" in schema:
        kinds = [_allowed(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return ", or ".join(kinds)
    if "enum" in schema:
        # an empty text may be one of the choices
        return ", ".join(value or '""' for value in schema["enum"])
    kind = KINDS[schema["type"]]
    if "maximum" in schema:  # keys with an upper bound have a lower one, too
        return f"{kind} {schema['minimum']:g} … {schema['maximum']:g}"
    if "exclusiveMinimum" in schema:
        return f"{kind} > {schema['exclusiveMinimum']:g}"
    return f"{kind} ≥ {schema['minimum']:g}" if "minimum" in schema else kind


def _in_toml(value: Any) -> str:
    """Format a default as in a TOML file; "unset" for None."""
    return UNSET if value is None else json.dumps(value)
