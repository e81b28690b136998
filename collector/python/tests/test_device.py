"""Device time with a fake asynchronous device: microseconds to enqueue, long to
complete, and nobody ever waits for it."""

import ast
import os

import jobs

# Time is virtual, the host's too: each look at the clock takes a microsecond. So it
# is for the recorder in Python alone; the extension has its own clock, see Real.
FAKE = """
    import os, time
    virtual = [10**15]
    def monotonic_ns():
        virtual[0] += 1000
        return virtual[0]
    time.monotonic_ns = monotonic_ns
    time.time_ns = lambda: monotonic_ns() + 17 * 10**17
    import laggard
    from laggard import clock, device
    class Stream(object):
        '''Runs what is enqueued one after the other, in virtual device time.'''
        free = 0
        def enqueue(self, ns):
            Stream.free = max(Stream.free, clock.now()) + ns
    stream = Stream()
    class Event(object):
        made = 0
        def __init__(self):
            Event.made += 1
            self.at = None
        def record(self, stream):
            self.at = max(Stream.free, clock.now())
        def query(self):
            return self.at <= clock.now()
        def synchronize(self):
            raise AssertionError("synchronised")
    class Fake(object):
        on = True
        def usable(self): return Fake.on
        def stream(self): return 0
        def event(self): return Event()
        @staticmethod
        def elapsed(first, second):
            assert first.query() and second.query(), "not complete"
            return second.at - first.at
    laggard.init(rank=0, job="j")
    device.use(Fake())
    from laggard.span import Automatic
    from laggard.layout import FP, COMMUNICATION
    def forward(ns):
        span = device.begin(Automatic(FP))
        stream.enqueue(ns)
        device.end(span)
    def wait_device():
        virtual[0] += max(Stream.free - clock.now(), 0)
"""


class Device(jobs.Case):
    def virtual(self, text, code=0):
        """Runs a script in virtual time."""
        return self.python(FAKE + text, code, LAGGARD_EXTENSION="0")

    def test_forward_shows_completion_not_enqueueing(self):
        self.virtual("""
    for _ in range(10):
        forward(20_000_000)
    wait_device()
    forward(0)
""")
        p = self.process()
        self.assertEqual(p.opened(), [])
        records = p.records("FP")
        self.assertEqual(len(records), 11)
        for r in records[:10]:
            self.assertEqual(r["side"], "device")
            self.assertLess(abs(r["dur"] - 20000000), 20000)
            self.assertLess(r["host_dur"], 100000)
        for one, two in zip(records[:9], records[1:10]):  # back to back on the device, early on the host
            self.assertLess(abs(two["start"] - one["start"] - one["dur"]), 20000)
            self.assertLess(two["host_start"] - one["host_start"], 100000)
        self.assertLess(abs(records[0]["start"] - records[0]["host_start"]), 100000)

    def test_in_flight_ranges_are_listed_as_open(self):
        self.virtual("""
    for _ in range(3):
        forward(10**12)
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
""", code=-9)
        p = self.process()
        self.assertEqual(([r["kind"] for r in p.opened()], p.records()), (["FP"] * 3, []))

    def test_exit_writes_host_times_of_what_is_not_complete(self):
        self.virtual("""
    for _ in range(3):
        forward(10**12)
""")
        p = self.process()
        self.assertEqual([r["side"] for r in p.records("FP")], ["host"] * 3)

    def test_empty_pool_and_graph_capture_fall_back_to_the_host(self):
        self.virtual("""
    for _ in range(600):
        forward(10**9)
    assert Event.made == device.POOL, Event.made
    Fake.on = False
    forward(0)
    (only,) = device.timeline().streams.values()
    assert sorted(laggard.fallbacks().values()) == [1, 600 - 255], laggard.fallbacks()
    Stream.free = 0
    for flight in only.flying: flight.stop.event.at = flight.start.event.at = clock.now()
    for _ in range(700): device.timeline().land()
    assert not only.flying
    assert len(only.free) == device.POOL - 1, len(only.free)
    assert laggard.failures() == 0
""")
        p = self.process()
        sides = [r["side"] for r in p.records("FP")]
        self.assertEqual(len(sides), 601)
        self.assertEqual(sides.count("device"), (512 - 1) // 2)

    def test_communication_is_exposed_while_the_stream_waits(self):
        self.virtual("""
    span = device.begin(Automatic(COMMUNICATION, 0))
    stream.enqueue(5_000_000)
    blocked = device.timeline().note()[0]
    stream.enqueue(3_000_000)
    device.end(span, blocked, 0)
    wait_device()
    forward(0)
""")
        r = self.process().records("Communication")[0]
        self.assertLess(abs(r["dur"] - 8000000), 20000)
        self.assertLess(abs(r["exposed"] - 3000000), 20000)

    def test_a_broken_device_leaves_the_host_times(self):
        _, err = self.virtual("""
    torch = {"__name__": "torch.cuda"}
    exec("def record(self, stream): raise RuntimeError('device lost')", torch)
    forward(1000); wait_device()
    Event.record = torch["record"]
    for _ in range(5): forward(1000)
    assert laggard.enabled()
""")
        self.assertIn("device lost", err)
        self.assertEqual(len(self.process().records("FP")), 6)
        self.assertEqual(self.process().opened(), [])

    def test_a_device_that_fails_leaves_what_is_in_flight(self):
        """Asked about or at exit: with the host's times, and one line says why. No event goes
        before the process: PyTorch would write a line for each."""
        for more in ("forward(0)", ""):
            self.clean()
            _, err = self.virtual("""
    torch = {"__name__": "torch.cuda"}
    exec("def query(self): raise RuntimeError('device-side assert\\\\nCompile with')", torch)
    Event.__del__ = lambda self, write=os.write: write(2, b"an event went\\n")
    for _ in range(5): forward(10**12)
    opened = device.begin(Automatic(FP))
    Event.query = torch["query"]
    %s
    device.end(opened)
    del opened
""" % more)
            self.assertEqual([line for line in err.splitlines() if line], ["laggard[%s" % err.partition("[")[2].partition("]")[0] +
                             "]: measure device time: RuntimeError: device-side assert; training goes on"])
            p = self.process()
            self.assertEqual([r["side"] for r in p.records("FP")], ["host"] * (7 if more else 6))
            self.assertEqual(p.opened(), [])

    def test_the_anchor_moves_on(self):
        self.virtual("""
    device._FRESH = 10**6
    for _ in range(50):
        forward(2_000_000); wait_device()
    forward(0)
""")
        records = self.process().records("FP")[:50]
        for r in records:
            self.assertLess(abs(r["start"] - r["host_start"]), 100000)
            self.assertGreaterEqual(r["start"], r["host_start"])


    def test_a_clock_that_goes_faster_than_the_hosts(self):
        """By a hundredth, over 8 s in which the stream is never idle: no range lies later than it
        was seen."""
        self.virtual("""
    truth = Fake.elapsed
    Fake.elapsed = staticmethod(lambda first, second: int(truth(first, second) * 1.01))
    ends = []
    for _ in range(400):
        forward(20_000_000)
        ends.append(Stream.free)
        if Stream.free - clock.now() > 60_000_000: virtual[0] += 20_000_000
    wait_device()
    forward(0)
    with open("ends", "w") as f: f.write(repr(ends))
""")
        with open(os.path.join(self.work, "ends")) as f:
            ends = ast.literal_eval(f.read())
        records = self.process().records("FP")[:400]
        for r, end in zip(records, ends):
            self.assertLess(abs(r["start"] + r["dur"] - end), 25_000_000)


class Real(jobs.Case):
    def test_the_same_by_a_clock_that_goes(self):
        self.python(FAKE.replace("time.monotonic_ns = monotonic_ns", "").replace(
            "time.time_ns = lambda: monotonic_ns() + 17 * 10**17", "") + """
    for _ in range(10):
        forward(20_000_000)
    while any(s.flying for s in device._timeline.streams.values()):
        device._timeline.land()
""")
        p = self.process()
        self.assertEqual(p.opened(), [])
        records = p.records("FP")
        self.assertEqual(len(records), 10)
        for r in records:
            self.assertEqual(r["side"], "device")
            self.assertGreaterEqual(r["dur"], 20000000)
            self.assertGreater(r["host_start"], 0)
        for one, two in zip(records, records[1:]):  # back to back on the device
            self.assertGreaterEqual(two["start"], one["start"] + one["dur"])
