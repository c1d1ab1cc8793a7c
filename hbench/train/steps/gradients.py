"""Computes the gradient of a step, of the loss of the whole batch, directly or in two passes over
parts of it.

Two passes (rank losses, [24]): embed without a graph; compute ∂L/∂embeddings; embed each part again
and propagate its rows of that gradient. The gradient is the same, but memory holds the graph of one
part at a time.
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
from hbench.losses.entry import REQUIRED
from hbench.losses.partial import leave_unknown_out
from hbench.train.processes import Processes, gather
from hbench.train.recipes.recipe import LossSpec
from hbench.tree import Labels

Scale = Callable[[Tensor], Tensor]  # the gradient scaler of float16
# the loss of a batch, and its unweighted terms by name: detached, and perhaps still being computed
LossAndTerms = tuple[Tensor, dict[str, Tensor]]
# Computes the gradients of a batch's loss in the weights; has the signature of `direct`.
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
    """Compute the gradient with one graph of the whole batch.

    Args:
        embed: the net, as the processes share it.
        objective: an `Objective`.
        images: this process's part of the batch, (B/W, C, H, W), of W processes.
        labels: of these images, (B/W, L).
        processes: this process among those that share the batch.
        scale: what the loss is multiplied by before its gradient is computed.
    """
    embeddings = gather(embed(images), processes)
    total, terms = objective(embeddings, gather(labels, processes))
    scale(total).backward()  # type: ignore[no-untyped-call]
    return _detached(total, terms)


def in_two_passes(part: int) -> TrainStep:
    """Make a step like `direct` with the graph of only `part` images at a time."""

    def step(
        embed: nn.Module,
        objective: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        processes: Processes,
        scale: Scale,
    ) -> LossAndTerms:
        """Compute the gradient of a batch whose graph does not fit in memory, in two passes over
        its pieces; the arguments are those of `direct`."""
        # the first pass keeps vectors alone; the loss of the whole batch gives their gradients
        pieces = torch.split(images, part)
        states = []
        with torch.no_grad():
            vectors = []
            for piece in pieces:
                states.append(_random_state(images.device))
                vectors.append(embed(piece))

        # where the graph of the loss begins: its gradient is ∂L/∂embeddings
        leaf = torch.cat(vectors).requires_grad_()
        total, terms = objective(gather(leaf, processes), gather(labels, processes))
        scale(total).backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        after = _random_state(images.device)

        # the second pass draws the same dropout again, and carries the gradients into the net
        for piece, gradient, state in zip(
            pieces, torch.split(leaf.grad, part), states, strict=True
        ):
            _set_random_state(state)
            # the processes share their gradients once, with those of the last piece
            with _unshared_gradients(embed) if piece is not pieces[-1] else nullcontext():
                embed(piece).backward(gradient)

        _set_random_state(after)
        return _detached(total, terms)

    return step


def _unshared_gradients(embed: nn.Module) -> AbstractContextManager[None]:
    """Keep the gradients of a net in this process within the block, where several train it, in
    place of averaging them over the processes after every pass."""
    if isinstance(embed, DistributedDataParallel):
        return embed.no_sync()
    return nullcontext()


def _random_state(device: torch.device) -> list[Tensor]:
    """Return the state of the generators that a net may draw from, so that both passes drop the
    same units: torch's own, then that of the GPU that computes, if one does.
    """
    state = [torch.get_rng_state()]
    if device.type == "cuda":
        state.append(torch.cuda.get_rng_state(device))
    return state


def _set_random_state(state: list[Tensor]) -> None:
    """Let the generators go on from a state of `_random_state`."""
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1])


def _detached(total: Tensor, terms: dict[str, Tensor]) -> LossAndTerms:
    """Return the loss and its terms by name without their graph, which holds all activations in
    memory."""
    return total.detach(), {name: term.detach() for name, term in terms.items()}


class Objective(nn.Module):
    """forward(embeddings, labels) -> the weighted sum of losses, and every loss by name,
    unweighted.
    """

    def __init__(self, losses: Mapping[str, nn.Module], weights: Mapping[str, float]) -> None:
        """Losses and their weights, by the same names."""
        super().__init__()
        self.losses, self.weights = nn.ModuleDict(losses), dict(weights)

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the losses of embeddings (B, D), of length 1, with labels (B, L), coarse to fine.
        Returns the sum, each times its weight, and the terms by name, unweighted."""
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
    """Raise ConfigError for what is no number of torch, as a loss of another package may return.
    `name`: of the loss."""
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
    """Build the losses of a recipe for training labels (N, L), coarse to fine, −1 where nothing is
    known, and embeddings of `dim` dimensions.

    Raises UnknownName and ConfigError like build_loss, and ConfigError for a loss that needs every
    label. `specs`: by the names of the losses.
    """
    facts = facts_of(labels, dim)
    losses = {
        name: build_loss(name, **complete_params(name, spec.params, facts))
        for name, spec in specs.items()
    }
    if (labels < 0).any():
        losses = {name: leave_unknown_out(loss) for name, loss in losses.items()}
    return Objective(losses, {name: spec.weight for name, spec in specs.items()})


def facts_of(labels: Labels, dim: int) -> dict[str, Any]:
    """Collect what losses need to know about the data: numbers of classes, fine and at every level;
    the path of every fine class, coarse to fine, which is the first item's for a class without
    items; dimension."""
    counts = [int(labels[:, level].max()) + 1 for level in range(labels.shape[1])]
    # (C, L): the path of the first item for every fine class, replaced by the class's own where it
    # has items, of which any serves
    paths = labels[:1].repeat(counts[-1], axis=0)
    known = labels[labels[:, -1] >= 0]  # paths that end early are of no fine class
    paths[known[:, -1]] = known
    return {"classes": counts[-1], "level_classes": counts, "paths": paths.tolist(), "dim": dim}


def complete_params(
    name: str, params: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Complete the `params` of the loss `name` by those that it requires and the facts have: by
    name, what the dataset and the net say, such as the number of classes. Likewise for the loss
    inside `xbm`, a memory of former batches, which has that loss's name and params among its own.
    """
    entry = loss_entry(name)
    missing = [
        key
        for key, default in entry.parameters.items()
        if default is REQUIRED and key not in params
    ]
    from_facts = {key: facts[key] for key in missing if key in facts}
    complete = {**from_facts, **params}
    if name == "xbm" and "loss" in complete:
        complete["params"] = complete_params(complete["loss"], complete.get("params", {}), facts)
    return complete
