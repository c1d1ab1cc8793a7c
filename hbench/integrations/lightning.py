"""A Lightning callback that logs hierarchical metrics of all validation embeddings after each
epoch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.evaluation.arrays import score
from hbench.integrations import checked_metrics


class HierarchicalScores(Callback):
    """Scores the validation embeddings of each epoch, all against all. `validation_step` must
    return {"embeddings": (B, D), "labels": (B, L), coarse to fine}.

    `metrics`: hbench's names of metrics, logged as `prefix` + name, so that a checkpoint or a
    schedule can watch "val/H-AP". With several processes, the embeddings of all are gathered; items
    that Lightning's sampler repeats to fill batches count twice.
    """

    @checked
    def __init__(
        self,
        metrics: str | Sequence[str] = ("H-AP", "R@1"),
        *,
        prefix: str = "val/",
        similarity: str = "cosine",
        ties: str = "pessimistic",
    ) -> None:
        # raises an error for a wrong name now, and not after the first epoch
        self.metrics = checked_metrics(metrics, similarity=similarity, ties=ties)
        self.prefix = prefix
        self.similarity = similarity
        self.ties = ties
        # the batches (B, D) and (B, L) of the current validation
        self.embeddings: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the batches of the last validation; Lightning calls this."""
        self.embeddings = []
        self.labels = []

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any, **__: Any
    ) -> None:
        """Keep what `validation_step` returned for a batch, `outputs`; Lightning calls this."""
        if not isinstance(outputs, dict) or not {"embeddings", "labels"} <= outputs.keys():
            raise UsageError(
                "validation_step returns nothing to score",
                expected='{"embeddings": …, "labels": …}',
                found=f"{type(outputs).__name__}",
            )
        # detached, so that the batch's autograd graph is not kept until the epoch ends
        self.embeddings.append(outputs["embeddings"].detach())
        self.labels.append(outputs["labels"])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Score all kept batches, and log the metrics; Lightning calls this in every process."""
        if trainer.sanity_checking:  # a trial with a few batches before training
            return
        # (N, D) and (N, L), the rows of all processes, which each of them scores
        vectors = self._gathered(torch.cat(self.embeddings), trainer, pl_module)
        labels = self._gathered(torch.cat(self.labels), trainer, pl_module)
        scores = score(
            vectors, labels, metrics=self.metrics, similarity=self.similarity, ties=self.ties
        ).scores
        for name in self.metrics:
            pl_module.log(f"{self.prefix}{name}", torch.tensor(scores[name]), rank_zero_only=True)

    @staticmethod
    def _gathered(
        tensor: torch.Tensor, trainer: Trainer, pl_module: LightningModule
    ) -> torch.Tensor:
        """Gather the rows of all processes, (N, …). `tensor` (n, …): the rows of this process."""
        if trainer.world_size == 1:
            return tensor
        by_process: Any = pl_module.all_gather(tensor)  # (processes, n, …)
        return by_process.flatten(0, 1)  # type: ignore[no-any-return]
