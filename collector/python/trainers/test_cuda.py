"""The recorder on a real CUDA device: `make cuda`, on a machine that has one.

What the device's own profiler says of the same kernels is the truth of the times; what
the same script does without the recorder is the truth of the rest.
"""

import collections
import json
import os
import subprocess
import sys
import unittest

import bed
import culprits
import jobs


def setUpModule():
    """There is nothing to see without a device."""
    said = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.get_device_name(0))"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)
    if said.returncode:
        raise unittest.TestCase.failureException("no CUDA device: run this on a machine that has one (%s)" % said.stderr.strip().splitlines()[-1:])
    sys.stderr.write("on %s" % said.stdout)


MODEL = """
import json, os, sys, time
import torch
torch.manual_seed(7)
layers = []
for _ in range(8): layers += [torch.nn.Linear(4096, 4096), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
losses = []
def step(forward=lambda: model(x)):
    loss = forward().float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
def done(): print("losses", [l.item() for l in losses])
"""

END = """
if "laggard" in sys.modules:
    import laggard
    sys.stderr.write("fallbacks %s failures %s\\n" % (laggard.fallbacks(), laggard.failures()))
"""

SMALL = """
import json, os, sys, threading, time
import torch
torch.manual_seed(7)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3, capturable=True)
x = torch.randn(32, 64, device="cuda")
losses = []
def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach().clone())
    return loss
def done(): print("losses", [l.item() for l in losses])
"""

PROFILED = MODEL + """
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
for _ in range(3): step()
torch.cuda.synchronize()
with torch.profiler.profile(activities=activities) as seen:
    for n in range(20):
        def forward():
            with torch.profiler.record_function("forward-%d" % n): return model(x)
        step(forward)
    torch.cuda.synchronize()
seen.export_chrome_trace("trace.json")
step()
torch.cuda.synchronize()
done()
"""

# The host is three steps ahead all the time, and looks when each forward pass ends. Rings keep
# more ranges than there are.
AHEAD = MODEL + """
x, SECONDS = x.repeat(8, 1), 12
ends, waiting, until = [], [], time.time() + SECONDS
def seen():
    event = waiting.pop(0)
    while not event.query(): pass
    ends.append(time.time_ns())
while time.time() < until or len(waiting) > 0:
    if time.time() < until:
        def forward():
            y = model(x)
            event = torch.cuda.Event()
            event.record()
            waiting.append(event)
            return y
        step(forward)
    if len(waiting) > 3 or time.time() >= until: seen()
torch.cuda.synchronize()
step()
torch.cuda.synchronize()
json.dump(ends, open("ends.json", "w"))
"""

CAPTURED = SMALL + """
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3): step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
for _ in range(5):
    graph.replay()
    losses.append(loss.detach().clone())
torch.cuda.synchronize()
callable = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), (x,))
for _ in range(5):
    y = callable(x).square().mean()
    y.backward()
    losses.append(y.detach())
for _ in range(5): step()
done()
"""

# Another thread computes on a stream of its own while graphs are captured in either mode.
BESIDE = SMALL + """
other = torch.nn.Linear(64, 64).cuda()
going, made = threading.Event(), [0]
y = torch.randn(32, 64, device="cuda")
out = torch.empty(32, 64, device="cuda")
def beside():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(20): other(y)
        going.set()
        while going.is_set():
            other(y)
            made[0] += 1
thread = threading.Thread(target=beside)
for _ in range(3): step()
thread.start()
going.wait()
for n in range(10):
    before, graph = made[0], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=("thread_local", "global")[n % 2]):
        z = torch.mm(x, model[0].weight)
        while made[0] < before + 30:
            if not thread.is_alive(): raise SystemExit("the thread died")
    graph.replay()
going.clear()
thread.join()
torch.cuda.synchronize()
losses.append(z.sum())
done()
"""

COMPILED = SMALL + """
compiled = torch.compile(model, mode="reduce-overhead")
for n in range(12):
    torch.compiler.cudagraph_mark_step_begin()
    optimizer.zero_grad()
    loss = compiled(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach().clone())
done()
"""

WRONG = SMALL + """
step()
table = torch.nn.Embedding(4, 64).cuda()
for n in range(5):
    optimizer.zero_grad()
    loss = model(table(torch.tensor([n + 2], device="cuda"))).square().mean()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
"""

MEMORY = SMALL + """
step()
for n in range(3):
    try:
        model(x.expand(1 << 24, 32, 64))
        raise SystemExit("there was room")
    except torch.OutOfMemoryError: pass
    step()
done()
"""

EXITS = MODEL + """
for _ in range(30): step()
"""

LOADED = SMALL + """
if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.randn(320, 64))
    for method in "fork", "spawn":
        loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=2, pin_memory=True, multiprocessing_context=method)
        for (b,) in loader:
            x = b.cuda(non_blocking=True)
            step()
    torch.cuda.synchronize()
    step()
    done()
"""

NCCL = MODEL + """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
wrapped = DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.SGD(wrapped.parameters(), 1e-3)
big = torch.ones(1 << 26, device="cuda")
parts = [torch.empty_like(big)]
for n in range(3): step(lambda: wrapped(x))
torch.cuda.synchronize()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as seen:
    for n in range(6):
        step(lambda: wrapped(x))
        dist.all_reduce(big)
        work = dist.all_gather_into_tensor(parts[0], big, async_op=True)
        y = model[0](x)
        work.wait()
        torch.cuda.synchronize()
seen.export_chrome_trace("trace.json")
step(lambda: wrapped(x))
torch.cuda.synchronize()
done()
dist.destroy_process_group()
"""

SHARDED = SMALL + """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
for layer in model: fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(8): step()
torch.cuda.synchronize()
step()
done()
dist.destroy_process_group()
"""


class Cuda(bed.Case):
    """One process on a device."""

    def both(self, text, code=0, **env):
        """Runs a script without the recorder and with it; returns what is recorded and what it
        wrote to stderr, without and with. What it prints and how it ends must be the same."""
        without = self.alone(text, code, **env)
        self.clean()
        recorded = self.alone(text, code, LAGGARD_AUTO="1", LAGGARD_JOB="cuda", **env)
        self.assertEqual(recorded[0], without[0])
        p = self.process()
        self.assertEqual([r["kind"] for r in p.opened()], ["Step"] if code else [])  # of one that died the step stays open
        return p, without[1], recorded[1]

    def alone(self, text, code, **env):
        """Runs it once; returns (stdout, stderr)."""
        return self.python(text + END, code, **env)

    def sides(self, p, kind):
        """Returns how many records of a kind have which side's times."""
        return dict(collections.Counter(r["side"] for r in p.records(kind)))

    def trace(self):
        """Returns the profiler's events, their times in ns since the Unix epoch."""
        with open(os.path.join(self.work, "trace.json")) as f:
            whole = json.load(f)
        base = whole["baseTimeNanoseconds"]
        return [dict(e, start=base + int(e["ts"] * 1000), dur=int(e["dur"] * 1000)) for e in whole["traceEvents"] if e.get("ph") == "X"]

    def apart(self, what, found, truth, usual, most):
        """Times are apart by no more than so many us, in the median and at most."""
        self.assertEqual(len(found), len(truth))
        off = sorted(abs(a - b) / 1000 for a, b in zip(found, truth))
        median = off[len(off) // 2]
        sys.stderr.write("%s of %d: off by %.1f us, at most by %.1f us ... " % (what, len(off), median, off[-1]))
        self.assertLessEqual(median, usual, off)
        self.assertLessEqual(off[-1], most, off)

    def test_forward_passes_are_the_profilers(self):
        p, _, said = self.both(PROFILED)
        self.assertIn("cuda:0 NVIDIA", p.meta["device"])
        self.assertEqual((self.sides(p, "FP"), self.sides(p, "backward")), ({"device": 24}, {"device": 24}))
        self.assertIn("fallbacks {} failures 0", said)
        truth = {e["name"]: e for e in self.trace() if e["cat"] == "gpu_user_annotation"}
        truth = [truth["forward-%d" % n] for n in range(1, 20)]  # of the first the stream was idle, and waits for the host
        found = p.records("FP")[4:23]
        self.apart("lengths", [r["dur"] for r in found], [e["dur"] for e in truth], 20, 100)
        self.apart("ends", [r["start"] + r["dur"] for r in found], [e["start"] + e["dur"] for e in truth], 20, 100)

    def test_the_clock_while_the_stream_is_never_idle(self):
        self.alone(AHEAD, 0, LAGGARD_AUTO="1", LAGGARD_JOB="cuda")
        found = self.process().records("FP")
        with open(os.path.join(self.work, "ends.json")) as f:
            ends = json.load(f)
        self.assertEqual(len(found), len(ends) + 1)
        # The first is looked for when the third has begun. H100's clock: 10 us slower a second.
        self.apart("ends", [r["start"] + r["dur"] for r in found[1:-1]], ends[1:], 300, 1000)

    def test_captured(self):
        """Whole steps, and a step that ends in a capture: as without the recorder."""
        p, _, said = self.both(CAPTURED)
        self.assertIn("failures 0", said)
        self.assertIn("a graph is captured", said)
        self.assertEqual(self.sides(p, "FP")["device"], 16)

    def test_beside_a_capture(self):
        p, _, said = self.both(BESIDE)
        self.assertIn("failures 0", said)
        self.assertGreaterEqual(self.sides(p, "FP")["host"], 300)

    def test_compiled(self):
        p, _, said = self.both(COMPILED)
        self.assertIn("fallbacks {} failures 0", said)
        self.assertEqual((self.sides(p, "FP"), self.sides(p, "Step")), ({"device": 12}, {"device": 12}))

    def test_a_kernel_that_fails(self):
        """The script's error stays the last but for one line of ours, and nothing is lost."""
        p, without, said = self.both(WRONG, 1)
        lines = said.strip().splitlines()
        ours = [line for line in lines if line.startswith("laggard[")]
        self.assertEqual(len(ours), 1, said)
        self.assertIn("device-side assert", ours[0])
        self.assertEqual([line for line in lines if not line.startswith("laggard[")][-1], without.strip().splitlines()[-1])
        self.assertEqual(len(p.records("FP")), 4)

    def test_no_memory(self):
        p, _, said = self.both(MEMORY)
        self.assertIn("fallbacks {} failures 0", said)
        self.assertEqual(self.sides(p, "FP"), {"device": 7})

    def test_exit_in_flight(self):
        p, _, said = self.both(EXITS)
        self.assertIn("failures 0", said)
        self.assertEqual(sum(self.sides(p, "FP").values()), 30)

    def test_loaders(self):
        p, _, said = self.both(LOADED)
        self.assertIn("fallbacks {} failures 0", said)
        self.assertEqual((self.sides(p, "FP"), self.sides(p, "DataLoader")), ({"device": 21}, {"host": 20}))

    def test_nccl(self):
        """A group of one: what NCCL does is a copy, and one range each all the same."""
        p, _, said = self.both(NCCL)
        self.assertIn("fallbacks {} failures 0", said)
        found = collections.Counter((r["text"], r["value"]) for r in p.records("Communication"))
        whole, layer = 8 * (4096 * 4096 + 4096), 4096 * 4096 + 4096
        self.assertEqual(found, {("broadcast", whole): 1, ("allreduce", whole): 1, ("allreduce", layer): 9 * 8, ("all_reduce", 1 << 26): 6,
                                 ("all_gather_into_tensor", 1 << 26): 6})  # DDP's first step has one bucket
        self.assertEqual(self.sides(p, "Communication"), {"device": len(p.records("Communication"))})
        for r in p.records("Communication"):
            self.assertTrue(0 <= r["exposed"] <= r["dur"], r)
        copies = max(e["dur"] for e in self.trace() if e["cat"] == "gpu_memcpy")
        self.assertGreaterEqual(max(r["dur"] for r in p.records("Communication")[2:]), copies)

    def test_sharded(self):
        p, _, said = self.both(SHARDED)
        self.assertIn("fallbacks {} failures 0", said)
        self.assertEqual((self.sides(p, "FP"), self.sides(p, "Step")), ({"device": 9}, {"device": 9}))

    def test_nvtx(self):
        p, _, said = self.both(SMALL + "for _ in range(5): step()\ndone()\n", LAGGARD_NVTX="1")
        self.assertIn("failures 0", said)


class Culprits(culprits.Case):
    """Four ranks that share the device: one that computes more is named, by what was recorded and
    by the traces of PyTorch's profiler, which has no schedule."""

    devices = "0"

    def test_healthy(self):
        self.check("cuda_ddp", False)

    def test_with_a_slow_rank(self):
        self.check("cuda_ddp", True)

    def test_profiles(self):
        traces = os.path.join(self.work, "traces")
        os.mkdir(traces)
        self.launch("forked", "cuda_ddp", culprits.WORLD, ITERATIONS="40", WORK="20", SLOW=str(culprits.SLOW), TRACES=traces)
        done = subprocess.run([os.environ["LAGGARD"], "analyze", traces, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)
        found = json.loads(done.stdout)
        self.assertEqual([n["ranks"] for n in found["nodes"]], [[culprits.SLOW]], done.stdout + done.stderr)
        self.assertEqual(found["nodes"][0]["cause"], "compute", done.stdout)


if __name__ == "__main__":
    unittest.main()
