"""torch.distributed.pipelining: two stages, four micro-batches, each layer recomputed in the
backward pass.

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
model = torch.nn.Sequential(Layer(24), Layer(24 if rank < world - 1 else 4))
called = []  # with gradients or without: a stage runs once more to learn its output's shape, how depends on the version
model.register_forward_pre_hook(lambda *_: called.append(torch.is_grad_enabled()))
stage = PipelineStage(model, rank, world, torch.device("cpu"))
schedule = getattr(schedules, "Schedule" + sys.argv[1])(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for n in range(6):
    x, y = common.batch(n, size=16)
    micro = []
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=micro)
    optimizer.step()
    losses += [l.item() for l in micro]
common.finish(losses, 6, forwards=sum(called), backwards=24, evaluations=len(called) - sum(called))
