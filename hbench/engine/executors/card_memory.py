"""Memory of a graphics card that is used again and again: arrays of fixed shapes that are filled
anew for each share of the queries.

Wrapping an array for a kernel takes the host as long as starting the kernel, so it is done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hbench.engine.kernels.card.compiling import IS_SIMULATED, cuda

ROWS_BYTES = 5 << 29  # for rows that are ranked at once, unless one block takes more
ALIGNED = 16  # arrays begin at multiples of this many bytes
DTYPES = {name: getattr(torch, name) for name in ("uint8", "int32", "int64", "float32", "float64")}


def free_bytes(device: torch.device) -> int:
    """The bytes that a device has free. For the simulator, a number that limits nothing: shares of
    the rows take at most a third of the free bytes, and at most ROWS_BYTES anyway."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 3 * ROWS_BYTES


def for_kernel(tensor: Tensor) -> Any:
    """The tensor as an array that kernels accept, in the same memory: an array of numba.cuda, or of
    numpy for the simulator."""
    # sync=False: kernels and torch's copies are queued on one stream, so no wait is needed
    return tensor.numpy() if IS_SIMULATED else cuda.as_cuda_array(tensor, sync=False)


def fetched(tensor: Tensor) -> Tensor:
    """A copy of a tensor in the host's memory. The copy is only queued: read it after the device
    has been waited for."""
    return tensor.to("cpu", non_blocking=True)


class Staged:
    """Arrays on the device that are sent there in one copy.

    `arrays`: the arrays, as tensors. `packed` (bytes,): their common memory, in which they are
    stored one after another. `places`: the number of bytes from each array to the next.
    """

    def __init__(
        self, like: Sequence[NDArray[Any]], queries: int | None, device: torch.device
    ) -> None:
        """Allocate arrays of the types and shapes of the arrays `like`, whose first axis is that of
        the queries. `queries`: the length of this axis in each new array, None for the length that
        it has in `like`."""
        shapes = [each.shape if queries is None else (queries, *each.shape[1:]) for each in like]
        sizes = [
            int(np.prod(shape)) * each.itemsize for shape, each in zip(shapes, like, strict=True)
        ]
        # sizes rounded up, so that each array begins at a multiple of ALIGNED bytes and can be
        # viewed as its type
        self.places = [-(-size // ALIGNED) * ALIGNED for size in sizes]
        self.packed = torch.empty(sum(self.places), dtype=torch.uint8, device=device)
        # views into the bytes, each with its type and shape; [:size] drops the bytes that fill up
        self.arrays = [
            part[:size].view(DTYPES[each.dtype.name]).view(shape)
            for part, size, shape, each in zip(
                torch.split(self.packed, self.places), sizes, shapes, like, strict=True
            )
        ]

    def fill(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Copy these arrays (n, …) of the host to the first n rows of the device's arrays.

        The copy is only queued and may arrive after this returns. Kernels that are started later
        find it done.
        """
        # Memory of the host with the layout of `packed`: array i takes `places[i]` bytes, one after
        # another. It is pinned: only from there can the card copy while the host goes on.
        on_host = torch.empty(
            sum(self.places), dtype=torch.uint8, pin_memory=self.packed.device.type == "cuda"
        )
        for part, array in zip(torch.split(on_host, self.places), arrays, strict=True):
            part.numpy()[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.packed.copy_(on_host, non_blocking=True)


def sent(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Copies of the arrays on the device. The copy is only queued, but whatever the device does
    with the arrays later is queued after it."""
    staged = Staged(arrays, queries=None, device=device)
    staged.fill(arrays)
    return staged.arrays
