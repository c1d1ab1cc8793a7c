"""A PyTorch loop of your own on a dataset of hbench: its loss, labels by id, and H-AP in the end.

`torchrun --nproc-per-node 2 torch_loop.py` shares every batch between two processes.
"""

import gc
import os

import torch
from torch import nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import hbench

DIM, BATCH = 32, 64


def small_net():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16, DIM)),
    )


def embeddings_of_images(net, manifest):
    with torch.no_grad():
        batches = DataLoader(hbench.torch_dataset(manifest), BATCH)
        return torch.cat([net(images) for images, _, _ in batches])


def trained_net(data, world):
    torch.manual_seed(0)  # the same weights in every process, also those of the loss
    loss, labels = hbench.build_loss_for(data, "happier", DIM)
    net = small_net()
    model = net if world == 1 else DistributedDataParallel(net)
    images = hbench.torch_dataset(data.train)
    sampler = None if world == 1 else DistributedSampler(images)
    batches = DataLoader(images, BATCH // world, sampler is None, sampler, drop_last=True)
    optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=3e-3)

    for pictures, _, rows in batches:
        embeddings = hbench.gather_batch(normalize(model(pictures)))
        value = loss(embeddings, hbench.gather_batch(labels.table[rows]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return net


def main():
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        torch.distributed.init_process_group("gloo")
    data = hbench.load("glyphs")
    net = trained_net(data, world)
    first = world == 1 or torch.distributed.get_rank() == 0
    if world > 1:
        gc.collect()  # the wrapped net, which is part of a cycle, before the group that it uses
        torch.distributed.destroy_process_group()

    if first:
        test = data.tests["test"]
        report = hbench.evaluate(
            embeddings_of_images(net, test), data, ids=test.items.tolist(), metrics="H-AP"
        )
        print("H-AP", report.scores["H-AP"])


if __name__ == "__main__":
    main()
