"""TaskD's worker API over laggard's recorders.

    init_taskd_worker(rank)    who this process is; nothing is recorded yet
    start_taskd_worker()       from here on the switch is followed
    destroy_taskd_worker()     nothing is recorded any more

Each returns whether it worked, and none ever raises.
"""

from ..laggard_worker import log
from ..laggard_worker.worker import Worker

taskd_worker = None


def init_taskd_worker(rank_id, upper_limit_of_disk_in_mb=5000, framework="pt"):
    """Says that this process is a rank of its job.

    rank_id is the global rank. framework is "pt", whose launcher says the node by RANK and
    LOCAL_WORLD_SIZE, or "ms", whose launcher says it by MS_NODE_RANK; without, it fails.
    upper_limit_of_disk_in_mb is TaskD's cap on the files of all jobs: with laggard the
    agent ages files, by its --cap.
    """
    global taskd_worker
    try:
        for name, value in (("rank_id", rank_id), ("upper_limit_of_disk_in_mb", upper_limit_of_disk_in_mb)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                log.say("init_taskd_worker: %s must be a whole number from 0 on, not %r" % (name, value))
                return False
        if framework not in ("pt", "ms"):
            log.say("init_taskd_worker: framework must be \"pt\" or \"ms\", not %r" % (framework,))
            return False
        if taskd_worker is not None:
            taskd_worker.destroy()
            taskd_worker = None
        taskd_worker = Worker(rank_id, framework)
        return taskd_worker.init()
    except Exception as cause:  # pylint: disable=broad-except
        log.say("init_taskd_worker: %s: %s; training goes on" % (type(cause).__name__, cause))
        return False


def start_taskd_worker():
    """Begins to follow the switch."""
    try:
        if taskd_worker is None:
            log.say("start_taskd_worker: call init_taskd_worker first")
            return False
        return taskd_worker.start()
    except Exception as cause:  # pylint: disable=broad-except
        log.say("start_taskd_worker: %s: %s; training goes on" % (type(cause).__name__, cause))
        return False


def destroy_taskd_worker():
    """Switches off and leaves the manager. init_taskd_worker may follow."""
    try:
        if taskd_worker is None:
            log.say("destroy_taskd_worker: call init_taskd_worker first")
            return False
        taskd_worker.destroy()
        return True
    except Exception as cause:  # pylint: disable=broad-except
        log.say("destroy_taskd_worker: %s: %s; training goes on" % (type(cause).__name__, cause))
        return False
