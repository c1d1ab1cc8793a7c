"""Chooses settings by trying them: a training for every choice on held-out classes, then the best
one on all.

    trials/KEY=VALUE,…/     each scored on held-out training classes, never on the tests
    .                       the best choice, trained and tested as the recipe says

A trial that has ended is not trained again, and one that was interrupted goes on. At the end only
the best trial keeps its weights, unless all are asked for.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hbench.core.errors import ConfigError, HBenchError, UsageError
from hbench.datasets import Dataset, load
from hbench.train.fitting.sizes import require_dataset
from hbench.train.loop import EMBEDDINGS, prepare_run
from hbench.train.recipes.files import merge_tables, parse_change, resolve
from hbench.train.recipes.recipe import Recipe, build
from hbench.train.records import checkpoints
from hbench.train.records.refusals import (
    RECIPE,
    REPORT,
    TrainingDiverged,
    holds_run,
    other_keys,
    refuse_other_recipe,
)
from hbench.train.records.trials import Trial, trial_of_run
from hbench.train.validation import choosing_metric, with_sizes

TrainIn = Callable[[Recipe, Path, bool], object]  # in which folder, and whether to go on there
OnDiverged = Callable[[Path, TrainingDiverged], None]  # the folder of the trial, and why
TRIALS = "trials"
EARLIER = "earlier-"  # begins the folders of best runs of a sweep that was extended
MOST_TRIALS = 1_000
HELD_OUT = 0.2  # of the training classes, where the recipe holds none out


class TriedKey(NamedTuple):
    """A key, and the values to try, as texts of TOML."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A recipe by its name or file, its changes, and the choices to try, in every combination."""

    recipe: str
    changes: tuple[str, ...]
    choices: tuple[TriedKey, ...]

    def combinations(self) -> list[tuple[str, ...]]:
        """List what is tried, as KEY=VALUE of every key. Raises UsageError for more than anybody
        can train, and for a key that is set, too. `choices`: (key, values) of each key that is
        swept."""
        number = math.prod(len(values) for _, values in self.choices)
        if number > MOST_TRIALS:
            raise UsageError(
                "a sweep tries every combination of its values",
                expected=f"at most {MOST_TRIALS:,} trials",
                found=f"{number:,}",
                fix="sweep fewer keys at once, or fewer values of each",
            )
        tried = {choice.key for choice in self.choices}
        for change in self.changes:
            if (key := change.partition("=")[0].strip()) in tried:
                raise UsageError(
                    f"{key} is set and tried",
                    found=f"--set {change} beside --sweep {key}=…",
                    fix="leave one of them out",
                )
        of_keys = [[f"{key}={value}" for value in values] for key, values in self.choices]
        return list(itertools.product(*of_keys))

    def resolved(self, *more: str) -> Recipe:
        """Resolve the recipe with its changes and `more` ones, each KEY=VALUE."""
        return resolve(self.recipe, [*self.changes, *more])

    def trial(self, combination: Sequence[str]) -> Recipe:
        """Make the recipe of a trial, which tries a combination, KEY=VALUE of every key. It never
        sees the tests: it is scored on held-out training classes, on 20 % of them if the recipe
        holds none out."""
        recipe = self.resolved(*combination)
        values = merge_tables(recipe.model_dump(), {"tested": False})
        if not recipe.validation:
            values = merge_tables(values, {"validation": HELD_OUT})
        return build(Recipe, values, source=" ".join(combination))


def parse_sweep(text: str) -> TriedKey:
    """Read KEY=VALUE,VALUE,…; commas within brackets belong to a value.

    >>> parse_sweep("optimizer.lr=1e-4,3e-4")
    TriedKey(key='optimizer.lr', values=('1e-4', '3e-4'))
    """
    key, sign, values = text.partition("=")
    # at commas after which no bracket closes before another opens: those outside of lists
    parts = re.split(r",(?![^\[]*\])", values)
    tried = tuple(value.strip() for value in parts if value.strip())
    if not sign or len(set(tried)) < 2:
        raise UsageError(
            f"{text!r} is no sweep",
            expected="KEY=VALUE,VALUE,… with two different values or more",
            fix="such as --sweep optimizer.lr=1e-4,3e-4,1e-3; to extend a sweep name its values "
            "again, with the new ones, and --resume",
        )
    parse_change(f"{key}={tried[0]}")  # refuses a key that is none
    return TriedKey(key.strip(), tried)


def train_trials(
    sweep: Sweep, out: Path, train: TrainIn, on_diverged: OnDiverged
) -> Iterator[Trial]:
    """Train all trials of a sweep below a folder, one after the other, as they were named.

    `train` trains a recipe in a folder, going on with what is there if the last argument says so. A
    trial whose loss is not finite is told to `on_diverged`, and the others go on: that a value is
    too large is what a sweep is to find out. Raises the last such error where no trial ended.
    """
    diverged = None
    has_ended = False
    # all are checked before the first is trained, so that what is wrong with the last is said now
    recipes = checked_recipes(sweep)
    for combination, recipe in recipes.items():
        folder = folder_of(out, combination)
        if (folder / REPORT).exists():
            # It ended, and is not trained again; but it must be of this very recipe, in whose
            # record the sizes stand that a recipe leaves to its dataset.
            refuse_other_recipe(folder, with_sizes(recipe))
        else:
            try:
                train(recipe, folder, (folder / RECIPE).exists())
            except TrainingDiverged as error:
                diverged = error
                on_diverged(folder, error)
                continue
        has_ended = True
        metric = choosing_metric(recipe, load(require_dataset(recipe)).levels)
        yield trial_of_run(folder, combination, str(metric))
    if diverged is not None and not has_ended:
        raise diverged


def checked_recipes(sweep: Sweep) -> dict[tuple[str, ...], Recipe]:
    """Return the recipes of all trials, by what each tries (KEY=VALUE of every key); raises
    ConfigError for the first that cannot be trained."""
    recipes = {combination: sweep.trial(combination) for combination in sweep.combinations()}
    # each dataset is loaded once, although many trials have it
    datasets = {name: load(name) for name in dict.fromkeys(map(require_dataset, recipes.values()))}
    _refuse_trials(recipes, datasets)
    return recipes


def set_aside(out: Path, recipe: Recipe) -> Path | None:
    """Move the run in the folder of a sweep into a folder of its own there, if it is of another
    recipe: that of the best trial before further ones were tried. Return that folder; None where
    nothing is moved."""
    if not holds_run(out) or not other_keys(out, with_sizes(recipe)):
        return None
    number = next(n for n in itertools.count(1) if not (out / f"{EARLIER}{n}").exists())
    aside = out / f"{EARLIER}{number}"
    of_run = [each for each in out.iterdir() if not each.name.startswith((TRIALS, EARLIER))]
    aside.mkdir()
    for each in of_run:
        each.rename(aside / each.name)
    return aside


def delete_weights(out: Path, best: Trial) -> int:
    """Delete the checkpoints and vectors of all trials but the best, also of those that an earlier
    sweep tried, and return how many bytes they were. Recipes, logs and reports stay, so that none
    is trained again."""
    deleted = 0
    for folder in sorted((out / TRIALS).iterdir()):
        if folder == folder_of(out, best.settings):
            continue
        files = [*folder.glob(f"{checkpoints.PREFIX}*/*"), folder / EMBEDDINGS]
        for file in filter(Path.is_file, files):
            deleted += file.stat().st_size
            file.unlink()
        for emptied in folder.glob(f"{checkpoints.PREFIX}*"):
            emptied.rmdir()
    return deleted


def folder_of(out: Path, combination: Sequence[str]) -> Path:
    """The folder of the trial of a combination, KEY=VALUE of every key; a value may be the name of
    a file, whose slashes would be folders."""
    return out / TRIALS / ",".join(combination).replace("/", "_")


def _refuse_trials(
    recipes: Mapping[tuple[str, ...], Recipe], datasets: Mapping[str, Dataset]
) -> None:
    """Raise ConfigError for the first trial that cannot be trained: by its names, or by the classes
    of its dataset. Where it could be with the classes that are held out, the error says so.

    `recipes`: by combination, KEY=VALUE of every key; `datasets`: by name."""
    for combination, recipe in recipes.items():
        data = datasets[require_dataset(recipe)]
        try:
            prepare_run(recipe, data)
        except HBenchError as error:
            found = error.found
            if found and _can_be_trained_whole(recipe, data):
                share = f"{100 * recipe.validation:g} % of the training classes"
                found += f"; {share} are held out for the comparison"
            # a value that is tried is changed where it is tried
            fix = error.fix
            for change in combination:
                key = change.partition("=")[0]
                fix = fix.replace(f"--set {key}=", f"in --sweep, {key}=") if fix else fix
            raise ConfigError(
                f"the trial {' '.join(combination)} cannot be trained: {error.problem}",
                expected=error.expected,
                found=found,
                fix=fix,
            ) from None


def _can_be_trained_whole(recipe: Recipe, data: Dataset) -> bool:
    """Whether a trial that cannot be trained could be if no classes were held out."""
    whole = {"validation": 0.0, "evaluate_every": 0, "patience": 0, "tested": True}
    try:
        prepare_run(build(Recipe, merge_tables(recipe.model_dump(), whole), source=""), data)
    except HBenchError:
        return False
    return True


def ends_of(sweep: Sweep, best: Trial) -> list[str]:
    """List, as "KEY = VALUE", which values of the best trial stand at an end of the numbers that
    were tried, beyond which a better one may lie."""
    ends = []
    for (key, values), chosen in zip(sweep.choices, best.values, strict=True):
        try:
            numbers = sorted(map(float, values))
        except ValueError:
            continue  # names or lists have no ends
        value = float(chosen)
        if value in (numbers[0], numbers[-1]):
            neighbour = numbers[1] if value == numbers[0] else numbers[-2]
            if any(_is_possible(sweep, f"{key}={each}") for each in _beyond(value, neighbour)):
                ends.append(f"{key} = {value:g}")
    return ends


def _beyond(value: float, neighbour: float) -> list[str]:
    """Write the values that may be tried next, beyond one at an end: as far from it as its
    `neighbour` on the other side, by their ratio where both are above 0, as of rates; of whole
    numbers the next one, too.

    >>> _beyond(1e-4, 1e-3), _beyond(0.0, 0.5), _beyond(4.0, 2.0)
    (['1e-05'], ['-0.5'], ['8', '5'])
    """
    by_ratio = value > 0 and neighbour > 0
    after = value * value / neighbour if by_ratio else 2 * value - neighbour
    if not (value.is_integer() and neighbour.is_integer()):
        return [f"{after:g}"]
    adjacent = f"{value + (1 if value > neighbour else -1):g}"
    return [f"{after:g}", adjacent] if after.is_integer() else [adjacent]


def _is_possible(sweep: Sweep, change: str) -> bool:
    """Whether a recipe may have a value, KEY=VALUE: a share has no end beyond 0 and 1."""
    try:
        sweep.resolved(change)
    except HBenchError:
        return False
    return True
