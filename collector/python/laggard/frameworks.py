"""Frameworks that say where their steps are.

    deepspeed.runtime.engine            DeepSpeedEngine.step: ZeRO calls an optimizer once for
                                        each group of parameters; with gradient accumulation
                                        only the last call of an iteration ends its step
    megatron.core.optimizer.optimizer   step of each optimizer, also where it returns False
    accelerate.optimizer                AcceleratedOptimizer.step where gradients are synchronised
    transformers.trainer_callback       on_step_end, between on_train_begin and on_train_end

Lightning calls torch's optimizers where its steps are. For MindSpore see cells.
"""

import functools

from . import hook
from . import recorder
from .steps import follow, outermost, steps


def cover_deepspeed(module):
    """Covers the engine: both ways in which it comes to its optimizer."""
    engine = module.DeepSpeedEngine
    if hasattr(engine.step, "__laggard__"):
        return
    for name in ("step", "_take_model_step"):
        if hasattr(engine, name):
            setattr(engine, name, outermost(_counted(getattr(engine, name)), _boundary))
    from . import modules
    modules.wraps(engine)


def _counted(step):
    """Returns step, which notes before it how many steps the engine has made."""
    @functools.wraps(step)
    def counted(self, *args, **kwargs):
        if recorder.inside.optimizer == 1:
            recorder.local.counted = getattr(self, "global_steps", None)
        return step(self, *args, **kwargs)
    return counted


def _boundary(engine, _):
    """Returns the engine when its call made a step: not within gradient accumulation."""
    steps.own(engine)
    made = getattr(engine, "global_steps", None)
    return engine if made is None or made != recorder.local.counted else None


def cover_megatron(module):
    """Covers the optimizers of Megatron, which are none of torch's."""
    base = module.MegatronOptimizer

    def cover(cls):
        if "step" in vars(cls) and not hasattr(cls.step, "__laggard__"):
            cls.step = outermost(cls.step, lambda self, _: self)
        for each in cls.__subclasses__():
            cover(each)

    cover(base)
    made = getattr(base, "__init_subclass__")

    def __init_subclass__(cls, **kwargs):  # those in modules that come later
        made(**kwargs)
        cover(cls)

    base.__init_subclass__ = classmethod(__init_subclass__)


def cover_accelerate(module):
    """Covers the optimizer that does nothing while gradients are accumulated."""
    optimizer = module.AcceleratedOptimizer
    step = hook.own(optimizer, "step")
    optimizer.step = outermost(getattr(step, "__laggard__", step), lambda self, _: self if self.gradient_state.sync_gradients else None)


def cover_transformers(module):
    """Covers the events of a Hugging Face Trainer."""
    cover_events(module.CallbackHandler, (("on_train_begin", steps.own), ("on_step_end", steps.stepped),
                                          ("on_train_end", lambda _: steps.own(None))))


def cover_events(handler, actions):
    """Has an action follow each of these methods of a class of handlers."""
    for event, action in actions:
        inner = hook.own(handler, event)
        if not hasattr(inner, "__laggard__"):
            setattr(handler, event, _then(inner, action))


def _then(inner, action):
    @functools.wraps(inner)
    def event(self, *args, **kwargs):
        try:
            return inner(self, *args, **kwargs)
        finally:
            follow(action, self)

    event.__laggard__ = inner
    return event
