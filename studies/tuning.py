"""Tunes the arms of a study: every configuration is one run on held-out classes, and the best of them is trained and tested.

Each configuration ends with a folder of its own, in which log.jsonl has all metrics of every validation. So one run serves
any metric that is to choose: the metric decides the settings and, in the tested runs, the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hbench.core.errors import DataError
from hbench.train.loop import REPORT
from hbench.train.records.log import FILE as LOG
from hbench.train.records.log import records
from studies.study import Study, folder_of

TRIAL = "trial"


class Trial(NamedTuple):
    """A configuration that was tried: its settings, and the best score on held-out classes, at which step."""

    settings: tuple[str, ...]
    score: float
    step: int


def trials(study: Study, out: Path, arm: str, metric: str) -> list[Trial]:
    """The configurations of a tuned arm whose runs have ended, by a metric; in the order of the study."""
    found = []
    for number, settings in enumerate(study.configurations(arm)):
        folder = folder_of(out, arm, number, TRIAL)
        if (folder / REPORT).exists():
            validations = _validations(folder / LOG, metric)
            score, step = max(validations, key=lambda each: each[0])  # the first of equal ones
            found.append(Trial(settings, score, step))
    return found


def chosen(study: Study, out: Path, arm: str) -> tuple[str, ...]:
    """The settings that the tuning chose for an arm; none where nothing is tuned. Raises DataError before its tuning has ended."""
    origin = study.tuned(arm)
    if not origin:
        return ()
    tried = trials(study, out, origin, study.by(arm))
    if len(tried) < len(study.configurations(origin)):
        raise DataError(
            f"the tuning of {origin} has not ended", expected=f"{len(study.configurations(origin))} configurations",
            found=f"{len(tried)} in {out}", fix="the same study without --only trains them first",
        )  # fmt: skip
    return max(tried, key=lambda trial: trial.score).settings  # the first of equal ones


def markdown(study: Study, out: Path) -> list[str]:
    """The table of what was tried and chosen: by the metric of the study, and by the loss's own aim."""
    if study.tuning is None:
        return []
    by = study.tuning.by
    header = ("", "tried", f"chosen by {by}", by, "at step", "own aim", "chosen by it", "its score", f"its {by}")
    lines = ["## Tuning", "", "On held-out classes of the training set, percent.", "", f"| {' | '.join(header)} |"]
    lines.append("|---" * len(header) + "|")
    for arm, own in study.arms.items():
        tried = trials(study, out, arm, by) if own.tune else []
        if not tried:
            continue
        aim = own.aim or by
        by_aim = trials(study, out, arm, aim)
        best, best_by_aim = _first_best(tried), _first_best(by_aim)
        cells = [
            f"{len(tried)} of {len(study.configurations(arm))}",
            _words(tried[best]), f"{100 * tried[best].score:.1f}", f"{tried[best].step}", aim,
            "the same" if best == best_by_aim else _words(by_aim[best_by_aim]), f"{100 * by_aim[best_by_aim].score:.1f}",
            f"{100 * tried[best_by_aim].score:.1f}",
        ]  # fmt: skip
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return [*lines, ""]


def _first_best(tried: Sequence[Trial]) -> int:
    return max(range(len(tried)), key=lambda number: tried[number].score)


def _words(trial: Trial) -> str:
    """The settings without the roads to them: optimizer.lr=0.003 is lr=0.003."""
    return ", ".join(setting.rpartition(".params.")[2].removeprefix("optimizer.") for setting in trial.settings)


def _validations(log: Path, metric: str) -> list[tuple[float, int]]:
    """The scores of a run's validations and their steps."""
    try:
        found = [(float(r["validation"][metric]), r["step"]) for _, r in records(log) if "validation" in r]
    except (KeyError, TypeError, ValueError):
        found = []
    if not found:
        raise DataError(f"{log} has no validations", expected=f"{metric} of the held-out classes", fix="train it again")
    return found
