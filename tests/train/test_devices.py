"""Training is ready for GPUs, as far as a processor shows it: bytes until the device, generators,
devices of processes.
"""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from torchvision.transforms import v2

from hbench.core.errors import UsageError
from hbench.losses import losses
from hbench.train.images.batches import PIECE, Batches, Files, keys_of
from hbench.train.images.sampler import plan
from hbench.train.images.transforms import Normalise, augmentations
from hbench.train.models.embed_images import embeddings_of_images
from hbench.train.models.model import build_model
from hbench.train.processes import SINGLE_PROCESS, chosen_device, gather, join_processes
from hbench.train.recipes.recipe import Images, Model, Sampler
from hbench.train.records import checkpoints
from tests.command_line import process

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[2]
SETTINGS = Images(size=32, resize=40)


def noise(item):
    """A picture of noise of its own for every item."""
    rng = np.random.default_rng(int.from_bytes(item.encode()) % 2**32)
    return Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8))


@pytest.fixture
def files(letters):
    return Files(
        dataclasses.replace(letters.train, picture=noise), augmentations["resized_crop"](SETTINGS)
    )


def test_images_are_bytes_until_the_net_normalises_them(letters, files):
    before = torch.get_rng_state()
    pixels, rows = files.__getitems__([(3, 7), (0, 8)])
    assert torch.equal(pixels, files.__getitems__([(3, 7), (0, 8)])[0])
    assert torch.equal(before, torch.get_rng_state())  # an image draws from no other generator
    assert (pixels.dtype, pixels.shape, rows.tolist()) == (torch.uint8, (2, 3, 32, 32), [3, 0])
    plain = v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(SETTINGS.mean, SETTINGS.std)]
    )
    torch.testing.assert_close(Normalise(SETTINGS)(pixels), plain(pixels), rtol=0, atol=1e-6)
    model = build_model(
        Model(backbone="torchvision:resnet18", weights="random", dim=8), SETTINGS
    ).eval()
    with torch.no_grad():
        assert torch.equal(model(pixels), model(Normalise(SETTINGS)(pixels)))
    assert "normalise.mean" not in model.state_dict()


def test_a_large_batch_is_made_in_pieces_that_change_nothing(letters, files):
    chosen = plan(
        letters.train.labels, Sampler(batch=24 * 12, per_class=12), seed=0, epoch=0, steps=1
    )
    (keys,) = keys_of(chosen)
    assert len(keys) > PIECE
    whole, rows = files.__getitems__(keys)
    for workers in (0, 2):
        ((pixels, of_pieces),) = Batches(files, workers=workers).of([keys])
        assert torch.equal(pixels, whole)
        assert torch.equal(of_pieces, rows)


class Maker(torch.utils.data.Dataset):
    """Images that say which process made them."""

    def __getitems__(self, keys):
        return torch.full((len(keys), 1), os.getpid()), torch.tensor([row for row, _ in keys])


def test_workers_stay_from_epoch_to_epoch(letters):
    loader = Batches(Maker(), workers=1)
    makers = []
    for epoch in range(3):
        chosen = plan(letters.train.labels, Sampler(batch=40), seed=0, epoch=epoch, steps=2)
        found = list(loader.of(keys_of(chosen)))
        assert [rows.tolist() for _, rows in found] == chosen.rows.tolist()
        makers += [int(pixels[0, 0]) for pixels, _ in found]
    assert len(set(makers)) == 1
    assert os.getpid() not in makers


def test_every_process_has_a_gpu_of_its_own(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert chosen_device("cuda") == torch.device("cuda", 3)
    assert chosen == [3]
    with pytest.raises(UsageError, match="cannot share one GPU"):
        chosen_device("cuda:1")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert chosen_device("cuda:1") == torch.device("cuda", 1)
    assert chosen_device("cpu") == torch.device("cpu")


def test_a_run_resumes_where_there_are_fewer_gpus(monkeypatch):
    state = {**checkpoints.random_state(), "cuda": [torch.zeros(16, dtype=torch.uint8)] * 4}
    put = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda _state, number: put.append(number))
    checkpoints.set_random_state(state)
    assert put == [0, 1]


def test_gathering_leaves_the_gradient_that_comes_in(monkeypatch, tmp_path):
    """A group of one process, in which the sum over processes is doubled, as by another one."""
    reduce = dist.all_reduce
    monkeypatch.setattr(
        dist, "all_reduce", lambda tensor, *rest: (reduce(tensor, *rest), tensor.mul_(2))
    )
    for name, value in {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }.items():
        monkeypatch.setenv(name, value)
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    try:
        with join_processes("cpu") as process:
            part = torch.ones(2, 3, requires_grad=True)
            whole = gather(part, process._replace(world=2))
            incoming = torch.ones(2, 3)
            whole.backward(incoming)
    finally:
        dist.destroy_process_group()
    assert torch.equal(incoming, torch.ones(2, 3))
    assert torch.equal(part.grad, torch.full((2, 3), 2.0))


def test_the_table_of_devices_agrees_and_has_every_loss(tmp_path):
    """benchmarks/gpu.py: here through torch's processor device, which it says."""
    shown = process(ROOT / "benchmarks" / "gpu.py", "--quick", "--out", tmp_path).stdout
    assert torch.cuda.is_available() or "no GPU here" in shown
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    checks = {row["what"]: row["difference"] <= row["allowed"] for row in rows}
    ways = ("loss", "bfloat16", "compiled")
    expected = {f"{way}, {name}" for name in losses for way in ways}
    assert expected < set(checks)
    assert not [what for what, is_good in checks.items() if not is_good]
    assert all(what in shown for what in checks)


def test_a_check_of_devices_that_fails_hides_no_other(tmp_path):
    # the part after the one that fails is a line alone: what trains is checked above
    broken = (
        "import gpu, gpu_parts.of_losses as part, sys; part.build_loss = None; "
        "gpu.PARTS['training'] = lambda *_: [gpu.Row('the next part', 0.0, 0.0)]; "
        "sys.exit(gpu.main())"
    )
    done = process(
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); {broken}",
        "--quick",
        "--parts",
        "losses",
        "training",
        "--out",
        tmp_path,
        code=1,
    )
    assert "TypeError" in done.stdout
    assert "the next part" in done.stdout


def test_a_compiled_net_sees_batches_of_one_size(files):
    """torch's compiler would make it anew for the last, smaller batch; its frames are counted as
    they are compiled.
    """
    model = build_model(
        Model(backbone="torchvision:resnet18", weights="random", dim=8), SETTINGS
    ).eval()

    def vectors():
        pieces = embeddings_of_images(
            model, files, range(10), batch=4, workers=0, device=SINGLE_PROCESS.device
        )
        return np.concatenate([piece for _, piece in pieces])

    expected = vectors()
    compiled = []

    def count(graph, _inputs):
        compiled.append(graph)
        return graph.forward

    model.backbone.compile(backend=count, dynamic=False)
    model.is_compiled = True
    np.testing.assert_allclose(vectors(), expected, atol=1e-5)
    assert len(compiled) == 1
