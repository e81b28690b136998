"""Instrumentation of an unchanged script: what is covered when torch arrives.

    torch.distributed.distributed_c10d   collectives, p2p, groups   operations or collectives, groups
    torch                                steps, FP, backward,       steps, modules,
                                         DataLoader, save, DDP      loading, gradients
    those of savers.SAVERS               saves                      loading
    those in _COVERS                     whose the steps are        frameworks
                                         all of MindSpore           cells
                                         JAX's annotations          annotations

Every cover calls what was there with the arguments it got and returns what that
returned. Nothing here imports torch.
"""

import importlib

from . import hook
from . import recorder
from .savers import SAVERS

_installed = False


def install():
    """Turns recording on and arms the hooks. Calling it again does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    recorder.state.on = True
    hook.after("torch.distributed.distributed_c10d", _collectives)
    hook.after("torch", _torch)
    hook.after("torch.distributed.device_mesh", _mesh)
    for name in SAVERS:
        hook.after(name, _savers)
    hook.after("megatron.core.pipeline_parallel.schedules", _schedules)
    for name, where, cover in _COVERS:
        hook.after(name, _later(where, cover))


# Module of a framework → our module and its function that covers it.
_COVERS = (
    ("deepspeed.runtime.engine", "frameworks", "cover_deepspeed"),
    ("megatron.core.optimizer.optimizer", "frameworks", "cover_megatron"),
    ("accelerate.optimizer", "frameworks", "cover_accelerate"),
    ("transformers.trainer_callback", "frameworks", "cover_transformers"),
    ("torch_npu.npu.amp.grad_scaler", "steps", "cover_npu"),
    ("mindspore.nn.cell", "cells", "cover_cells"),
    ("mindspore.nn.optim.optimizer", "cells", "cover_optimizers"),
    ("mindspore.graph.api", "cells", "cover_gradients"),
    ("mindspore.train.callback._callback", "cells", "cover_train"),
    ("mindspore.dataset.engine.iterators", "cells", "cover_batches"),
    ("mindspore.ops.operations.comm_ops", "cells", "cover_operators"),
    ("mindspore.communication.management", "cells", "cover_groups"),
    ("jax._src.profiler", "annotations", "cover_profiler"),
    ("jax._src.monitoring", "annotations", "cover_monitoring"),
    ("jax._src.distributed", "annotations", "cover_distributed"),
)


def _schedules(module):
    from . import modules
    modules.cover_backward(module, "custom_backward")  # it calls the autograd engine itself


def _later(where, cover):
    def action(module):
        getattr(importlib.import_module(__package__ + "." + where), cover)(module)
    return action


def _collectives(module):
    from . import collectives, groups, operations
    groups.cover(module)
    if operations.available(module):
        operations.cover(module)
        hook.after("torch.distributed._functional_collectives", operations.cover_functional)
    else:
        collectives.cover(module)


def _torch(torch):
    from . import gradients, loading, modules, steps
    for cover in (modules.cover, steps.cover, loading.cover, gradients.cover):
        try:
            cover(torch)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("instrument torch (%s)" % cover.__module__, cause)


def _mesh(module):
    from . import groups
    groups.cover_mesh(module)


def _savers(module):
    from . import loading
    loading.cover_savers(module)
