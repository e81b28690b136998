"""Every operation of a process group, through the hooks that the group itself offers.

PyTorch calls the hooks around each operation that it dispatches to a group, whoever
issued it: torch.distributed, a method of the group, a coalescing manager, a functional
collective, DTensor, a compiled graph, the reducer of DistributedDataParallel. Nothing
of torch.distributed is replaced then, so identities stay (P2POp compares functions)
and torch.compile sees what it would see without us. A PyTorch without these hooks
(ProcessGroup.register_pre_hook) is covered by collectives and gradients instead.

Exposed is the time to issue it, and what Work.wait or wait_tensor block. DDP's reducer
waits in C++, at the end of the backward pass: there exposed is what runs on after the
last operation was issued, shared out without overlap. A compiled graph waits where we
can't look: its ranges don't say what was exposed.
"""

import functools
import sys
import weakref

from . import clock
from . import coalescing
from . import collectives
from . import device
from . import futures
from . import groups
from . import modules
from . import recorder
from .extension import native
from .layout import COMMUNICATION
from .ring import OFF
from .span import SHOWN, Automatic

_HOOK = 1869768058  # our number among a group's hooks: late, so that others' come first
_local, _inside, _now = recorder.local, recorder.inside, clock.now

# torch's name of an operation → (the function of torch.distributed that it is, whether
# it is counted by what this rank gets instead of by what it brings).
_WORDS = {
    "SEND": ("send", False), "RECV": ("recv", False), "BROADCAST": ("broadcast", False),
    "ALLREDUCE": ("all_reduce", False), "REDUCE": ("reduce", False), "ALLGATHER": ("all_gather", False),
    "REDUCE_SCATTER": ("reduce_scatter", True), "ALLTOALL": ("all_to_all", False), "BARRIER": ("barrier", False),
    "SCATTER": ("scatter", True), "GATHER": ("gather", False),
    "ALLREDUCE_COALESCED": ("all_reduce_coalesced", False), "ALLGATHER_BASE": ("all_gather_into_tensor", False),
    "ALLGATHER_COALESCED": ("all_gather_coalesced", False),
    "ALLGATHER_INTO_TENSOR_COALESCED": ("all_gather_into_tensor_coalesced", False),
    "REDUCE_SCATTER_BASE": ("reduce_scatter_tensor", True),
    "REDUCE_SCATTER_TENSOR_COALESCED": ("reduce_scatter_tensor_coalesced", True),
    "ALLTOALL_BASE": ("all_to_all_single", False),
}
_NO_FUTURE = ("send", "recv")
_BETWEEN = ("torch._ops", "torch._library", "torch._compile", "torch.autograd", "torch.utils")  # an operator's own calls
_MOST = 4096  # operations that are followed at a time

_c10d = None
_hooked = []     # weak references to the groups with our hooks
_kinds = {}      # value of a HookOpName → (string id, what is counted, whether it has a future), None: no operation
_outputs = {}    # address of a result → what is in flight to it
_during = None   # what was issued in this backward pass, None outside of one
_flying = {}     # id of an _InFlight → itself, while its Work is held


def available(module):
    """Reports whether this PyTorch's groups have hooks."""
    group = getattr(module, "ProcessGroup", None)
    return hasattr(group, "register_pre_hook") and hasattr(group, "register_post_hook")


def active():
    """Reports whether operations are seen here."""
    return _c10d is not None


def cover(module):
    """Puts our hooks on each group when it is made, and on those that are there."""
    global _c10d
    _c10d = module
    if native is not None:
        native.follow_operations(_kinds, collectives.dtypes, _follow, futures.tell)
    collectives.cover_work(module)
    coalescing.cover(module.ProcessGroup)
    groups.made.append(sweep)
    groups.leaving.append(_unhook)
    modules.backward.append(_backward)
    sweep()


def sweep(_=None):
    """Puts our hooks on the groups that have none yet."""
    known = list(_c10d._world.pg_map)
    if len(known) == len(_hooked) and all(r() is not None for r in _hooked):
        return
    _hooked[:] = [r for r in _hooked if r() is not None]
    for group in known:
        if not any(r() is group for r in _hooked):
            _hook(group)
            _hooked.append(weakref.ref(group))


def _hook(group):
    place = weakref.ref(group)

    def before(operation):
        try:
            group = place()
            if bound[1] is None and group is not None:
                bound[1] = groups.name_id(group)
            _local.issuing = _begin(group, operation)
        except Exception as cause:  # pylint: disable=broad-except
            _failed(cause)

    def after(operation):
        try:
            work = operation.work
            flight, _local.issuing = _local.issuing, None
            if flight is not None:
                _issued(flight, work)
        except Exception as cause:  # pylint: disable=broad-except
            _failed(cause)

    bound = [before, None]  # the name comes with the first operation
    hooks = (before, after)
    if native is not None and not SHOWN:
        hooks = native.hooks(bound, after)  # what they are sure of is the extension's
    group.register_pre_hook(_HOOK, hooks[0])
    group.register_post_hook(_HOOK, hooks[1])


def _failed(cause):
    """A hook that raises would end the collective with its exception."""
    flight, _local.issuing = _local.issuing, None
    if flight is not None:
        flight.span.cancel()
    recorder.trouble("record an operation of a process group", cause)


def _follow(span, work):
    """Follows an asynchronous operation that the extension has begun."""
    try:
        flight = _InFlight(span)
        flight.future = True
        _issued(flight, work)
    except Exception as cause:  # pylint: disable=broad-except
        span.cancel()
        recorder.trouble("record an operation of a process group", cause)


class _InFlight(object):
    """An operation between its two ends."""

    work = done = blocked = None
    exposed = waiting = returned = 0
    waited = backward = future = False
    places = ()
    whole = False  # its stream, which computes, waits for all of it
    left = 1       # Works: collectives follows us like its own

    def __init__(self, span):
        self.span = span
        self.open = [True]  # popped by whoever ends it
        self.hidden = _inside.saving == 2  # in a save that no step waits for

    def completed(self, _):
        """It is complete, its future says."""
        at = _now()
        if self.done is None:
            self.done = at
        if not self.waiting and not self.backward:
            self.finish(at)

    def finish(self, at, exposed=None):
        """Writes the record, once."""
        try:
            self.open.pop()
        except IndexError:
            return
        self.forget()
        if exposed is None:
            exposed = self.exposed
        if self.hidden:
            exposed = 0
        if self.span.device is not None:
            device.end(self.span, self.blocked, None if self.whole else max(exposed, 0))
        else:
            self.span.end(min(exposed, max(at - self.span.start, 0)), at)

    def forget(self):
        """Lets go of torch's objects."""
        _flying.pop(id(self), None)
        for place in self.places:
            if _outputs.get(place) is self:
                del _outputs[place]
        if self.work is not None:
            collectives.unfollow(self.work)
            self.work = None


def _begin(group, operation):
    """Begins an operation's range; returns it, None where it is not recorded."""
    _inside.calls += 1
    left = _local.issuing
    if left is not None:
        left.span.cancel()  # it raised: nobody said that it was issued
    if _inside.collective or group is None:
        return None
    name = operation.name
    kind = _kinds.get(name.value, -1)
    if kind == -1:
        kind = _kinds[name.value] = _kind(name)
    if kind is None:
        return None
    word, gets, has_future = kind
    brought, got = operation.input_tensors, operation.output_tensors
    payload = got if gets and got else brought or got
    count, dtype = collectives.measure(payload) if payload else (0, 0)
    peer = operation.root if not has_future else -1
    span = Automatic(COMMUNICATION, word, count, dtype, groups.name_id(group), peer)
    device.begin(span, True)
    if span.slot == OFF:
        return None
    flight = _InFlight(span)
    flight.future = has_future and operation.async_op  # else the caller waits at once
    flight.whole = not operation.async_op and not flight.hidden and device.computing()
    if _compiled():
        flight.exposed = -1
    elif operation.async_op and (got or brought):
        flight.places = [t.data_ptr() for t in got or brought]
    return flight


def _kind(name):
    text = str(name).rpartition(".")[2]
    if text in ("SPLIT", "NEW_WINDOW"):
        return None
    word, gets = _WORDS.get(text, (text.lower(), False))
    return recorder.strings.id(word), gets, word not in _NO_FUTURE


def _compiled():
    """Reports whether a compiled graph issues the operation: it calls the operator by
    itself, not through a function of torch.distributed."""
    try:
        frame = sys._getframe(3)  # the caller of a hook's three functions
    except ValueError:
        return False  # a thread of C++: the reducer's, say
    name = frame.f_globals.get("__name__") or ""
    if name != "torch._ops":
        return False
    while name.startswith(_BETWEEN):
        frame = frame.f_back
        if frame is None:
            return False
        name = frame.f_globals.get("__name__") or ""
    return not name.startswith("torch.distributed")


def _issued(flight, work):
    """The operation is issued; its Work says when it is complete."""
    at = _now()
    if work is None and not _inside.coalescing:
        flight.finish(at)
        return
    flight.returned = at
    if flight.exposed >= 0:
        flight.exposed = at - flight.span.start
    if _inside.coalescing:
        _local.coalesced.append(flight)
        return
    if len(_flying) >= _MOST:
        _sweep_flying(at)
    flight.work = work  # held: the Work that the caller gets would be another object
    _flying[id(flight)] = flight
    collectives.hold(work, flight)
    for place in flight.places:
        _outputs[place] = flight
    if _during is not None:
        flight.backward = True
        _during.append(flight)
    if flight.future and (flight.span.device is None or flight.backward):
        futures.tell(work, flight.completed)
    elif len(_flying) > 1:
        _look(at)


def _look(at):
    """Ends the oldest two operations if they are complete though nobody asked: a Work
    that we hold may hold tensors."""
    for _ in range(2):
        try:
            flight = next(iter(_flying.values()))
        except (RuntimeError, StopIteration):
            return  # another thread ends one
        if flight.waiting or flight.backward or flight.work is None or not flight.work.is_completed():
            return
        flight.finish(flight.done or at)


def _sweep_flying(at):
    """Lets the oldest half go: nobody waits for them, and they never say that they are complete."""
    for flight in list(_flying.values())[:_MOST // 2]:
        if not flight.waiting:
            flight.finish(flight.done or at)


def _backward(begins):
    """Shares out what DDP's reducer waited for at the end of the backward pass."""
    global _during
    if begins:
        _during = []
        return
    issued, _during = _during, None
    if native is not None:
        native.share_out()
    if not issued:
        return
    unwaited = [f for f in issued if f.open and not f.waited]
    covered = max((f.span.start for f in unwaited), default=0)
    now = _now()
    for flight in sorted(unwaited, key=lambda f: f.done or now):
        flight.backward = False
        if flight.done is None:
            continue  # it goes on after the backward pass: somebody else waits for it
        exposed = max(flight.done - max(flight.span.start, covered), 0) if flight.exposed >= 0 else -1
        covered = max(covered, flight.done)
        flight.finish(flight.done, exposed)
    for flight in issued:
        flight.backward = False


def cover_functional(module):
    """Covers wait_tensor and wait_tensors of the functional collectives."""
    compiling = modules.compiling(sys.modules["torch"])
    for name in ("wait_tensor", "wait_tensors"):
        inner = getattr(module, name, None)
        if inner is not None and not hasattr(inner, "__laggard__"):
            setattr(module, name, _wait(inner, compiling))


def _wait(inner, compiling):
    @functools.wraps(inner)
    def wait(tensor):
        if compiling() or not _outputs:
            return inner(tensor)
        return _waited(inner, tensor)

    wait.__laggard__ = inner
    return wait


def _waited(inner, tensor):
    flights = []
    try:
        for each in tensor if isinstance(tensor, (list, tuple)) else (tensor,):
            flight = _outputs.get(each.data_ptr())
            if flight is not None and flight not in flights:
                flights.append(flight)
    except Exception:  # pylint: disable=broad-except
        pass  # no memory of its own: a fake tensor, say
    begun = _now()
    for flight in flights:
        flight.waiting += 1
    try:
        return inner(tensor)
    finally:
        at = _now()
        for flight in flights:
            flight.waiting -= 1
            flight.waited = True
            flight.exposed += (at - begun) // len(flights)
            flight.finish(flight.done or at)


def _unhook():
    """Takes our hooks off: a group may outlive the interpreter."""
    for reference in _hooked:
        group = reference()
        try:
            if group is not None:
                group.unregister_pre_hook(_HOOK)
                group.unregister_post_hook(_HOOK)
        except Exception:  # pylint: disable=broad-except
            continue  # destroyed
    del _hooked[:]
    if _local.issuing is not None:
        _local.issuing.span.cancel()
        _local.issuing = None
    if native is not None:
        native.unblock()
    for flight in list(_flying.values()):
        flight.finish(flight.done or _now())


recorder.closers.insert(0, _unhook)
recorder.os.register_at_fork(after_in_child=_flying.clear)
