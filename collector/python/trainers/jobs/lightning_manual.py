"""Lightning with manual optimization: two optimizers in each batch."""

import logging

import lightning
import torch

import common

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(7)


class Module(lightning.LightningModule):
    """A generator and its critic."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = common.mlp(out=24), common.mlp(out=1)
        self.losses = []

    def training_step(self, batch, index):
        """Steps both."""
        generates, judges = self.optimizers()
        loss = self.critic(self.generator(batch[0]).detach()).mean() - self.critic(batch[0]).mean()
        judges.zero_grad()
        self.manual_backward(loss)
        judges.step()
        loss = -self.critic(self.generator(batch[0])).mean()
        generates.zero_grad()
        self.manual_backward(loss)
        generates.step()
        self.losses.append(loss.item())

    def configure_optimizers(self):
        """Returns both optimizers."""
        return torch.optim.Adam(self.generator.parameters()), torch.optim.Adam(self.critic.parameters())


data = torch.utils.data.TensorDataset(*common.batch(0, 0, size=64))
module = Module()
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true", max_epochs=1, enable_progress_bar=False, enable_model_summary=False, logger=False,
                            enable_checkpointing=False)
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
common.finish(module.losses, 8)
