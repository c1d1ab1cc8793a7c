"""Hierarchical scores inside pytorch-metric-learning: a calculator for its testers, and hbench's losses in its wrappers."""

import torch
from pytorch_metric_learning.losses import MultipleLosses
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

import hbench
from hbench.losses import build_loss


class HierarchicalAccuracy(AccuracyCalculator):
    """Takes what AccuracyCalculator.get_accuracy takes; labels are (N, L), coarse to fine."""

    def get_accuracy(self, query, query_labels, reference=None, reference_labels=None, **_):
        apart = {} if reference is None else {"gallery": reference, "gallery_labels": reference_labels}
        return dict(hbench.score(query, query_labels, **apart, metrics=["H-AP", "NDCG", "R@1", "mAP@R"]).scores)


if __name__ == "__main__":
    torch.manual_seed(0)
    species = torch.arange(48) % 12
    labels = torch.stack([species // 4, species], dim=1)
    vectors = torch.randn(48, 16, requires_grad=True)
    criterion = MultipleLosses([build_loss("sup_hap"), build_loss("calibration")], weights=[0.9, 0.1])
    criterion(torch.nn.functional.normalize(vectors), labels).backward()
    print("gradient", float(vectors.grad.norm()))
    print(HierarchicalAccuracy().get_accuracy(vectors.detach(), labels))
