"""Writes what a study says, claims, trials and tables, from its kept values alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.claims import Interval, Verdict, interval_of, judged
from studies.study import Study
from studies.values import About, Values, with_means

ROWS = Path(__file__).parents[1] / "leaderboards"
VALUES = "values.parquet"


def kept_of(source: str) -> Path:
    """Return the kept values of a study: of its folder, of a file, or shipped in leaderboards/
    under a name.
    """
    shipped = ROWS / f"{source}.parquet"
    if shipped.is_file():
        return shipped
    given = Path(source)
    return given / VALUES if given.is_dir() else given


def markdown(study: Study, values: Values, about: About) -> str:
    """Return the study's claims, trials and tables as Markdown, from the kept values alone."""
    values = with_means(values, study.means)
    verdicts = judged(study, values)
    lines = [
        f"# Study of {study.dataset}",
        "",
        *_claims(verdicts),
        "",
        *_trials_table(study, about),
    ]
    lines += [
        f"Below: percent, mean ± half of the 95 % interval over seeds and classes ({about.unit}).",
        "",
    ]

    header = ["", "seeds", *study.metrics]
    for table in study.tables:
        measured = [arm for arm in table.arms if arm in values]
        if len(measured) < 2:
            continue
        lines += [f"## {table.title}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        for arm in measured:
            scores = values[arm]
            cells = [shown(interval_of(scores[metric])) for metric in study.metrics]
            lines.append(
                f"| {arm} | {len(scores[study.metrics[0]].values)} | " + " | ".join(cells) + " |"
            )
        lines.append("")

    return "\n".join(lines).rstrip("\n") + "\n"


def _trials_table(study: Study, about: About) -> list[str]:
    """List the lines of a table of the trials: a line per arm, with the best score on held-out
    classes at every learning rate, the chosen one in bold; a cell is empty where the rate was not
    tried, since the best was not at that end of the grid."""
    tuned = {arm: record for arm, record in about.arms.items() if record.trials}
    if not tuned:
        return []

    tried = dict.fromkeys(trial.settings for record in tuned.values() for trial in record.trials)
    order = {rate: place for place, rate in enumerate(study.grid)}
    # rates of an earlier grid, which the study no longer has, come last
    columns = sorted(tried, key=lambda rate: order.get(rate, len(order)))
    rates = [_words(settings) for settings in columns]
    lines = [
        f"Trials on held-out classes: {about.by}, percent, at its best step; the chosen rate in "
        "bold.",
        "",
    ]
    lines += [f"| | {' | '.join(rates)} |", "|---" * (len(rates) + 1) + "|"]

    for arm, record in tuned.items():
        cells = dict.fromkeys(columns, "")
        cells |= {
            trial.settings: f"{100 * trial.score:.1f} ({trial.step})" for trial in record.trials
        }
        cells[record.chosen] = f"**{cells[record.chosen]}**"
        lines.append(f"| {arm} | {' | '.join(cells.values())} |")

    return [*lines, ""]


def _words(settings: Sequence[str]) -> str:
    """Return the settings without their sections: optimizer.lr=0.003 is lr=0.003."""
    return ", ".join(setting.removeprefix("optimizer.") for setting in settings)


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    """List the lines of a table of the claims that are measured, and one line that counts the
    others."""
    measured = [verdict for verdict in verdicts if verdict.seeds]
    lines = [
        "| claim | of | difference, points | 95 % interval | p | corrected | |",
        "|---" * 7 + "|",
    ]
    lines += [f"| {' | '.join(_claim_cells(verdict))} |" for verdict in measured]
    if len(measured) < len(verdicts):
        lines += [
            "",
            f"{len(verdicts) - len(measured)} of {len(verdicts)} claims are not measured.",
        ]
    return lines


def _claim_cells(verdict: Verdict) -> list[str]:
    """The cells of a claim: what it says and where, the difference with its interval in points, p
    alone and among its family, and the verdict."""
    claim = verdict.claim
    metric = claim.metric
    if claim.minus_metric:
        metric = f"{claim.metric} − {claim.minus_metric}"
    mean, low, high = (f"{100 * value:+.2f}" for value in verdict.difference[:3])
    return [
        f"{claim.says} ({metric})",
        claim.source,
        mean,
        f"{low} … {high}",
        _p_in_words(verdict.p),
        _p_in_words(verdict.corrected),
        verdict.word,
    ]


def _p_in_words(p: float) -> str:
    """Write a p-value to four digits; a smaller one is not known so exactly."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def shown(interval: Interval) -> str:
    """Write an interval of fractions in percent, mean ± half its width; from one seed, whose
    interval is infinite, the mean alone.

    >>> shown(Interval(0.5, 0.49, 0.51, 0.004, 4.0))
    '50.0 ± 1.0'
    """
    half = 100 * (interval.high - interval.low) / 2
    return f"{100 * interval.mean:.1f}" + (f" ± {half:.1f}" if np.isfinite(half) else "")
