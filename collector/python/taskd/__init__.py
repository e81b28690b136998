"""TaskD's package name, over laggard's recorders: PYTHONPATH=DIR/python runs a script
that was adapted for TaskD unchanged.

What stands first on the path wins a name, so of an installed TaskD only the worker
API is replaced; manager, proxy, agent, patches and recovery stay its own. Where no
TaskD is installed those are here as calls that fail as TaskD's own do and say what is
missing (laggard_absent, last on the path). LAGGARD_TASKD=off leaves everything to the
installed one.
"""

import os
import pkgutil

_here = os.path.dirname(os.path.abspath(__file__))
__path__ = pkgutil.extend_path(__path__, __name__)
_installed = [p for p in __path__ if os.path.realpath(p) != os.path.realpath(_here)]
if os.environ.get("LAGGARD_TASKD") == "off" and _installed:
    __path__[:] = _installed + [_here]
else:
    __path__.append(os.path.join(_here, "laggard_absent"))
