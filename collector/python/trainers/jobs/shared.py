"""What the jobs without PyTorch share: batches, extra work, and the truth they leave
behind, see common. Nothing here knows of laggard."""

import json
import os
import time

import load
import numpy


def iterations(usual):
    """Returns how many iterations a job makes."""
    return int(os.environ.get("ITERATIONS", usual))


def rest():
    """Rests after an optimizer's step, so that many ranks share few cores."""
    time.sleep(float(os.environ.get("PACE", 0)))


def batches(count, rank, width=8, size=4):
    """Returns a rank's batches: inputs and targets."""
    random = numpy.random.RandomState(rank)
    return [(random.randn(size, width).astype(numpy.float32), random.randn(size, 1).astype(numpy.float32))
            for _ in range(count)]


def finish(rank, losses, made, operations, **more):
    """Writes the rank's truth. operations: (word, size of the group, count, type) of each
    operation that the job made by itself."""
    truth = {"rank": rank, "iterations": made, "losses": [float(each).hex() for each in losses],
             "collectives": None, "operations": operations, "work": load.took, "began": load.began}
    truth.update(more)
    with open(os.path.join(os.environ["TRUTH"], "rank-%d.json" % rank), "w") as f:
        json.dump(truth, f)
