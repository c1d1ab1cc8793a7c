"""Finds the blocks that a net is a stack of: what a rate per depth, and computing activations again
instead of keeping them, go by.

>>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 1))
>>> [len(weights) for weights in by_depth(net)]
[2, 2, 2]
"""

from collections.abc import Iterator
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def blocks_of(net: nn.Module) -> list[nn.Module]:
    """Return the parts with weights of the longest list or sequence of parts in a net, the
    outermost of equally long ones; the net itself where it has none."""
    stacks = [
        _with_weights(module)
        for module in net.modules()
        if isinstance(module, (nn.Sequential, nn.ModuleList))
    ]
    return max(stacks, key=len, default=[]) or [net]


def _with_weights(stack: nn.Module) -> list[nn.Module]:
    """Return the direct parts of a stack that have weights: a ReLU or a pooling is no block."""
    return [part for part in stack.children() if next(part.parameters(), None) is not None]


def by_depth(net: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Yield the weights of a net in groups from its input to its output: what comes before the
    blocks, every block, what comes after them."""
    blocks = blocks_of(net)
    of_block: dict[nn.Parameter, int] = {}
    for number, block in enumerate(blocks):
        of_block |= dict.fromkeys(block.parameters(), number)
    # group 0: before the blocks; 1 … n: the n blocks; n + 1: after them
    groups: list[list[nn.Parameter]] = [[] for _ in range(len(blocks) + 2)]
    has_begun = False  # whether a weight of a block has come
    for weight in net.parameters():  # in the order in which the net names its parts
        has_begun |= weight in of_block
        outside = len(blocks) if has_begun else -1  # the "block" of a weight that is in none
        groups[1 + of_block.get(weight, outside)].append(weight)
    yield from (group for group in groups if group)


def recompute(net: nn.Module) -> None:
    """Let every block of a net keep no activations for the gradient, but compute them again then:
    less memory, for a second forward pass. The net is changed in place."""
    for block in blocks_of(net):
        again = partial(checkpoint, block.forward, use_reentrant=False)
        block.forward = again  # type: ignore[method-assign]
