"""DTensor tensor parallelism: a column-wise and a row-wise layer."""

import torch
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import common

rank, world = common.start()
mesh = torch.distributed.init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.ReLU(), torch.nn.Linear(48, 4), common.Work())
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses, iterations = [], common.iterations(8)
for n in range(iterations):
    x, y = common.batch(n)  # the same on all ranks
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
common.finish(losses, iterations, forwards=iterations)
