"""Computes the gradient of a batch's loss, directly or in two passes over parts of the batch.

Two passes (rank losses, [24]): embed all parts without a graph; compute ∂L/∂embeddings; embed each
part again and propagate its rows of that gradient. The gradient is the same, but only the graph of
one part is in memory at a time.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hbench.core.errors import ConfigError
from hbench.losses import build_loss, loss_entry
from hbench.losses import losses as known_losses
from hbench.losses.baselines.rambo import refuse_class_scores
from hbench.losses.entry import REQUIRED
from hbench.losses.partial import leave_unknown_out
from hbench.train.processes import Processes, gather
from hbench.train.recipes.recipe import LossSpec
from hbench.tree import Labels

Scale = Callable[[Tensor], Tensor]  # the gradient scaler of float16
# the loss of a batch and {loss: unweighted term}, detached; a GPU may still be computing them
LossAndTerms = tuple[Tensor, dict[str, Tensor]]
# computes the gradients of a batch's loss with respect to the weights; called like `direct`
TrainStep = Callable[..., LossAndTerms]


def direct(
    embed: nn.Module,
    objective: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    processes: Processes,
    scale: Scale,
) -> LossAndTerms:
    """Compute the gradient with one graph of the whole batch. It is added to the weights' `grad`;
    the loss and its terms are returned, without a graph.

    Args:
        embed: the net, wrapped if several processes train it.
        objective: an `Objective`.
        images: this process's part of the batch, (B/W, C, H, W), of W processes.
        labels: of these images, (B/W, L).
        processes: this process among those that share the batch.
        scale: multiplies the loss before its gradient is computed, for float16.
    """
    embeddings = gather(embed(images), processes)
    total, terms = objective(embeddings, gather(labels, processes))
    scale(total).backward()  # type: ignore[no-untyped-call]
    return _detached(total, terms)


def in_two_passes(part: int) -> TrainStep:
    """Make a function like `direct` that holds the graph of only `part` images at a time: those of
    one piece of this process's part of the batch."""

    def step(
        embed: nn.Module,
        objective: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        processes: Processes,
        scale: Scale,
    ) -> LossAndTerms:
        """Compute the gradient in two passes over the pieces of a batch. It is added to the
        weights' `grad`; the loss and its terms are returned, without a graph.

        `embed`: the net. `objective`: an `Objective`. `images` (B/W, C, H, W), `labels` (B/W, L):
        this process's part of the batch, of W `processes`. `scale`: multiplies the loss before its
        gradient is computed, for float16."""
        # first pass: compute the embeddings of all pieces without a graph
        pieces = torch.split(images, part)
        states = []
        with torch.no_grad():
            vectors = []
            for piece in pieces:
                states.append(_random_state(images.device))
                vectors.append(embed(piece))

        # the loss of the whole batch; its graph starts at `leaf`, whose gradient is ∂L/∂embeddings
        leaf = torch.cat(vectors).requires_grad_()
        total, terms = objective(gather(leaf, processes), gather(labels, processes))
        scale(total).backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        # the second pass goes back to earlier states; this one is restored after it
        after = _random_state(images.device)

        # second pass: embed each piece again, with the same dropout, and propagate its gradient
        for piece, gradient, state in zip(
            pieces, torch.split(leaf.grad, part), states, strict=True
        ):
            _set_random_state(state)
            # the processes average their gradients only once, with the last piece
            with _unshared_gradients(embed) if piece is not pieces[-1] else nullcontext():
                embed(piece).backward(gradient)

        _set_random_state(after)
        return _detached(total, terms)

    return step


def _unshared_gradients(embed: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which a net that several processes train does not average its gradients
    over them after a backward pass."""
    if isinstance(embed, DistributedDataParallel):
        return embed.no_sync()
    return nullcontext()


def _random_state(device: torch.device) -> list[Tensor]:
    """Return the states of the random generators that a net may use, so that both passes have the
    same dropout: torch's default generator, then that of the GPU if `device` is one.
    """
    state = [torch.get_rng_state()]
    if device.type == "cuda":
        state.append(torch.cuda.get_rng_state(device))
    return state


def _set_random_state(state: list[Tensor]) -> None:
    """Restore the states of the random generators that `_random_state` returned."""
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1])


def _detached(total: Tensor, terms: dict[str, Tensor]) -> LossAndTerms:
    """Detach the loss and its terms from their graph, which would keep all activations in
    memory."""
    return total.detach(), {name: term.detach() for name, term in terms.items()}


class Objective(nn.Module):
    """The weighted sum of several losses: forward(embeddings, labels) -> (sum, {loss: unweighted
    term}).
    """

    def __init__(self, losses: Mapping[str, nn.Module], weights: Mapping[str, float]) -> None:
        """Keep the losses and their weights, {name: loss} and {name: weight}."""
        super().__init__()
        self.losses, self.weights = nn.ModuleDict(losses), dict(weights)

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the losses of embeddings (B, D), of length 1, with labels (B, L), coarse to fine.
        Returns their weighted sum and {loss: unweighted term}."""
        terms = {name: loss(embeddings, labels) for name, loss in self.losses.items()}
        for name, term in terms.items():
            _refuse_other_than_scalar(name, term)
            if embeddings.requires_grad and not term.requires_grad:
                raise ConfigError(
                    f"the loss {name!r} has no gradient, so that nothing would be learnt from it",
                    expected="a value that goes back to the embeddings",
                    found="one that was detached, or made of numbers",
                    fix="mend the loss: docs/plugins.md",
                )
        weighted = [self.weights[name] * term for name, term in terms.items()]
        return torch.stack(weighted).sum(), terms


def _refuse_other_than_scalar(name: str, term: object) -> None:
    """Raise ConfigError if a loss, such as one of another package, did not return a scalar tensor.
    `name`: of the loss. `term`: what it returned."""
    if isinstance(term, Tensor) and term.ndim == 0:
        return
    package = known_losses.package_of(name)
    raise ConfigError(
        f"the loss {name!r}{f' of the package {package}' if package else ''} returned no number",
        expected="a tensor without axes",
        found=f"a tensor {tuple(term.shape)}" if isinstance(term, Tensor) else type(term).__name__,
        fix="mend the loss, such as by .mean(): docs/plugins.md",
    )


def build_objective(specs: Mapping[str, LossSpec], labels: Labels, dim: int) -> Objective:
    """Build the losses of a recipe.

    `specs`: {loss: its weight and parameters}. `labels` (N, L): of the training items, coarse to
    fine, −1 for unknown. `dim`: the dimension of the embeddings. Raises UnknownName and ConfigError
    like build_loss, and ConfigError for a loss that needs complete labels if some are unknown.
    """
    facts = facts_of(labels, dim)
    losses = {
        name: build_loss(name, **complete_params(name, spec.params, facts))
        for name, spec in specs.items()
    }
    for loss in losses.values():
        refuse_class_scores(loss)
    if (labels < 0).any():  # then pairs of unknown level are left out
        losses = {name: leave_unknown_out(loss) for name, loss in losses.items()}
    return Objective(losses, {name: spec.weight for name, spec in specs.items()})


def facts_of(labels: Labels, dim: int) -> dict[str, Any]:
    """Collect the facts about the data that losses may need: the number of fine classes, of classes
    at every level, the path of every fine class (coarse to fine), and the dimension. The keys are
    the names of the losses' parameters. `labels` (N, L): of the items, −1 for unknown."""
    counts = [int(labels[:, level].max()) + 1 for level in range(labels.shape[1])]
    # (C, L): the path of the first item for every class, then replaced by the path of any item of
    # the class. A class without items keeps the first item's path, since its own is not known
    paths = labels[:1].repeat(counts[-1], axis=0)
    known = labels[labels[:, -1] >= 0]  # paths that end early belong to no fine class
    paths[known[:, -1]] = known
    return {"classes": counts[-1], "level_classes": counts, "paths": paths.tolist(), "dim": dim}


def complete_params(
    name: str, params: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Add required parameters of a loss that are missing in `params` from the facts about the data,
    {parameter: value}, such as the number of classes. Return all parameters. The loss within `xbm`
    (a memory of former batches) or `per_level`, whose name and parameters are parameters of these,
    is completed as well.
    """
    entry = loss_entry(name)
    missing = [
        key
        for key, default in entry.parameters.items()
        if default is REQUIRED and key not in params
    ]
    from_facts = {key: facts[key] for key in missing if key in facts}
    complete = {**from_facts, **params}
    if name in {"xbm", "per_level"} and "loss" in complete:
        inner, given = complete["loss"], complete.get("params") or {}
        of_inner = facts
        if name == "per_level":  # classes and paths are those of the finest level alone
            of_inner = {"dim": facts["dim"]}
            if loss_entry(inner).parameters.get("classes") is REQUIRED and "classes" not in given:
                complete.setdefault("level_classes", facts["level_classes"])
        complete["params"] = complete_params(inner, given, of_inner)
    return complete
