"""Turns of a job that shares the machine with another run of the same script, see cost.py.

    TURNS    what the names of two pipes begin with: rank 0 reads a byte of .go before each
             turn; after it, it writes to .took what a step took, and its thread's processor
    PASSES   forward passes in a step

A turn's first step is not measured: the other job may still be at its last one.
"""

import os
import struct
import time

SIZES = (("long", 150, 6), ("short", 0, 32))  # name, products in a step, steps in a turn
STEPS = sum(1 + steps for _, _, steps in SIZES)  # of a round of turns, one of each size
RESULT = struct.Struct("<dd")  # nanoseconds a step


def passes(rank):
    """Yields how many products a rank makes in each of its forward passes, for ever."""
    own = rank == "0"
    if own:
        go, took = (os.open(os.environ["TURNS"] + name, mode) for name, mode in ((".go", os.O_RDONLY), (".took", os.O_WRONLY)))
    each = int(os.environ["PASSES"])
    while True:
        for _, products, steps in SIZES:
            if own:
                os.read(go, 1)
            for n in range(1 + steps):
                if n == 1:
                    begun, used = time.perf_counter_ns(), time.thread_time_ns()
                for _ in range(each):
                    yield products // each
            if own:
                os.write(took, RESULT.pack((time.perf_counter_ns() - begun) / steps, (time.thread_time_ns() - used) / steps))
