"""The package taskd: TaskD's worker API over our recorders, beside an installed TaskD
and without one."""

import ast
import os
import socket
import sys
import threading

import jobs

PACKAGE = os.path.join(jobs.PACKAGE, "taskd")
OFF = dict.fromkeys(("CommunicationOperator", "Step", "SaveCheckpoint", "FP", "DataLoader"), "off")

# A script adapted for TaskD: told(word) waits until the switch says so.
ADAPTED = """
import json, os, sys, time
from taskd.api.taskd_worker_api import init_taskd_worker, start_taskd_worker, destroy_taskd_worker
assert init_taskd_worker(2, upper_limit_of_disk_in_mb=5000, framework=%r) is True
assert start_taskd_worker() is True
import laggard
from laggard import recorder
FILE = os.environ["LAGGARD_SWITCH_FILE"]
def write(**words):
    with open(FILE + ".new", "w") as f: json.dump(words, f)
    os.rename(FILE + ".new", FILE)
def told(word):
    end = time.monotonic() + 20
    while recorder._process.words[32] & 3 != word:
        assert time.monotonic() < end, (word, recorder._process.words[32])
        time.sleep(0.01)
def said(part):
    from taskd.api import taskd_worker_api
    end = time.monotonic() + 20
    while part not in (taskd_worker_api.taskd_worker._complain._text or ""):
        assert time.monotonic() < end, part
        time.sleep(0.01)
def train(n):
    with laggard.step(n):
        with laggard.span("FP"): pass
        with laggard.communication("HcclAllreduce", "dp", n): pass
OFF = %r
"""


class Base(jobs.Case):
    """A test with a switch file and no manager."""

    def environment(self, **more):
        values = dict(LAGGARD_SWITCH_FILE=os.path.join(self.work, "profilingSwitch"), LAGGARD_TASKD_PROXY="off",
                      RANK="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MS_NODE_RANK="2", WORLD_SIZE="4", MINDX_TASK_ID="uid-7")
        values.update(more)
        return jobs.Case.environment(self, **values)

    def adapted(self, text, framework="ms", **env):
        """Runs a script adapted for TaskD; returns its words on stderr."""
        import textwrap
        return self.python(ADAPTED % (framework, OFF) + textwrap.dedent(text), **env)[1]


class Switch(Base):
    def test_nothing_until_told(self):
        err = self.adapted("train(1)")
        p = self.process()
        self.assertEqual((p.records(), p.wanted, p.meta["job"], p.meta["rank"], p.meta["world_size"]),
                         ([], 0, "uid-7", 2, 4))
        self.assertEqual(err, "")

    def test_the_file_commands(self):
        err = self.adapted("""
            train(1)
            write(**dict(OFF, CommunicationOperator="on")); told(3); train(2)
            write(**dict(OFF, FP="on")); told(1); train(3)
            write(**OFF); told(0); train(4)
            write(Step="off"); told(1); train(5)           # a word that is missing leaves the light kinds on
        """)
        self.assertEqual(err, "")
        got = [(r["kind"], r["step"]) for r in self.process().records()]
        self.assertEqual(sorted(got), sorted([
            ("Step", 2), ("FP", 2), ("Communication", 2), ("Step", 3), ("FP", 3),
            ("Step", 5), ("FP", 5)]))

    def test_what_is_wrong_changes_nothing_and_is_said_once(self):
        err = self.adapted("""
            write(**dict(OFF, Step="on")); told(1)
            write(**dict(OFF, Step="ON")); said("neither on nor off"); time.sleep(1.5); told(1)
            with open(FILE, "w") as f: f.write('{"Step": "o')
            said("not a JSON object"); told(1)
            write(**dict(OFF, Stpe="on")); told(0)
        """)
        lines = err.splitlines()
        self.assertEqual(len(lines), 3, err)
        self.assertIn('Step is "ON": neither on nor off', lines[0])
        self.assertIn("not a JSON object", lines[1])
        self.assertIn("'Stpe' is none of", lines[2])

    def test_who_spoke_last_wins(self):
        self.adapted("""
            write(**dict(OFF, Step="on")); told(1)
            recorder._process.words[32] = 7 << 8 | 3   # an agent
            time.sleep(1.5); told(3)                   # the file has not changed
            write(**OFF); told(0)
        """)

    def test_a_script_that_sets_LAGGARD_TRACE_records_from_the_start(self):
        self.adapted("train(1)", LAGGARD_TRACE="on")
        self.assertEqual(len(self.process().records()), 3)

    def test_a_pipe_and_a_folder_hold_nobody(self):
        from taskd.laggard_worker import switchfile
        fifo = os.path.join(self.work, "pipe")
        os.mkfifo(fifo)
        for name in (fifo, self.work):
            bits, complaint = switchfile.read(name)
            self.assertIsNone(bits)
            self.assertIn("not a regular file", complaint)
        self.assertEqual(switchfile.read(os.path.join(self.work, "nothing")), (None, None))
        large = os.path.join(self.work, "large")
        with open(large, "w") as f:
            f.write(" " * (1 << 20) + "{}")
        self.assertIn("larger than", switchfile.read(large)[1])


class Life(Base):
    def test_destroy_and_init_again(self):
        self.adapted("""
            write(**dict(OFF, CommunicationOperator="on")); told(3); train(1)
            assert destroy_taskd_worker() is True
            told(0); train(2)
            assert init_taskd_worker(2) and start_taskd_worker() and start_taskd_worker()
            told(3); train(3)
        """)
        self.assertEqual(sorted({r["step"] for r in self.process().records()}), [1, 3])

    def test_wrong_arguments(self):
        out, err = self.python("""
            from taskd.api.taskd_worker_api import *
            from taskd.api import taskd_worker_api as w
            print(w.start_taskd_worker(), w.init_taskd_worker("3"), w.init_taskd_worker(True), w.init_taskd_worker(0, -1),
                  w.init_taskd_worker(0, 5000, "tf"), w.init_taskd_worker(-1), w.destroy_taskd_worker())
        """)
        self.assertEqual(out.split(), ["False"] * 7)
        self.assertEqual(len(err.splitlines()), 7)
        self.assertEqual(self.processes(), [])

    def test_without_a_launcher_it_fails_as_taskd_does(self):
        """What the worker of TaskD reads (component/taskd/taskd/python/framework/worker/worker.py,
        init_worker): for "pt" RANK and LOCAL_WORLD_SIZE, for "ms" MS_NODE_RANK, and a node
        below 0 is none."""
        ask = """
            from taskd.api.taskd_worker_api import *
            print(init_taskd_worker(2, framework=%r), start_taskd_worker(), destroy_taskd_worker())
        """
        pt = dict(RANK="9", LOCAL_WORLD_SIZE="8", MS_NODE_RANK=None)
        ms = dict(RANK=None, LOCAL_WORLD_SIZE=None, MS_NODE_RANK="1")
        for framework, wrong, words in (
                ("pt", ms, "RANK is not set: start the script by torchrun"), ("ms", pt, "MS_NODE_RANK is not set: start the script by msrun"),
                ("pt", dict(pt, RANK=None), "RANK is not set"), ("pt", dict(pt, RANK=""), "RANK is not set"), ("pt", dict(pt, RANK="x"), "invalid literal"),
                ("pt", dict(pt, LOCAL_WORLD_SIZE=None, MS_NODE_RANK="1"), "LOCAL_WORLD_SIZE is not set"), ("pt", dict(pt, LOCAL_WORLD_SIZE="0"), "division"),
                ("pt", dict(pt, RANK="-1"), "node -1"), ("ms", dict(ms, MS_NODE_RANK="-1"), "node -1"), ("ms", dict(ms, MS_NODE_RANK="x", RANK="9"), "invalid literal")):
            out, err = self.python(ask % framework, **wrong)
            self.assertEqual(out.split(), ["False"] * 3, (framework, wrong))
            self.assertIn(words, err, (framework, wrong))
        self.assertEqual(self.processes(), [])
        for framework, right in (("pt", pt), ("ms", ms)):
            out, err = self.python(ask % framework, **right)
            self.assertEqual((out.split(), err), (["True"] * 3, ""), right)

    def test_after_destroy_it_neither_starts_nor_fails(self):
        out, err = self.python("""
            from taskd.api.taskd_worker_api import *
            print(init_taskd_worker(2), destroy_taskd_worker(), destroy_taskd_worker(), start_taskd_worker())
        """)
        self.assertEqual(out.split(), ["True", "True", "True", "False"])
        self.assertIn("call init_taskd_worker first", err)

    def test_a_forked_child_records_nothing(self):
        self.adapted("""
            write(**dict(OFF, CommunicationOperator="on")); told(3); train(1)
            pid = os.fork()
            if pid == 0:
                train(2)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            train(3)
            destroy_taskd_worker()
        """)
        self.assertEqual(sorted({r["step"] for p in self.processes() for r in p.records()}), [1, 3])

    def test_an_unchanged_training_loop(self):
        err = self.adapted("""
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            write(**dict(OFF, CommunicationOperator="on")); told(3)
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for (x,) in DataLoader(TensorDataset(torch.zeros(6, 4)), batch_size=2):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            torch.save(model.state_dict(), os.path.join(os.path.dirname(FILE), "ckpt"))
        """, framework="pt")
        self.assertEqual(err, "")
        kinds = [r["kind"] for r in self.process().records()]
        self.assertEqual({k: kinds.count(k) for k in ("FP", "SaveCheckpoint")}, {"FP": 3, "SaveCheckpoint": 1})
        self.assertTrue(kinds.count("Step") >= 2 and kinds.count("DataLoader") >= 3, kinds)


class Names(Base):
    """Which module is whose."""

    def installed(self):
        """Makes an installed TaskD and returns its path."""
        root = os.path.join(self.work, "site")
        for name in ("__init__", "api/__init__", "api/taskd_manager_api", "api/taskd_worker_api", "python/__init__",
                     "python/adaptor/__init__", "python/adaptor/patch/__init__", "python/framework/__init__"):
            path = os.path.join(root, "taskd", name + ".py")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write("mine = True\n")
        return root

    ASK = """
        import importlib
        for name in ("taskd.api.taskd_worker_api", "taskd.api.taskd_manager_api", "taskd.python.adaptor.patch",
                     "taskd.python.framework"):
            print(int(hasattr(importlib.import_module(name), "mine")), end=" ")
    """

    def test_only_the_worker_is_replaced(self):
        out, err = self.python(self.ASK, PYTHONPATH=jobs.PACKAGE + os.pathsep + self.installed())
        self.assertEqual((out.split(), err), (["0", "1", "1", "1"], ""))

    def test_off_leaves_all_to_the_installed_one(self):
        out, err = self.python(self.ASK, LAGGARD_TASKD="off", PYTHONPATH=jobs.PACKAGE + os.pathsep + self.installed())
        self.assertEqual((out.split(), err), (["1", "1", "1", "1"], ""))

    MINDSPORE = """
        from taskd.python.framework.agent.ms_mgr.msrun_plugin import MSRunPlugin
        from taskd.python.framework.common.type import CONFIG_UPSTREAMIP_KEY, LOCAL_HOST
        print(MSRunPlugin().register_callbacks("KILL_WORKER", print), CONFIG_UPSTREAMIP_KEY, LOCAL_HOST)
    """

    def test_mindspore_finds_the_installed_one(self):
        site = self.installed()
        for name, text in (("agent/__init__", ""), ("agent/ms_mgr/__init__", ""), ("common/__init__", ""),
                           ("agent/ms_mgr/msrun_plugin", "class MSRunPlugin:\n    def register_callbacks(self, operator, func): return operator\n"),
                           ("common/type", "CONFIG_UPSTREAMIP_KEY, LOCAL_HOST = 'UpstreamIp', '127.0.0.1'\n")):
            path = os.path.join(site, "taskd", "python", "framework", name + ".py")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
        out, err = self.python(self.MINDSPORE, PYTHONPATH=jobs.PACKAGE + os.pathsep + site)
        self.assertEqual((out.split(), err), (["KILL_WORKER", "UpstreamIp", "127.0.0.1"], ""))

    def test_mindspore_without_one_is_told_the_remedy(self):
        for line in self.MINDSPORE.strip().splitlines()[:2]:
            out, _ = self.python("""
                try:
                    %s
                except Exception as e:  # as MindSpore does
                    print(type(e).__name__, e)
            """ % line.strip())
            self.assertIn("ImportError taskd.python.framework is TaskD's own", out)
            self.assertIn("pip install taskd", out)

    def test_without_one_the_rest_fails_as_taskd_does(self):
        out, err = self.python("""
            import taskd.python.adaptor.patch
            from taskd.api import (init_taskd_manager, start_taskd_manager, init_taskd_proxy, destroy_taskd_proxy,
                                   init_taskd_agent, start_taskd_agent, register_func)
            from taskd.api.taskd_manager_api import init_taskd_manager as same
            from taskd.python.adaptor.pytorch.group_info import dump_group_info
            for again in range(2):
                print(init_taskd_manager({}), start_taskd_manager(), init_taskd_proxy({"a": 1}), destroy_taskd_proxy(),
                      init_taskd_agent({}, None), start_taskd_agent(), register_func("x", print), dump_group_info(3))
            print(same is init_taskd_manager)
            try:
                from taskd.api import something
            except ImportError:
                print("unknown")
        """)
        # What TaskD returns where its library is not loaded and nothing is initialized.
        once = ["False"] * 5 + ["None", "False", "None"]
        self.assertEqual(out.split(), once * 2 + ["True", "unknown"])
        lines = err.splitlines()
        self.assertEqual(len(lines), 9, err)  # each once, and the patch
        for line in lines:
            self.assertIn("no TaskD is installed here; nothing was done", line)


class Hostile(Base):
    """Whoever listens at the proxy's port, the training goes on."""

    def server(self, answer):
        """Listens, and answers every connection with bytes; returns the address."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        self.addCleanup(listener.close)

        def serve():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                try:
                    connection.recv(4096)
                    connection.sendall(answer)
                    if not answer:
                        threading.Event().wait(5)
                except OSError:
                    pass
                finally:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return "127.0.0.1:%d" % listener.getsockname()[1]

    def test_answers_that_are_none(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 4000, bytes(range(256)) * 64,
                       b"\x00\x00\x05\x00\x01\x00\x00\x00\x01\x00\xff\xff\xff\xff",      # a message of 4 GiB
                       b"\x00\x00\x07\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x02\x0a\x7f",  # protobuf that is cut off
                       b"\x00\x00\x00\x00\x08\x00\x00\x00\x01", b""):
            with self.subTest(answer=answer[:16]):
                err = self.adapted("""
                    write(**dict(OFF, CommunicationOperator="on")); told(3); train(1)
                    destroy_taskd_worker()
                """, LAGGARD_TASKD_PROXY=self.server(answer))
                self.assertLessEqual(len(err.splitlines()), 1, err)
                self.assertNotIn("Traceback", err)

    def test_bytes_of_messages(self):
        sys.path.insert(0, jobs.PACKAGE)
        from taskd.laggard_worker import messages
        self.assertEqual(messages.fields(messages.register("u", messages.position("Worker", 0, 300))),
                         {1: [b"u"], 2: [b"\n\x06Worker\x12\x010\x1a\x03300"]})
        for bad in (b"\x0a\x05ab", b"\x08", b"\x08" + b"\xff" * 11, b"\x0b", b"\x0d\x01"):
            with self.assertRaises(messages.Wrong):
                messages.fields(bad)


class Source(Base):
    def test_python_37(self):
        for folder, _, names in os.walk(PACKAGE):
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with open(path) as f:
                        ast.parse(f.read(), path, feature_version=(3, 7))


if __name__ == "__main__":
    jobs.unittest.main()
