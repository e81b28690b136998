"""mstx ranges of a script on a machine without an NPU: they become laggard's ranges.

    import mstx
    id = mstx.range_start("step 12")
    mstx.range_end(id)
    mstx.mark("rollback")

The functions and their arguments are those of torch_npu.npu.mstx and of
mindspore.profiler.mstx. A range's name tells its kind as package mspti reads it:
"step N", "forward", "dataloader", "save_checkpoint", in the domain "communication" a
JSON object with opName, groupName, count, dataType, destRank and srcRank; any other name
is a kind of its own, and its domain the group. A stream is not looked at.

Where an mstx of somebody else is installed (CANN's), that one is imported instead.
Nothing here raises into the script; a range that is not recorded has the id 0.
"""

import os
import sys


def _theirs():
    """Puts the mstx that would be found without us in our place; False without one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    here = os.path.dirname(os.path.realpath(__file__))
    rest = [p for p in sys.path if os.path.realpath(p or os.getcwd()) != here]
    spec = PathFinder.find_spec("mstx", rest)
    if spec is None or spec.loader is None:
        return False
    module = module_from_spec(spec)
    ours = sys.modules[__name__]
    sys.modules[__name__] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as cause:  # CANN without its driver
        sys.modules[__name__] = ours
        sys.stderr.write("laggard[%d]: %s: %s; laggard's own mstx is used\n" % (os.getpid(), spec.origin, cause))
        return False
    return True


if not _theirs():
    from laggard.ranges import mark, mstx_range, range_end, range_start  # noqa: F401
