"""The C extension: the same ranges for an eighth of the price, where it can be had.

It is looked for next to this package (where `laggard install` or `python3 -m laggard
build --here` put it), then in the user's cache; there it is built at the first use,
when a C compiler and Python.h are there. Without it everything works the same.

Invariant: its file's name holds a checksum of its sources, the compiler's flags and
the interpreter's ABI, so one of another version is never loaded; in the cache it is
loaded only when nobody but its user could have written it.

LAGGARD_EXTENSION: 0 is never, load is never build. LAGGARD_DEBUG=1 says on stderr what
was loaded, or why nothing was.
"""

import fcntl
import importlib.machinery
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
import time
import zlib

_HERE = os.path.dirname(os.path.abspath(__file__))
_SOURCES = os.path.join(_HERE, "csrc")
# The C recorder's sources: as installed with the package, beside it, in a checkout.
_RECORDERS = (os.path.join(_HERE, "native"), os.path.join(_HERE, "..", "..", "native"),
              os.path.join(_HERE, "..", "..", "native", "src"))
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-fno-semantic-interposition",
          "-fno-plt", "-Wl,-Bsymbolic", "-Wl,-z,nodelete")
_PATIENCE = 60  # seconds for the compiler, or for another process's


why = ""  # there is no extension


class Unavailable(Exception):
    """Why there is no extension, in a few words."""


def _recorder():
    """Returns the folder of the C recorder's sources."""
    for folder in _RECORDERS:
        if os.path.isfile(os.path.join(folder, "laggard.c")):
            return folder
    raise Unavailable("the sources of the C recorder are not installed")


def _read(path):
    with open(path, "rb") as f:
        return f.read()


def _file():
    """Returns (file name, stamp) of the extension for this interpreter."""
    if sys.implementation.name != "cpython" or sys.version_info < (3, 7):
        raise Unavailable("it is for CPython 3.7 and newer")
    if "t" in getattr(sys, "abiflags", ""):
        raise Unavailable("it needs the global interpreter lock")  # loading it would bring the lock back
    folder = _recorder()
    paths = [os.path.join(_SOURCES, n) for n in sorted(os.listdir(_SOURCES)) if n.endswith(".c")]
    paths += [os.path.join(folder, n) for n in ("clock.c", "clock.h", "crc.c", "crc.h", "failure.h", "internal.h", "lane.h", "laggard.c", "laggard.h", "rings.h")]
    text = "\0".join(_FLAGS).encode("ascii") + b"".join(_read(p) for p in paths)
    stamp = "%08x%08x" % (zlib.crc32(text), zlib.adler32(text))
    return "_laggard-%s%s" % (stamp, importlib.machinery.EXTENSION_SUFFIXES[0]), stamp


def _cache():
    """Returns the user's folder for what was built, made when it is missing.

    Only its user may write in it: what lies there is run.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for folder in (os.path.join(home, "laggard"), os.path.join(tempfile.gettempdir(), "laggard-%d" % os.geteuid())):
        try:
            os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
            try:
                os.mkdir(folder, 0o700)
            except FileExistsError:
                pass
            if os.path.isabs(folder) and _ours(os.lstat(folder), stat.S_ISDIR) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    raise Unavailable("no folder for it that only this user can write")


def _ours(found, kind):
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def build(folder):
    """Builds the extension into a folder and returns its path. Raises Unavailable."""
    import subprocess
    import sysconfig
    name, stamp = _file()
    include = sysconfig.get_paths()["include"]
    if not os.path.isfile(os.path.join(include, "Python.h")):
        raise Unavailable("no %s/Python.h" % include)
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        raise Unavailable("no C compiler (cc)")
    path = os.path.join(folder, name)
    # What the trainer preloads and where it finds its modules is not the compiler's.
    env = {k: v for k, v in os.environ.items() if k not in ("LAGGARD_AUTO", "LD_PRELOAD", "PYTHONPATH")}
    fd, temporary = tempfile.mkstemp(prefix="._laggard-", suffix=".so", dir=folder)
    os.close(fd)
    try:
        done = subprocess.run(
            [compiler] + list(_FLAGS) + ["-DLAGGARD_STAMP=\"%s\"" % stamp, "-I" + include, "-I" + _recorder(),
                                         "-o", temporary, os.path.join(_SOURCES, "module.c")],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_PATIENCE)
        if done.returncode != 0:
            raise Unavailable("%s: %s" % (compiler, done.stdout.decode("utf-8", "replace").strip()[-2000:]))
        os.chmod(temporary, 0o755)
        os.rename(temporary, path)
    except subprocess.SubprocessError as cause:
        raise Unavailable("%s: %s" % (compiler, cause))
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return path


def _built():
    """Returns the path of the extension in the cache, built when it is not there.

    The ranks of a node start together: one builds, the others wait for it. What
    failed once is not tried again before the cache is emptied.
    """
    folder, (name, _) = _cache(), _file()
    path = os.path.join(folder, name)
    if os.path.lexists(path):
        return path
    if os.environ.get("LAGGARD_EXTENSION") == "load":
        raise Unavailable("not built, and LAGGARD_EXTENSION=load")
    failed = path + ".failed"
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(lock)
        if os.path.lexists(path):
            return path
        if os.path.lexists(failed):
            raise Unavailable("building it failed before, see %s" % failed)
        try:
            return build(folder)
        except Unavailable as cause:
            with open(failed, "w") as f:
                f.write("%s\n" % cause)
            raise
    finally:
        os.close(lock)


def _lock(fd):
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise Unavailable("another process builds it and does not end")
            time.sleep(0.05)


def _load(path, stamp):
    loader = importlib.machinery.ExtensionFileLoader("_laggard", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("_laggard", path, loader=loader))
    loader.exec_module(module)
    if module.STAMP != stamp:
        raise Unavailable("%s is another version" % path)
    return module


def _find():
    """Returns the extension, or None: then the package does without."""
    try:
        if os.environ.get("LAGGARD_EXTENSION") == "0":
            raise Unavailable("LAGGARD_EXTENSION=0")
        name, stamp = _file()
        path = os.path.join(_HERE, name)
        if not os.path.isfile(path):
            path = _built()
            if not _ours(os.lstat(path), stat.S_ISREG):
                raise Unavailable("somebody else could have written %s" % path)
        module = _load(path, stamp)
        _debug("loaded %s" % path)
        return module
    except Exception as cause:  # pylint: disable=broad-except
        global why
        why = str(cause)
        _debug("without the extension: %s" % cause)
        return None


def _debug(text):
    if os.environ.get("LAGGARD_DEBUG") == "1":
        try:
            sys.stderr.write("laggard[%d]: %s\n" % (os.getpid(), text))
        except Exception:  # pylint: disable=broad-except
            pass  # no stderr


native = _find()
