"""H-AP as a torchmetrics.Metric: collects embeddings over batches and processes, scores them by
hbench at the end.
"""

import torch

from hbench.integrations.torchmetrics import HierarchicalAP

if __name__ == "__main__":
    species = torch.arange(60) % 12
    labels = torch.stack([species // 4, species], dim=1)
    vectors = torch.randn(
        60, 16, generator=torch.Generator().manual_seed(0)
    ) + torch.nn.functional.one_hot(species, 16)
    metric = HierarchicalAP()
    for part in range(0, 60, 20):
        metric.update(vectors[part : part + 20], labels[part : part + 20])
    print("H-AP", float(metric.compute()))
