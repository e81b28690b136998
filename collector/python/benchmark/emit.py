#!/usr/bin/env python3
"""What a range costs in a Python trainer, beside writing the same record as JSON.

    python3 collector/python/benchmark/emit.py
    LAGGARD_EXTENSION=0 python3 collector/python/benchmark/emit.py

Both sides run in one process and take turns; CPU time of this process, the least
and the median of the rounds, ns per range. Between rounds the tails are moved as
an agent would, so nothing is dropped.
"""

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
RUN = tempfile.mkdtemp(prefix="laggard-benchmark-", dir=BASE)
os.environ["LAGGARD_RUN"] = RUN
import laggard  # noqa: E402
from laggard import extension, recorder  # noqa: E402

ROUNDS, COUNT = 30, 1000  # a light ring holds 1024


def drained(action):
    """Runs action between two moves of the tails to the heads."""
    def round_():
        path = os.path.join(recorder._process.folder, "ring-%d" % recorder.local.ring.number)
        fd = os.open(path, os.O_RDWR)
        for head, tail in ((64, 128), (192, 256)):
            os.pwrite(fd, os.pread(fd, 8, head), tail)
        os.close(fd)
        begun = time.process_time_ns()
        action()
        return time.process_time_ns() - begun
    return round_


def span():
    for _ in range(COUNT):
        with laggard.span("FP"):
            pass


def stepping():
    for i in range(COUNT):
        recorder.state.step = i
        with laggard.span("FP"):
            pass


def by_hand():
    for _ in range(COUNT):
        laggard.span("FP").begin().end()


def step():
    for i in range(COUNT):
        with laggard.step(i, tokens=4096):
            pass


def communication():
    for _ in range(COUNT):
        with laggard.communication("all_reduce", "dp0", 4194304, "bf16"):
            pass


def nothing():
    for _ in range(COUNT):
        with empty:
            pass


class _Empty(object):
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


empty = _Empty()
log = open(os.path.join(tempfile.gettempdir(), "laggard-benchmark-%d.json" % os.getpid()), "w", buffering=1)


def json_span():
    """What a logger of events does: two looks at the clock, ten fields, a line out at once."""
    for i in range(COUNT):
        start = time.time_ns()
        log.write(json.dumps({"kind": "FP", "step": 120, "start": start, "dur": time.time_ns() - start, "ring": 1,
                              "seq": i, "rank": 3, "node": "node-0", "thread": 4711, "tokens": 4096}) + "\n")


def json_communication():
    for i in range(COUNT):
        start = time.time_ns()
        log.write(json.dumps({"kind": "Communication", "step": 120, "start": start,
                              "dur": time.time_ns() - start, "ring": 2, "seq": i, "op": "allreduce",
                              "group": "dp0", "count": 4194304, "dtype": "bf16"}) + "\n")


CASES = [("with span", span), ("json.dumps + write", json_span), ("with span, each in a step of its own", stepping),
         ("begin and end", by_hand), ("with step", step),
         ("with communication", communication), ("json.dumps + write, the same", json_communication),
         ("an empty with", nothing)]


PAIRS = [("with span", "json.dumps + write"), ("with communication", "json.dumps + write, the same")]


def main():
    laggard.init(rank=0, job="benchmark")
    laggard.mark("first")
    times = {name: [] for name, _ in CASES}
    for _ in range(ROUNDS):
        for name, action in CASES:
            times[name].append(drained(action)() / COUNT)
    with open("/proc/cpuinfo") as f:
        model = next((l.split(":")[1].strip() for l in f if l.startswith("model name")), "?")
    print("Python %s on %s, %d cores, load %.1f" % (platform.python_version(), model, os.cpu_count(), os.getloadavg()[0]))
    print("with the extension" if extension.native is not None else "in Python alone")
    print("%-37s %10s %10s" % ("ns of CPU per range", "least", "median"))
    for name, _ in CASES:
        print("%-37s %10.0f %10.0f" % (name, min(times[name]), statistics.median(times[name])))
    for ours, theirs in PAIRS:
        ratios = sorted(a / b for a, b in zip(times[theirs], times[ours]))  # round by round
        quarter = len(ratios) // 4
        print("%s: %.1f times cheaper than json.dumps + write (half of the rounds %.1f to %.1f)"
              % (ours, statistics.median(ratios), ratios[quarter], ratios[-1 - quarter]))


if __name__ == "__main__":
    try:
        main()
    finally:
        log.close()
        os.unlink(log.name)
        shutil.rmtree(RUN, ignore_errors=True)
