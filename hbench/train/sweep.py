"""Sweeps: chooses settings by training a trial for every combination, and then trains the best one
on all classes.

    trials/KEY=VALUE,…/     each scored on held-out training classes, never on the tests
    .                       the best choice, trained and tested as the recipe says

A finished trial is not trained again, and an interrupted one is continued. At the end only the best
trial keeps its weights, unless the user wants to keep all.
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

TrainIn = Callable[[Recipe, Path, bool], object]  # trains in a folder; True: continue the run there
OnDiverged = Callable[[Path, TrainingDiverged], None]  # the folder of the trial, and why
TRIALS = "trials"
EARLIER = "earlier-"  # prefix of folders with former best runs of a sweep that was extended
MOST_TRIALS = 1_000
# Trials are ranked by one metric on one set of held-out classes, so keys that change these cannot
# be tried. {key: what to do instead}
OF_ALL_TRIALS = {
    "select_by": "set it once, --set select_by=…; log.jsonl of every trial has all metrics",
    "validation": "set it once for all trials, --set validation=…",
    "validation_level": "set it once for all trials, --set validation_level=…",
    "dataset": "sweep each dataset by itself, --set dataset=…",
    "seed": "set it once, --set seed=…; to compare seeds, train each in a folder of its own and "
    "score it on the tests, as a study does (docs/run-a-study.md)",
}
HELD_OUT = 0.2  # share of the training classes for trials of a recipe that holds none out


class TriedKey(NamedTuple):
    """A key of a recipe, and the values to try, as TOML texts."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A sweep. `recipe`: its name or file. `changes`: KEY=VALUE, for all trials. `choices`: the
    keys and values to try in every combination."""

    recipe: str
    changes: tuple[str, ...]
    choices: tuple[TriedKey, ...]

    def combinations(self) -> list[tuple[str, ...]]:
        """List the combinations to try, each as KEY=VALUE for every key of `choices`. Raises
        UsageError for more than MOST_TRIALS, for a key of OF_ALL_TRIALS, and for a key that is also
        among the changes, which apply to all trials."""
        number = math.prod(len(values) for _, values in self.choices)
        if number > MOST_TRIALS:
            raise UsageError(
                "a sweep tries every combination of its values",
                expected=f"at most {MOST_TRIALS:,} trials",
                found=f"{number:,}",
                fix="sweep fewer keys at once, or fewer values of each",
            )
        tried = {choice.key for choice in self.choices}
        for key in OF_ALL_TRIALS:
            if key in tried:
                raise UsageError(
                    f"trials that differ in {key} cannot be ranked",
                    expected="one metric, and the same held-out classes, for all trials",
                    found=f"--sweep {key}=…",
                    fix=OF_ALL_TRIALS[key],
                )
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
        """Resolve the recipe with its changes and `more` changes, each KEY=VALUE."""
        return resolve(self.recipe, [*self.changes, *more])

    def trial(self, combination: Sequence[str]) -> Recipe:
        """Make the recipe of the trial of a combination. A trial never sees the tests: it is scored
        on held-out training classes, 20 % of them if the recipe holds none out."""
        recipe = self.resolved(*combination)
        values = merge_tables(recipe.model_dump(), {"tested": False})
        if not recipe.validation:
            values = merge_tables(values, {"validation": HELD_OUT})
        return build(Recipe, values, source=" ".join(combination))


def parse_sweep(text: str) -> TriedKey:
    """Parse KEY=VALUE,VALUE,…. Commas within brackets are part of a value.

    >>> parse_sweep("optimizer.lr=1e-4,3e-4")
    TriedKey(key='optimizer.lr', values=('1e-4', '3e-4'))
    """
    key, sign, values = text.partition("=")
    # split at commas outside of lists: the pattern skips a comma after which a bracket closes
    # before another one opens
    parts = re.split(r",(?![^\[]*\])", values)
    tried = tuple(value.strip() for value in parts if value.strip())
    if not sign or len(set(tried)) < 2:
        raise UsageError(
            f"{text!r} is no sweep",
            expected="KEY=VALUE,VALUE,… with two different values or more",
            fix="such as --sweep optimizer.lr=1e-4,3e-4,1e-3; to extend a sweep name its values "
            "again, with the new ones, and --resume",
        )
    parse_change(f"{key}={tried[0]}")  # raises for an invalid key
    return TriedKey(key.strip(), tried)


def train_trials(
    sweep: Sweep, out: Path, train: TrainIn, on_diverged: OnDiverged
) -> Iterator[Trial]:
    """Train all trials of a sweep in folders below `out`, one after another, and yield those that
    ended.

    `train`: trains a recipe in a folder, and continues the run there if its third argument is True.
    `on_diverged`: called for a trial whose loss is not finite. The other trials go on, since
    finding values that are too large is part of a sweep. If no trial ended, the last such error is
    raised.
    """
    diverged = None
    has_ended = False
    # check all trials before the first is trained, so that a mistake in the last is reported now
    recipes = checked_recipes(sweep)
    for combination, recipe in recipes.items():
        folder = folder_of(out, combination)
        if (folder / REPORT).exists():
            # The trial ended, and is not trained again, but must be of the same recipe. Its record
            # has the sizes that a recipe leaves open for the dataset, so they are filled in here.
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
    """Return {combination: recipe} of all trials. Raises ConfigError for the first one that cannot
    be trained."""
    recipes = {combination: sweep.trial(combination) for combination in sweep.combinations()}
    # load each dataset once for all of its trials
    datasets = {name: load(name) for name in dict.fromkeys(map(require_dataset, recipes.values()))}
    _refuse_trials(recipes, datasets)
    return recipes


def set_aside(out: Path, recipe: Recipe) -> Path | None:
    """Move the run in a sweep's folder `out` aside if it is of another recipe than `recipe`.

    After its trials a sweep trains the best one's settings in `out` itself. If it was extended, the
    best trial may be another one, and `out` still has the run of the former best. Return the
    folder that this was moved to; None if nothing was moved.
    """
    # the run's recipe has all sizes, such as the batch, so those that `recipe` leaves open are
    # filled in before the two are compared
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
    """Delete the checkpoints and vectors (EMBEDDINGS) of all trials but the best, including trials
    of an earlier sweep, and return the number of deleted bytes. Recipes, logs and reports are kept,
    so that no trial is trained again."""
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
    """Return the folder of the trial of a combination. Slashes in it, as in names of files, are
    replaced, since they would make subfolders."""
    return out / TRIALS / ",".join(combination).replace("/", "_")


def _refuse_trials(
    recipes: Mapping[tuple[str, ...], Recipe], datasets: Mapping[str, Dataset]
) -> None:
    """Raise ConfigError for the first trial that cannot be trained. The message says if the trial
    could be trained on all training classes, without holding some out for the comparison.

    `recipes`: {combination: recipe}. `datasets`: {name: dataset}.
    """
    for combination, recipe in recipes.items():
        data = datasets[require_dataset(recipe)]
        try:
            prepare_run(recipe, data)
        except HBenchError as error:
            found = error.found
            if found and _can_be_trained_whole(recipe, data):
                share = f"{100 * recipe.validation:g} % of the training classes"
                found += f"; {share} are held out for the comparison"
            # a key that is swept has to be changed in --sweep, not by --set
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
    """Whether a trial could be trained if no classes were held out."""
    whole = {"validation": 0.0, "evaluate_every": 0, "patience": 0, "tested": True}
    try:
        prepare_run(build(Recipe, merge_tables(recipe.model_dump(), whole), source=""), data)
    except HBenchError:
        return False
    return True


def ends_of(sweep: Sweep, best: Trial) -> list[str]:
    """List, as "KEY = VALUE", the values of the best trial that are the smallest or largest of the
    numbers that were tried, so that a better value may lie beyond. A value is left out if the
    recipe allows no next value beyond it."""
    ends = []
    for (key, values), chosen in zip(sweep.choices, best.values, strict=True):
        try:
            numbers = sorted(map(float, values))
        except ValueError:
            continue  # names and lists have no smallest or largest value
        value = float(chosen)
        if value in (numbers[0], numbers[-1]):
            # each key was tried with two values or more, as `parse_sweep` requires
            neighbour = numbers[1] if value == numbers[0] else numbers[-2]
            if any(_is_possible(sweep, f"{key}={each}") for each in _beyond(value, neighbour)):
                ends.append(f"{key} = {value:g}")
    return ends


def _beyond(value: float, neighbour: float) -> list[str]:
    """Return the values to try next, beyond `value` at the end of a range. They continue the step
    from its `neighbour`: by the same ratio if both are above 0, as for learning rates, else by the
    same difference. For whole numbers the adjacent number is added.

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
    """Whether the recipe accepts a change, KEY=VALUE: a share, for example, cannot exceed 1."""
    try:
        sweep.resolved(change)
    except HBenchError:
        return False
    return True
