"""Steps and embeddings a second beside a bare loop with the same net, loss and optimiser; decoding
by numbers of workers.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn

from gpu_parts.rows import Row, Sizes, finish, seconds_of, tree_of
from gpu_parts.training import Pair, begun
from hbench.datasets import Dataset, Protocol
from hbench.datasets import manifest as manifests
from hbench.losses import build_loss
from hbench.train.images.batches import Batches, images_of, keys_of
from hbench.train.images.sampler import plan as plan_batches
from hbench.train.processes import SINGLE_PROCESS, Processes
from hbench.train.recipes.recipe import Recipe
from hbench.train.steps.run import TrainingRun, begin
from hbench.train.steps.take import steps, update


def of_speed(sizes: Sizes, device: torch.device) -> Iterator[Row]:
    """Steps and embeddings a second beside a bare loop, and images a second by the number of
    workers that decode.
    """
    recipe, data, pixels, labels = begun(sizes, "sup_hap")
    there = SINGLE_PROCESS._replace(device=device)
    given = pixels.to(device), labels.to(device)
    for precision in ("auto", "float32"):
        run = begin(recipe.model_copy(update={"precision": precision}), data, there)
        taken = seconds_of(lambda: update(run, *given, there), device, 10)  # noqa: B023 - called at once
        bare = seconds_of(_bare_loop(sizes, given, precision), device, 10)
        rate = (
            f"{sizes.images / taken:,.0f} images/s, {bare / taken:.2f} of a plain loop's; "
            f"{_waits(run, given, there)}"
        )
        yield Row(f"step, {precision} / plain", 0.0, 0.0, taken, bare, rate)
        model = run.model.eval()
        with torch.inference_mode():
            taken = seconds_of(lambda: model(given[0]), device, 10)  # noqa: B023
            bare = seconds_of(_bare_embedding(sizes, given[0], precision), device, 10)
        yield Row(
            f"embed, {precision} / plain",
            0.0,
            0.0,
            taken,
            bare,
            f"{sizes.images / taken:,.0f} images/s",
        )
    if device.type == "cuda":
        torch.compiler.reset()  # it gives up on a net that was compiled in many states
        compiled_run = begin(
            recipe.model_copy(
                update={
                    "precision": "auto",
                    "model": recipe.model.model_copy(update={"compile": True}),
                }
            ),
            data,
            there,
        )
        taken = seconds_of(lambda: update(compiled_run, *given, there), device, 10)
        yield Row("step, compiled", 0.0, 0.0, taken, note=f"{sizes.images / taken:,.0f} images/s")
        yield from _by_workers(recipe, there)


def _by_workers(recipe: Recipe, there: Processes) -> Iterator[Row]:
    """Images a second, from JPEG files of 500 × 375, that reach the device, and that a training run
    takes.
    """
    items, side = 2048, recipe.images.size
    with tempfile.TemporaryDirectory() as folder:
        names = [
            [f"{level}-{label}" for level, label in enumerate(row)]
            for row in tree_of(items).tolist()
        ]
        manifest = manifests.from_names(
            [f"{i:06}.jpg" for i in range(items)], names, levels=["l0", "l1", "l2"]
        )
        _draw(Path(folder), [str(item) for item in manifest.items])
        manifest = dataclasses.replace(
            manifest, picture=lambda item: Image.open(Path(folder) / item).convert("RGB")
        )
        data = Dataset("pictures", "1", Protocol(), manifest, {"test": manifest})
        for workers in (4, 8, 15):
            images = recipe.images.model_copy(
                update={"workers": workers, "augment": "resized_crop"}
            )
            changed = recipe.model_copy(
                update={"images": images, "precision": "auto", "epochs": 3, "log_every": 4}
            )
            loader = Batches(
                images_of(data.name, manifest, images, vary=True),
                workers=workers,
                device=there.device,
            )
            rates = []
            for epoch in range(2):
                began = time.perf_counter()
                batches = list(
                    keys_of(plan_batches(manifest.labels, changed.sampler, seed=0, epoch=epoch))
                )
                count = sum(len(rows) for _pixels, rows in loader.of(batches))
                finish(there.device)
                rates.append(count / (time.perf_counter() - began))
            run = begin(changed, data, there)
            moments = [
                (step.step, time.perf_counter())
                for step in steps(run, changed, data, Path(folder), there)
            ]
            (first, start), (last, end) = moments[len(moments) // 3], moments[-1]
            speed = (last - first) * changed.sampler.batch / (end - start)
            yield Row(
                f"{workers} workers",
                0.0,
                0.0,
                note=f"decoded {rates[-1]:,.0f} images/s at {side}; trained {speed:,.0f} images/s",
            )


def _draw(folder: Path, items: Sequence[str]) -> None:
    """JPEG pictures of some texture."""
    rng = np.random.default_rng(0)
    for item in items:
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(folder / item, quality=90)


def _plain_net(sizes: Sizes, given: Tensor) -> nn.Module:
    """The net as anyone would write it."""
    net = torchvision.models.get_model(sizes.net.removeprefix("torchvision:"), weights=None)
    net.fc = nn.Sequential(nn.LayerNorm(net.fc.in_features), nn.Linear(net.fc.in_features, 512))
    layout = torch.channels_last if given.is_cuda else torch.contiguous_format
    return net.to(given.device, memory_format=layout)


def _pixels(given: Tensor) -> Tensor:
    """Bytes as a net takes them."""
    mean, std = (
        torch.tensor(values, device=given.device)[:, None, None]
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    layout = torch.channels_last if given.is_cuda else torch.contiguous_format
    return ((given.to(memory_format=layout).float() / 255 - mean) / std).contiguous(
        memory_format=layout
    )


def _bare_loop(sizes: Sizes, given: Pair, precision: str) -> Callable[[], object]:
    """A step as anyone would write it with the same net, loss and optimiser."""
    net, loss = _plain_net(sizes, given[0]), build_loss("sup_hap")
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, fused=given[0].is_cuda)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            given[0].device.type, torch.bfloat16, enabled=precision == "auto" and given[0].is_cuda
        ):
            vectors = net(_pixels(given[0]))
        loss(nn.functional.normalize(vectors.float()), given[1]).backward()
        optimizer.step()

    return step


def _bare_embedding(sizes: Sizes, given: Tensor, precision: str) -> Callable[[], object]:
    net = _plain_net(sizes, given).eval()

    def embed() -> Tensor:
        with torch.autocast(
            given.device.type, torch.bfloat16, enabled=precision == "auto" and given.is_cuda
        ):
            return nn.functional.normalize(net(_pixels(given)).float())

    return embed


def _waits(run: TrainingRun, given: Pair, processes: Processes) -> str:
    """The places of a step where the host waits for the GPU."""
    if processes.device.type != "cuda":
        return "host waits: only a GPU shows"
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            update(run, *given, processes)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = [f"{Path(each.filename).name}:{each.lineno}" for each in found]
    return f"host waits: {len(places)} ({', '.join(dict.fromkeys(places))})"
