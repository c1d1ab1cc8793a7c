"""Running a study: every arm and seed is a process of its own that resumes where it was; then its tables and rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import HBenchError
from hbench.core.files import write_text
from hbench.datasets import load
from hbench.evaluation.leaderboard import Leaderboard, Row
from hbench.evaluation.leaderboard.runs import row_of
from hbench.evaluation.reports import report as reports
from hbench.train.loop import RECIPE, REPORT
from hbench.train.recipes.files import as_toml, resolve
from hbench.train.recipes.recipe import Recipe
from hbench.train.records.log import FILE as LOG
from hbench.train.records.log import records
from studies.claims import Interval, Values, Verdict, contrast
from studies.gaps import gaps
from studies.study import Study, folder_of
from studies.tuning import TRIAL, chosen

RECIPE_FILE = "arm.toml"
RowOf = tuple[str, int]  # an arm and a seed


class _Run(NamedTuple):
    """A training run to be made in a process of its own."""

    name: str
    folder: Path
    recipe: Recipe

    @property
    def is_done(self) -> bool:
        return (self.folder / REPORT).exists()


def run_all(
    study: Study,
    out: Path,
    runs: Sequence[RowOf],
    *,
    changes: Sequence[str],
    workers: int,
    watch: Callable[[str], None],
) -> None:
    """Train what is not trained yet, `workers` processes of one thread at a time; `watch` is told of each that is done.

    Raises HBenchError for a run that fails; what others saved stays, and the same call goes on with it.
    """
    tests = [
        _Run(
            f"{arm}, seed {seed}", folder_of(out, arm, seed), study.recipe(arm, seed, changes, chosen(study, out, arm))
        )
        for arm, seed in runs
    ]
    _run_all(tests, workers, watch)


def tune_all(
    study: Study,
    out: Path,
    arms: Sequence[str],
    *,
    changes: Sequence[str],
    workers: int,
    watch: Callable[[str], None],
) -> None:
    """Try what is not tried yet of the configurations of these arms, or of those they are like; as `run_all` does."""
    _run_all(_trials(study, out, arms, changes), workers, watch)


def _trials(study: Study, out: Path, arms: Sequence[str], changes: Sequence[str]) -> list[_Run]:
    tuned = dict.fromkeys(study.tuned(arm) for arm in arms if study.tuned(arm))
    return [
        _Run(f"{arm}, trial {number}", folder_of(out, arm, number, TRIAL), study.trial(arm, settings, changes))
        for arm in tuned
        for number, settings in enumerate(study.configurations(arm))
    ]


def left_over(study: Study, out: Path, runs: Sequence[RowOf]) -> tuple[int, int]:
    """How many runs of tuning and of tests are not done yet."""
    trials = _trials(study, out, [arm for arm, _ in runs], ())
    tests = [folder_of(out, arm, seed) for arm, seed in runs]
    return sum(not trial.is_done for trial in trials), sum(not (folder / REPORT).exists() for folder in tests)


def _run_all(runs: Sequence[_Run], workers: int, watch: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(_run, run): run.name for run in runs if not run.is_done}
        try:
            for future in as_completed(futures):
                future.result()
                watch(futures[future])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def found_values(study: Study, out: Path, seeds: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """The scores of every arm, and the gaps that the study asks for, of the seeds from 0 on whose reports are there."""
    found = {}
    for arm in study.arms:
        folders = (folder_of(out, arm, seed) for seed in range(seeds))
        if scores := [_scores(study, each) for each in takewhile(lambda each: (each / REPORT).exists(), folders)]:
            found[arm] = {metric: np.array([each[metric] for each in scores]) for metric in scores[0]}
    return found


def _scores(study: Study, folder: Path) -> dict[str, float]:
    scores = {name: _number(score.value) for name, score in reports.read(folder / REPORT).scores.items()}
    if study.gaps:
        scores |= gaps(folder, load(resolve(str(folder / RECIPE)).dataset), study.gaps)
    return scores


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def markdown(study: Study, values: Values, verdicts: Sequence[Verdict], tuning: Sequence[str] = ()) -> str:
    """The study's claims, tuning and tables, with what they rest on."""
    lines = [f"# Study of {study.dataset}", "", *_claims(verdicts), "", *tuning]
    lines += ["Below: percent, mean ± half of the 95 % interval over seeds.", ""]
    for table in (table for table in study.tables if any(arm in values for arm in table.arms)):
        header = ["", "seeds", *study.metrics]
        lines += [f"## {table.title}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        for arm in (arm for arm in table.arms if arm in values):
            cells = [shown(contrast(values[arm][metric])) for metric in study.metrics]
            lines.append(f"| {arm} | {len(values[arm][study.metrics[0]])} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    """The table of the claims: effect before p-value, and the word by the p-value that is corrected for its family."""
    lines = [
        "## Claims",
        "",
        "d: mean difference in standard deviations over seeds. p: Student's, paired; corrected by Holm within a family.",
        "",
        "| claim | of | seeds | difference, points | 95 % interval | d | p | corrected | |",
        "|---" * 9 + "|",
    ]
    return lines + [f"| {' | '.join(_claim_cells(verdict))} |" for verdict in verdicts]


def _claim_cells(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    metric = f"{claim.metric} − {claim.minus_metric}" if claim.minus_metric else claim.metric
    about = [f"{claim.says} ({metric})", claim.source, str(verdict.seeds)]
    if not verdict.seeds:
        return [*about, *[""] * 5, verdict.word]
    mean, low, high = (f"{100 * value:+.2f}" for value in verdict.difference)
    numbers = [f"{verdict.effect:+.1f}", f"{verdict.p:.4f}", f"{verdict.corrected:.4f}"]
    return [*about, mean, f"{low} … {high}", *numbers, verdict.word]


def shown(interval: Interval) -> str:
    """Percent: mean ± half width; the mean alone from one seed.

    >>> shown(Interval(0.5, 0.49, 0.51))
    '50.0 ± 1.0'
    """
    half = 100 * (interval.high - interval.low) / 2
    return f"{100 * interval.mean:.1f}" + (f" ± {half:.1f}" if np.isfinite(half) else "")


def rows(board: Leaderboard, values: Values, out: Path) -> list[Row]:
    """One row per arm: its seed in the middle by the leaderboard's metric, and what all its seeds gave."""
    return [_row(board, out, arm, scores) for arm, scores in values.items()]


def _row(board: Leaderboard, out: Path, arm: str, scores: Mapping[str, NDArray[np.float64]]) -> Row:
    seeds = len(scores[board.metric])
    seed = int(np.argsort(scores[board.metric], kind="stable")[(seeds - 1) // 2])
    recipe = resolve(str(folder_of(out, arm, seed) / RECIPE))
    steps = _steps(folder_of(out, arm, seed))
    over_seeds = "; ".join(f"{metric} {shown(contrast(scores[metric]))}" for metric in ("H-AP", "AP", "R@1"))
    note = f"seed {seed} of {seeds}, {steps} steps of {recipe.sampler.batch}; mean over seeds: {over_seeds}"
    document = reports.read(folder_of(out, arm, seed) / REPORT)
    row = row_of(
        document, board, method=arm, backbone=recipe.model.backbone, setup={"batch_size": recipe.sampler.batch}
    )
    assert row.run is not None
    return row.model_copy(update={"run": row.run.model_copy(update={"note": note})})


def _steps(folder: Path) -> int:
    return max((record["step"] for _, record in records(folder / LOG)), default=0)


def _run(run: _Run) -> None:
    recipe_file = run.folder.parent / f"{run.folder.name}.{RECIPE_FILE}"
    write_text(recipe_file, as_toml(run.recipe))
    command = [
        sys.executable,
        "-m",
        "hbench.train",
        str(recipe_file),
        "--out",
        str(run.folder),
        "--resume",
        "--threads",
        "1",
    ]
    alone = {key: value for key, value in os.environ.items() if key not in {"RANK", "WORLD_SIZE"}}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        raise HBenchError(
            f"{run.name}, did not end well (exit code {done.returncode})", found=done.stderr.strip()[-2000:],
            fix="the same command resumes where it stopped",
        )  # fmt: skip
