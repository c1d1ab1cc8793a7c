"""H-AP as a torchmetrics.Metric: collects embeddings over batches and processes, scores them by hbench at the end."""

import torch
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

import hbench


class HierarchicalAP(Metric):
    """update(embeddings (B, D), labels (B, L), coarse to fine); compute() is the H-AP of all against all."""

    higher_is_better, full_state_update = True, False

    def __init__(self, metric: str = "H-AP") -> None:
        super().__init__()
        self.metric = metric
        self.add_state("embeddings", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        self.embeddings.append(embeddings.detach().cpu())
        self.labels.append(labels.cpu())

    def compute(self) -> torch.Tensor:
        vectors, labels = dim_zero_cat(self.embeddings), dim_zero_cat(self.labels)
        return torch.tensor(hbench.score(vectors, labels, metrics=[self.metric]).scores[self.metric])


if __name__ == "__main__":
    species = torch.arange(60) % 12
    labels = torch.stack([species // 4, species], dim=1)
    vectors = torch.randn(60, 16, generator=torch.Generator().manual_seed(0)) + torch.nn.functional.one_hot(species, 16)
    metric = HierarchicalAP()
    for part in range(0, 60, 20):
        metric.update(vectors[part : part + 20], labels[part : part + 20])
    print("H-AP", float(metric.compute()))
