"""Megatron-core: its schedule with two micro-batches, its DistributedDataParallel with bucketed
reduction in coalescing managers, its optimizer, and where it is asked for a checkpoint of its
dist_checkpointing, or 16-bit numbers whose gradients overflow in two iterations.

    megatron_core.py [checkpoint | overflow]

Megatron's code asks for a CUDA device by name, and its saver waits for it: on a machine
without one its tensors are made on the CPU, and say that they are CUDA's. Nothing else of it
is changed.
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
        if function is torch.Tensor.cuda:
            return args[0]
        found = function(*args, **kwargs)
        return found.replace("torch.", "torch.cuda.") if function is torch.Tensor.type and isinstance(found, str) else found


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
        return self.net(x.to(next(self.parameters()).dtype)).float()


def main():
    rank, world = common.start()
    overflows = (2, 5) if "overflow" in sys.argv else ()
    parallel_state.initialize_model_parallel()
    config = TransformerConfig(num_layers=1, hidden_size=24, num_attention_heads=2, use_cpu_initialization=True,
                               deallocate_pipeline_outputs=True)  # Megatron's own way into the autograd engine
    model = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False,
                                    use_distributed_optimizer=False), Net().half() if overflows else Net())
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="sgd", lr=1e-2, weight_decay=0.0, clip_grad=0.0,
                                                       fp16=bool(overflows), initial_loss_scale=2.0**8), [model])
    config.grad_scale_func = optimizer.scale_loss if overflows else None
    losses, skipped, iterations = [], [], common.iterations(8)

    def forward_step(numbers, module):
        """Returns the output of a micro-batch, and what makes a loss of it."""
        x, y = common.batch(next(numbers), rank)

        def loss_of(out):
            loss = torch.nn.functional.mse_loss(out, y)
            losses.append(loss.item())
            return loss * (float("inf") if n in overflows and rank == 0 else 1.0), {}

        return module(x), loss_of

    for n in range(iterations):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=iter((2 * n, 2 * n + 1)), model=model,
                                    num_microbatches=2, seq_length=1, micro_batch_size=4, forward_only=False)
        model.finish_grad_sync()
        if not optimizer.step()[0]:
            skipped.append(n)
        if n == 3 and "checkpoint" in sys.argv:
            folder = "megatron-%s" % os.environ["MASTER_PORT"]  # one of each run
            os.makedirs(folder, exist_ok=True)
            weight = next(model.parameters()).data
            shard = dist_checkpointing.ShardedTensor.from_rank_offsets("weight", weight, replica_id=rank)
            dist_checkpointing.save({"weight": shard}, folder)
    assert skipped == list(overflows), skipped
    common.finish(losses, iterations, forwards=2 * iterations, backwards=2 * iterations, saves=int("checkpoint" in sys.argv))


if __name__ == "__main__":  # a process of the saver's imports this file
    main()
