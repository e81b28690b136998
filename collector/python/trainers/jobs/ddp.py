"""DistributedDataParallel with a DataLoader, several buckets and a checkpoint."""

import torch
from torch.nn.parallel import DistributedDataParallel

import common

rank, world = common.start()
model = DistributedDataParallel(common.mlp(depth=4), bucket_cap_mb=0.003)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
iterations = common.iterations(12)
data = torch.utils.data.TensorDataset(*common.batch(0, rank, size=4 * iterations))
loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
losses = []
for n, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    common.rest()
    losses.append(loss.item())
    if n == 5:
        torch.save(model.module.state_dict(), "ddp-%d.pt" % rank)
common.finish(losses, iterations, forwards=iterations, saves=1, batches=iterations)
