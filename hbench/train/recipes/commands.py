"""Writes the `hbench train` command that trains a recipe, by one of the names that are shipped.

A folder of a run keeps the whole recipe, with every default of its day; a row of a leaderboard
names a command, which anybody can run again and which says what was changed.

>>> command_of(resolve("sop-happier", ["sampler.batch=128"]), [])
'hbench train sop-happier --set sampler.batch=128'
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hbench.core.errors import HBenchError
from hbench.train.recipes.files import (
    UNSET,
    differences,
    names,
    parse_change,
    resolve,
)
from hbench.train.recipes.own_code import programs_in
from hbench.train.recipes.recipe import Recipe

OF_FILES = ("model.weights", "model.key_map")  # settings that may name a file


def command_of(recipe: Recipe, options: Sequence[str]) -> str | None:
    """Return the command that trains a recipe, without --out: that of the shipped recipe which
    takes the fewest changes. None where no command makes it, or it names a program, which is
    somebody's own.

    Args:
        recipe: as it was read, before its open sizes are those of a dataset.
        options: the words of the other options.
    """
    values = recipe.model_dump(mode="json")
    if any(True for _ in programs_in(values)):
        return None

    by_name = {name: _changes(resolve(name), values) for name in names()}
    possible = [(changes, name) for name, changes in by_name.items() if changes is not None]
    for changes, name in sorted(possible, key=lambda each: (len(each[0]), each[1])):
        # with other losses a recipe loses its aim, which not every change says
        if _resolved(name, changes) == recipe:
            settings = [word for each in map(_shown, changes) for word in ("--set", each)]
            return shlex.join(["hbench", "train", name, *settings, *options])
    return None


def _shown(change: str) -> str:
    """A change as the command has it: of a file the name alone, without the folder it lies in."""
    key, _, value = change.partition("=")
    return f"{key}={Path(value).name}" if key in OF_FILES else change


def _resolved(name: str, changes: Sequence[str]) -> Recipe | None:
    """A recipe with changes; None where they make none."""
    try:
        return resolve(name, changes)
    except HBenchError:
        return None


def _changes(base: Recipe, values: Mapping[str, Any]) -> list[str] | None:
    """The changes, KEY=VALUE, of the recipe `base` that give it these values; None where --set
    cannot say one, for it takes nothing away."""
    differing = differences(base.model_dump(mode="json"), values)
    # the published row that a recipe aims at goes by its losses
    keys = [key for key in differing if key.partition(".")[0] != "aim"]
    changes = [
        _change(leaf, value) for key in keys for leaf, value in _leaves(key, _at(values, key))
    ]
    return None if None in changes else [change for change in changes if change is not None]


def _at(values: Any, key: str) -> Any:
    """The value at a key, with dots, of nested tables; None where there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a key with its value, or, where that is a table, those of the table."""
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, item in value.items():
        yield from _leaves(f"{key}.{name}", item)


def _change(key: str, value: Any) -> str | None:
    """The change that gives a key this value; None where --set would read another one."""
    if value is None:  # a key without a value; but a loss, or a parameter of one, is not there
        return None if key.startswith("losses.") else f"{key}={UNSET}"
    # a text stands for itself, unless it would be read as a number or a list
    texts = [value] if isinstance(value, str) else []
    said = (f"{key}={text}" for text in [*texts, json.dumps(value)])
    return next((change for change in said if _at(parse_change(change), key) == value), None)
