"""Losses on the device against float64 on the processor: in float32, under autocast, compiled; and
how long they take.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gpu_parts.rows import Row, Sizes, failed, seconds_of, tree_of
from hbench.losses import build_loss, losses
from hbench.train.steps.gradients import complete_params, facts_of

NESTED = {"loss": "sup_ap", "size": 512}  # what losses around a loss need


def of_losses(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Rows of every loss: the relative difference of its value, or of its gradient where that is
    larger.
    """
    labels = tree_of(sizes.batch)
    facts = {**facts_of(labels, sizes.dim), **NESTED}
    generator = torch.Generator().manual_seed(0)
    leaf = nn.functional.normalize(
        torch.randn(sizes.batch, sizes.dim, generator=generator, dtype=torch.float64)
    )
    ours = leaf.float().to(device)
    bare = seconds_of(partial(_differentiated, lambda x, _: (x @ x.T).sum(), ours, ours), device)
    for name in losses:
        # RaMBO's mAP over classes takes a score of every class, and which of them are in the image.
        ids = (leaf > 0.1).long() if name == "rambo_map_classes" else torch.from_numpy(labels)
        try:
            yield from _of_loss(name, (leaf, ids, facts), device, bare)
        except Exception as error:
            yield failed(f"loss, {name}", error)
    if device.type == "cuda":
        yield from _rank_loss_times(device)


def _of_loss(
    name: str, on: tuple[Tensor, Tensor, dict[str, Any]], device: torch.device, bare: float
) -> Iterator[Row]:
    leaf, ids, facts = on
    torch.manual_seed(0)
    params = complete_params(name, {}, facts)
    if "loss" in params:
        params["params"] = complete_params(params["loss"], {}, facts)
    single = build_loss(name, **params)
    slow, half = copy.deepcopy(single).double(), copy.deepcopy(single)
    fast, again = copy.deepcopy(single).to(device), copy.deepcopy(single).to(device)
    compiled_loss = torch.compile(copy.deepcopy(single).to(device))
    ours = leaf.float().to(device)

    wanted = _differentiated(slow, leaf, ids)
    found = _differentiated(fast, ours, ids.to(device))
    own = _relative(wanted, _differentiated(single, leaf.float(), ids))
    taken = seconds_of(partial(_differentiated, fast, ours, ids.to(device)), device)
    jump = _moved_by_rounding(slow, wanted, leaf, ids)
    note = f"processor in float32 {own:.0e}; float64 moved by rounding {jump:.0e}"
    yield Row(
        f"loss, {name}", _relative(wanted, found), max(1e-5, 3 * own, 2 * jump), taken, bare, note
    )

    whole = _differentiated(half.double(), leaf.bfloat16().double(), ids)
    with torch.autocast(device.type, torch.bfloat16):
        in_half = _differentiated(again, leaf.to(device, torch.bfloat16), ids.to(device))
    # The gradient comes back in bfloat16, whose steps are 2^-8.
    yield Row(f"bfloat16, {name}", _relative(whole, in_half), 2e-2)
    torch.manual_seed(0)
    compiled_values = _differentiated(compiled_loss, ours, ids.to(device))
    yield Row(
        f"compiled, {name}",
        _relative(found, compiled_values),
        1e-6 if device.type == "cpu" else 1e-5,
    )


def _moved_by_rounding(
    loss: nn.Module, wanted: tuple[Tensor, Tensor], leaf: Tensor, ids: Tensor
) -> float:
    """How far the loss in float64 moves if vectors move as float32 rounds scores: where two scores
    change places, an exact step makes the gradient jump."""
    if any(True for _ in loss.buffers()):
        return 0.0  # a memory of batches would not be the same any more
    noise = torch.Generator().manual_seed(1)
    step = 1e-7 / leaf.shape[1] ** 0.5
    draws = [
        leaf + step * torch.randn(leaf.shape, generator=noise, dtype=torch.float64)
        for _ in range(6)
    ]
    return max(_relative(wanted, _differentiated(loss, moved, ids)) for moved in draws)


def _relative(wanted: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor]) -> float:
    """The largest relative difference of value and gradient; infinite where one is not finite."""
    pairs = [(a.cpu().double(), b.cpu().double()) for a, b in zip(wanted, found, strict=True)]
    apart = [float((a - b).norm() / a.norm().clamp(min=1e-9)) for a, b in pairs]
    return max(each if math.isfinite(each) else math.inf for each in apart)


def _rank_loss_times(device: torch.device) -> Iterator[Row]:
    """A rank loss, forward and backward, by the size of the batch."""
    for batch in (256, 1024, 4096):
        labels = torch.from_numpy(tree_of(batch)).to(device)
        x = nn.functional.normalize(torch.randn(batch, 512, device=device))
        for name in ("sup_hap", "sup_ap", "smooth_ap"):
            loss = build_loss(name).to(device)
            torch.cuda.reset_peak_memory_stats()
            taken = seconds_of(partial(_differentiated, loss, x, labels), device, 5)
            memory = torch.cuda.max_memory_allocated() / 2**20
            bare = seconds_of(
                partial(_differentiated, lambda x, _: (x @ x.T).sum(), x, x), device, 5
            )
            yield Row(f"{name}, batch {batch}", 0.0, 0.0, taken, bare, f"{memory:,.0f} MB")


def _differentiated(
    loss: Callable[[Tensor, Tensor], Tensor], at: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss's value and gradient; margins that are drawn are the same ones each time."""
    torch.manual_seed(0)
    x = at.clone().requires_grad_()
    value = loss(x, labels)
    (gradient,) = torch.autograd.grad(value, x, allow_unused=True)
    return value.detach(), torch.zeros_like(x) if gradient is None else gradient
