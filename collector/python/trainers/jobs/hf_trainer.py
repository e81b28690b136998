"""A Hugging Face Trainer: two micro-batches to a step, checkpoints by safetensors."""

import torch
import transformers

import common


class Net(torch.nn.Module):
    """A regression that returns its loss."""

    def __init__(self):
        super().__init__()
        self.net = common.mlp()

    def forward(self, x, labels=None):
        """Returns loss and output."""
        out = self.net(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


class Losses(transformers.TrainerCallback):
    """Notes each step's loss."""

    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **_):
        """Notes it."""
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


class Data(torch.utils.data.Dataset):
    """64 examples."""

    def __init__(self):
        self.x, self.y = common.batch(0, 0, size=64)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.y[index]}


torch.manual_seed(7)
arguments = transformers.TrainingArguments(
    "hf", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=common.iterations(8), logging_steps=1, use_cpu=True,
    save_strategy="steps", save_steps=common.iterations(4), report_to=[], disable_tqdm=True, ddp_backend="gloo", seed=7,
    dataloader_num_workers=0)
seen = Losses()
trainer = transformers.Trainer(Net(), arguments, train_dataset=Data(), callbacks=[seen])
trainer.train()
common.finish(seen.losses, trainer.state.global_step, forwards=2 * common.iterations(8))
