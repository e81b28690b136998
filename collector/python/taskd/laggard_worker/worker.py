"""The life of a worker: one thread that follows whoever commands the switch.

First the switch file does, every second. Once the worker is registered with a TaskD
manager, the manager does and the file is not looked at any more, as with TaskD. An
agent of laggard's writes the same word; who spoke last wins.
"""

import os
import threading

from . import log
from . import manager
from . import recorders
from . import switchfile

PERIOD = 1.0  # seconds between two looks at the file


def node_rank(framework):
    """Returns the number of this process's node, as TaskD's worker counts nodes: of "pt"
    RANK by LOCAL_WORLD_SIZE, of "ms" MS_NODE_RANK, neither standing in for the other.
    Raises ValueError where the launcher did not say it: TaskD's worker does not begin
    there either."""
    names = ("MS_NODE_RANK",) if framework == "ms" else ("RANK", "LOCAL_WORLD_SIZE")
    for name in names:
        if not os.environ.get(name):
            raise ValueError("%s is not set: start the script by %s, or set it" % (name, "msrun" if framework == "ms" else "torchrun"))
    values = [int(os.environ[name]) for name in names]
    node = values[0] if framework == "ms" else values[0] // values[1]
    if node < 0:
        raise ValueError("%s say node %d" % (" and ".join(names), node))
    return node


class Worker(object):
    """One rank."""

    def __init__(self, rank, framework):
        self.rank = rank
        self.node = node_rank(framework)
        self.recorder = recorders.choose(framework)
        self.pid = os.getpid()
        self._bits = None  # what was wanted last, by whoever commands
        self._stop = threading.Event()
        self._thread = None
        self._complain = log.Complaint()

    def init(self):
        """Says who this process is."""
        recorders.off_by_default()
        self.recorder.rank(self.rank)
        return True

    def start(self):
        """Makes the ring folder and the thread."""
        if self._thread is not None:
            return True
        if self._stop.is_set():
            log.say("start_taskd_worker: call init_taskd_worker first, this worker was destroyed")
            return False
        if not self.recorder.start():
            log.say("start_taskd_worker: %s does not record; training goes on" % self.recorder.name)
            return False
        if "LAGGARD_TRACE" not in os.environ or os.environ["LAGGARD_TRACE"].strip().lower() == "off":
            self.recorder.want(0)  # also where it was already there
        self._thread = threading.Thread(target=self._run, name="laggard-taskd", daemon=True)
        self._thread.start()
        return True

    def destroy(self):
        """Switches off and ends the thread."""
        self._stop.set()
        if self._thread is not None and self.pid == os.getpid():
            self._thread.join(3)
            self.recorder.want(0)
        self._thread = None

    def command(self, bits):
        """Wants bits from now on; reports (light, communication) as STATUS does:
        0 off, 1 on, 2 it failed."""
        self._bits = bits
        well = self.recorder.want(bits) and self.recorder.followed(bits)
        return tuple(2 if not well and bits & bit else int(bits & bit != 0) for bit in (1, 2))

    def _look(self):
        """Looks at the switch file once."""
        bits, complaint = switchfile.read(switchfile.path())
        self._complain(complaint)
        if bits is not None and bits != self._bits:
            self._bits = bits
            self.recorder.want(bits)

    def _run(self):
        link = manager.Manager(self.rank, self.node, self.command, self.recorder.recorded, self._stop)
        try:
            while not self._stop.is_set():
                if not link.registered:
                    self._look()
                link.turn(PERIOD)
        except Exception as cause:  # pylint: disable=broad-except
            log.say("%s: %s; the switch stays as it is, training goes on" % (type(cause).__name__, cause))
        finally:
            link.close()
