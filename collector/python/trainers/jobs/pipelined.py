"""torch.distributed.pipelining: replicas of two stages, four micro-batches, each layer recomputed
in the backward pass.

    pipelined.py SCHEDULE
"""

import sys

import torch
from torch.distributed.pipelining import PipelineStage, schedules
from torch.utils.checkpoint import checkpoint

import common


class Layer(torch.nn.Module):
    """A linear layer whose forward pass is recomputed."""

    def __init__(self, out):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(24, out), torch.nn.Tanh())

    def forward(self, x):
        """Returns the output."""
        return checkpoint(self.net, x, use_reentrant=False)


rank, world = common.start()
mesh = torch.distributed.init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "pp"))
last = mesh.get_local_rank("pp") == 1
model = torch.nn.Sequential(common.Work(), Layer(24), Layer(4 if last else 24))
called = []  # with gradients or without: a stage runs once more to learn its output's shape, how depends on the version
model.register_forward_pre_hook(lambda *_: called.append(torch.is_grad_enabled()))
stage = PipelineStage(model, int(last), 2, torch.device("cpu"), group=mesh.get_group("pp"))
schedule = getattr(schedules, "Schedule" + sys.argv[1])(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses, iterations = [], common.iterations(6)
for n in range(iterations):
    x, y = common.batch(n, size=16)
    micro = []
    optimizer.zero_grad()
    if last:
        schedule.step(target=y, losses=micro)
    else:
        schedule.step(x)
    if world > 2:
        for p in model.parameters():
            torch.distributed.all_reduce(p.grad, group=mesh.get_group("dp"))
    optimizer.step()
    losses += [l.item() for l in micro]
common.finish(losses, iterations, stage=int(last), forwards=sum(called), backwards=4 * iterations, evaluations=len(called) - sum(called))
