"""laggard: light timing records of a training process, for `laggard agent`.

By hand:

    import laggard
    laggard.init()
    with laggard.step(n, tokens=8192):
        with laggard.span("FP"):
            loss = model(batch)

An unchanged PyTorch script: PYTHONPATH=DIR/python LAGGARD_AUTO=1 python3 train.py

Each range costs about a microsecond, goes to shared memory at once and survives
SIGKILL. Nothing here ever raises into the trainer: when something of ours fails,
recording stops, one line on stderr says why, and failures() counts it.
"""

import functools
import inspect
import os

from . import groups
from . import layout
from . import recorder
from .extension import native
from .span import Detailed, Span, amount, communication, span

__all__ = ["init", "enabled", "step", "span", "wrap", "mark", "communication", "failures", "fallbacks", "callbacks"]


def __getattr__(name):  # Python 3.7: callbacks are imported when they are asked for
    if name == "callbacks":
        import importlib
        return importlib.import_module(__name__ + ".callbacks")
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


if os.environ.get("LAGGARD_AUTO") == "1":
    recorder.state.on = True


def init(rank=None, world_size=None, local_rank=None, job=None, node=None, auto=False):
    """Turns recording on in this process.

    What is not given comes from the environment and torch.distributed (see
    identity). No file is made before the first range. With auto, torch is
    instrumented as with LAGGARD_AUTO=1.
    """
    recorder.identity.give(rank=rank, world_size=world_size, local_rank=local_rank, job=job, node=node)
    recorder.state.on = True
    if auto:
        from . import auto as automatic
        automatic.install()
    groups.touch()


def enabled():
    """Reports whether ranges are recorded in this process (the switch apart)."""
    return recorder.enabled()


def failures():
    """Returns how often something of ours failed in this process."""
    return recorder.state.failures


def fallbacks():
    """Returns how many ranges on an accelerator got the host's times, by the reason."""
    return dict(recorder.sys.modules[__name__ + ".device"].fallbacks) if __name__ + ".device" in recorder.sys.modules else {}


class _Step(Detailed):
    """A step: ranges begun inside carry its number."""

    __slots__ = ("before",) + (("number",) if native is None else ())

    def __enter__(self):
        state = recorder.state
        state.by_hand = True
        self.before = state.step
        state.step = self.number
        return Span.__enter__(self)

    def begin(self):
        """Begins the step; returns it."""
        return self.__enter__()

    def end(self, exposed=None, at=None):
        """Ends the step, now or at a time."""
        Span.end(self, exposed, at)
        before, self.before = self.before, None
        if before is not None:
            if recorder.state.step == self.number:
                recorder.state.step = before
            groups.settle()

    def __exit__(self, *exception):
        self.end()


def step(number, tokens=0):
    """Returns a context manager that records step number and its tokens of work.

    From the first one on, steps are no longer guessed from optimizer.step.
    """
    ranged = _Step(layout.STEP, 0, amount(tokens))
    ranged.number, ranged.before = amount(number) & 0xFFFFFFFF, None
    return ranged


def mark(kind, value=0):
    """Records an instant: a range of no length."""
    with span(kind, value):
        pass


def _recorded(call, kind):
    """Returns what a call returns. The end of an iterator is no range."""
    ranged = span(kind).begin()
    try:
        result = call()
    except StopIteration:
        ranged.cancel()
        raise
    except BaseException:
        ranged.end()
        raise
    ranged.end()
    return result


def wrap(owner, method, kind):
    """Records every call of owner.method (an object's, a class's, a module's).

    Of a generator, a stream's `__iter__` say, each item handed over is a range; a call
    that only says that an iterator is at its end is none.
    Returns the function that was there. Wrapping twice is wrapping once.
    """
    inner = getattr(owner, method)
    if getattr(inner, "__laggard__", None) == kind:
        return inner

    @functools.wraps(inner)
    def recorded(*args, **kwargs):
        return _recorded(lambda: inner(*args, **kwargs), kind)

    @functools.wraps(inner)
    def each(*args, **kwargs):
        items = inner(*args, **kwargs)
        try:
            while True:
                try:
                    item = _recorded(items.__next__, kind)
                except StopIteration:
                    return
                yield item
        finally:
            items.close()

    if inspect.isgeneratorfunction(inner):
        recorded = each
    recorded.__laggard__ = kind
    setattr(owner, method, recorded)
    return inner
