"""Tunes the arms of a study: every rate is one run on held-out classes, and the best of them is
trained and tested.

Where the best rate is at an end of the grid, the next one beyond it is tried, until the best is
inside or the study names no more.

The metric decides the rate and, in the tested runs, the checkpoint.
"""

from pathlib import Path

from hbench.core.errors import DataError
from hbench.train.records.refusals import REPORT
from hbench.train.records.trials import Trial, best_first, trial_of_run
from studies.study import Study, folder_of

TRIAL = "trial"


def trials(study: Study, out: Path, arm: str, metric: str) -> list[Trial]:
    """Return the trials of an arm that have ended, from the lowest rate to the highest, each with
    its best score by a metric on held-out classes.
    """
    ended = (_trial(study, out, arm, settings, metric) for settings in study.grid)
    return [trial for trial in ended if trial is not None]


def wanted(study: Study, out: Path, arm: str) -> list[tuple[str, ...]]:
    """Return the rates that an arm's tuning needs, as far as its ended trials say: at first those
    of every arm.
    """
    needed = dict.fromkeys(study.rates)
    for metric in sorted(study.metrics_of_choice(arm)):
        needed |= dict.fromkeys(_outwards(study, out, arm, metric))
    return list(needed)


def _outwards(study: Study, out: Path, arm: str, metric: str) -> list[tuple[str, ...]]:
    """Return the rates that are tried of every arm, and further ones beyond an end of these as long
    as the best by a metric is at that end. Where a trial among them has not ended, the best is not
    known, and nothing beyond is asked for yet."""
    grid = study.grid
    common = study.rates
    if not common:
        return []

    low = grid.index(common[0])
    high = grid.index(common[-1])
    while True:
        tried = [_trial(study, out, arm, settings, metric) for settings in grid[low : high + 1]]
        ended = [trial for trial in tried if trial is not None]
        if len(ended) < len(tried):
            break
        best = grid.index(best_first(ended, metric)[0].settings)
        if best == low > 0:
            low -= 1
        elif best == high < len(grid) - 1:
            high += 1
        else:
            break

    return grid[low : high + 1]


def _trial(
    study: Study, out: Path, arm: str, settings: tuple[str, ...], metric: str
) -> Trial | None:
    """The trial of an arm with these settings, with its best score by a metric; None where it has
    not ended."""
    folder = folder_of_trial(study, out, arm, settings)
    return trial_of_run(folder, settings, metric) if (folder / REPORT).exists() else None


def folder_of_trial(study: Study, out: Path, arm: str, settings: tuple[str, ...]) -> Path:
    """Where a trial goes: those of every arm are numbered first, so that rates beyond them move
    none.
    """
    beyond = [rate for rate in study.grid if rate not in study.rates]
    return folder_of(out, arm, [*study.rates, *beyond].index(settings), TRIAL)


def chosen(study: Study, out: Path, arm: str) -> tuple[str, ...]:
    """Return the settings that the tuning chose for an arm; none where nothing is tuned. Raises
    DataError before its tuning has ended."""
    if study.tuning is None:
        return ()
    origin = study.origin(arm)
    ended = trials(study, out, origin, study.by(arm))
    needed = wanted(study, out, origin)
    if missing := set(needed) - {trial.settings for trial in ended}:
        raise DataError(
            f"the tuning of {origin} has not ended",
            expected=f"{len(needed)} trials",
            found=f"{len(needed) - len(missing)} in {out}",
            fix="the same study without --only trains them first",
        )
    return best_first(ended, study.by(arm))[0].settings
