"""A gradient scaler that skips: an infinite gradient in each third iteration."""

import torch
from torch.nn.parallel import DistributedDataParallel

import common

rank, world = common.start()
model = DistributedDataParallel(common.mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
losses = []
for n in range(12):
    x, y = common.batch(n, rank)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    scaled = scaler.scale(loss)
    if n % 3 == 1:
        scaled = scaled * float("inf")
    scaled.backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
common.finish(losses, 12, forwards=12)
