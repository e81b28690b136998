"""FSDP2: fully_shard on each layer and on the whole."""

import torch
from torch.distributed.fsdp import fully_shard

import common

rank, world = common.start()
model = common.mlp(depth=3)
mesh = torch.distributed.init_device_mesh("cpu", (world,), mesh_dim_names=("dp_shard",))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses, iterations = [], common.iterations(8)
for n in range(iterations):
    x, y = common.batch(n, rank)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
common.finish(losses, iterations, forwards=iterations)
