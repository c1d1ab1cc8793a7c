"""Hierarchical scores inside pytorch-metric-learning: a calculator for its testers, and hbench's
losses in its wrappers.
"""

import torch
from pytorch_metric_learning.losses import MultipleLosses

from hbench.integrations.pytorch_metric_learning import HierarchicalAccuracyCalculator
from hbench.losses import build_loss

if __name__ == "__main__":
    torch.manual_seed(0)
    species = torch.arange(48) % 12
    labels = torch.stack([species // 4, species], dim=1)
    vectors = torch.randn(48, 16, requires_grad=True)
    criterion = MultipleLosses(
        [build_loss("sup_hap"), build_loss("calibration")], weights=[0.9, 0.1]
    )
    criterion(torch.nn.functional.normalize(vectors), labels).backward()
    print("gradient", float(vectors.grad.norm()))
    print(HierarchicalAccuracyCalculator().get_accuracy(vectors.detach(), labels))
