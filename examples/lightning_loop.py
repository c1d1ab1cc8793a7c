"""A Lightning loop on a dataset of hbench, in one process or several: its loss with the labels, and
the H-AP of the embeddings that `predict` returns.
"""

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

import hbench

DIM, BATCH = 32, 64


class Retrieval(lightning.LightningModule):
    """Embeds pictures of 32 × 32; batches are (pictures, labels, rows) of hbench.torch_dataset."""

    def __init__(self, data):
        super().__init__()
        self.loss, self.labels = hbench.build_loss_for(data, "happier", DIM)
        self.net = nn.Sequential(
            *(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16, DIM)),
        )

    def training_step(self, batch, _):
        pictures, _, rows = batch
        labels = self.labels.table.to(self.device)[rows]
        embeddings = normalize(self.net(pictures))
        return self.loss(hbench.gather_batch(embeddings), hbench.gather_batch(labels))

    def predict_step(self, batch, _):
        return self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)  # the weights of the loss among them


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    data = hbench.load("glyphs")
    test = data.tests["test"]
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Retrieval(data)
    images = hbench.torch_dataset(data.train)
    trainer.fit(model, DataLoader(images, BATCH, shuffle=True, drop_last=True))
    vectors = torch.cat(trainer.predict(model, DataLoader(hbench.torch_dataset(test), BATCH)))
    report = hbench.evaluate(vectors, data, ids=test.items.tolist(), metrics="H-AP")
    print("H-AP", report.scores["H-AP"])
