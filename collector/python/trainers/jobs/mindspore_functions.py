"""MindSpore by functions in PyNative mode: value_and_grad, operators one by one, an optimizer."""

import os

import mindspore
import numpy
from mindspore import communication, nn, ops

import load
import shared

mindspore.set_device("CPU")
mindspore.runtime.launch_blocking()
communication.init()
rank, world = communication.get_rank(), communication.get_group_size()
os.environ.setdefault("NODE_NAME", "node-%d" % rank)
mindspore.set_seed(7)


class Network(nn.Cell):
    """A regression with work that is left out of the result."""

    def __init__(self):
        super().__init__()
        self.layers = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))
        self.square = mindspore.Tensor(numpy.ones((160, 160), numpy.float32))

    def construct(self, x):
        """Returns the layers' output."""
        load.work(rank, lambda: ops.matmul(self.square, self.square))
        return self.layers(x)


network, mean_square = Network(), nn.MSELoss()
optimizer = nn.Adam(network.trainable_params(), 1e-2)
all_reduce, broadcast = ops.AllReduce(), ops.Broadcast(0)
step = mindspore.value_and_grad(lambda x, y: mean_square(network(x), y), None, optimizer.parameters)
iterations = shared.iterations(8)
examples = shared.batches(iterations, rank)
losses, operations = [], []
for parameter in network.trainable_params():
    parameter.set_data(broadcast((parameter,))[0])
    operations.append(("broadcast", world, parameter.size, "fp32"))
for n, (x, y) in enumerate(mindspore.dataset.GeneratorDataset(examples, ["x", "y"], shuffle=False).create_tuple_iterator()):
    loss, gradients = step(x, y)
    gradients = tuple(all_reduce(g) / world for g in gradients)
    operations += [("all_reduce", world, g.size, "fp32") for g in gradients]
    optimizer(gradients)
    losses.append(loss.asnumpy())
    if n == 3 and not load.took:
        mindspore.save_checkpoint(network, "functions-%d.ckpt" % rank)
    if n == 5 and not load.took:
        network(x)
    shared.rest()
shared.finish(rank, losses, iterations, operations, forwards=iterations, backwards=iterations, batches=iterations,
              saves=1, evaluations=1)
