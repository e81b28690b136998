"""Device times on several streams, by a fake of torch.cuda and torch.npu whose events
complete when their stream has come to them: there is no accelerator here."""

import os

import jobs

START = """
import sys, threading
sys.path.insert(0, %r)
import accelerator, torch
name = os.environ["FAKE"]
fake = accelerator.Module(getattr(torch, name, None))
setattr(torch, name, fake)
import laggard
laggard.init(rank=0, job="j")
from laggard import device
from laggard.layout import COMMUNICATION, FP, OTHER
from laggard.span import Automatic
def ranged(gate=None, kind=FP):
    span = device.begin(Automatic(kind))
    if gate is not None: fake.work(gate)
    device.end(span)
def opened():
    gate = threading.Event(); gate.set()
    return gate
def measure():
    "The first range, and with it the anchor of all times, is complete."
    ranged(opened(), OTHER)
    fake.synchronize()
side = accelerator.Stream()
""" % os.path.dirname(os.path.abspath(__file__))


class Streams(jobs.Forking):
    AUTO = "0"

    def both(self, text):
        """Runs a script with a fake CUDA and a fake NPU; yields the records of each."""
        for fake in "cuda", "npu":
            with self.subTest(fake=fake):
                self.clean()
                self.python("import os\n" + START + text + "\nassert laggard.failures() == 0\n", FAKE=fake)
                p = self.process()
                self.assertEqual((p.opened(), p.meta["device"]), ([], fake + ":0 fake 0"))
                yield p

    def test_a_stream_that_stands_holds_up_no_other(self):
        for p in self.both("""
measure()
gate = threading.Event()
with fake.stream(side): ranged(gate, OTHER)
for _ in range(10): ranged(opened())
fake.default.reached()
for _ in range(10): device.timeline().land()
waits = [s for s in device.timeline().streams.values() if s.flying]
assert len(waits) == 1 and len(waits[0].flying) == 1, waits
gate.set()
fake.synchronize()
device.timeline().land()
assert laggard.fallbacks() == {}, laggard.fallbacks()
"""):
            self.assertEqual([r["side"] for r in p.records("FP")], ["device"] * 10)
            slow = [r for r in p.records() if r["kind"] != "FP"]
            self.assertEqual([r["side"] for r in slow], ["device"] * 2)
            last = p.records("FP")[-1]
            self.assertGreater(slow[1]["start"] + slow[1]["dur"], last["start"] + last["dur"])

    def test_a_pool_grows_by_stream(self):
        for p in self.both("""
measure()
gate = threading.Event()
with fake.stream(side):
    for _ in range(300): ranged(gate, OTHER)
for _ in range(300):
    ranged(opened())
    fake.default.reached()
by_stream = {len(s.made) for s in device.timeline().streams.values()}
assert by_stream == {device.POOL, device._GROWTH}, by_stream
assert laggard.fallbacks() == {"the stream has %d events in flight" % device.POOL: 300 - device.POOL // 2}, laggard.fallbacks()
gate.set()
fake.synchronize()
for _ in range(100): device.timeline().land()
"""):
            self.assertEqual([r["side"] for r in p.records("FP")], ["device"] * 300)
            sides = [r["side"] for r in p.records() if r["kind"] != "FP"]
            self.assertEqual((sides.count("device"), sides.count("host")), (1 + 256, 44))

    def test_a_range_ends_on_another_stream(self):
        for p in self.both("""
first, second = threading.Event(), threading.Event()
span = device.begin(Automatic(COMMUNICATION))
fake.work(first)          # the stream that computes comes to nothing yet
ranged()
with fake.stream(side):
    fake.work(second)
    device.end(span, None, 0)
second.set()
side.reached()
device.timeline().land()
first.set()
fake.synchronize()
for _ in range(10): device.timeline().land()
"""):
            self.assertEqual([(r["side"], r["exposed"]) for r in p.records("Communication")], [("device", 0)])

    def test_a_capture_is_left_alone(self):
        """A step ends inside of it, and another thread's passes go on."""
        for p in self.both("""
measure()
step = device.begin(Automatic(OTHER))
graph = fake.CUDAGraph()
graph.capture_begin()
device.end(step)
ranged()
def beside():
    with fake.stream(side):
        for _ in range(5): ranged(opened())
thread = threading.Thread(target=beside)
thread.start()
thread.join()
graph.capture_end()
ranged(opened())
fake.synchronize()
for _ in range(10): device.timeline().land()
assert laggard.fallbacks() == {"another device, or a graph is captured": 7}, laggard.fallbacks()
"""):
            self.assertEqual([r["side"] for r in p.records("FP")], ["host"] * 6 + ["device"])
            self.assertEqual([r["side"] for r in p.records() if r["kind"] != "FP"], ["device", "host"])

    def test_what_falls_back_is_counted(self):
        for p in self.both("""
fake.capturing = True
ranged()
fake.capturing = False
streams = [accelerator.Stream() for _ in range(device._STREAMS + 3)]
for each in streams:
    with fake.stream(each): ranged(opened())
fake.synchronize()
for _ in range(100): device.timeline().land()
assert laggard.fallbacks() == {"another device, or a graph is captured": 1, "more than 64 streams": 3}, laggard.fallbacks()
"""):
            sides = [r["side"] for r in p.records("FP")]
            self.assertEqual((sides.count("device"), sides.count("host")), (64, 4))
