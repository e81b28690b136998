"""Accelerate: accumulate() over two micro-batches, its prepared DataLoader, save_state."""

import accelerate
import torch

import common

accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(7)
model = common.mlp()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
iterations = common.iterations(4)
size = 2 * iterations * accelerator.num_processes * 4
data = torch.utils.data.TensorDataset(*common.batch(0, 0, size=size))
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
losses = []
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
accelerator.save_state("accelerated")
common.finish(losses, iterations, forwards=2 * iterations)
