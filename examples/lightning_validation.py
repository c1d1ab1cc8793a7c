"""A Lightning module that trains with an hbench loss and logs the H-AP of all validation embeddings
after every epoch.
"""

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from hbench.integrations.lightning import HierarchicalScores
from hbench.losses import build_loss


class Retrieval(lightning.LightningModule):
    """Embeds 16 numbers into 8; labels are (B, 2), coarse to fine."""

    def __init__(self):
        super().__init__()
        self.net, self.loss = torch.nn.Linear(16, 8), build_loss("sup_hap")

    def forward(self, inputs):
        return torch.nn.functional.normalize(self.net(inputs))

    def training_step(self, batch, _):
        return self.loss(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        return {
            "embeddings": self(batch[0]),
            "labels": batch[1],
        }  # what HierarchicalScores scores after the epoch

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    species = torch.arange(96) % 12
    labels = torch.stack([species // 4, species], dim=1)
    images = torch.nn.functional.one_hot(species, 16) + 0.5 * torch.randn(96, 16)
    batches = DataLoader(TensorDataset(images, labels), batch_size=48)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[HierarchicalScores()],
    )
    trainer.fit(Retrieval(), batches, batches)
    print("H-AP", float(trainer.callback_metrics["val/H-AP"]))
