"""Steps of an unchanged script, from its optimizer.

A step reaches from the end of one optimizer.step to the end of the next; the
first one (number 0) begins with the first forward pass or batch. With gradient
accumulation it holds several forward passes. Rules:

- Nested calls (an optimizer that wraps another) count once, the outermost.
- With several optimizers a step ends when each of them has stepped (a GAN whose critic
  takes five steps to the generator's one: with the generator). One that others leave 16
  steps behind is not waited for, nor one that another one calls.
- GradScaler.step ends the step also where it skips optimizer.step for an
  infinite gradient. Where a script with one optimizer leaves the step out by itself,
  the next zero_grad ends it: those gradients come to nothing.
- A framework that says where its steps are owns them (see frameworks): its optimizers
  are calls inside.
- With laggard.step in the script nothing is guessed.
"""

import functools
import weakref

from . import device
from . import groups
from . import modules
from . import recorder
from .layout import STEP
from .span import Automatic

_PATIENCE = 16  # steps of others after which an optimizer is not waited for

_state, _inside = recorder.state, recorder.inside


class _Steps(object):
    """The open step, and which optimizers it waits for."""

    def __init__(self):
        self.number = 0
        self.span = None
        self.owner = None      # weak reference to a framework's loop that says where its steps are
        self.thread = 0        # the one that trains, once it is known
        self.unused = False    # gradients were made since the last optimizer.step
        self.only = None       # weak reference to the optimizer where there is one
        self.since = weakref.WeakKeyDictionary()  # optimizer → others' steps since its own last
        self.done = weakref.WeakSet()             # those that have stepped in this step

    def open(self):
        """Begins the next step unless one is open or the script says its own."""
        if self.span is not None or _state.by_hand or not recorder.ready(True):
            return
        _state.step = self.number & 0xFFFFFFFF
        self.thread = recorder.threading.get_ident()
        span = Automatic(STEP)
        device.begin(span)
        self.span = span

    def stepped(self, optimizer):
        """An optimizer's outermost step has ended."""
        self.unused = False
        if _state.by_hand:
            self._forget()
            return
        owner = self.owner() if self.owner is not None else None
        if owner is optimizer or owner is None and self._complete(optimizer):
            self.close()
            self.open()

    def own(self, owner):
        """From now on only owner's steps count; None: any optimizer's again."""
        if owner is None or self.owner is None or self.owner() is None:
            self.owner = weakref.ref(owner) if owner is not None else None

    def backward(self, begins):
        """A backward pass begins or ends."""
        if not begins:
            self.unused = True

    def discarded(self, optimizer):
        """An optimizer's gradients are forgotten: they came to nothing if no optimizer has
        stepped since they were made. With several optimizers they may be another's."""
        if self.unused and self.only is not None and self.only() is optimizer:
            self.stepped(optimizer)

    def made(self, optimizer):
        """There is a new optimizer."""
        self._follow(optimizer)

    def inside(self, optimizer):
        """An optimizer has stepped in the step of another one, which speaks for it."""
        if optimizer in self.since:
            del self.since[optimizer]
            self._know()

    def _follow(self, optimizer):
        """Begins to wait for an optimizer."""
        self.since[optimizer] = 0
        self._know()

    def _know(self):
        known = list(self.since)
        self.only = weakref.ref(known[0]) if len(known) == 1 else None

    def _complete(self, optimizer):
        """Reports whether each optimizer that is waited for has stepped."""
        if self.only is not None and self.only() is optimizer:
            return True
        for other in self.since:
            self.since[other] += 1
        self._follow(optimizer)
        self.done.add(optimizer)
        if any(o not in self.done and n <= _PATIENCE for o, n in self.since.items()):
            return False
        self.done = weakref.WeakSet()
        return True

    def close(self):
        """Ends the open step."""
        if self.span is None:
            return
        span, self.span = self.span, None
        device.end(span)
        self.number += 1
        for action in ended:
            action(self.number)

    def _forget(self):
        if self.span is not None:
            self.span.cancel()
            self.span = None


steps = _Steps()
ended = [groups.settle]  # called with the number of steps so far


def _at_exit():
    """The step that the last optimizer.step began is none, unless the script died."""
    if steps.span is not None and not hasattr(recorder.sys, "last_type"):
        steps.span.cancel()
        steps.span = None


recorder.closers.insert(0, _at_exit)


def _after_fork():
    """The open step is the parent's."""
    steps.span = None
    steps.thread = 0


def cover(torch):
    """Covers every optimizer class when the first of it is made."""
    Optimizer = torch.optim.Optimizer
    made = Optimizer.__init__
    if hasattr(made, "__laggard__"):
        return

    @functools.wraps(made)
    def __init__(self, *args, **kwargs):
        _cover_step(type(self))
        made(self, *args, **kwargs)
        follow(steps.made, self)

    __init__.__laggard__ = made
    Optimizer.__init__ = __init__
    _cover_made(Optimizer)
    _cover_zero_grad(Optimizer, modules.compiling(torch))
    modules.began.append(steps.open)
    modules.backward.append(steps.backward)
    recorder.os.register_at_fork(after_in_child=_after_fork)
    scalers = [getattr(torch.cuda.amp, "GradScaler", None), getattr(getattr(torch, "amp", None), "GradScaler", None)]
    for scaler in scalers:
        if scaler is not None and "step" in vars(scaler):
            _cover_scaler(scaler)


def _cover_made(cls):
    """Covers the classes of optimizers that may have been made before us."""
    for each in cls.__subclasses__():
        if "step" in vars(each):
            _cover_step(each)
        _cover_made(each)


def _cover_step(cls):
    step = getattr(cls, "step", None)
    if step is not None and not hasattr(step, "__laggard__"):
        cls.step = outermost(step, lambda self, args: self)


def cover_npu(module):
    """Covers the GradScaler of torch_npu, which has a step of its own."""
    _cover_scaler(module.GradScaler)


def _cover_scaler(cls):
    if not hasattr(cls.step, "__laggard__"):
        cls.step = outermost(cls.step, lambda self, args: args[0])


def outermost(step, whose):
    """Returns a function that steps, covered: when the outermost of them has ended, so
    has the step of whose(self, args), unless that is None."""
    compiling = modules.compiling(recorder.sys.modules.get("torch"))

    @functools.wraps(step)
    def covered(self, *args, **kwargs):
        if compiling():
            return step(self, *args, **kwargs)
        _inside.optimizer += 1
        try:
            return step(self, *args, **kwargs)
        finally:
            _inside.optimizer -= 1
            optimizer = follow(whose, self, args or tuple(kwargs.values()))
            if optimizer is not None:
                follow(steps.inside if _inside.optimizer else steps.stepped, optimizer)

    covered.__laggard__ = step
    return covered


def _cover_zero_grad(cls, compiling):
    inner = cls.zero_grad

    @functools.wraps(inner)
    def zero_grad(self, *args, **kwargs):
        if steps.unused and not compiling() and not _inside.optimizer:
            follow(steps.discarded, self)
        return inner(self, *args, **kwargs)

    zero_grad.__laggard__ = inner
    cls.zero_grad = zero_grad


def follow(action, *args):
    """Returns what an action of ours returns; it raises nothing."""
    try:
        return action(*args)
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("follow the steps", cause)
        return None
