"""python3 -m laggard doctor          says what is recorded in this environment, and how
python3 -m laggard build [--here]  builds the C extension for this interpreter

Without --here it goes into the user's cache, where every trainer looks; with it next
to the package, for everybody who uses this installation.
"""

import os
import sys


def main(arguments):
    """Runs the command; returns its exit code."""
    if arguments == ["doctor"]:
        from . import doctor
        return doctor.report()
    if arguments not in (["build"], ["build", "--here"]):
        sys.stderr.write(__doc__)
        return 2
    os.environ.setdefault("LAGGARD_EXTENSION", "load")
    from . import extension
    try:
        folder = extension._HERE if arguments[1:] else extension._cache()
        print(extension.build(folder))
        return 0
    except (extension.Unavailable, OSError) as cause:
        sys.stderr.write("laggard: not built: %s\n" % cause)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
