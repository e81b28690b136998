"""One rank of four that computes more is the only one that `laggard analyze` names; a
healthy job names nobody. What is judged is what the agent wrote while the job ran."""

import json
import os
import subprocess

import bed

WORLD, ITERATIONS, SLOW = 4, 60, 2


class Culprits(bed.Case):
    """A job of each family, with a slow rank and without."""

    def verdict(self, script, slow, arguments=()):
        """Runs a job with an agent beside it; returns what analyze says of it."""
        laggard = os.environ["LAGGARD"]
        files = os.path.join(self.work, "files")
        agent = subprocess.Popen([laggard, "agent", "--ring-dir", self.run_dir, "--dir", files, "--store", "", "--metrics", "",
                                  "--until-idle", "2s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env=self.environment(), universal_newlines=True)
        try:
            self.launch("forked", script, WORLD, arguments, LAGGARD_AUTO="1", ITERATIONS=str(ITERATIONS), WORK="20",
                        PACE="0.08", SLOW=str(SLOW) if slow else "")
            said = agent.communicate(timeout=bed.LIMIT)[0]
        finally:
            agent.kill()
            agent.communicate()
        self.assertEqual(agent.returncode, 0, said)
        done = subprocess.run([laggard, "analyze", files, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=bed.LIMIT)
        self.assertIn(done.returncode, (0, 3), done.stdout + done.stderr)
        return json.loads(done.stdout)

    def check(self, script, slow, arguments):
        """Judges a job of a family."""
        found = self.verdict(script, slow, arguments)
        named = [(n["node"], n["ranks"]) for n in found["nodes"]] + [l["group"] for l in found.get("links") or ()]
        self.assertEqual(named, [("node-%d" % SLOW, [SLOW])] if slow else [], json.dumps(found))
        self.assertEqual(found["healthy"], not slow, json.dumps(found))


for _name, _script, *_arguments in (
        ("ddp", "ddp"), ("fsdp2", "fsdp2"), ("dtensor", "tensor_parallel"), ("deepspeed", "deepspeed_zero", "2"),
        ("megatron", "megatron_core"), ("lightning", "lightning_automatic"), ("transformers", "hf_trainer"),
        ("accelerate", "accelerated")):
    for _slow in (False, True):
        setattr(Culprits, "test_%s_%s" % (_name, "with_a_slow_rank" if _slow else "healthy"),
                lambda self, script=_script, slow=_slow, arguments=_arguments: self.check(script, slow, arguments))
