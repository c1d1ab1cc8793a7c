"""Validates a run on held-out training classes: chooses the best checkpoint by a metric, and
decides when to stop early.

    classes of the training set = classes to learn + round(validation · number) classes to validate
    on

Whole classes are held out because retrieval is tested on new classes. If the tests have new coarse
classes, such as base letters of glyphs, set `validation_level` to hold out coarse classes here,
too: otherwise coarse classes that were learned make the scores too good. The tests are not used
before the end.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from hbench.core.errors import ConfigError, UnknownName
from hbench.datasets import Dataset, load
from hbench.datasets import manifest as manifests
from hbench.datasets.manifest import Manifest
from hbench.datasets.spec import held_out
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute
from hbench.evaluation.evaluate import evaluate
from hbench.metrics.names import MetricName, goodness
from hbench.records.shown import shown
from hbench.submissions import embeddings
from hbench.train.fitting.sizes import fitted_to, is_open
from hbench.train.models.embed_images import embed_all
from hbench.train.processes import Processes, gather_objects
from hbench.train.recipes.recipe import Recipe
from hbench.train.records.log import ValidationRecord
from hbench.train.records.refusals import refuse_zero_vectors
from hbench.train.steps.run import BestStep, TrainingRun, training_manifest
from hbench.tree.names import class_rows

VALIDATION = "validation"


def split_off(data: Dataset, recipe: Recipe) -> tuple[Dataset, Dataset | None]:
    """Split the training classes. Return the dataset without the held-out classes, and a dataset
    with these as its only test, or None if the recipe does not validate.

    The choice of held-out classes depends only on their names and the recipe's seed. Raises
    ConfigError for too few classes, UnknownName for an unknown metric or level.
    """
    # names that do not exist are refused in a recipe that does not validate, too
    metric = choosing_metric(recipe, data.levels)
    metric.bind(data.levels)  # raises for parameters that do not fit these levels
    manifest = training_manifest(data)
    level = recipe.validation_level
    if level and level not in manifest.levels:
        raise UnknownName("level", level, manifest.levels)
    if not recipe.validation:
        return data, None

    # whole classes of this level are held out, identified by their paths down to it
    depth = manifest.levels.index(level) + 1 if level else len(manifest.levels)
    paths = ["\t".join(row[:depth]) for row in class_rows(manifest.tree)]  # of each fine class
    chosen = held_out(paths, fraction=recipe.validation, seed=recipe.seed)
    # a single class could not be confused with another one
    if len(chosen) < 2 or len(chosen) == len(set(paths)):
        raise ConfigError(
            "the validation has too few or all of the training classes",
            expected="2 or more of them, and not all",
            found=f"{len(chosen)} of {len(set(paths))} classes",
            fix=_advice(len(set(paths))),
        )

    is_held_class = np.array([path in chosen for path in paths])  # (C,)
    is_held = is_held_class[manifest.labels[:, -1]]  # (N,)
    # without the lists of pairs, which are of the tests left out here
    held = dataclasses.replace(
        data, train=None, tests={VALIDATION: _part(manifest, is_held)}, lists={}
    )
    return dataclasses.replace(data, train=_part(manifest, ~is_held)), held


def with_sizes(recipe: Recipe) -> Recipe:
    """Fill in the sizes that a recipe leaves open for its dataset, such as the batch, from the
    training images. A recipe without open sizes, or without a dataset, is returned unchanged."""
    if not (is_open(recipe) and recipe.dataset):
        return recipe
    learned, _held = split_off(load(recipe.dataset), recipe)
    return fitted_to(recipe, training_manifest(learned))


def _advice(classes: int) -> str:
    """Return the advice on how to hold out some of this number of `classes`."""
    if classes < 3:  # holding out 2 would leave none to learn from
        return "hold out classes of a finer level: --set validation_level="
    share = max(2, classes // 5) / classes  # a fifth, of at least 2 classes
    return f"choose another share: --set validation={share:.2g}"


def validation_scores(
    run: TrainingRun, recipe: Recipe, held: Dataset, processes: Processes
) -> dict[str, float]:
    """Score the current model on the dataset of the held-out classes: {metric: score}, including
    the metric that chooses the checkpoint. The first process scores, and all get the scores."""
    manifest = held.tests[VALIDATION]
    # (N, D): every process embeds a part, and all get all vectors. `run.tested` is the current
    # model, with averaged weights if the run averages them
    vectors = embed_all(run.tested, held.name, manifest, recipe, processes)
    refuse_zero_vectors(vectors)
    scores: dict[str, float] = {}
    if processes.first:
        # without doubles: the protocol may have select_by, too
        names = dict.fromkeys([recipe.select_by, *held.protocol.all_metrics])
        # Rank on the GPU that trains: it is faster, and the other processes wait. The last digits
        # differ from a report's, but nobody compares these scores with a report.
        execute: Execute = on_threads
        if processes.device.type == "cuda":
            from hbench.engine.executors.gpu import on_devices
            from hbench.engine.kernels.card.compiling import can_compile

            if can_compile():
                execute = on_devices(str(processes.device))
        report = evaluate(
            embeddings.joined(manifest.items, vectors), held, metrics=list(names), execute=execute
        )
        scores = {name: float(value) for name, value in report.scores.items()}
    shared: dict[str, float] = gather_objects(scores, processes)[0]
    return shared


def best_after(
    best: BestStep | None, step: int, scores: Mapping[str, float], recipe: Recipe, held: Dataset
) -> BestStep:
    """Return the best step so far: `step` if its score of the metric that chooses the checkpoint is
    better than that of `best`, else `best` with one more validation that was not better (`missed`).
    `scores`: {metric: score} of `step`. `held`: the dataset of the held-out classes."""
    metric = choosing_metric(recipe, held.levels)
    score = scores[str(metric)]
    if best is None or goodness(str(metric), score) > goodness(str(metric), best.score):
        return BestStep(step, score)
    return best._replace(missed=best.missed + 1)


def said_of(
    step: int, scores: Mapping[str, float], best: BestStep, recipe: Recipe, held: Dataset
) -> ValidationRecord:
    """Make the record of the validation after `step`: the score by the metric that chooses, and the
    best so far. `scores`: {metric: score}."""
    metric = str(choosing_metric(recipe, held.levels))
    return ValidationRecord(
        step=step, metric=metric, score=scores[metric], best_step=best.step, best=best.score
    )


def where_it_goes_on(run: TrainingRun, recipe: Recipe) -> str:
    """Make the remark on where a resumed run continues, with its best validation so far; or that it
    had stopped early, so that no step is left."""
    if is_over(run.best, recipe):
        return f"the run had stopped early, after step {run.step}: it is scored again"
    said = f"goes on after step {run.step}"
    if run.best is not None:
        best = shown(recipe.select_by, run.best.score)
        said += f"; the best validation is {recipe.select_by} {best} at step {run.best.step}"
    return said


def which_is_scored(best: BestStep, recipe: Recipe, in_epoch: int) -> str:
    """Make the remark on which checkpoint is scored. It also says if the backbone was still frozen
    then (warm-up), so that training it only made the scores worse. `in_epoch`: steps per epoch."""
    said = (
        f"scored is the checkpoint of step {best.step}, the best of the validation by "
        f"{recipe.select_by}: {shown(recipe.select_by, best.score)}"
    )
    if best.missed > 1:  # a single validation that was not better is usual, and not worth saying
        said += f"; the {best.missed} validations after it were not better"
    # the schedule counts steps from 0, `best` from 1
    if recipe.schedule.is_frozen(best.step - 1, in_epoch, recipe.epochs):
        said += (
            "; its backbone was still frozen (schedule.warm_up), and no later step was better: try "
            "a smaller optimizer.lr"
        )
    return said


def is_over(best: BestStep | None, recipe: Recipe) -> bool:
    """Whether the run stops early: the last `patience` validations were not better."""
    return bool(recipe.patience) and best is not None and best.missed >= recipe.patience


def choosing_metric(recipe: Recipe, levels: Sequence[str]) -> MetricName:
    """Return the metric that chooses the best checkpoint, named as among the scores of a dataset
    with these `levels`, coarse to fine."""
    return MetricName.parse(recipe.select_by).at(levels)


def _part(manifest: Manifest, mask: np.ndarray) -> Manifest:
    """Make a manifest of the items in a mask, bool (N,), with classes numbered from 0. All items
    are queries and in the gallery. Its `picture`, which opens the image of an item, is that of
    `manifest`.
    """
    rows = np.flatnonzero(mask)
    paths = class_rows(manifest.tree)  # the names of each finest class, coarse to fine
    names = [paths[fine] for fine in manifest.labels[rows, -1].tolist()]
    part = manifests.from_names(manifest.items[rows].tolist(), names, levels=manifest.levels)
    return dataclasses.replace(part, picture=manifest.picture)
