"""DistributedDataParallel of ranks that share one CUDA device: NCCL wants a device for each, so
their operations go through the host (gloo). Knows nothing of laggard.

    WORK, SLOW   how often fifty matrix products are made in a forward pass, many turns of the
                 device among its ranks; the rank that makes five times as many
    TRACES       a folder for the traces of PyTorch's profiler, one a rank
"""

import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = os.environ["RANK"]
products = 50 * int(os.environ["WORK"]) * (5 if os.environ.get("SLOW") == rank else 1)
iterations = int(os.environ["ITERATIONS"])
square = torch.ones(2048, 2048, device="cuda", dtype=torch.bfloat16)


class Work(torch.nn.Module):
    """Hands on its input, after so many products."""

    events = []

    def forward(self, x):
        """Returns x."""
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        with torch.no_grad():
            for _ in range(products):
                torch.mm(square, square)
        ended.record()
        self.events.append((began, ended))
        return x


dist.init_process_group("gloo")
torch.manual_seed(7)
model = torch.nn.Sequential(Work(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4)).cuda()
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(int(rank))
x, y = torch.randn(64, 256, generator=generator).cuda(), torch.randn(64, 4, generator=generator).cuda()
losses, began = [], []
traces = os.environ.get("TRACES")
seen = contextlib.nullcontext()
if traces:
    seen = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA], record_shapes=True,
                                  on_trace_ready=torch.profiler.tensorboard_trace_handler(traces, "rank-" + rank, use_gzip=True))
with seen:
    for _ in range(iterations):
        began.append(time.perf_counter())
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if traces:
            seen.step()
    torch.cuda.synchronize()
truth = {"rank": int(rank), "iterations": iterations, "losses": [float(l).hex() for l in losses], "torch": torch.__version__,
         "work": [a.elapsed_time(b) / 1e3 for a, b in Work.events], "began": began}
with open(os.path.join(os.environ["TRUTH"], "rank-%s.json" % rank), "w") as f:
    json.dump(truth, f)
dist.destroy_process_group()
