"""Instrumentation of an unchanged script: what is covered when torch arrives.

    torch.distributed.distributed_c10d   collectives, p2p, groups   operations or collectives, groups
    torch                                steps, FP, backward,       steps, modules,
                                         DataLoader, save, DDP      loading, gradients
    those of savers.SAVERS               saves                      loading
    those of frameworks                  whose the steps are        frameworks

Every cover calls what was there with the arguments it got and returns what that
returned. Nothing here imports torch.
"""

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
    for name, cover in (("deepspeed.runtime.engine", "cover_deepspeed"),
                        ("megatron.core.optimizer.optimizer", "cover_megatron"),
                        ("accelerate.optimizer", "cover_accelerate"),
                        ("transformers.trainer_callback", "cover_transformers")):
        hook.after(name, _framework(cover))


def _schedules(module):
    from . import modules
    modules.cover_backward(module, "custom_backward")  # it calls the autograd engine itself


def _framework(cover):
    def action(module):
        from . import frameworks
        getattr(frameworks, cover)(module)
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
    from . import gradients, groups, loading, modules, steps
    steps.ended.append(groups.settle)
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
