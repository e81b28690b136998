"""Real processes for the tests: their environment, their rings, their end."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
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

    def python(self, text, code=0, **env):
        """Runs a script in one process; returns (stdout, stderr)."""
        done = subprocess.run([sys.executable, self.script(text)], env=self.environment(**env), cwd=self.work, timeout=LIMIT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, code, done.stderr[-4000:])
        return done.stdout, done.stderr

    def ranks(self, text, world, **env):
        """Runs a script on world ranks; returns each one's (stdout, stderr)."""
        path = self.script(text)
        port = free_port()
        started = []
        for rank in range(world):
            place = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(port), LAGGARD_AUTO="1", LAGGARD_JOB="test")
            place.update(env)
            started.append(subprocess.Popen([sys.executable, path], env=self.environment(**place), cwd=self.work,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True))
        try:
            outputs = [p.communicate(timeout=LIMIT) for p in started]
        finally:
            for p in started:
                p.kill()
                p.wait()
        for p, (_, err) in zip(started, outputs):
            self.assertEqual(p.returncode, 0, err[-4000:])
        return outputs

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


def free_port():
    """Returns a port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
