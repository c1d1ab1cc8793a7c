"""Reads recipes by name. A setup file says how a dataset is trained on, a method file what is minimised and on which setups.
The recipe SETUP-METHOD is the first, changed by the second, changed by the method's own lines for that setup.

>>> resolve("sop-happier").losses["sup_hap"].weight
0.9
>>> resolve("sop-happier", ["sampler.batch=128"]).sampler.batch
128

A file of one's own begins with `extends = "sop-happier"` (or a setup, or nothing) and says what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from hbench.core.errors import ConfigError, UnknownName, UsageError
from hbench.core.schema import build
from hbench.core.untrusted import parse_toml, read_text
from hbench.train.recipes.recipe import Recipe

Values = dict[str, Any]
MOST_FILES = 20  # that extend one another


class Shipped(NamedTuple):
    """The files in recipes/: setups; methods, which have a table `on` of the setups they are for; and whole recipes, which
    extend a SETUP-METHOD under a name of their own."""

    setups: Mapping[str, Values]
    methods: Mapping[str, Values]
    whole: Mapping[str, Values]


def names() -> list[str]:
    """Every shipped recipe's name."""
    files = shipped()
    of_two = [f"{setup}-{method}" for method, values in files.methods.items() for setup in values["on"]]
    return sorted([*of_two, *files.whole])


def resolve(name_or_file: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of a name or TOML file, with `changes` such as "optimizer.lr=1e-4" made last.

    Raises UnknownName for a name, ConfigError naming file and key for what breaks the schema, UsageError for a change
    that is none.
    """
    values = values_of(name_or_file)
    for change in changes:
        values = merged(values, changed(change))
    source = name_or_file + "".join(f" --set {change}" for change in changes)
    return build(Recipe, values, source=source)


def values_of(name_or_file: str, under: tuple[Path, ...] = ()) -> Values:
    """The merged tables of a recipe, before they are checked; `under`: the files that extend it."""
    if name_or_file.endswith(".toml"):
        path = Path(name_or_file)
        if path.resolve() in under or len(under) > MOST_FILES:
            chain = " → ".join(map(str, (*under, path.resolve())[-5:]))
            raise ConfigError(
                "a recipe extends itself, or too many others",
                expected=f"an `extends` that ends after {MOST_FILES} files at the most",
                found=chain,
            )
        return _extended(_read(path), (*under, path.resolve()))
    files = shipped()
    for named in (files.setups, files.whole):
        if name_or_file in named:
            return _extended(dict(named[name_or_file]))
    for method, values in files.methods.items():
        setup = name_or_file.removesuffix(f"-{method}")
        if setup != name_or_file and setup in values["on"]:
            settings = {key: value for key, value in values.items() if key != "on"}
            return merged(merged(values_of(setup), settings), values["on"][setup])
    raise UnknownName("recipe", name_or_file, [*names(), *files.setups])


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """`values` with those of `over` in their place, table by table.

    >>> merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    result = dict(values)
    for key, value in over.items():
        both_tables = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both_tables else value
    return result


def changed(change: str) -> Values:
    """The table that a change spells: KEY=VALUE with dots in the key, the value as in TOML or else a text.

    >>> changed("optimizer.lr=1e-4"), changed("model.pooling=gem")
    ({'optimizer': {'lr': 0.0001}}, {'model': {'pooling': 'gem'}})
    """
    key, sign, text = change.partition("=")
    if not (key.strip() and sign):
        raise UsageError(f"{change!r} changes nothing", expected="KEY=VALUE", fix="such as --set optimizer.lr=1e-4")
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def as_toml(recipe: Recipe) -> str:
    """The whole recipe, every default written out, as a file that `resolve` reads."""
    return tomli_w.dumps(_without_none(recipe.model_dump(mode="json")))


@cache
def shipped() -> Shipped:
    """The recipe files that come with hbench."""
    folder = resources.files("hbench.train.recipes")
    files = {
        Path(file.name).stem: parse_toml(file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
    methods = {name: values for name, values in files.items() if "on" in values}
    whole = {name: values for name, values in files.items() if values.get("extends", name) not in files}
    setups = {name: values for name, values in files.items() if name not in methods and name not in whole}
    return Shipped(setups, methods, whole)


def _extended(values: Values, under: tuple[Path, ...] = ()) -> Values:
    base = values.pop("extends", None)
    if not isinstance(base, str | None):
        raise ConfigError(f"a recipe extends {base!r}", expected="the name of a recipe, or a file", found=repr(base))
    return values if base is None else merged(values_of(base, under), values)


def _read(path: Path) -> Values:
    try:
        return parse_toml(read_text(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read", expected="a recipe, in TOML", found=str(error), fix="hbench recipes lists names"
        ) from None


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """The keys, with dots, at which two recipes' tables differ.

    >>> list(differences({"a": {"x": 1}, "b": 2}, {"a": {"x": 3}, "b": 2}))
    ['a.x']
    """
    for key in sorted({*first, *second}):
        one, two = first.get(key), second.get(key)
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            yield from differences(one, two, f"{prefix}{key}.")
        elif one != two:
            yield f"{prefix}{key}"
