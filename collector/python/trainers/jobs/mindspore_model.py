"""MindSpore's Model.train with a checkpoint, in the mode that the argument says."""

import os
import sys

import mindspore
from mindspore import communication, nn

import shared

mode = sys.argv[1]
mindspore.set_device("CPU")
mindspore.set_context(mode=mindspore.PYNATIVE_MODE if mode == "pynative" else mindspore.GRAPH_MODE)
communication.init()
rank, world = communication.get_rank(), communication.get_group_size()
mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, device_num=world)
mindspore.set_seed(7)
network = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 1))


class Losses(mindspore.Callback):
    """What each step's loss was."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_step_end(self, run_context):
        """Notes the loss."""
        self.found.append(run_context.original_args().net_outputs.asnumpy())


losses = Losses()
callbacks = [losses, mindspore.ModelCheckpoint("model-%d" % rank, config=mindspore.CheckpointConfig(save_checkpoint_steps=6))]
if len(sys.argv) > 2 and "LAGGARD_AUTO" in os.environ:
    import laggard
    callbacks.append(laggard.callbacks.mindspore())
examples = mindspore.dataset.GeneratorDataset(shared.batches(6, rank), ["x", "y"], shuffle=False)
model = mindspore.Model(network, nn.MSELoss(), nn.Adam(network.trainable_params(), 1e-2))
model.train(2, examples, callbacks=callbacks, dataset_sink_mode=False)
seen = mode == "pynative"
parameters = sum(each.size for each in network.trainable_params())
operations = [("all_reduce", world, parameters, "fp32")] * (12 if seen else 0)
shared.finish(rank, losses.found, 12, operations, forwards=12 if seen else 0, backwards=12 if seen else 0, saves=2)
