"""Memory of a graphics card that is used again and again: arrays of one shape that are filled anew
for every share of the queries.

To make an array known to a kernel takes the host as long as to start one, so it is done once.
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
ALIGNED = 16  # bytes to whole multiples of which arrays are filled up
DTYPES = {name: getattr(torch, name) for name in ("uint8", "int32", "int64", "float32", "float64")}


def free_bytes(device: torch.device) -> int:
    """The bytes that a device has free; for the simulator a number for which nothing is split: a
    share takes a third of it at most, which is ROWS_BYTES."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 3 * ROWS_BYTES


def on_card(tensor: Tensor) -> Any:
    """The tensor's own memory, not a copy, as an array that kernels accept: a card array of numba,
    or one of numpy for the simulator."""
    # sync=False: kernels and torch's copies queue on one stream, so there is nothing to wait for
    return tensor.numpy() if IS_SIMULATED else cuda.as_cuda_array(tensor, sync=False)


def fetched(tensor: Tensor) -> Tensor:
    """A copy of a tensor in the host's memory, which the device fills in while the host goes on: it
    may be read only once the device has been waited for."""
    return tensor.to("cpu", non_blocking=True)


class Staged:
    """Arrays on the device, which travel there in one piece.

    `arrays`: of the same types and, but for the first axis, shapes as those that it is made from;
    the first axis holds `queries`. `packed` (bytes,): the memory in which they lie, one behind
    another; `places`: the bytes of each one's part of it, with what fills it up.
    """

    def __init__(
        self, like: Sequence[NDArray[Any]], queries: int | None, device: torch.device
    ) -> None:
        """`like`: arrays of the wanted types and shapes; `queries`: the length of the first axis of
        each, None for their own length.

        All arrays lie in one piece of bytes, `packed`, so that one copy sends them all.
        """
        shapes = [each.shape if queries is None else (queries, *each.shape[1:]) for each in like]
        sizes = [
            int(np.prod(shape)) * each.itemsize for shape, each in zip(shapes, like, strict=True)
        ]
        # bytes from one array to the next, rounded up: each begins at a multiple of ALIGNED
        self.places = [-(-size // ALIGNED) * ALIGNED for size in sizes]
        self.packed = torch.empty(sum(self.places), dtype=torch.uint8, device=device)
        # views into the bytes, each of its type and shape, without the rest up to the next
        self.arrays = [
            part[:size].view(DTYPES[each.dtype.name]).view(shape)
            for part, size, shape, each in zip(
                torch.split(self.packed, self.places), sizes, shapes, like, strict=True
            )
        ]

    def fill(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Copy these arrays (n, …) of the host to the first n rows of the device's.

        The copy is only queued and may arrive after this returns; kernels that are started later
        find it done.
        """
        # pinned memory: only from there can the card copy while the host goes on
        # `places`: the bytes of each array's part, in the same order
        on_host = torch.empty(
            sum(self.places), dtype=torch.uint8, pin_memory=self.packed.device.type == "cuda"
        )
        for part, array in zip(torch.split(on_host, self.places), arrays, strict=True):
            part.numpy()[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.packed.copy_(on_host, non_blocking=True)


def sent(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Copies of the arrays on the device, which need not be there yet when this returns: what the
    device does next with them waits for them by itself."""
    staged = Staged(arrays, queries=None, device=device)
    staged.fill(arrays)
    return staged.arrays
