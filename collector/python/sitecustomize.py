"""Runs in every Python that has this folder on PYTHONPATH.

With LAGGARD_AUTO=1 it arms laggard's import hook, which waits for torch. Then it
runs the sitecustomize that would have run without us, if there is one.
"""

import os
import sys


def _arm():
    if os.environ.get("LAGGARD_AUTO") != "1":
        return
    try:
        from laggard import auto
        auto.install()
    except Exception as cause:  # pylint: disable=broad-except
        sys.stderr.write("laggard[%d]: start: %s: %s; training goes on\n"
                         % (os.getpid(), type(cause).__name__, cause))


def _chain():
    """Runs the next sitecustomize on the path; its errors are its own."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    here = os.path.dirname(os.path.realpath(__file__))
    rest = [p for p in sys.path if os.path.realpath(p or os.getcwd()) != here]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_arm()
_chain()
