"""Lets several processes train one model (torchrun): each embeds its part of a batch, and takes the loss of the whole.

    gradient = mean over processes of Σ_parts ∂L/∂embeddings(part) · ∂embeddings(part)/∂weights

is that of one process with the whole batch, since `gather` passes every process's gradient back to where a part came
from and DistributedDataParallel averages.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.nn  # before a group begins: its defaults, bound when it is imported, would keep the group alive
from torch import Tensor, nn

from hbench.core.errors import UsageError


class Processes(NamedTuple):
    """This process's number, how many there are, and its device."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0


ALONE = Processes(0, 1, torch.device("cpu"))
PATIENCE = timedelta(hours=12)  # the others wait while the first scores; torchrun ends them all should one of them die


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """This process among those that torchrun started, or alone; nccl on GPUs, gloo else."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = _device(device)
    if world == 1:
        yield Processes(0, 1, chosen)
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), world, chosen)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        # The group's threads end with the last that holds it: here, not a model left in a cycle or in the frames of a
        # traceback. A thread that lets go of a tensor while the interpreter ends would abort the process.
        gc.collect()
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        ctx.rows = len(part)
        return _all_gather(part)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(
            memory_format=torch.contiguous_format
        )  # what came in is autograd's, not ours to change
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows]


def gather(part: Tensor, processes: Processes) -> Tensor:
    """The parts (B/W, …) of all processes in order of rank, (B, …), with gradient."""
    if processes.world == 1:
        return part
    whole: Tensor = _Gather.apply(part) if part.requires_grad else _all_gather(part)
    return whole


def average_gradients(weights: Sequence[nn.Parameter], processes: Processes) -> None:
    """The mean over processes of the gradients of weights that no DistributedDataParallel holds: the proxies."""
    if processes.world > 1:
        for weight in weights:
            if weight.grad is not None:
                dist.all_reduce(weight.grad)
                weight.grad /= processes.world


def distributed(model: nn.Module, processes: Processes) -> nn.Module:
    """The model as all processes train it; batch norms see the whole batch on GPUs, and must be frozen elsewhere."""
    if processes.world == 1:
        return model
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if norms and not getattr(model, "freeze_batch_norm", False):
        if processes.device.type != "cuda":
            raise UsageError(
                "batch norms cannot see the batches of other processes on a CPU",
                fix="--set model.freeze_batch_norm=true, or one process",
            )
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)


def any_of(flag: bool, processes: Processes) -> bool:
    """Whether the flag is up in any process."""
    if processes.world == 1:
        return flag
    raised = torch.tensor(int(flag), device=processes.device)
    dist.all_reduce(raised, dist.ReduceOp.MAX)
    return bool(raised)


def together(value: Any, processes: Processes) -> list[Any]:
    """Every process's value, in order of rank."""
    if processes.world == 1:
        return [value]
    values: list[Any] = [None] * processes.world
    dist.all_gather_object(values, value)
    return values


def _all_gather(part: Tensor) -> Tensor:
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type != "cuda":
        return device
    if device.index is not None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            "several processes cannot share one GPU", expected="--device cuda, one GPU for each", found=name
        )
    local = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
    torch.cuda.set_device(local)
    return torch.device("cuda", local)
