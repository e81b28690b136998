"""The hot path: one thread's ring file and the functions that write it.

Invariant: one writer at a time. A record is published by storing the head after
its slot is complete, and a slot that the reader has not passed is never
overwritten; so SIGKILL at any instant loses nothing that was published.

Caveat: Python has no release store. The checksum decides whether a slot is
whole, the head is a hint. Signal handlers and finalisers may run between any two
lines here: what they emit while a record is being written is put off until that
record is out.

begin and publish are closures, because a local of an enclosing function is the
cheapest state that Python has.
"""

import os
import struct
import threading

from . import clock
from . import layout
from .extension import native

# What a span's slot holds when it has none: not in the open table, or switched off.
UNLISTED = -1
OFF = -2

_monotonic, _OFFSET, _total = clock.monotonic, clock.OFFSET, layout.slot_checksum


class Ring(object):
    """A ring file and its two functions.

    begin(span) notes the start and lists the range as open. publish(span, start,
    dur, flags, extra, host_dur) writes the finished record: extra is host_start or
    exposed by flags. Both belong to one thread at a time (see recorder).
    """

    __slots__ = ("number", "size", "begin", "publish", "ident", "close", "drop", "adopt", "share", "disown", "hold", "let_go", "shared", "__weakref__")


def create(directory, number, slots, process):
    """Makes ring-<number> in a process's folder, open as a descriptor. Raises OSError
    without room."""
    light, bulk = slots
    size = layout.ring_size(light, bulk)
    temporary = ".ring-%d.new" % number
    process.check_room(size)
    fd, mapping = layout.allocate(directory, temporary, size)
    os.close(fd)
    try:
        process.check_room(0)  # again, for others who looked at the same moment
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise
    kind = layout.SLOT_CHECKSUM if native is None else layout.CRC32C
    struct.pack_into("<8sIIIIIIQI", mapping, 0, layout.RING_MAGIC, layout.VERSION, layout.RING_HEADER,
                     kind, number, light, bulk, 0, layout.LIVE)
    os.rename(temporary, "ring-%d" % number, src_dir_fd=directory, dst_dir_fd=directory)
    if native is not None:
        return native.Ring(mapping, number, light, bulk)
    ring = Ring()
    ring.number = number
    ring.size = size
    ring.shared = False
    ring.ident = 0
    _functions(ring, mapping, light, bulk, process)
    return ring


def native_id():
    """Returns the OS thread id, 0 where Python does not know it (3.7)."""
    get = getattr(threading, "get_native_id", None)
    if get is not None:
        return get()
    return os.getpid() if threading.current_thread() is threading.main_thread() else 0


def _functions(ring, mapping, light_slots, bulk_slots, process):
    """Gives the ring its begin, publish, close, adopt and disown."""
    # pylint: disable=too-many-locals,too-many-statements
    words = memoryview(mapping).cast("I")
    quads = memoryview(mapping).cast("Q")
    pairs = memoryview(mapping)[4:-4].cast("Q")  # bytes 4 to 11 of a slot
    state = process.state
    switch = process.words
    follow = process.follow
    pack, frame = layout.BODY.pack, layout.FRAME.pack_into
    open_slot = layout.open_slot
    free = [open_slot(n) for n in range(layout.OPEN_LEVELS - 1, -1, -1)]
    take, give = free.pop, free.append
    light_mask, bulk_mask = light_slots - 1, bulk_slots - 1
    bulk_base = layout.RING_HEADER + layout.SLOT * light_slots
    light_head = bulk_head = 0
    emitted, dropped = [0] * 8, [0] * 8
    seen = -1
    busy = False
    gone = False
    held = 0    # forks under way
    late = []

    def ours():
        """Whether this is still the process that made the ring. What runs in a forked
        child before its own hook, the end of a thread or a signal handler, takes itself
        for its parent."""
        if held and os.getpid() != process.life.pid:
            disown()
        return not gone

    def begin(span):
        """Notes the start of a range and lists it as open."""
        nonlocal seen
        if held and not ours():
            span.slot = OFF
            return
        word = switch[32]
        if word != seen:
            follow(word)
            seen = word
        if not word & span.bit:
            span.slot = OFF
            return
        span.start = start = _monotonic() + _OFFSET
        if gone:  # a signal handler forked in the call, and this is the child
            span.slot = OFF
            return
        if not free:
            span.slot = UNLISTED
            return
        span.slot = at = take()
        body = pack(span.head, 0, span.peer, start, 0, 0, span.text << 48, span.step, span.group, span.value)
        frame(mapping, at, _total(body), body)
        words[at + 4 >> 2] = span.head | 0x01000000

    def publish(span, start, dur, flags=0, extra=0, host_dur=0):
        """Writes the finished record and takes the range off the table."""
        nonlocal busy, light_head, bulk_head
        if busy or gone or held and not ours():
            if not gone:
                late.append((span, start, dur, flags, extra, host_dur))
            return
        at = span.slot
        if at == OFF:  # ended or cancelled by a signal handler while its end was noted
            return
        try:
            busy = True
            span.slot = OFF  # a second end does nothing
            if dur < 0:
                dur = 0
            head = span.head
            kind = head & 7
            if kind == 3:
                seq = bulk_head
                room = seq - quads[32] <= bulk_mask
                where = bulk_base + ((seq & bulk_mask) << 6)
                mark = seq & 0x7FFFFFFF | 0x80000000
            else:
                seq = light_head
                room = seq - quads[16] <= light_mask
                where = 8192 + ((seq & light_mask) << 6)
                mark = seq & 0x7FFFFFFF
            if room:
                if at > 0:  # sequence number and state by one store
                    pairs[at >> 3] = mark << 32 | head | 0x02000000
                body = pack(head | flags << 8, seq & 0xFFFFFFFF, span.peer, start, dur, extra,
                            host_dur | span.text << 48, span.step, span.group, span.value)
                total = _total(body)
                if gone:  # a signal handler forked in a call, and this is the child
                    return
                frame(mapping, where, total, body)
                if gone:
                    return
                if kind == 3:
                    quads[24] = bulk_head = seq + 1
                else:
                    quads[8] = light_head = seq + 1
            else:
                lost = dropped[kind] + 1
                dropped[kind] = lost
                quads[40 + kind] = lost
                if not quads[48]:
                    quads[48] = start
                quads[49] = start
            emitted[kind] = count = emitted[kind] + 1
            quads[56 + kind] = count
        finally:
            if at > 0 and not gone:
                leave_table(span, at)
            busy = False
        while late:
            publish(*late.pop(0))

    def drop(span):
        """Takes a range off the table without a record."""
        at = span.slot
        if at > 0 and not gone and (not held or ours()):
            leave_table(span, at)
            span.slot = UNLISTED

    def leave_table(span, at):
        words[at + 4 >> 2] = span.head
        give(at)

    def close():
        """Marks the ring: its thread has ended."""
        if not gone:
            words[10] = layout.CLOSED
            ring.ident = 0

    def adopt():
        """Makes it the calling thread's. One that still holds another thread's slots
        says thread 0: the agent could not tell whose they are."""
        drained = quads[16] >= light_head and quads[32] >= bulk_head
        quads[4] = native_id() if drained else 0
        words[10] = layout.LIVE
        ring.ident = threading.get_ident()

    def share():
        """Makes it the one for what ends in another thread than it began in."""
        words[10] = layout.LIVE
        quads[4] = 0
        ring.shared = True

    def hold():
        """Before a fork, until let_go: see ours. In a child it stays."""
        nonlocal held
        held += 1

    def let_go():
        nonlocal held
        held -= 1

    def disown():
        """In a forked child: the ring is the parent's, never write to it again."""
        nonlocal gone
        gone = True

    ring.begin, ring.publish = begin, publish
    ring.close, ring.adopt, ring.disown = close, adopt, disown
    ring.drop, ring.share = drop, share
    ring.hold, ring.let_go = hold, let_go
