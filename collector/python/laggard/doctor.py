"""What will be recorded in this environment, on one screen.

    python3 -m laggard doctor

It arms the hooks as LAGGARD_AUTO=1 does, imports torch, and looks whether each hook
stands where the frameworks of this environment call. It records nothing.
"""

import importlib
import os
import socket
import sys

from . import clock
from . import extension
from .process import DEFAULT_RUN

_PACKAGES = ("torch", "torch_npu", "deepspeed", "megatron-core", "lightning", "pytorch-lightning", "transformers", "accelerate",
             "mindspore", "jax")


def agent_listens(run):
    """Reports whether an agent's switch listens in a ring directory; does not wait."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.setblocking(False)
            return s.connect_ex(os.path.join(run, "switch.sock")) == 0
    except OSError:
        return False  # the path is too long for a socket


def hooks(torch):
    """Returns (kind, how it is seen, what mends it where it is not) of each kind."""
    from . import operations
    seen = _covered
    modules, optim = torch.nn.Module.__call__, torch.optim.Optimizer.__init__
    found = [
        ("Step", "the end of optimizer.step or of a framework's own step" if seen(optim) else "",
         "with laggard.step(n): around each iteration"),
        ("FP", "the call of the outermost nn.Module" if seen(modules) else "", 'with laggard.span("FP"): around the forward pass'),
        ("backward", "torch.autograd.backward" if seen(torch.autograd.backward) else "",
         'with laggard.span("backward"): around the backward pass'),
        ("DataLoader", "next() of torch's DataLoader"
         if seen(torch.utils.data.dataloader._BaseDataLoaderIter.__next__) else "",
         'laggard.wrap(loader_class, "__next__", "DataLoader")'),
        ("SaveCheckpoint", "torch.save and the frameworks' savers" if seen(torch.save) else "",
         'laggard.wrap(saver, "save", "SaveCheckpoint")'),
    ]
    communication = exposed = ""
    if torch.distributed.is_available():
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        if operations.active():
            communication = "hooks of each process group"
        elif seen(c10d.all_reduce):
            communication = "functions of torch.distributed, DDP's communication hook"
        if seen(c10d.Work.wait):
            exposed = "Work.wait"
    by_hand = "with laggard.communication(op, group, count, dtype): around the call"
    return found + [("Communication", communication, by_hand), ("exposed", exposed, by_hand)]


def _covered(function):
    while function is not None:
        if hasattr(function, "__laggard__"):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def versions():
    """Returns [(package, version)] of what is installed."""
    try:
        from importlib.metadata import PackageNotFoundError, version
    except ImportError:  # Python 3.7
        return []
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def report(write=sys.stdout.write):
    """Writes the screen; returns the exit code: 1 when something is not seen."""
    def line(what, text):
        write("%-15s %s\n" % (what, text))

    line("python", "%s, %s" % (sys.version.split()[0], sys.executable))
    line("recorder", "with its C extension" if extension.native is not None else "without its C extension: %s" % extension.why)
    line("clock", "CLOCK_MONOTONIC, a reading takes %d ns" % _clock_cost())
    run = os.environ.get("LAGGARD_RUN") or DEFAULT_RUN
    line("rings", "%s, %s" % (run, _place(run)))
    line("agent", "listens in %s" % run if agent_listens(run) else
         "none listens in %s: start `laggard agent` (records wait in the rings until then)" % run)
    line("rank", _rank())
    line("automatic", "LAGGARD_AUTO=1" if os.environ.get("LAGGARD_AUTO") == "1" else
         "not asked for: LAGGARD_AUTO is not 1")
    for name, number in versions():
        line(name, number)
    return _hooks(line)


def _hooks(line):
    from . import auto, recorder
    auto.install()
    if any(name == "mindspore" for name, _ in versions()):
        line("MindSpore", _mindspore())
        if not any(name == "torch" for name, _ in versions()):
            return 1 if recorder.state.failures else 0
    try:
        torch = importlib.import_module("torch")
    except Exception as cause:  # pylint: disable=broad-except
        line("torch", "can't be imported (%s: %s): only ranges written by hand are recorded" % (type(cause).__name__, cause))
        return 1
    missing = 0
    for kind, how, mend in hooks(torch):
        missing += not how
        line(kind, how or "not seen; mend it with: %s" % mend)
    if recorder.state.failures:
        line("failures", "%d of ours while the hooks were set, see above" % recorder.state.failures)
    return 1 if missing or recorder.state.failures else 0


def _mindspore():
    """Returns what is seen of MindSpore."""
    try:
        importlib.import_module("mindspore")
    except Exception as cause:  # pylint: disable=broad-except
        return "can't be imported (%s: %s)" % (type(cause).__name__, cause)
    missing = [point for point, function in (
        ("Cell.__call__", sys.modules["mindspore.nn.cell"].Cell.__call__),
        ("backward", sys.modules["mindspore.graph.api"]._PyNativeExecutor.grad),
        ("Model.train", sys.modules["mindspore.train.callback._callback"].CallbackManager.on_train_step_end),
        ("datasets", sys.modules["mindspore.dataset.engine.iterators"].Iterator.__next__),
        ("operators", sys.modules["mindspore.ops.operations.comm_ops"].AllReduce.__call__),
        ("save_checkpoint", sys.modules["mindspore.train.serialization"].save_checkpoint)) if not _covered(function)]
    return "not seen: %s" % ", ".join(missing) if missing else \
        "steps, passes, datasets, save_checkpoint and operators; of a graph its step only"


def _rank():
    from . import recorder
    unknown = recorder.identity.unknown()
    if unknown:
        return "not known before init_process_group: %s" % unknown
    return "rank %d of %d by the environment" % recorder.identity.place()


def _clock_cost():
    begun = clock.monotonic()
    for _ in range(1000):
        clock.now()
    return (clock.monotonic() - begun) // 1000


def _place(run):
    try:
        place = run
        while not os.path.isdir(place) and os.path.dirname(place) != place:
            place = os.path.dirname(place)
        free = os.statvfs(place)
        if not os.access(place, os.W_OK):
            return "which this user can't write: set LAGGARD_RUN to a directory on tmpfs"
        return "%d MiB free%s" % (free.f_bavail * free.f_frsize >> 20, "" if place == run else ", made at the first range")
    except OSError as cause:
        return str(cause)
