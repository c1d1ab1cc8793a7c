"""Trains a recipe's model: the training loop, to be read from top to bottom.

    run = begin(recipe, dataset)                                    model, losses, optimisers
    for epoch, for batch of plan(labels, seed, epoch):
        loss of the batch -> gradients -> step -> log, checkpoint
    embed the test items -> test.parquet -> report.json

A step depends on the recipe, its own number, and what a checkpoint holds, and on nothing else: on a CPU a resumed run
goes on, bit for bit, as if it had never stopped.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from torch import Tensor

from hbench.core.errors import HBenchError, UsageError, examples
from hbench.core.files import write_text
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.evaluation import embeddings
from hbench.evaluation.reports.report import Report
from hbench.evaluation.submission import evaluate
from hbench.train import run as checkpoint
from hbench.train.images.batches import all_tests, images_of, training_batches
from hbench.train.images.sampler import EpochBatches, plan
from hbench.train.models.embed_images import embed_all
from hbench.train.processes import ALONE, Processes, any_of, average_gradients, together
from hbench.train.progress import Log, Moment
from hbench.train.recipes.files import as_toml, differences, resolve
from hbench.train.recipes.recipe import Recipe
from hbench.train.run import TrainingRun, begin, set_rates, training_manifest
from hbench.train.step import Outcome, TrainStep, direct, in_two_passes

Watch = Callable[[Moment], None]
RECIPE, EMBEDDINGS, REPORT, BY_QUERY = "recipe.toml", "test.parquet", "report.json", "report.by-query.parquet"
NON_FINITE = "non-finite.json"


class TrainingInterrupted(HBenchError):
    """A run that was asked to stop, and saved where it was."""

    exit_code = 130


def train(
    recipe: Recipe,
    out: Path,
    *,
    dataset: Dataset | None = None,
    processes: Processes = ALONE,
    resume: bool = False,
    tensorboard: bool = False,
    watch: Watch = lambda _moment: None,
) -> Report:
    """Train a recipe's model into the folder `out`, embed the dataset's test items, and score them.

    Raises UsageError for a folder that holds another run, DataError for a dataset without training images, Interrupted
    when asked to stop, HBenchError for a loss that is not finite.
    """
    data = dataset or load(recipe.dataset)
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if processes.first:
        _take_folder(out, recipe, resume=resume)
    run = begin(recipe, data, processes)
    if resume and checkpoint.saved(out):
        run.restore(checkpoint.latest(out))
    log = Log(out if processes.first else None, step=run.step, tensorboard=tensorboard)
    try:
        with _asked_to_stop() as asked:
            for moment in steps(run, recipe, data, out, processes):
                watch(moment)
                if moment.step % recipe.log_every == 0 or moment.step == moment.steps:
                    log.moment(moment)
                stop = any_of(asked(), processes) and moment.step < moment.steps
                due = recipe.checkpoint_every and moment.step % recipe.checkpoint_every == 0
                if processes.first and (stop or due or moment.step == moment.steps):
                    run.save(out)
                if stop:
                    raise TrainingInterrupted(
                        f"stopped after step {moment.step} of {moment.steps}; everything is saved in {out}",
                        fix=f"hbench train {out / RECIPE} --out {out} --resume",
                    )
                if moment.step < moment.steps and _evaluation_is_due(moment, recipe):
                    log.scores(moment.step, _score(run, recipe, data, out, processes).scores)
        report = _score(run, recipe, data, out, processes)
        log.scores(run.step, report.scores)
    finally:
        log.close()
    return report


def steps(run: TrainingRun, recipe: Recipe, data: Dataset, out: Path, processes: Processes = ALONE) -> Iterator[Moment]:
    """Take every step from the run's to the recipe's last, and tell of each."""
    manifest = training_manifest(data)
    images = images_of(data.name, manifest, recipe.images, vary=True)
    labels = torch.from_numpy(manifest.labels.astype(np.int64))
    compute = in_two_passes(recipe.two_pass) if recipe.two_pass else direct
    in_epoch, begun, began = len(_plan(recipe, manifest, 0).rows), run.step, time.perf_counter()
    for epoch in range(run.step // in_epoch, recipe.epochs):
        rates = set_rates(run.optimizers, recipe, epoch)
        batches = _plan(recipe, manifest, epoch).after(run.step - epoch * in_epoch)
        own = batches.share(processes.rank, processes.world)
        for pixels, rows in training_batches(images, own, workers=recipe.images.workers):
            outcome = update(run, pixels, labels[rows], processes, compute)
            if not torch.isfinite(outcome.total):
                raise _non_finite(outcome, run.step, manifest.items[rows.numpy()].tolist(), out, processes)
            run.step += 1
            seconds = time.perf_counter() - began
            yield Moment(
                step=run.step,
                steps=recipe.epochs * in_epoch,
                steps_per_epoch=in_epoch,
                loss=float(outcome.total),
                terms={name: float(term) for name, term in outcome.terms.items()},
                rates=rates,
                images_per_second=(run.step - begun) * recipe.sampler.batch / seconds,
                seconds=seconds,
            )


def update(
    run: TrainingRun, pixels: Tensor, labels: Tensor, processes: Processes = ALONE, compute: TrainStep = direct
) -> Outcome:
    """One step of every optimiser on this process's part of a batch; none where the loss or its gradient is not finite, which a
    total of NaN then says."""
    device = processes.device
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    part = pixels.to(device, memory_format=run.layout, non_blocking=True), labels.to(device, non_blocking=True)
    outcome = compute(run.embed, run.objective, *part, processes=processes, scale=run.scaler.scale)
    if torch.isfinite(outcome.total):
        average_gradients(list(run.objective.parameters()), processes)
        if not run.scaler.is_enabled() and not _have_finite_gradients(run):  # float16's scaler leaves such steps out
            return outcome._replace(total=outcome.total * torch.nan)
        for optimizer in run.optimizers:
            run.scaler.step(optimizer)
        run.scaler.update()
    return outcome


def _have_finite_gradients(run: TrainingRun) -> bool:
    """Whether no weight would become NaN: a finite loss may have a gradient that is not."""
    weights = (weight for optimizer in run.optimizers for group in optimizer.param_groups for weight in group["params"])
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    return not gradients or bool(torch.isfinite(torch.nn.utils.get_total_norm(gradients)))


def _plan(recipe: Recipe, manifest: Manifest, epoch: int) -> EpochBatches:
    return plan(manifest.labels, recipe.sampler, seed=recipe.seed, epoch=epoch, steps=recipe.steps_per_epoch)


def _evaluation_is_due(moment: Moment, recipe: Recipe) -> bool:
    every = recipe.evaluate_every * moment.steps_per_epoch
    return bool(every) and moment.step % every == 0


def _score(run: TrainingRun, recipe: Recipe, data: Dataset, out: Path, processes: Processes) -> Report:
    """Embed the items of all tests, shared among the processes, write them, and score the file."""
    manifest = all_tests(data)
    images = images_of(data.name, manifest, recipe.images, vary=False)
    vectors = embed_all(
        run.model, images, len(manifest), batch=recipe.sampler.batch, workers=recipe.images.workers, processes=processes
    )
    if processes.first:
        about = {"recipe": as_toml(recipe), "step": str(run.step)}
        embeddings.write(out / EMBEDDINGS, manifest.items.tolist(), vectors, metadata=about)
        report = evaluate(out / EMBEDDINGS, data, method=recipe.aim.method if recipe.aim else None)
        report.write(out / REPORT)
        report.write_by_query(out / BY_QUERY)
    shared: Report = together(report if processes.first else None, processes)[0]
    return shared


def _take_folder(out: Path, recipe: Recipe, *, resume: bool) -> None:
    """Make the run's folder with its recipe; refuse one that holds a run not to be resumed, or of another recipe."""
    path = out / RECIPE
    if path.exists():
        earlier = resolve(str(path))
        other = list(differences(earlier.model_dump(), recipe.model_dump()))
        if not resume:
            raise UsageError(f"{out} holds a run already", fix="--resume to go on with it, or another --out")
        if other:
            raise UsageError(
                f"{out} holds a run of another recipe", found=f"another {examples(other)}", fix="another --out"
            )
    else:
        write_text(path, as_toml(recipe))


def _non_finite(outcome: Outcome, step: int, items: list[str], out: Path, processes: Processes) -> HBenchError:
    """Save what led to a loss that is NaN or infinite, and the error that says so."""
    terms = {name: float(term) for name, term in outcome.terms.items()}
    name = NON_FINITE if processes.world == 1 else f"{processes.rank}.{NON_FINITE}"
    found = {"step": step, "terms": {name: str(term) for name, term in terms.items()}, "items": items}
    write_text(out / name, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    what = "the gradient" if all(math.isfinite(term) for term in terms.values()) else "the loss"
    return HBenchError(
        f"{what} of step {step} is not finite: nothing was changed by it",
        found=", ".join(f"{name} {term}" for name, term in terms.items()) + f", on {examples(items)}",
        fix=f"look at the items in {out / name}; a smaller optimizer.lr, or precision float32 or bfloat16",
    )


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came; a second one is not held back."""
    came: list[int] = []
    earlier = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        signal.signal(number, earlier[number])

    try:
        for number in earlier:
            signal.signal(number, note)
        yield lambda: bool(came)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
