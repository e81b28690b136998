"""Collectives that no function of torch.distributed is called for: a coalescing manager,
methods of a process group, functional collectives; and P2POp."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import P2POp, irecv, isend

import common

rank, world = common.start()
half = dist.new_group([0, 1])
model = common.mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for n in range(6):
    x, y = common.batch(n, rank)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    with dist._coalescing_manager(async_ops=True) as manager:
        for p in model.parameters():
            dist.all_reduce(p.grad)
    manager.wait()
    half.allreduce([loss.detach().clone()]).wait()
    mean = functional.all_reduce(loss.detach(), "sum", half) / world
    parts = functional.all_gather_tensor(x, 0, half) + 0
    theirs = torch.zeros(4, 24)
    for work in dist.batch_isend_irecv([P2POp(isend, x, 1 - rank), P2POp(irecv, theirs, 1 - rank)]):
        work.wait()
    optimizer.step()
    losses.append(mean.item() + parts.sum().item() + theirs.sum().item())
common.finish(losses, 6, forwards=6, transfers=[["recv", 96, 1 - rank], ["send", 96, 1 - rank]] * 6)
