"""Two optimizers: a generator's step follows three of its critic's."""

import torch
from torch.nn.parallel import DistributedDataParallel

import common

rank, world = common.start()
generator = DistributedDataParallel(common.mlp(out=24))
critic = DistributedDataParallel(common.mlp(out=1))
generates = torch.optim.Adam(generator.parameters(), lr=1e-3)
judges = torch.optim.Adam(critic.parameters(), lr=1e-3)
losses = []
for n in range(12):
    for k in range(3):
        x, _ = common.batch(3 * n + k, rank)
        judges.zero_grad()
        loss = critic(generator(x).detach()).mean() - critic(x).mean()
        loss.backward()
        judges.step()
    generates.zero_grad()
    loss = -critic(generator(x)).mean()
    loss.backward()
    generates.step()
    losses.append(loss.item())
common.finish(losses, 12)
