"""Stands last on taskd's path: what an installed TaskD has and laggard has not. A call
here does nothing, says once what is missing, and returns what TaskD returns when it
fails, so a script goes the way that it has for that."""

from ..laggard_worker import log

_said = set()


def nothing(name, failed=False):
    """Returns a function that says that it does nothing."""
    def absent(*_args, **_kwargs):
        if name not in _said:
            _said.add(name)
            log.say("%s: no TaskD is installed here; nothing was done. Install it (pip install taskd-*.whl, of MindCluster) "
                    "where that is wanted" % name)
        return failed
    absent.__name__ = absent.__qualname__ = name
    return absent
