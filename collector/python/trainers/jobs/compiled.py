"""torch.compile of a model, and how many graphs it took.

    compiled.py [outside]   the model holds an all-reduce, unless all are outside of the graph
"""

import os
import sys

import torch
import torch._dynamo
import torch.distributed as dist

import common

OUTSIDE = "outside" in sys.argv
rank, world = common.start()


class Net(torch.nn.Module):
    """Layers, and an all-reduce between them that the graph holds."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(24, 24), torch.nn.Linear(24, 4)

    def forward(self, x):
        """Returns the output; the mean of all ranks is in it, if the graph holds that."""
        x = torch.relu(self.first(x))
        if OUTSIDE:
            return self.last(x)
        seen = x.detach().sum(0)
        dist.all_reduce(seen)
        return self.last(x + seen / world)


model = torch.compile(Net(), backend="aot_eager")
if "WORK" in os.environ:  # its clock would break the graph
    model = torch.nn.Sequential(common.Work(), model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses, iterations = [], common.iterations(6)
for n in range(iterations):
    x, y = common.batch(n, rank)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    losses.append(loss.item())
breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
common.finish(losses, iterations, breaks=breaks, graphs=torch._dynamo.utils.counters["stats"]["unique_graphs"], forwards=iterations)
