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
one, in any thread and under any signal. A call, and in 3.10 a jump that is taken, is
where signal handlers run, other threads go on and a fork may happen: what was tested
before a call is tested again, and behind a test the quick way falls through.
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

# CPython looks for signals and for other threads at calls and jumps since 3.10,
# between any two bytecodes before, and all the time without its lock.
UNBROKEN = (sys.implementation.name == "cpython" and sys.version_info >= (3, 10)
            and getattr(sys, "_is_gil_enabled", lambda: True)())
_KEPT = 32  # slots of the open table that kinds may keep, from its end
_QUICK = (1 << 31) - (1 << 16)  # kept slots hold sequence numbers below 2^31
_IS_OPEN, _IS_FREE = 0xFFFFFFFF, 0xFFFFFFFE  # in place of one


_monotonic, _OFFSET, _total = clock.monotonic, clock.OFFSET, layout.slot_checksum


class Ring(object):
    """A ring file and its two functions.

    begin(span) notes the start and lists the range as open. publish(span, start,
    dur, flags, extra, host_dur) writes the finished record: extra is host_start or
    exposed by flags. Both belong to one thread at a time (see recorder).
    """

    __slots__ = ("number", "size", "begin", "publish", "ident", "close", "drop", "adopt", "share", "disown", "hold", "let_go", "shared", "kind", "plain", "__weakref__")


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
    held = 0    # forks under way: the quick ways are closed
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
        nonlocal seen, lit
        if held and not ours():
            span.slot = OFF
            return
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
        nonlocal busy, light_head, bulk_head, limit, lit
        if busy or gone or held and not ours():
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
                if seq < _QUICK and not held:
                    limit = min(max(tail, 0), seq) + light_slots
                else:
                    limit, lit = 0, -1
                where = 8192 + ((seq & light_mask) << 6)
                mark = seq & 0x7FFFFFFF
            if room:
                if at > 0:  # sequence number and state by one store
                    pairs[at >> 3] = mark << 32 | head | (0x02000000 if at < keeps else 0x03000000)
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
                leave_table(span, at)
            busy = False
        while late:
            publish(*late.pop(0))

    def kind(head, text):
        """Returns what makes a class of ranges with nothing but their times, None where
        there is no slot to keep for it. The class has one slot of the open table, where
        its records are made, too: it is current's, its range that is open. Others of its
        kind go the long way."""
        nonlocal keeps
        place = keeps - layout.SLOT
        if not UNBROKEN or not ours() or len(homes) == _KEPT or not free or free[0] != place:
            return None
        free.remove(place)
        keeps = place
        current, taken, began, step = None, object(), 0, state.step
        counter, places = 56 + head, layout.places(light_slots)
        slot, body, slot_words, slot_quads = layout.views(mapping, place)
        layout.BODY.pack_into(mapping, place + 4, head, _IS_FREE, -1, 0, 0, 0, text << 48, step, 0, 0)
        slot_words[1] = head | 0x03000000

        def enter(span):
            nonlocal current, began
            if step is not state.step:
                follow_step()
            now = _monotonic()
            if current is None and switch[32] == lit:
                current, began = span, now
                slot_quads[2] = now + _OFFSET
                slot_words[2] = _IS_OPEN
                return span
            return span.enter_slowly()

        def leave(span, kind=None, value=None, trace=None):
            nonlocal light_head, current
            try:
                dur = _monotonic() - began
                seq = light_head
                if span is current and seq < limit and not busy:
                    slot_quads[3] = dur
                    slot_words[2] = seq
                    total = _total(body)
                    if span is current and seq == light_head:
                        slot_words[0] = total
                        mapping[places[seq & light_mask]] = slot
                        quads[8] = light_head = seq + 1
                        quads[counter] = emitted[head] = emitted[head] + 1
                        current = None
                        return
                span.leave_slowly()
            except BaseException:  # a signal handler's
                if span is current:
                    homes[place]()
                raise

        def follow_step():
            nonlocal step
            if current is None and not gone:
                step = state.step
                slot_words[12] = step

        def enter_slowly(span):
            nonlocal seen, lit
            if held:
                ours()
            if current not in (None, taken) and sys.getrefcount(current) == 2:
                home()  # nobody is left to end it: an exception came before its end
            word = switch[32]
            if word != seen and not gone:
                follow(word)
                seen = word
            lit = word if word & 1 and not gone and not held and light_head < _QUICK else -1
            if not word & 1 or gone:
                span.slot = OFF
            elif current is None and lit >= 0:
                return enter(span)
            else:
                span.step = state.step
                begin(span)
            return span

        def leave_slowly(span):
            evict(span)
            if span.slot != OFF:
                span.finish(span.start, _monotonic() + _OFFSET - span.start)

        def evict(span):
            """Makes the range one that goes the long way: it knows of itself what the
            class knew of it."""
            nonlocal current
            if span is current:
                span.slot, span.start, span.step = place, began + _OFFSET, step
                current = taken
            elif not hasattr(span, "slot"):
                span.slot = OFF  # never begun, or over

        def home():
            nonlocal current
            if not gone:
                slot_words[2] = _IS_FREE
            current = None

        def thread_ended():
            if current not in (None, taken):
                evict(current)

        homes[place] = home
        leavers.append(thread_ended)
        return {"__slots__": (), "__enter__": enter, "__exit__": leave, "begin": enter, "evict": evict,
                "enter_slowly": enter_slowly, "leave_slowly": leave_slowly,
                "ring": ring, "head": head, "bit": 1, "text": text}

    def drop(span):
        """Takes a range off the table without a record."""
        at = span.slot
        if at > 0 and not gone and (not held or ours()):
            leave_table(span, at)
            span.slot = UNLISTED

    def leave_table(span, at):
        if at < keeps:
            words[at + 4 >> 2] = span.head
            give(at)
        else:
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

    def hold():
        """Before a fork, until let_go: see ours. In a child it stays."""
        nonlocal held, limit, lit
        held += 1
        limit, lit = 0, -1

    def let_go():
        nonlocal held
        held -= 1

    def disown():
        """In a forked child: the ring is the parent's, never write to it again."""
        nonlocal gone, limit, lit, light_head
        gone = True
        limit = lit = light_head = -1

    ring.begin, ring.publish = begin, publish
    ring.close, ring.adopt, ring.disown = close, adopt, disown
    ring.drop, ring.share = drop, share
    ring.hold, ring.let_go = hold, let_go
    ring.kind = kind
