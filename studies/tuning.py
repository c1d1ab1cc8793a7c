"""Tunes the arms of a study: every rate is one run on held-out classes, and the best of them is trained and tested.

Each trial leaves a folder, in which log.jsonl has all metrics of every validation. So one run serves any metric that is to choose:
the metric decides the rate and, in the tested runs, the checkpoint.
"""

from pathlib import Path

from hbench.core.errors import DataError
from hbench.train.loop import REPORT
from hbench.train.records.log import FILE as LOG
from hbench.train.records.log import records
from studies.study import Study, folder_of
from studies.values import Trial

TRIAL = "trial"


def trials(study: Study, out: Path, arm: str, metric: str) -> list[Trial]:
    """Return the trials of an arm that have ended, in the order of the study's rates, by a metric."""
    ended = []
    for number, settings in enumerate(study.rates):
        folder = folder_of(out, arm, number, TRIAL)
        if (folder / REPORT).exists():
            validations = _validations(folder / LOG, metric)
            score, step = max(validations, key=lambda validation: validation[0])  # the first of equal ones
            ended.append(Trial(settings=settings, score=score, step=step))
    return ended


def chosen(study: Study, out: Path, arm: str) -> tuple[str, ...]:
    """Return the settings that the tuning chose for an arm; none where nothing is tuned. Raises DataError before its tuning has
    ended."""
    if study.tuning is None:
        return ()
    origin = study.origin(arm)
    ended = trials(study, out, origin, study.by(arm))
    if len(ended) < len(study.rates):
        raise DataError(
            f"the tuning of {origin} has not ended", expected=f"{len(study.rates)} trials",
            found=f"{len(ended)} in {out}", fix="the same study without --only trains them first",
        )  # fmt: skip
    return max(ended, key=lambda trial: trial.score).settings  # the first of equal ones


def _validations(log: Path, metric: str) -> list[tuple[float, int]]:
    """Return the scores of a run's validations and their steps."""
    try:
        found = [(float(r["validation"][metric]), r["step"]) for _, r in records(log) if "validation" in r]
    except (KeyError, TypeError, ValueError):
        found = []
    if not found:
        raise DataError(f"{log} has no validations", expected=f"{metric} of the held-out classes", fix="train it again")
    return found
