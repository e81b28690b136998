"""Gradient accumulation: four micro-batches to a step, with no_sync."""

import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

import common

rank, world = common.start()
model = DistributedDataParallel(common.mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
losses = []
for n in range(8):
    for micro in range(4):
        x, y = common.batch(4 * n + micro, rank)
        with contextlib.nullcontext() if micro == 3 else model.no_sync():
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
common.finish(losses, 8, forwards=32)
