"""Which rank of which job this process is, from what the launcher and torch say.

Rank: the one given to init, else torch.distributed's once it is initialised, else
MindSpore's or JAX's, else RANK, but only together with LOCAL_RANK (RANK alone is a node's
number under some launchers, unless WORLD_SIZE says that there is one rank), else
RANK_ID of RANK_SIZE, as msrun and Ascend's launchers say it, else 0.

Job: MINDX_TASK_ID, else LAGGARD_JOB, else default_task_id_<unix seconds>. All
ranks of one job must agree on the last, so it is, in this order: of a launcher
that names its run (TORCHELASTIC_RUN_ID), ten digits that are a hash of that name;
of an initialised torch.distributed, the seconds that the first rank put into the
job's store; of a known MASTER_ADDR:MASTER_PORT, JAX's coordinator or msrun's scheduler,
ten digits that are a hash of it; else the seconds of this process's first range.
"""

import os
import re
import socket
import sys
import time

from .process import hash_id

WRITER = "python/1"
_STORE_KEY = "laggard/job"
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


class Identity(object):
    """What is known of the process's place in the job; anything given wins."""

    def __init__(self):
        self.given = {}
        self.joined = None  # (rank, world size) of a framework other than torch
        self.met = None     # where its processes met
        self.groups = []  # as FORMAT.md: dim, name, index, size, ranks
        self._job = None
        self.device = ""

    def give(self, **fields):
        """Takes what the caller of init knows."""
        for name, value in fields.items():
            if value is not None:
                self.given[name] = value

    def join(self, rank, world, met=None):
        """Takes what a framework other than torch says once its processes have met."""
        self.joined, self.met = (rank, world), met

    def known(self):
        """Reports whether the rank and the job are known for good.

        They are not yet in a process of a distributed job that has not called
        init_process_group, when the environment does not name both.
        """
        if "rank" in self.given or distributed() is not None or self.joined:
            return True
        return not self.unknown()

    def unknown(self):
        """Returns what the environment leaves open of the rank and the job, "" for nothing."""
        world = _number("WORLD_SIZE", _number("MS_WORKER_NUM", 1))
        if not launched():
            if "MS_WORKER_NUM" in os.environ:
                return "MS_WORKER_NUM is set without RANK_ID and RANK_SIZE"
            if "RANK" in os.environ and (world > 1 or "WORLD_SIZE" not in os.environ):
                return "RANK is set without LOCAL_RANK"  # it may be a node's number
            return "WORLD_SIZE is set without RANK" if world > 1 else ""
        return "the job has no name" if world > 1 and self._named() is None else ""

    def meta(self, life):
        """Returns the identity as the dict that goes into `process`."""
        rank, world = self.place()
        local = _number("LOCAL_RANK", _number("DEVICE_ID", 0) if ascend() else 0)
        meta = {
            "format": "laggard/1",
            "job": self.job(),
            "rank": rank,
            "incarnation": "%016x" % life.incarnation,
            "world_size": world,
            "local_rank": self.given.get("local_rank", local),
            "node": self.given.get("node") or os.environ.get("NODE_NAME") or socket.gethostname(),
        }
        if self.device:
            meta["device"] = self.device
        if os.environ.get("POD_NAME"):
            meta["pod"] = os.environ["POD_NAME"]
        meta.update(pid=life.pid, started_ns=life.started, boot_id=life.boot_id)
        if self.groups:
            meta["groups"] = self.groups
        meta["writer"] = WRITER
        return meta

    def place(self):
        """Returns (rank, world size)."""
        dist = distributed()
        if dist is not None:
            rank, world = dist.get_rank(), dist.get_world_size()
        elif self.joined:
            rank, world = self.joined
        elif ascend():
            rank, world = _number("RANK_ID", 0), _number("RANK_SIZE", 1)
        elif launched():
            rank, world = _number("RANK", 0), _number("WORLD_SIZE", 1)
        else:
            rank, world = 0, 1
        return self.given.get("rank", rank), self.given.get("world_size", world)

    def job(self):
        """Returns the job's name; settled at the first call."""
        if self._job is None:
            self._job = self._named() or self._derived()
        return self._job

    def _named(self):
        """Returns the job's name where somebody names it, else None."""
        name = self.given.get("job") or os.environ.get("MINDX_TASK_ID") or os.environ.get("LAGGARD_JOB")
        if name:
            return _SAFE.sub("_", name)[:200]
        run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        if run and run != "none":
            return _numbered(hash_id("run", run))
        return None

    def _derived(self):
        agreed = _agreed()
        if agreed:
            return agreed
        if self.met:
            return _numbered(hash_id("met", self.met))
        for place in ("MASTER_ADDR", "MASTER_PORT"), ("MS_SCHED_HOST", "MS_SCHED_PORT"):
            address, port = (os.environ.get(name) for name in place)
            if address and port and self.place()[1] > 1:
                return _numbered(hash_id("master", address, port))
        return "default_task_id_%d" % time.time()


def _agreed():
    """Returns the name that the first rank put into torch's store, else None.

    compare_set does not wait for anybody: the first rank's value stays.
    """
    dist = distributed()
    if dist is None:
        return None
    try:
        store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
        value = store.compare_set(_STORE_KEY, "", "default_task_id_%d" % time.time())
        text = value.decode("ascii") if isinstance(value, bytes) else value
        return text if re.match(r"^default_task_id_\d{1,20}$", text) else None
    except Exception:  # pylint: disable=broad-except
        return None  # a store without compare_set: the caller has another way


def distributed():
    """Returns torch.distributed when it is loaded and initialised, else None."""
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is not None and dist.is_available() and dist.is_initialized():
            return dist
    except Exception:  # pylint: disable=broad-except
        pass  # half imported
    return None


def launched():
    """Reports whether the environment says which rank this is."""
    return "RANK" in os.environ and "LOCAL_RANK" in os.environ or ascend()


def ascend():
    """Reports whether msrun or another launcher of Ascend's alone says which rank this is."""
    return "RANK" not in os.environ and "RANK_ID" in os.environ and "RANK_SIZE" in os.environ


def _numbered(value):
    """Returns a default job name with ten digits out of a hash."""
    return "default_task_id_%d" % (1000000000 + value % 9000000000)


def _number(name, default):
    try:
        return max(int(os.environ[name]), 0)
    except (KeyError, ValueError):
        return default
