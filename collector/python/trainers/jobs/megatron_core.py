"""Megatron-core: its schedule with two micro-batches, its DistributedDataParallel with bucketed
reduction in coalescing managers, its optimizer, and where it is asked for a checkpoint of its
dist_checkpointing.

    megatron_core.py [checkpoint]

Megatron's code asks for a CUDA device by name, and its saver waits for it: on a machine
without one its tensors are made on the CPU, nothing else of it is changed.
"""

import os
import sys

import torch
from torch.overrides import TorchFunctionMode

import common


class OnCPU(TorchFunctionMode):
    """Makes what is asked for on CUDA on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return args[0] if function is torch.Tensor.cuda else function(*args, **kwargs)


OnCPU().__enter__()
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *_: None

from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402


class Net(torch.nn.Module):
    """A regression, as a stage of a pipeline of one."""

    model_type = ModelType.encoder_or_decoder

    def __init__(self):
        super().__init__()
        self.net = common.mlp()

    def set_input_tensor(self, _):
        """Takes what an earlier stage would send."""

    def forward(self, x):
        """Returns the output."""
        return self.net(x)


def main():
    rank, world = common.start()
    parallel_state.initialize_model_parallel()
    config = TransformerConfig(num_layers=1, hidden_size=24, num_attention_heads=2, use_cpu_initialization=True,
                               deallocate_pipeline_outputs=True)  # Megatron's own way into the autograd engine
    model = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False,
                                    use_distributed_optimizer=False), Net())
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="sgd", lr=1e-2, weight_decay=0.0, clip_grad=0.0), [model])
    losses, iterations = [], common.iterations(8)

    def forward_step(numbers, module):
        """Returns the output of a micro-batch, and what makes a loss of it."""
        x, y = common.batch(next(numbers), rank)

        def loss_of(out):
            loss = torch.nn.functional.mse_loss(out, y)
            losses.append(loss.item())
            return loss, {}

        return module(x), loss_of

    for n in range(iterations):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=iter((2 * n, 2 * n + 1)), model=model,
                                    num_microbatches=2, seq_length=1, micro_batch_size=4, forward_only=False)
        model.finish_grad_sync()
        optimizer.step()
        if n == 3 and "checkpoint" in sys.argv:
            folder = "megatron-%s" % os.environ["MASTER_PORT"]  # one of each run
            os.makedirs(folder, exist_ok=True)
            weight = next(model.parameters()).data
            shard = dist_checkpointing.ShardedTensor.from_rank_offsets("weight", weight, replica_id=rank)
            dist_checkpointing.save({"weight": shard}, folder)
    common.finish(losses, iterations, forwards=2 * iterations, backwards=2 * iterations, saves=int("checkpoint" in sys.argv))


if __name__ == "__main__":  # a process of the saver's imports this file
    main()
