"""LAGGARD_NVTX=1: every range is also one of torch.cuda.nvtx, for Nsight.

Only where the script has imported torch with CUDA: we import no torch. What NVTX
raises costs the showing, not the record.
"""

from . import layout
from . import recorder

_KINDS = {number: word for word, number in layout.KINDS.items()}


class _Nvtx(object):
    broken = False


def _name(span):
    kind = span.head & 7
    if kind == layout.STEP and span.number is not None:
        return "Step %d" % span.number
    if kind in (layout.OTHER, layout.COMMUNICATION):
        return recorder.strings.text(span.text) or _KINDS.get(kind, "")
    return _KINDS[kind]


def _begin(span):
    nvtx = recorder.sys.modules.get("torch.cuda.nvtx")
    if nvtx is None or _Nvtx.broken:
        return None
    try:
        return nvtx.range_start(_name(span))
    except Exception as cause:  # pylint: disable=broad-except
        _Nvtx.broken = True
        recorder.trouble("torch.cuda.nvtx", cause)
        return None


def _end(shown):
    nvtx = recorder.sys.modules.get("torch.cuda.nvtx")
    if shown is None or nvtx is None or _Nvtx.broken:
        return
    try:
        nvtx.range_end(shown)
    except Exception as cause:  # pylint: disable=broad-except
        _Nvtx.broken = True
        recorder.trouble("torch.cuda.nvtx", cause)


def shown(base):
    """Returns a class of ranges that are shown, too."""
    class Shown(base):
        """A range that Nsight sees."""

        __slots__ = ("shown",)

        def __enter__(self):
            self.shown = _begin(self)
            return base.__enter__(self)

        def begin(self):
            """Begins the range; returns it."""
            return self.__enter__()

        def _hide(self):
            number, self.shown = getattr(self, "shown", None), None
            _end(number)

        def __exit__(self, *exception):
            base.__exit__(self, *exception)
            self._hide()

        def end(self, exposed=None, at=None):
            """Ends the range, now or at a time."""
            base.end(self, exposed, at)
            self._hide()

        def cancel(self):
            """Forgets the range: nothing is recorded."""
            base.cancel(self)
            self._hide()

    return Shown
