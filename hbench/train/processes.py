"""Lets several processes train one model (torchrun): each embeds its part of a batch and computes
the loss of the whole batch.

    gradient = mean over processes of Σ_parts ∂L/∂embeddings(part) · ∂embeddings(part)/∂weights

equals the gradient of one process with the whole batch: `gather` passes all gradients of a part
back to its process, and DistributedDataParallel averages.
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
    """The rank of this process, from 0, the number of processes (`world`), and the device of this
    one. The first logs, saves and scores."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that logs, saves and scores for all."""
        return self.rank == 0


SINGLE_PROCESS = Processes(0, 1, torch.device("cpu"))
# the others wait while the first scores; if one dies, torchrun ends all
PATIENCE = timedelta(hours=12)


def world_started() -> int:
    """How many processes torchrun started, this one among them; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_started() -> bool:
    """Whether this process is the first of those that torchrun started, or alone."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_processes(device: str = "auto") -> Iterator[Processes]:
    """Join the processes that torchrun started, within the block, by nccl on GPUs and gloo
    elsewhere; or yield this process alone, where torchrun did not start it. `device`: of torch, or
    "auto" for a GPU if there is one."""
    world = world_started()
    chosen = chosen_device(device)
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
        # The threads of the group end with the last reference to it. That must be here, not in a
        # cycle of garbage or in the frames of a traceback: a thread that frees a tensor while the
        # interpreter exits would abort the process.
        gc.collect()
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    """Gathers the parts of all processes; back, every process gets the gradient of its own part,
    added up over all, since each computes a loss of every part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        """Gather the parts (B/W, …) of all W processes, (B, …), in order of rank."""
        ctx.rows = len(part)
        return _all_gather(part)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Add up the gradients (B, …) of all processes, and return the rows of this one's part."""
        # a copy, since autograd owns the gradient passed in; all_reduce adds up in place
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows]


def gather(part: Tensor, processes: Processes) -> Tensor:
    """Gather the parts (B/W, …) of all W processes in order of rank, (B, …), with their gradient if
    they have one."""
    if processes.world == 1:
        return part
    whole: Tensor = _Gather.apply(part) if part.requires_grad else _all_gather(part)
    return whole


def average_gradients(weights: Sequence[nn.Parameter], processes: Processes) -> None:
    """Average the gradients of weights over the processes, in place: those of a loss, such as
    proxies of classes, which DistributedDataParallel does not know. A weight that no term of the
    loss used has none.
    """
    if processes.world > 1:
        for weight in weights:
            if weight.grad is not None:
                dist.all_reduce(weight.grad)
                weight.grad /= processes.world


def distributed(model: nn.Module, processes: Processes) -> nn.Module:
    """Wrap the model for training by all processes, so that it learns as one with the whole batch:
    batch norms see the whole batch on GPUs, elsewhere they must be frozen (else UsageError).
    """
    if processes.world == 1:
        return model
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if norms and not getattr(model, "freeze_batch_norm", False):
        if processes.device.type != "cuda":
            reason = "batch norms cannot see the batches of other processes on a CPU"
            raise UsageError(reason, fix="--set model.freeze_batch_norm=true, or one process")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    # the buffers, means of batch norms, are the same in all processes anyway
    return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)


def any_of(flag: bool, processes: Processes) -> bool:
    """Whether the flag is true in any process; all processes must ask, and get the same answer."""
    if processes.world == 1:
        return flag
    raised = torch.tensor(int(flag), device=processes.device)
    dist.all_reduce(raised, dist.ReduceOp.MAX)
    return bool(raised)


def gather_objects(value: Any, processes: Processes) -> list[Any]:
    """Collect the values of all processes, anything that can be pickled, in order of rank. Each
    waits here for all the others."""
    if processes.world == 1:
        return [value]
    values: list[Any] = [None] * processes.world
    dist.all_gather_object(values, value)
    return values


def _all_gather(part: Tensor) -> Tensor:
    """The parts (B/W, …) of all W processes, (B, …), in order of rank, without a gradient."""
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts)


def chosen_device(name: str) -> torch.device:
    """The device of this process: "auto" is a GPU if there is one, "cuda" that of its number.

    Raises UsageError where there is none of this name, or several processes would share it.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    with refuse_device(name):
        device = torch.device(name)
        if device.type != "cuda":
            torch.zeros(1, device=device)  # raises where the device is not there
            return device
        if device.index is not None and world_started() > 1:
            expected = "--device cuda, one GPU for each"
            raise UsageError(
                "several processes cannot share one GPU", expected=expected, found=name
            )

        # LOCAL_RANK: this process's number on this machine, by torchrun
        local = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
        torch.cuda.set_device(local)
        return torch.device("cuda", local)
