"""Losses in a training loop of one's own: built for a dataset, with its labels by id, and by several
processes.
"""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import hbench
from hbench import build_loss_for, gather_batch
from hbench.core.errors import ConfigError, DataError, UnknownName, UsageError
from hbench.datasets import save
from hbench.losses import build_loss
from tests.command_line import process
from tests.training import small_glyphs

DIM = 8


def unit_vectors(number, seed=0):
    noise = torch.randn(number, DIM, generator=torch.Generator().manual_seed(seed))
    return normalize(noise)


@pytest.fixture(scope="module")
def letters():
    return small_glyphs(train=20, test=5)


@pytest.fixture
def lineages(tmp_path):
    """A table of five training items, of which one is known to its order alone."""
    path = tmp_path / "lineages.csv"
    path.write_text(
        "item,order,family,species,split\n"
        "a.png,owls,barn,alba,train\nb.png,owls,barn,alba,train\nc.png,owls,true,bubo,train\n"
        "d.png,swifts,tree,mystacea,train\ne.png,owls,,,train\nf.png,owls,true,bubo,test\n"
    )
    return path


def test_classes_paths_and_dimension_are_the_datasets(letters):
    torch.manual_seed(0)
    loss, labels = build_loss_for(letters, "happier", DIM, {"lam": 0.3})
    torch.manual_seed(0)
    expected = build_loss("happier", classes=20, dim=DIM, lam=0.3)
    vectors = unit_vectors(60)
    assert torch.equal(loss(vectors, labels.table[:60]), expected(vectors, labels.table[:60]))


def test_labels_are_found_by_the_ids_of_the_manifest(letters):
    _, labels = build_loss_for(letters, "sup_ap", DIM)
    rows = [7, 3, 3, 150]
    expected = torch.from_numpy(letters.train.labels[rows].astype(np.int64))
    assert torch.equal(labels.of(letters.train.items[rows].tolist()), expected)
    assert torch.equal(labels[letters.train.items[150]], expected[3])
    assert labels.items == tuple(letters.train.items)
    assert len(labels) == len(letters.train)
    assert letters.train.items[0] in labels


def test_a_class_has_the_path_of_its_items(letters):
    _, labels = build_loss_for(letters, "sup_ap", DIM)
    assert torch.equal(labels.paths[labels.table[:, -1]], labels.table)


@pytest.mark.parametrize("kind", ["folder", "dataset", "manifest"])
def test_a_dataset_may_be_a_folder_what_load_returns_or_a_manifest(letters, tmp_path, kind):
    save(letters, tmp_path / "letters")
    given = {
        "folder": tmp_path / "letters",
        "dataset": hbench.load(tmp_path / "letters"),
        "manifest": letters.train,
    }[kind]
    _, labels = build_loss_for(given, "sup_ap", DIM)
    vectors = unit_vectors(len(labels))
    by_id = labels.of(letters.train.items.tolist())
    expected = torch.from_numpy(letters.train.labels)
    levels = hbench.levels_of_pairs(by_id.numpy(), by_id.numpy())
    assert np.array_equal(levels, hbench.levels_of_pairs(expected.numpy(), expected.numpy()))
    assert build_loss("sup_ap")(vectors, by_id).isfinite()


def test_a_table_gives_its_training_rows(lineages):
    _, labels = build_loss_for(hbench.load(lineages, "fill-from-same-name,unknown"), "sup_ap", DIM)
    assert labels.items == ("a.png", "b.png", "c.png", "d.png", "e.png")


def test_labels_that_end_early_end_in_the_unknown_and_their_pairs_are_left_out(lineages):
    data = hbench.load(lineages, "unknown")
    loss, labels = build_loss_for(data, "contrastive", DIM)
    assert (labels["e.png"] < 0).tolist() == [False, True, True]
    vectors = unit_vectors(2).requires_grad_()
    loss(vectors, labels.of(["a.png", "e.png"])).backward()
    assert torch.equal(vectors.grad, torch.zeros(2, DIM))
    with pytest.raises(ConfigError, match="needs every label"):
        build_loss_for(data, "happier", DIM)


def test_a_loss_inside_a_memory_gets_its_classes(letters):
    loss, labels = build_loss_for(letters, "xbm", DIM, {"loss": "happier", "size": 100})
    value = loss(unit_vectors(30), labels.table[:30])
    assert value.isfinite()
    assert [tuple(weight.shape) for weight in loss.parameters()] == [(20, DIM)]


def test_a_loss_of_every_level_gets_the_classes_of_each(letters):
    loss, labels = build_loss_for(letters, "per_level", DIM, {"loss": "nsm"})
    assert loss(unit_vectors(30), labels.table[:30]).isfinite()
    every = [int(column.max()) + 1 for column in labels.paths.T]
    assert [len(weight) for weight in loss.parameters()] == every


def test_params_are_left_as_they_were(letters):
    params = {"loss": "happier", "size": 100, "params": {"lam": 0.2}}
    before = copy.deepcopy(params)
    build_loss_for(letters, "xbm", DIM, params)
    assert params == before


def test_an_id_that_is_not_a_training_item_is_named(letters):
    _, labels = build_loss_for(letters, "sup_ap", DIM)
    assert "elsewhere.png" not in labels
    for look_up in (lambda: labels["elsewhere.png"], lambda: labels.of(["elsewhere.png"])):
        with pytest.raises(UsageError, match=r"elsewhere\.png"):
            look_up()


@pytest.mark.parametrize(
    ("name", "params", "error"),
    [
        ("hapier", None, UnknownName),
        ("happier", {"lamda": 0.1}, ConfigError),
        ("happier", {"lam": 2.0}, ConfigError),
        ("happier", 0.1, UsageError),
        ("xbm", {"loss": "sup_ap"}, ConfigError),
        ("per_level", {"loss": "csl"}, ConfigError),
        ("rambo_map_classes", None, ConfigError),
    ],
)
def test_a_loss_that_cannot_be_built_is_refused(letters, name, params, error):
    with pytest.raises(error):
        build_loss_for(letters, name, DIM, params)


def test_a_dataset_that_cannot_be_trained_on_is_refused(tmp_path):
    table = tmp_path / "birds.csv"
    table.write_text("item,family,species\na.png,owls,alba\nb.png,owls,bubo\n")
    with pytest.raises(DataError, match="no training items"):
        build_loss_for(table, "sup_ap", DIM)
    with pytest.raises(UnknownName):
        build_loss_for("glyfs", "sup_ap", DIM)
    several = tmp_path / "several.csv"
    several.write_text(
        "item,family,species,split\na.png,owls,alba,train\na.png,owls,bubo,train\n"
        "b.png,owls,bubo,test\n"
    )
    with pytest.raises(DataError, match="one path of each item"):
        build_loss_for(hbench.load(several, several=True), "sup_ap", DIM)


def test_without_processes_a_batch_is_its_own_whole():
    part = torch.ones(3, 2, requires_grad=True)
    assert gather_batch(part) is part
    with pytest.raises(UsageError, match="rows"):
        gather_batch(torch.tensor(1.0))


OWN_LOOP = """
import gc
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from hbench import build_loss_for, gather_batch

out, *names = sys.argv[1:]
rank, world = 0, 1
if "--alone" not in out:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()


def train(name):
    torch.manual_seed(0)
    images = torch.randn(3, 24, 12)
    net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
    loss, labels = build_loss_for("glyphs", name, 8)
    batches = torch.randint(0, 60, (3, 24))
    model = net if world == 1 else DistributedDataParallel(net)
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.05)

    for step in range(3):
        mine = slice(rank * 24 // world, (rank + 1) * 24 // world)
        part = torch.nn.functional.normalize(model(images[step, mine]))
        value = loss(gather_batch(part), gather_batch(labels.table[batches[step, mine]]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    weights = [weight.detach() for weight in (*net.parameters(), *loss.parameters())]
    torch.save([value.detach(), *weights], f"{out}-{name}-{rank}.pt")


for name in names:
    train(name)
# The graph and the wrapped net go first (it is part of a cycle): a group that one of them keeps has
# threads while the interpreter exits, and these may abort it.
gc.collect()
if world > 1:
    dist.destroy_process_group()
"""


LOSSES_OF_LOOP = ["sup_hap", "happier", "roadmap"]


@pytest.fixture(scope="module")
def own_loops(tmp_path_factory):
    """A folder with what the loop has at its end, alone and as two processes, for each loss."""
    folder = tmp_path_factory.mktemp("own-loop")
    script = folder / "loop.py"
    script.write_text(OWN_LOOP)
    environment = {"OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": ""}
    process(script, folder / "--alone", *LOSSES_OF_LOOP, **environment)
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    process(*start, script, folder / "shared", *LOSSES_OF_LOOP, **environment)
    return folder


@pytest.mark.parametrize("name", LOSSES_OF_LOOP)
def test_two_processes_of_a_plain_loop_take_the_steps_of_one(name, own_loops):
    alone = torch.load(own_loops / f"--alone-{name}-0.pt")
    for rank in range(2):
        shared = torch.load(own_loops / f"shared-{name}-{rank}.pt")
        for found, expected in zip(shared, alone, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


UNEQUAL = """
import sys
import torch
import torch.distributed as dist
from hbench import gather_batch
from hbench.core.errors import UsageError

dist.init_process_group("gloo")
rank = dist.get_rank()
try:
    gather_batch(torch.ones(1 - rank, 3))
except UsageError as refusal:
    open(f"{sys.argv[1]}-{rank}.txt", "w").write(str(refusal))
dist.destroy_process_group()
"""


@pytest.mark.process
def test_parts_of_unequal_size_are_refused_in_every_process(tmp_path):
    script = tmp_path / "loop.py"
    script.write_text(UNEQUAL)
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    process(*start, script, tmp_path / "said", OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES="")
    for rank in range(2):
        said = (tmp_path / f"said-{rank}.txt").read_text()
        assert "(1, 3), (0, 3)" in said  # the second process has no image left
        assert "drop_last" in said
