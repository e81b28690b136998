"""One rank of four that computes more is the only one that `laggard analyze` names; a
healthy job names nobody. What is judged is what the agent wrote while the job ran.

    LAGGARD_TRAINERS_TORCH   an older PyTorch, see test_older.py
"""

import json
import os
import subprocess
import sys

import bed
import culprits

VERSION = os.environ.get("LAGGARD_TRAINERS_TORCH", "")

FAMILIES = {"ddp": ("ddp",), "fsdp2": ("fsdp2",), "dtensor": ("tensor_parallel",), "deepspeed": ("deepspeed_zero", "2"),
            "megatron": ("megatron_core",), "lightning": ("lightning_automatic",), "transformers": ("hf_trainer",),
            "accelerate": ("accelerated",)}
if VERSION.startswith("1."):
    FAMILIES = {"ddp": ("ddp",)}


class Culprits(culprits.Case):
    """A job of each family, with a slow rank and without."""


class Switched(culprits.Case):
    """A job of which Communication is no longer recorded when a rank has been named."""

    iterations = 150

    def meanwhile(self, files, over):
        """Switches Communication off when the slow rank has been named for a while."""
        while not over.wait(0.5):
            done = self.analyze(files)  # an error while there are no files
            if done.returncode == 3 and json.loads(done.stdout)["steps"]["last"] >= 60:
                subprocess.run([os.environ["LAGGARD"], "trace", "on", "--job", "trainers", "--ring-dir", self.run_dir,
                                "--words", "Step,FP,SaveCheckpoint,DataLoader"], check=True, stdout=subprocess.DEVNULL, timeout=bed.LIMIT)
                return

    def test_the_cost_stays(self):
        """The rank stays named, and what it costs is what was measured, no bound."""
        found, share = self.judged("ddp", True)
        self.assertEqual([n["ranks"] for n in found["nodes"]], [[culprits.SLOW]], json.dumps(found))
        self.assertTrue(any("no longer recorded" in f["detail"] for f in found["findings"]), json.dumps(found))
        self.assertNotIn("job_impact_max", found)
        sys.stderr.write("costs %.3f, its extra work is %.3f ... " % (found["job_impact"], share))
        self.assertTrue(culprits.LEAST * share <= found["job_impact"] <= culprits.MOST * share, json.dumps(found))


culprits.add(Culprits, FAMILIES)
if VERSION.startswith("2."):
    def nothing_seen(self):
        """DTensor's operations are not seen before 2.15: a job without a culprit is undecided."""
        found, _ = self.judged("tensor_parallel", False)
        self.assertEqual((found["nodes"], found["decided"]), ([], False), json.dumps(found))
    Culprits.test_dtensor_healthy = nothing_seen
