"""What the recorder costs a step: the same DDP training with it and without, in turns.

    cost.py [TURNS [WORLD]]

Two jobs of WORLD ranks each are forked out of one process that has imported torch: one
is recorded as by LAGGARD_AUTO=1, the other is not. They take turns of a few steps, so
whatever else the machine does meets both. Each pair of turns gives one difference;
printed are the median difference of a step's time, and of the processor time of the
thread that trains, with the interval that holds the median with 95 % (order
statistics, no model of the noise).
"""

import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from contextlib import ExitStack

import torch
import torch.distributed as dist
import torch.utils.data


SIZES = (("20 ms", 512, 30, 8), ("short", 16, 1, 64))  # name, width, passes, steps in a turn
_RESULT = struct.Struct("<dd")


def _step_maker(width, passes):
    """Returns a function that trains one step of a model."""
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        *[torch.nn.Linear(width, width) for _ in range(3)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = torch.utils.data.TensorDataset(torch.randn(1 << 10, width))
    loss = torch.zeros(1)

    def batches():
        while True:
            yield from torch.utils.data.DataLoader(data, batch_size=64, drop_last=True)

    source = batches()

    def step():
        (x,) = next(source)
        for _ in range(passes - 1):
            with torch.no_grad():
                x = torch.tanh(x @ model.module[0].weight)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        dist.all_reduce(loss)
        optimizer.step()

    return step


def _rank(rank, world, port, recorded, orders, results):
    """Trains in turns until there are no orders; each is the number of a size."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if recorded:
        import laggard
        laggard.init(job="cost", auto=True)
    dist.init_process_group("gloo")
    steps = [_step_maker(width, passes) for _, width, passes, _ in SIZES]
    while True:
        order = os.read(orders, 1)
        if not order:
            break
        step, count = steps[order[0]], SIZES[order[0]][3]
        step()  # it waits for the others, who were told at another time
        begun, used = time.perf_counter_ns(), time.thread_time_ns()
        for _ in range(count):
            step()
        used, took = time.thread_time_ns() - used, time.perf_counter_ns() - begun
        os.write(results, _RESULT.pack(took / count, used / count))
    if recorded:
        from laggard import recorder
        recorder.close()
        assert laggard.failures() == 0
    dist.destroy_process_group()


class Job(object):
    """The ranks of one job, waiting for their turns."""

    held = []  # our ends of all pipes, which no rank may keep open

    def __init__(self, world, port, recorded):
        self.pids, self.orders, self.results = [], [], []
        for rank in range(world):
            (orders, order), (result, results) = os.pipe(), os.pipe()
            self.held += [order, result]
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    for ours in self.held:
                        os.close(ours)
                    _rank(rank, world, port, recorded, orders, results)
                    code = 0
                except BaseException:  # pylint: disable=broad-except
                    import traceback
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            os.close(orders)
            os.close(results)
            self.pids.append(pid)
            self.orders.append(order)
            self.results.append(result)

    def turn(self, size):
        """Has all ranks make the steps of a turn; returns the first one's (ns, processor's ns) a step."""
        for order in self.orders:
            os.write(order, bytes([size]))
        return [_RESULT.unpack(os.read(result, _RESULT.size)) for result in self.results][0]

    def end(self):
        """Waits for the ranks; raises SystemExit when one failed."""
        for order in self.orders:
            os.close(order)
            self.held.remove(order)
        if any([os.waitpid(pid, 0)[1] for pid in self.pids]):
            raise SystemExit("a rank failed")


def interval(values):
    """Returns (median, low, high): the median with its distribution-free 95 % interval."""
    values, n = sorted(values), len(values)
    reach = int(0.98 * n**0.5)
    return statistics.median(values), values[max(n // 2 - reach, 0)], values[min(n // 2 + reach, n - 1)]


def measure(turns, world):
    """Prints a line for each size."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
    jobs = [Job(world, port, recorded) for port, recorded in zip(ports, (False, True))]
    for size, (name, _, _, count) in enumerate(SIZES):
        found = []
        for turn in range(turns + 2):
            pair = [None, None]
            for side in (0, 1) if turn % 2 else (1, 0):
                pair[side] = jobs[side].turn(size)
            if turn >= 2:  # the first build what later ones reuse
                found.append(pair)
        report(name, count, found)
    for job in jobs:
        job.end()


def report(name, count, found):
    """Prints what pairs of turns say."""
    base = [without for without, _ in found]
    for what, at in (("time", 0), ("processor", 1)):
        step = statistics.median(b[at] for b in base) / 1e3
        median, low, high = (v / 1e3 for v in interval([w[at] - b[at] for b, w in found]))
        print("cost: %-6s step of %.0f us (%s): +%.1f us [%.1f, %.1f], %+.2f %% [%.2f, %.2f], %d pairs of %d steps"
              % (name, step, what, median, low, high, 100 * median / step, 100 * low / step, 100 * high / step, len(found), count),
              flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.update(LAGGARD_QUIET="1", LAGGARD_EXTENSION="load")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as rings:
        os.environ["LAGGARD_RUN"] = rings
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 60, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
