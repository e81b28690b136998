"""Accelerators without one: operations of PyTorch's groups on streams of a fake, and
torch_npu's own GradScaler, the real file of its wheel on a stub of the rest."""

import os
import sys

import bed
import jobs

SCALER = os.path.join(os.path.dirname(sys.prefix), "torch-npu-2.14.0")  # .ci/parts puts it there

GROUP = """
import os, sys, threading
sys.path.insert(0, %r)
import accelerator, torch, torch.distributed as dist
fake = torch.cuda = accelerator.Module(torch.cuda)
import laggard
laggard.init(job="x", auto=True)
from laggard import device
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
t, side = torch.ones(3), accelerator.Stream()
dist.all_reduce(t)
with fake.stream(side):
    dist.all_reduce(torch.ones(4))                    # as FSDP2 gathers: on a stream beside the one that computes
    work = dist.all_reduce(torch.ones(5), async_op=True)
gate = threading.Event()
fake.work(gate)
work.wait()
side.reached()                                        # so it began before the stream that computes came to the wait
gate.set()
fake.synchronize()
for _ in range(10): device.timeline().land()
assert laggard.fallbacks() == {} and laggard.failures() == 0, laggard.fallbacks()
""" % os.path.join(jobs.PACKAGE, "tests")

STEPS = """
import importlib.util, os, sys, types
import laggard
import torch
sys.path.insert(0, os.environ["STUB"])
import torch_npu.npu.amp.grad_scaler as scalers
class Scaler(scalers.GradScaler):
    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):  # kernels of the NPU
        return {torch.device("cpu"): found_inf + (1.0 if n in (2, 5) else 0.0)}
torch.Tensor.pin_memory = lambda self: self
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = Scaler()
scaler._lazy_init_scale_growth_tracker("cpu")
made = []
optimizer.register_step_post_hook(lambda *_: made.append(n))
for n in range(8):
    model(torch.ones(1, 2)).sum().backward()
    scaler.step(optimizer)
    scaler._per_optimizer_states.clear()  # update() asks the NPU
    scaler._has_overflow = False
    if n != 2: optimizer.zero_grad()
assert made == [0, 1, 3, 4, 6, 7], made
assert laggard.failures() == 0
"""


class Accelerators(bed.Case):
    def test_operations_beside_the_stream_that_computes(self):
        self.python(GROUP, LAGGARD_EXTENSION="0")  # which has an operation on tensors of the host to itself
        p = self.process()
        found = {r["value"]: r for r in p.records("Communication")}
        self.assertEqual(sorted(found), [3, 4, 5])
        self.assertEqual([found[n]["side"] for n in (3, 4, 5)], ["device"] * 3)
        self.assertTrue(0 < found[3]["exposed"] <= found[3]["dur"], found[3])
        self.assertLess(found[5]["exposed"], found[5]["dur"])  # from when the stream that computes came to the wait
        self.assertEqual(p.opened(), [])

    def test_npus_own_scaler_that_skips(self):
        for name, text in (("__init__", "from . import npu"), ("npu/__init__", "is_available = lambda: True\nfrom . import amp"),
                           ("npu/amp/__init__", ""), ("utils/__init__", ""),
                           ("npu/amp/common", "amp_definitely_not_available = lambda: False"),
                           ("utils/_error_code", "ErrCode = type('ErrCode', (), dict(VALUE=1, INTERNAL=2, NOT_SUPPORT=3))\n"
                                                 "pta_error = str")):
            self.stub(name, text)
        with open(os.path.join(SCALER, "grad_scaler.py")) as f:
            self.stub("npu/amp/grad_scaler", f.read())
        self.python(STEPS, LAGGARD_AUTO="1", STUB=self.work)
        p = self.process()
        self.assertEqual([s["step"] for s in p.records("Step")], list(range(8)))

    def stub(self, name, text):
        """Writes a module of torch_npu."""
        path = os.path.join(self.work, "torch_npu", name + ".py")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
