"""Steps of an unchanged script, from its optimizer.

A step reaches from the end of one optimizer.step to the end of the next; the
first one (number 0) begins with the first forward pass or batch. With gradient
accumulation it holds several forward passes. Rules:

- Nested calls (an optimizer that wraps another) count once, the outermost.
- With several optimizers one of them is the anchor, whose step ends the step:
  the first that was seen, until another one is found to step less often (a GAN
  whose critic takes five steps to the generator's one: the generator). It is
  chosen in the first 64 steps and then stays.
- GradScaler.step ends the step also where it skips optimizer.step for an
  infinite gradient.
- With laggard.step in the script nothing is guessed.
"""

import functools
import weakref

from . import device
from . import modules
from . import recorder
from .layout import STEP
from .span import Automatic

_CHOOSING = 64  # steps in which the anchor may change

_state, _local = recorder.state, recorder.local


class _Steps(object):
    """The open step and the choice of its anchor."""

    def __init__(self):
        self.number = 0
        self.span = None
        self.anchor = None
        self.since = weakref.WeakKeyDictionary()  # optimizer → anchor's steps since its own last

    def open(self):
        """Begins the next step unless one is open or the script says its own."""
        if self.span is not None or _state.by_hand or not recorder.enabled():
            return
        if not recorder.rank_known(True):
            return
        _state.step = self.number & 0xFFFFFFFF
        span = Automatic(STEP)
        device.begin(span)
        self.span = span

    def stepped(self, optimizer):
        """An optimizer's outermost step has ended."""
        if _state.by_hand:
            self._forget()
            return
        if self._is_anchor(optimizer):
            self.close()
            self.open()

    def _is_anchor(self, optimizer):
        anchor = self.anchor() if self.anchor is not None else None
        if anchor is None:
            self.anchor = weakref.ref(optimizer)
            return True
        if anchor is optimizer:
            for other in self.since:
                self.since[other] += 1
            return True
        seldom = self.since.get(optimizer, 0) > 1
        self.since[optimizer] = 0
        if seldom and self.number < _CHOOSING:
            self.anchor = weakref.ref(optimizer)
            self.since = weakref.WeakKeyDictionary()
            return True
        return False

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
ended = []  # called with the number of steps so far


def _at_exit():
    """The step that the last optimizer.step began is none, unless the script died."""
    if steps.span is not None and not hasattr(recorder.sys, "last_type"):
        steps.span.cancel()
        steps.span = None


recorder.closers.insert(0, _at_exit)


def _after_fork():
    """The open step is the parent's."""
    steps.span = None


def cover(torch):
    """Covers every optimizer class when the first of it is made."""
    Optimizer = torch.optim.Optimizer
    made = Optimizer.__init__
    if hasattr(made, "__laggard__"):
        return

    @functools.wraps(made)
    def __init__(self, *args, **kwargs):
        _cover_step(type(self))
        return made(self, *args, **kwargs)

    __init__.__laggard__ = made
    Optimizer.__init__ = __init__
    modules.began.append(lambda module: steps.open())
    recorder.os.register_at_fork(after_in_child=_after_fork)
    scalers = [getattr(torch.cuda.amp, "GradScaler", None), getattr(getattr(torch, "amp", None), "GradScaler", None)]
    for scaler in scalers:
        if scaler is not None and "step" in vars(scaler):
            _cover_scaler(scaler)


def _cover_step(cls):
    step = getattr(cls, "step", None)
    if step is None or hasattr(step, "__laggard__"):
        return

    @functools.wraps(step)
    def covered(self, *args, **kwargs):
        _local.optimizer += 1
        try:
            return step(self, *args, **kwargs)
        finally:
            _local.optimizer -= 1
            if not _local.optimizer:
                _ended(self)

    covered.__laggard__ = step
    cls.step = covered


def _cover_scaler(cls):
    step = cls.step
    if hasattr(step, "__laggard__"):
        return

    @functools.wraps(step)
    def covered(self, optimizer, *args, **kwargs):
        _local.optimizer += 1
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            _local.optimizer -= 1
            if not _local.optimizer:
                _ended(optimizer)

    covered.__laggard__ = step
    cls.step = covered


def _ended(optimizer):
    try:
        steps.stepped(optimizer)
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("follow the steps", cause)
