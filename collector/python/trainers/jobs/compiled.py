"""torch.compile of a model with functional collectives inside, and how many graphs it took."""

import torch
import torch._dynamo
import torch.distributed as dist

import common

rank, world = common.start()


class Net(torch.nn.Module):
    """Layers around an all-reduce that the graph holds."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(24, 24), torch.nn.Linear(24, 4)

    def forward(self, x):
        """Returns the output; the mean of all ranks is in it."""
        x = torch.relu(self.first(x))
        seen = x.detach().sum(0)
        dist.all_reduce(seen)
        return self.last(x + seen / world)


model = torch.compile(Net(), backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for n in range(6):
    x, y = common.batch(n, rank)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    losses.append(loss.item())
breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
common.finish(losses, 6, breaks=breaks, graphs=torch._dynamo.utils.counters["stats"]["unique_graphs"], forwards=6)
