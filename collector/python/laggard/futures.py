"""What futures call when they are complete, in whichever thread completes them.

Invariant: while Python ends, no thread has such a call before it. CPython before 3.14
ends a thread that asks for the interpreter then, which C++ does not survive: the whole
process would abort ("terminate called without an active exception"). So the process
stays until what was handed out has been called and let go.

Caveat: it stays for two seconds at most, for an operation whose peers are gone may
never be complete.
"""

import time
import weakref

from . import recorder

_PATIENCE = 2  # seconds
_outstanding = set()  # weak references to what futures hold; each leaves in C, where no other thread gets a turn


def watched(function):
    """Returns function, which a future will hold: the end of the process waits until nobody does."""
    _outstanding.add(weakref.ref(function, _outstanding.discard))
    return function


def tell(work, function):
    """Has a Work call function when it is complete; reports whether its backend can."""
    try:
        work.get_future().add_done_callback(watched(function))
    except Exception:  # pylint: disable=broad-except
        return False  # wait() tells
    return True


def _settle():
    until = time.monotonic() + _PATIENCE
    while _outstanding and time.monotonic() < until:
        time.sleep(0.001)  # a reference that leaves can't take a lock


recorder.closers.append(_settle)
recorder.os.register_at_fork(after_in_child=_outstanding.clear)
