"""Lets hbench's losses be used in the wrappers of pytorch-metric-learning, and hbench's metrics
where that library expects an AccuracyCalculator, such as in its testers.

A loss of hbench takes (embeddings, labels, indices_tuple, ref_emb, ref_labels), as the losses of
pytorch-metric-learning do, so it can be used in `MultipleLosses` directly. `DistributedLossWrapper`
accepts only losses of the library's base class, such as `HierarchicalLoss`. `CrossBatchMemory`
accepts only a fixed list of classes; `HierarchicalMemory` is a variant for every loss of hbench.

>>> from hbench.losses import build_loss
>>> paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
>>> loss, vectors = build_loss("sup_hap"), torch.eye(3)
>>> of_finest = HierarchicalLoss(loss, paths)(vectors, torch.tensor([0, 1, 2]))
>>> torch.equal(of_finest, loss(vectors, paths))
True
"""

from collections.abc import Sequence
from typing import Any

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction, CrossBatchMemory
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor, nn

from hbench.core.arguments import checked
from hbench.core.errors import ConfigError, UsageError
from hbench.evaluation.arrays import score
from hbench.integrations import checked_metrics
from hbench.losses import CrossBatchMemory as OwnMemory
from hbench.losses.baselines.proxies import class_paths
from hbench.losses.baselines.rambo import refuse_class_scores
from hbench.losses.batch_loss import BatchLoss, Indices, name_of


class HierarchicalLoss(BaseMetricLossFunction):  # type: ignore[misc]
    """A loss of hbench as a loss of pytorch-metric-learning, for that library's wrappers and
    trainers.

    forward(embeddings (B, D), labels, indices_tuple=None, ref_emb=None, ref_labels=None) -> scalar.
    Labels are int64 (B, L), coarse to fine, or, with `paths`, the classes (B,) of the finest level.

    Args:
        loss: what `hbench.losses.build_loss` or `hbench.build_loss_for` returns.
        paths: int64 (C, L), the labels of every class of the finest level, such as `labels.paths`
            of `hbench.build_loss_for`. Default: labels (B,) are of a single level.

    Raises:
        ConfigError: a loss of a matrix of scores, which takes no embeddings. When it is called:
            pairs or references for a loss that cannot use them, or labels without a path.
    """

    paths: Tensor | None

    @checked
    def __init__(
        self, loss: nn.Module, paths: Tensor | Sequence[Sequence[int]] | None = None
    ) -> None:
        super().__init__()
        refuse_class_scores(loss)
        self.loss = loss
        # (C, L), checked; None: the labels of a batch are paths (B, L) already
        table = None if paths is None else class_paths(paths)
        # A buffer is moved with the module. It is not saved (persistent=False), since `paths` are
        # given again when the module is built.
        self.register_buffer("paths", table, persistent=False)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Indices | Tensor | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, as pytorch-metric-learning calls it.

        Args:
            embeddings: (B, D).
            labels: (B, L), or classes (B,) of the finest level if the loss was given paths.
            indices_tuple: mined pairs; or int64 (B,), the rows of the batch in the memory of
                `HierarchicalMemory`; or None.
            ref_emb: (M, D), the references, such as a memory. None to compare within the batch.
            ref_labels: the labels of the references.
        """
        labels = self._with_levels(labels)
        if ref_labels is not None:
            ref_labels = self._with_levels(ref_labels)
        if indices_tuple is None and ref_emb is None:
            result: Tensor = self.loss(embeddings, labels)
            return result

        # a loss with hbench's own memory compares with its references only, and takes neither
        # others nor pairs
        self._refuse_second_memory()
        # A loss of hbench accepts two orders of the arguments after `labels`, and recognises them
        # by the type of the third one. Only hbench's order has a place for rows in the memory, and
        # only the order of pytorch-metric-learning has a place for mined pairs.
        if isinstance(indices_tuple, Tensor):  # rows in the memory, from HierarchicalMemory
            # hbench's order: references, their labels, rows
            in_memory: Tensor = self.loss(embeddings, labels, ref_emb, ref_labels, indices_tuple)
            return in_memory
        if indices_tuple is not None:  # mined pairs
            # raises ConfigError if a part of the loss takes no pairs or selects pairs itself
            self._refuse_pairs()
        # the other library's order: pairs or None, references, their labels
        among: Tensor = self.loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        return among

    def _with_levels(self, labels: Tensor) -> Tensor:
        """Turn classes (B,) of the finest level into labels of all levels, (B, L), by `paths`.
        Labels that are (B, L) already, and all labels if there are no paths, are not changed."""
        if self.paths is None or not isinstance(labels, Tensor) or labels.ndim != 1:
            return labels
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(self.paths):
            raise ConfigError(
                "a label has no path",
                expected=f"classes 0 … {len(self.paths) - 1} of the finest level",
                found=f"labels {int(labels.min())} … {int(labels.max())}",
                fix="number the classes as in paths",
            )
        return self.paths.to(labels.device)[labels]

    def _refuse_second_memory(self) -> None:
        """Raise ConfigError if the loss is hbench's CrossBatchMemory, which has own references."""
        if isinstance(self.loss, OwnMemory):
            raise ConfigError(
                "hbench's CrossBatchMemory has references of its own",
                expected="a loss of a batch and its references",
                fix="take the loss inside of it, or this memory without the other library's",
            )

    def _refuse_pairs(self) -> None:
        """Raise ConfigError if a part of the loss takes no mined pairs, or selects pairs itself: a
        `partial` loss leaves out pairs of unknown level."""
        for part in self.loss.modules():
            if isinstance(part, BatchLoss) and (part.partial or not part.takes_pairs):
                reason = "leaves out pairs of unknown level" if part.partial else "takes no pairs"
                raise ConfigError(
                    f"{name_of(part)} {reason}",
                    expected="no pairs, neither of a miner nor of efficient=True",
                    fix="leave these out, or gather the batch with hbench.gather_batch",
                )


class HierarchicalMemory(CrossBatchMemory):  # type: ignore[misc]
    """pytorch-metric-learning's CrossBatchMemory around a loss of hbench: loss(batch, memory).

    Unlike its base class, it keeps labels of all levels, and without a miner it does not list all
    pairs. `hbench.losses.CrossBatchMemory` averages loss(batch) and loss(batch, memory) instead.

    Args:
        loss: a loss of hbench, or a HierarchicalLoss.
        embedding_size: D.
        memory_size: of the memory, in embeddings, at least a batch. Default: 1024.
        miner: chooses pairs of batch and memory by the finest level. Default: all pairs.

    Raises:
        ConfigError: as in HierarchicalLoss, and for a loss with a memory of its own.
    """

    label_memory: Tensor

    @checked
    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        memory_size: int = 1024,
        miner: nn.Module | None = None,
    ) -> None:
        # the base class calls the loss by the other library's arguments, as HierarchicalLoss takes
        # them
        wrapped = loss if isinstance(loss, HierarchicalLoss) else HierarchicalLoss(loss)
        # hbench's own memory has references of its own, and could not use those of this memory
        wrapped._refuse_second_memory()
        super().__init__(wrapped, embedding_size, memory_size, miner)

    @classmethod
    def check_loss_support(cls, loss_name: str) -> None:
        """Accept every loss, since it is a HierarchicalLoss here. The base class accepts only a
        fixed list of names."""

    def add_to_memory(self, embeddings: Tensor, labels: Tensor, batch_size: int) -> None:
        """Put a batch into the memory, as the base class does, but also with labels (B, L)."""
        # the base class allocates memory for labels (B,), so it is replaced at the first batch
        if self.label_memory.shape[1:] != labels.shape[1:]:
            self.label_memory = labels.new_zeros(self.memory_size, *labels.shape[1:])
        super().add_to_memory(embeddings, labels, batch_size)

    def create_indices_tuple(
        self, embeddings: Tensor, labels: Tensor, E_mem: Tensor, L_mem: Tensor, *rest: Any
    ) -> Indices | Tensor | None:
        """Make the argument `indices_tuple` of `HierarchicalLoss.forward`. The parameters have the
        names and the order of the base class.

        Args:
            embeddings: (B, D), the batch.
            labels: (B, L) or (B,), of the batch.
            E_mem: (M, D), the memory.
            L_mem: (M, L) or (M,), the labels of the memory.
            rest: the pairs that the caller has mined, or None; and whether the batch is in the
                memory already.

        Returns:
            Pairs by the finest level, if a miner or the caller chooses them. Else the rows int64
            (B,) of the batch in the memory, so that no item is compared with itself, or None if
            the batch is not in the memory.
        """
        mined, batch_is_in_memory = rest
        if self.miner is not None or mined is not None:
            pairs: Indices = super().create_indices_tuple(
                embeddings, _finest(labels), E_mem, _finest(L_mem), *rest
            )
            return pairs
        # the base class sets it when it puts the batch into the memory, before it calls this
        rows_in_memory: Tensor = self.curr_batch_idx
        return rows_in_memory if batch_is_in_memory else None

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Load the memory; torch calls this with the saved tensors, whose names begin with the
        prefix. The saved labels may have several levels, and the memory of labels, which begins
        with one, is replaced by one of their shape."""
        if (kept := state_dict.get(f"{prefix}label_memory")) is not None:
            self.label_memory = torch.empty_like(kept, device=self.label_memory.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _finest(labels: Tensor) -> Tensor:
    """The labels (N,) of the finest level, from labels (N, L) or (N,)."""
    return labels.reshape(len(labels), -1)[:, -1]


class HierarchicalAccuracyCalculator(AccuracyCalculator):  # type: ignore[misc]
    """An AccuracyCalculator whose `get_accuracy(query, query_labels, reference, reference_labels)`
    returns hbench's metrics, {name: fraction}. Labels are (N, L), coarse to fine.

    Without a reference, or if it is the query set itself, each query is ranked against the others;
    a query is never in its own list. `metrics`: hbench's names of metrics. The base class's own
    metrics (NMI, AMI, those by nearest neighbours) are not computed.
    """

    @checked
    def __init__(
        self,
        metrics: str | Sequence[str] = ("H-AP", "NDCG", "R@1", "mAP@R"),
        *,
        similarity: str = "cosine",
        ties: str = "pessimistic",
    ) -> None:
        super().__init__()  # without arguments: `get_accuracy`, which would use them, is replaced
        self.metrics = checked_metrics(metrics, similarity=similarity, ties=ties)
        self.similarity = similarity
        self.ties = ties

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        **_: Any,
    ) -> dict[str, float]:
        """The mean of each metric over the queries, a fraction.

        `query` (Q, D) with labels (Q, L), `reference` (G, D) with labels (G, L), or None to rank
        the queries among themselves. Other arguments of the base class are ignored.
        """
        apart = {}  # the gallery, if it is not the query set
        if reference is not None and reference is not query:
            if ref_includes_query:
                raise UsageError(
                    "the reference holds the queries",
                    fix="give the queries alone: each is then ranked among the others",
                )
            apart = {"gallery": reference, "gallery_labels": reference_labels}

        report = score(
            query,
            query_labels,
            **apart,
            metrics=self.metrics,
            similarity=self.similarity,
            ties=self.ties,
        )
        return {name: report.scores[name] for name in self.metrics}
