"""Operations of a process group: the hooks of the C extension, and of Python alone."""

import unittest

import bed

SCRIPT = """
import laggard, os, torch, torch.distributed as dist
laggard.init(job="x", auto=True)
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
group, t = dist.group.WORLD, torch.ones(3)
"""


class Blocking(bed.Case):
    def records(self, text, **env):
        """Runs a script; returns its Communication."""
        self.python(SCRIPT + text + "\nassert laggard.failures() == 0\n", **env)
        p = self.process()
        self.assertEqual(p.opened(), [])
        return p.records("Communication")

    def test_each_is_exposed_as_a_whole(self):
        found = self.records("""
for _ in range(3): dist.all_reduce(t)
with laggard.span("FP"):  # from here on the thread has a ring of its own
    for _ in range(2): dist.broadcast(torch.ones(2, dtype=torch.int64), 0)
dist.barrier()
for _ in range(2): dist.all_reduce(torch.ones(4), async_op=True).wait()
""")
        self.assertEqual([(r["text"], r["value"], r["dtype"], r["group"]) for r in found],
                         [("all_reduce", 3, "fp32", "default")] * 3 + [("broadcast", 2, "int64", "default")] * 2 +
                         [("barrier", 0, "", "default")] + [("all_reduce", 4, "fp32", "default")] * 2)
        for r in found[1], found[2], found[4]:  # the first of an operation or of a type is Python's
            self.assertEqual(r["exposed"], r["dur"])

    def test_one_that_nobody_waits_for(self):
        found = self.records("""
dist.all_reduce(t)
options = dist.AllreduceOptions()
options.asyncOp = False
import time
held = [group.allreduce([t], options) for _ in range(2)]
time.sleep(0.5)
dist.all_reduce(t)
for work in held: work.wait()
""")
        self.assertEqual(len(found), 4)
        self.assertTrue(all(r["dur"] < 4 * 10**8 for r in found), found)

    def test_one_that_raises(self):
        found = self.records("""
dist.all_reduce(t)
for _ in range(2):
    try:
        dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn))
        print("it did not raise")
    except Exception as cause:
        print(type(cause))
dist.all_reduce(t)
""")
        self.assertEqual([r["dtype"] for r in found if r["dtype"] == "fp32"], ["fp32"] * 2)

    def test_asynchronous_ones_are_the_same_in_python_alone(self):
        text = """
import threading
def waited(n): dist.all_reduce(torch.ones(n), async_op=True).wait()
waited(3)  # the first is Python's
waited(4)
dist.broadcast(torch.ones(5), 0, async_op=True).wait()
dist.broadcast(torch.ones(6), 0, async_op=True).get_future().wait()
another = threading.Thread(target=waited, args=(7,))
another.start()
another.join()
left = dist.all_reduce(torch.ones(8), async_op=True)
dist.all_reduce(torch.ones(9))
"""
        both = []
        for extension in "load", "0":
            self.clean()
            found = self.records(text, LAGGARD_EXTENSION=extension)
            self.assertTrue(all(0 < r["exposed"] <= r["dur"] for r in found), found)
            both.append(sorted((r["value"], r["text"], r["dtype"], r["group"], r["peer"]) for r in found))
        self.assertEqual(both[0], both[1])
        self.assertEqual([value for value, *_ in both[0]], list(range(3, 10)))

    def test_buckets_of_a_backward_pass(self):
        text = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(4)]), bucket_cap_mb=0.001)
for _ in range(5): model(torch.ones(2, 20)).sum().backward()
next(model.parameters()).register_hook(lambda _: 1 / 0)
try:
    model(torch.ones(2, 20)).sum().backward()  # some of its buckets are issued when it dies
    print("it did not raise")
except ZeroDivisionError:
    pass
dist.all_reduce(torch.ones(9), async_op=True).wait()
"""
        both = []
        for extension in "load", "0":
            self.clean()
            found = self.records(text, LAGGARD_EXTENSION=extension)
            passes = self.process().records("backward")
            self.assertEqual(len(passes), 6)
            seen = [r for r in found if r["dtype"] == "fp32" and r["value"] != 9]
            for over in passes[1:5]:  # of the first one DDP makes its buckets anew
                own = [r for r in seen if over["start"] <= r["start"] <= over["start"] + over["dur"]]
                self.assertGreater(len(own), 2)
                last = max(r["start"] for r in own)
                ends = max(r["start"] + r["dur"] for r in own)
                exposed = sum(r["exposed"] for r in own)
                if extension == "load":
                    self.assertEqual(exposed, ends - last)
                else:  # what a future says after the pass counts there only as issued
                    self.assertLessEqual(exposed, over["dur"])
                self.assertTrue(all(r["start"] + r["dur"] <= over["start"] + over["dur"] + 10**8 for r in own), own)
            both.append(sorted((r["value"], r["text"], r["dtype"], r["group"], r["peer"]) for r in found))
        self.assertEqual(both[0], both[1])

    def test_those_that_are_in_flight_when_it_ends(self):
        for extension in "load", "0":
            for _ in range(4):
                self.clean()
                found = self.records("""
dist.all_reduce(t)
left = [dist.all_reduce(torch.ones(200000), async_op=True) for _ in range(50)]
""", LAGGARD_EXTENSION=extension)
                self.assertEqual(len(found), 51)

    def test_one_that_never_ends(self):
        for extension in "load", "0":
            self.clean()
            ends = self.ranks("""
                import os, select, torch, torch.distributed as dist
                dist.init_process_group("gloo")
                store, t = dist.distributed_c10d._get_default_store(), torch.ones(3)
                dist.all_reduce(t)
                if dist.get_rank() == 0:
                    store.set("process", str(os.getpid()))
                    left = dist.all_reduce(t, async_op=True)  # it leaves all the same
                else:
                    there = select.poll()
                    there.register(os.pidfd_open(int(store.get("process"))), select.POLLIN)
                    there.poll()
                    os._exit(0)
                """, 2, LAGGARD_EXTENSION=extension)
            self.assertEqual([stderr for _, stderr in ends], ["", ""])

    def test_in_a_forked_child(self):
        found = self.records("""
dist.all_reduce(t)
options = dist.AllreduceOptions()
options.asyncOp = False
left = group.allreduce([t], options)
child = os.fork()
if child == 0:
    left = None
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")
        self.assertEqual(len(found), 2)

    def test_in_python_alone(self):
        found = self.records("for _ in range(3): dist.all_reduce(t)", LAGGARD_EXTENSION="0")
        self.assertEqual([(r["text"], r["value"], r["dtype"]) for r in found], [("all_reduce", 3, "fp32")] * 3)
        self.assertTrue(all(0 < r["exposed"] <= r["dur"] for r in found))


if __name__ == "__main__":
    unittest.main()
