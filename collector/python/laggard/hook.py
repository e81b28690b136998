"""An import hook: code to run right after a module has been imported.

It imports nothing itself, so a launcher or helper that never imports torch pays
nothing and shows nothing. A hook that fails costs its feature, never the import.
"""

import importlib.machinery
import sys

_hooks = {}


class _Finder(object):
    """Stands first on sys.meta_path and lets the others find."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Finds the modules that have hooks, through the other finders."""
        if name not in _hooks:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is _finder or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                _watch(name, spec.loader)
                return spec
        return None


_finder = _Finder()


def _watch(name, loader):
    """Has the loader run the hooks of name when the module is complete.

    The loader stays what it is (inspect and pickle look at it): one method is
    covered by an attribute of the instance, which goes away when it was used.
    """
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type):
        return

    def exec_module(module):
        try:
            del loader.exec_module
        except AttributeError:
            pass
        execute(module)
        if module.__name__ == name:
            run(name, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass  # a loader without attributes of its own: after() tries again later


def after(name, action):
    """Runs action(module) once, when module name has been imported, or now."""
    module = sys.modules.get(name)
    if module is not None and not _loading(module):
        _call(name, action, module)
        return
    _hooks.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def run(name, module):
    """Runs the hooks of a module that is complete."""
    for action in _hooks.pop(name, ()):
        _call(name, action, module)


def own(cls, name):
    """Returns a method that a class has itself: what it inherits may be another's."""
    if name not in vars(cls):
        raise AttributeError("%s has no %s of its own" % (cls.__name__, name))
    return vars(cls)[name]


def everywhere(module, name, before):
    """Gives the other modules of the package what a module now has under a name: those
    that were imported earlier have the one before."""
    package = module.__name__.partition(".")[0]
    for path, each in list(sys.modules.items()):
        if path.partition(".")[0] == package and getattr(each, "__dict__", {}).get(name) is before:
            setattr(each, name, getattr(module, name))


def _loading(module):
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _call(name, action, module):
    try:
        action(module)
    except Exception as cause:  # pylint: disable=broad-except
        from . import recorder
        recorder.trouble("instrument %s" % name, cause)


_MACHINERY = importlib.machinery  # named so that it is imported before the hook stands
