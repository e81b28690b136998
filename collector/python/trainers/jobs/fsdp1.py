"""FullyShardedDataParallel, the first."""

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import common

rank, world = common.start()
model = FullyShardedDataParallel(common.mlp(depth=3), device_id=torch.device("cpu"),
                                 auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
                                 sharding_strategy=ShardingStrategy.FULL_SHARD)
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
