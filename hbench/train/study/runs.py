"""Running a study: every arm and seed is a process of its own that resumes where it was; then its tables and rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import HBenchError
from hbench.core.files import write_text
from hbench.core.untrusted import parse_json
from hbench.evaluation.leaderboard import Leaderboard, Row
from hbench.evaluation.leaderboard.runs import row_of
from hbench.evaluation.reports import report as reports
from hbench.train.loop import RECIPE, REPORT
from hbench.train.recipes.files import as_toml, resolve
from hbench.train.records.log import FILE as LOG
from hbench.train.study.claims import Interval, Values, Verdict, contrast
from hbench.train.study.study import Study, folder_of

RECIPE_FILE = "arm.toml"
RowOf = tuple[str, int]  # an arm and a seed


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
    todo = [(arm, seed) for arm, seed in runs if not (folder_of(out, arm, seed) / REPORT).exists()]
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(_run, study, out, arm, seed, changes): f"{arm}, seed {seed}" for arm, seed in todo}
        try:
            for future in as_completed(futures):
                future.result()
                watch(futures[future])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def found_values(study: Study, out: Path, seeds: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """The scores of every arm, of the seeds from 0 on whose reports are there."""
    found = {}
    for arm in study.arms:
        paths = (folder_of(out, arm, seed) / REPORT for seed in range(seeds))
        if scores := [reports.read(path).scores for path in takewhile(Path.exists, paths)]:
            found[arm] = {metric: np.array([_number(each[metric].value) for each in scores]) for metric in scores[0]}
    return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def markdown(study: Study, values: Values, verdicts: Sequence[Verdict]) -> str:
    """The study's tables and claims, with what they rest on."""
    lines = [f"# Study of {study.dataset}", "", "Percent, mean ± half of the 95 % interval over seeds.", ""]
    for table in (table for table in study.tables if any(arm in values for arm in table.arms)):
        header = ["", "seeds", *study.metrics]
        lines += [f"## {table.title}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        for arm in (arm for arm in table.arms if arm in values):
            cells = [shown(contrast(values[arm][metric])) for metric in study.metrics]
            lines.append(f"| {arm} | {len(values[arm][study.metrics[0]])} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, *_claims(verdicts)]) + "\n"


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
    for verdict in verdicts:
        mean, low, high = (f"{100 * value:+.2f}" for value in verdict.difference)
        lines.append(
            f"| {verdict.claim.says} ({verdict.claim.metric}) | {verdict.claim.source} | {verdict.seeds} | {mean} "
            f"| {low} … {high} | {verdict.effect:+.1f} | {verdict.p:.4f} | {verdict.corrected:.4f} | {verdict.word} |"
        )
    return lines


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

    last = (folder / LOG).read_text(encoding="utf-8").splitlines()[-1]
    return int(parse_json(last)["step"])


def _run(study: Study, out: Path, arm: str, seed: int, changes: Sequence[str]) -> None:
    folder = folder_of(out, arm, seed)
    recipe_file = folder.parent / f"seed-{seed}.{RECIPE_FILE}"
    write_text(recipe_file, as_toml(study.recipe(arm, seed, changes)))
    command = [
        sys.executable,
        "-m",
        "hbench.train",
        str(recipe_file),
        "--out",
        str(folder),
        "--resume",
        "--threads",
        "1",
    ]
    alone = {key: value for key, value in os.environ.items() if key not in {"RANK", "WORLD_SIZE"}}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        raise HBenchError(
            f"{arm}, seed {seed}, did not end well (exit code {done.returncode})", found=done.stderr.strip()[-2000:],
            fix="the same command goes on where it stopped",
        )  # fmt: skip
