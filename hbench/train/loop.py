"""The training loop: trains the model of a recipe. The module is written to be read from top to
bottom.

    run = begin(recipe, dataset)                                    model, losses, optimisers
    for epoch, for batch of plan(labels, seed, epoch):
        loss of the batch -> gradients -> step -> log, validate, checkpoint
    embed the test items -> test.parquet -> report.json

A step depends only on the recipe, the number of the step, and the content of the last checkpoint.
So on a CPU a resumed run has the same bits as one that was never interrupted.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from filelock import Timeout

from hbench.core.arguments import checked
from hbench.core.errors import DataError, HBenchError, UsageError
from hbench.core.files import lock_of, write_text
from hbench.datasets import Dataset, load
from hbench.datasets.spec import specs
from hbench.evaluation.evaluate import evaluate
from hbench.losses.partial import unknown_as_minus_one
from hbench.records.report import Report
from hbench.submissions import embeddings
from hbench.train.fitting.choices import refuse_choices
from hbench.train.fitting.sizes import fitted_to, require_dataset
from hbench.train.images.batches import all_tests, refuse_too_large
from hbench.train.models.embed_images import embed_all
from hbench.train.processes import SINGLE_PROCESS, Processes, any_of, gather_objects
from hbench.train.recipes.commands import command_of, of_threads, resuming
from hbench.train.recipes.consent import trust
from hbench.train.recipes.files import as_toml, method_of, resolve
from hbench.train.recipes.recipe import Recipe
from hbench.train.records import checkpoints
from hbench.train.records.log import Callback, Log, StepRecord, ValidationRecord, Watch
from hbench.train.records.refusals import (
    RECIPE,
    REPORT,
    holds_run,
    refuse_folder,
    refuse_several,
    refuse_zero_vectors,
    remark_on_few,
    remarks_on,
)
from hbench.train.records.trackers import opened
from hbench.train.steps.gradients import build_objective
from hbench.train.steps.run import TrainingRun, begin, training_manifest
from hbench.train.steps.take import NON_FINITE, batches_of_epoch, steps
from hbench.train.validation import (
    best_after,
    is_over,
    said_of,
    split_off,
    validation_scores,
    where_it_goes_on,
    which_is_scored,
)

LOG = logging.getLogger(__name__)
OnProgress = Callable[[StepRecord], None]
OnValidation = Callable[[ValidationRecord], None]
EMBEDDINGS = "test.parquet"
BY_QUERY = "report.by-query.parquet"


class TrainingInterrupted(HBenchError):
    """A run was stopped on request. Its last checkpoint is saved."""

    exit_code = 130


@checked
def train(
    recipe: Recipe | str,
    out: str | Path,
    *,
    dataset: Dataset | None = None,
    processes: Processes = SINGLE_PROCESS,
    resume: bool = False,
    track: Sequence[str] = (),
    trust_code: Sequence[str | Path] = (),
    callbacks: Sequence[Callback] = (),
    on_progress: OnProgress = lambda _step: None,
    on_validation: OnValidation = lambda _validation: None,
    on_remark: Callable[[str], None] = LOG.warning,
) -> Report:
    """Train the model of a recipe in a folder, embed the dataset's test items, and score them.

    The best checkpoint is tested if the recipe validates, else the last one.

    Args:
        recipe: a name in `hbench.list_recipes()`, the path of a TOML file, or a Recipe, such as
            `hbench.train.recipes.files.resolve(name, ["optimizer.lr=5e-4"])`.
        out: the folder of the run.
        dataset: the dataset to train on. Default: that of the recipe.
        processes: this process among those of torchrun. Default: it trains alone.
        resume: continue the run in `out` from its last checkpoint, with the same bits. Default: no.
        track: names of trackers: "tensorboard", "wandb".
        trust_code: Python files that a recipe may run as ./FILE.py:NAME. The consent is remembered
            until they change.
        callbacks: called with (step, {name: value}) for every logged step.
        on_progress: called with every step.
        on_validation: called with every validation: its step, metric and score, and the best.
        on_remark: called with remarks: on the recipe, before the first step, and on the checkpoint
            that is tested.

    Returns:
        The Report of the tests, or, for a recipe with `tested = false`, of the held-out classes.

    Raises:
        UnknownName: a recipe that does not exist.
        ConfigError: a recipe with a program that the user has not consented to.
        UsageError: a folder with another run.
        DataError: a dataset without training images, or whose items have several paths.
        TrainingInterrupted: after a request to stop; everything is saved.
        HBenchError: a loss that is not finite.
    """
    out = Path(out)
    for file in trust_code:
        trust(Path(file))
    if not isinstance(recipe, Recipe | str):
        expected = "a name, the path of a TOML file, or a Recipe"
        raise UsageError("recipe is no recipe", expected=expected, found=f"{recipe!r:.60}")
    recipe = resolve(recipe) if isinstance(recipe, str) else recipe
    ready = prepare_run(recipe, dataset or load(require_dataset(recipe)), processes.world)
    # the command that reproduces the run; none can name a dataset that was passed as an object
    made = _command_of(recipe, processes) if dataset is None else None
    recipe = ready.recipe
    if recipe.sampler.batch % processes.world:  # dropping the remainder would change the gradient
        raise UsageError(
            "the processes cannot share a batch",
            expected=f"sampler.batch a multiple of {processes.world} processes",
            found=f"{recipe.sampler.batch}",
            fix="change it with --set sampler.batch=…, or the number of processes",
        )

    # torchrun restarts all processes after one has died: continue then
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if processes.first:
        refuse_folder(out, recipe, resume=resume)
        for remark in remarks_on(recipe, ready.steps_per_epoch):
            on_remark(remark)
        if ready.held is not None and (few := remark_on_few(ready.held)):  # "": enough
            on_remark(few)

    with _alone_in(out, processes), _interrupts_told(out, processes):
        return _train_and_score(
            ready,
            out=out,
            processes=processes,
            resume=resume,
            track=track,
            callbacks=callbacks,
            watch=Watch(on_progress, on_validation, on_remark),
            made=made,
        )


class PreparedRun(NamedTuple):
    """A recipe that can be trained.

    `recipe`: with all of its sizes filled in. `data`: the dataset without the held-out classes.
    `held`: the held-out classes as a dataset; None if the recipe holds none out. `steps_per_epoch`.
    """

    recipe: Recipe
    data: Dataset
    held: Dataset | None
    steps_per_epoch: int


def prepare_run(recipe: Recipe, whole: Dataset, world: int = 1) -> PreparedRun:
    """Fill in the sizes that a recipe leaves open, and refuse recipes that cannot be trained before
    any weights or images are loaded.

    `whole`: the dataset with training and test items. `world`: the number of processes that share
    each batch. Returns the filled recipe, the dataset without the held-out classes, the held-out
    classes or None, and the steps of an epoch. Raises UnknownName, ConfigError and DataError."""
    refuse_choices(recipe)  # unknown names, and settings that do not go together
    refuse_several(training_manifest(whole))  # losses support one path for each item only
    data, held = split_off(whole, recipe)
    manifest = training_manifest(data)
    recipe = fitted_to(recipe, manifest, world)
    # `shifted`, an augmentation of small images, holds all of them in memory: not too many
    refuse_too_large(len(manifest), recipe.images)
    # make the losses, as training does, so that a value that a loss does not accept is refused now.
    # If the net determines the dimension, any number will do: the net is not loaded for it
    labels = unknown_as_minus_one(manifest.labels, manifest.tree)
    build_objective(recipe.losses, labels, recipe.model.dim or 2)
    # composing the batches of an epoch raises if there are too few classes
    return PreparedRun(recipe, data, held, len(batches_of_epoch(recipe, manifest, 0).rows))


def _train_and_score(
    ready: PreparedRun,
    *,
    out: Path,
    processes: Processes,
    resume: bool,
    track: Sequence[str],
    callbacks: Sequence[Callback],
    watch: Watch,
    made: str | None,
) -> Report:
    """Train and score in the folder `out`, which this training has locked. Only the first of the
    `processes` writes to it and calls the trackers (names: `track`); all take every step. `ready`:
    the result of `prepare_run`. `resume`: continue from the last checkpoint. `callbacks`: called
    with (step, {name: value}) for every logged step. `watch`: the functions on_… of `train`.
    `made`: the command that reproduces this run, None if there is none."""
    recipe, data, held, _steps_per_epoch = ready  # `held`: the held-out classes, or None
    run = begin(recipe, data, processes)
    if resume and checkpoints.checkpoints_in(out):
        run.restore(checkpoints.latest(out))
        if processes.first:
            watch.on_remark(where_it_goes_on(run, recipe))
    elif resume and processes.first:
        watch.on_remark(f"{out} has no checkpoint yet, so its run begins anew")
    # only the first process has trackers
    names = track if processes.first else ()
    with opened(names, out, recipe.model_dump(mode="json"), run.step) as tracked:
        # The recipe is not written earlier, so that a refused one leaves no run behind. A resumed
        # run has it already. A new run may follow a failed first attempt in the same folder.
        if processes.first and not holds_run(out):
            write_text(out / RECIPE, as_toml(recipe))
            for left in out.glob(f"*{NON_FINITE}"):  # files of that first attempt
                left.unlink()
        log = Log(out if processes.first else None, step=run.step, callbacks=[*tracked, *callbacks])
        _learn(run, recipe, data, held, out=out, processes=processes, log=log, watch=watch)
        if held is not None:
            # a barrier: the other processes wait until the first has written the checkpoint
            gather_objects(None, processes)
            checkpoints.load_model(checkpoints.best(out), run.tested)  # the best, for the tests
            if processes.first and run.best is not None:
                watch.on_remark(which_is_scored(run.best, recipe, ready.steps_per_epoch))
        # a sweep's trial (the flag recipe.tested is off) is scored on held-out classes, not tests
        scored = data if recipe.tested or held is None else held
        if processes.first:
            # announced, since it takes a while
            watch.on_remark(f"embeds and scores {_number_tested(scored):,} images")
        report = _score(run, recipe, scored, out=out, processes=processes, made=made)
        log.test(run.step, {name: float(score) for name, score in report.scores.items()})

    return report


def _command_of(recipe: Recipe, processes: Processes) -> str | None:
    """Return the command that reproduces a run, from the recipe as it was read; None for a user's
    own dataset."""
    return command_of(recipe, of_threads(processes)) if recipe.dataset in specs else None


def _number_tested(data: Dataset) -> int:
    """Count the images of all tests of a dataset."""
    return sum(len(test) for test in data.tests.values())


def _learn(
    run: TrainingRun,
    recipe: Recipe,
    data: Dataset,
    held: Dataset | None,
    *,
    out: Path,
    processes: Processes,
    log: Log,
    watch: Watch,
) -> None:
    """Take the remaining steps, and log, validate and save after each one if it is due. `held`: the
    classes to validate on; None: no validation. `run.best`: the best validation so far, or None.
    Raises TrainingInterrupted after a signal to stop."""
    if is_over(run.best, recipe):
        return  # the resumed run had already stopped early

    saved_at = time.monotonic()
    with _stop_signals() as is_stopped:
        for step in steps(run, recipe, data, out, processes):
            watch.on_step(step)
            last = step.step == step.steps  # steps count from 1
            is_validated = held is not None and (
                last or step.step % (recipe.evaluate_every * step.steps_per_epoch) == 0
            )
            # validated steps are logged, since a run may stop there with no other line in its log
            if last or step.skipped or is_validated or step.step % recipe.log_every == 0:
                log.step(step)
            # On a GPU, several steps are launched before their results are read, all at once.
            # `run.step`, and the weights, are those of the last launched step, so earlier ones are
            # only logged. `steps` launches nothing beyond a step that is due for validation until
            # its result has been read, so no validation is missed.
            if step.step < run.step:
                continue
            if held is not None and is_validated:
                scores = validation_scores(run, recipe, held, processes)
                log.validation(step.step, scores)
                run.best = best_after(run.best, step.step, scores, recipe, held)
                watch.on_validation(said_of(step.step, scores, run.best, recipe, held))
                if is_over(run.best, recipe) and not last:
                    watch.on_remark(
                        f"stops after step {step.step:,} of {step.steps:,}: the last "
                        f"{run.best.missed} validations were not better (patience)"
                    )
                    last = True
            # a signal to one process stops all of them after the same step
            stop = any_of(is_stopped(), processes)
            due = _is_due(recipe, run.step, time.monotonic() - saved_at)
            is_best = run.best is not None and run.best.step == run.step
            if processes.first and (last or stop or due or is_best):
                run.save(out)  # after logging, so that the log is complete up to the checkpoint
                saved_at = time.monotonic()
            # a signal during the last checkpoint also stops the run, before the tests
            if stop or (last and any_of(is_stopped(), processes)):
                raise TrainingInterrupted(
                    f"stopped after step {step.step} of {step.steps}; everything is saved in {out}",
                    fix=resuming(out / RECIPE, processes),
                )
            if last:
                return


def _is_due(recipe: Recipe, step: int, seconds: float) -> bool:
    """Whether a checkpoint is due after this step. `seconds`: the time since the last checkpoint.

    It is due after a number of steps or after some minutes: the steps of a large net on a CPU take
    so long that otherwise a run that is killed could lose hours.
    """
    if not recipe.checkpoint_every:  # 0 means no checkpoint before the end
        return False
    late = 0 < recipe.checkpoint_minutes * 60 <= seconds  # 0 minutes means never by time
    return late or step % recipe.checkpoint_every == 0


def _score(
    run: TrainingRun,
    recipe: Recipe,
    data: Dataset,
    *,
    out: Path,
    processes: Processes,
    made: str | None,
) -> Report:
    """Embed the items of all tests of `data`, and score them. The processes share the embedding;
    the first one writes and scores the file, and all of them return its report. `made`: the command
    to note in the file, None for none."""
    manifest = all_tests(data)
    try:
        # `run.tested` is the model with averaged weights, if the run averages them; every process
        # embeds a part, and all get all vectors (N, D)
        vectors = embed_all(run.tested, data.name, manifest, recipe, processes)
    except DataError as error:  # after hours of training: advise how to go on with the kept net
        fix = (
            f"the net is trained and kept: {resuming(out / RECIPE, processes)} embeds again, once "
            f"it is mended; hbench embed {out} -d {data.name} --skip-unreadable "
            f"--out {out / EMBEDDINGS} embeds the others"
        )
        raise DataError(
            error.problem, expected=error.expected, found=error.found, fix=fix
        ) from None
    refuse_zero_vectors(vectors)
    if processes.first:
        about = {
            "recipe": as_toml(recipe),
            # the weights of the best step are tested if the run was validated
            "step": str(run.best.step if run.best else run.step),
            "image_size": str(recipe.images.size),
        }
        if made is not None:
            about["made"] = made
        embeddings.write(out / EMBEDDINGS, manifest.items.tolist(), vectors, metadata=about)
        report = evaluate(out / EMBEDDINGS, data, method=method_of(recipe))
        report.write(out / REPORT)
        report.write_by_query(out / BY_QUERY)
    # a barrier: the other processes wait here until the first has scored
    shared: Report = gather_objects(report if processes.first else None, processes)[0]
    return shared


@contextmanager
def _alone_in(out: Path, processes: Processes) -> Iterator[None]:
    """Keep other trainings out of the folder during the block, as their logs would be mixed: the
    first process locks it for all of this training. Raises UsageError if another one runs in it.
    """
    if not processes.first:
        yield
        return
    lock = lock_of(out)
    try:
        lock.acquire(timeout=0)  # do not wait: a training may last days
    except Timeout:
        raise UsageError(
            f"another training writes to {out}", fix="wait for it, or name another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _interrupts_told(out: Path, processes: Processes) -> Iterator[None]:
    """Turn a KeyboardInterrupt outside of training steps, for example while the tests are embedded,
    into TrainingInterrupted, which names the command that continues. Without any checkpoint there
    is nothing to continue, and the KeyboardInterrupt is passed on.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not checkpoints.checkpoints_in(out):
            raise
        raise TrainingInterrupted(
            f"stopped; what was saved last is in {out}", fix=resuming(out / RECIPE, processes)
        ) from None


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM was received during the block, so
    that the block can finish its step before it stops. A second signal of the same kind has its
    usual effect, for users who cannot wait.
    """
    received: list[int] = []  # the numbers of the signals
    earlier = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: FrameType | None) -> None:
        """Note the signal, and restore the earlier handler for the next one of its kind."""
        received.append(number)
        signal.signal(number, earlier[number])

    try:
        for number in earlier:
            signal.signal(number, note)
        yield lambda: bool(received)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
