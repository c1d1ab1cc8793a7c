"""Takes the steps of a run: batch, loss, gradient, optimisers; a GPU is some steps ahead of what is
read.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.losses.partial import unknown_as_minus_one
from hbench.train.images.batches import Batches, images_of, keys_of, workers_for
from hbench.train.images.sampler import EpochBatches, plan
from hbench.train.processes import SINGLE_PROCESS, Processes, average_gradients
from hbench.train.recipes.recipe import Recipe
from hbench.train.records.log import StepRecord
from hbench.train.records.refusals import non_finite
from hbench.train.steps.gradients import TrainStep, direct, in_two_passes
from hbench.train.steps.optimizers import clip_gradients, set_rates, step_unless
from hbench.train.steps.run import TrainingRun, freeze_body, training_manifest

NON_FINITE = "non-finite.json"
READS = 20  # of steps, whose pace is told: the first ones compile and open images


class Pace:
    """Measures the steps per second of late, without what is done between steps, such as a
    validation."""

    def __init__(self) -> None:
        """Begin to measure now."""
        self.reads: deque[tuple[int, float]] = deque(maxlen=READS)  # steps and seconds of each
        self.begun = time.perf_counter()

    def after(self, steps: int) -> float:
        """The steps per second of the last reads, with that of so many steps which ends now."""
        self.reads.append((steps, time.perf_counter() - self.begun))
        taken, seconds = map(sum, zip(*self.reads, strict=True))
        return taken / seconds

    def go_on(self) -> None:
        """Measure the next read from now on."""
        self.begun = time.perf_counter()


class LaunchedStep(NamedTuple):
    """A step that the device may still be computing.

    `number`: from 1; `rows` (B/W,) of the training manifest, of this process's part of the batch;
    `rates`: by group of weights; `values` (2 + losses,): the loss, the length of the gradient, and
    the terms in the order of the losses.
    """

    number: int
    rows: Tensor
    rates: dict[str, float]
    values: Tensor


def steps(
    run: TrainingRun,
    recipe: Recipe,
    data: Dataset,
    out: Path,
    processes: Processes = SINGLE_PROCESS,
) -> Iterator[StepRecord]:
    """Take every remaining step and yield its record; a GPU is some steps ahead of the records.

    Raises HBenchError, which names a file of the items in `out`, for a step that is not finite.
    """
    manifest = training_manifest(data)
    in_epoch = len(batches_of_epoch(recipe, manifest, 0).rows)  # steps, of any epoch
    began = time.perf_counter()
    pace = Pace()
    waiting: list[LaunchedStep] = []
    for launched in _launch_steps(run, recipe, data, in_epoch, processes):
        waiting.append(launched)
        # reading a value waits for the device, which would idle until the next step is launched
        if run.runs_ahead and not _is_read(run.step, recipe, in_epoch):
            continue
        values = torch.stack([each.values for each in waiting]).tolist()  # in one transfer
        seconds = time.perf_counter() - began
        speed = pace.after(len(waiting)) * recipe.sampler.batch
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
        pace.go_on()


def _is_read(step: int, recipe: Recipe, in_epoch: int) -> bool:
    """Whether the host waits for the values of the step with this number, from 1: one that is
    logged, saved, or the last of an epoch of `in_epoch` steps."""
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
    """Make the record of a step, whose `values` are on the host: the loss, the length of the
    gradient, and a term for each of `losses`. `steps`: of the run; `in_epoch`: of an epoch;
    `speed`: images per second; `seconds`: since the run began or went on."""
    loss, length, *terms = values
    return StepRecord(
        step=launched.number,
        steps=steps,
        steps_per_epoch=in_epoch,
        loss=loss,
        terms=dict(zip(losses, terms, strict=True)),
        gradient_norm=length,
        skipped=not math.isfinite(length),
        rates=launched.rates,
        images_per_second=speed,
        seconds=seconds,
    )


def _non_finite_name(processes: Processes) -> str:
    """Name the file of the items whose loss is not finite, one for each process, as each has items
    of its own."""
    return NON_FINITE if processes.world == 1 else f"{processes.rank}.{NON_FINITE}"


def _launch_steps(
    run: TrainingRun, recipe: Recipe, data: Dataset, in_epoch: int, processes: Processes
) -> Iterator[LaunchedStep]:
    """Launch every remaining step without waiting for the device; `in_epoch`: steps of an epoch. A
    resumed run goes on within the epoch in which it stopped."""
    manifest = training_manifest(data)
    device = processes.device
    images = images_of(data.name, manifest, recipe.images, vary=True)
    loader = Batches(images, workers=workers_for(images, recipe.images), device=device)
    labels = torch.from_numpy(unknown_as_minus_one(manifest.labels, manifest.tree))
    labels = labels.to(device, torch.int64)  # (N, L), −1 where nothing is known
    # a batch larger than the memory is embedded twice: without, then with gradients, in parts
    compute = in_two_passes(recipe.two_pass) if recipe.two_pass else direct

    for epoch in range(run.step // in_epoch, recipe.epochs):
        # without those that were taken of the epoch in which a resumed run goes on
        batches = batches_of_epoch(recipe, manifest, epoch, processes)
        batches = batches.after(run.step - epoch * in_epoch)
        for pixels, rows in loader.of(keys_of(batches)):
            # in the warm-up only the new layers learn
            is_frozen = recipe.schedule.is_frozen(run.step, in_epoch, recipe.epochs)
            freeze_body(run, processes, frozen=is_frozen)
            rates = set_rates(run.optimizers, recipe, epoch, step=run.step, in_epoch=in_epoch)
            values = update(run, pixels, labels[rows], processes, compute)
            if run.average is not None:
                run.average.update_parameters(run.model)
            run.step += 1
            # values of the device, which may not be computed yet: reading them would wait
            yield LaunchedStep(run.step, rows, rates, values)


def update(
    run: TrainingRun,
    pixels: Tensor,
    labels: Tensor,
    processes: Processes = SINGLE_PROCESS,
    compute: TrainStep = direct,
) -> Tensor:
    """Take one step of every optimiser on this process's part of a batch, images (B/W, C, H, W) and
    their labels (B/W, L), unless the loss or its gradient is not finite.

    Returns the loss, the gradient's length before clipping, and the terms in the order of the
    objective's losses. On a GPU the host waits for nothing, and after a step that is not finite no
    later step changes anything.
    """
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    pixels = pixels.to(processes.device, memory_format=run.layout)
    labels = labels.to(processes.device)
    # Batch norms that learn update their running means in the forward pass, before the loss is
    # known: they are put back where it is not finite.
    norms = []
    if not run.model.freeze_batch_norm:
        norms = [(buffer, buffer.clone()) for buffer in run.model.buffers()]
    total, terms = compute(
        run.embed,
        run.objective,
        pixels,
        labels,
        processes=processes,
        scale=run.scaler.scale,
    )
    average_gradients(list(run.objective.parameters()), processes)
    values = torch.stack([total, clip_gradients(run.optimizers, run.scaler), *terms.values()])
    bad = ~values[:2].isfinite().all()  # loss and gradient, (), on the device
    if run.halted is not None:
        bad = bad | run.halted  # a step after a bad one, launched before anybody knew, is bad, too
        run.halted = bad
        step_unless(bad, run.optimizers)
    elif not bad:
        for optimizer in run.optimizers:
            run.scaler.step(optimizer)
    for buffer, earlier in norms:
        buffer.copy_(torch.where(bad, earlier, buffer))
    run.scaler.update()
    return values


def batches_of_epoch(
    recipe: Recipe, manifest: Manifest, epoch: int, processes: Processes = SINGLE_PROCESS
) -> EpochBatches:
    """Compose the batches of an epoch, counted from 0; return this process's share of each, rows
    (S, B/W) of the manifest for S steps of W processes. Raises ConfigError for too few classes."""
    batches = plan(
        manifest.labels, recipe.sampler, seed=recipe.seed, epoch=epoch, steps=recipe.steps_per_epoch
    )
    return batches.share(processes.rank, processes.world)
