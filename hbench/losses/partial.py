"""Makes losses leave out pairs of unknown level, for partial labels.

Labels that end above the finest level have −1 below their end. A pair whose labels agree until one
of them ends may have any level from there on. It is left out of the lists and pairs of a loss, so
that it affects neither value nor gradient. A loss does so by itself in a batch with −1;
`leave_unknown_out` tells before the first batch whether a loss can.

>>> import torch
>>> from hbench.losses import build_loss
>>> loss, x = (
...     leave_unknown_out(build_loss("contrastive")),
...     torch.tensor([[1.0, 0.0], [0.9, 0.4]], requires_grad=True),
... )
>>> loss(
...     x, torch.tensor([[0, 0], [0, -1]])
... ).backward()  # two of a genus, the species of one is unknown
>>> x.grad.abs().max().item()
0.0
"""

from collections.abc import Iterator

import numpy as np
from torch import nn

from hbench.losses.baselines.decomposability import WeightedSum
from hbench.losses.batch_loss import BatchLoss, needs_every_label
from hbench.losses.wrappers import CrossBatchMemory, PerLevel
from hbench.tree import Labels, LabelTree
from hbench.tree.partial import known_levels

CONTAINERS = (CrossBatchMemory, PerLevel, WeightedSum, nn.ModuleList)


def unknown_as_minus_one(labels: Labels, tree: LabelTree) -> Labels:
    """The labels (N, L) of a tree, with −1 at levels at which an item is not known."""
    # (N,): how many levels of each item are known
    known = known_levels(tree)[labels[:, -1]]
    return np.where(np.arange(labels.shape[1]) < known[:, None], labels, np.int32(-1))


def leave_unknown_out(loss: nn.Module) -> nn.Module:
    """Make a loss leave out the pairs of unknown level, and return the loss.

    Raises ConfigError for a loss that cannot do so: a loss with proxies or with mixed items needs
    the finest class of every item.
    """
    for part in _losses_in(loss):
        if not (isinstance(part, BatchLoss) and part.takes_partial):
            raise needs_every_label(part)
    # Wrappers are made partial, too. A partial loss refuses the pairs of a miner, since these may
    # use unknown labels, and it is the outermost wrapper that gets a miner's pairs.
    for module in loss.modules():
        if isinstance(module, BatchLoss):
            module.partial = True
    return loss


def _losses_in(loss: nn.Module) -> Iterator[nn.Module]:
    """Yield the losses inside a loss, or the loss itself if it wraps none."""
    if not isinstance(loss, CONTAINERS):
        yield loss
        return
    for child in loss.children():
        yield from _losses_in(child)
