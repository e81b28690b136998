"""Jobs of real frameworks under the real torchrun, with the recorder and without.

Each family of jobs is a script in jobs/, which knows nothing of laggard. It runs once
without us, its ranks forked out of one process that has imported torch, and once as a
user runs it: LAGGARD_AUTO=1 torchrun. The script leaves the truth of each rank; what
the rings hold is checked against it.
"""

import atexit
import collections
import glob
import importlib.metadata
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))
import jobs  # noqa: E402

JOBS = os.path.join(HERE, "jobs")
WORLD = 2
LIMIT = 900  # seconds for one job on a machine that others use; a hang fails the test

# How often a job runs whose launcher reports a death when all ranks had left their truth. On busy machines, PyTorch 2.15
# aborts one in 69 torchruns while Python ends, without the recorder. A MindSpore worker died once in some hundred jobs, with the
# recorder, of a cause that is not known. One that always dies is ours.
TRIES = 3

# torch's name of an operation, and ours, without underscores and after this.
SAME = {"allgatherbase": "allgatherintotensor", "reducescatterbase": "reducescattertensor",
        "alltoallbase": "alltoallsingle", "allgatherintotensorcoalesced": "allgatherintotensorcoalesced",
        "isend": "send", "irecv": "recv"}
SCATTERED = ("reducescatter", "scatter")  # what a rank gets is its part: the others are counted by what it brings
DTYPES = {"Float": "fp32", "Double": "fp64", "Half": "fp16", "BFloat16": "bf16", "Long": "int64", "Int": "int32",
          "Byte": "uint8", "Char": "int8", "Bool": "bool", "Short": "int16"}


def operation(name):
    """Returns an operation's name without a backend, a prefix or underscores."""
    name = name.split(":")[-1].replace("_", "").lower()
    return SAME.get(name, name)


class Forked(object):
    """A process that has imported torch, with the recorder or without, for as long as the
    tests run: see forked.py."""

    running = {}  # LAGGARD_AUTO → the process

    @classmethod
    def of(cls, env):
        """Returns the process for jobs of such an environment."""
        auto = env.get("LAGGARD_AUTO")
        if auto not in cls.running:
            cls.running[auto] = cls(env)
        return cls.running[auto]

    def __init__(self, env):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "forked.py")], env=env, cwd=HERE, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, universal_newlines=True, start_new_session=True)
        atexit.register(self.end)

    def launch(self, **order):
        """Runs a job; returns 0 when all of its ranks ended well."""
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], LIMIT)[0]:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.running.clear()
            raise subprocess.TimeoutExpired(order["command"], LIMIT)
        return int(self.process.stdout.readline() or -1)

    def end(self):
        """Lets the process go."""
        self.process.communicate()


class Case(jobs.Case):
    """A test with jobs of its own."""

    devices = ""   # CUDA's, of a job's ranks
    not_seen = {}  # operations that are not recorded of a job, as communications counts them

    def launch(self, launcher, script, world, arguments=(), **more):
        """Runs a script on so many ranks; returns (truths by rank, stderr). The launcher is
        torchrun, or forked, which costs less."""
        truth = tempfile.mkdtemp(dir=self.work)
        env = self.environment(TRUTH=truth, TORCH_FR_BUFFER_SIZE="100000", PYTHONDONTWRITEBYTECODE=None,
                               LAGGARD_EXTENSION="load", CUDA_VISIBLE_DEVICES=self.devices, TOKENIZERS_PARALLELISM="false",
                               HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu", LAGGARD_JOB="trainers", GLOG_v="3", PYTHONFAULTHANDLER="1",
                               PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"], **more)  # ninja
        if env.get("LAGGARD_AUTO") != "1":
            env.pop("PYTHONPATH")
        command = []
        if launcher == "torchrun":
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(world),
                       "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        if launcher == "msrun":  # a port of its own, and a folder for the logs that it writes
            command = [sys.executable, "-c", "from mindspore.parallel.cluster.run import main; main()",  # what msrun calls
                       "--worker_num", str(world), "--local_worker_num", str(world), "--master_port", str(jobs.free_port()), "--log_dir", truth, "--join", "True"]
        if launcher == "loop":
            command = [sys.executable, os.path.join(HERE, "loop.py"), str(world), str(jobs.free_port())]
        command += [os.path.join(JOBS, script + ".py"), *arguments]
        code, printed, said = self.ran(command, env, world, launcher == "forked")
        self.assertEqual(code, 0, (printed + said)[-6000:] + logs(truth))
        truths = []
        for rank in range(world):
            with open(os.path.join(truth, "rank-%d.json" % rank)) as f:
                truths.append(json.load(f))
        return truths, said + logs(truth)

    def ran(self, command, env, world=WORLD, forked=False):
        """Runs a command, or a script on so many forked ranks, again where a rank died after the
        job; returns (exit code, stdout, stderr). They go to files: a rank that hangs would hold a
        pipe open."""
        truth = env["TRUTH"]
        for _ in range(TRIES):
            with tempfile.NamedTemporaryFile("w+", errors="replace") as out, tempfile.NamedTemporaryFile("w+", errors="replace") as err:
                if forked:
                    code = Forked.of(env).launch(environment=env, folder=self.work, world=world, port=jobs.free_port(),
                                                 command=command, out=out.name, err=err.name)
                else:
                    code = subprocess.call(command, env=env, cwd=self.work, timeout=LIMIT, stdout=out, stderr=err)
                for file in out, err:
                    file.seek(0)
                printed, said = out.read(), err.read()
            if forked or code == 0 or len(glob.glob(os.path.join(truth, "rank-*.json"))) < world:
                break
            sys.stderr.write("a rank died after the job, which runs again: %s\n" % (said + logs(truth))[-6000:])
            for folder in truth, self.run_dir:
                for path in glob.glob(os.path.join(folder, "*")):
                    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        return code, printed, said

    def family(self, script, arguments=(), launchers=("forked", "torchrun"), name=None):
        """Runs a family both ways and checks what holds for all of them; name is what the
        table calls it.

        Returns [(the rank's ring folder, its truth)].
        """
        without, _ = self.launch(launchers[0], script, WORLD, arguments)
        self.without = without
        truths, said = self.launch(launchers[1], script, WORLD, arguments, LAGGARD_AUTO="1")
        ours = [line for line in said.splitlines() if "laggard[" in line]
        self.assertEqual(ours, [], "the recorder complained")
        self.assertEqual([t["losses"] for t in truths], [t["losses"] for t in without],
                         "losses with the recorder and without")
        found = self.processes()
        self.assertEqual([p.meta["rank"] for p in found], list(range(WORLD)))
        pairs = list(zip(found, truths))
        for p, truth in pairs:
            with self.subTest(rank=truth["rank"]):
                self.rank(p, truth)
        note(name or script, found, truths[0].get("torch"), self.not_seen)
        return pairs

    def rank(self, p, truth):
        """Checks one rank against its truth."""
        self.assertEqual(p.opened(), [])
        steps = p.records("Step")
        self.assertEqual([s["step"] for s in steps], list(range(truth["iterations"])), "Steps")
        for kind, word in (("FP", "forwards"), ("SaveCheckpoint", "saves"), ("DataLoader", "batches"), ("backward", "backwards"),
                           ("evaluation", "evaluations")):
            if word in truth:
                self.assertEqual(len(p.records(kind)), truth[word], kind)
        if truth["collectives"] is not None:
            self.collectives(p, truth["collectives"])
        if "transfers" in truth:  # of which gloo tells its Flight Recorder nothing
            got = [[r["text"], r["value"], r["peer"]] for r in p.records("Communication") if r["text"] in ("send", "recv")]
            self.assertEqual(sorted(got), sorted(truth["transfers"]))
        if "operations" in truth:  # counted by the job itself
            sizes = {g["name"]: g["size"] for g in p.meta["groups"]}
            got = [[r["text"], sizes.get(r["group"]), r["value"], r["dtype"]] for r in p.records("Communication")]
            self.assertEqual(got, truth["operations"])

    def collectives(self, p, seen):
        """Checks each Communication against torch's Flight Recorder."""
        for by in sizes, names:
            have, need = communications(self, p, seen, by)
            self.assertEqual(have, need, "not recorded %s; recorded too much %s" % (dict(need - have), dict(have - need)))

    def removed(self, framework, points):
        """Trains with each hook point of a framework away, in turn."""
        def trained(*arguments):
            done = subprocess.run([sys.executable, os.path.join(HERE, "removed_others.py"), framework, *arguments], timeout=LIMIT,
                                  env=self.environment(LAGGARD_JOB="removed", GLOG_v="3"), cwd=self.work, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, universal_newlines=True)
            self.assertEqual(done.returncode, 0, done.stderr[-4000:])
            ours = [line for line in done.stderr.splitlines() if line.startswith("laggard[")]
            return json.loads(done.stdout.splitlines()[-1]), ours

        without, _ = trained()
        for point in ("",) + points:
            with self.subTest(point=point):
                found, ours = trained("with", point)
                self.assertEqual(found["losses"], without["losses"])
                self.assertLessEqual(len(ours), 1, ours)
                self.assertEqual(len(ours), found["failures"] > 0, ours)
                self.assertTrue(point or not ours, ours)


def sizes(p, seen):
    """Returns the sizes of groups by the names that we give them, and that torch does."""
    return {g["name"]: g["size"] for g in p.meta["groups"]}, seen["sizes"]


def names(_, seen):
    """Returns our names of groups by our names, and by torch's."""
    theirs = {name: "default" if name == seen["default"] else "pg" + name if name.isdigit() else name for name in seen["sizes"]}
    return {name: name for name in theirs.values()}, theirs


def communications(case, p, seen, by=sizes):
    """Returns the Communication of a rank and what torch saw, counted by operation, size of
    the group or its name, count and type."""
    ours, theirs = by(p, seen)
    want = [(op, theirs[group], *rest) for op, group, *rest in map(expected, seen["entries"])]
    size, _ = sizes(p, seen)
    got = []
    for r in p.records("Communication"):
        case.assertTrue(0 <= r.get("exposed", 0) <= r["dur"], r)
        if operation(r["text"]) not in ("send", "recv", "batchisendirecv"):  # gloo tells its Flight Recorder of none
            name, count = as_gloo(operation(r["text"]), size.get(r["group"]), r["value"])
            got.append((name, ours.get(r["group"]), count, r["dtype"]))
    return collections.Counter(got), collections.Counter(want)


def logs(folder):
    """Returns what a launcher that writes files kept of its ranks' output."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".log"):
            with open(os.path.join(folder, name), errors="replace") as f:
                found.append(f.read()[-6000:])
    return "".join(found)


def note(script, found, torch, not_seen):
    """Writes down for table.py which kinds a job's ranks have, and which operations they lack."""
    folder = os.environ.get("LAGGARD_TRAINERS_SEEN")
    if not folder:
        return
    kinds = collections.Counter(r["kind"] for p in found for r in p.records())
    kinds["exposed"] = sum("exposed" in r for p in found for r in p.records("Communication"))
    versions = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    with open(os.path.join(folder, script + ".json"), "w") as f:
        json.dump({"kinds": kinds, "versions": dict(versions, **({"torch": torch} if torch else {})),
                   "not_seen": sorted({key[0] for key in not_seen})}, f)


def as_gloo(name, size, count):
    """Returns an operation and its count as gloo's Flight Recorder has them, which tells what
    gloo does: it has no reduce-scatter of one tensor but all-reduces the whole, and knows no
    names for gathering into one tensor or for tensors that go together."""
    if name.startswith("reducescattertensor"):
        return "allreduce", count * size
    if name.startswith("allgatherintotensor"):
        return "allgather", count
    return name.replace("coalesced", ""), count


def expected(entry):
    """Returns (operation, group, count, dtype) of an entry of torch's."""
    name = operation(entry["profiling_name"])
    brings, dtypes = entry["input_sizes"], entry["input_dtypes"]
    if name.startswith(SCATTERED) or name == "recv":
        brings, dtypes = entry["output_sizes"], entry["output_dtypes"]
    count = 0
    for shape in brings:
        elements = 1
        for n in shape:
            elements *= n
        count += elements
    if name == "barrier":
        return name, entry["process_group"][0], 0, ""
    return name, entry["process_group"][0], count, DTYPES.get(dtypes[0], dtypes[0]) if dtypes else ""
