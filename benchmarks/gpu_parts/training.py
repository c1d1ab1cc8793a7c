"""Steps of training on the device against the processor's: in parts, compiled, with a memory,
resumed, by several processes.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from gpu_parts.rows import Row, Sizes, failed, tree_of
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.train.fitting.sizes import fitted_to
from hbench.train.processes import SINGLE_PROCESS, Processes
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import LossSpec, Recipe
from hbench.train.records import checkpoints
from hbench.train.steps.gradients import TrainStep, direct, in_two_passes
from hbench.train.steps.run import TrainingRun, begin
from hbench.train.steps.take import update

Pair = tuple[Tensor, Tensor]  # images and their labels
ROUNDING = 1e-6  # of a weight, relative: that of float32, grown through the layers of a net
FAR = 10  # times as far as rounding moves a step: more is another step


def of_training(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Steps on the device against the processor's; in parts, compiled, with a memory, resumed, and
    by several processes.
    """
    # torch convolves float32 in TF32 unless told otherwise, which moves gradients by a few
    # hundredths: not what is checked here.
    torch.backends.cudnn.allow_tf32 = False
    recipe, data, pixels, labels = begun(sizes)
    plain = begin(recipe, data)
    expected = update(plain, pixels, labels)
    there = SINGLE_PROCESS._replace(device=device)
    given = pixels.to(device), labels.to(device)
    run = begin(recipe, data, there)
    found = update(run, *given, there)
    rounding = FAR * _moved_by_rounding(recipe, data, (pixels, labels), 1)
    yield Row("training step", _apart(float(expected[0]), plain, float(found[0]), run), rounding)

    def against(what: str, changed: Recipe, allowed: float, compute: TrainStep = direct) -> Row:
        other = begin(changed, data, there)
        value = update(other, *given, there, compute)
        return Row(what, _apart(float(found[0]), run, float(value[0]), other), allowed)

    def of_model(**changes: Any) -> Recipe:
        return recipe.model_copy(update={"model": recipe.model.model_copy(update=changes)})

    cases: list[tuple[str, Callable[[], Row]]] = [
        ("step, once more", lambda: against("step, once more", recipe, rounding)),
        (
            "step in two passes",
            lambda: against(
                "step in two passes", recipe, rounding, in_two_passes(sizes.images // 4)
            ),
        ),
        (
            "step, contiguous",
            lambda: against("step, contiguous", of_model(channels_last=False), rounding),
        ),
        (
            "step, bfloat16",
            lambda: against(
                "step, bfloat16", recipe.model_copy(update={"precision": "bfloat16"}), 0.5
            ),
        ),
        ("step, float16", lambda: _half_step(recipe, data, given, there)),
        ("resumed run", lambda: _resumed(recipe, data, given, there)),
        ("two processes", lambda: _by_two(sizes, device, (float(found[0]), run), rounding)),
        ("step, DDP of one", lambda: _by_one(recipe, data, given, (there, float(found[0]), run))),
    ]
    if device.type == "cuda":
        cases.append(
            ("step, compiled", lambda: against("step, compiled", of_model(compile=True), rounding))
        )
    # last, because the processor's steps for it take longest
    cases.append(("step with XBM", lambda: _xbm_step(recipe, data, (pixels, labels), there)))
    for what, case in cases:
        try:
            yield case()
        except Exception as error:
            yield failed(what, error)
    torch.backends.cudnn.allow_tf32 = True
    yield against("step in TF32", recipe, 0.5)


def _half_step(recipe: Recipe, data: Dataset, given: Pair, there: Processes) -> Row:
    """A step in float16: its scaler may skip the first ones, which then change nothing."""
    if there.device.type != "cuda":
        return Row("step, float16", 0.0, 0.0, note="float16 trains on GPUs")
    run = begin(recipe.model_copy(update={"precision": "float16"}), data, there)
    values = [float(update(run, *given, there)[0]) for _ in range(4)]
    return Row(
        "step, float16",
        float(not all(map(math.isfinite, values))),
        0.0,
        note=f"losses {values[0]:.4f} … {values[-1]:.4f}",
    )


def _xbm_step(recipe: Recipe, data: Dataset, on: Pair, there: Processes) -> Row:
    """Two steps with a memory of past batches, against the processor's."""
    spec = {"xbm": LossSpec(params={"loss": "contrastive", "size": 4 * len(on[0])})}
    changed = recipe.model_copy(update={"losses": spec})
    plain, run = begin(changed, data), begin(changed, data, there)
    moved = on[0].to(there.device), on[1].to(there.device)
    for _ in range(2):
        expected, found = update(plain, *on), update(run, *moved, there)
    allowed = FAR * _moved_by_rounding(changed, data, on, 2)
    return Row("step with XBM", _apart(float(expected[0]), plain, float(found[0]), run), allowed)


def _moved_by_rounding(recipe: Recipe, data: Dataset, on: Pair, steps: int) -> float:
    """How far the processor's step moves where every weight moves by the rounding of a deep net's
    activations: no two ways of computing it can agree better."""
    generator = torch.Generator().manual_seed(1)
    plain, other = begin(recipe, data), begin(recipe, data)
    with torch.no_grad():
        for weight in other.model.parameters():
            weight.mul_(1 + ROUNDING * torch.randn(weight.shape, generator=generator))
    for _ in range(steps):
        expected, found = update(plain, *on), update(other, *on)
    return _apart(float(expected[0]), plain, float(found[0]), other)


def _resumed(recipe: Recipe, data: Dataset, given: Pair, there: Processes) -> Row:
    """Two steps after a checkpoint, against those of the run that went on, to the bit: without
    cuDNN's atomics, whose sums differ from run to run."""
    torch.backends.cudnn.deterministic = True
    with tempfile.TemporaryDirectory() as folder:
        run = begin(recipe, data, there)
        for _ in range(2):
            update(run, *given, there)
            run.step += 1
        run.save(Path(folder))
        again = begin(recipe, data, there)
        again.restore(checkpoints.latest(Path(folder)))
        for _ in range(2):
            expected, found = update(run, *given, there), update(again, *given, there)
    torch.backends.cudnn.deterministic = False
    return Row("resumed run", _apart(float(expected[0]), run, float(found[0]), again), 0.0)


def _by_one(
    recipe: Recipe, data: Dataset, given: Pair, alone: tuple[Processes, float, TrainingRun]
) -> Row:
    """A step under DistributedDataParallel with one process."""
    there, expected, run = alone
    backend = "nccl" if there.device.type == "cuda" else "gloo"
    with _group(backend, 0, 1, tempfile.mkdtemp()):
        shared = begin(recipe, data, there)
        shared.embed = nn.parallel.DistributedDataParallel(shared.model)
        again = update(shared, *given, Processes(0, 1, there.device))
        return Row("step, DDP of one", _apart(expected, run, float(again[0]), shared), 1e-5)


def _by_two(
    sizes: Sizes, device: torch.device, alone: tuple[float, TrainingRun], allowed: float
) -> Row:
    """A step of two processes that share the device, by gloo, with half of the batch each."""
    expected, run = alone
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_half_of_step, args=(folder, sizes, str(device)), nprocs=2)
        value, gradient = torch.load(Path(folder) / "step.pt", weights_only=True)
    own = run.model.projection.weight.grad.cpu()
    apart = max(abs(expected - value) / abs(expected), float((own - gradient).norm() / own.norm()))
    return Row("two processes", apart, allowed)


def _half_of_step(rank: int, folder: str, sizes: Sizes, device: str) -> None:
    """What one of two processes does."""
    torch.backends.cudnn.allow_tf32 = False
    recipe, data, pixels, labels = begun(sizes)
    with _group("gloo", rank, 2, folder):
        own = Processes(rank, 2, torch.device(device))
        run, half = (
            begin(recipe, data, own),
            slice(rank * len(pixels) // 2, (rank + 1) * len(pixels) // 2),
        )
        values = update(run, pixels[half].to(device), labels[half].to(device), own)
        if rank == 0:
            torch.save(
                (float(values[0]), run.model.projection.weight.grad.cpu()), Path(folder) / "step.pt"
            )


@contextmanager
def _group(backend: str, rank: int, world: int, folder: str) -> Iterator[None]:
    dist.init_process_group(
        backend, init_method=f"file://{folder}/group", rank=rank, world_size=world
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def begun(sizes: Sizes, loss: str = "smooth_hap") -> tuple[Recipe, Dataset, Tensor, Tensor]:
    """A recipe in float32, data of one batch, its images as bytes, its labels. The embeddings of
    random weights lie close together: a loss with exact steps would jump wherever two scores change
    places by rounding."""
    names = [
        [f"{level}-{label}" for level, label in enumerate(row)]
        for row in tree_of(sizes.images).tolist()
    ]
    manifest = manifests.from_names(
        [f"{i:06}" for i in range(sizes.images)], names, levels=["l0", "l1", "l2"]
    )
    data = Dataset("synthetic", "1", Protocol(), manifest, {"test": manifest})
    changes = [
        f"model.backbone={sizes.net}",
        "model.weights=random",
        "optimizer.name=sgd",
        "optimizer.lr=0.01",
    ]
    recipe = resolve(
        "own-happier",
        ["dataset=synthetic", "precision=float32", f"sampler.batch={sizes.images}", *changes],
    )
    recipe = fitted_to(
        recipe.model_copy(update={"losses": {loss: LossSpec()}, "proxies": None}), manifest
    )
    return recipe, data, patches(sizes), torch.from_numpy(tree_of(sizes.images))


def patches(sizes: Sizes) -> Tensor:
    """Images of four colours that blend into each other. Noise would look alike to a net that
    averages over places, and a gradient of embeddings that lie close together is all rounding."""
    generator = torch.Generator().manual_seed(0)
    corners = 255 * torch.rand((sizes.images, 3, 2, 2), generator=generator)
    blended = nn.functional.interpolate(corners, size=(sizes.side, sizes.side), mode="bilinear")
    return blended.to(torch.uint8)


def _apart(first: float, one: TrainingRun, second: float, other: TrainingRun) -> float:
    """How far two steps are apart: relatively in the loss, or in the projection's gradient."""
    weights = [run.model.projection.weight.grad.cpu().float() for run in (one, other)]
    apart = float((weights[0] - weights[1]).norm() / weights[0].norm())
    return max(abs(first - second) / abs(first), apart)
