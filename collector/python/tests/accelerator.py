"""A fake of torch.cuda and torch.npu, for machines without one. Each stream is a thread
that does what was enqueued, one after the other and later than the host; an event is
complete when its stream has come to it. Nobody may wait for it.

    fake = accelerator.Module(); torch.npu = fake
    with fake.stream(side): fake.work(gate)    the side stream stands until the gate opens
"""

import collections
import contextlib
import queue
import threading
import time


class Stream(object):
    """Does what is enqueued, in a thread of its own."""

    def __init__(self):
        self.todo = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self.todo.get()()

    def reached(self):
        """Waits until it has done what was enqueued: the test's, not the recorder's."""
        done = threading.Event()
        self.todo.put(done.set)
        done.wait()


class Event(object):
    """A mark in a stream."""

    made = collections.Counter()

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.at = None

    def record(self, stream):
        """Marks a stream."""
        Event.made[stream] += 1
        self.at = None
        stream.todo.put(self._reached)

    def _reached(self):
        self.at = time.monotonic_ns()

    def query(self):
        """Reports whether the stream has come here. While a graph is captured that ends the
        capture with an error, whoever asks: test_cuda.py sees a real device do so."""
        if Graph.captured:
            Graph.captured[0].broken = True
            raise RuntimeError("operation not permitted when stream is capturing")
        return self.at is not None

    def elapsed_time(self, other):
        """Returns the ms to another event."""
        assert self.query() and other.query(), "an event is not complete"
        return (other.at - self.at) / 1e6

    def synchronize(self):
        """Fails: the recorder never waits."""
        raise AssertionError("the recorder waits")


class Graph(object):
    """A graph of what is enqueued, which nobody can replay."""

    captured = []  # those whose capture has begun

    def __init__(self):
        self.broken = False

    def capture_begin(self):
        """Begins the capture."""
        Graph.captured.append(self)

    def capture_end(self):
        """Ends the capture."""
        Graph.captured.remove(self)
        assert not self.broken, "operation failed due to a previous error during capture"


class Module(object):
    """What torch.cuda and torch.npu have in common; the rest is that of the module that was there."""

    Event = Event
    CUDAGraph = NPUGraph = Graph

    def __init__(self, was=None):
        self.was = was
        self.default = Stream()
        self.now = self.default
        self.capturing = False

    def __getattr__(self, name):
        return getattr(self.was, name)

    def is_initialized(self):
        """Reports that it is in use."""
        return True

    def current_device(self):
        """Returns the first one."""
        return 0

    def get_device_name(self, index):
        """Returns a name."""
        return "fake %d" % index

    def is_current_stream_capturing(self):
        """Reports whether a graph is captured."""
        return self.capturing

    def current_stream(self):
        """Returns the stream that work goes to."""
        return self.now

    def default_stream(self):
        """Returns the stream that computes."""
        return self.default

    @contextlib.contextmanager
    def stream(self, other):
        """Sends work to another stream."""
        before, self.now = self.now, other
        yield
        self.now = before

    def work(self, gate):
        """Enqueues work that lasts until the gate opens."""
        self.now.todo.put(gate.wait)

    def synchronize(self):
        """Waits until the streams that exist have come this far: the test's, not the recorder's."""
        for stream in list(Event.made) or [self.default]:
            stream.reached()
