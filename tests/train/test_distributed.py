"""Training by several processes: two or three with a part of a batch each take the very step of one
with the whole.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hbench.core.errors import UsageError
from hbench.datasets import save
from hbench.submissions import embeddings
from hbench.train.models.small import Small
from hbench.train.processes import Processes, distributed
from hbench.train.records import checkpoints as checkpoint
from tests.command_line import process
from tests.training import small_glyphs

SETTINGS = [
    *(
        "sampler.batch=24",
        "epochs=2",
        "steps_per_epoch=2",
        "schedule.warm_up=1",
        "log_every=1",
        "checkpoint_every=0",
    ),
    *(
        "model.dim=8",
        "model.freeze_batch_norm=true",
        "optimizer.name=sgd",
        "optimizer.lr=0.05",
        "proxies.name=sgd",
    ),
    "proxies.lr=0.05",
]


def run(dataset, out, *changes, processes):
    sets = [
        part for change in [f"dataset={dataset}", *SETTINGS, *changes] for part in ("--set", change)
    ]
    start = (
        []
        if processes == 1
        else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    )
    line = [*start, "-m", "hbench.train", "glyphs-happier", *sets, "--out", out, "--threads", "1"]
    process(*line, OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES="")
    found = checkpoint.latest(out)
    return (
        load_file(found / checkpoint.MODEL),
        checkpoint.load_state(found),
        embeddings.read(out / "test.parquet"),
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    save(small_glyphs(train=20, test=5), folder / "letters")
    return folder, run(folder / "letters", folder / "alone", processes=1)


@pytest.mark.parametrize(("number", "two_pass"), [(2, 3), (3, 0)])
def test_several_processes_take_the_steps_of_one(alone, number, two_pass):
    folder, (weights, state, embedded) = alone
    own = folder / f"shared-{number}-{two_pass}"
    shared = run(folder / "letters", own, f"two_pass={two_pass}", processes=number)
    for name, tensor in weights.items():
        torch.testing.assert_close(shared[0][name], tensor, rtol=0, atol=1e-6)
    for name, tensor in state["objective"].items():
        torch.testing.assert_close(shared[1]["objective"][name], tensor, rtol=0, atol=1e-6)
    assert shared[2].ids.tolist() == embedded.ids.tolist()
    np.testing.assert_allclose(shared[2].vectors, embedded.vectors, atol=1e-5)


def test_batch_norms_that_learn_are_refused_where_they_cannot_see_the_whole_batch():
    with pytest.raises(UsageError, match="batch norms"):
        distributed(Small(), Processes(0, 2, torch.device("cpu")))


HOW_A_GROUP_ENDS = """
import pathlib, sys, torch
from hbench.train.processes import distributed, gather, join_processes

def task(process):
    model = distributed(torch.nn.Linear(3, 2), process)
    gather(model(torch.ones(4, 3)), process).sum().backward()
    if sys.argv[1] == "fails":
        raise KeyError("a task that fails")

def threads():
    names = [(task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()]
    return [name for name in names if "gloo" in name]

def say():  # in one write, for both processes do
    sys.stdout.write(f"left: {threads()}\\n")

try:
    with join_processes("cpu") as process:
        task(process)
        assert threads(), "the group has no threads known by their names: this test sees nothing"
except KeyError as error:  # the error is held, and all that its traceback holds
    say()
else:
    say()
"""


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="threads are listed in /proc, on Linux"
)
@pytest.mark.parametrize("task", ["ends", "fails"])
def test_no_thread_outlives_the_group(tmp_path, task):
    # One left when the interpreter ends may abort the process after its work is done.
    script = tmp_path / "group.py"
    script.write_text(HOW_A_GROUP_ENDS)
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), task]
    done = process(*start, OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES="")
    assert done.stdout.splitlines() == ["left: []"] * 2
