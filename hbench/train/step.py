"""One training step: the gradient of the whole batch's loss, directly or in two passes over parts of it.

Two passes ([24] in [T]): embed without a graph; take ∂L/∂embeddings; embed each part again and push its rows of that
gradient through. The gradient is the same, and only one part's graph is held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hbench.train.processes import Processes, gather

Scale = Callable[[Tensor], Tensor]  # the gradient scaler of float16


class Outcome(NamedTuple):
    """The loss and its terms, detached."""

    total: Tensor
    terms: dict[str, Tensor]


class Step(Protocol):
    """Leaves the gradients of a batch's loss in the weights; this process has images and labels (B/W, …) of it."""

    def __call__(
        self,
        embed: nn.Module,
        objective: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        processes: Processes,
        scale: Scale,
    ) -> Outcome: ...


def direct(
    embed: nn.Module, objective: nn.Module, images: Tensor, labels: Tensor, *, processes: Processes, scale: Scale
) -> Outcome:
    """The gradient by one graph of the whole batch."""
    embeddings = gather(embed(images), processes)
    total, terms = objective(embeddings, gather(labels, processes))
    if torch.isfinite(total):
        scale(total).backward()  # type: ignore[no-untyped-call]
    return _detached(total, terms)


def in_two_passes(part: int) -> Step:
    """`direct` with the graph of only `part` images at a time."""

    def step(
        embed: nn.Module, objective: nn.Module, images: Tensor, labels: Tensor, *, processes: Processes, scale: Scale
    ) -> Outcome:
        pieces = torch.split(images, part)
        states = []
        with torch.no_grad():
            vectors = []
            for piece in pieces:
                states.append(_random_state(images.device))
                vectors.append(embed(piece))
        own = torch.cat(vectors).requires_grad_()
        total, terms = objective(gather(own, processes), gather(labels, processes))
        if not torch.isfinite(total):
            return _detached(total, terms)
        scale(total).backward()  # type: ignore[no-untyped-call]
        assert own.grad is not None
        after = _random_state(images.device)
        for last, piece, gradient, state in _parts(pieces, torch.split(own.grad, part), states):
            _set_random_state(state)
            with nullcontext() if last else _unsynchronised(embed):
                embed(piece).backward(gradient)
        _set_random_state(after)
        return _detached(total, terms)

    return step


def _parts(
    pieces: tuple[Tensor, ...], gradients: tuple[Tensor, ...], states: list[list[Tensor]]
) -> Iterator[tuple[bool, Tensor, Tensor, list[Tensor]]]:
    for number, (piece, gradient, state) in enumerate(zip(pieces, gradients, states, strict=True), start=1):
        yield number == len(pieces), piece, gradient, state


def _unsynchronised(embed: nn.Module) -> AbstractContextManager[None]:
    """Gradients stay in this process until the last part."""
    if isinstance(embed, nn.parallel.DistributedDataParallel):
        synced: AbstractContextManager[None] = embed.no_sync()
        return synced
    return nullcontext()


def _random_state(device: torch.device) -> list[Tensor]:
    """The generators a net may draw from, so that both passes drop the same units."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1])


def _detached(total: Tensor, terms: dict[str, Tensor]) -> Outcome:
    return Outcome(total.detach(), {name: term.detach() for name, term in terms.items()})
