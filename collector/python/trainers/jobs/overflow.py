"""An overflow that the script itself handles: it leaves the optimizer's step out."""

import torch
from torch.nn.parallel import DistributedDataParallel

import common

rank, world = common.start()
model = DistributedDataParallel(common.mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for n in range(8):
    x, y = common.batch(n, rank)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    (loss * (float("inf") if n == 3 else 1.0)).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        optimizer.step()
    losses.append(loss.item())
common.finish(losses, 8, forwards=8)
