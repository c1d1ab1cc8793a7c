"""Takes the steps of a run: batch, loss, gradient, optimisers. On a GPU steps are launched ahead of
the results that were read.
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
READS = 20  # the pace is measured over this number of last reads: the first steps are slower


class Pace:
    """Measures the recent number of steps per second, without the time spent between steps, such as
    for a validation. A read is the results of one or several steps, fetched from the device at
    once."""

    def __init__(self) -> None:
        """Start measuring."""
        self.reads: deque[tuple[int, float]] = deque(maxlen=READS)  # (steps, seconds) of each read
        self.begun = time.perf_counter()

    def after(self, steps: int) -> float:
        """End a read of this number of steps, and return the steps per second of the last reads."""
        self.reads.append((steps, time.perf_counter() - self.begun))
        taken, seconds = map(sum, zip(*self.reads, strict=True))
        return taken / seconds

    def go_on(self) -> None:
        """Start measuring the next read."""
        self.begun = time.perf_counter()


class LaunchedStep(NamedTuple):
    """A step that the device may not have computed yet.

    `number`: from 1. `rows` (B/W,): the rows of the training manifest in this process's part of the
    batch. `rates`: {group of weights: learning rate}. `values` (2 + losses,): the loss, the length
    of the gradient, and the term of each loss.
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
    """Take all remaining steps and yield their records. On a GPU several steps are launched before
    their values are read, and their records come together.

    For a step that is not finite, raises HBenchError, which names a file in `out` with the items of
    the batch.
    """
    manifest = training_manifest(data)
    in_epoch = len(batches_of_epoch(recipe, manifest, 0).rows)  # steps, the same in every epoch
    began = time.perf_counter()
    pace = Pace()
    waiting: list[LaunchedStep] = []
    for launched in _launch_steps(run, recipe, data, in_epoch, processes):
        waiting.append(launched)
        # Reading a value waits for the device, which then idles until the next step is launched. A
        # run that may launch ahead is read only where a step is logged or saved, or ends an epoch.
        if run.runs_ahead and not _is_read(run.step, recipe, in_epoch):
            continue
        values = torch.stack([each.values for each in waiting]).tolist()  # in one transfer
        seconds = time.perf_counter() - began
        # steps per second over the recent reads; each is timed from `go_on`, or the start, to here
        speed = pace.after(len(waiting)) * recipe.sampler.batch  # images per second
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
        # The clock starts again here: the caller may have validated or saved the run at a `yield`,
        # which must not count as the time of the next steps.
        pace.go_on()


def _is_read(step: int, recipe: Recipe, in_epoch: int) -> bool:
    """Whether the host reads the values after this step, counted from 1: if it is logged, saved, or
    the last of an epoch. `in_epoch`: steps per epoch."""
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
    """Make the record of a step from its values, which were read to the host.

    Args:
        launched: the step.
        values: the loss, the length of the gradient, and a term for each loss.
        losses: the names of the losses.
        steps: the number of steps of the run.
        in_epoch: the number of steps of an epoch.
        speed: images per second.
        seconds: since the run began or was resumed.
    """
    loss, length, *terms = values
    return StepRecord(
        step=launched.number,
        steps=steps,
        steps_per_epoch=in_epoch,
        loss=loss,
        terms=dict(zip(losses, terms, strict=True)),
        gradient_norm=length,
        skipped=not math.isfinite(length),  # `update` takes no step with such a gradient
        rates=launched.rates,
        images_per_second=speed,
        seconds=seconds,
    )


def _non_finite_name(processes: Processes) -> str:
    """Return the name of the file for the items of a step that is not finite. Each process has its
    own file, since it has its own part of the batch."""
    return NON_FINITE if processes.world == 1 else f"{processes.rank}.{NON_FINITE}"


def _launch_steps(
    run: TrainingRun, recipe: Recipe, data: Dataset, in_epoch: int, processes: Processes
) -> Iterator[LaunchedStep]:
    """Launch all remaining steps without waiting for the device. A resumed run continues within the
    epoch in which it stopped. `in_epoch`: steps per epoch."""
    manifest = training_manifest(data)
    device = processes.device
    images = images_of(data.name, manifest, recipe.images, vary=True)
    loader = Batches(images, workers=workers_for(images, recipe.images), device=device)
    labels = torch.from_numpy(unknown_as_minus_one(manifest.labels, manifest.tree))
    labels = labels.to(device, torch.int64)  # (N, L), −1 for unknown
    # a batch too large for the memory is embedded twice in parts: without, then with gradients
    compute = in_two_passes(recipe.two_pass) if recipe.two_pass else direct

    for epoch in range(run.step // in_epoch, recipe.epochs):
        # skip the batches that a resumed run has already taken in this epoch
        batches = batches_of_epoch(recipe, manifest, epoch, processes)
        batches = batches.after(run.step - epoch * in_epoch)
        # the loader makes each image by its row in the manifest and the seed of its augmentation
        for pixels, rows in loader.of(keys_of(batches)):
            # during the warm-up the backbone is frozen
            is_frozen = recipe.schedule.is_frozen(run.step, in_epoch, recipe.epochs)
            freeze_body(run, processes, frozen=is_frozen)
            rates = set_rates(run.optimizers, recipe, epoch, step=run.step, in_epoch=in_epoch)
            values = update(run, pixels, labels[rows], processes, compute)
            if run.average is not None:
                run.average.update_parameters(run.model)
            run.step += 1
            # `values` stays on the device: reading it here would wait for the step
            yield LaunchedStep(run.step, rows, rates, values)


def update(
    run: TrainingRun,
    pixels: Tensor,
    labels: Tensor,
    processes: Processes = SINGLE_PROCESS,
    compute: TrainStep = direct,
) -> Tensor:
    """Take a step of every optimiser, unless the loss or its gradient is not finite.

    On a GPU the host does not wait, and after a step that is not finite no later step changes
    anything.

    Args:
        run: the state of the run.
        pixels: this process's part of the batch, (B/W, C, H, W).
        labels: of these images, (B/W, L).
        processes: this process among those that share the batch.
        compute: computes the gradients.

    Returns:
        (2 + losses,) on the device: the loss, the length of the gradient before clipping, and the
        term of each loss.
    """
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    pixels = pixels.to(processes.device, memory_format=run.layout)
    labels = labels.to(processes.device)
    # Batch norms that learn update their running means in the forward pass, before it is known
    # whether the loss is finite. Keep copies, to restore them if it is not.
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
    # those of the losses' own weights (proxies); `run.embed` averages the gradients of the net
    average_gradients(list(run.objective.parameters()), processes)
    values = torch.stack([total, clip_gradients(run.optimizers, run.scaler), *terms.values()])
    bad = ~values[:2].isfinite().all()  # loss and gradient, (), on the device
    # a flag on the GPU; None on a CPU, with loss scaling, and for optimisers that cannot skip a
    # step on the device
    if run.halted is not None:
        bad = bad | run.halted  # later steps may have been launched already: they count as bad, too
        run.halted = bad
        step_unless(bad, run.optimizers)
    elif not bad:  # the host decides, and waits for the device
        # without loss scaling, `scaler` only calls the optimiser, and its other methods do nothing
        for optimizer in run.optimizers:
            run.scaler.step(optimizer)
    for buffer, earlier in norms:
        buffer.copy_(torch.where(bad, earlier, buffer))
    run.scaler.update()
    return values


def batches_of_epoch(
    recipe: Recipe, manifest: Manifest, epoch: int, processes: Processes = SINGLE_PROCESS
) -> EpochBatches:
    """Compose the batches of an epoch, counted from 0. Return this process's share of each, as rows
    of the manifest, (S, B/W) for S steps and W processes. Raises ConfigError for too few
    classes."""
    batches = plan(
        manifest.labels, recipe.sampler, seed=recipe.seed, epoch=epoch, steps=recipe.steps_per_epoch
    )
    return batches.share(processes.rank, processes.world)
