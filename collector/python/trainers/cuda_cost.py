"""What the recorder costs a step on a CUDA device: the same training with it and without, in turns.

    cuda_cost.py

Two models: one whose kernels are shorter than their launches, so that each microsecond of the
host's is one of the step, and one that keeps the device busy. Printed is what cost.py prints.
"""

import os
import statistics
import subprocess
import sys

import bed
from cost import interval

TRAIN = """
import sys, time
import torch
size, depth, steps = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
model = torch.nn.Sequential(*[torch.nn.Linear(size, size) for _ in range(depth)]).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
x = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
for line in sys.stdin:
    begun = time.perf_counter_ns()
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    print((time.perf_counter_ns() - begun) // steps, flush=True)
"""
MODELS = {"launches": (64, 8, 200), "a busy device": (8192, 8, 20)}
WARM, ROUNDS = 3, 30


class Pair(bed.Case):
    """Both trainings, and the agent of the recorded one."""

    def start(self, model, **env):
        """Starts a training that waits for its turns."""
        return subprocess.Popen([sys.executable, self.script(TRAIN)] + [str(n) for n in MODELS[model]], env=self.environment(**env),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)

    def measure(self, model):
        """Returns pairs of turns, (ns without, ns with)."""
        agent = subprocess.Popen([os.environ["LAGGARD"], "agent", "--ring-dir", self.run_dir, "--dir", os.path.join(self.work, "files"),
                                  "--store", "", "--metrics", "", "--until-idle", "2s"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env=self.environment())
        trainings = [self.start(model), self.start(model, LAGGARD_AUTO="1", LAGGARD_JOB="cost")]
        try:
            pairs = []
            for n in range(WARM + ROUNDS):
                pair = [0, 0]
                for side in (0, 1) if n % 2 else (1, 0):
                    trainings[side].stdin.write("go\n")
                    trainings[side].stdin.flush()
                    pair[side] = int(trainings[side].stdout.readline())
                pairs.append(pair)
            return pairs[WARM:]
        finally:
            for each in trainings:
                each.communicate()
            agent.wait(bed.LIMIT)


def main():
    """Measures and prints."""
    for model in MODELS:
        pair = Pair()
        pair.setUp()
        try:
            pairs = pair.measure(model)
        finally:
            pair.doCleanups()
        step = statistics.median(without for without, _ in pairs) / 1e3
        more = [value / 1e3 for value in interval([recorded - without for without, recorded in pairs])]
        print("%s: a step takes %.0f us, with the recorder %+.1f us [%.1f, %.1f], %+.2f %%" % (model, step, *more, 100 * more[0] / step), flush=True)


if __name__ == "__main__":
    main()
