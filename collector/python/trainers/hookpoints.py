"""Hook points by name, "module:Class.name", as a version that changed would lack them."""

import importlib


def remove(point):
    """Takes a hook point away; returns (owner, name, what was there)."""
    module, _, path = point.partition(":")
    owner = importlib.import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    was = vars(owner)[name]
    delattr(owner, name)
    return owner, name, was
