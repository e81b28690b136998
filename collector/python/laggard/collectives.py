"""Every torch.distributed collective and point-to-point call, one range each.

A blocking call is exposed for as long as it takes. An asynchronous one is exposed
in the call and in wait(); it ends when its future says so (gloo's collectives),
else when wait() or is_completed() does. The Work that the caller gets is torch's
own: its class's wait and is_completed are covered, so isinstance, attributes and
C++ that takes a Work see no difference.

count is what this rank brings: the tensor of allreduce, broadcast, reduce, send,
recv; the input of allgather, gather, alltoall; the output of reducescatter and
scatter. What torch calls inside such a function is part of it: of a call with
objects, count and dtype are those of the last tensor inside.
"""

import functools
import inspect
import weakref

from . import clock
from . import device
from . import futures
from . import groups
from . import recorder
from .extension import native
from .layout import COMMUNICATION, dtype_code
from .span import Automatic

_local, _inside, _now = recorder.local, recorder.inside, clock.now
# Returns the range of a Work that its caller waits for at once, see operation.c.
_blocked = native.blocked if native is not None else lambda work: None

# Function → parameters that hold the payload, by preference.
_PAYLOAD = {
    "all_reduce": ("tensor",), "all_reduce_coalesced": ("tensors",), "broadcast": ("tensor",),
    "reduce": ("tensor",), "all_gather": ("tensor",), "all_gather_into_tensor": ("input_tensor",),
    "_all_gather_base": ("input_tensor",), "all_gather_coalesced": ("input_tensor_list",),
    "gather": ("tensor",), "scatter": ("tensor",), "reduce_scatter": ("output",),
    "reduce_scatter_tensor": ("output",), "_reduce_scatter_base": ("output",),
    "all_to_all": ("input_tensor_list",), "all_to_all_single": ("input",), "barrier": (),
    "monitored_barrier": (), "send": ("tensor",), "recv": ("tensor",), "isend": ("tensor",),
    "irecv": ("tensor",), "all_gather_object": (), "gather_object": (), "broadcast_object_list": (),
    "scatter_object_list": (), "send_object_list": (), "recv_object_list": (), "batch_isend_irecv": (),
    "all_reduce_multigpu": ("tensor_list",), "broadcast_multigpu": ("tensor_list",),
    "reduce_multigpu": ("tensor_list",), "all_gather_multigpu": ("input_tensor_list",),
    "reduce_scatter_multigpu": ("output_tensor_list",), "_broadcast_coalesced": ("tensors",),
}
_PEER = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src",
         "send_object_list": "dst", "recv_object_list": "src"}
_NO_FUTURE = {"isend", "irecv", "batch_isend_irecv"}
# Functions in C++, without a signature, that Python calls by their name in
# torch.distributed → (the operation, their parameters). DistributedDataParallel
# broadcasts a module's buffers so before each forward pass: a rank that hands them on
# to a late one waits for it there.
_BUILTIN = {"_broadcast_coalesced": ("broadcast", ["group", "tensors"])}

dtypes = {}   # torch.dtype → code
_classes = set()  # of Works, covered
_pending = {}  # id of a Work → (weak reference, _Pending)
_c10d = None


def cover(module):
    """Covers the functions of distributed_c10d, wherever they are named."""
    global _c10d
    _c10d = module
    package = recorder.sys.modules.get("torch.distributed")
    for name in _PAYLOAD:
        inner = getattr(module, name, None)
        if inner is None or name in _BUILTIN or hasattr(inner, "__laggard__"):
            continue
        covered = _cover(name, name, inner, list(inspect.signature(inner).parameters))
        setattr(module, name, covered)
        if package is not None and getattr(package, name, None) is inner:
            setattr(package, name, covered)
    _cover_p2p(module)
    for name, (op, parameters) in _BUILTIN.items():
        inner = getattr(package, name, None)
        if inner is not None and not hasattr(inner, "__laggard__"):
            setattr(package, name, _cover(name, op, inner, parameters))
    cover_work(module)


def _cover_p2p(module):
    """Has P2POp take the isend and irecv that a script imported before us: it compares
    functions, and calls the one that it gets."""
    covers = {f.__laggard__: f for f in (getattr(module, n, None) for n in ("isend", "irecv")) if hasattr(f, "__laggard__")}
    operation, check = getattr(module, "P2POp", None), getattr(module, "_check_op", None)
    if operation is None or check is None or hasattr(check, "__laggard__"):
        return
    made = operation.__init__

    @functools.wraps(check)
    def _check_op(op):
        return check(covers.get(op, op))

    @functools.wraps(made)
    def __init__(self, op, *args, **kwargs):
        made(self, covers.get(op, op), *args, **kwargs)

    _check_op.__laggard__ = check
    module._check_op, operation.__init__ = _check_op, __init__


def cover_work(module):
    """Covers wait and is_completed of torch's Work."""
    work = getattr(module, "Work", None)
    if work is not None:
        _cover_work(work)


def _cover(name, op, inner, parameters):
    group_at = _position(parameters, "group")
    async_at = _position(parameters, "async_op")
    payload = [(_position(parameters, p), p) for p in _PAYLOAD[name]]
    peer_name = _PEER.get(name)
    peer_at = _position(parameters, peer_name)
    word = recorder.strings.id(op)
    inside = "object" in name  # the payload is seen in the calls inside

    def open_span(args, kwargs):
        if name == "batch_isend_irecv":
            return _batch(word, args, kwargs)
        group = _argument(args, kwargs, group_at, "group")
        if group is not None and not groups.is_group(group):
            return None  # this rank is not in it: the call does nothing
        count, dtype = 0, 0
        for at, key in payload:
            count, dtype = measure(_argument(args, kwargs, at, key))
        peer = -1
        if peer_name is not None:
            peer = groups.rank_in(group, _argument(args, kwargs, peer_at, peer_name))
            if peer == -1:
                peer = kwargs.get("group_" + peer_name, -1)
        span = Automatic(COMMUNICATION, word, count, dtype, groups.name_id(group), peer)
        return device.begin(span, name in _NO_FUTURE or _argument(args, kwargs, async_at, "async_op"))

    @functools.wraps(inner)
    def covered(*args, **kwargs):
        if _inside.collective:
            _tell_outer(payload, args, kwargs)
            return inner(*args, **kwargs)
        span = None
        _inside.collective = 1
        _inside.calls += 1
        try:
            span = open_span(args, kwargs)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("record %s" % name, cause)
        _local.span = span if inside else None
        try:
            result = inner(*args, **kwargs)
        except BaseException:
            if span is not None:
                device.end(span)
            raise
        finally:
            _inside.collective = 0
            _local.span = None
        if span is not None:
            _returned(span, result, name not in _NO_FUTURE)
        return result

    covered.__laggard__ = inner
    return covered


def _position(parameters, name):
    return parameters.index(name) if name in parameters else -1


def _argument(args, kwargs, at, name):
    if 0 <= at < len(args):
        return args[at]
    return kwargs.get(name)


def measure(payload):
    """Returns (elements, dtype code) of a tensor or of a list of them."""
    if payload is None:
        return 0, 0
    if isinstance(payload, (list, tuple)):
        count, dtype = 0, 0
        for each in payload:
            more, dtype = measure(each)
            count += more
        return count, dtype
    found = dtypes.get(payload.dtype)
    if found is None:
        found = dtypes[payload.dtype] = dtype_code(payload.dtype)
    return payload.numel(), found


def _tell_outer(payload, args, kwargs):
    """A call inside one with objects: it tells the outer one what was sent."""
    span = _local.span
    if span is None or not payload:
        return
    try:
        for at, key in payload:
            span.value, dtype = measure(_argument(args, kwargs, at, key))
            span.head = span.head & 0xFFFF | dtype << 16
    except Exception:  # pylint: disable=broad-except
        pass  # not what we took it for


def _batch(word, args, kwargs):
    """Begins the range of batch_isend_irecv: the elements of all its operations."""
    ops = args[0] if args else kwargs.get("p2p_op_list")
    count, dtype = measure([op.tensor for op in ops])
    group = ops[0].group
    peers = {getattr(op, "peer", -1) for op in ops}
    peer = groups.rank_in(group, peers.pop()) if len(peers) == 1 else -1
    return device.begin(Automatic(COMMUNICATION, word, count, dtype, groups.name_id(group), peer), True)


class _Pending(object):
    """An asynchronous range: its Works, and how long the trainer waited for it."""

    __slots__ = ("span", "left", "exposed", "returned", "waiting", "waited", "done", "open", "blocked", "__weakref__")

    def __init__(self, span, works):
        self.span = span
        self.left = works
        self.returned = _now()
        self.exposed = self.returned - span.start
        self.waiting = 0
        self.waited = False
        self.done = None
        self.open = [True]  # popped by whoever ends it
        self.blocked = None

    def completed(self, at):
        """The future says that it is complete."""
        if self.done is None:
            self.done = at
        if not self.waiting:
            self.finish(at)

    def finish(self, at):
        """Writes the record, once."""
        try:
            self.open.pop()
        except IndexError:
            return
        if self.span.device is not None:
            device.end(self.span, self.blocked, self.exposed)
        else:
            self.span.end(min(self.exposed, max(at - self.span.start, 0)), at)


def _returned(span, result, future):
    """The call is over: so is the range, unless it gave out Works."""
    try:
        works = [w for w in (result if isinstance(result, list) else [result]) if hasattr(w, "is_completed")]
        if not works:
            device.end(span)
            return
        if span.slot == -2:  # switched off
            return
        pending = _Pending(span, len(works))
        for work in works:
            follow(work, pending, future and span.device is None)
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("follow an asynchronous operation", cause)


def hold(work, pending):
    """Has the wait for a Work tell pending, which keeps it until unfollow."""
    if type(work) not in _classes:
        _classes.add(type(work))
        _cover_work(type(work))
    _pending[id(work)] = (weakref.ref(work), pending)


def follow(work, pending, future):
    """Ends pending when its last Work is complete."""
    hold(work, pending)
    key = id(work)

    def lost(_):
        if _pending.pop(key, None) is not None:
            pending.finish(pending.done or pending.returned)

    _pending[key] = (weakref.ref(work, lost), pending)
    if future:
        futures.tell(work, lambda _: pending.completed(_now()))


def unfollow(work):
    """Forgets a Work: its range is written."""
    _pending.pop(id(work), None)


def _cover_work(cls):
    """Covers wait and is_completed of the class that defines them."""
    for name, cover_method in (("wait", _cover_wait), ("is_completed", _cover_completed)):
        owner = next((c for c in cls.__mro__ if name in vars(c)), None)
        if owner is None or hasattr(vars(owner)[name], "__laggard__"):
            continue
        inner = vars(owner)[name]
        covered = cover_method(inner)
        covered.__laggard__ = inner
        try:
            setattr(owner, name, covered)
        except (AttributeError, TypeError):
            pass  # a class that can't be changed: the range ends with the call


def _cover_wait(inner):
    @functools.wraps(inner)
    def wait(self, *args, **kwargs):
        span = _blocked(self)
        if span is not None:
            try:
                return inner(self, *args, **kwargs)
            finally:
                span.end()
        found = _pending.get(id(self))
        if found is None or found[0]() is not self:
            return inner(self, *args, **kwargs)
        pending = found[1]
        pending.waiting += 1
        begun = _now()
        try:
            if pending.span.device is not None and pending.blocked is None and device.timeline() is not None and \
                    device.computing():  # a stream beside it may wait at no cost
                noted = device.timeline().note()
                pending.blocked = noted[0] if noted else None
            return inner(self, *args, **kwargs)
        finally:
            at = _now()
            pending.exposed += at - begun
            pending.waiting -= 1
            pending.waited = True
            _over(self, pending, at)
    return wait


def _cover_completed(inner):
    @functools.wraps(inner)
    def is_completed(self):
        complete = inner(self)
        if complete:
            found = _pending.get(id(self))
            if found is not None and found[0]() is self and not found[1].waiting:
                _over(self, found[1], _now())
        return complete
    return is_completed


def _over(work, pending, at):
    """One Work of pending is complete."""
    if _pending.pop(id(work), None) is not None:
        pending.left -= 1
    if pending.left <= 0 and not pending.waiting:
        pending.finish(pending.done or at)
