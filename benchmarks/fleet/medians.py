"""The medians that decide about a job, as numpy does them.

Reads float32 matrices (steps × ranks, one file a signal), and for each does what
laggard's statistics do at the least: every step's median of each role, the residual
of each rank, its noise (median absolute residual per role and step), and every eight
steps each rank's median over the last 32. Prints the seconds of each repetition.
"""

import sys
import time

import numpy as np

steps, roles, repeat = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
signals = [np.fromfile(f, dtype=np.float32).reshape(steps, -1) for f in sys.argv[4:]]
for _ in range(repeat):
    began = time.perf_counter()
    for x in signals:
        x = np.log(x).reshape(steps, roles, -1)
        e = x - np.median(x, axis=2, keepdims=True)
        np.median(np.abs(e), axis=2)
        e = e.reshape(steps, -1)
        for at in range(32, steps + 1, 8):
            np.median(e[at - 32 : at], axis=0)
    print(time.perf_counter() - began)
