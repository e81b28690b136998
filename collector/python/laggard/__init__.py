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
import os

from . import groups
from . import layout
from . import recorder
from .span import Detailed, Span, plain

_local = recorder.local

__all__ = ["init", "enabled", "step", "span", "wrap", "mark", "communication", "failures", "callbacks"]


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


def span(kind, tokens=0, path=""):
    """Returns a context manager that records a range of this kind.

    kind is FP, DataLoader, SaveCheckpoint, Step, Communication or any other word.
    """
    if not tokens and not path:
        found = _local.plain.get(kind)
        return found() if found is not None else plain(str(kind))
    number = layout.KINDS.get(kind, layout.OTHER)
    text = recorder.strings.path(str(path)) if path else 0
    if number == layout.OTHER:
        text = recorder.strings.id(str(kind))
    return Detailed(number, text, _amount(tokens))


class _Step(Detailed):
    """A step: ranges begun inside carry its number."""

    __slots__ = ("number", "before")

    def __enter__(self):
        state = recorder.state
        state.by_hand = True
        self.before = state.step
        state.step = self.number
        return Span.__enter__(self)

    def __exit__(self, *exception):
        Span.__exit__(self, *exception)
        recorder.state.step = self.before
        groups.settle()


def step(number, tokens=0):
    """Returns a context manager that records step number and its tokens of work.

    From the first one on, steps are no longer guessed from optimizer.step.
    """
    ranged = _Step(layout.STEP, 0, _amount(tokens))
    ranged.number = _amount(number) & 0xFFFFFFFF
    return ranged


def communication(op, group="", count=0, dtype="", peer=-1):
    """Returns a context manager that records a blocking collective or transfer."""
    strings = recorder.strings
    return Detailed(layout.COMMUNICATION, strings.id(str(op)), _amount(count), layout.dtype_code(dtype),
                    strings.id(str(group)), int(peer))


def mark(kind, value=0):
    """Records an instant: a range of no length."""
    with span(kind, value):
        pass


def wrap(owner, method, kind):
    """Records every call of owner.method (an object's, a class's, a module's).

    Returns the function that was there. Wrapping twice is wrapping once.
    """
    inner = getattr(owner, method)
    if getattr(inner, "__laggard__", None) == kind:
        return inner

    @functools.wraps(inner)
    def recorded(*args, **kwargs):
        with span(kind):
            return inner(*args, **kwargs)

    recorded.__laggard__ = kind
    setattr(owner, method, recorded)
    return inner


def _amount(value):
    """Returns value as a count that fits a slot, 0 for what is none."""
    try:
        return min(max(int(value), 0), 0x7FFFFFFFFFFFFFFF)
    except (TypeError, ValueError, OverflowError):
        return 0
