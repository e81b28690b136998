"""Device time: when an accelerator really worked, not when work was enqueued.

A range gets two events of the current stream's pool, recorded on that stream. They
are asked (never waited for) whenever a later range begins or ends; when the range is
complete the record is written with the device's times. A pool grows as its stream
needs it, up to POOL events: a stream that hangs takes nothing from the others, and
holds up no record of theirs. What finds no event, and what is not complete at exit,
is written with the host's times, and counted by the reason (see laggard.fallbacks).

While a graph is captured, by whatever thread, no event is asked about: CUDA ends the
capture with an error then, which would be the trainer's. Ranges that begin or end
meanwhile get the host's times.

A device's interface is six functions (see CUDA), so a test can bring its own.

Event times are relative. The clock below ties them to the host's: an event can't
run before it was recorded, nor after it was seen complete, and the anchor's time is
moved as little as that asks for. It is exact as soon as the stream was idle once. A
device's clock goes some 10 us a second faster or slower than the host's. The anchor
moves on each second, because elapsed_time is a 32-bit float.
"""

import collections
import functools
import sys
import threading

from . import clock
from . import recorder
from .layout import COMMUNICATION, DEVICE, EXPOSED, HOST_TIMES
from .ring import OFF
from .span import begin_elsewhere, elsewhere

POOL = 512      # events of a stream; two or three a range in flight
_GROWTH = 32    # events that are made at once
_STREAMS = 64   # of which pools are kept: a script may make streams without end
_LOOKS = 8      # ranges looked at whenever another one begins or ends
_FRESH = 10**9  # ns after which the anchor moves on


_asking = threading.Lock()  # held while events are asked about
_captures = set()           # ids of the graphs that are captured now


def _cover_captures(graph):
    """Follows the captures of a class of graphs."""
    if graph is None or hasattr(graph.capture_begin, "__laggard__"):
        return
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self, *args, **kwargs):
        with _asking:
            _captures.add(id(self))
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            _captures.discard(id(self))
            raise

    @functools.wraps(end)
    def capture_end(self, *args, **kwargs):
        try:
            return end(self, *args, **kwargs)
        finally:
            _captures.discard(id(self))

    capture_begin.__laggard__, capture_end.__laggard__ = begin, end
    graph.capture_begin, graph.capture_end = capture_begin, capture_end


class CUDA(object):
    """torch.cuda, and torch.npu, which has the same face."""

    def __init__(self, module, name):
        self.module, self.name = module, name
        self.index = module.current_device()
        for graph in ("CUDAGraph", "NPUGraph"):
            _cover_captures(getattr(module, graph, None))

    def describe(self):
        """Returns the device's name for the identity."""
        try:
            return "%s:%d %s" % (self.name, self.index, self.module.get_device_name(self.index))
        except Exception:  # pylint: disable=broad-except
            return "%s:%d" % (self.name, self.index)

    def usable(self):
        """Reports whether events can be recorded now: our device, no graph capture."""
        if _captures:
            return False
        capturing = getattr(self.module, "is_current_stream_capturing", None)
        return self.module.current_device() == self.index and not (capturing is not None and capturing())

    def computing(self):
        """Reports whether the current stream is the one that computes, not one beside it."""
        default = getattr(self.module, "default_stream", None)
        return default is None or self.module.current_stream() == default()

    def stream(self):
        """Returns the current stream: something that can be a key."""
        return self.module.current_stream()

    def event(self):
        """Returns a new event."""
        return self.module.Event(enable_timing=True)

    @staticmethod
    def elapsed(first, second):
        """Returns the ns between two complete events."""
        return int(first.elapsed_time(second) * 1e6)


class _Stream(object):
    """A stream's events: all that were made, those that are free, and its ranges in
    flight in the order in which they complete."""

    __slots__ = ("made", "free", "flying")

    def __init__(self):
        self.made = []
        self.free = []
        self.flying = collections.deque()

    def take(self, device):
        """Returns an event, or None where all are in flight."""
        if not self.free:
            if len(self.made) >= POOL:
                return None
            self.free = [_Event(device.event(), self) for _ in range(min(_GROWTH, POOL - len(self.made)))]
            self.made += self.free
        return self.free.pop()


class _Event(object):
    """An event and the stream that it belongs to."""

    __slots__ = ("event", "home")

    def __init__(self, event, home):
        self.event, self.home = event, home

    def complete(self):
        """Reports whether the stream has come to it; does not wait."""
        return self.event.query()

    def give(self):
        """Returns it to its stream."""
        self.home.free.append(self)


class _Flight(object):
    """A range whose events are in flight."""

    __slots__ = ("span", "start", "blocked", "stop", "recorded", "host_dur", "exposed")

    def complete(self):
        """Reports whether all its events are complete: on other streams they may be late."""
        if not self.stop.complete():
            return False
        home = self.stop.home
        return all(e is None or e.home is home or e.complete() for e in (self.start, self.blocked))


class Timeline(object):
    """One device's events: the pools of its streams, the anchor, what is in flight."""

    def __init__(self, device):
        self.device = device
        self.streams = {}
        self.anchor = None
        self.anchored = False  # the stream has come to it
        self.base = 0  # ns since the Unix epoch of the anchor

    def note(self):
        """Returns (event recorded now, host time), or None when there is none to be had."""
        event = self._record()
        if event is None:
            return None
        now = clock.now()
        if self.anchor is None:
            self.base, self.anchor = now, event
            event = self._record()
            if event is None:
                return None
            now = clock.now()
        return event, now

    def _record(self):
        key = self.device.stream()
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= _STREAMS:
                fell_back("more than %d streams" % _STREAMS)
                return None
            stream = self.streams[key] = _Stream()
        event = stream.take(self.device)
        if event is None:
            fell_back("the stream has %d events in flight" % POOL)
            return None
        event.event.record(key)
        return event

    def land(self):
        """Writes the ranges that are complete."""
        if not _asking.acquire(False):
            return  # called out of itself, by a finaliser, or another thread asks
        try:
            looks = 0 if _captures else _LOOKS
            for stream in list(self.streams.values()):
                while looks and stream.flying:
                    looks -= 1
                    self.anchored = self.anchored or self.anchor.complete()
                    if not self.anchored or not stream.flying[0].complete():
                        break
                    self._write(stream.flying[0])
                    stream.flying.popleft()
        finally:
            _asking.release()

    def _write(self, flight):
        """Writes one range; its events are complete."""
        begins = self._elapsed(self.anchor, flight.start)
        dur = max(self._elapsed(flight.start, flight.stop), 0)  # of two streams, the later event may complete first
        latest = clock.now() - begins - dur
        self.base = max(min(self.base, latest), flight.recorded - begins)
        start = self.base + begins
        span = flight.span
        if span.head & 7 == COMMUNICATION:
            exposed = flight.exposed
            if flight.blocked is not None:
                exposed = self._elapsed(flight.blocked, flight.stop)
            elsewhere(span, start, dur, DEVICE | EXPOSED, dur if exposed is None else min(max(exposed, 0), dur))
        else:
            elsewhere(span, start, dur, DEVICE | HOST_TIMES, span.start, flight.host_dur)
        self._recycle(flight, begins + dur, start + dur)

    def _elapsed(self, first, second):
        return self.device.elapsed(first.event, second.event)

    def _recycle(self, flight, since, at):
        flight.start.give()
        if flight.blocked is not None:
            flight.blocked.give()
        if since > _FRESH:
            self.anchor.give()
            self.anchor, self.base = flight.stop, at
        else:
            flight.stop.give()

    def abandon(self, why):
        """Writes what is in flight with the host's times."""
        for stream in self.streams.values():
            while stream.flying:
                flight = stream.flying.popleft()
                fell_back(why)
                elsewhere(flight.span, flight.span.start, flight.host_dur)


_UNUSABLE = "another device, or a graph is captured"
fallbacks = {}  # why the host's times were written → how often


def fell_back(why):
    """Counts a range that gets the host's times."""
    fallbacks[why] = fallbacks.get(why, 0) + 1


_timeline = None
_tried = False


def use(device):
    """Measures on this device from now on; None goes back to the host."""
    global _timeline, _tried
    _tried = device is not None
    _timeline = Timeline(device) if device is not None else None


def timeline():
    """Returns the device's timeline once an accelerator is in use, else None."""
    global _tried
    if _timeline is not None or _tried:
        return _timeline
    torch = sys.modules.get("torch")
    for name in ("npu", "cuda"):
        module = vars(torch).get(name) if torch is not None else None  # getattr of a missing one takes microseconds
        try:
            if module is not None and vars(module).get("_initialized", True) and module.is_initialized():  # a dict is asked sooner
                _tried = True
                device = CUDA(module, name)
                use(device)
                recorder.identity.device = device.describe()
                recorder.publish_identity()
                return _timeline
        except Exception as cause:  # pylint: disable=broad-except
            _tried = True
            recorder.trouble("measure device time", cause)
    return None


def computing():
    """Reports whether the current stream computes; on the host there is no other."""
    asked = getattr(_timeline.device, "computing", None) if _timeline is not None else None
    return asked is None or asked()


def begin(span, later=False):
    """Begins a range, on the device where there is one. later says that it may end
    in another thread."""
    span.device = None
    line = timeline()
    if line is None:
        return begin_elsewhere(span) if later else span.begin()
    try:
        if line.device.usable():
            line.land()
            begin_elsewhere(span)
            if span.slot != OFF:
                span.device = line.note()
            return span
        fell_back(_UNUSABLE)
    except Exception as cause:  # pylint: disable=broad-except
        _broken(cause)
        if span.slot != OFF:
            return span
    return begin_elsewhere(span) if later else span.begin()


def _broken(cause):
    """Goes back to the host's times for good. The events stay until the process has ended: of
    each that goes while its device fails PyTorch writes a line, below the error of the script."""
    global _timeline
    line, _timeline = _timeline, None
    if line is not None:
        line.abandon("the device failed")
        import ctypes  # rarely needed, and not in every Python
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(line))
    recorder.trouble("measure device time", cause)


def end(span, blocked=None, exposed=None):
    """Ends it: at once, or when its events are complete. blocked is the event from
    which on the stream waited for it; exposed the host's figure where there is no
    device."""
    noted = span.device
    line = _timeline
    if noted is None or line is None or span.slot == OFF:
        span.end(exposed)
        return
    try:
        stop = line.note() if line.device.usable() else fell_back(_UNUSABLE)
        host_dur = clock.now() - span.start
        if stop is None:
            noted[0].give()
            if blocked is not None:
                blocked.give()
            span.end(exposed)
            return
        flight = _Flight()
        flight.span, (flight.start, flight.recorded) = span, noted
        flight.stop, flight.blocked = stop[0], blocked
        flight.host_dur, flight.exposed = max(host_dur, 0), exposed
        stop[0].home.flying.append(flight)
    except Exception as cause:  # pylint: disable=broad-except
        _broken(cause)
        span.end(exposed)
        return
    _land(line)


def _land(line):
    try:
        line.land()
    except Exception as cause:  # pylint: disable=broad-except
        _broken(cause)


def _at_exit():
    if _timeline is not None:
        _land(_timeline)
    if _timeline is not None:
        _timeline.abandon("not complete at exit")


def _after_fork():
    """An accelerator can't be used in a forked child."""
    global _asking
    _asking = threading.Lock()  # another thread's of the parent may hold the one before
    use(None)


recorder.closers.append(_at_exit)
recorder.os.register_at_fork(after_in_child=_after_fork)
