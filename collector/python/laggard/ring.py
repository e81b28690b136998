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

Where CPython runs nothing else between two calls (UNBROKEN) ranges with nothing but
their times have a shorter way, see kind: there a test and the stores behind it are
one, in any thread and under any signal.
"""

import os
import struct
import sys
import threading

from . import clock
from . import layout
from .extension import native

# What a span's slot holds when it has none: not in the open table, or switched off.
UNLISTED = -1
OFF = -2

# CPython looks for signals and for other threads at calls and jumps back since 3.10,
# between any two bytecodes before, and all the time without its lock.
UNBROKEN = (sys.implementation.name == "cpython" and sys.version_info >= (3, 10)
            and getattr(sys, "_is_gil_enabled", lambda: True)())
_KEPT = 32  # slots of the open table that kinds may keep, from its end


_monotonic, _OFFSET, _total = clock.monotonic, clock.OFFSET, layout.slot_checksum


class Ring(object):
    """A ring file and its two functions.

    begin(span) notes the start and lists the range as open. publish(span, start,
    dur, flags, extra, host_dur) writes the finished record: extra is host_start or
    exposed by flags. Both belong to one thread at a time (see recorder).
    """

    __slots__ = ("number", "size", "begin", "publish", "ident", "close", "drop", "adopt", "share", "disown", "shared", "kind", "plain", "__weakref__")


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
    ring.plain = {}  # word → class of its ranges, see span
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
    limit = 0  # light_head must look at the tail again when it is here
    emitted, dropped = [0] * 8, [0] * 8
    seen = -1
    lit = -1    # the switch's word with which kind's ranges need no look at it
    keeps = open_slot(layout.OPEN_LEVELS)  # slots of the open table from here on are kept for kinds
    homes = {}  # such a slot → what frees it
    leavers = []  # of each kind: lets its open range end in another thread
    busy = False
    gone = False
    late = []

    def begin(span):
        """Notes the start of a range and lists it as open."""
        nonlocal seen, lit
        word = switch[32]
        if word != seen:
            follow(word)
            seen, lit = word, -1
        if not word & span.bit:
            span.slot = OFF
            return
        span.start = start = _monotonic() + _OFFSET
        if not free:
            span.slot = UNLISTED
            return
        span.slot = at = take()
        body = pack(span.head, 0, span.peer, start, 0, 0, span.text << 48, span.step, span.group, span.value)
        frame(mapping, at, _total(body), body)
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
                frame(mapping, where, _total(body), body)
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
            if at > 0:
                words[at + 4 >> 2] = span.head
                (give if at < keeps else give_home)(at)
            busy = False
        while late:
            publish(*late.pop(0))

    def kind(head, text):
        """Returns what makes a class of ranges with nothing but their times, None where
        there is no slot to keep for it. The class has one slot of the open table and
        one record at hand, filled but for what changes: they are those of current, its
        range that is open. Others of its kind go the long way."""
        nonlocal keeps
        place = keeps - layout.SLOT
        if not UNBROKEN or len(homes) == _KEPT or not free or free[0] != place:
            return None
        free.remove(place)
        keeps = place
        current, taken, began, start, step = None, object(), 0, 0, state.step
        counter, record, places = 56 + head, bytearray(layout.SLOT), layout.places(light_slots)
        layout.BODY.pack_into(record, 4, head, 0, -1, 0, 0, 0, text << 48, step, 0, 0)
        body, record_words, record_quads, _ = layout.views(record, 0)
        mapping[place:place + layout.SLOT] = record
        listed, open_words, open_quads, seq_state = layout.views(mapping, place)

        def enter(span):
            nonlocal current, began, start
            if current is not None or switch[32] != lit:
                return span.enter_slowly()
            try:
                current = span
                if step != state.step:
                    follow_step()
                began = _monotonic()
                open_quads[2] = start = began + _OFFSET
                open_words[0] = _total(listed)
                listed[3] = 1  # the state
            except BaseException:  # a signal handler's
                current = None
                raise
            return span

        def leave(span, kind=None, value=None, trace=None):
            nonlocal light_head, current
            if span is not current:
                span.leave_other()
                return
            current = taken  # a second end does nothing, and the record at hand is this one's
            try:
                record_quads[3] = _monotonic() - began
                record_quads[2] = start
                record_words[2] = seq = light_head
                record_words[0] = _total(body)
            except BaseException:  # a signal handler's
                homes[place]()
                raise
            if seq != light_head or seq >= limit or busy:
                span.leave_slowly()
                return
            open_words[2] = seq
            listed[3] = 2
            mapping[places[seq & light_mask]] = record
            quads[8] = light_head = seq + 1
            quads[counter] = emitted[head] = emitted[head] + 1
            seq_state[0] = head  # free, and zeros where the next sum wants them
            current = None

        def follow_step():
            nonlocal step
            step = record_words[12] = open_words[12] = state.step

        def enter_slowly(span):
            nonlocal seen, lit
            if current not in (None, taken) and sys.getrefcount(current) == 2:
                home()  # nobody is left to end it: an exception came before its end
            word = switch[32]
            if word != seen and not gone:
                follow(word)
                seen = word
            lit = word if word & 1 and not gone else -1
            if lit < 0:
                span.slot = OFF
            elif current is None:
                return enter(span)
            else:
                span.step = state.step
                begin(span)
            return span

        def leave_slowly(span):
            span.slot, span.start, span.step = place, start, step
            span.finish(start, _monotonic() + _OFFSET - start)

        def leave_other(span):
            evict(span)
            if span.slot != OFF:
                span.finish(span.start, _monotonic() + _OFFSET - span.start)

        def evict(span):
            """Makes the range one that goes the long way: it knows of itself what the
            class knew of it."""
            nonlocal current
            if span is current:
                span.slot, span.start, span.step = place, start, step
                current = taken
            elif not hasattr(span, "slot"):
                span.slot = OFF  # never begun, or over

        def home():
            nonlocal current
            seq_state[0] = head
            current = None

        def thread_ended():
            if current not in (None, taken):
                evict(current)

        homes[place] = home
        leavers.append(thread_ended)
        return {"__slots__": (), "__enter__": enter, "__exit__": leave, "begin": enter, "evict": evict,
                "enter_slowly": enter_slowly, "leave_slowly": leave_slowly, "leave_other": leave_other,
                "ring": ring, "head": head, "bit": 1, "text": text}

    def drop(span):
        """Takes a range off the table without a record."""
        at = span.slot
        if at > 0 and not gone:
            words[at + 4 >> 2] = span.head
            (give if at < keeps else give_home)(at)
            span.slot = UNLISTED

    def give_home(at):
        homes[at]()

    def close():
        """Marks the ring: its thread has ended."""
        nonlocal limit
        if not gone:
            words[10] = layout.CLOSED
            limit = ring.ident = 0
            for each in leavers:
                each()

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

    def disown():
        """In a forked child: the ring is the parent's, never write to it again."""
        nonlocal gone, limit, lit
        gone = True
        limit, lit = 0, -1

    ring.begin, ring.publish = begin, publish
    ring.close, ring.adopt, ring.disown = close, adopt, disown
    ring.drop, ring.share = drop, share
    ring.kind = kind
