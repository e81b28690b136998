"""Ranges: the one thing that everything in this package makes.

A range is begun in a thread and ended once. With blocking code it is a context
manager; what ends later or elsewhere calls end(). With the extension ranges are
its objects, else those of pure.py: both have the same face.

    Detailed(kind, text=0, value=0, dtype=0, group=0, peer=-1)   any range
    Automatic(…)              one of the instrumentation's: it makes no rank of a helper
    begin_elsewhere(range)    it may end in any thread
    elsewhere(range, start, dur, flags=0, extra=0, host_dur=0)   its record, with its times
"""

from . import layout
from . import pure
from . import recorder
from .extension import native

if native is None:
    Span, Detailed, Automatic = pure.Span, pure.Detailed, pure.Automatic
    elsewhere, begin_elsewhere = pure.elsewhere, pure.begin_elsewhere
else:
    Span = Detailed = native.Range
    elsewhere, begin_elsewhere = native.elsewhere, native.begin_elsewhere

    class Automatic(native.Range):
        """A range that the instrumentation makes: it does not make a rank of a helper."""

        __slots__ = ()
        automatic = True


SHOWN = recorder.os.environ.get("LAGGARD_NVTX") == "1"
if SHOWN:
    from .shown import shown
    Span = Detailed = shown(Detailed)
    Automatic = shown(Automatic)


def _any(kind, tokens=0, path=""):
    """Returns a context manager that records a range of this kind.

    kind is FP, DataLoader, SaveCheckpoint, Step, Communication or any other word.
    """
    if not tokens and not path:
        return Detailed(*_number(str(kind)))
    number, text = _number(kind)
    return Detailed(number, recorder.strings.path(str(path)) if path else text, amount(tokens))


def _number(kind):
    """Returns (kind number, id of its word) of a kind's word."""
    number = layout.KINDS.get(kind, layout.OTHER)
    return number, recorder.strings.id(str(kind)) if number == layout.OTHER else 0


def _word(kind):
    """Returns kind number | id << 8, or -1 where there was no room for the word."""
    number, text = _number(kind)
    return number | text << 8 if text or number != layout.OTHER else -1


def _communication(op, group="", count=0, dtype="", peer=-1):
    """Returns a context manager that records a blocking collective or transfer."""
    strings, code = recorder.strings, _dtypes.get(dtype)
    if code is None:
        code = layout.dtype_code(dtype)
        if len(_dtypes) < 1000 and isinstance(dtype, str):
            _dtypes[dtype] = code
    return Detailed(layout.COMMUNICATION, strings.id(op if type(op) is str else str(op)), amount(count), code,
                    strings.id(group if type(group) is str else str(group)), int(peer))


_dtypes = {"": 0}  # as scripts spell them


def amount(value):
    """Returns value as a count that fits a slot, 0 for what is none."""
    if type(value) is int and 0 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    try:
        return min(max(int(value), 0), 0x7FFFFFFFFFFFFFFF)
    except (TypeError, ValueError, OverflowError):
        return 0


if SHOWN or native is None:
    span, communication = _any, _communication
else:
    span, communication = native.span, native.communication

if native is not None:
    native.connect(recorder.attach, recorder.ready, recorder.shared, _word, _any, _communication,
                   recorder.strings._ids, _dtypes)
