"""The recorder of this process: which ring a range goes to, and what happens at
a fork, at a thread's end, at exit and when something of ours fails.

Invariant: nothing raises out of here into the trainer. The first failure turns
the recorder off, says one line on stderr and is counted; what the trainer does
is what it would have done without us.

Each thread writes its own ring. What ends elsewhere (an asynchronous collective,
a range begun in one thread and ended in another, a device's times) goes to one
shared ring behind a lock.
"""

import atexit
import os
import sys
import threading

from . import layout
from . import switch
from .extension import native
from .identity import Identity
from .inside import Inside
from .process import DEFAULT_RUN, Life, Process
from .ring import OFF, UNLISTED
from .strings import Strings


class State(object if native is None else native.State):
    """What every thread sees: the current step and what is on."""

    __slots__ = ("on", "by_hand", "failures", "helper", "forked") + (("step",) if native is None else ())

    def __init__(self):
        self.step = layout.NO_STEP
        self.on = False       # init was called, or LAGGARD_AUTO is set
        self.by_hand = False  # the script says where its steps are
        self.failures = 0     # of ours, in this process
        self.helper = False   # a DataLoader worker: never a rank
        self.forked = False   # a child of a process that recorded: see rank()


class _Off(object):
    """Stands where a ring would be when nothing is recorded."""

    ident = 0
    shared = False

    @staticmethod
    def begin(span):
        """Lists nothing."""
        span.slot = OFF


class _Lost(object):
    """Stands for a ring that there was no room for: what it gets is counted."""

    ident = 0
    shared = False

    @staticmethod
    def begin(span):
        """Counts the range unless it is switched off."""
        if _process is not None and _process.words[32] & span.bit:
            _process.lost(span.head & 7)
        span.slot = OFF


class _Leaver(object):
    """Lives in a thread's locals and gives the ring back when the thread ends."""

    def __init__(self, process, ring):
        self.process, self.ring = process, ring

    def __del__(self):
        if self.process is _process:
            self.process.release(self.ring)


class Local(threading.local):
    """What one thread knows: its ring, and what it has under way."""

    ring = None
    leaver = None
    attaching = False
    span = None      # the range of a torch.distributed call
    issuing = None   # an operation between its group's two hooks
    coalesced = ()   # operations that a coalescing manager puts off
    counted = None   # steps of a framework's engine before this call of it


state = State()
local = Local()
inside = Inside()
identity = Identity()
strings = Strings()

_OFF, _LOST = _Off(), _Lost()
_lock = threading.RLock()
_process = None
_shared = None
_shared_lock = threading.RLock()
_starting = False
_failed = False
_troubles = set()
_refused = 0
_LONG = 64  # ranges


def enabled():
    """Reports whether ranges are recorded in this process, apart from the switch."""
    return state.on and not _failed and not state.helper


def rank_known(automatic):
    """Reports whether this process may write under a rank's name now.

    Helpers are not ranks: a DataLoader worker never is, and ranges that nobody
    wrote by hand don't make a rank of a child that a recording process forked, or
    of a multiprocessing child, before it calls init_process_group itself.
    """
    if os.environ.get("MS_ROLE") in ("MS_SCHED", "MS_PSERVER"):
        state.helper = True  # msrun's scheduler runs the script, too
        return False
    worker = sys.modules.get("torch.utils.data._utils.worker")
    if worker is not None and getattr(worker, "_worker_info", None) is not None:
        state.helper = True
        return False
    if automatic and "rank" not in identity.given:
        if state.forked:
            return False
        process = sys.modules.get("multiprocessing.process")
        child = process is not None and getattr(process, "_parent_process", None) is not None
        if child and (not _distributed() or _saves(process.current_process())):
            return False
    if identity.known():
        return True
    _refuse()
    return False


def _saves(process):
    """Reports whether a child saves checkpoints for its parent: it joins a group of its own."""
    return getattr(getattr(process, "_target", None), "__module__", "") == "torch.distributed.checkpoint._async_process_executor"


def _distributed():
    from .identity import distributed
    return distributed() is not None


def attach(automatic):
    """Gives the calling thread a ring (or what stands for one) and returns it."""
    if local.attaching:
        return _OFF  # a signal handler in the middle of this function
    local.attaching = True
    try:
        if local.ring is not None:  # the extension asks again
            return local.ring if local.ring in (_OFF, _LOST) else _OFF
        if not ready(automatic):
            return _OFF
        ring = _process.take()
        if ring is None:
            local.ring = _LOST
            return _LOST
        ring.adopt()
        local.ring = ring
        local.leaver = _Leaver(_process, ring)
        return ring
    except Exception as cause:  # pylint: disable=broad-except
        fail("start", cause)
        return _OFF
    finally:
        local.attaching = False


def ready(automatic):
    """Makes the process's folder if it is time; reports whether there is one."""
    if not enabled():
        return False
    if _process is not None:
        return True
    try:
        with _lock:
            if _process is None and not _starting and rank_known(automatic) and not strings.interrupted():
                _start()
    except Exception as cause:  # pylint: disable=broad-except
        fail("start", cause)
    return _process is not None and not _failed


def _refuse():
    """Counts a range of a process whose rank is not known yet, and says so once when it
    has been so for long: most scripts join their job before they train."""
    global _refused
    _refused += 1
    if _refused == _LONG:
        say("nothing is recorded so far: %s, and no process group is initialised; set RANK, LOCAL_RANK and LAGGARD_JOB, or "
            "call laggard.init(rank=, world_size=, job=)" % identity.unknown())


def _start():
    """Makes the process's folder."""
    global _process, _starting
    if not layout.LITTLE_ENDIAN:
        raise OSError("the ring format needs a little-endian machine")
    word, complaint = switch.initial(os.environ.get("LAGGARD_TRACE"))
    if complaint:
        say(complaint)
    run = os.environ.get("LAGGARD_RUN") or DEFAULT_RUN
    _starting = True
    try:
        life = Life()
        meta = identity.meta(life)
        _process = Process(run, life, strings, word, meta, state)
        if native is not None:
            native.started(_process.mapping)
    finally:
        _starting = False
    _at_process_end()
    if os.environ.get("LAGGARD_QUIET") != "1":
        announce(run, meta)


def announce(run, meta):
    """Says once who records what for whom. LAGGARD_QUIET=1 leaves it out."""
    from .doctor import agent_listens
    agent = "agent on %s" % meta["node"] if agent_listens(run) else "%s, where no agent listens yet" % run
    write("laggard: recording rank %d of job %s \u2192 %s\n" % (meta["rank"], meta["job"], agent))


def _at_process_end():
    """Children of multiprocessing leave by os._exit: atexit does not reach them."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and getattr(process, "_parent_process", None) is not None:
        util.Finalize(None, close, exitpriority=-1000)


def publish_identity():
    """Publishes what was learnt about the process since its folder was made."""
    if _process is not None:
        try:
            with _lock:
                _process.identify(identity.meta(_process.life))
        except Exception as cause:  # pylint: disable=broad-except
            fail("publish identity", cause)


def shared():
    """Returns the shared ring, or None. The caller holds shared_lock()."""
    global _shared
    if _shared is None and _process is not None:
        _shared = _process.take()
        if _shared is not None:
            _shared.share()
    return _shared


def no_ring():
    """Returns what counts a range that there was no ring for."""
    return _LOST


def shared_lock():
    """Returns the lock of the shared ring. A fork replaces it."""
    return _shared_lock


def fail(what, cause):
    """Turns the recorder off for good: says why once, counts always."""
    global _failed
    if _foreign(cause):
        raise cause
    state.failures += 1
    if not _failed:
        _failed = True
        _stop()
        say("%s: %s: %s; nothing more is recorded in this process, training goes on"
            % (what, type(cause).__name__, _first_line(cause)))


def trouble(what, cause):
    """Counts a failure that costs one feature, not the recorder; says it once."""
    if _foreign(cause):
        raise cause
    state.failures += 1
    if what not in _troubles:
        _troubles.add(what)
        say("%s: %s: %s; training goes on" % (what, type(cause).__name__, _first_line(cause)))


def _first_line(cause):
    """Returns what an exception says, without the advice that CUDA's have below it."""
    return str(cause).partition("\n")[0]


_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OURS = ("laggard", "torch", "torch_npu", "megatron", "mindspore", "jax")


def _foreign(cause):
    """Reports whether an exception is the script's own: one that its signal handler
    raised while our code was running. It must reach the script."""
    trace = cause.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        return False
    name = trace.tb_frame.f_code.co_filename
    library = name.startswith(_LIBRARY) and "-packages" + os.sep not in name
    return not library and not name.startswith("<frozen")


def say(text):
    """Writes one line to stderr."""
    write("laggard[%d]: %s\n" % (os.getpid(), text))


def write(line):
    """Writes a line to stderr, if there is one."""
    try:
        sys.stderr.write(line)
    except Exception:  # pylint: disable=broad-except
        pass  # no stderr


closers = []  # what has to be written before the rings close


def close():
    """Leaves in order: rings and process are marked closed."""
    global _failed
    try:
        for each in closers:
            each()
        if _process is not None and not _failed:
            _process.close()
    except Exception as cause:  # pylint: disable=broad-except
        fail("close", cause)
    _failed = True
    _stop()


def _stop():
    local.ring = _OFF
    if native is not None:
        native.stop()


_held = []  # a list of rings for each fork under way; the lock of strings keeps their order


def before_fork():
    """Waits for words that are half written. What is recorded in the child before its
    hook (a signal handler's, say) is not the parent's: the rings look whose they are."""
    strings.hold()
    rings = list(_process.rings) if native is None and _process is not None else []
    _held.append(rings)
    for ring in rings:
        ring.hold()


def after_in_parent():
    """Undoes before_fork."""
    for ring in _held.pop():
        ring.let_go()
    strings.let_go()


def after_in_child():
    """A forked child owns nothing of its parent's."""
    global _process, _shared, _shared_lock, _lock, _starting
    _starting = False
    _lock, _shared_lock = threading.RLock(), threading.RLock()
    strings.detach()
    if _process is not None:
        state.forked = True
        _process.disown()
    _process = _shared = None
    del _held[:]
    local.ring = local.leaver = None
    local.attaching = False
    inside.forward = inside.backward = inside.collective = inside.coalescing = inside.optimizer = inside.saving = 0
    local.issuing, local.coalesced = None, ()


def rank_again():
    """A forked child called init_process_group: from now on it is a rank."""
    state.forked = False


os.register_at_fork(before=before_fork, after_in_parent=after_in_parent, after_in_child=after_in_child)
atexit.register(close)
