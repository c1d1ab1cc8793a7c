"""Runs a study: every arm and seed is a process that resumes where it stopped; then collects its
scores and leaderboard rows.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hbench.boards import Leaderboard, Row
from hbench.boards.rows import PLACES
from hbench.boards.runs import RowDetails, row_of
from hbench.core.errors import HBenchError, UsageError, examples
from hbench.core.files import write_text
from hbench.core.version import __version__
from hbench.datasets import load
from hbench.records import document as reports
from hbench.records.queries import CLASS, metric_columns
from hbench.train.loop import BY_QUERY
from hbench.train.recipes.files import as_toml, resolve
from hbench.train.recipes.recipe import Recipe
from hbench.train.records.log import FILE as LOG
from hbench.train.records.log import records
from hbench.train.records.refusals import RECIPE, REPORT
from studies.claims import interval_of
from studies.gaps import gaps
from studies.page import shown
from studies.study import Study, folder_of
from studies.tuning import chosen, folder_of_trial, trials, wanted
from studies.values import About, ArmRecord, Scores, Values, whole

RECIPE_FILE = "arm.toml"
ArmSeed = tuple[str, int]  # an arm and a seed


class RunOptions(NamedTuple):
    """How a study is trained: `changes` to the recipe of every arm, such as "epochs=2"; `workers`,
    processes of one thread at a time; `on_progress` is called with the name of each run that is
    done."""

    changes: tuple[str, ...] = ()
    workers: int = 1
    on_progress: Callable[[str], None] = lambda name: None


class _Run(NamedTuple):
    """A training run to be made in a process of its own."""

    name: str
    folder: Path
    recipe: Recipe

    @property
    def is_done(self) -> bool:
        """Whether the run has ended: its report is written last."""
        return (self.folder / REPORT).exists()

    @property
    def recipe_file(self) -> Path:
        """Where its recipe is kept: beside the folder, since it is there before the run."""
        return self.folder.parent / f"{self.folder.name}.{RECIPE_FILE}"


def run_all(study: Study, out: Path, runs: Sequence[ArmSeed], options: RunOptions) -> None:
    """Train the runs that are not trained yet, each with the settings that its arm's tuning chose.

    Raises UsageError for a finished run of another recipe, HBenchError for a run that fails; what
    others saved stays, and the same call resumes.
    """
    tests = [
        _Run(
            f"{arm}, seed {seed}",
            folder_of(out, arm, seed),
            study.recipe(arm, seed, options.changes, chosen(study, out, arm)),
        )
        for arm, seed in runs
    ]
    _run_all(tests, options)


def tune_all(study: Study, out: Path, arms: Sequence[str], options: RunOptions) -> None:
    """Train the trials that are missing of these arms, or of those they are like; otherwise as
    `run_all`.

    What has ended may call for rates beyond the ends of the grid, so this goes on until no tuning
    needs another.
    """
    while True:
        _run_all(_trials(study, out, arms, options.changes), options)
        if all(trial.is_done for trial in _trials(study, out, arms, options.changes)):
            return


def _trials(study: Study, out: Path, arms: Sequence[str], changes: Sequence[str]) -> list[_Run]:
    """List the trials that the tuning of these arms needs, as far as those that have ended say;
    arms that are like another one share its trials. Those that have ended are among them."""
    origins = dict.fromkeys(study.origin(arm) for arm in arms)
    return [
        _Run(
            f"{arm}, trial of {' '.join(settings)}",
            folder_of_trial(study, out, arm, settings),
            study.trial(arm, settings, changes),
        )
        for arm in origins
        for settings in wanted(study, out, arm)
    ]


def left_over(study: Study, out: Path, runs: Sequence[ArmSeed]) -> tuple[int, int]:
    """How many runs of tuning, and how many of tests, are not done yet, if no tuning needs rates
    beyond its ends.
    """
    trials = _trials(study, out, [arm for arm, _ in runs], ())
    trials_left = sum(not trial.is_done for trial in trials)
    tests_left = sum(not _is_tested(folder_of(out, arm, seed)) for arm, seed in runs)
    return trials_left, tests_left


def _run_all(runs: Sequence[_Run], options: RunOptions) -> None:
    """Make the runs that are not done, several at a time. Where one fails, those that wait are not
    begun; those at work go on to their end, since they are not lost."""
    _refuse_other_recipes(runs)
    with ThreadPoolExecutor(options.workers) as pool:
        futures = {pool.submit(_run, run): run.name for run in runs if not run.is_done}
        try:
            for future in as_completed(futures):
                future.result()
                options.on_progress(futures[future])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _refuse_other_recipes(runs: Sequence[_Run]) -> None:
    """Refuse runs that ended under another recipe, as where more rates changed the choice: their
    scores are not of this study.
    """
    other = [
        run
        for run in runs
        if run.is_done and run.recipe_file.read_text(encoding="utf-8") != as_toml(run.recipe)
    ]
    if other:
        raise UsageError(
            f"{len(other)} finished runs are of another recipe",
            found=examples(str(run.folder) for run in other),
            fix="move these folders away; the same command trains them anew",
        )


def values_of(study: Study, out: Path, seeds: int) -> dict[str, dict[str, Scores]]:
    """Return the scores of every arm, with the gaps that claims are about, of the seeds from 0 on
    whose reports are there.
    """
    found = {}
    for arm in study.arms:
        folders = list(takewhile(_is_tested, (folder_of(out, arm, seed) for seed in range(seeds))))
        if folders:
            found[arm] = _by_class(study, folders)
            if arm in study.arms_with_gaps:
                found[arm] |= _gaps_of(study, folders)
    return found


def _gaps_of(study: Study, folders: Sequence[Path]) -> dict[str, Scores]:
    """Return the gaps of an arm, measured on the test embeddings of its seeds."""
    data = load(resolve(str(folders[0] / RECIPE)).dataset)
    of_seeds = [gaps(folder, data, study.gaps) for folder in folders]
    found = {}
    for name in of_seeds[0]:
        found[name] = whole(np.array([of_seed[name] for of_seed in of_seeds]))
    return found


def _is_tested(folder: Path) -> bool:
    """Whether the run in a folder has ended: its report is written last."""
    return (folder / REPORT).exists()


def _by_class(study: Study, folders: Sequence[Path]) -> dict[str, Scores]:
    """Return every metric of an arm, class by class, from the values by query of its seeds."""
    tables = [
        reports.read_by_query(folder / BY_QUERY, reports.read(folder / REPORT))
        for folder in folders
    ]
    class_of_query = np.array(tables[0][CLASS + study.unit].to_pylist())
    names, classes = np.unique(class_of_query, return_inverse=True)  # (C,); (Q,), rows of names

    found = {}
    for metric in metric_columns(tables[0]):
        if metric not in study.metrics:
            continue
        values = np.stack([table[metric].to_numpy() for table in tables])  # (seeds, Q)
        defined = ~np.isnan(values[0])  # whether a query has positives, which no seed changes
        class_of_defined = classes[defined]
        queries = np.bincount(class_of_defined, minlength=len(names))  # (C,)
        sums = np.stack(
            [np.bincount(class_of_defined, row[defined], minlength=len(names)) for row in values]
        )
        has_queries = queries > 0
        means = sums[:, has_queries] / queries[has_queries]  # (seeds, classes with queries)
        found[metric] = Scores(means, queries[has_queries], tuple(names[has_queries].tolist()))

    return found


def about(study: Study, values: Values, out: Path) -> About:
    """Return what the values rest on: the dataset, the versions, and every arm's recipe and
    trials."""
    first = next(iter(values), None)
    report = reports.read(folder_of(out, first, 0) / REPORT) if first else None
    return About(
        dataset=study.dataset,
        dataset_digest=report.dataset_digest if report else "",
        hbench=report.hbench_version if report else __version__,
        unit=study.unit,
        by=study.tuning.by if study.tuning else "",
        arms={arm: _record(study, arm, out) for arm in values},
    )


def _record(study: Study, arm: str, out: Path) -> ArmRecord:
    """How an arm was trained, as the folders of its runs say."""
    return ArmRecord(
        recipe=as_toml(resolve(str(folder_of(out, arm, 0) / RECIPE))),
        chosen=chosen(study, out, arm),
        trials=tuple(trials(study, out, study.origin(arm), study.by(arm))),
    )


def rows(study: Study, board: Leaderboard, values: Values, out: Path) -> list[Row]:
    """Return one row per arm: its seed in the middle by the leaderboard's metric, the mean of all
    its seeds, and the command that trains it again.
    """
    return [
        row_from(study, board, arm, values[arm], folder=folder_of(out, arm, seed), seed=seed)
        for arm, seed in middle_seeds(board, values).items()
    ]


def middle_seeds(board: Leaderboard, values: Values) -> dict[str, int]:
    """Return the seed in the middle, by the leaderboard's metric, of every arm; of an even number
    the lower of the two, since a row has to be one run."""
    middle = {}
    for arm, scores in values.items():
        worst_first = np.argsort(scores[board.metric].of_seeds, kind="stable")
        middle[arm] = int(worst_first[(len(worst_first) - 1) // 2])
    return middle


def row_from(
    study: Study,
    board: Leaderboard,
    arm: str,
    scores: Mapping[str, Scores],
    *,
    folder: Path,
    seed: int,
) -> Row:
    """Return the row of the run of an arm in a folder, beside the scores of all seeds."""
    recipe = resolve(str(folder / RECIPE))
    seeds = len(scores[board.metric].of_seeds)
    over_seeds = "; ".join(
        f"{metric} {shown(interval_of(scores[metric]))}"
        for metric in ("H-AP", "AP", "R@1")
        if metric in scores
    )
    note = (
        f"seed {seed} of {seeds}, {_steps(folder)} steps of {recipe.sampler.batch}; mean over "
        f"seeds: {over_seeds}"
    )
    document = reports.read(folder / REPORT)
    row = row_of(
        document,
        board,
        RowDetails(
            method=arm,
            backbone=recipe.model.backbone,
            setup={"batch_size": recipe.sampler.batch, "resolution": recipe.images.size},
            made=study.command(arm, seed, (f"optimizer.lr={recipe.optimizer.lr}",)),
        ),
    )
    assert row.run is not None
    known: dict[str, Any] = {"note": note}
    if seeds > 1:
        known |= {"seeds": seeds, "between_seeds": between_seeds(row, scores)}
    return row.model_copy(update={"run": row.run.model_copy(update=known)})


def between_seeds(row: Row, scores: Mapping[str, Scores]) -> dict[str, Decimal]:
    """Return the standard deviation over seeds of the metrics of a row, in points of percent;
    `scores`: of all seeds, as fractions."""
    return {
        metric: round(Decimal(100 * float(np.std(of.of_seeds, ddof=1))), PLACES)
        for metric, of in scores.items()
        if metric in row.scores
    }


def _steps(folder: Path) -> int:
    """The number of steps that the run in a folder took, by its log; 0 without one."""
    return max((record["step"] for _, record in records(folder / LOG)), default=0)


def _run(run: _Run) -> None:
    """Train a run, in a process of its own, so that a run's result does not depend on those before
    it; the recipe is kept beside its folder."""
    write_text(run.recipe_file, as_toml(run.recipe))
    command = [
        sys.executable,
        "-m",
        "hbench.train",
        str(run.recipe_file),
        "--out",
        str(run.folder),
        "--resume",
        "--threads",
        "1",
    ]
    # without what torchrun sets: the run would wait for the processes of a group
    alone = {key: value for key, value in os.environ.items() if key not in {"RANK", "WORLD_SIZE"}}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        raise HBenchError(
            f"{run.name}, did not end well (exit code {done.returncode})",
            found=done.stderr.strip()[-2000:],
            fix="the same command resumes where it stopped",
        )
