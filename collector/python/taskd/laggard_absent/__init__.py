"""Stands last on taskd's path: what an installed TaskD has and laggard has not. Every
call here logs a line and does nothing."""

from ..laggard_worker import log


def nothing(name):
    """Returns a function that says that it does nothing."""
    def absent(*_args, **_kwargs):
        log.say("%s: no TaskD is installed here; nothing was done" % name)
        return True
    absent.__name__ = absent.__qualname__ = name
    return absent
