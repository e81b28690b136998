"""Runs in every Python that has this folder on PYTHONPATH: laggard_start, then the
sitecustomize that would have run without us, if there is one."""

import os
import sys

import laggard_start  # noqa: F401


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


_chain()
