"""What hbench offers for a training loop of your own: a loss with the labels of a dataset, and the
whole batch where several processes share it.

>>> loss, labels = build_loss_for("glyphs", "happier", 64)
>>> labels["latin/lu/0042/DejaVuSans.png"]  # coarse to fine
tensor([  4,   8, 242, 370])
>>> loss.losses[1].weight.shape  # one proxy per class of the finest level
torch.Size([745, 64])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hbench.core.arguments import checked, checked_class
from hbench.core.errors import DataError, UsageError, examples
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.losses.partial import unknown_as_minus_one
from hbench.train.processes import Processes, gather
from hbench.train.recipes.recipe import LossSpec
from hbench.train.records.refusals import refuse_several
from hbench.train.steps.gradients import build_objective

# the most axes of a part of a batch: shapes are filled up to this length to be compared
MOST_AXES = 8


@checked_class
class LabelsById:
    """The labels of training items, int64, coarse to fine, −1 where nothing is known.

    `labels[item]` is (L,), what the `__getitem__` of a torch dataset returns beside the image;
    `labels.of(items)` is (B, L).

    Attributes:
        items: the ids, N of them.
        table: int64 (N, L), in the order of `items`, which is that of the manifest.
        paths: int64 (C, L), the labels of every class of the finest level.
    """

    def __init__(self, items: Sequence[str], table: Tensor, paths: Tensor) -> None:
        """Take the ids (N), labels (N, L) and paths of classes (C, L)."""
        self.items = tuple(items)
        self.table = table
        self.paths = paths
        self._row = {item: row for row, item in enumerate(self.items)}

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<LabelsById: {len(self):,} items, {self.table.shape[1]} levels>"

    def __contains__(self, item: object) -> bool:
        return item in self._row

    @checked
    def __getitem__(self, item: str) -> Tensor:
        """The labels (L,) of an item; raises UsageError for one that is not a training item."""
        return self.of([item])[0]

    @checked
    def of(self, items: Sequence[str]) -> Tensor:
        """Look up the labels of a batch.

        Args:
            items: ids of training items, B of them, as the manifest has them.

        Returns:
            int64 (B, L).

        Raises:
            UsageError: an id that no training item has.
        """
        unknown = [item for item in items if item not in self._row]
        if unknown:
            raise UsageError(
                f"{len(unknown):,} of {len(items):,} ids are not those of training items",
                expected=f"ids such as {examples(self.items, most=2)}",
                found=examples(unknown, most=2),
                fix="give the ids as the training manifest has them (labels.items lists them)",
            )
        # `table` has the labels of all training items, (N, L), and `_row` the row of each item
        return self.table[[self._row[item] for item in items]]


@checked
def build_loss_for(
    dataset: str | Path | Dataset | Manifest,
    name: str,
    dim: int,
    params: Mapping[str, Any] | None = None,
) -> tuple[nn.Module, LabelsById]:
    """Build a loss for the training items of a dataset, with their labels.

    The numbers of classes and their paths are taken from the dataset, as in `hbench train`. Pairs
    of unknown level, where labels end early, are left out.

    Args:
        dataset: a name, a folder, a table with a column split, what `hbench.load` returns, or a
            manifest of your own training split.
        name: one of `hbench.list_losses()`.
        dim: of the embeddings, D.
        params: replace the defaults of the loss's parameters, which `hbench losses NAME` lists.
            Default: none.

    Returns:
        The loss, an nn.Module with forward(embeddings (B, D), labels int64 (B, L)) -> scalar, and
        the labels of the training items by id.

    Raises:
        UnknownName: a dataset or loss that does not exist.
        DataError: a dataset without training items, or whose items have several paths.
        UsageError: params that are not a mapping.
        ConfigError: a parameter that the loss does not have or cannot use, or a loss that needs
            every label where some end early.
    """
    manifest = dataset if isinstance(dataset, Manifest) else _training_manifest(dataset)
    refuse_several(manifest)
    if not isinstance(params, Mapping | None):
        expected = '{"parameter": value}'
        raise UsageError("params is not a mapping", expected=expected, found=repr(params))

    # (N, L): with −1 where a label ends early, by which the loss leaves out pairs of unknown level
    labels = unknown_as_minus_one(manifest.labels, manifest.tree)
    spec = LossSpec(params=dict(params or {}))
    loss = build_objective({name: spec}, labels, dim).losses[name]

    paths = unknown_as_minus_one(manifest.tree.paths, manifest.tree)
    table = torch.from_numpy(labels.astype(np.int64))  # (N, L)
    paths_of_classes = torch.from_numpy(paths.astype(np.int64))  # (C, L)
    return loss, LabelsById(manifest.items.tolist(), table, paths_of_classes)


def _training_manifest(dataset: str | Path | Dataset) -> Manifest:
    """Return the manifest of a dataset's training items; raises DataError if it has none.
    `dataset`: a name, a folder, a table, or a loaded dataset."""
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    if data.train is None:
        raise DataError(
            f"{data.name} has no training items",
            expected="a dataset with a training split, or a table with a column split",
            fix='give the manifest to train on, such as hbench.load(NAME).tests["test"] of a table '
            "that holds training items alone",
        )
    return data.train


@checked
def gather_batch(part: Tensor) -> Tensor:
    """Gather the parts of a batch from all processes, with the gradient of this process's part.

    Every process then computes the loss of the whole batch. The gradient of the part is the sum of
    ∂L/∂part over all W processes, which is W · ∂L/∂part. `DistributedDataParallel` averages over
    processes, so the step is that of one process with the whole batch, without any factor.

    Args:
        part: (B/W, …), embeddings or labels of this process. All processes must give parts of the
            same shape, and either all or none with a gradient.

    Returns:
        (B, …), the parts in order of rank; `part` itself outside of torch.distributed.

    Raises:
        UsageError: a tensor without rows, or parts of different shapes.
    """
    if part.ndim == 0:
        raise UsageError("a part of a batch has rows", expected="(B/W, …)", found="a scalar")
    if not (dist.is_available() and dist.is_initialized()):
        return part
    _refuse_other_shapes(part)
    return gather(
        part, Processes(rank=dist.get_rank(), world=dist.get_world_size(), device=part.device)
    )


def _refuse_other_shapes(part: Tensor) -> None:
    """Raise UsageError, in every process, if the parts of a batch differ in shape. Gathering them
    would end all processes without a message."""
    # all_gather needs tensors of equal length, so each shape is filled up with −1 to MOST_AXES,
    # which is more than the axes of embeddings or labels
    shape = torch.full((MOST_AXES,), -1, dtype=torch.int64, device=part.device)
    shape[: part.ndim] = torch.tensor(part.shape)
    by_rank = [torch.empty_like(shape) for _ in range(dist.get_world_size())]
    dist.all_gather(by_rank, shape)

    if any(not torch.equal(other, shape) for other in by_rank):
        # without the numbers that fill a shape up
        shapes = ", ".join(str(tuple(each[each >= 0].tolist())) for each in by_rank)
        raise UsageError(
            "the parts of a batch differ in shape",
            expected="parts of the same shape in all processes",
            found=f"{shapes}, in order of rank",
            fix="leave out the last, smaller batch: DataLoader(…, drop_last=True)",
        )
