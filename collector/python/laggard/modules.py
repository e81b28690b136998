"""Forward and backward passes.

FP is one call of an outermost Module, with gradients on and the module in
training: so one a micro-batch. A wrapper that talks to other ranks around the
forward pass of the module in it is not the outermost one: what it waits for is no
work of this rank. Not FP: a module called inside another one; what
is recomputed in the backward pass (activation checkpointing; on an accelerator that is in
a thread of the autograd engine); the loss modules of torch.nn.modules.loss. An outermost
call without gradients or of a module in eval mode is recorded too, under the kind
`evaluation`: it is time, but not the time that ranks of one role must have in common.

The outermost backward pass has the kind `backward`.
"""

import functools
import sys

from . import device
from . import hook
from . import recorder
from .layout import FP, OTHER
from .span import Automatic

_inside = recorder.inside
began = []     # called before an outermost forward pass in training
_wrappers = {}  # class whose forward pass is that of the module in it → what is called with it before
_types = {}    # class of a module → _LOSS, _WRAPPER or _OUTERMOST: what its call is where no other is around it
_LOSS, _WRAPPER, _OUTERMOST = range(3)
backward = []  # called with True when a backward pass begins, False when it ends


def cover(torch):
    """Covers Module.__call__ and torch.autograd.backward."""
    Module = torch.nn.Module
    inner = hook.own(Module, "__call__")
    if hasattr(inner, "__laggard__"):
        return
    Module.__call__ = _call(torch, inner)
    cover_backward(torch.autograd, "backward")


def _call(torch, inner):
    evaluation = recorder.strings.id("evaluation")
    grad_enabled = torch.is_grad_enabled
    loss = torch.nn.modules.loss.__name__
    tracing = compiling(torch)
    task = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # not -1 in a thread of the autograd engine

    def __call__(self, *args, **kwargs):
        if _inside.forward or _inside.backward:
            return inner(self, *args, **kwargs)
        place = _types.get(type(self))
        if place is None:
            place = _place(self, loss)
        if place == _LOSS or tracing() or task() != -1:
            return inner(self, *args, **kwargs)
        outermost = place == _OUTERMOST
        _inside.forward = 1 if outermost else 0
        span = None
        try:
            training = self.training and grad_enabled()
            if training:
                for action in began:
                    action()
                if not outermost:
                    _wrapping(self)
            if outermost:
                span = Automatic(FP) if training else Automatic(OTHER, evaluation)
                device.begin(span)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("record a forward pass", cause)
        try:
            return inner(self, *args, **kwargs)
        finally:
            _inside.forward = 0
            if span is not None:
                device.end(span)

    __call__.__laggard__ = inner
    functools.update_wrapper(__call__, inner, updated=())
    _hide(torch, __call__)
    return __call__


def cover_backward(owner, name):
    """Covers a function that makes a backward pass."""
    inner = getattr(owner, name)  # one that is not there is told, and costs the kind
    if not hasattr(inner, "__laggard__"):
        setattr(owner, name, _backward(inner))


def _backward(inner):
    word = recorder.strings.id("backward")

    @functools.wraps(inner)
    def covered(*args, **kwargs):
        if _inside.backward:
            return inner(*args, **kwargs)
        _inside.backward = 1
        _tell(True)
        span = Automatic(OTHER, word)
        device.begin(span)
        try:
            return inner(*args, **kwargs)
        finally:
            _inside.backward = 0
            device.end(span)
            _tell(False)

    covered.__laggard__ = inner
    return covered


def _tell(begins):
    for action in backward:
        try:
            action(begins)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("follow a backward pass", cause)


def _place(module, loss):
    """Returns what the call of a module of this class is."""
    cls = type(module)
    place = _LOSS if cls.__module__ == loss else _WRAPPER if isinstance(module, tuple(_wrappers)) else _OUTERMOST
    if len(_types) < 10000:  # a script may make classes without end
        _types[cls] = place
    return place


def wraps(cls, action=None):
    """Says that the forward pass of cls is that of the module in it, and what is to be
    called with the wrapper before each of its own in training."""
    _wrappers[cls] = action
    _types.clear()


def _wrapping(module):
    for cls, action in _wrappers.items():
        if action is not None and isinstance(module, cls):
            action(module)


def compiling(torch):
    """Returns a function that tells whether torch.compile is tracing; torch may be None."""
    compiler = getattr(torch, "compiler", None)
    found = getattr(compiler, "is_compiling", None)
    return found if found is not None else lambda: False


def _hide(torch, function):
    """Has torch.compile skip the frame of our cover and look at what it calls."""
    try:
        frames = sys.modules.get("torch._C._dynamo.eval_frame") or torch._C._dynamo.eval_frame
        frames.skip_code(function.__code__)
    except AttributeError:
        pass  # before PyTorch 2
