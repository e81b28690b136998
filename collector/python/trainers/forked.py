"""Forks the ranks of jobs out of one process that has imported torch: a launcher for
what runs without the recorder, and for jobs that are judged, which have to cost little.

Each line of stdin is an order in JSON: the environment and the folder of a job, how
many ranks, their port, the script with its arguments, and the files that take the
output. The answer is a line with how many ranks failed.
"""

import atexit
import json
import os
import runpy
import sys
import traceback

import torch  # noqa: F401  the point of it: imported once
import torch.distributed  # noqa: F401

try:
    import torch._dynamo  # noqa: F401
except ImportError:
    pass  # PyTorch 1


def train(rank, order):
    """Runs the script as a rank; returns the exit code."""
    script = order["command"][0]
    place = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=order["world"], LOCAL_WORLD_SIZE=order["world"], MASTER_ADDR="127.0.0.1",
                 MASTER_PORT=order["port"], GROUP_RANK=0, NODE_NAME="node-%d" % rank)
    os.environ.update({name: str(value) for name, value in place.items()})
    sys.argv[:], sys.path[0] = order["command"], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
    atexit._run_exitfuncs()  # a forked rank leaves without: Megatron's saver has a process of its own
    return 0


def launch(order):
    """Forks the ranks of a job and waits; returns how many failed."""
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    for path, flags, descriptor in ((os.devnull, os.O_RDONLY, 0), (order["out"], os.O_WRONLY, 1), (order["err"], os.O_WRONLY, 2)):
        file = os.open(path, flags)
        os.dup2(file, descriptor)
        os.close(file)
    children = [forked(train, rank, order) for rank in range(order["world"])]
    return sum([os.waitpid(pid, 0)[1] != 0 for pid in children])


def forked(function, *arguments):
    """Calls a function in a child, whose exit code is what it returns; returns the child."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = function(*arguments)
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return 0


def main():
    """Launches a job for each order until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        status = os.waitpid(forked(launch, json.loads(line)), 0)[1]
        answers.write("%d\n" % status)
        answers.flush()


if __name__ == "__main__":
    main()
