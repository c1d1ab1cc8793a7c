"""Adapters agree with hbench on whole data, and with the libraries they stand in where these
compute the same.
"""

import numpy as np
import pytest
import pytorch_lightning as lightning
import torch
from pytorch_metric_learning.losses import MultipleLosses
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.retrieval import RetrievalMAP

import hbench
from hbench.core.errors import UnknownName, UsageError
from hbench.integrations.lightning import HierarchicalScores
from hbench.integrations.pytorch_metric_learning import HierarchicalAccuracyCalculator
from hbench.integrations.torchmetrics import HierarchicalAP
from hbench.losses import build_loss
from tests.command_line import process

SPECIES = torch.arange(60) % 12
LABELS = torch.stack([SPECIES // 4, SPECIES], dim=1)
VECTORS = torch.randn(
    60, 16, generator=torch.Generator().manual_seed(0)
) + torch.nn.functional.one_hot(SPECIES, 16)


@pytest.mark.parametrize("name", ["H-AP", "NDCG", "R@1", "HD@1"])
def test_a_torchmetrics_metric_in_batches_is_the_score_of_all(name):
    metric = HierarchicalAP(name)
    for part in torch.arange(60).split(17):
        metric.update(VECTORS[part], LABELS[part])
    assert float(metric.compute()) == hbench.score(VECTORS, LABELS, metrics=[name]).scores[name]
    assert metric.higher_is_better == (name != "HD@1")
    metric.reset()
    with (
        pytest.raises(UsageError, match="nothing to score"),
        pytest.warns(UserWarning, match="compute"),
    ):
        metric.compute()
    metric.update(VECTORS[:20], LABELS[:20])
    assert (
        float(metric.compute())
        == hbench.score(VECTORS[:20], LABELS[:20], metrics=[name]).scores[name]
    )


OF_ONE_PROCESS = r"""
import torch
from hbench.integrations.torchmetrics import HierarchicalAP

torch.distributed.init_process_group("gloo")
metric, species = HierarchicalAP(), torch.arange(60) % 12
vectors = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
for part in torch.arange(60).split(10)[torch.distributed.get_rank() :: 2]:
    metric.update(vectors[part], torch.stack([species // 4, species], dim=1)[part])
print(f"H-AP {float(metric.compute())}\n", end="", flush=True)  # one write, or two processes mix their lines
torch.distributed.destroy_process_group()
"""


def test_a_torchmetrics_metric_of_two_processes_is_the_score_of_all(tmp_path):
    (tmp_path / "one.py").write_text(OF_ONE_PROCESS)
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    shown = process(*start, tmp_path / "one.py", OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES="").stdout
    vectors = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
    expected = hbench.score(vectors, LABELS, metrics=["H-AP"]).scores["H-AP"]
    assert [float(line.split()[1]) for line in shown.splitlines()] == pytest.approx([expected] * 2)


@pytest.mark.parametrize(
    "adapter", [HierarchicalAP, HierarchicalScores, HierarchicalAccuracyCalculator]
)
def test_an_adapter_refuses_unknown_names_when_it_is_made(adapter):
    for words in (
        {"similarity": "zz"},
        {"ties": "zz"},
        {"metric" if adapter is HierarchicalAP else "metrics": "zz"},
    ):
        with pytest.raises(UnknownName, match="zz"):
            adapter(**words)


def test_the_ap_of_torchmetrics_is_ours():
    # theirs takes scores below 0 for not retrieved
    scores = torch.sigmoid(VECTORS @ VECTORS.T / 8).fill_diagonal_(-torch.inf)
    levels = torch.from_numpy(np.asarray(hbench.levels_of_pairs(LABELS.numpy(), LABELS.numpy())))
    queries, others = (~torch.eye(60, dtype=torch.bool)).nonzero(as_tuple=True)
    theirs = RetrievalMAP(empty_target_action="skip")(
        scores[queries, others], levels[queries, others] == 2, indexes=queries
    )
    assert float(theirs) == pytest.approx(np.nanmean(hbench.metrics.ap(scores, levels)), abs=1e-6)


def test_the_calculator_agrees_with_that_of_pytorch_metric_learning():
    names = {"precision_at_1": "R@1", "mean_average_precision_at_r": "mAP@R", "r_precision": "P@R"}
    ours = HierarchicalAccuracyCalculator([*names.values()], similarity="l2").get_accuracy(
        VECTORS, LABELS
    )
    theirs = AccuracyCalculator(include=tuple(names), k="max_bin_count").get_accuracy(
        VECTORS, SPECIES
    )
    for name, own in names.items():
        assert ours[own] == pytest.approx(theirs[name], abs=1e-6)
    apart = HierarchicalAccuracyCalculator(["H-AP"]).get_accuracy(
        VECTORS[:20], LABELS[:20], VECTORS[20:], LABELS[20:]
    )
    expected = hbench.score(
        VECTORS[:20],
        LABELS[:20],
        gallery=VECTORS[20:],
        gallery_labels=LABELS[20:],
        metrics=["H-AP"],
    )
    assert apart == dict(expected.scores)
    with pytest.raises(hbench.UsageError, match="queries alone"):
        HierarchicalAccuracyCalculator().get_accuracy(
            VECTORS[:20], LABELS[:20], VECTORS, LABELS, ref_includes_query=True
        )


def test_losses_stand_in_the_wrappers_of_pytorch_metric_learning():
    vectors = VECTORS.clone().requires_grad_()
    both = MultipleLosses([build_loss("sup_hap"), build_loss("calibration")], weights=[0.9, 0.1])
    both(torch.nn.functional.normalize(vectors), LABELS).backward()
    assert 0 < float(vectors.grad.norm()) < np.inf


class Net(lightning.LightningModule):
    """Returns its inputs as embeddings."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def validation_step(self, batch, _):
        return {"embeddings": batch[0] * self.weight, "labels": batch[1]}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, to the library
def test_a_lightning_callback_logs_the_scores_of_all_batches():
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[HierarchicalScores(["H-AP", "R@1"])],
    )
    (logged,) = trainer.validate(
        Net(), DataLoader(TensorDataset(VECTORS, LABELS), batch_size=17), verbose=False
    )
    expected = hbench.score(VECTORS, LABELS, metrics=["H-AP", "R@1"]).scores
    assert logged == pytest.approx(
        {"val/H-AP": expected["H-AP"], "val/R@1": expected["R@1"]}, abs=1e-6
    )
