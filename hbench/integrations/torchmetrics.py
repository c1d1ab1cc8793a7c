"""H-AP, or any other metric of hbench, as a torchmetrics.Metric that accumulates over batches and
processes.
"""

import torch
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.evaluation.arrays import score
from hbench.integrations import checked_metrics
from hbench.losses.batch_loss import wide_labels
from hbench.metrics.names import lower_is_better


class HierarchicalAP(Metric):
    """A torchmetrics.Metric for any metric of hbench: `update(embeddings (B, D), labels int64
    (B, L), coarse to fine)` adds a batch, and `compute()` returns the metric of all items ranked
    against each other, a fraction.

    `metric`: a name such as "H-AP", "NDCG", "R@1" or "AP/level1"; `similarity` and `ties` as in
    `hbench.score`. Embeddings are kept in the host's memory until `reset()`: N·D·4 bytes. Under
    DDP, every process gets the metric over the items of all processes.

    >>> metric = HierarchicalAP()
    >>> metric.update(
    ...     torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]]),
    ...     torch.tensor([[0, 0], [0, 0], [1, 1]]),
    ... )
    >>> float(metric.compute())
    1.0
    """

    full_state_update = False
    embeddings: list[torch.Tensor]
    labels: list[torch.Tensor]

    @checked
    def __init__(
        self, metric: str = "H-AP", *, similarity: str = "cosine", ties: str = "pessimistic"
    ) -> None:
        super().__init__(compute_on_cpu=True)  # moves kept batches from the card to the host
        # raises an error for a wrong name now, and not after the first epoch
        checked_metrics([metric], similarity=similarity, ties=ties)
        self.metric = metric
        self.similarity = similarity
        self.ties = ties
        # lists of batches, (B, D) and (B, L); "cat" concatenates those of all processes
        self.add_state("embeddings", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Whether a larger value is better, an attribute that torchmetrics reads."""
        return not lower_is_better(self.metric)

    def update(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep a batch: embeddings (B, D), labels (B, L)."""
        wide_labels(labels, embeddings, "labels", "embeddings")  # raises if shapes do not match
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels)

    def compute(self) -> torch.Tensor:
        """The metric over all kept batches, a scalar; raises UsageError if there are none."""
        if not len(self.embeddings):  # a list of batches, or one tensor after joining processes
            raise UsageError(
                "there is nothing to score", fix="call update(embeddings, labels) before compute()"
            )
        vectors = dim_zero_cat(self.embeddings)
        labels = dim_zero_cat(self.labels)
        report = score(
            vectors, labels, metrics=[self.metric], similarity=self.similarity, ties=self.ties
        )
        return torch.tensor(report.scores[self.metric], dtype=torch.float64)
