"""The run directory: a link is refused, a user's share is kept, the dead's memory freed."""

import glob
import os
import sys
import unittest

import jobs


def taken(folder):
    """Returns the bytes that the files below a folder take."""
    return sum(os.lstat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(folder) for name in names)


class TestRunDirectory(jobs.Case):
    """LAGGARD_RUN is a directory, never a link to one."""

    def test_a_link_is_refused(self):
        """As C and Go do; the training goes on, and nothing is made behind the link."""
        target = os.path.join(self.work, "target")
        os.mkdir(target)
        link = os.path.join(self.work, "link")
        os.symlink(target, link)
        for path in (link, link + "/"):
            _, said = self.python("""
                import laggard
                laggard.init()
                with laggard.step(1):
                    pass
                assert not laggard.enabled()
                print("went on")
            """, LAGGARD_RUN=path)
            self.assertEqual(said.count("nothing more is recorded in this process, training goes on"), 1, said)
            self.assertEqual(os.listdir(target), [])


ORPHANS = """
    import os, signal, time
    import laggard
    children, together = %d, %r
    pids = []
    for i in range(children):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            laggard.init()
            for k in range(3):
                with laggard.span("FP", tokens=3 * i + k):
                    pass
            os.write(w, b"x")
            time.sleep(1000)
        assert os.read(r, 1) == b"x"
        os.close(r), os.close(w)
        pids.append(pid)
        if not together:
            os.kill(pids.pop(), signal.SIGKILL)
            os.waitpid(pid, 0)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


class TestOrphans(jobs.Case):
    """Forked children that are killed while no agent is there."""

    @unittest.skipIf(sys.version_info < (3, 8), "Python gives no memory back before 3.8")
    def test_what_they_leave_is_what_they_recorded(self):
        """One after the other: each frees what the one before held for nothing."""
        self.python(ORPHANS % (60, False))
        folders = glob.glob(os.path.join(self.run_dir, "*"))
        self.assertEqual(len(folders), 60)
        self.assertLess(taken(self.run_dir), 60 * (64 << 10) + (3 << 20))
        tokens = sorted(r["value"] for p in jobs.rings.load(self.run_dir) for r in p.records())
        self.assertEqual(tokens, list(range(180)))

    def test_their_share(self):
        """All at a time: no more than the user's share, and the rest is counted."""
        self.python(ORPHANS % (120, True))
        self.assertLess(taken(self.run_dir), (256 << 20) + 1)
        found = jobs.rings.load(self.run_dir)
        recorded = sum(len(p.records()) for p in found)
        lost = sum(sum(p.lost) for p in found)
        self.assertGreater(lost, 0)
        self.assertEqual(recorded + lost + 3 * (120 - len(found)), 360)
