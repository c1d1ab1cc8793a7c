"""hbench train: train a model from a recipe, embed the test items, and score them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.names import FILE, RECIPE
from hbench.cli.option_blocks import block
from hbench.cli.reporting import remarks_of, show_scores
from hbench.cli.terminal import say, say_above, show, show_table, steps_first
from hbench.records.shown import percent_note, shown

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from hbench.core.errors import HBenchError
    from hbench.train.recipes.recipe import Recipe
    from hbench.train.records.log import StepRecord, ValidationRecord
    from hbench.train.records.trials import Trial
    from hbench.train.sweep import Sweep

FIRST_LINE = 10  # without a bar the first line is printed after this number of seconds


@dataclass(frozen=True)
class RunOptions:
    """The options of a run: device, threads, trackers, and whether to resume."""

    resume: bool
    device: str
    threads: int | None
    track: tuple[str, ...]
    tensorboard: bool

    @property
    def trackers(self) -> list[str]:
        """The names given by --track, plus "tensorboard" if its own option was given, each once."""
        names = [*self.track, "tensorboard"] if self.tensorboard else self.track
        return list(dict.fromkeys(names))


RUN = block(
    "run",
    RunOptions,
    [
        click.option("--resume", is_flag=True, help="Go on with the run in that folder."),
        click.option(
            "--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:1."
        ),
        click.option(
            "--threads",
            type=click.IntRange(min=1),
            help="Threads that compute.  [default: torch's]",
        ),
        click.option(
            "--track", multiple=True, metavar="NAME", help="tensorboard or wandb, beside log.jsonl."
        ),
        click.option("--tensorboard", is_flag=True, help="As --track tensorboard."),
    ],
)


@click.command("train")
@click.argument("recipe", type=RECIPE)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one setting: optimizer.lr=1e-4.",
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="KEY=V1,V2,…",
    help="Try these values on held-out classes, and train the best: optimizer.lr=1e-4,3e-4,1e-3.",
)
@click.option(
    "--keep",
    type=click.Choice(["best", "all"]),
    default="best",
    show_default=True,
    help="Trials of a sweep whose weights are kept.",
)
@click.option("--out", "-o", type=FILE, help="Folder of the run.  [default: runs/RECIPE]")
@click.option(
    "--trust-code",
    multiple=True,
    type=FILE,
    help="Let this Python file run, which the recipe names; remembered until it changes.",
)
@RUN
@click.option(
    "--print", "only_print", is_flag=True, help="Print the recipe as it would be trained, and stop."
)
def command(
    recipe: str,
    changes: tuple[str, ...],
    out: Path | None,
    *,
    sweep: tuple[str, ...],
    keep: str,
    trust_code: tuple[Path, ...],
    run: RunOptions,
    only_print: bool,
) -> None:
    """Train by RECIPE, a name that `hbench recipes` lists or a TOML file; then embed and score the
    dataset's tests.

    \b
    The folder of the run gets recipe.toml, log.jsonl, step-*/ (the checkpoint), test.parquet
    (the embeddings), report.json and report.by-query.parquet.
    Ctrl-C saves; --resume continues, bit for bit.
    Several GPUs or machines: torchrun --nproc-per-node 4 -m hbench.train RECIPE …

    Your own pictures: hbench build birds --from FOLDER …, then hbench train own-data --set
    dataset=birds

    Example: hbench train glyphs-happier --set optimizer.lr=5e-4 --out runs/mine
    """
    from hbench.train.processes import is_first_started, world_started
    from hbench.train.recipes import files
    from hbench.train.records.refusals import holds_run, lost_its_weights

    # by typing a program, also in --set and --sweep, the user consents to it; a program that only
    # the recipe's file names needs --trust-code
    _consent(changes, sweep, trust_code)
    chosen = files.resolve(recipe, changes)
    if only_print:
        if sweep:
            _check_trials(recipe, changes, sweep)
        show(files.as_toml(_checked(chosen)).rstrip("\n"))
        return
    if sweep and world_started() > 1:
        raise click.UsageError("--sweep trains by one process: leave torchrun out.")
    if is_first_started():  # the first process speaks for all
        say(files.losses_in_words(chosen, recipe))
    folder = out or Path("runs") / Path(recipe).stem
    if sweep:
        chosen = _best_of_sweep(recipe, changes, sweep, out=folder, keep=keep, run=run)
        # `folder` has no run of another recipe, since `_best_of_sweep` moves such a run aside
        if lost_its_weights(folder):
            say(f"the best is still that of the run in {folder}, whose weights were deleted")
            return
        # --resume was meant for the trials, too: the best one's own run may not have begun yet
        run = replace(run, resume=run.resume and holds_run(folder))
    _train(chosen, folder, run)


def _consent(
    changes: tuple[str, ...], sweep: tuple[str, ...], trust_code: tuple[Path, ...]
) -> None:
    """Record consent for the programs (FILE.py:NAME) that the user typed: after --trust-code, or as
    a value in --set or --sweep. Programs that a recipe's file names are not included: somebody else
    may have written it."""
    from hbench.train.recipes.consent import trust
    from hbench.train.recipes.files import parse_change
    from hbench.train.recipes.own_code import programs_in
    from hbench.train.sweep import parse_sweep

    tried = [f"{key}={value}" for key, values in map(parse_sweep, sweep) for value in values]
    typed = [
        code.file for change in [*changes, *tried] for code in programs_in(parse_change(change))
    ]
    for file in [*trust_code, *typed]:
        trust(file)


def _checked(chosen: Recipe) -> Recipe:
    """Fill in the sizes that a recipe leaves open (0, such as its epochs) for its dataset, and
    refuse a recipe that cannot be trained. If the dataset is not on this disk, print so, and check
    only names and values: a recipe with open sizes is refused then."""
    from hbench.core.errors import DataError, UnknownName
    from hbench.datasets import load
    from hbench.train.fitting.choices import refuse_choices
    from hbench.train.fitting.sizes import is_open
    from hbench.train.loop import prepare_run

    refuse_choices(chosen)
    if not chosen.dataset:
        say(
            "the recipe names no dataset yet (--set dataset=NAME), so it is not checked against one"
        )
        return chosen
    try:
        data = load(chosen.dataset)
    except (DataError, UnknownName) as error:
        if is_open(chosen):
            raise
        say(f"not checked against its classes: {error.problem}")
        return chosen
    return prepare_run(chosen, data).recipe


def _check_trials(recipe: str, changes: tuple[str, ...], choices: tuple[str, ...]) -> None:
    """Raise ConfigError if a trial of a sweep cannot be trained, else print their number."""
    from hbench.train import sweep as sweeps

    sweep = sweeps.Sweep(recipe, changes, tuple(map(sweeps.parse_sweep, choices)))
    trials = sweeps.checked_recipes(sweep)
    listed = "; ".join(map(" ".join, trials))
    say(f"{len(trials)} trials would be trained: {listed}. The recipe that they change:")


def _best_of_sweep(
    recipe: str,
    changes: tuple[str, ...],
    choices: tuple[str, ...],
    *,
    out: Path,
    keep: str,
    run: RunOptions,
) -> Recipe:
    """Train the trials of a sweep, print them as a table, and return the recipe of the best one.

    `choices`: KEY=V1,V2,… for each key to try. `out`: the folder of the run, in which every trial
    has a subfolder. `keep`: "best" deletes the weights of the other trials, but not their records.
    """
    from hbench.train import sweep as sweeps
    from hbench.train.loop import TrainingInterrupted
    from hbench.train.records.refusals import refuse_run_in
    from hbench.train.records.trials import best_first

    if not run.resume:
        refuse_run_in(out)  # at once, not when all trials are trained and their weights deleted

    sweep = sweeps.Sweep(recipe, changes, tuple(map(sweeps.parse_sweep, choices)))
    number = len(sweep.combinations())

    def train(trial: Recipe, folder: Path, resume: bool) -> None:
        """Train one trial in its folder, or resume it there, and print which one it is."""
        say(f"trial {folder.name}, of {number}")
        _train(trial, folder, replace(run, resume=resume), is_trial=True)

    # trials are compared by validation: `Sweep.trial` will add it, if the recipe has none
    if not sweep.resolved().validation:
        say(f"{sweeps.HELD_OUT:.0%} of the training classes are held out, to compare the trials")

    def diverged(folder: Path, error: HBenchError) -> None:
        """Print that a trial ended without a score."""
        say(f"trial {folder.name} ended: {error.problem}; the others go on")

    trials: list[Trial] = []
    try:
        for trial in sweeps.train_trials(sweep, out, train, diverged):
            trials.append(trial)
    except TrainingInterrupted as error:  # its own advice would only resume the trial
        raise TrainingInterrupted(error.problem, fix="the same command with --resume") from None
    finally:  # a sweep that is interrupted shows the trials that ended, too
        if trials:
            _show_trials(sweep, best_first(trials, sweep.resolved().select_by), number)

    return _best_of_trials(sweep, trials, out, keep)


def _best_of_trials(sweep: Sweep, trials: Sequence[Trial], out: Path, keep: str) -> Recipe:
    """Return the recipe of the best trial, and make room for its run in the sweep's folder `out`: a
    run of another recipe there is moved to a subfolder. Print what is done. `keep`: "best" deletes
    the weights of the other trials."""
    from hbench.train import sweep as sweeps
    from hbench.train.records.trials import best_first

    # `select_by`: the metric of the trials' scores; its name tells whether higher is better
    best, *_ = best_first(trials, sweep.resolved().select_by)
    if len(trials) > 1 and len({trial.score for trial in trials}) == 1:
        say("all trials have one score, so that nothing was chosen by it: the first is taken")
    else:
        for end in sweeps.ends_of(sweep, best):  # each "KEY = VALUE"
            say(f"the best has {end}, an end of what was tried: a better one may lie beyond")
    if keep == "best":
        _delete_weights(out, best)
    chosen = sweep.resolved(*best.settings)
    if aside := sweeps.set_aside(out, chosen):
        say(f"the run of the former best is in {aside} now")
    say(f"trains {' '.join(best.settings)} {_how_the_best(sweep.resolved().validation)}")
    return chosen


def _how_the_best(validation: float) -> str:
    """Say how the best recipe of a sweep is trained. `validation`: the share of the training
    classes that the recipe itself holds out."""
    if validation:
        return f"again, with {validation:.0%} of the training classes held out, to be tested"
    return "on all training classes, to the last step"


def _delete_weights(out: Path, best: Trial) -> None:
    """Delete the weights of all trials but the best, and print how many bytes were freed and how
    many are left; nothing if an earlier call has deleted them."""
    from hbench.train import sweep as sweeps

    if size := sweeps.delete_weights(out, best) / 1e6:
        left = sum(file.stat().st_size for file in out.rglob("*") if file.is_file()) / 1e6
        say(
            f"deleted the weights of the other trials, {size:.0f} MB (--keep all keeps them); "
            f"{left:.0f} MB are in {out} before the best is trained"
        )


def _show_trials(sweep: Sweep, trials: Sequence[Trial], number: int) -> None:
    """Print the table of trials that ended, best first. `number`: of all trials in the sweep."""
    metric = sweep.resolved().select_by
    rows = [[*trial.values, shown(metric, trial.score)] for trial in trials]
    keys = [choice.key for choice in sweep.choices]
    note = f"on held-out training classes, best first; {percent_note([metric])}"
    if len(trials) < number:
        note += f"; {number - len(trials)} of {number} trials did not end"
    show_table(None, [*keys, metric], rows, note, left=keys)


def _train(chosen: Recipe, out: Path, run: RunOptions, *, is_trial: bool = False) -> None:
    """Train a recipe in the folder `out` with a progress bar, and print the scores. `is_trial`: the
    run is a trial of a sweep, whose scores are printed later with the others."""
    import torch

    from hbench.train.loop import EMBEDDINGS, train
    from hbench.train.processes import join_processes

    if run.threads:
        torch.set_num_threads(run.threads)
    with join_processes(run.device) as processes:
        # the progress bar of a training, which shows the number of the step first
        bars = steps_first()
        bars.disable |= not processes.first  # of several processes the first alone shows anything
        with bars:
            watch = Progress(bars, chosen.log_every, is_first=processes.first)
            report = train(
                chosen,
                out,
                processes=processes,
                resume=run.resume,
                track=run.trackers,
                on_progress=watch.step,
                on_validation=watch.validation,
                on_remark=watch.remark,
            )
        if processes.first and not is_trial:
            show_scores(report.document)
            for remark in remarks_of(report.document, every=True):
                say(remark)
            if chosen.tested:  # else the tests were left alone, as while settings are tried
                command = f"hbench evaluate {out / EMBEDDINGS} --dataset {chosen.dataset}"
                say(f"wrote {out}: {command} scores it again")
            else:
                say(f"wrote {out}, scored on held-out classes of the training set")


class Progress:
    """Shows a run as a progress bar or, without a terminal, prints a line for every logged step,
    and for the first step after ten seconds.

    The step and the time left come first, so that a narrow terminal does not cut them off.
    """

    def __init__(self, bars: Bars, log_every: int, *, is_first: bool) -> None:
        """Start with an empty bar in `bars`, which are disabled without a terminal. `log_every`:
        steps between lines."""
        self.bars = bars
        self.log_every = log_every
        self.is_first = is_first  # whether this is the process that shows anything
        self.says = is_first and bars.disable  # whether lines are printed in place of a bar
        self.task = bars.add_task("first step", total=None, left="")
        self.best = ""  # the best validation so far, in words
        self.last: StepRecord | None = None  # what the bar shows
        self.begun = time.monotonic()
        self.taken = 0  # steps since the start; a resumed run has taken others before
        self.first_end = 0.0  # when the first step since the start ended
        self.has_said = False  # whether a line was printed

    def step(self, step: StepRecord) -> None:
        """Move the bar to a step, and show its values beside it. Without a bar print them as a line
        if the step is logged, or if it is the first after ten seconds, as an early sign of life."""
        self.taken += 1
        now = time.monotonic()
        if self.taken == 1:  # slower than later steps, so left out of the estimate of the time
            self.first_end = now
        left = time_left(  # ends in blanks, as the start of a line
            step.steps - step.step, after_first=self.taken - 1, seconds=now - self.first_end
        )
        line = self._line(step)
        self.last = step
        self.bars.update(
            self.task, description=line, completed=step.step, total=step.steps, left=left.strip()
        )

        is_logged = step.step % self.log_every == 0 or step.step == step.steps or step.skipped
        is_awaited = not self.has_said and now - self.begun >= FIRST_LINE
        # without a bar print lines
        if self.says and (is_logged or is_awaited):
            self.has_said = True
            say(f"step {step.step}/{step.steps}  {left}{line}")

    def _line(self, step: StepRecord) -> str:
        """Format the values of a step in one line, with the best validation so far, if any."""
        terms = "  ".join(f"{name} {term:.3f}" for name, term in step.terms.items())
        # groups of weights with the same learning rate are listed together
        rates = "/".join(f"{rate:.1e}" for rate in dict.fromkeys(step.rates.values()))
        epoch = (step.step - 1) // step.steps_per_epoch + 1
        skipped = "left out: not finite  " if step.skipped else ""
        return (
            f"{skipped}loss {step.loss:.3f}{self.best}  {step.images_per_second:.0f} images/s  "
            f"epoch {epoch}  {terms}  lr {rates}"
        )

    def validation(self, record: ValidationRecord) -> None:
        """Print a line on a validation, and keep the best score to show beside the bar."""
        best = shown(record.metric, record.best)
        self.best = f"  best {record.metric} {best}"
        if self.last is not None:  # now, and not with the next step
            self.bars.update(self.task, description=self._line(self.last))
        is_best = record.step == record.best_step
        beside = "the best so far" if is_best else f"the best is {best} at step {record.best_step}"
        if self.is_first:  # the first of several processes speaks for all
            value = shown(record.metric, record.score)
            said = f"validation at step {record.step}: {record.metric} {value}, {beside}"
            say_above(self.bars, said)

    def remark(self, text: str) -> None:
        """Print a line above the bar. Once a step was taken the remark also replaces the bar's text
        and time left, as while the tests are embedded."""
        say_above(self.bars, text)
        if self.last is not None:
            self.bars.update(self.task, description=text, left="")


def time_left(steps: int, *, after_first: int, seconds: float) -> str:
    """Format the time left for a number of steps as the start of a line. `after_first` steps after
    the first one took `seconds`. The first one also loads and compiles: alone it tells no time.

    >>> time_left(99, after_first=1, seconds=2.0), time_left(99, after_first=0, seconds=0.0)
    ('3:18 left  ', '')
    """
    return f"{duration(steps * seconds / after_first)} left  " if after_first else ""


def duration(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds or, below an hour, as minutes and seconds.

    >>> duration(9), duration(75.2), duration(3_725)
    ('0:09', '1:15', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
