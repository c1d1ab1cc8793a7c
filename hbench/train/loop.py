"""Trains a recipe's model: the training loop, to be read from top to bottom.

    run = begin(recipe, dataset)                                    model, losses, optimisers
    for epoch, for batch of plan(labels, seed, epoch):
        loss of the batch -> gradients -> step -> log, validate, checkpoint
    embed the test items -> test.parquet -> report.json

A step depends only on the recipe, the number of the step, and the content of a checkpoint. On a CPU
a resumed run therefore continues bit for bit as if it had never stopped.
"""

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
from filelock import Timeout
from torch import Tensor

from hbench.core.arguments import checked
from hbench.core.errors import HBenchError, UsageError
from hbench.core.files import lock_of, write_text
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.evaluation.evaluate import evaluate
from hbench.losses.partial import ended
from hbench.records.report import Report
from hbench.records.shown import shown
from hbench.submissions import embeddings
from hbench.train.images.batches import (
    Batches,
    all_tests,
    images_of,
    keys_of,
    refuse_too_large,
    workers_for,
)
from hbench.train.images.sampler import EpochBatches, plan
from hbench.train.models.embed_images import embed_all
from hbench.train.processes import SINGLE_PROCESS, Processes, any_of, average_gradients, together
from hbench.train.recipes.choices import refuse_choices
from hbench.train.recipes.files import as_toml, resolve
from hbench.train.recipes.recipe import Recipe
from hbench.train.recipes.sizes import fitted_to, require_dataset
from hbench.train.records import checkpoints
from hbench.train.records.log import Callback, Log, StepRecord, ValidationRecord, Watch
from hbench.train.records.refusals import (
    RECIPE,
    non_finite,
    refuse_folder,
    refuse_several,
    remarks_on,
)
from hbench.train.records.trackers import opened
from hbench.train.records.validation import best_after, is_over, said_of, split_off, validated
from hbench.train.run import TrainingRun, begin, freeze_body, training_manifest
from hbench.train.steps.gradients import TrainStep, direct, in_two_passes
from hbench.train.steps.optimizers import clipped, set_rates, step_unless

LOG = logging.getLogger(__name__)
OnProgress = Callable[[StepRecord], None]
OnValidation = Callable[[ValidationRecord], None]
EMBEDDINGS = "test.parquet"
REPORT = "report.json"
BY_QUERY = "report.by-query.parquet"
NON_FINITE = "non-finite.json"


class LaunchedStep(NamedTuple):
    """A step that the device may still be computing: its number, rows, learning rates, and values:
    loss, length of the gradient, and terms in the order of the losses."""

    number: int
    rows: Tensor
    rates: dict[str, float]
    values: Tensor


class TrainingInterrupted(HBenchError):
    """Raised when a run stopped on request, after saving a checkpoint."""

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
    callbacks: Sequence[Callback] = (),
    on_progress: OnProgress = lambda _step: None,
    on_validation: OnValidation = lambda _validation: None,
    on_remark: Callable[[str], None] = LOG.warning,
) -> Report:
    """Train the model of a recipe in a folder, embed the dataset's test items, and score them.

    If the recipe validates, its best checkpoint is tested, else the last one.

    Args:
        recipe: a name in `hbench.list_recipes()`, the path of a TOML file, or a Recipe, such as
            `hbench.train.recipes.files.resolve(name, ["optimizer.lr=5e-4"])`.
        out: the folder of the run.
        dataset: what is trained on. Default: that of the recipe.
        processes: this process among those of torchrun. Default: it trains alone.
        resume: continue the run in `out` from its last checkpoint, to the same bits. Default: no.
        track: names of trackers: "tensorboard", "wandb".
        callbacks: are called with (step, values by name) of every logged step.
        on_progress: is called with every step.
        on_validation: is called with every validation: its step, metric and score, and the best.
        on_remark: is called with remarks: on the recipe, before the first step, and on which
            checkpoint is tested.

    Returns:
        The Report of the tests, or, for a recipe with `tested = false`, of the held-out classes.

    Raises:
        UnknownName: a recipe that does not exist.
        UsageError: a folder with another run.
        DataError: a dataset without training images, or whose items have several paths.
        TrainingInterrupted: after a request to stop; everything is saved.
        HBenchError: a loss that is not finite.
    """
    out = Path(out)
    recipe = resolve(recipe) if isinstance(recipe, str) else recipe
    refuse_choices(recipe)
    whole = dataset or load(require_dataset(recipe))
    refuse_several(training_manifest(whole))
    data, held = split_off(whole, recipe)
    recipe = fitted_to(recipe, training_manifest(data), processes.world)
    refuse_too_large(len(training_manifest(data)), recipe.images)
    if recipe.sampler.batch % processes.world:  # leaving out a rest would change the gradient
        raise UsageError(
            "the processes cannot share a batch",
            expected=f"sampler.batch a multiple of {processes.world} processes",
            found=f"{recipe.sampler.batch}",
            fix="change it with --set sampler.batch=…, or the number of processes",
        )

    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if processes.first:
        refuse_folder(out, recipe, resume=resume)
        # refuses a bad sampler
        for remark in remarks_on(recipe, len(_plan(recipe, training_manifest(data), 0).rows)):
            on_remark(remark)

    with _alone_in(out, processes):
        return _trained(
            recipe,
            data,
            held,
            out=out,
            processes=processes,
            resume=resume,
            track=track,
            callbacks=callbacks,
            watch=Watch(on_progress, on_validation, on_remark),
        )


def _trained(
    recipe: Recipe,
    data: Dataset,
    held: Dataset | None,
    *,
    out: Path,
    processes: Processes,
    resume: bool,
    track: Sequence[str],
    callbacks: Sequence[Callback],
    watch: Watch,
) -> Report:
    """Train in a folder that no other training writes to, and score."""
    run = begin(recipe, data, processes)
    if resume and checkpoints.saved(out):
        run.restore(checkpoints.latest(out))
    names = track if processes.first else ()
    with opened(names, out, recipe.model_dump(mode="json"), run.step) as tracked:
        # not before, for a refused recipe leaves no run
        if processes.first and not (out / RECIPE).exists():
            write_text(out / RECIPE, as_toml(recipe))
        log = Log(out if processes.first else None, step=run.step, callbacks=[*tracked, *callbacks])
        _learn(run, recipe, data, held, out=out, processes=processes, log=log, watch=watch)
        if held is not None:
            # the other processes wait until the first has written the checkpoint
            together(None, processes)
            checkpoints.load_model(checkpoints.best(out), run.tested)
            if processes.first and run.best is not None:
                watch.on_remark(
                    f"scored is the checkpoint of step {run.best.step}, the best of the validation "
                    f"by {recipe.select_by}: {shown(recipe.select_by, run.best.score)}"
                )
        report = _score(
            run, recipe, data if recipe.tested or held is None else held, out, processes
        )
        log.test(run.step, {name: float(score) for name, score in report.scores.items()})

    return report


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
    """Take the remaining steps; log, validate and save after each step if that is due."""
    if is_over(run.best, recipe):
        return

    with _stop_signals() as is_stopped:
        for step in steps(run, recipe, data, out, processes):
            watch.on_step(step)
            last = step.step == step.steps
            if last or step.skipped or step.step % recipe.log_every == 0:
                log.step(step)
            if step.step < run.step:
                # the device is ahead: validate and save only after the last of the steps that were
                # read together
                continue
            if held is not None and (
                last or step.step % (recipe.evaluate_every * step.steps_per_epoch) == 0
            ):
                scores = validated(run, recipe, held, processes)
                log.validation(step.step, scores)
                run.best = best_after(run.best, step.step, scores, recipe, held)
                watch.on_validation(said_of(step.step, scores, run.best, recipe, held))
                last = last or is_over(run.best, recipe)
            stop = any_of(is_stopped(), processes) and not last
            due = bool(recipe.checkpoint_every) and run.step % recipe.checkpoint_every == 0
            is_best = run.best is not None and run.best.step == run.step
            if processes.first and (last or stop or due or is_best):
                run.save(out)  # after logging, so that the log is complete up to every checkpoint
            if stop:
                raise TrainingInterrupted(
                    f"stopped after step {step.step} of {step.steps}; everything is saved in {out}",
                    fix=f"hbench train {out / RECIPE} --out {out} --resume",
                )
            if last:
                return


def steps(
    run: TrainingRun,
    recipe: Recipe,
    data: Dataset,
    out: Path,
    processes: Processes = SINGLE_PROCESS,
) -> Iterator[StepRecord]:
    """Take every remaining step and yield its record; a GPU is some steps ahead of the records."""
    manifest = training_manifest(data)
    in_epoch = len(_plan(recipe, manifest, 0).rows)
    begun = run.step
    began = time.perf_counter()
    waiting: list[LaunchedStep] = []
    for launched in _launched(run, recipe, data, in_epoch, processes):
        waiting.append(launched)
        if run.runs_ahead and not _is_read(run.step, recipe, in_epoch):
            continue
        values = torch.stack([each.values for each in waiting]).tolist()  # in one transfer
        seconds = time.perf_counter() - began
        speed = (run.step - begun) * recipe.sampler.batch / seconds
        for each, of_step in zip(waiting, values, strict=True):
            step = _record(
                each,
                of_step,
                losses=run.objective.losses,
                steps=recipe.epochs * in_epoch,
                in_epoch=in_epoch,
                speed=speed,
                seconds=seconds,
            )
            # Gradients often overflow float16: its scaler skips the step and reduces the scale.
            if not math.isfinite(step.loss) or (step.skipped and not run.scaler.is_enabled()):
                items = manifest.items[each.rows.cpu().numpy()].tolist()
                raise non_finite(step, items, out / _non_finite_name(processes))
            yield step
        waiting.clear()


def _is_read(step: int, recipe: Recipe, in_epoch: int) -> bool:
    """Whether the host waits for a step: one that is logged, saved, or the last of an epoch."""
    if step % recipe.log_every == 0 or step % in_epoch == 0:
        return True
    return bool(recipe.checkpoint_every) and step % recipe.checkpoint_every == 0


def _record(
    launched: LaunchedStep,
    values: Sequence[float],
    *,
    losses: Iterable[str],
    steps: int,
    in_epoch: int,
    speed: float,
    seconds: float,
) -> StepRecord:
    """Make the record of a step, whose values are on the host."""
    loss, length, *terms = values
    return StepRecord(
        launched.number,
        steps,
        in_epoch,
        loss,
        dict(zip(losses, terms, strict=True)),
        length,
        not math.isfinite(length),
        launched.rates,
        speed,
        seconds,
    )


def _non_finite_name(processes: Processes) -> str:
    """The name of the file of the items whose loss is not finite, one for each process."""
    return NON_FINITE if processes.world == 1 else f"{processes.rank}.{NON_FINITE}"


def _launched(
    run: TrainingRun, recipe: Recipe, data: Dataset, in_epoch: int, processes: Processes
) -> Iterator[LaunchedStep]:
    """Launch every remaining step without waiting for the device."""
    manifest = training_manifest(data)
    device = processes.device
    images = images_of(data.name, manifest, recipe.images, vary=True)
    loader = Batches(images, workers=workers_for(images, recipe.images), device=device)
    labels = torch.from_numpy(ended(manifest.labels, manifest.tree)).to(device, torch.int64)
    compute = in_two_passes(recipe.two_pass) if recipe.two_pass else direct

    for epoch in range(run.step // in_epoch, recipe.epochs):
        batches = _plan(recipe, manifest, epoch, processes).after(run.step - epoch * in_epoch)
        for pixels, rows in loader.of(keys_of(batches)):
            freeze_body(
                run, processes, frozen=recipe.schedule.is_frozen(run.step, in_epoch, recipe.epochs)
            )
            rates = set_rates(run.optimizers, recipe, epoch, step=run.step, in_epoch=in_epoch)
            values = update(run, pixels, labels[rows], processes, compute)
            if run.average is not None:
                run.average.update_parameters(run.model)
            run.step += 1
            yield LaunchedStep(run.step, rows, rates, values)


def update(
    run: TrainingRun,
    pixels: Tensor,
    labels: Tensor,
    processes: Processes = SINGLE_PROCESS,
    compute: TrainStep = direct,
) -> Tensor:
    """Take one step of every optimiser on this process's part of a batch, unless the loss or its
    gradient is not finite.

    Returns the loss, the gradient's length before clipping, and the terms in the order of the
    objective's losses. On a GPU the host waits for nothing, and after a step that is not finite no
    later step changes anything.
    """
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    part = pixels.to(processes.device, memory_format=run.layout), labels.to(processes.device)
    # Batch norms that learn update their running means in the forward pass, before the loss is
    # known.
    norms = (
        []
        if run.model.freeze_batch_norm
        else [(buffer, buffer.clone()) for buffer in run.model.buffers()]
    )
    total, terms = compute(
        run.embed, run.objective, *part, processes=processes, scale=run.scaler.scale
    )
    average_gradients(list(run.objective.parameters()), processes)
    values = torch.stack([total, clipped(run.optimizers, run.scaler), *terms.values()])
    bad = ~values[:2].isfinite().all()
    if run.halted is not None:
        bad = bad | run.halted
        run.halted = bad
        step_unless(bad, run.optimizers)
    elif not bad:
        for optimizer in run.optimizers:
            run.scaler.step(optimizer)
    for buffer, earlier in norms:
        buffer.copy_(torch.where(bad, earlier, buffer))
    run.scaler.update()
    return values


def _plan(
    recipe: Recipe, manifest: Manifest, epoch: int, processes: Processes = SINGLE_PROCESS
) -> EpochBatches:
    """Plan the batches of an epoch; return this process's share of each."""
    batches = plan(
        manifest.labels, recipe.sampler, seed=recipe.seed, epoch=epoch, steps=recipe.steps_per_epoch
    )
    return batches.share(processes.rank, processes.world)


def _score(
    run: TrainingRun, recipe: Recipe, data: Dataset, out: Path, processes: Processes
) -> Report:
    """Embed the items of all tests, shared among the processes, write the embeddings, and score the
    file.
    """
    manifest = all_tests(data)
    vectors = embed_all(run.tested, data.name, manifest, recipe, processes)
    if processes.first:
        about = {
            "recipe": as_toml(recipe),
            "step": str(run.best.step if run.best else run.step),
            "image_size": str(recipe.images.size),
        }
        embeddings.write(out / EMBEDDINGS, manifest.items.tolist(), vectors, metadata=about)
        report = evaluate(out / EMBEDDINGS, data, method=recipe.aim.method if recipe.aim else None)
        report.write(out / REPORT)
        report.write_by_query(out / BY_QUERY)
    shared: Report = together(report if processes.first else None, processes)[0]
    return shared


@contextmanager
def _alone_in(out: Path, processes: Processes) -> Iterator[None]:
    """Keep other trainings out of the folder. Raises UsageError where one is at work in it: their
    logs would be mixed.
    """
    if not processes.first:
        yield
        return
    lock = lock_of(out)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            f"another training writes to {out}", fix="wait for it, or name another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM was received; a second one has its
    usual effect.
    """
    received: list[int] = []
    earlier = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(number, earlier[number])

    try:
        for number in earlier:
            signal.signal(number, note)
        yield lambda: bool(received)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
