"""Adapters agree with hbench on whole data, and with the libraries they stand in where these
compute the same.
"""

import numpy as np
import pytest
import pytorch_lightning as lightning
import torch
from pytorch_metric_learning.losses import ContrastiveLoss, CrossBatchMemory, MultipleLosses
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.retrieval import RetrievalMAP

import hbench
from hbench.core.errors import ConfigError, UnknownName, UsageError
from hbench.integrations.lightning import HierarchicalScores
from hbench.integrations.pytorch_metric_learning import (
    HierarchicalAccuracyCalculator,
    HierarchicalLoss,
    HierarchicalMemory,
)
from hbench.integrations.torchmetrics import HierarchicalAP
from hbench.losses import build_loss
from hbench.losses.partial import leave_unknown_out
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


PATHS = [[species // 4, species] for species in range(12)]
UNIT = torch.nn.functional.normalize(VECTORS)


def test_labels_of_the_finest_level_have_the_paths_of_their_classes():
    loss = build_loss("sup_hap")
    assert torch.equal(HierarchicalLoss(loss, PATHS)(UNIT, SPECIES), loss(UNIT, LABELS))
    assert torch.equal(HierarchicalLoss(loss)(UNIT, LABELS), loss(UNIT, LABELS))
    with pytest.raises(ConfigError, match="no path"):
        HierarchicalLoss(loss, PATHS[:5])(UNIT, SPECIES)


@pytest.mark.parametrize("labels", [LABELS, SPECIES], ids=["levels", "finest"])
@pytest.mark.parametrize("name", ["sup_hap", "triplet", "rambo_ap"])
def test_a_memory_of_the_other_library_ranks_the_batch_in_it_without_itself(name, labels):
    memory = HierarchicalMemory(HierarchicalLoss(build_loss(name), PATHS), 16, memory_size=32)
    for start in (0, 20, 40):
        batch = slice(start, start + 20)
        value = memory(UNIT[batch], labels[batch])
    # 32 places: the last batch took 40 … 59 modulo 32, and 28 … 39 are left of those before
    places = torch.arange(40, 60) % 32
    kept = torch.empty(32, dtype=torch.int64)
    kept[torch.arange(60) % 32] = torch.arange(60)
    expected = build_loss(name)(UNIT[40:], LABELS[40:], UNIT[kept], LABELS[kept], places)
    torch.testing.assert_close(value, expected)


def test_a_memory_of_one_level_is_that_of_the_other_library():
    inner = build_loss("contrastive")
    ours = HierarchicalMemory(inner, 16, memory_size=48)
    theirs = CrossBatchMemory(inner.loss, 16, memory_size=48)
    assert isinstance(inner.loss, ContrastiveLoss)
    for rows in torch.arange(60).split(20):
        expected = theirs(UNIT[rows], SPECIES[rows])
        torch.testing.assert_close(ours(UNIT[rows], LABELS[rows]), expected)


def test_a_miner_chooses_pairs_of_a_memory_by_the_finest_level():
    inner, miner = build_loss("contrastive"), MultiSimilarityMiner(epsilon=0.1)
    ours = HierarchicalMemory(inner, 16, memory_size=60, miner=miner)
    theirs = CrossBatchMemory(inner.loss, 16, memory_size=60, miner=miner)
    mask = torch.arange(20) < 10
    for rows in torch.arange(60).split(20):
        expected = theirs(UNIT[rows], SPECIES[rows])
        torch.testing.assert_close(ours(UNIT[rows], LABELS[rows]), expected)
    expected = theirs(UNIT[:20], SPECIES[:20], enqueue_mask=mask)
    torch.testing.assert_close(ours(UNIT[:20], LABELS[:20], enqueue_mask=mask), expected)


def test_items_that_are_only_stored_are_ranked_by_the_others():
    mask = torch.arange(20) < 12
    value = HierarchicalMemory(build_loss("sup_hap"), 16, memory_size=32)(
        UNIT[:20], LABELS[:20], enqueue_mask=mask
    )
    expected = build_loss("sup_hap")(UNIT[12:20], LABELS[12:20], UNIT[:12], LABELS[:12])
    torch.testing.assert_close(value, expected)


def test_a_memory_of_several_levels_is_read_from_a_checkpoint():
    memory = HierarchicalMemory(build_loss("sup_hap"), 16, memory_size=60)
    memory(UNIT, LABELS)
    other = HierarchicalMemory(build_loss("sup_hap"), 16, memory_size=60)
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.label_memory, LABELS)


PAIRS = (*(SPECIES[:, None] == SPECIES).triu(1).nonzero(as_tuple=True),) * 2


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("cluster", {"classes": 12, "dim": 16}, "takes no pairs"),
        ("happier", {"classes": 12, "dim": 16}, "takes no pairs"),
        ("xbm", {"loss": "sup_ap", "size": 60}, "references of its own"),
    ],
)
def test_pairs_for_a_loss_that_cannot_use_them_are_refused_with_a_way_out(name, params, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        HierarchicalLoss(build_loss(name, **params))(UNIT, LABELS, PAIRS)
    assert refusal.value.fix


def test_pairs_for_labels_that_end_early_are_refused():
    loss = leave_unknown_out(build_loss("sup_ap"))
    with pytest.raises(ConfigError, match="unknown level"):
        HierarchicalLoss(loss)(UNIT, LABELS, PAIRS)


def test_a_loss_that_fits_no_wrapper_is_refused_when_it_is_wrapped():
    with pytest.raises(ConfigError, match="scores of classes"):
        HierarchicalLoss(build_loss("rambo_map_classes"))
    with pytest.raises(ConfigError, match="references of its own"):
        HierarchicalMemory(build_loss("xbm", loss="sup_ap", size=60), 16)


EVERY_LOSS = """
import gc
import sys
import torch
import torch.distributed as dist
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from torch.nn.parallel import DistributedDataParallel
import hbench
from hbench.integrations.pytorch_metric_learning import HierarchicalLoss, HierarchicalMemory
from hbench.losses import build_loss, loss_entry
from hbench.losses.entry import REQUIRED

world, rank = 1, 0
if sys.argv[1] == "shared":
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
paths = [[0, 0], [0, 1], [0, 2], [1, 3], [1, 4], [1, 5]]
facts = {"classes": 6, "level_classes": [2, 6], "paths": paths, "dim": 8, "loss": "sup_ap", "size": 48}
images = torch.randn(2, 24, 8, generator=torch.Generator().manual_seed(0))
classes = torch.arange(48).reshape(2, 24) * 5 % 6


def built(name):
    entry = loss_entry(name).parameters
    params = {key: facts[key] for key, default in entry.items() if default is REQUIRED}
    if "lam" in entry and name.startswith("rambo"):
        params["lam"] = entry["lam"] / world  # the other library multiplies the loss by world
    torch.manual_seed(1)
    return build_loss(name, **params)


def gradient_of(loss):
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8)
    model, wrapped = net, loss
    if world > 1:
        model, wrapped = DistributedDataParallel(net), DistributedLossWrapper(loss)
    mine = slice(rank * 24 // world, (rank + 1) * 24 // world)
    for step in range(2):
        net.zero_grad()
        wrapped(torch.nn.functional.normalize(model(images[step, mine])), classes[step, mine]).backward()
    return net.weight.grad.clone()  # not a view of the wrapped net's buckets


found = {}
for name in hbench.list_losses():
    if name == "rambo_map_classes":
        continue
    found[name] = gradient_of(HierarchicalLoss(built(name), paths))
    if name != "xbm":
        found[f"memory of {name}"] = gradient_of(
            HierarchicalMemory(HierarchicalLoss(built(name), paths), 8, memory_size=48)
        )
if rank == 0:
    torch.save(found, sys.argv[1] + ".pt")
gc.collect()  # the wrapped nets, which are parts of cycles, before the group that they use
if world > 1:
    dist.destroy_process_group()
"""


def test_every_loss_of_two_processes_in_the_other_library_has_the_gradient_of_one(tmp_path):
    (tmp_path / "every.py").write_text(EVERY_LOSS)
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    environment = {"OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": ""}
    process(tmp_path / "every.py", "alone", folder=tmp_path, **environment)
    process(*start, tmp_path / "every.py", "shared", folder=tmp_path, **environment)
    alone, shared = (torch.load(tmp_path / f"{name}.pt") for name in ("alone", "shared"))
    assert {"sup_hap", "memory of happier", "xbm"} < set(alone)
    for name, gradient in alone.items():
        allowed = 1e-6 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(
            shared[name], gradient, rtol=0, atol=allowed, msg=lambda text, name=name: name + text
        )


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
