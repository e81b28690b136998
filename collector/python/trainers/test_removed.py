"""A hook point that is not there costs its feature: training goes on, with the same losses."""

import json
import os
import subprocess
import sys

import bed


class Removed(bed.Case):
    def test_each_in_turn(self):
        env = self.environment(MASTER_ADDR="127.0.0.1", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1",
                               LAGGARD_JOB="removed", LAGGARD_EXTENSION="load", CUDA_VISIBLE_DEVICES="",
                               DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1", TRUTH=self.work)
        done = subprocess.run([sys.executable, os.path.join(bed.HERE, "removed.py")], env=env, cwd=self.work, timeout=bed.LIMIT,
                              stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, 0)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertGreater(len(said), 60)
        for each in said:
            self.assertEqual(each["status"], 0, "%s without %r: %s" % (each["job"], each["point"], each["stderr"]))
        without = {str(each["job"]): each["losses"] for each in said if not each["recorded"]}
        for each in said:
            with self.subTest(job=each["job"], point=each["point"]):
                self.assertEqual(each["losses"], without[str(each["job"])])
                ours = [line for line in each["stderr"].splitlines() if line.startswith("laggard[")]
                self.assertLessEqual(len(ours), 1, ours)
                self.assertEqual(len(ours), each["failures"] > 0, each["stderr"])
                if not each["point"]:
                    self.assertEqual(each["failures"], 0, each["stderr"])
