"""Jobs with an agent beside them, and what `laggard analyze` says of what it wrote."""

import collections
import json
import os
import statistics
import subprocess
import sys
import threading

import bed

# 60 steps of a tenth of a second, whose waits for shared processors differ by as much as the slow rank's work, were too few once in
# 30 runs.
WORLD, ITERATIONS, SLOW = 4, 90, 2
EVEN = 1.5   # ranks of a healthy job whose own work took longer than this times another's were not equal
# What is said that the slow rank costs lies between these times its extra work, as a share of a step, by the job's own clock:
# without it the others, which share its processors, would wait a bit less than that.
LEAST, MOST = 0.3, 1.5
TRIES = 10   # on a machine that others use, such a run says nothing and is made again, at most so often


class Case(bed.Case):
    """A test that judges a job."""

    iterations = ITERATIONS

    def meanwhile(self, files, over):
        """What is done while a job runs; files is the folder that the agent writes, over is set at the end."""

    def analyze(self, files):
        """Runs analyze on the files, and returns it."""
        return subprocess.run([os.environ["LAGGARD"], "analyze", files, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=bed.LIMIT)

    def verdict(self, script, slow, arguments, launcher, world):
        """Runs a job with an agent beside it; returns what analyze says of it, and what the ranks
        say themselves."""
        laggard = os.environ["LAGGARD"]
        self.clean()
        files = os.path.join(self.work, "files")
        agent = subprocess.Popen([laggard, "agent", "--ring-dir", self.run_dir, "--dir", files, "--store", "", "--metrics", "",
                                  "--until-idle", "2s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env=self.environment(), universal_newlines=True)
        over = threading.Event()
        beside = threading.Thread(target=self.meanwhile, args=(files, over))
        beside.start()
        try:
            truths, _ = self.launch(launcher, script, world, arguments, LAGGARD_AUTO="1", ITERATIONS=str(self.iterations), WORK="20",
                        PACE="0.08", SLOW=str(SLOW) if slow else "")
            said = agent.communicate(timeout=bed.LIMIT)[0]
        finally:
            agent.kill()
            agent.communicate()
            over.set()
            beside.join()
        self.assertEqual(agent.returncode, 0, said)
        done = self.analyze(files)
        self.assertIn(done.returncode, (0, 3, 4), done.stdout + done.stderr)
        return json.loads(done.stdout), truths

    def judged(self, script, slow, arguments=(), launcher="forked", world=WORLD):
        """Returns what is said of a job whose ranks are as unequal as they should be, and what the
        slow rank's extra work is of a step. A healthy job of which nothing is decided runs again:
        on few processors the wires are slow for a while, and who says that is not wrong. A slow one
        of which nobody is named runs a second time: waits for shared processors hide a tenth of a
        step now and then."""
        for tried in range(TRIES):
            found, truths = self.verdict(script, slow, arguments, launcher, world)
            named = found["nodes"] or found.get("links")
            if (named or tried) if slow else apart(truths) < EVEN and (named or found["decided"]):
                break
        self.assertEqual(apart(truths) < EVEN, not slow, "the machine made ranks unequal, %d times" % TRIES)
        return found, extra(truths)

    def check(self, *job, **how):
        """Judges a job of a family, (script, slow, …) as judged takes it."""
        (found, share), slow = self.judged(*job, **how), job[1]
        named = [(n["node"], n["ranks"]) for n in found["nodes"]] + [l["group"] for l in found.get("links") or ()]
        self.assertEqual(named, [("node-%d" % SLOW, [SLOW])] if slow else [], json.dumps(found))
        self.assertEqual(found["healthy"], not slow, json.dumps(found))
        if slow:
            sys.stderr.write("costs %.3f, its extra work is %.3f ... " % (found["job_impact"], share))
            self.assertTrue(LEAST * share <= found["job_impact"] <= MOST * share, "costs %.3f of a step, its extra work is %.3f" %
                            (found["job_impact"], share))


def apart(truths):
    """Returns how much longer one rank's own work took than another's of its stage."""
    took = collections.defaultdict(list)
    for truth in truths:
        took[truth.get("stage")].append(statistics.median(truth["work"]))
    return max(max(each) / min(each) for each in took.values())


def extra(truths):
    """Returns what the slow rank's work is more than others', as a share of a step."""
    took = [statistics.median(truth["work"]) for truth in truths]
    usual = statistics.median(took[:SLOW] + took[SLOW + 1:])
    began = truths[SLOW]["began"]
    return (took[SLOW] - usual) * (len(began) - 1) / (began[-1] - began[0])


def add(case, families, world=WORLD):
    """Adds two tests of each family, name → (script, argument, …), to a case: with a slow rank and without."""
    for name, (script, *arguments) in families.items():
        for slow in (False, True):
            setattr(case, "test_%s_%s" % (name, "with_a_slow_rank" if slow else "healthy"),
                    lambda self, script=script, slow=slow, arguments=arguments: self.check(script, slow, arguments, world=world))
