"""A Lightning module that trains with an hbench loss and logs the H-AP of all validation embeddings after every epoch."""

import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics_hap import HierarchicalAP

from hbench.losses import build_loss


class Retrieval(lightning.LightningModule):
    """Embeds 16 numbers into 8; labels are (B, 2), coarse to fine."""

    def __init__(self):
        super().__init__()
        self.net, self.loss, self.h_ap = torch.nn.Linear(16, 8), build_loss("sup_hap"), HierarchicalAP()

    def forward(self, inputs):
        return torch.nn.functional.normalize(self.net(inputs))

    def training_step(self, batch, _):
        return self.loss(self(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.h_ap.update(self(batch[0]), batch[1])
        self.log("H-AP", self.h_ap)  # Lightning computes it at the end of the epoch, over all processes, and resets it

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    species = torch.arange(96) % 12
    labels = torch.stack([species // 4, species], dim=1)
    images = torch.nn.functional.one_hot(species, 16) + 0.5 * torch.randn(96, 16)
    batches = DataLoader(TensorDataset(images, labels), batch_size=48)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Retrieval(), batches, batches)
    print("H-AP", float(trainer.callback_metrics["H-AP"]))
