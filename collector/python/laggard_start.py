"""What a Python with this folder on its path runs at its start, if it is to.

laggard.pth of an installed wheel imports it where LAGGARD_AUTO is set, sitecustomize.py
beside it does so for PYTHONPATH. With LAGGARD_AUTO=1 it arms laggard's import hook,
which waits for torch. It raises nothing.
"""

import os
import sys


def arm():
    """Arms the import hook if LAGGARD_AUTO asks for it."""
    if os.environ.get("LAGGARD_AUTO") != "1":
        return
    try:
        from laggard import auto
        auto.install()
    except Exception as cause:  # pylint: disable=broad-except
        sys.stderr.write("laggard[%d]: start: %s: %s; training goes on\n"
                         % (os.getpid(), type(cause).__name__, cause))


arm()
