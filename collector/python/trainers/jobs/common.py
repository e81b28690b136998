"""What the jobs share: a small model, counted work, and the truth they leave behind.

The truth of a rank is its losses to the last bit, how many iterations it made, and
every collective that torch itself saw (its Flight Recorder). Nothing here knows of
laggard.

What test_culprits.py asks for, by the environment:

    ITERATIONS   how many a job makes, in place of its own number
    WORK, SLOW   matrix products in each forward pass; the rank that makes more of them, see load
    PACE         seconds of rest after an optimizer's step, so that many ranks share few cores
"""

import json
import os
import time

import load
import torch
import torch.distributed as dist

torch.set_num_threads(1)
PACE = float(os.environ.get("PACE", 0))
try:
    from torch.optim.optimizer import register_optimizer_step_post_hook
except ImportError:  # PyTorch 1, of which DDP alone is run
    register_optimizer_step_post_hook = None
if PACE and register_optimizer_step_post_hook:
    register_optimizer_step_post_hook(lambda *_: time.sleep(PACE))


def rest():
    """Rests after a step where optimizers have no hook for it."""
    if not register_optimizer_step_post_hook:
        time.sleep(PACE)


def iterations(usual):
    """Returns how many iterations a job makes."""
    return int(os.environ.get("ITERATIONS", usual))


class Work(torch.nn.Module):
    """Hands on its input. What it computes is left out of the result."""

    def __init__(self):
        super().__init__()
        self.square = torch.ones(128, 128)

    def forward(self, x):
        """Returns x."""
        with torch.no_grad():
            load.work(os.environ["RANK"], lambda: torch.mm(self.square, self.square))
        return x


try:
    from torch._C._distributed_c10d import _dump_fr_trace_json
    profile = None
except ImportError:  # before 2.8: PyTorch's profiler
    profile = torch.autograd.profiler.profile(record_shapes=True)


def start():
    """Joins the job; returns (rank, world size)."""
    if profile is not None:
        profile.__enter__()
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.manual_seed(7)
    return dist.get_rank(), dist.get_world_size()


def mlp(width=24, depth=2, out=4):
    """Returns a small network."""
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(Work(), *layers, torch.nn.Linear(width, out))


def batch(n, rank=0, width=24, out=4, size=4):
    """Returns the n-th batch of a rank: input and target."""
    generator = torch.Generator().manual_seed(1000 * rank + n)
    return torch.randn(size, width, generator=generator), torch.randn(size, out, generator=generator)


def collectives():
    """Returns what torch's Flight Recorder saw: operation, group, payloads in and out."""
    if profile is not None:
        profile.__exit__(None, None, None)
        entries = [{"profiling_name": e.name, "process_group": ["default"], "input_sizes": e.input_shapes, "input_dtypes": []}
                   for e in profile.function_events if e.name.startswith("gloo:")]
        return {"entries": entries, "sizes": {"default": dist.get_world_size()}, "default": "default"}
    found = json.loads(_dump_fr_trace_json(includeCollectives=True, onlyActive=False))
    world = dist.distributed_c10d._world
    return {"entries": found.get("entries", []), "sizes": {world.pg_names[g]: g.size() for g in world.pg_map},
            "default": world.pg_names.get(dist.group.WORLD)}


def finish(losses, iterations, checked=True, **more):
    """Writes the rank's truth and leaves the job."""
    rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", 0))
    truth = {"rank": rank, "iterations": iterations, "losses": [float(l).hex() for l in losses],
             "torch": torch.__version__, "collectives": collectives() if checked else None, "work": load.took, "began": load.began}
    truth.update(more)
    with open(os.path.join(os.environ["TRUTH"], "rank-%d.json" % rank), "w") as f:
        json.dump(truth, f)
    if dist.is_initialized():
        dist.destroy_process_group()
