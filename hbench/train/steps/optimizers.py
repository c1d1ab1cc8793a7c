"""Builds the optimisers of a run, sets their learning rates, clips their gradients, and takes their
steps.

    rate = lowest + (highest − lowest) · factor(epochs since the warm-up)
"""

import inspect
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError, UnknownName
from hbench.train.models.blocks import by_depth
from hbench.train.models.model import EmbeddingModel
from hbench.train.recipes.recipe import Optimizer, Recipe, Schedule

# (epochs since the warm-up, all epochs, the schedule) -> factor of the learning rate
Factor = Callable[[float, int, Schedule], float]

# the groups of weights; each has its own learning rate
BODY = "body"  # of the backbone
HEAD = "head"  # of the layers that the model adds to the backbone
PROXIES = "proxies"  # of the losses


def cosine(epoch: float, epochs: int, _schedule: Schedule) -> float:
    """Lower the learning rate along a cosine: ½ (1 + cos(π epoch / epochs))."""
    return (1 + math.cos(math.pi * epoch / epochs)) / 2


def constant(_epoch: float, _epochs: int, _schedule: Schedule) -> float:
    """Keep the learning rate as it is."""
    return 1.0


def steps(epoch: float, _epochs: int, schedule: Schedule) -> float:
    """Multiply the learning rate by γ at every milestone."""
    return float(schedule.gamma ** sum(epoch >= milestone for milestone in schedule.milestones))


FACTORS: dict[str, Factor] = {"cosine": cosine, "constant": constant, "steps": steps}


def build_optimizers(
    recipe: Recipe, model: EmbeddingModel, objective: nn.Module, *, fused: bool = False
) -> list[torch.optim.Optimizer]:
    """Build the optimiser of the net, with the groups body and head, and another one for proxies if
    the recipe has settings for it.

    `objective`: its weights are the proxies. `fused`: for GPUs; one kernel updates all weights of
    an optimiser, and can skip a step without making the host wait.
    """
    settings = recipe.optimizer
    proxies = list(objective.parameters())
    groups = [
        *_groups_of_body(model, settings),
        *_groups(HEAD, model.head(), settings, settings.lr * settings.head),
    ]
    separate = recipe.proxies
    # without an optimiser of their own proxies learn like the head: both start untrained
    if proxies and separate is None:
        groups += _groups(PROXIES, proxies, settings, settings.lr * settings.head)
    optimizers = [_optimizer(settings, groups, fused=fused)]
    if proxies and separate is not None:
        optimizers.append(
            _optimizer(separate, _groups(PROXIES, proxies, separate, separate.lr), fused=fused)
        )
    return optimizers


def set_rates(
    optimizers: Iterable[torch.optim.Optimizer],
    recipe: Recipe,
    epoch: int,
    *,
    step: int = 0,
    in_epoch: int = 1,
) -> dict[str, float]:
    """Set the learning rate of every group for an epoch, counted from 0, and return {group: rate}.
    During the warm-up the body's rate is 0. The schedule begins after the warm-up. Of several
    groups of the body, by depth, the returned rate is that of the last one, next to the output.

    `step` is the number of steps before this one; 0 stands for the first step of the epoch.
    `in_epoch` is the number of steps per epoch. Both are needed for a warm-up that is a share of
    all steps, which may end within an epoch.
    """
    schedule = recipe.schedule
    since_warm_up = max(0, epoch - schedule.warm_up_epochs(recipe.epochs))
    # the factor of the highest rate, 1 … 0
    factor = FACTORS[schedule.name](since_warm_up, recipe.epochs, schedule)
    is_frozen = schedule.is_frozen(max(step, epoch * in_epoch), in_epoch, recipe.epochs)

    rates = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            # only a cosine ends at `lr_min`; a group whose `lr_max` is below `lr_min` keeps
            # `lr_max`
            lowest = min(group["lr_min"], group["lr_max"]) if schedule.name == "cosine" else 0.0
            group["lr"] = lowest + (group["lr_max"] - lowest) * factor
            if is_frozen and group["name"] == BODY:
                group["lr"] = 0.0
            rates[group["name"]] = group["lr"]
    return rates


def clip_gradients(
    optimizers: Iterable[torch.optim.Optimizer], scaler: torch.amp.GradScaler
) -> Tensor:
    """Clip the gradient of every optimiser to the length in its settings, if there is one. Return
    the length () of all gradients together before clipping, on the device. `scaler`: of float16,
    which multiplied the gradients; disabled for other precisions.
    """
    norms = []
    for optimizer in optimizers:
        scaler.unscale_(optimizer)  # in place, so that unscaled gradients are measured and clipped
        weights = [
            weight
            for group in optimizer.param_groups
            for weight in group["params"]
            if weight.grad is not None
        ]
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights])
        if clip := optimizer.param_groups[0]["clip"]:  # the same in all groups of an optimiser
            torch.nn.utils.clip_grads_with_norm_(weights, clip, norm)
        norms.append(norm)

    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return whole


def step_unless(bad: Tensor, optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Take the step of every fused optimiser unless `bad`, a bool () on the device, without making
    the host wait for it.
    """
    for optimizer in optimizers:
        # as torch's GradScaler does: a fused kernel reads these two attributes, and does nothing if
        # `found_inf` is 1
        optimizer.grad_scale, optimizer.found_inf = None, bad.float()  # type: ignore[attr-defined]
        try:
            optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]


def _groups(
    name: str, weights: Iterable[nn.Parameter], settings: Optimizer, rate: float
) -> list[dict[str, Any]]:
    """Make a parameter group for torch from the weights that learn, called `name`, with the highest
    learning rate `rate`. Return it in a list, which is empty if no weight learns. The keys
    `lr_max`, `lr_min` and `clip` are for `set_rates` and `clip_gradients`; torch ignores them."""
    learning = [weight for weight in weights if weight.requires_grad]
    if not learning:
        return []
    group = {
        "params": learning,
        "name": name,
        "weight_decay": settings.weight_decay,
        "clip": settings.clip,
        "lr": rate,
        "lr_max": rate,
        "lr_min": settings.lr_min,
    }
    return [group]


def _groups_of_body(model: EmbeddingModel, settings: Optimizer) -> list[dict[str, Any]]:
    """Make the parameter groups of the backbone: one or, with a `layer_decay` below 1, one for each
    depth. From the output towards the images, the rate is multiplied by `layer_decay` at each
    block: the early blocks of a pretrained net should change least."""
    if settings.layer_decay == 1:
        return _groups(BODY, model.body(), settings, settings.lr)
    depths = list(by_depth(model.backbone))  # from the images to the output
    groups: list[dict[str, Any]] = []
    for depth, weights in enumerate(depths):
        blocks_to_output = len(depths) - 1 - depth
        rate = settings.lr * settings.layer_decay**blocks_to_output
        groups += _groups(BODY, weights, settings, rate)
    return groups


def optimizer_names() -> dict[str, type[torch.optim.Optimizer] | None]:
    """Return {name: class} of the optimisers of torch.optim, and {name: None} of those of
    timm.optim, which timm makes by name, if it is installed. Left out are torch's base class,
    SparseAdam, which needs sparse gradients, and those that need to compute the loss again (LBFGS,
    second order)."""
    classes = {
        name.lower(): each
        for name, each in vars(torch.optim).items()
        if isinstance(each, type)
        and issubclass(each, torch.optim.Optimizer)
        and each not in (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
    }
    names: dict[str, type[torch.optim.Optimizer] | None] = dict(classes)
    with suppress(ImportError):
        others: Any = import_module("timm.optim")
        for name in others.list_optimizers():
            if name not in names and not others.get_optimizer_info(name).second_order:
                names[name] = None
    return names


def _optimizer(
    settings: Optimizer, groups: list[dict[str, Any]], *, fused: bool
) -> torch.optim.Optimizer:
    """Make the optimiser that the settings name. `groups`: parameter groups for torch, which state
    their own learning rate and weight decay. `fused`: update all weights by one kernel. Settings
    that this optimiser does not have are ignored. Raises UnknownName, or ConfigError for an
    optimiser that refuses these weights."""
    names = optimizer_names()
    if settings.name not in names:
        raise UnknownName("optimizer.name", settings.name, names)

    chosen = names[settings.name]
    if chosen is None:  # an optimiser of timm; `lr` changes nothing, since each group has its own
        others: Any = import_module("timm.optim")
        made: torch.optim.Optimizer = others.create_optimizer_v2(
            groups, opt=settings.name, lr=settings.lr, momentum=settings.momentum
        )
        return made

    wanted: dict[str, Any] = {
        "momentum": settings.momentum or None,  # None: leave the optimiser's default
        "nesterov": settings.nesterov or None,
        "fused": fused or None,  # None: let torch choose
    }
    # pass only arguments that are given, and that this optimiser has: not every one has a momentum
    known = inspect.signature(chosen).parameters
    given = {key: value for key, value in wanted.items() if key in known and value is not None}
    try:
        return chosen(groups, **given)
    except ValueError as error:  # such as Muon's for a bias
        raise ConfigError(
            f"optimizer.name={settings.name} cannot be used with this net",
            found=str(error),
            fix="choose another optimiser, such as adamw",
        ) from None


def skips_on_the_device(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimiser can skip a step without the host, as fused kernels can."""
    return bool(optimizer.defaults.get("fused"))
