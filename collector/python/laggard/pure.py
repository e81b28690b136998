"""Ranges in Python alone: what span.py offers where there is no extension."""

from . import clock
from . import layout
from . import recorder
from .ring import OFF

_ident = recorder.threading.get_ident
_local, _state = recorder.local, recorder.state
_monotonic, _OFFSET = clock.monotonic, clock.OFFSET
_COMMUNICATION = layout.COMMUNICATION


class Span(object):
    """One range. kind is a number of layout; text, group are ids of strings."""

    __slots__ = ("step", "start", "slot")
    automatic = False
    number = None  # of the step, when the range knows better than the process
    ring = None
    value = text = group = 0
    peer = -1

    def __enter__(self):
        try:
            self.slot = OFF
            ring = _local.ring
            if ring is None:
                ring = recorder.attach(self.automatic)
            self.ring = ring
            number = self.number
            self.step = _state.step if number is None else number
            ring.begin(self)
        except Exception as cause:  # pylint: disable=broad-except
            self.cancel()
            recorder.fail("begin range", cause)
        return self

    def __exit__(self, *exception):
        if self.slot == OFF:
            return
        try:
            start = self.start
            dur = _monotonic() + _OFFSET - start
            ring = self.ring
            if ring.ident != _ident() or ring.shared:
                elsewhere(self, start, dur)
            elif self.bit == 2:
                ring.publish(self, start, dur, 8, dur)
            else:
                ring.publish(self, start, dur)
        except BaseException as cause:
            self.cancel()  # nobody is left to end it
            if not isinstance(cause, Exception):
                raise
            recorder.fail("end range", cause)

    def begin(self):
        """Begins the range; returns it."""
        return self.__enter__()

    def end(self, exposed=None, at=None):
        """Ends the range, now or at a time; exposed is the ns the trainer waited."""
        if self.slot == OFF:
            return
        try:
            start = self.start
            dur = (_monotonic() + _OFFSET if at is None else at) - start
            if exposed is None:
                exposed = dur if self.bit == 2 else -1
            flags = 8 if exposed >= 0 else 0
            if self.ring.ident != _ident() or self.ring.shared:
                elsewhere(self, start, dur, flags, max(exposed, 0))
            else:
                self.ring.publish(self, start, dur, flags, max(exposed, 0))
        except BaseException as cause:
            self.cancel()  # nobody is left to end it
            if not isinstance(cause, Exception):
                raise
            recorder.fail("end range", cause)

    def cancel(self):
        """Forgets the range: nothing is recorded."""
        if self.slot != OFF:
            self.ring.drop(self)
            self.slot = OFF


class Detailed(Span):
    """A range with more than a kind."""

    __slots__ = ("head", "bit", "text", "group", "peer", "value", "ring")

    def __init__(self, kind, text=0, value=0, dtype=0, group=0, peer=-1):
        self.head = kind | dtype << 16
        self.bit = 2 if kind == _COMMUNICATION else 1
        self.text = text
        self.value = value
        self.group = group
        self.peer = peer
        self.slot = OFF


class Automatic(Detailed):
    """A range that the instrumentation makes: it does not make a rank of a helper."""

    __slots__ = ("device",)  # the events of a range on an accelerator, see device
    automatic = True


def elsewhere(span, start, dur, flags=0, extra=0, host_dur=0):
    """Publishes a range that does not end in its own thread, in the shared ring."""
    with recorder.shared_lock():
        ring = recorder.shared()
        if span.slot == OFF:
            return
        if ring is None:
            recorder.no_ring().begin(span)
            span.ring.drop(span)
        elif ring is span.ring:
            ring.publish(span, start, dur, flags, extra, host_dur)
        else:
            owner, slot = span.ring, span.slot
            span.slot = -1
            ring.publish(span, start, dur, flags, extra, host_dur)
            span.slot = slot
            owner.drop(span)
    span.slot = OFF


def begin_elsewhere(span):
    """Begins a range that may end in any thread: it is listed in the shared ring."""
    try:
        if not recorder.ready(span.automatic):
            return span
        with recorder.shared_lock():
            ring = recorder.shared()
            if ring is None:
                recorder.no_ring().begin(span)
            else:
                span.ring = ring
                span.step = _state.step
                ring.begin(span)
    except Exception as cause:  # pylint: disable=broad-except
        span.slot = OFF
        recorder.fail("begin range", cause)
    return span
