"""Trials: trainings on part of the classes, from which settings are chosen by the classes that were
held out.

A trial's result is read from the log of its run, which has all metrics of every validation. So one
run serves any metric that is to choose, and its weights may be deleted.
"""

from collections.abc import Iterable
from pathlib import Path

from hbench.core.errors import DataError
from hbench.core.schema import Strict
from hbench.metrics.names import goodness
from hbench.train.records.log import FILE as LOG
from hbench.train.records.log import records


class Trial(Strict):
    """What was tried, as KEY=VALUE of every key, and its best score on held-out classes, at which
    step."""

    settings: tuple[str, ...]
    score: float
    step: int

    @property
    def values(self) -> list[str]:
        """The values of the keys, as they were given."""
        return [setting.partition("=")[2] for setting in self.settings]


def trial_of_run(folder: Path, settings: Iterable[str], metric: str) -> Trial:
    """Read the trial whose run ended in a folder: what it tried, KEY=VALUE of every key, and its
    best validation by `metric`, the first step of equal ones. Raises DataError for a log without
    validations by it."""
    log = folder / LOG
    scored = [record for _, record in records(log) if "validation" in record]
    try:
        found = [(float(each["validation"][metric]), int(each["step"])) for each in scored]
    except (KeyError, TypeError, ValueError):
        found = []
    if not found:
        raise DataError(
            f"{log} has no validations",
            expected=f"{metric} of the held-out classes",
            fix="train it again",
        )

    # `goodness`: more is better, for metrics of which less is better, too
    score, step = max(found, key=lambda each: goodness(metric, each[0]))
    return Trial(settings=tuple(settings), score=score, step=step)


def best_first(trials: Iterable[Trial], metric: str) -> list[Trial]:
    """Order trials by their score of `metric`, the best first; of equal ones, the one that was
    named first. `goodness` turns the metrics of which less is better round."""
    return sorted(trials, key=lambda trial: -goodness(metric, trial.score))
