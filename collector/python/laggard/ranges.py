"""The functions of mstx, see the module mstx: a name in a domain becomes a range."""

import functools
import itertools
import json

from . import layout
from . import recorder
from .ring import OFF
from .span import Detailed, amount

_WORDS = {"forward": layout.FP, "dataloader": layout.DATA_LOADER, "save_checkpoint": layout.SAVE_CHECKPOINT}
_NULL = ("", "(null)", "NULL")
_MOST = 4096  # ranges open at a time
_LONGEST = 254  # bytes of a name: libmspti refuses longer ones

_ids = itertools.count(1)
_open = {}  # id → range


def _step(name):
    """Returns the number in "step N", -1 when the name is none."""
    words = name.split()
    if "step" not in name.lower() or len(words) < 2 or not words[1].isdigit():
        return -1
    return int(words[1])


def _fields(name):
    """Returns the JSON object that a name is, with one level of escapes or without; or None."""
    for text in (name, name.replace('\\"', '"')):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            return {k: "" if v is None else str(v) for k, v in found.items()}
    return None


def _communication(name):
    found = _fields(name)
    string = recorder.strings.id
    if found is None:
        return Detailed(layout.COMMUNICATION, string("" if name in _NULL else name))
    op, get = found.get("opName", ""), found.get
    receives = "recv" in op.lower() and "send" not in op.lower()
    peer = get("srcRank", "") if receives and get("srcRank") or not get("destRank") else get("destRank")
    return Detailed(layout.COMMUNICATION, string(op), amount(get("count", "")), layout.dtype_code(get("dataType", "")),
                    string(get("groupName", "")), int(peer) if (peer or "").isdigit() and int(peer) < 1 << 31 else -1)


def _range(message, domain, instant):
    """Returns the range that a name in a domain stands for."""
    if domain == "communication":
        return _communication(message)
    if not instant:
        kind = _WORDS.get(message.lower())
        if kind is not None:
            return Detailed(kind)
        number = _step(message)
        if number >= 0:
            return _numbered(number)
    group = 0 if instant or domain == "default" or domain in _NULL else recorder.strings.id(domain)
    return Detailed(layout.OTHER, recorder.strings.id("unnamed" if message in _NULL else message), group=group)


def _numbered(number):
    from . import step
    return step(number)


def _known(message, domain):
    """Reports whether a name and a domain are ones that mstx takes."""
    recorder.state.on = True
    return isinstance(message, str) and isinstance(domain, str) and len(message.encode("utf-8", "replace")) <= _LONGEST


def range_start(message, stream=None, domain="default"):
    """Begins a range; returns its id, 0 when it is not recorded."""
    try:
        if not _known(message, domain) or len(_open) >= _MOST:
            return 0
        span = _range(message, domain, False).begin()
        if span.slot == OFF:
            span.end()  # a step that is not recorded is over
            return 0
        if span.head & 7 == layout.STEP:
            span.before = layout.NO_STEP  # steps may overlap: none comes back
        number = next(_ids)
        _open[number] = span
        return number
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("mstx.range_start", cause)
        return 0


def range_end(range_id, domain="default"):
    """Ends the range, in any thread; an id that is not open is ignored."""
    try:
        span = _open.pop(range_id, None)
        if span is not None:
            span.end()
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("mstx.range_end", cause)


def mark(message, stream=None, domain="default"):
    """Records an instant."""
    try:
        if _known(message, domain):
            _range(message, domain, True).begin().end()
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("mstx.mark", cause)


def mstx_range(message, stream=None, domain="default"):
    """Returns a decorator: each call of the function is a range."""
    def decorate(function):
        @functools.wraps(function)
        def ranged(*args, **kwargs):
            number = range_start(message, stream, domain)
            try:
                return function(*args, **kwargs)
            finally:
                range_end(number, domain)
        return ranged
    return decorate


def _after_fork():
    """What is open is the parent's."""
    _open.clear()


recorder.os.register_at_fork(after_in_child=_after_fork)
