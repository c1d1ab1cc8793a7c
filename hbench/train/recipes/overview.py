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
WITH_A_LOSS: Values = {
    "losses": {"nsm": {}},
    "aim": None,
}  # a setup alone lacks a loss, so it is not a whole recipe


def setups() -> list[tuple[str, ...]]:
    """Make a row per setup, for HEADER."""
    return [
        _row(name, build(Recipe, values_of(name) | WITH_A_LOSS, source=name))
        for name in sorted(shipped()[0])
    ]


def markdown() -> str:
    """Write the table in Markdown."""
    rows = [HEADER, ("---",) * len(HEADER), *setups()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row(name: str, recipe: Recipe) -> tuple[str, ...]:
    optimizers = _optimizer(recipe.optimizer)
    optimizers += "" if recipe.proxies is None else f"; proxies {_optimizer(recipe.proxies)}"
    columns = _images(recipe.images), _net(recipe.model), _batches(recipe.sampler), optimizers
    return (f"`{name}`", *columns, _schedule(recipe.epochs, recipe.schedule), recipe.source)


def _images(images: Images) -> str:
    """How pictures are prepared, in training → in a test."""
    if not images.size:
        return (
            "random crop → shorter side 8/7 of it, centre: the net's own size, colours and "
            "interpolation"
        )
    if images.augment == "shifted":
        return f"{images.size} px, in memory"

    fits = {
        "none": "",
        "shorter": f"shorter side {images.resize}, ",
        "square": f"{images.resize} × {images.resize}, ",
    }
    varied = f"{fits[images.fit]}random crop to {images.size}"
    same = images.test_fit == "square" and images.resize == images.size
    return f"{varied} → {fits[images.test_fit]}{'no crop' if same else f'centre {images.size}'}"


def _net(model: Model) -> str:
    """The net in words, such as "timm:resnet50, avg, LayerNorm, 512"."""
    parts = [model.pooling]
    if model.l2_norm:
        parts.append("length 1")
    if model.layer_norm:
        parts.append("LayerNorm")
    if model.dim:
        parts.append(f"{model.dim} by PCA" if model.projection == "pca" else f"{model.dim}")
    learns = "" if model.freeze_batch_norm else "; batch norms learn"
    start = " from random weights" if model.weights == "random" else ""
    return f"{model.backbone}{start}, {', '.join(parts)}{learns}"


def _batches(sampler: Sampler) -> str:
    if not sampler.batch:
        return "up to 128, 2 to 4 per class"
    of = f"{sampler.batch}, {sampler.per_class} per class"
    if sampler.name == "hierarchical":
        of += f", {sampler.batches_per_group} of each 2 coarse classes"
    return of + (f", at most {sampler.per_epoch} per class and epoch" if sampler.per_epoch else "")


def _optimizer(settings: Optimizer) -> str:
    rates = f"{settings.lr:g}" + (f" (head × {settings.head:g})" if settings.head != 1 else "")
    decay = f", decay {settings.weight_decay:g}" if settings.weight_decay else ""
    lowest = f", not under {settings.lr_min:g}" if settings.lr_min else ""
    return f"{settings.name} {rates}{decay}{lowest}"


def _schedule(epochs: int, schedule: Schedule) -> str:
    """How long is trained, and how the rate falls, in words such as "100, cosine after 5 % of
    warm-up"; 0 epochs: they follow from the dataset."""
    named: str = schedule.name
    if named == "steps":
        named = f"× {schedule.gamma:g} after {' and '.join(map(str, schedule.milestones))}"
    warm_up = (
        schedule.warm_up if isinstance(schedule.warm_up, int) else f"{100 * schedule.warm_up:g} %"
    )
    return f"{epochs or 'for about 2,000 steps'}, {named}" + (
        f" after {warm_up} of warm-up" if warm_up else ""
    )
