"""NVIDIA's DALI: a pipeline on the CPU, whose batches a line of laggard's says."""

import os

import numpy
import torch
from nvidia.dali import pipeline_def, types
from nvidia.dali.fn import external_source
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from torch.nn.parallel import DistributedDataParallel

import common

rank, world = common.start()
if "LAGGARD_AUTO" in os.environ:
    import laggard
    laggard.wrap(DALIGenericIterator, "__next__", "DataLoader")
iterations = common.iterations(6)


def example(info):
    """Returns an example: input and target."""
    if info.iteration >= iterations:
        raise StopIteration
    random = numpy.random.RandomState(1000 * rank + info.idx_in_epoch)
    return random.randn(24).astype(numpy.float32), random.randn(4).astype(numpy.float32)


@pipeline_def(batch_size=4, num_threads=1, device_id=None)
def examples():
    """Returns the graph of a batch."""
    x, y = external_source(source=example, num_outputs=2, batch=False, dtype=[types.FLOAT, types.FLOAT])
    return 2 * x, y


model = DistributedDataParallel(common.mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
losses = []
for (batch,) in DALIGenericIterator(examples(), ["x", "y"]):
    loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
common.finish(losses, iterations, forwards=iterations, batches=iterations + 1)  # it asks itself for one when it is made
