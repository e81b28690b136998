"""Jobs with an agent beside them, and what `laggard analyze` says of what it wrote."""

import json
import os
import statistics
import subprocess

import bed

WORLD, ITERATIONS, SLOW = 4, 60, 2
EVEN = 1.5   # ranks of a healthy job whose own work took longer than this times another's were not equal
TRIES = 10   # on a machine that others use, such a run says nothing and is made again, at most so often


class Case(bed.Case):
    """A test that judges a job."""

    def verdict(self, script, slow, arguments, launcher):
        """Runs a job with an agent beside it; returns what analyze says of it, and how much
        longer one rank's own work took than another's, by the job's own clock."""
        laggard = os.environ["LAGGARD"]
        self.clean()
        files = os.path.join(self.work, "files")
        agent = subprocess.Popen([laggard, "agent", "--ring-dir", self.run_dir, "--dir", files, "--store", "", "--metrics", "",
                                  "--until-idle", "2s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env=self.environment(), universal_newlines=True)
        try:
            truths, _ = self.launch(launcher, script, WORLD, arguments, LAGGARD_AUTO="1", ITERATIONS=str(ITERATIONS), WORK="20",
                        PACE="0.08", SLOW=str(SLOW) if slow else "")
            said = agent.communicate(timeout=bed.LIMIT)[0]
        finally:
            agent.kill()
            agent.communicate()
        self.assertEqual(agent.returncode, 0, said)
        done = subprocess.run([laggard, "analyze", files, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=bed.LIMIT)
        self.assertIn(done.returncode, (0, 3), done.stdout + done.stderr)
        took = [statistics.median(truth["work"]) for truth in truths]
        return json.loads(done.stdout), max(took) / min(took)

    def check(self, script, slow, arguments=(), launcher="forked"):
        """Judges a job of a family."""
        for _ in range(TRIES):
            found, apart = self.verdict(script, slow, arguments, launcher)
            if slow or apart < EVEN:
                break
        self.assertEqual(apart < EVEN, not slow, "the machine made ranks unequal, %d times" % TRIES)
        named = [(n["node"], n["ranks"]) for n in found["nodes"]] + [l["group"] for l in found.get("links") or ()]
        self.assertEqual(named, [("node-%d" % SLOW, [SLOW])] if slow else [], json.dumps(found))
        self.assertEqual(found["healthy"], not slow, json.dumps(found))
