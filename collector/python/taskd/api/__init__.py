"""TaskD's entry points. taskd_worker_api is ours; see the package above."""

import importlib
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

_NAMES = {
    "init_taskd_worker": "taskd_worker_api", "start_taskd_worker": "taskd_worker_api",
    "destroy_taskd_worker": "taskd_worker_api",
    "init_taskd_manager": "taskd_manager_api", "start_taskd_manager": "taskd_manager_api",
    "init_taskd_agent": "taskd_agent_api", "start_taskd_agent": "taskd_agent_api",
    "register_func": "taskd_agent_api",
    "init_taskd_proxy": "taskd_proxy_api", "destroy_taskd_proxy": "taskd_proxy_api",
}
__all__ = sorted(_NAMES)


def __getattr__(name):  # a worker does not load what it does not use
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module(__name__ + "." + module), name)
