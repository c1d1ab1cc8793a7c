"""Trains one model with several processes (torchrun): each process embeds its part of a batch, and
computes the loss of the whole batch.

    gradient = mean over processes of Σ_parts ∂L/∂embeddings(part) · ∂embeddings(part)/∂weights

This equals the gradient of one process with the whole batch: `gather` sends the gradients of a part
from all processes back to the process of that part, and DistributedDataParallel averages.
"""

import gc
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

# imported before a group exists, which its default arguments would otherwise keep alive
import torch.distributed.nn
from torch import Tensor, nn

from hbench.core.errors import UsageError
from hbench.engine.executors.devices import refuse_device


class Processes(NamedTuple):
    """The processes of a training. `rank`: of this process, from 0. `world`: their number.
    `device`: of this process. The first process logs, saves and scores."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that logs, saves and scores for all."""
        return self.rank == 0


SINGLE_PROCESS = Processes(0, 1, torch.device("cpu"))
# how long processes wait for the first one, which scores; if one dies, torchrun ends all of them
PATIENCE = timedelta(hours=12)


def world_started() -> int:
    """Return the number of processes that torchrun started, including this one; 1 without
    torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_started() -> bool:
    """Whether this process is the first one of torchrun, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_processes(device: str = "auto") -> Iterator[Processes]:
    """Join the group of processes that torchrun started for the duration of the block, with nccl on
    GPUs and gloo elsewhere, and yield the rank, number and device of processes. Without torchrun
    yield this process alone, of rank 0. `device`: of torch, or "auto" for a GPU if there is one."""
    world = world_started()
    chosen = chosen_device(device)
    if world == 1:
        yield Processes(rank=0, world=1, device=chosen)
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(rank=dist.get_rank(), world=world, device=chosen)
    except BaseException as error:
        # frames may refer to the group, which has to be freed below
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        # The group's threads end with the last reference to it, which must happen here. References
        # in garbage cycles or in the frames of a traceback would keep them until the interpreter
        # exits, and a thread that frees a tensor then would abort the process.
        gc.collect()
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    """Gathers the parts of all processes. In the backward pass each process gets the gradient of
    its own part, summed over all processes, since each of them computes a loss of every part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        """Gather the parts (B/W, …) of all W processes into (B, …), in order of rank."""
        ctx.rows = len(part)
        return _all_gather(part)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Sum the gradients (B, …) of all processes, and return the rows of this process's part."""
        # copied, since all_reduce works in place and autograd owns the gradient passed in
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows]


def gather(part: Tensor, processes: Processes) -> Tensor:
    """Gather the parts (B/W, …) of all W processes into (B, …), in order of rank. Gradients flow
    back if the parts require them."""
    if processes.world == 1:
        return part
    whole: Tensor = _Gather.apply(part) if part.requires_grad else _all_gather(part)
    return whole


def average_gradients(weights: Sequence[nn.Parameter], processes: Processes) -> None:
    """Average the gradients of weights over the processes, in place. It is needed for the weights
    of losses, such as proxies of classes, which DistributedDataParallel does not handle.
    """
    if processes.world > 1:
        for weight in weights:
            if weight.grad is not None:  # None: the loss did not use this weight
                dist.all_reduce(weight.grad)
                weight.grad /= processes.world


def distributed(model: nn.Module, processes: Processes) -> nn.Module:
    """Wrap the model for training by all processes, so that it learns like a single process with
    the whole batch. On GPUs batch norms are synchronised over the whole batch. Elsewhere they have
    to be frozen (the model's `freeze_batch_norm`); UsageError is raised otherwise.
    """
    if processes.world == 1:
        return model
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if norms and not getattr(model, "freeze_batch_norm", False):
        if processes.device.type != "cuda":
            reason = "batch norms cannot see the batches of other processes on a CPU"
            raise UsageError(reason, fix="--set model.freeze_batch_norm=true, or one process")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    # buffers (running means of batch norms) need no broadcast: synchronised or frozen, they are
    # equal in all processes
    return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)


def any_of(flag: bool, processes: Processes) -> bool:
    """Whether the flag is true in any process. All processes have to call this, and get the same
    answer."""
    if processes.world == 1:
        return flag
    raised = torch.tensor(int(flag), device=processes.device)
    dist.all_reduce(raised, dist.ReduceOp.MAX)
    return bool(raised)


def gather_objects(value: Any, processes: Processes) -> list[Any]:
    """Collect the values of all processes, in order of rank. A value can be anything that can be
    pickled. Each process waits here for all others."""
    if processes.world == 1:
        return [value]
    values: list[Any] = [None] * processes.world
    dist.all_gather_object(values, value)
    return values


def _all_gather(part: Tensor) -> Tensor:
    """Gather the parts (B/W, …) of all W processes into (B, …), in order of rank, without
    gradients."""
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts)


def chosen_device(name: str) -> torch.device:
    """Return the device of this process. "auto" is a GPU if there is one, else the CPU; "cuda" is
    the GPU with this process's number on the machine.

    Raises UsageError if there is no such device, or if several processes would share it.
    refuse_device turns torch's error, for a wrong name or a lacking device, into UsageError.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    with refuse_device(name):
        device = torch.device(name)
        if device.type != "cuda":
            torch.zeros(1, device=device)  # raises if the device does not exist
            return device
        if device.index is not None and world_started() > 1:
            expected = "--device cuda, one GPU for each"
            raise UsageError(
                "several processes cannot share one GPU", expected=expected, found=name
            )

        # torchrun sets LOCAL_RANK to the number of this process on this machine
        local = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
        torch.cuda.set_device(local)
        return torch.device("cuda", local)
