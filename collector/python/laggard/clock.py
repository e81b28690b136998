"""The clock of the recorder.

Durations come from CLOCK_MONOTONIC and starts from a fixed offset to it, so the
starts of one process are ordered and free of clock steps; two hosts' starts must
never be compared.
"""

import os
import time

from .extension import native

monotonic = time.monotonic_ns


def _offset():
    """Unix epoch minus the monotonic clock, ns: the tightest of a few samples."""
    best = None
    for _ in range(5):
        before = monotonic()
        wall = time.time_ns()
        after = monotonic()
        if best is None or after - before < best[0]:
            best = (after - before, wall - (before + after) // 2)
    return best[1]


OFFSET = _offset()


def _now():
    """Returns ns since the Unix epoch."""
    return monotonic() + OFFSET


now = _now if native is None else native.now


def started(ticks):
    """Returns when a process began, ns since the Unix epoch.

    ticks is its start in clock ticks after boot (/proc/<pid>/stat, field 22).
    """
    since_boot = time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", 7))
    return time.time_ns() - since_boot + ticks * (10 ** 9 // os.sysconf("SC_CLK_TCK"))
