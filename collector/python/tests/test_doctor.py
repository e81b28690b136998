"""First contact: the doctor's screen, and the line that a rank says at its start."""

import os
import re
import socket
import subprocess
import sys

import jobs


class Doctor(jobs.Case):
    def doctor(self, code=0, **env):
        done = subprocess.run([sys.executable, "-m", "laggard", "doctor"], env=self.environment(**env), cwd=self.work,
                              timeout=jobs.LIMIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return dict(line.split(None, 1) for line in done.stdout.splitlines()), done.stderr

    def test_each_kind_is_seen(self):
        said, err = self.doctor()
        self.assertEqual(err, "")
        for kind in ("Step", "FP", "backward", "DataLoader", "SaveCheckpoint", "Communication", "exposed"):
            self.assertNotIn("not seen", said[kind])
        self.assertIn(self.run_dir, said["rings"])
        self.assertIn("none listens", said["agent"])
        self.assertIn("LAGGARD_AUTO is not 1", said["automatic"])
        self.assertEqual(self.processes(), [])

    def test_an_agent_that_listens(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.join(self.run_dir, "switch.sock"))
            said, _ = self.doctor()
            self.assertIn("none listens", said["agent"])
            s.listen()
            said, _ = self.doctor(LAGGARD_AUTO="1")
            self.assertIn("listens in " + self.run_dir, said["agent"])
            self.assertEqual(said["automatic"], "LAGGARD_AUTO=1")

    def test_no_torch(self):
        os.mkdir(os.path.join(self.work, "torch"))
        with open(os.path.join(self.work, "torch", "__init__.py"), "w") as f:
            f.write("raise OSError('libtorch.so: no such file')\n")
        said, _ = self.doctor(1, PYTHONPATH=self.work + os.pathsep + jobs.PACKAGE)
        self.assertIn("libtorch.so", said["torch"])

    def test_a_hook_that_does_not_hold(self):
        """One that fails stands for a torch that changed."""
        with open(os.path.join(self.work, "late.py"), "w") as f:
            f.write("from laggard import loading\n"
                    "loading.cover.__code__ = compile('lambda torch: 1 / 0', loading.__file__, 'eval').co_consts[0]\n")
        done = subprocess.run([sys.executable, "-c", "import late, sys; from laggard.__main__ import main; sys.exit(main(['doctor']))"],
                              env=self.environment(), cwd=self.work, timeout=jobs.LIMIT, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("DataLoader      not seen; mend it with: laggard.wrap(", done.stdout)
        self.assertEqual(len(re.findall("training goes on", done.stderr)), 1)


class First(jobs.Case):
    SCRIPT = "import laggard; laggard.init(rank=3, world_size=8, job='x', node='node-1'); laggard.mark('a'); laggard.mark('b')"

    def test_one_line(self):
        _, err = self.python(self.SCRIPT, LAGGARD_QUIET=None, PYTHONIOENCODING="utf-8")
        self.assertEqual(err, "laggard: recording rank 3 of job x \u2192 %s, where no agent listens yet\n" % self.run_dir)
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(os.path.join(self.run_dir, "switch.sock"))
            s.listen()
            _, err = self.python(self.SCRIPT, LAGGARD_QUIET=None, PYTHONIOENCODING="utf-8")
        self.assertEqual(err, "laggard: recording rank 3 of job x \u2192 agent on node-1\n")

    def test_silenced_and_without_a_range(self):
        _, err = self.python(self.SCRIPT)
        self.assertEqual(err, "")
        _, err = self.python("import laggard; laggard.init()", LAGGARD_QUIET=None)
        self.assertEqual(err, "")
