"""DeepSpeed on its CPU accelerator: ZeRO-1, 2 or 3, two groups of parameters
and gradient accumulation. Where it is asked for, gradients overflow in two iterations, and
DeepSpeed skips those steps.

    deepspeed_zero.py STAGE [overflow]
"""

import sys

import torch

import common

stage, overflows = int(sys.argv[1]), (1, 4) if "overflow" in sys.argv else ()
rank, world = common.start()

import deepspeed  # noqa: E402

deepspeed.init_distributed("gloo")
model = common.mlp()
groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
          {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
          "zero_optimization": {"stage": stage, "sub_group_size": 500} if stage == 3 else {"stage": stage},
          "bf16": {"enabled": bool(overflows), "check_grad_overflow": True},
          "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=config)
losses, iterations = [], common.iterations(6)
for n in range(iterations):
    for micro in range(2):
        x, y = common.batch(2 * n + micro, rank)
        loss = torch.nn.functional.mse_loss(engine(x.bfloat16() if overflows else x), y)
        engine.backward(loss * (float("inf") if n in overflows and micro == rank == 0 else 1.0))
        engine.step()
    losses.append(loss.item())
assert engine.skipped_steps == len(overflows), engine.skipped_steps
common.finish(losses, iterations, forwards=2 * iterations)
