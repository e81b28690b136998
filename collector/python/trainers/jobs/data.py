"""Batches that come by other ways: torchdata's StatefulDataLoader, a stream without a length."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import common


class Stream(torch.utils.data.IterableDataset):
    """Examples as they come."""

    def __iter__(self):
        return zip(*common.batch(1, rank, size=24))


rank, world = common.start()
model = DistributedDataParallel(common.mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
examples = torch.utils.data.TensorDataset(*common.batch(0, rank, size=24))
losses = []
for loader in (StatefulDataLoader(examples, batch_size=4, num_workers=1), StatefulDataLoader(examples, batch_size=4),
               torch.utils.data.DataLoader(Stream(), batch_size=4)):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
common.finish(losses, 18, forwards=18, batches=18)
