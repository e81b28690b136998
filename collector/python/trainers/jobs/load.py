"""The work that a rank is given on top of a job's own, and how long it took.

    WORK   products in each forward pass
    SLOW   the rank that makes EXTRA times as many, or more: as many as take NOISE times
           what the same work varies by on this machine now, by its own measurement
    TURNS  the work comes in turns instead, see turns
"""

import itertools
import os
import time

import turns

EXTRA, NOISE = 15, 5

began, took = [], []  # of each forward pass's work: when, and for how many seconds
_passes = None


def work(rank, product):
    """Makes the work of one forward pass of a rank."""
    global _passes
    if _passes is None:
        _passes = turns.passes(str(rank)) if "TURNS" in os.environ else itertools.repeat(_share(str(rank), product))
    count = next(_passes)
    if count:
        began.append(time.perf_counter())
        for _ in range(count):
            product()
        took.append(time.perf_counter() - began[-1])


def _share(rank, product):
    """Returns how many products a rank makes in each pass."""
    usual = int(os.environ.get("WORK", 0))
    if not usual or os.environ.get("SLOW") != rank:
        return usual
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(usual):
            product()
        times.append(time.perf_counter() - begun)
    times.sort()
    least, spread = times[0], times[-3] - times[2]
    return int(usual * max(EXTRA, 1 + NOISE * spread / least))
