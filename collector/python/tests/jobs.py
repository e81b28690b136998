"""Real processes for the tests: their environment, their rings, their end."""

import ctypes
import importlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import traceback
import types
import unittest

import rings

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PACKAGE)
LIMIT = 120  # seconds for one job; a hang fails the test
EXTENSION = os.environ.get("LAGGARD_EXTENSION", "load")  # 0: in Python alone


class Case(unittest.TestCase):
    """A test with a ring folder of its own on tmpfs."""

    def setUp(self):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.run_dir = tempfile.mkdtemp(prefix="laggard-test-", dir=base)
        self.addCleanup(shutil.rmtree, self.run_dir, ignore_errors=True)
        self.work = tempfile.mkdtemp(prefix="laggard-test-")
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def clean(self):
        """Empties the ring folder and the working directory."""
        for folder in self.run_dir, self.work:
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def environment(self, **more):
        """Returns the environment of a process that lies beside an agent."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("LAGGARD", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "MINDX"))}
        env.update(PYTHONPATH=PACKAGE, LAGGARD_RUN=self.run_dir, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
                   LAGGARD_EXTENSION=EXTENSION, LAGGARD_QUIET="1")
        for name, value in more.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        return env

    def script(self, text):
        """Writes a script and returns its path."""
        path = os.path.join(self.work, "script.py")
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return path

    def start(self, path, **env):
        """Starts a script."""
        return subprocess.Popen([sys.executable, path], env=self.environment(**env), cwd=self.work,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def ended(self, started, code=0):
        """Waits for processes that end with the code; returns each one's (stdout, stderr)."""
        try:
            outputs = [p.communicate(timeout=LIMIT) for p in started]
        finally:
            for p in started:
                p.kill()
                p.wait()
        for p, (_, err) in zip(started, outputs):
            self.assertEqual(p.returncode, code, err[-4000:])
        return outputs

    def python(self, text, code=0, **env):
        """Runs a script in one process; returns (stdout, stderr)."""
        return self.ended([self.start(self.script(text), **env)], code)[0]

    def ranks(self, text, world, **env):
        """Runs a script on world ranks; returns each one's (stdout, stderr)."""
        path = self.script(text)
        port = free_port()
        started = []
        for rank in range(world):
            place = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(port), LAGGARD_AUTO="1", LAGGARD_JOB="test")
            place.update(env)
            started.append(self.start(path, **place))
        return self.ended(started)

    def processes(self):
        """Returns the ring folders, none of which may hold a corrupt slot."""
        found = rings.load(self.run_dir)
        for process in found:
            for ring in process.rings:
                self.assertEqual(ring.corrupt, [])
        return found

    def process(self):
        """Returns the only ring folder."""
        found = self.processes()
        self.assertEqual(len(found), 1)
        return found[0]


class Forking(Case):
    """A Case whose scripts run in forks of this process, which has imported PyTorch under
    laggard's hook and recorded nothing: the import takes 1.3 s, most of these scripts 0.3."""

    AUTO = "1"  # LAGGARD_AUTO at the import; a script with another one has a Python of its own

    @classmethod
    def setUpClass(cls):
        os.environ.update(OMP_NUM_THREADS="1", LAGGARD_AUTO=cls.AUTO)
        importlib.import_module("laggard_start")
        importlib.import_module("torch")

    def start(self, path, **env):
        if env.get("LAGGARD_AUTO", "0") != self.AUTO:
            return super().start(path, **env)
        return Fork(path, self.environment(**env), self.work)


class Fork(object):
    """A script in a fork of this process, by the names that subprocess.Popen has."""

    def __init__(self, path, env, cwd):
        self.returncode = None
        self.said = [tempfile.TemporaryFile() for _ in range(2)]
        self.pid = os.fork()
        if self.pid == 0:
            ctypes.pythonapi.Py_Exit(self._run(path, env, cwd))  # an end as any: hooks at exit, destructors
        self.end = os.pidfd_open(self.pid)

    def _run(self, path, env, cwd):
        """What a new Python does; returns its exit code."""
        try:
            for n, f in enumerate(self.said):
                os.dup2(f.fileno(), n + 1)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            sys.argv[:] = [path]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            main.__file__ = path
            with open(path) as f:
                code = compile(f.read(), path, "exec")
            exec(code, main.__dict__)
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
            return 1
        return 0

    def communicate(self, timeout):
        """Returns what it said, when it has ended."""
        if not select.select([self.end], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a fork", timeout)
        said = tuple(os.pread(f.fileno(), os.fstat(f.fileno()).st_size, 0).decode() for f in self.said)
        self.wait()
        return said

    def kill(self):
        """Kills it unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        """Waits for its end."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.end)
            for f in self.said:
                f.close()


def free_port():
    """Returns a port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
