"""Finds the blocks of which a net is a stack. Learning rates by depth, and recomputing activations
instead of keeping them, are applied block by block.

>>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 1))
>>> [len(weights) for weights in by_depth(net)]
[2, 2, 2]
"""

from collections.abc import Iterator
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks_of(net: nn.Module) -> list[nn.Module]:
    """Return the blocks of a net: the parts with weights of its longest ModuleList or Sequential,
    the outermost of equally long ones. The net itself is the only block if it has none."""
    stacks = [  # for each stack: its direct parts that have weights
        _with_weights(module)
        for module in net.modules()
        if isinstance(module, (nn.Sequential, nn.ModuleList))
    ]
    # `modules` lists an outer module before its parts, and `max` keeps the first of equal lengths
    return max(stacks, key=len, default=[]) or [net]


def _with_weights(stack: nn.Module) -> list[nn.Module]:
    """Return the direct parts of a stack that have weights; a ReLU or a pooling is no block."""
    return [part for part in stack.children() if next(part.parameters(), None) is not None]


def by_depth(net: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Yield the weights of a net in groups from its input to its output: those before the blocks,
    those of each block, and those after the blocks. Groups without weights are left out."""
    blocks = blocks_of(net)
    of_block: dict[nn.Parameter, int] = {}
    for number, block in enumerate(blocks):
        of_block |= dict.fromkeys(block.parameters(), number)
    # group 0: before the blocks; 1 … n: the n blocks; n + 1: after them
    groups: list[list[nn.Parameter]] = [[] for _ in range(len(blocks) + 2)]
    has_begun = False  # whether a weight of some block has been seen
    for weight in net.parameters():  # in the order in which the net registered its parts
        has_begun |= weight in of_block
        outside = len(blocks) if has_begun else -1  # leads to group n + 1, or 0, below
        groups[1 + of_block.get(weight, outside)].append(weight)
    yield from (group for group in groups if group)


def recompute(net: nn.Module) -> None:
    """Make every block of a net recompute its activations for the gradient instead of keeping them.
    This saves memory at the cost of a second forward pass. The net is changed in place."""
    for block in blocks_of(net):
        again = partial(checkpoint, block.forward, use_reentrant=False)
        block.forward = again  # type: ignore[method-assign]
