"""Trials: trainings on part of the classes, which are compared on held-out classes to choose
settings.

The result of a trial is read from the log of its run, which has all metrics of every validation. So
any metric can choose later, and the weights may be deleted.
"""

from collections.abc import Iterable
from pathlib import Path

from hbench.core.errors import DataError
from hbench.core.schema import Strict
from hbench.metrics.names import goodness
from hbench.train.records.log import FILE as LOG
from hbench.train.records.log import records


class Trial(Strict):
    """A trial: its `settings`, KEY=VALUE for every key, and its best score on held-out classes with
    the step of that."""

    settings: tuple[str, ...]
    score: float
    step: int

    @property
    def values(self) -> list[str]:
        """The values of its settings, without the keys."""
        return [setting.partition("=")[2] for setting in self.settings]


def trial_of_run(folder: Path, settings: Iterable[str], metric: str) -> Trial:
    """Read the result of a trial from its run's folder: its best validation by `metric`, the first
    one of equal scores. `settings`: KEY=VALUE, of the trial, for every key that the trials vary.
    Raises DataError if the log has no validation by that metric."""
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

    # `goodness` negates metrics for which lower is better
    score, step = max(found, key=lambda each: goodness(metric, each[0]))
    return Trial(settings=tuple(settings), score=score, step=step)


def best_first(trials: Iterable[Trial], metric: str) -> list[Trial]:
    """Sort trials by their score of `metric`, the best first. Trials with equal scores keep their
    order."""
    return sorted(trials, key=lambda trial: -goodness(metric, trial.score))
