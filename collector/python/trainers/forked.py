"""Runs a script on N ranks that are forked after torch was imported: a launcher for
the runs without the recorder, which have to cost little.

    forked.py N PORT SCRIPT [ARGUMENT…]
"""

import os
import runpy
import sys

import torch  # noqa: F401  the point of it: imported once
import torch.distributed  # noqa: F401

try:
    import torch._dynamo  # noqa: F401
except ImportError:
    pass  # PyTorch 1


def main(world, port, script):
    """Forks the ranks and waits; returns how many failed."""
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        place = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1",
                     MASTER_PORT=port, GROUP_RANK=0, NODE_NAME="node-%d" % rank)
        os.environ.update({name: str(value) for name, value in place.items()})
        sys.path[0] = os.path.dirname(script)
        code = 1
        try:
            runpy.run_path(script, run_name="__main__")
            if "laggard.recorder" in sys.modules:
                sys.modules["laggard.recorder"].close()  # a forked rank leaves without atexit
            code = 0
        except BaseException:  # pylint: disable=broad-except
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in children)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    del sys.argv[1:3]
    del sys.argv[0]
    sys.exit(main(int(arguments[0]), arguments[1], arguments[2]))
