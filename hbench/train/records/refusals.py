"""Errors and remarks before a training begins, and the error of a training that diverged."""

import json
import math
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hbench.core.errors import DataError, HBenchError, UsageError, examples
from hbench.core.files import write_text
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.metrics.significance import MIN_UNITS
from hbench.train.recipes.files import differences, resolve
from hbench.train.recipes.recipe import Recipe
from hbench.train.records.checkpoints import checkpoints_in
from hbench.train.records.log import StepRecord

RECIPE = "recipe.toml"
REPORT = "report.json"
OWN_NETS = "hbench:"  # begins the names of nets that hbench brings, which are never pretrained
SLOW = 1e-4  # up to which Adam's rate is one for pretrained weights


def refuse_several(manifest: Manifest) -> None:
    """Raise DataError for a training manifest with items of several paths, such as pictures of two
    animals. `manifest.more` holds further paths of items, None if there are none; `owners` is the
    number of these items."""
    if manifest.more is not None:
        raise DataError(
            "the losses take one path of each item",
            expected="one class at each level",
            found=f"{manifest.more.owners:,} training items with several paths",
            fix="build the training set without --several",
        )


def remarks_on(recipe: Recipe, batches: int) -> list[str]:
    """Collect remarks on a recipe before its run: a warm-up of more than a third of the epochs,
    epochs with fewer batches than requested, batches without positives, and settings that suit only
    pretrained weights. `batches`: in an epoch."""
    frozen = recipe.schedule.warm_up_epochs(recipe.epochs)  # epochs with a frozen backbone
    steps = recipe.steps_per_epoch
    remarks = []
    if frozen * 3 > recipe.epochs:
        remarks.append(
            f"the backbone is frozen for {min(1, frozen / recipe.epochs):.0%} of the steps: "
            f"schedule.warm_up is {frozen:g} of "
            f"{recipe.epochs} epochs (--set schedule.warm_up=0.05 freezes it for 5 % of them)"
        )

    if steps and batches < steps:
        remarks.append(
            f"an epoch has {batches:,} steps instead of {steps:,} (steps_per_epoch): the training "
            "images make no more batches"
        )
    # the loss "xbm" has a memory of former batches, with other items of the class
    if recipe.sampler.per_class == 1 and "xbm" not in recipe.losses:
        remarks.append(
            "every image is the only one of its class in a batch (sampler.per_class = 1): losses "
            "of pairs and ranks find no positives of the finest level there"
        )
    return [*remarks, *_remarks_on_random_weights(recipe)]


def remark_on_few(held: Dataset) -> str:
    """Make the remark that there are too few held-out classes to compare trials or checkpoints; ""
    if there are enough. `held`: the dataset of the held-out classes, with a single test."""
    (test,) = held.tests.values()
    number = len(test.tree.names[-1])
    if number >= MIN_UNITS:
        return ""
    return (
        f"{number} classes are held out: with fewer than {MIN_UNITS} it may be chance which "
        "checkpoint is the best"
    )


def _remarks_on_random_weights(recipe: Recipe) -> list[str]:
    """Make remarks on settings that suit only pretrained weights, for a recipe that starts from
    random ones: frozen batch norms, and a very low rate of Adam's family. hbench's own nets never
    have pretrained weights, so that a recipe that asks for them gets a remark as well."""
    model = recipe.model
    lacks_pretrained = model.backbone.startswith(OWN_NETS) and model.weights == "pretrained"
    if model.weights != "random" and not lacks_pretrained:
        return []
    remarks = []
    if lacks_pretrained:
        remarks.append(
            f"{recipe.model.backbone} has no pretrained weights, so that it begins from random ones"
        )
    if recipe.model.freeze_batch_norm:
        remarks.append(
            "the weights are random, but batch norms are frozen: they would stay at mean 0 and "
            "variance 1 (--set model.freeze_batch_norm=false lets them learn)"
        )
    is_slow = recipe.optimizer.lr <= SLOW and recipe.optimizer.name in ("adam", "adamw", "nadam")
    if is_slow:
        remarks.append(
            f"the weights are random, but optimizer.lr is {recipe.optimizer.lr:g}, a rate for "
            "pretrained weights (--set optimizer.lr=1e-3 is usual for random ones)"
        )
    return remarks


def refuse_folder(out: Path, recipe: Recipe, *, resume: bool) -> None:
    """Raise UsageError if `recipe` cannot be trained in the folder `out`: `out` is a file, or has a
    run of another recipe, a run though `resume` is False, or a run that has ended and whose weights
    were deleted."""
    if out.is_file():
        raise UsageError(
            f"{out} is a file", expected="the folder of a run", fix="name another --out"
        )
    if not holds_run(out):
        return
    refuse_other_recipe(out, recipe)
    if not resume:
        refuse_run_in(out)
    elif lost_its_weights(out):
        # starting again would replace results that tables and rows were made from
        raise UsageError(
            f"the run in {out} has ended, and its weights were deleted",
            expected="a checkpoint to go on from",
            fix="name another --out to train it again",
        )


def refuse_other_recipe(out: Path, recipe: Recipe) -> None:
    """Raise UsageError if the run in a folder is of another recipe."""
    if other := other_keys(out, recipe):
        found = f"another {examples(other)}"
        raise UsageError(
            f"{out} holds a run of another recipe", found=found, fix="name another --out"
        )


def other_keys(out: Path, recipe: Recipe) -> list[str]:
    """Return the keys in which a recipe differs from that of the run in a folder."""
    earlier = resolve(str(out / RECIPE))
    return list(differences(earlier.model_dump(), recipe.model_dump()))


def holds_run(out: Path) -> bool:
    """Whether a folder has a run with results that could be lost: a checkpoint, or a report, since
    the weights may have been deleted. A failed first attempt without either does not count: users
    often correct the recipe and train again in the same folder."""
    # a report without a recipe may come from another verb
    begun = (out / RECIPE).exists()
    return begun and (bool(checkpoints_in(out)) or (out / REPORT).exists())


def lost_its_weights(out: Path) -> bool:
    """Whether the run in a folder ended, and its weights were deleted afterwards."""
    return holds_run(out) and not checkpoints_in(out)


def refuse_run_in(out: Path) -> None:
    """Raise UsageError if a folder has a run."""
    if holds_run(out):
        resumed = "" if lost_its_weights(out) else "continue it with --resume, or "
        raise UsageError(f"{out} holds a run already", fix=f"{resumed}name another --out")


class TrainingDiverged(HBenchError):
    """A training diverged: a loss or gradient is not finite, or embeddings have length 0."""


def refuse_zero_vectors(vectors: NDArray[Any]) -> None:
    """Raise TrainingDiverged if some embeddings (N, D) are all zero: they have no direction, and
    cannot be ranked by cosine."""
    number = int((~vectors.any(axis=1)).sum())
    if number:
        raise TrainingDiverged(
            f"the net gives the vector 0 for {number:,} of {len(vectors):,} images",
            expected="vectors that have a direction",
            fix="it has collapsed: train with a smaller optimizer.lr; the last checkpoint is kept",
        )


def non_finite(step: StepRecord, items: list[str], file: Path) -> TrainingDiverged:
    """Write the terms and items of a step that is not finite to a JSON file, and return the error.
    `step.terms`: {loss: unweighted value}. `items`: the names of the items in the batch, or in this
    process's part of it."""
    terms = step.terms
    state = {
        "step": step.step,
        # as text, since JSON cannot express NaN and infinity
        "terms": {name: str(term) for name, term in terms.items()},
        "items": items,
    }
    write_text(file, json.dumps(state, indent=1, ensure_ascii=False) + "\n")
    what = "the gradient" if all(math.isfinite(term) for term in terms.values()) else "the loss"

    said = ", ".join(f"{name} {term}" for name, term in terms.items())
    return TrainingDiverged(
        f"{what} of step {step.step} is not finite, so the step changed nothing",
        found=f"{said}, on {examples(items)}",
        fix=f"look at the items in {file}; try a smaller optimizer.lr, optimizer.clip, or "
        "precision float32 or bfloat16",
    )
