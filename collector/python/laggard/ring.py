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


class Ring(object):
    """A ring file and its two functions.

    begin(span) notes the start and lists the range as open. publish(span, start,
    dur, flags, extra, host_dur) writes the finished record: extra is host_start or
    exposed by flags. Both belong to one thread at a time (see recorder).
    """

    __slots__ = ("number", "size", "begin", "publish", "ident", "close", "drop", "adopt", "share", "disown", "shared", "methods", "__weakref__")


def create(folder, number, slots, process):
    """Makes ring-<number> in a process's folder. Raises OSError without room."""
    light, bulk = slots
    size = layout.ring_size(light, bulk)
    temporary = os.path.join(folder, ".ring-%d.new" % number)
    fd, mapping = layout.allocate(temporary, size)
    os.close(fd)
    kind = layout.SLOT_CHECKSUM if native is None else layout.CRC32C
    struct.pack_into("<8sIIIIIIQI", mapping, 0, layout.RING_MAGIC, layout.VERSION, layout.RING_HEADER,
                     kind, number, light, bulk, 0, layout.LIVE)
    os.rename(temporary, os.path.join(folder, "ring-%d" % number))
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
    state, ident = process.state, threading.get_ident
    switch = process.words
    follow = process.follow
    monotonic, offset = clock.monotonic, clock.OFFSET
    total = layout.slot_checksum
    pack, frame = layout.BODY.pack, layout.FRAME.pack_into
    pack_begin, pack_end, pack_tail = layout.BEGIN.pack, layout.END.pack, layout.TAIL.pack
    free = [layout.OPEN_TABLE + layout.SLOT * n for n in range(layout.OPEN_LEVELS - 1, -1, -1)]
    take, give = free.pop, free.append
    light_mask, bulk_mask = light_slots - 1, bulk_slots - 1
    bulk_base = layout.RING_HEADER + layout.SLOT * light_slots
    light_head = bulk_head = 0
    limit = 0  # light_head must look at the tail again when it is here
    owner = 0  # the thread that may write
    dropped = [0] * 8
    seen = -1
    busy = False
    gone = False
    late = []

    def begin(span):
        """Notes the start of a range and lists it as open."""
        nonlocal seen
        word = switch[32]
        if word != seen:
            follow(word)
            seen = word
        if not word & span.bit:
            span.slot = OFF
            return
        span.start = start = monotonic() + offset
        if not free:
            span.slot = UNLISTED
            return
        span.slot = at = take()
        body = pack(span.head, 0, span.peer, start, 0, 0, span.text << 48, span.step, span.group, span.value)
        frame(mapping, at, total(body), body)
        words[at + 4 >> 2] = span.head | 0x01000000

    def publish(span, start, dur, flags=0, extra=0, host_dur=0):
        """Writes the finished record and takes the range off the table."""
        nonlocal busy, light_head, bulk_head, limit
        if busy or gone:
            if not gone:
                late.append((span, start, dur, flags, extra, host_dur))
            return
        at = span.slot
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
                tail = quads[16]
                room = seq - tail <= light_mask
                limit = min(max(tail, 0), seq) + light_slots if seq + light_slots < 1 << 31 else 0
                where = 8192 + ((seq & light_mask) << 6)
                mark = seq & 0x7FFFFFFF
            if room:
                if at > 0:  # sequence number and state by one store
                    pairs[at >> 3] = mark << 32 | head | 0x02000000
                body = pack(head | flags << 8, seq & 0xFFFFFFFF, span.peer, start, dur, extra,
                            host_dur | span.text << 48, span.step, span.group, span.value)
                frame(mapping, where, total(body), body)
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
            quads[56 + kind] += 1
        finally:
            if at > 0:
                words[at + 4 >> 2] = span.head
                give(at)
            busy = False
        while late:
            publish(*late.pop(0))

    def methods(head, text):
        """Returns what makes a class of ranges with nothing but their times, written
        here. Nothing in enter or leave can fail: all that they pack is bounded."""
        prefix = layout.PREFIX.pack(head, 0, -1)
        opened, closing, counter = head | 0x01000000, head | 0x02000000, 56 + head
        tails = None, b""  # a step, and what a slot of it ends with

        def enter(span):
            nonlocal seen, tails
            word = switch[32]
            if word != seen:
                follow(word)
                seen = word
            if not word & 1:
                span.slot = OFF
                return span
            step, tail = tails
            if step != state.step:
                step = state.step
                tail = pack_tail(0, text << 48, step, 0, 0)
                tails = step, tail
            span.tail = tail
            if not free:
                span.slot = UNLISTED
                span.start = monotonic() + offset
                return span
            span.slot = at = take()
            span.start = start = monotonic() + offset
            body = pack_begin(prefix, start, 0, tail)
            frame(mapping, at, total(body), body)
            words[at + 4 >> 2] = opened
            return span

        def leave(span, kind=None, value=None, trace=None):
            nonlocal busy, light_head
            at = span.slot
            if at == OFF:
                return
            start = span.start
            dur = monotonic() + offset - start
            if busy or ident() != owner or dur < 0:
                span.finish(start, dur)
                return
            try:
                busy = True
                seq = light_head  # not before: a signal handler may have recorded
                if seq < limit:
                    span.slot = OFF
                    number = seq << 32
                    if at > 0:  # sequence number and state by one store
                        pairs[at >> 3] = number | closing
                    body = pack_end(number | head, -1, start, dur, span.tail)
                    frame(mapping, 8192 + ((seq & light_mask) << 6), total(body), body)
                    quads[8] = light_head = seq + 1
                    quads[counter] += 1
                else:
                    at = OFF
            finally:
                if at > 0:
                    words[at + 4 >> 2] = head
                    give(at)
                busy = False
            if at == OFF:
                span.finish(start, dur)
            while late:
                publish(*late.pop(0))

        step = property(lambda span: layout.TAIL.unpack(span.tail)[2])
        return {"__slots__": ("tail",), "__enter__": enter, "__exit__": leave, "ring": ring, "step": step,
                "head": head, "bit": 1, "text": text}

    def drop(span):
        """Takes a range off the table without a record."""
        at = span.slot
        if at > 0 and not gone:
            words[at + 4 >> 2] = span.head
            give(at)
            span.slot = UNLISTED

    def close():
        """Marks the ring: its thread has ended."""
        if not gone:
            words[10] = layout.CLOSED

    def adopt():
        """Makes it the calling thread's. One that still holds another thread's slots
        says thread 0: the agent could not tell whose they are."""
        nonlocal owner
        drained = quads[16] >= light_head and quads[32] >= bulk_head
        quads[4] = native_id() if drained else 0
        words[10] = layout.LIVE
        ring.ident = owner = ident()

    def share():
        """Makes it the one for what ends in another thread than it began in."""
        words[10] = layout.LIVE
        quads[4] = 0
        ring.shared = True

    def disown():
        """In a forked child: the ring is the parent's, never write to it again."""
        nonlocal gone, limit
        gone = True
        limit = 0

    ring.begin, ring.publish = begin, publish
    ring.close, ring.adopt, ring.disown = close, adopt, disown
    ring.drop, ring.share = drop, share
    ring.methods = methods
