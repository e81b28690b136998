"""What the recorder costs a step: the same training with it and without, in turns.

    cost.py [--rounds N] [--page FILE] [JOB …]

Each job of a family runs twice at a time on two ranks, once recorded, with an agent beside
it, as LAGGARD_AUTO=1 records it. The two take turns of a few steps, see jobs/turns.py, so
whatever else the machine does meets both. Each pair of turns gives one difference; printed
are the median difference of a step's time, and of the processor time of the thread that
trains, with the interval that holds the median with 95 % (order statistics, no model of
the noise). --page writes the rows of what was run into a table of that page.
"""

import argparse
import concurrent.futures
import importlib.metadata
import os
import select
import statistics
import subprocess
import sys

import bed

sys.path.append(bed.JOBS)
import turns  # noqa: E402
from table import BEGIN, END  # noqa: E402

# Name → package, script with its arguments, forward passes in a step
FAMILIES = {
    "ddp": ("torch", ("ddp",), 1),
    "fsdp1": ("torch", ("fsdp1",), 1),
    "fsdp2": ("torch", ("fsdp2",), 1),
    "dtensor": ("torch", ("tensor_parallel",), 1),
    "pipelining": ("torch", ("pipelined", "1F1B"), 4),
    "compile": ("torch", ("compiled",), 1),
    "saves": ("torch", ("saves", "thread"), 1),
    "zero-1": ("deepspeed", ("deepspeed_zero", "1"), 2),
    "zero-2": ("deepspeed", ("deepspeed_zero", "2"), 2),
    "zero-3": ("deepspeed", ("deepspeed_zero", "3"), 2),
    "megatron": ("megatron-core", ("megatron_core",), 2),
    "lightning": ("lightning", ("lightning_automatic",), 2),
    "transformers": ("transformers", ("hf_trainer",), 2),
    "accelerate": ("accelerate", ("accelerated",), 2),
    "mindspore": ("mindspore", ("mindspore_functions",), 1),
}
WARM = 2  # rounds: the first build what later ones reuse


class Job(object):
    """A job that waits for its turns."""

    def __init__(self, case, pool, family, rounds, recorded):
        package, (script, *arguments), passes = FAMILIES[family]
        prefix = os.path.join(case.work, "recorded" if recorded else "bare")
        self.pipes = []
        for name in ".go", ".took":
            os.mkfifo(prefix + name)
            self.pipes.append(os.open(prefix + name, os.O_RDWR))  # waits for nobody
        more = {"LAGGARD_AUTO": "1"} if recorded else {}
        self.ranks = pool.submit(case.launch, "msrun" if package == "mindspore" else "forked", script, bed.WORLD, arguments, TURNS=prefix,
                                 PASSES=str(passes), ITERATIONS=str((WARM + rounds) * turns.STEPS + 1), WORK="0", **more)

    def turn(self):
        """Has the ranks make the steps of a turn; returns (ns, processor's ns) a step."""
        self.go()
        while not select.select([self.pipes[1]], [], [], 1)[0]:
            if self.ranks.done():
                raise SystemExit("the job ended before its turn: %s" % (self.ranks.exception() or "too few steps",))
        return turns.RESULT.unpack(os.read(self.pipes[1], turns.RESULT.size))

    def go(self):
        """Lets the ranks go on."""
        os.write(self.pipes[0], b" ")

    def truths(self):
        """Lets the ranks make their last step; returns what each says of itself."""
        self.go()
        truths, _ = self.ranks.result()
        for pipe in self.pipes:
            os.close(pipe)
        return truths


class Pair(bed.Case):
    """Both jobs of a family, and the agent of the recorded one."""

    def measured(self, family, rounds):
        """Returns for each size its pairs of turns, ((ns, processor's ns) without, with), and the version of PyTorch."""
        agent = subprocess.Popen([os.environ["LAGGARD"], "agent", "--ring-dir", self.run_dir, "--dir", os.path.join(self.work, "files"),
                                  "--store", "", "--metrics", "", "--until-idle", "2s"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env=self.environment())
        try:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                jobs = [Job(self, pool, family, rounds, recorded) for recorded in (False, True)]
                found = [[] for _ in turns.SIZES]
                for n in range(WARM + rounds):
                    for pairs in found:
                        pair = [None, None]
                        for side in (0, 1) if n % 2 else (1, 0):
                            pair[side] = jobs[side].turn()
                        if n >= WARM:
                            pairs.append(pair)
                bare, recorded = [job.truths() for job in jobs]
            self.assertEqual([t["losses"] for t in bare], [t["losses"] for t in recorded], "losses with the recorder and without")
            self.assertEqual(agent.wait(bed.LIMIT), 0, "the agent's exit code")
        finally:
            agent.kill()
            agent.wait()
        return found, bare[0].get("torch", "")


def interval(values):
    """Returns (median, low, high): the median with its distribution-free 95 % interval."""
    values, n = sorted(values), len(values)
    reach = int(0.98 * n**0.5)
    return statistics.median(values), values[max(n // 2 - reach, 0)], values[min(n // 2 + reach, n - 1)]


def row(family, torch, size, steps, pairs):
    """Returns the row of the table that pairs of turns of so many steps make."""
    package = FAMILIES[family][0]
    version = torch if package == "torch" else importlib.metadata.version(package)
    cells = []
    for at in 0, 1:
        step = statistics.median(without[at] for without, _ in pairs) / 1e3
        more = [value / 1e3 for value in interval([recorded[at] - without[at] for without, recorded in pairs])]
        cells += ["%.0f us" % step, "%+.0f us [%.0f, %.0f]" % tuple(more), "%+.1f %% [%.1f, %.1f]" % tuple(100 * m / step for m in more)]
    return "| %s | %s %s | %s | %s | %d of %d steps |" % (family, package, version.partition("+")[0], size, " | ".join(cells), len(pairs), steps)


def write(page, rows):
    """Puts rows into the table of a page, in the places of the same jobs, versions and sizes."""
    def key(line):
        return line.split(" | ")[:3]

    with open(page, encoding="utf-8") as f:
        before, _, rest = f.read().partition(BEGIN)
    was, _, after = rest.partition(END)
    lines = was.splitlines()
    for line in rows:
        at = next((n for n, old in enumerate(lines) if key(old) == key(line)), len(lines))
        lines[at:at + 1] = [line]
    with open(page, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + "\n".join(lines) + "\n" + END + after)


def main():
    """Measures and prints."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--page")
    arguments.add_argument("jobs", nargs="*", default=["ddp"], choices=sorted(FAMILIES))
    given = arguments.parse_args()
    for family in given.jobs:
        pair = Pair()
        pair.setUp()
        try:
            found, torch = pair.measured(family, given.rounds)
        finally:
            pair.doCleanups()
        rows = [row(family, torch, size, steps, pairs) for (size, _, steps), pairs in zip(turns.SIZES, found)]
        print("\n".join(rows), flush=True)
        if given.page:
            write(given.page, rows)


if __name__ == "__main__":
    main()
