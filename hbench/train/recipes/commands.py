"""Composes the `hbench train` command that trains a recipe: a shipped recipe with changes.

The folder of a run keeps the whole recipe, with all defaults of that time. A row of a leaderboard
has the command instead, which anybody can run again, and which shows what was changed.

>>> command_of(resolve("sop-happier", ["sampler.batch=128"]), [])
'hbench train sop-happier --set sampler.batch=128'
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hbench.core.errors import HBenchError
from hbench.train.processes import Processes
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
    """Return the command that trains a recipe, without --out, from the shipped recipe that needs
    the fewest changes. None if no command makes the recipe, or if it names a user's own program.

    Args:
        recipe: as it was read, before open sizes (those of 0) were chosen for a dataset.
        options: the words of the other options, put at the end of the command.
    """
    values = recipe.model_dump(mode="json")
    if next(programs_in(values), None) is not None:
        return None

    by_name = {name: _changes(resolve(name), values) for name in names()}
    possible = [(changes, name) for name, changes in by_name.items() if changes is not None]
    for changes, name in sorted(possible, key=lambda each: (len(each[0]), each[1])):
        # The changed recipe is compared as it is resolved: changes of the losses also remove the
        # published row that a recipe should reproduce (`aim`).
        if _resolved(name, changes) == recipe:
            settings = [word for each in map(_shown, changes) for word in ("--set", each)]
            return shlex.join(["hbench", "train", name, *settings, *options])
    return None


def of_threads(processes: Processes) -> list[str]:
    """Return the option that states the number of threads, on which the bits of a run depend on a
    CPU; nothing for several processes, or on a GPU."""
    is_alone = processes.world == 1 and processes.device.type == "cpu"
    return ["--threads", str(torch.get_num_threads())] if is_alone else []


def resuming(recipe: Path, processes: Processes) -> str:
    """Return the command that continues the run in the folder of its `recipe`, with the same bits
    on a CPU."""
    words = ["hbench", "train", str(recipe), "--out", str(recipe.parent), "--resume"]
    return shlex.join([*words, *of_threads(processes)])


def _shown(change: str) -> str:
    """Format a change for the command: a file is named without its folder."""
    key, _, value = change.partition("=")
    return f"{key}={Path(value).name}" if key in OF_FILES else change


def _resolved(name: str, changes: Sequence[str]) -> Recipe | None:
    """Resolve a recipe with changes; None if they do not make a valid recipe."""
    try:
        return resolve(name, changes)
    except HBenchError:
        return None


def _changes(base: Recipe, values: Mapping[str, Any]) -> list[str] | None:
    """Return the changes, KEY=VALUE, by which the recipe `base` gets these values. None if --set
    cannot express one of them: --set can set keys, but not remove them. `values`: the nested tables
    of the wanted recipe."""
    differing = differences(base.model_dump(mode="json"), values)  # dotted keys
    # the aim needs no change: it follows from the losses
    keys = [key for key in differing if key.partition(".")[0] != "aim"]
    # a key whose value is a table gives a change for each key in the table
    changes = [
        _change(leaf, value) for key in keys for leaf, value in _leaves(key, _at(values, key))
    ]
    possible = [change for change in changes if change is not None]  # None: not by --set
    return possible if len(possible) == len(changes) else None


def _at(values: Any, key: str) -> Any:
    """Return the value of a dotted key in nested tables; None if there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a dotted key with its value or, if the value is a table, all keys and values in it."""
    if not isinstance(value, Mapping):
        yield key, value
        return
    for name, item in value.items():
        yield from _leaves(f"{key}.{name}", item)


def _change(key: str, value: Any) -> str | None:
    """Return the change that sets a key to this value; None if --set cannot express it."""
    if value is None:  # unset, except for a loss or its parameter, which cannot be removed
        return None if key.startswith("losses.") else f"{key}={UNSET}"
    # a text needs no quotes, unless it would be parsed as a number or a list
    texts = [value] if isinstance(value, str) else []
    said = (f"{key}={text}" for text in [*texts, json.dumps(value)])
    return next((change for change in said if _at(parse_change(change), key) == value), None)
