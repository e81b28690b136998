"""Lightning with automatic optimization: DDP, two batches to a step, a checkpoint."""

import logging
import os

import lightning
import torch

import common

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(7)


class Module(lightning.LightningModule):
    """A regression."""

    def __init__(self):
        super().__init__()
        self.net = common.mlp()
        self.losses = []

    def training_step(self, batch, index):
        """Returns the loss."""
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        """Returns the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


world, iterations = int(os.environ["WORLD_SIZE"]), common.iterations(4)
data = torch.utils.data.TensorDataset(*common.batch(0, 0, size=2 * iterations * world * 4))
module = Module()
trainer = lightning.Trainer(accelerator="cpu", devices=world, strategy="ddp", max_epochs=1, accumulate_grad_batches=2,
                            enable_progress_bar=False, enable_model_summary=False, logger=False,
                            enable_checkpointing=False)
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
trainer.save_checkpoint("lightning.ckpt")
common.finish(module.losses, iterations, forwards=2 * iterations)
