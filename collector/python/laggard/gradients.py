"""DistributedDataParallel's gradient all-reduces, which run in C++.

A communication hook sees them. Ours is registered before the first forward pass
and does exactly what the reducer does without a hook: multiply by 1/size (divide,
where the gradient already lies in the bucket), then all-reduce. So results are
bit-identical. A hook of the user's, registered earlier or later, runs inside ours.
Where a hook can't be registered DDP stays as it is and its all-reduces are unseen.

Exposed is what runs on after the last gradient of the backward pass is ready (the
last bucket's hook call), shared out among the buckets without overlap.
"""

import functools
import weakref

from . import clock
from . import collectives
from . import device
from . import futures
from . import groups
from . import modules
from . import operations
from . import recorder
from .layout import COMMUNICATION
from .span import Automatic, begin_elsewhere
from .ring import OFF

_states = weakref.WeakKeyDictionary()  # DDP module → _State of its present reducer
_inside = recorder.inside


class _State(object):
    """What our hook knows of one DDP module."""

    def __init__(self, ddp, torch):
        self.ddp = weakref.ref(ddp)
        self.reducer = weakref.ref(ddp.reducer)
        self.torch = torch
        self.group = ddp.process_group
        self.size = self.group.size()
        self.inner = None        # the user's (state, hook)
        self.ours = False        # our hook is registered
        self.builtin = False     # a hook in C++ is: nothing to see
        self.ready = 0           # when the last bucket's gradients were ready
        self.covered = 0         # until when exposed time is already accounted for
        self.joined = None       # Work that counts the ranks that are left (see divisor)
        # A gradient that already lies in its bucket is divided in place there,
        # others are multiplied by the reciprocal: the same bits only when the
        # divisor is a power of two. Else it must be known which is which.
        self.views = getattr(ddp, "gradient_as_bucket_view", False)
        self.places = {}         # parameter → where its gradient lay before the backward pass

    def note_places(self, ddp):
        """Before a backward pass: which gradients lie where, if that can matter."""
        if self.views and (self.size & self.size - 1 or getattr(ddp._join_config, "enable", False)):
            self.places = {p: p.grad.data_ptr() for p in ddp.module.parameters() if p.grad is not None}

    def divisor(self):
        """Returns what gradients are divided by: the ranks of the group, or under
        join(divide_by_initial_world_size=False) those that still have input."""
        ddp = self.ddp()
        join = getattr(ddp, "_join_config", None)
        if not getattr(join, "enable", False) or getattr(ddp, "_divide_by_initial_world_size", True):
            return self.size
        if self.joined is None:
            return self.size
        return int(self.joined.get_future().value()[0].item())  # the reducer has waited for it

    def divide(self, bucket):
        """Does what the reducer does to gradients when it copies them."""
        buffer, size = bucket.buffer(), self.divisor()
        if buffer.is_sparse:
            buffer.div_(size)
        elif not self.views or not size & size - 1:
            buffer.mul_(1.0 / size)
        else:
            for parameter, view in zip(bucket.parameters(), bucket.gradients()):
                if self.places.get(parameter) == view.data_ptr():
                    view.div_(size)
                else:
                    view.mul_(1.0 / size)
        return buffer

    def reduce(self, bucket):
        """Divides and all-reduces: DDP without a hook."""
        buffer = self.divide(bucket)
        _inside.collective += 1  # it is recorded as the bucket's
        try:
            return self.group.allreduce([buffer]).get_future()
        finally:
            _inside.collective -= 1


def cover(torch):
    """Covers DistributedDataParallel's hook registration."""
    parallel = torch.nn.parallel.distributed
    DDP = parallel.DistributedDataParallel
    if hasattr(DDP.register_comm_hook, "__laggard__"):
        return
    DDP.register_comm_hook = _register(torch, DDP.register_comm_hook)
    builtin = getattr(DDP, "_register_builtin_comm_hook", None)
    if builtin is not None:
        DDP._register_builtin_comm_hook = _register_builtin(torch, builtin)
    original = DDP.register_comm_hook.__laggard__

    join = getattr(parallel, "Join", None)
    if join is not None:
        join.notify_join_context = staticmethod(_notify(join.notify_join_context))
    modules.wraps(DDP, lambda ddp: _install(torch, ddp, original))


def _notify(inner):
    @functools.wraps(inner)
    def notify_join_context(joinable):
        work = inner(joinable)
        try:
            state = _states.get(joinable)
        except TypeError:
            state = None  # joins something else than DDP
        if state is not None:
            state.joined = work
        return work

    return notify_join_context


def _state_of(ddp, torch):
    """Returns the state of a DDP module; a new one when its reducer is new."""
    state = _states.get(ddp)
    if state is None or state.reducer() is not ddp.reducer:
        state = _states[ddp] = _State(ddp, torch)
    return state


def _dispatched(ddp):
    """Reports whether operations sees the all-reduces: then DDP stays as it is. On an
    accelerator a hook of DDP's tells more, since it runs on the stream of the bucket."""
    return operations.active() and ddp.device_type == "cpu"


def _install(torch, ddp, original):
    """Before a forward pass: registers our hook unless there is one."""
    state = _states.get(ddp)
    if state is not None and state.reducer() is ddp.reducer:
        return
    state = _state_of(ddp, torch)
    groups.remember(state.group, "dp")
    if _dispatched(ddp) or not hasattr(state.group, "allreduce"):
        return
    try:
        # Past register_comm_hook: its log line is the user's.
        torch.distributed._register_comm_hook(ddp.reducer, state, _hook)
        state.ours = True
        if _backward not in modules.backward:
            modules.backward.append(_backward)
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("register a communication hook (gradient all-reduces stay unseen)", cause)


def _register(torch, inner):
    @functools.wraps(inner)
    def register_comm_hook(self, state, hook):
        try:
            ours = _state_of(self, torch)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("follow register_comm_hook", cause)
            return inner(self, state, hook)
        if not ours.ours:
            result = inner(self, state, hook if _dispatched(self) else _seen(ours, hook))
            ours.builtin = True
            groups.remember(ours.group, "dp")
            return result
        if ours.inner is not None:
            return inner(self, state, hook)  # a second one: torch's own error
        check = getattr(self, "_check_comm_hook", None)
        if check is not None:
            check(hook)
        logger = getattr(self, "logger", None)
        if logger is not None:
            logger._set_comm_hook_name(hook.__qualname__)
        if hasattr(self, "_comm_hooks"):
            self._comm_hooks.append((hook, state))
        ours.inner = (state, hook)
        return None

    register_comm_hook.__laggard__ = inner
    return register_comm_hook


def _register_builtin(torch, inner):
    @functools.wraps(inner)
    def _register_builtin_comm_hook(self, comm_hook_type, *args, **kwargs):
        ours = _state_of(self, torch)
        if not ours.ours:
            ours.builtin = True
            return inner(self, comm_hook_type, *args, **kwargs)
        hooks = torch.distributed.algorithms.ddp_comm_hooks.default_hooks
        if "FP16" in str(comm_hook_type):
            ours.inner = (ours.group, hooks.fp16_compress_hook)
        return None

    _register_builtin_comm_hook.__laggard__ = inner
    return _register_builtin_comm_hook


def _seen(state, hook):
    """Returns the user's hook with a range around it."""
    @functools.wraps(hook)
    def seen(theirs, bucket):
        return _ranged(state, bucket, lambda: hook(theirs, bucket), True)
    return seen


def _hook(state, bucket):
    """Our hook: the user's if there is one, else what DDP does by itself."""
    if state.inner is not None:
        theirs, hook = state.inner
        return _ranged(state, bucket, lambda: hook(theirs, bucket), True)
    future = _ranged(state, bucket, lambda: state.reduce(bucket), False)
    return future.then(futures.watched(lambda f: f.value()[0]))


def _ranged(state, bucket, action, theirs):
    """Runs a hook and records its bucket until the future is complete.

    A hook of the user's that calls torch.distributed records by those calls.
    """
    flight = None
    calls = _inside.calls
    try:
        flight = _Flight(state, bucket)
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("record a gradient bucket", cause)
    try:
        future = action()
    except BaseException:
        if flight is not None:
            flight.cancel()
        raise
    if flight is not None:
        if theirs and _inside.calls != calls:
            flight.cancel()
        else:
            flight.follow(future)
    return future


class _Flight(object):
    """One bucket's all-reduce."""

    def __init__(self, state, bucket):
        buffer = bucket.buffer()
        count, dtype = collectives.measure(buffer)
        self.state = state
        self.last = bucket.is_last() if hasattr(bucket, "is_last") else True
        self.span = Automatic(COMMUNICATION, recorder.strings.id("allreduce"), count, dtype,
                              groups.name_id(state.group))
        self.span.device = None
        begin_elsewhere(self.span)
        line = device.timeline() if buffer.device.type != "cpu" else None
        if line is not None and self.span.slot != OFF and line.device.usable():
            self.span.device = line.note()
        if self.last:
            state.ready = state.covered = clock.now()

    def follow(self, future):
        """Ends the range when the future is complete."""
        if self.span.slot == OFF:
            return
        future.add_done_callback(futures.watched(self._done))

    def _done(self, _):
        try:
            at = clock.now()
            if self.span.device is not None:
                # Buckets run one after the other on one stream: what is exposed
                # of all of them is the last one, from when its gradients are ready.
                device.end(self.span, None, None if self.last else 0)
                return
            state = self.state
            begun = max(self.span.start, state.covered) if state.ready >= self.span.start else at
            state.covered = max(state.covered, at) if state.ready >= self.span.start else state.covered
            self.span.end(max(at - begun, 0), at)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("record a gradient bucket", cause)

    def cancel(self):
        """Forgets the bucket."""
        with recorder.shared_lock():
            self.span.cancel()


def _backward(begins):
    if begins:
        for ddp, state in list(_states.items()):
            if state.ours:
                state.note_places(ddp)
