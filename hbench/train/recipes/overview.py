"""Makes the table of setups for `hbench recipes --setups` and its page: the settings of each, and
their source.
"""

from hbench.core.schema import build
from hbench.train.recipes.files import Values, shipped, values_of
from hbench.train.recipes.recipe import Images, Model, Optimizer, Recipe, Sampler, Schedule

HEADER = (
    "setup",
    "training images → test images",
    "net",
    "batches",
    "optimiser",
    "epochs and schedule",
    "source",
)
# a setup has no loss, which a recipe requires: this is added to it
WITH_A_LOSS: Values = {"losses": {"nsm": {}}, "aim": None}


def setups() -> list[tuple[str, ...]]:
    """Make a row for each setup, with the columns of HEADER."""
    return [
        _row(name, build(Recipe, values_of(name) | WITH_A_LOSS, source=name))
        for name in sorted(shipped().setups)
    ]


def markdown() -> str:
    """Write the table in Markdown."""
    rows = [HEADER, ("---",) * len(HEADER), *setups()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row(name: str, recipe: Recipe) -> tuple[str, ...]:
    """Return the cells of a setup, given as a recipe, for the columns of HEADER. The last one says
    where the setup's values are from."""
    optimizers = _optimizer(recipe.optimizer)
    if recipe.proxies is not None:
        optimizers += f"; proxies {_optimizer(recipe.proxies)}"
    return (
        f"`{name}`",
        _images(recipe.images),
        _net(recipe.model),
        _batches(recipe.sampler),
        optimizers,
        _schedule(recipe.epochs, recipe.schedule),
        recipe.source,
    )


def _images(images: Images) -> str:
    """Describe how pictures are prepared: in training → in a test.

    Pictures are first brought to a side of `resize` pixels, as `fit` (in training) and `test_fit`
    say ("none": not), and then cropped to `size`.
    """
    if not images.size:  # 0: the net's own size, with `resize` as 8/7 of it
        return (
            "random crop → shorter side 8/7 of it, centre: the net's own size, colours and "
            "interpolation"
        )
    if images.augment == "shifted":  # small pictures, kept in memory at their final size
        return f"{images.size} px, in memory"

    fits = {
        "none": "",
        "shorter": f"shorter side {images.resize}, ",
        "square": f"{images.resize} × {images.resize}, ",
    }
    training = f"{fits[images.fit]}random crop to {images.size}"
    is_whole = images.test_fit == "square" and images.resize == images.size
    centre = "no crop" if is_whole else f"centre {images.size}"
    return f"{training} → {fits[images.test_fit]}{centre}"


def _net(model: Model) -> str:
    """Describe the net, as in "timm:resnet50, avg, LayerNorm, 512"."""
    parts = [model.pooling]
    if model.l2_norm:
        parts.append("length 1")
    if model.layer_norm:
        parts.append("LayerNorm")
    if model.dim:
        parts.append(f"{model.dim} by PCA" if model.projection == "pca" else f"{model.dim}")
    # most recipes freeze batch norms and start pretrained, so only others are described
    learns = "" if model.freeze_batch_norm else "; batch norms learn"
    start = " from random weights" if model.weights == "random" else ""
    return f"{model.backbone}{start}, {', '.join(parts)}{learns}"


def _batches(sampler: Sampler) -> str:
    """Describe the images of a batch, as in "128, 4 per class". A batch of 0 is chosen for the
    dataset, with the numbers in hbench.train.fitting.sizes."""
    if not sampler.batch:
        return "up to 128, 2 to 4 per class"
    said = f"{sampler.batch}, {sampler.per_class} per class"
    # this sampler makes batches_per_group batches of each pair of coarse classes
    if sampler.name == "hierarchical":
        said += f", {sampler.batches_per_group} of each 2 coarse classes"
    if sampler.per_epoch:
        said += f", at most {sampler.per_epoch} per class and epoch"
    return said


def _optimizer(settings: Optimizer) -> str:
    """Describe an optimiser, as in "adam 1e-05 (head × 10), decay 0.0004": the learning rate of the
    backbone, and the factor by which that of pooling and projection (the head) differs."""
    said = f"{settings.name} {settings.lr:g}"
    if settings.head != 1:
        said += f" (head × {settings.head:g})"
    if settings.weight_decay:
        said += f", decay {settings.weight_decay:g}"
    if settings.lr_min:
        said += f", not under {settings.lr_min:g}"
    return said


def _schedule(epochs: int, schedule: Schedule) -> str:
    """Describe the number of epochs and the schedule, as in "100, cosine after 5 % of warm-up". 0
    epochs: they are chosen for the dataset, so that the training takes about 2,000 steps."""
    named: str = schedule.name
    if named == "steps":
        named = f"× {schedule.gamma:g} after {' and '.join(map(str, schedule.milestones))}"
    said = f"{epochs or 'for about 2,000 steps'}, {named}"
    warm_up = schedule.warm_up
    if isinstance(warm_up, float):  # a share of the epochs
        return f"{said} after {100 * warm_up:g} % of warm-up"
    if warm_up:  # a number of epochs
        return f"{said} after {warm_up} of warm-up"
    return said
