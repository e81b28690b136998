"""Which rank of which job."""

import re

import jobs

MARK = "import laggard; laggard.init(); laggard.mark('x')"


class Environment(jobs.Case):
    def meta(self, text=MARK, **env):
        self.python(text, **env)
        found = self.process()
        import shutil
        shutil.rmtree(found.folder)
        return found.meta

    def test_rank_needs_both_variables(self):
        meta = self.meta(RANK="5", LOCAL_RANK="1", WORLD_SIZE="8", LAGGARD_JOB="j")
        self.assertEqual((meta["rank"], meta["local_rank"], meta["world_size"]), (5, 1, 8))

    def test_rank_alone_says_nothing(self):
        self.python(MARK, RANK="5", LAGGARD_JOB="j")  # a node's number under some launchers
        self.assertEqual(self.processes(), [])

    def test_nothing_said_is_one_rank(self):
        meta = self.meta()
        self.assertEqual((meta["rank"], meta["world_size"], meta["local_rank"]), (0, 1, 0))
        self.assertRegex(meta["job"], r"^default_task_id_\d{10}$")

    def test_job(self):
        self.assertEqual(self.meta(MINDX_TASK_ID="a", LAGGARD_JOB="b")["job"], "a")
        self.assertEqual(self.meta(LAGGARD_JOB="b")["job"], "b")
        self.assertEqual(self.meta(LAGGARD_JOB="../x/y")["job"], ".._x_y")
        place = dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
        one = self.meta(TORCHELASTIC_RUN_ID="run-7", **place)["job"]
        two = self.meta(TORCHELASTIC_RUN_ID="run-7", **place)["job"]
        other = self.meta(TORCHELASTIC_RUN_ID="run-8", **place)["job"]
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)
        self.assertTrue(re.match(r"^default_task_id_\d{10}$", one), one)

    def test_node_and_pod(self):
        meta = self.meta(NODE_NAME="node-7", POD_NAME="pod-1")
        self.assertEqual((meta["node"], meta["pod"]), ("node-7", "pod-1"))
        import socket
        self.assertEqual(self.meta(NODE_NAME=None)["node"], socket.gethostname())
        self.assertNotIn("pod", self.meta(POD_NAME=None))

    def test_start_of_the_process(self):
        import time
        before = time.time_ns()
        meta = self.meta()
        self.assertLess(abs(meta["started_ns"] - before), 5 * 10 ** 9)

    def test_init_wins(self):
        meta = self.meta("import laggard; laggard.init(rank=2, world_size=4, job='k', node='m'); laggard.mark('x')",
                         RANK="5", LOCAL_RANK="1", WORLD_SIZE="8", LAGGARD_JOB="j", NODE_NAME="n")
        self.assertEqual((meta["rank"], meta["world_size"], meta["job"], meta["node"]), (2, 4, "k", "m"))

    def test_a_distributed_job_waits_until_its_ranks_can_agree(self):
        self.python(MARK, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")  # no job's name yet
        self.assertEqual(self.processes(), [])

    def test_an_unknown_rank_is_said_once(self):
        marks = "import laggard; laggard.init()\nfor _ in range(1000): laggard.mark('x')"
        for place, why in ((dict(RANK="5"), "RANK is set without LOCAL_RANK"), (dict(RANK="0", WORLD_SIZE="2"), "RANK is set without LOCAL_RANK"),
                           (dict(WORLD_SIZE="2"), "WORLD_SIZE is set without RANK"),
                           (dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="2"), "the job has no name")):
            _, err = self.python(marks, **place)
            self.assertRegex(err, r"^laggard\[\d+\]: nothing is recorded so far: %s, .*\n$" % why)
            self.assertEqual(self.processes(), [])
        _, err = self.python(MARK, RANK="5")  # it may still join a group
        self.assertEqual(err, "")

    def test_the_only_rank_is_known(self):
        meta = self.meta(RANK="0", WORLD_SIZE="1")
        self.assertEqual((meta["rank"], meta["world_size"]), (0, 1))
