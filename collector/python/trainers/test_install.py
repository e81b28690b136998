"""pip install of a wheel, then LAGGARD_AUTO=1 torchrun is all."""

import glob
import os
import subprocess
import sys
import sysconfig
import unittest

import bed
import jobs

sys.path.insert(0, jobs.PACKAGE)
import wheels  # noqa: E402


class Install(bed.Case):
    def installed(self, wheel):
        """Returns the interpreter of a new environment with the wheel and with our torch."""
        home = os.path.join(self.work, "environment")
        subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", home])
        python = os.path.join(home, "bin", "python")
        subprocess.check_call([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index",
                               "--disable-pip-version-check", wheel])
        (packages,) = glob.glob(os.path.join(home, "lib", "python3*", "site-packages"))
        with open(os.path.join(packages, "torch-of-the-bed.pth"), "w") as f:
            f.write(sysconfig.get_paths()["purelib"] + "\n")
        return python

    def test_torchrun_needs_nothing_but_the_variable(self):
        wheel = wheels.with_extension(self.work)
        python = self.installed(os.path.join(self.work, wheel))
        truth = os.path.join(self.work, "truth")
        os.mkdir(truth)
        env = self.environment(PYTHONPATH=None, LAGGARD_AUTO="1", TRUTH=truth, TORCH_FR_BUFFER_SIZE="100000",
                               LAGGARD_EXTENSION="load", XDG_CACHE_HOME=os.path.join(self.work, "empty"), LAGGARD_QUIET=None,
                               PYTHONIOENCODING="utf-8")
        code, _, said = self.ran([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                  os.path.join(bed.JOBS, "accumulate.py")], env)
        self.assertEqual(code, 0, said[-4000:])
        for p in self.processes():
            self.assertEqual(len(p.records("Step")), 8)
            self.assertIn("recording rank %d of job" % p.meta["rank"], said)
            with open(os.path.join(p.folder, "ring-1"), "rb") as f:
                self.assertEqual(f.read(20)[16:20], b"\1\0\0\0")  # CRC32C: the extension wrote it
        self.assertEqual(len(self.processes()), 2)

    def test_the_pth_does_nothing_without_the_variable(self):
        python = self.installed(os.path.join(self.work, wheels.build_wheel(self.work)))
        for value, want in ((None, "False"), ("0", "False"), ("1", "True")):
            out = subprocess.check_output([python, "-c", "import sys; print('laggard' in sys.modules)"],
                                          env=self.environment(PYTHONPATH=None, LAGGARD_AUTO=value), universal_newlines=True)
            self.assertEqual(out.strip(), want, value)


class Version(unittest.TestCase):
    def test_what_git_says_as_python_spells_it(self):
        for said, want in (("v1.2.3-0-gabcdef0", "1.2.3"), ("v1.2.3-4-gabcdef0", "1.2.3.post4+gabcdef0"),
                           ("v1.2.3-0-gabcdef0-dirty", "1.2.3.post0+gabcdef0.dirty"), ("abcdef0", "0+gabcdef0"),
                           ("abcdef0-dirty", "0+gabcdef0.dirty")):
            self.assertEqual(wheels.spelled(said), want)
