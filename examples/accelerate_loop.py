"""A loop of Hugging Face Accelerate on a dataset of hbench.

`accelerate launch --num_processes 2 accelerate_loop.py` shares every batch between two processes:
unlike `accelerator.gather`, `hbench.gather_batch` passes the gradient on.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

import hbench

DIM, BATCH = 32, 64


def small_net():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16, DIM)),
    )


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(0)  # the same weights in every process, also those of the loss
    data = hbench.load("glyphs")
    test = data.tests["test"]
    loss, labels = hbench.build_loss_for(data, "happier", DIM)
    loss.to(accelerator.device)
    images = hbench.torch_dataset(data.train)
    share = BATCH // accelerator.num_processes
    net, batches = accelerator.prepare(
        small_net(), DataLoader(images, share, shuffle=True, drop_last=True)
    )
    optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=3e-3)

    for pictures, _, rows in batches:
        embeddings = hbench.gather_batch(normalize(net(pictures)))
        known = labels.table.to(accelerator.device)[rows]
        value = loss(embeddings, hbench.gather_batch(known))
        optimizer.zero_grad()
        accelerator.backward(value)
        optimizer.step()

    if accelerator.is_main_process:
        net = accelerator.unwrap_model(net)
        with torch.no_grad():
            parts = DataLoader(hbench.torch_dataset(test), BATCH)
            vectors = torch.cat([net(pictures.to(accelerator.device)) for pictures, _, _ in parts])
        report = hbench.evaluate(vectors, data, ids=test.items.tolist(), metrics="H-AP")
        print("H-AP", report.scores["H-AP"])


if __name__ == "__main__":
    main()
