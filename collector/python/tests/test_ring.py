"""The ring: what is published, what is not, and what lies in the open table."""

import os
import struct

import jobs
import rings


class Publish(jobs.Case):
    def test_every_field_arrives(self):
        self.python("""
            import laggard
            laggard.init(rank=3, world_size=8, local_rank=1, job="j", node="n")
            with laggard.step(120, tokens=4096):
                with laggard.span("FP", tokens=2048):
                    pass
                with laggard.communication("HcclAllreduce", "dp0", 4194304, "torch.bfloat16"):
                    pass
                with laggard.communication("send", "pp0", 7, "fp32", peer=2):
                    pass
                with laggard.span("SaveCheckpoint", path="/ckpt/1"):
                    pass
                with laggard.span("DataLoader"):
                    pass
                with laggard.span("rollout"):
                    pass
            laggard.mark("saved")
        """)
        p = self.process()
        self.assertEqual((p.meta["job"], p.meta["rank"], p.meta["world_size"], p.meta["local_rank"], p.meta["node"]),
                         ("j", 3, 8, 1, "n"))
        self.assertEqual((p.meta["format"], p.meta["writer"], p.meta["pid"]), ("laggard/1", "python/1", p.pid))
        self.assertEqual(p.meta["incarnation"], "%016x" % p.incarnation)
        self.assertEqual(os.path.basename(p.folder), p.meta["incarnation"])
        self.assertEqual(p.state, 2)
        self.assertEqual([(r["kind"], r["step"], r["value"]) for r in p.records()], [
            ("Step", 120, 4096), ("FP", 120, 2048), ("Communication", 120, 4194304), ("Communication", 120, 7),
            ("SaveCheckpoint", 120, 0), ("DataLoader", 120, 0), ("rollout", 120, 0), ("saved", -1, 0)])
        first, second = p.records("Communication")
        self.assertEqual((first["text"], first["group"], first["dtype"], first["peer"]),
                         ("HcclAllreduce", "dp0", "bf16", -1))
        self.assertEqual((second["text"], second["group"], second["dtype"], second["peer"]), ("send", "pp0", "fp32", 2))
        self.assertEqual(first["exposed"], first["dur"])
        self.assertEqual(p.records("SaveCheckpoint")[0]["text"], "/ckpt/1")
        step = p.records("Step")[0]
        for r in p.records()[1:7]:
            self.assertLessEqual(step["start"], r["start"])
            self.assertLessEqual(r["start"] + r["dur"], step["start"] + step["dur"])
        self.assertEqual(p.opened(), [])

    def test_incarnation_is_that_of_the_other_recorders(self):
        from laggard.process import hash_id
        # record.IncarnationOf("boot", 1, 2) in Go.
        self.assertEqual("%016x" % hash_id("boot", "1", "2"), "46f4392a58a8a4a8")

    def test_modes_and_sizes(self):
        self.python("import laggard; laggard.init(); laggard.mark('x')")
        p = self.process()
        self.assertEqual(os.stat(p.folder).st_mode & 0o777, 0o770)
        self.assertEqual(sorted(os.listdir(p.folder)), ["process", "ring-1"])
        for name, size in (("process", 4096 + 262144), ("ring-1", 8192 + 64 * (1024 + 32768))):
            st = os.stat(os.path.join(p.folder, name))
            self.assertEqual((st.st_size, st.st_mode & 0o777), (size, 0o660))
            self.assertGreaterEqual(st.st_blocks * 512, size)

    def test_setgid_is_handed_down(self):
        os.chmod(self.run_dir, 0o2770)
        for run in (self.run_dir, os.path.join(self.run_dir, "made", "here")):
            self.python("import laggard; laggard.init(); laggard.mark('x')", LAGGARD_RUN=run)
            found = [p for p in os.listdir(run) if p != "made"]
            self.assertEqual(len(found), 1)
            self.assertEqual(os.stat(os.path.join(run, found[0])).st_mode & 0o7777, 0o2770)

    def test_no_ring_before_the_first_range(self):
        self.python("import laggard; laggard.init(); laggard.span('FP')")
        self.assertEqual(os.listdir(self.run_dir), [])

    def test_nothing_without_init(self):
        self.python("import laggard\nwith laggard.span('FP'): pass")
        self.assertEqual(os.listdir(self.run_dir), [])

    def test_run_directory_is_made_for_all(self):
        run = os.path.join(self.run_dir, "a", "b")
        self.python("import laggard; laggard.init(); laggard.mark('x')", LAGGARD_RUN=run)
        self.assertEqual(os.stat(run).st_mode & 0o7777, 0o1777)
        self.assertEqual(len(rings.load(run)), 1)

    def test_full_ring_drops_the_newest_and_counts(self):
        self.python("""
            import laggard
            laggard.init()
            for i in range(1500):
                with laggard.span("FP", tokens=i): pass
            for i in range(40000):
                with laggard.communication("all_reduce", count=i): pass
            for i in range(10):
                with laggard.span("DataLoader"): pass
        """)
        p = self.process()
        ring = p.rings[0]
        self.assertEqual(ring.heads, (1024, 32768))
        self.assertEqual(ring.dropped[:6], (0, 0, 1500 - 1024, 40000 - 32768, 0, 10))
        self.assertEqual(ring.emitted[:6], (0, 0, 1500, 40000, 0, 10))
        self.assertEqual([r["value"] for r in p.records("FP")], list(range(1024)))
        self.assertEqual([r["value"] for r in p.records("Communication")], list(range(32768)))

    def test_room_comes_back_with_the_tail(self):
        self.python("""
            import glob, os, struct, laggard
            laggard.init()
            for i in range(1100):
                with laggard.span("FP", tokens=i): pass
            fd = os.open(glob.glob(os.environ["LAGGARD_RUN"] + "/*/ring-1")[0], os.O_RDWR)
            os.pwrite(fd, struct.pack("<Q", 1000), 128)
            for i in range(500):
                with laggard.span("FP", tokens=10000 + i): pass
        """)
        ring = self.process().rings[0]
        self.assertEqual((ring.heads[0], ring.dropped[2]), (1524, 76))
        self.assertEqual([r["value"] for r in ring.records], list(range(1000, 1024)) + list(range(10000, 10500)))

    def test_a_lying_tail_does_no_harm(self):
        self.python("""
            import glob, os, struct, laggard
            laggard.init()
            laggard.mark("x")
            fd = os.open(glob.glob(os.environ["LAGGARD_RUN"] + "/*/ring-1")[0], os.O_RDWR)
            os.pwrite(fd, struct.pack("<Q", 2**64 - 5), 128)
            for i in range(3000):
                laggard.mark("y")
            assert laggard.enabled() and laggard.failures() == 0
        """)


class Open(jobs.Case):
    def killed(self, text):
        self.python(text + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", code=-9)
        return self.process()

    def test_nested_ranges_are_listed(self):
        p = self.killed("""
import laggard
laggard.init()
with laggard.span("FP"): pass
laggard.step(7).__enter__()
laggard.span("FP").__enter__()
laggard.communication("barrier", "default").__enter__()
""")
        self.assertEqual([(r["kind"], r["step"], r["group"]) for r in p.opened()],
                         [("Step", 7, ""), ("FP", 7, ""), ("Communication", 7, "default")])
        self.assertEqual(p.state, 1)

    def test_overlapping_ranges_keep_their_places(self):
        p = self.killed("""
import laggard
laggard.init()
a, b, c = laggard.span("a"), laggard.span("b"), laggard.span("c")
a.begin(); b.begin(); a.end(); c.begin(); b.end()
laggard.span("d").begin()
""")
        self.assertEqual(sorted(r["kind"] for r in p.opened()), ["c", "d"])
        self.assertEqual([r["kind"] for r in p.records()], ["a", "b"])

    def test_more_levels_than_the_table_has(self):
        p = self.killed("""
import laggard
laggard.init()
spans = [laggard.span("FP", tokens=i).begin() for i in range(80)]
for s in spans[60:]: s.end()
""")
        self.assertEqual(len(p.opened()), 60)
        self.assertEqual(sorted(r["value"] for r in p.records()), list(range(60, 80)))


    def test_ranges_of_one_kind_nest_and_overlap(self):
        p = self.killed("""
import laggard
laggard.init()
laggard.mark("first")
laggard.recorder.state.step = 3
a, b, c = [laggard.span("FP").begin() for _ in range(3)]
laggard.recorder.state.step = 4
b.end(); b.end(); a.end()
with laggard.span("FP"):
    with laggard.span("FP"): pass
laggard.span("FP").end()
d = laggard.span("FP").begin(); d.cancel(); d.end()
e = laggard.span("FP"); e.begin(); e.end(exposed=5); e.end()
f = laggard.span("FP").begin()
""")
        self.assertEqual([(r["kind"], r["step"]) for r in p.opened()], [("FP", 3), ("FP", 4)])
        self.assertEqual([(r["step"], r.get("exposed")) for r in p.records("FP")],
                         [(3, None), (3, None), (4, None), (4, None), (4, 5)])
        self.assertEqual(p.rings[0].emitted[2], 5)

    def test_a_range_that_an_exception_left_open_ends_at_the_next(self):
        p = self.killed("""
import laggard
laggard.init()
laggard.mark("first")
laggard.span("FP").begin()
with laggard.span("FP"): pass
laggard.span("a").begin()
""")
        self.assertEqual(p.opened()[-1]["kind"], "a")
        self.assertEqual(len(p.records("FP")), 1)

    def test_more_kinds_than_the_table_has(self):
        p = self.killed("""
import laggard
laggard.init()
laggard.mark("first")
for _ in range(2):
    for n in range(80):
        with laggard.span("kind %d" % n): pass
held = [laggard.span("kind %d" % n).begin() for n in range(80)]
""")
        self.assertEqual([r["kind"] for r in p.records()], ["first"] + ["kind %d" % n for n in range(80)] * 2)
        self.assertEqual(len(p.opened()), 64)


class Threads(jobs.Case):
    def test_each_thread_has_a_ring(self):
        self.python("""
            import laggard, threading
            laggard.init()
            gate = threading.Barrier(6)
            def work(n):
                gate.wait()
                for i in range(250):
                    with laggard.span("FP", tokens=n * 1000 + i): pass
                gate.wait()
            threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
            [t.start() for t in threads]; [t.join() for t in threads]
        """)
        p = self.process()
        self.assertEqual(len(p.rings), 6)
        self.assertEqual(sorted(r["value"] for r in p.records()), [n * 1000 + i for n in range(6) for i in range(250)])
        self.assertEqual(len({r.thread for r in p.rings}), 6)
        self.assertLessEqual(sum(os.path.getsize(os.path.join(p.folder, n)) for n in os.listdir(p.folder)), 16 << 20)

    def test_threads_come_and_go_without_end(self):
        self.python("""
            import laggard, threading
            laggard.init()
            for n in range(200):
                t = threading.Thread(target=laggard.mark, args=("x", n)); t.start(); t.join()
        """)
        p = self.process()
        self.assertLessEqual(len(p.rings), 2)
        self.assertEqual(sorted(r["value"] for r in p.records()), list(range(200)))

    def test_budget_ends_and_the_loss_is_counted(self):
        self.python("""
            import laggard, threading
            laggard.init()
            gate = threading.Barrier(60)
            def work(n):
                gate.wait(); laggard.mark("FP"); gate.wait()
            threads = [threading.Thread(target=work, args=(n,)) for n in range(60)]
            [t.start() for t in threads]; [t.join() for t in threads]
            assert laggard.enabled() and laggard.failures() == 0
        """)
        p = self.process()
        self.assertEqual(len(p.records("FP")) + p.lost[2], 60)
        self.assertGreater(len(p.rings), 8)
        size = sum(os.path.getsize(os.path.join(p.folder, n)) for n in os.listdir(p.folder))
        self.assertLessEqual(size, 16 << 20)

    def test_a_range_may_end_in_another_thread(self):
        self.python("""
            import laggard, threading
            laggard.init()
            s = laggard.span("FP", tokens=1).begin()
            t = threading.Thread(target=s.end); t.start(); t.join()
            with laggard.span("FP", tokens=2): pass
        """)
        p = self.process()
        self.assertEqual([r["value"] for r in p.records("FP")], [1, 2])
        self.assertEqual(p.opened(), [])


    def test_a_range_may_outlive_its_thread(self):
        self.python("""
            import laggard, threading
            laggard.init()
            def begin():
                laggard.mark("first")
                held.append(laggard.span("FP").begin())
            held = []
            for _ in range(2):
                t = threading.Thread(target=begin); t.start(); t.join()
            for s in held:
                t = threading.Thread(target=s.end); t.start(); t.join()
            for _ in range(2):
                t = threading.Thread(target=laggard.mark, args=("FP",)); t.start(); t.join()
        """)
        p = self.process()
        self.assertEqual(len(p.records("FP")), 4)
        self.assertEqual(p.opened(), [])

    def test_ranges_may_change_threads(self):
        """Each is begun in one and ended in another, while both record."""
        self.python("""
            import laggard, queue, sys, threading
            laggard.init()
            sys.setswitchinterval(1e-6)
            laggard.mark("first")
            over = queue.Queue(20)
            def other():
                for s in iter(over.get, None):
                    s.end()
                    with laggard.span("FP"): pass
            t = threading.Thread(target=other); t.start()
            for n in range(400):
                s = laggard.span("FP").begin()
                over.put(s)
                with laggard.span("FP"): pass
            over.put(None); t.join()
            assert laggard.failures() == 0
        """)
        p = self.process()
        self.assertEqual(len(p.records("FP")), 1200)
        self.assertEqual(sum(r.emitted[2] for r in p.rings), 1200)
        self.assertEqual(p.opened(), [])


class Interrupts(jobs.Case):
    def test_signal_handlers_may_record(self):
        self.python("""
            import laggard, signal, time
            laggard.init()
            count = 0
            def handler(*_):
                global count
                with laggard.span("DataLoader", tokens=count): pass
                with laggard.span("a"): pass          # of the kind that may be interrupted
                count += 1
            n = 0
            import glob, os, struct
            signal.signal(signal.SIGALRM, handler)
            laggard.mark("first")
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            fd = os.open(glob.glob(os.environ["LAGGARD_RUN"] + "/*/ring-1")[0], os.O_RDWR)
            while count < 300 and n < 4000:
                for _ in range(20):
                    with laggard.span("a"): pass
                    with laggard.communication("barrier", count=n): pass
                n += 1
                if n % 10 == 0:
                    os.pwrite(fd, os.pread(fd, 8, 64), 128)
                    os.pwrite(fd, os.pread(fd, 8, 192), 256)
            signal.setitimer(signal.ITIMER_REAL, 0)
            with laggard.span("FP", tokens=count): pass
            print(count, n * 20)
        """)
        p = self.process()
        ring = p.rings[0]
        count = p.records("FP")[0]["value"]
        self.assertGreater(count, 10)
        self.assertEqual(ring.emitted[5], count)
        self.assertEqual(ring.emitted[0], ring.emitted[3] + count + 1)
        self.assertEqual(ring.heads[0], sum(ring.emitted[k] for k in (0, 1, 2, 4, 5)) - sum(ring.dropped))
        self.assertEqual(p.opened(), [])

    def test_an_exception_in_the_middle_leaves_the_ring_whole(self):
        self.python("""
            import laggard, signal
            laggard.init()
            class Stop(Exception): pass
            def handler(*_): raise Stop
            signal.signal(signal.SIGALRM, handler)
            stopped = 0
            laggard.mark("x")
            while stopped < 300:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.00005 + stopped * 1e-7)
                    while True:
                        with laggard.span("FP"): pass
                except Stop:
                    stopped += 1
            with laggard.span("Step"): pass
            assert laggard.enabled(), "turned off"
        """)
        p = self.process()
        ring = p.rings[0]
        self.assertLessEqual(ring.heads[0], sum(ring.emitted))
        self.assertLessEqual(len(p.opened()), 64)


class Broken(jobs.Case):
    def check(self, **env):
        _, err = self.python("""
            import laggard, threading
            laggard.init()
            for i in range(100):
                with laggard.step(i):
                    with laggard.span("FP"): pass
            t = threading.Thread(target=laggard.mark, args=("x",)); t.start(); t.join()
            assert not laggard.enabled()
            assert laggard.failures() == 1, laggard.failures()
        """, **env)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("training goes on", err)

    def test_run_directory_is_a_file(self):
        path = os.path.join(self.work, "file")
        open(path, "w").close()
        self.check(LAGGARD_RUN=path)

    def test_run_directory_can_not_be_made(self):
        self.check(LAGGARD_RUN="/proc/laggard")

    def test_tmpfs_is_full(self):
        """Runs in a mount namespace with a tmpfs of 100 KiB."""
        small = os.path.join(self.work, "small")
        os.mkdir(small)
        path = self.script("""
            import laggard
            laggard.init()
            for i in range(100):
                with laggard.span("FP"): pass
            assert not laggard.enabled() and laggard.failures() == 1
        """)
        self.mounted(small, "100k", path)
        self.assertEqual(os.listdir(small), [])

    def test_tmpfs_is_full_after_the_first_ring(self):
        small = os.path.join(self.work, "small")
        os.mkdir(small)
        path = self.script("""
            import glob, os, struct, threading, laggard
            laggard.init()
            with laggard.span("FP", tokens=1): pass
            t = threading.Thread(target=laggard.mark, args=("FP",)); t.start()
            gate = threading.Barrier(4)                       # four that live at once
            def hold(): gate.wait(); laggard.mark("FP"); gate.wait()
            many = [threading.Thread(target=hold) for _ in range(4)]
            [m.start() for m in many]; [m.join() for m in many]
            with open(os.environ["LAGGARD_RUN"] + "/fill", "wb") as f:
                try:
                    while True: f.write(bytes(65536)); f.flush()
                except OSError: pass
            for i in range(900):
                with laggard.span("FP", tokens=i): pass       # touched: no SIGBUS
            assert laggard.enabled() and laggard.failures() == 0
            raw = open(glob.glob(os.environ["LAGGARD_RUN"] + "/*/process")[0], "rb").read()
            assert struct.unpack_from("<Q", raw, 256 + 16)[0] >= 1, "lost without a ring is counted"
        """)
        self.mounted(small, "5m", path)

    def mounted(self, folder, size, path):
        import subprocess
        import sys
        command = "mount -t tmpfs -o size=%s none '%s' && exec '%s' '%s'" % (size, folder, sys.executable, path)
        done = subprocess.run(["unshare", "-rm", "sh", "-c", command], env=self.environment(LAGGARD_RUN=folder),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr
