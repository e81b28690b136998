"""Megatron-core: its DistributedDataParallel with bucketed reduction in coalescing
managers, and its optimizer.

Megatron's code asks for a CUDA device by name: on a machine without one its tensors are
made on the CPU, nothing else of it is changed.
"""

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
rank, world = common.start()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

parallel_state.initialize_model_parallel()
config = TransformerConfig(num_layers=1, hidden_size=24, num_attention_heads=2, use_cpu_initialization=True)
model = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False,
                                use_distributed_optimizer=False), common.mlp())
optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="sgd", lr=1e-2, weight_decay=0.0, clip_grad=0.0), [model])
losses = []
for n in range(8):
    x, y = common.batch(n, rank)
    model.zero_grad_buffer()
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    model.finish_grad_sync()
    optimizer.step()
    losses.append(loss.item())
common.finish(losses, 8, forwards=8)
