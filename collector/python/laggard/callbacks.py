"""Callbacks that say where a framework's steps are.

    Trainer(callbacks=[laggard.callbacks.lightning()])           Lightning
    Trainer(callbacks=[laggard.callbacks.transformers()])        Hugging Face
    model.train(…, callbacks=[laggard.callbacks.mindspore()])    MindSpore

Each is an instance of a class made out of Steps below and of the framework's own
base class where the framework is there. They record Step and, where the framework
tells, evaluation and SaveCheckpoint. With LAGGARD_AUTO=1 the rest comes from torch.
"""

import importlib

from . import groups
from . import layout
from . import recorder
from .span import Detailed, span


class Steps(object):
    """The open step of a trainer that calls us when one begins and ends."""

    def __init__(self):
        recorder.state.on = True
        self._step = None
        self._others = {}

    def step_begins(self, number):
        """Begins a step; one that is still open is forgotten."""
        state = recorder.state
        state.by_hand = True
        if self._step is not None:
            self._step.cancel()
        state.step = max(int(number), 0) & 0xFFFFFFFF
        self._step = Detailed(layout.STEP).begin()

    def step_ends(self, tokens=0):
        """Ends the step."""
        step, self._step = self._step, None
        if step is not None:
            step.value = tokens
            step.end()
            groups.settle()

    def begins(self, word):
        """Begins a range of another kind: a kind's word or any other."""
        self._others[word] = span(word).begin()

    def ends(self, word):
        """Ends the range of that kind, if one is open."""
        other = self._others.pop(word, None)
        if other is not None:
            other.end()

    def leaves(self):
        """The trainer is done, or died of an exception: what is open is forgotten."""
        for each in [self._step] + list(self._others.values()):
            if each is not None:
                each.cancel()
        self._step, self._others = None, {}
        recorder.state.step = layout.NO_STEP


def _base(*names):
    """Returns the first of these classes whose framework is there, else object."""
    for name in names:
        module, _, cls = name.rpartition(".")
        try:
            return getattr(importlib.import_module(module), cls)
        except Exception:  # pylint: disable=broad-except
            continue  # not installed, or broken: then nobody looks at our base
    return object


def _instance(name, base, hooks):
    """Returns an object of a class made of Steps, these hooks and a base class."""
    cls = type(name, (Steps,) + ((base,) if base is not object else ()), hooks)

    def __init__(self):
        if base is not object:
            base.__init__(self)
        Steps.__init__(self)

    cls.__init__ = __init__
    return cls()


def _safe(hook):
    """Returns a hook that never raises into the trainer."""
    def safe(self, *args, **kwargs):
        try:
            hook(self, *args, **kwargs)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("callback", cause)
    return safe


def lightning():
    """Returns a callback for Lightning (lightning or pytorch_lightning).

    A step is what lies between two values of global_step: with gradient
    accumulation it holds several batches.
    """
    def begins(self, trainer, *_, **__):
        if self._step is None:
            self.step_begins(trainer.global_step)

    def ends(self, trainer, *_, **__):
        if self._step is not None and self._step.step != trainer.global_step & 0xFFFFFFFF:
            self.step_ends()

    hooks = {
        "on_train_batch_start": begins,
        "on_train_batch_end": ends,
        "on_validation_start": lambda self, *_, **__: self.begins("evaluation"),
        "on_validation_end": lambda self, *_, **__: self.ends("evaluation"),
        "on_train_end": lambda self, *_, **__: self.leaves(),
        "on_exception": lambda self, *_, **__: self.leaves(),
    }
    base = _base("lightning.pytorch.Callback", "pytorch_lightning.Callback")
    return _instance("LightningCallback", base, {n: _safe(h) for n, h in hooks.items()})


# Every event that a Hugging Face trainer may call: it asks for them by name.
_EVENTS = ("init_end", "train_begin", "train_end", "epoch_begin", "epoch_end", "step_begin", "optimizer_step",
           "pre_optimizer_step", "substep_end", "step_end", "evaluate", "predict", "save", "log",
           "prediction_step", "push_begin")


def transformers():
    """Returns a callback for the Trainer of Hugging Face."""
    def tokens(state):
        seen = getattr(state, "num_input_tokens_seen", 0) or 0
        before, state_seen = getattr(callback, "tokens", 0), int(seen)
        callback.tokens = state_seen
        return max(state_seen - before, 0)

    hooks = {"on_" + event: lambda self, args, state, control, **_: None for event in _EVENTS}
    hooks["on_step_begin"] = _safe(lambda self, args, state, control, **_: self.step_begins(state.global_step))
    hooks["on_step_end"] = _safe(lambda self, args, state, control, **_: self.step_ends(tokens(state)))
    hooks["on_train_end"] = _safe(lambda self, args, state, control, **_: self.leaves())
    callback = _instance("TransformersCallback", _base("transformers.TrainerCallback"), hooks)
    return callback


def mindspore():
    """Returns a callback for MindSpore's Model.train."""
    def number(context):
        return max(int(context.original_args().cur_step_num) - 1, 0)

    hooks = {
        "begin": lambda self, run_context: None,
        "epoch_begin": lambda self, run_context: None,
        "epoch_end": lambda self, run_context: None,
        "step_begin": lambda self, run_context: self.step_begins(number(run_context)),
        "step_end": lambda self, run_context: self.step_ends(),
        "end": lambda self, run_context: self.leaves(),
    }
    for event in ("begin", "epoch_begin", "epoch_end", "step_begin", "step_end", "end"):
        hooks["on_train_" + event] = hooks[event]
    base = _base("mindspore.train.callback.Callback", "mindspore.Callback")
    return _instance("MindSporeCallback", base, {n: _safe(h) for n, h in hooks.items()})
