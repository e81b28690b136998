"""Forks, and signals in the middle of a word: who owns which folder and which words."""

import jobs


class Fork(jobs.Case):
    def test_a_child_has_its_own_folder(self):
        self.python("""
            import os, laggard
            laggard.init(job="j")
            outer = laggard.span("FP", tokens=1).begin()
            pid = os.fork()
            if pid == 0:
                outer.end()                       # the parent's: nothing
                with laggard.span("FP", tokens=2): pass
                laggard.recorder.close()
                os._exit(0)
            os.waitpid(pid, 0)
            outer.end()
        """)
        found = self.processes()
        self.assertEqual(sorted([r["value"] for r in p.records("FP")] for p in found), [[1], [2]])
        self.assertEqual(len({p.incarnation for p in found}), 2)
        self.assertEqual([p.state for p in found], [2, 2])

    def test_sixty_four_workers_of_a_busy_parent(self):
        """What DataLoader does, while other threads record and signals come."""
        self.python("""
            import os, signal, threading, laggard
            laggard.init(rank=0, job="j")
            over = threading.Event()
            def busy(n):
                while not over.is_set():
                    with laggard.span("DataLoader", tokens=n): pass
                    with laggard.communication("barrier", "g", n): pass
                    over.wait(0.001)
            threads = [threading.Thread(target=busy, args=(n,)) for n in range(4)]
            [t.start() for t in threads]
            def handler(*_):
                with laggard.span("signal"): pass
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            held = laggard.span("FP", tokens=1000).begin()
            children = []
            for n in range(64):
                pid = os.fork()
                if pid == 0:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                        held.end()                # the parent's: nothing
                        for i in range(20):
                            with laggard.span("FP", tokens=n): pass
                        t = threading.Thread(target=laggard.mark, args=("in a thread", n)); t.start(); t.join()
                        laggard.recorder.close()
                        os._exit(0 if laggard.failures() == 0 else 3)
                    finally:
                        os._exit(1)
                children.append(pid)
                if len(children) == 8:
                    for pid in children: assert os.waitpid(pid, 0)[1] == 0
                    children = []
            signal.setitimer(signal.ITIMER_REAL, 0)
            over.set(); [t.join() for t in threads]
            held.end()
            assert laggard.failures() == 0
        """)
        found = self.processes()
        self.assertEqual(len(found), 65)
        self.assertEqual(len({p.incarnation for p in found}), 65)
        children = [p for p in found if len(p.rings) < 5]
        self.assertEqual(len(children), 64)
        seen = []
        for p in children:
            values = [r["value"] for r in p.records("FP")]
            self.assertEqual(len(values), 20)
            self.assertEqual(len(set(values)), 1)
            self.assertEqual([r["value"] for r in p.records("in a thread")], values[:1])
            seen += values[:1]
        self.assertEqual(sorted(seen), list(range(64)))

    def test_a_child_goes_on_from_whole_strings(self):
        """Forked when another thread is in the middle of a new word."""
        self.python("""
            import os, threading, laggard
            laggard.init(rank=0, job="j")
            laggard.mark("first")
            strings = laggard.recorder.strings
            inside, forking = threading.Event(), threading.Event()
            class Slow(dict):                     # a word's last store, done when the fork begins
                def __setitem__(self, text, number):
                    inside.set(); forking.wait()
                    dict.__setitem__(self, text, number)
            strings._ids = Slow(strings._ids)
            os.register_at_fork(before=forking.set)
            t = threading.Thread(target=strings.id, args=("half a word",)); t.start()
            inside.wait()
            pid = os.fork()
            if pid == 0:
                laggard.mark("child's own", 1)
                laggard.recorder.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            t.join()
        """)
        own = [r["value"] for p in self.processes() for r in p.records("child's own")]
        self.assertEqual(own, [1])

    def test_what_runs_before_the_child_knows(self):
        """A fork ends the other threads of the child, before any hook: what their locals
        do then, or a signal handler meanwhile, changes no byte of the parent's."""
        self.python("""
            import os, threading
            def last_before():                    # hooks run in reverse order: behind the recorder's
                global was
                twice("FP"); twice("FP", tokens=1)
                was = image()
            os.register_at_fork(before=last_before)
            import laggard
            laggard.init(rank=0, job="j")
            laggard.mark("first")
            for _ in range(3):
                with laggard.span("FP"): pass
            folder = laggard.recorder._process.folder
            def image():
                return {name: open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)}
            def twice(kind, **more):
                for _ in range(2):
                    with laggard.span(kind, **more): pass
            parent, ran = os.getpid(), []
            class Leaver(object):
                def __del__(self):
                    if os.getpid() != parent:
                        action()
                        ran.append(1)
            def work():
                laggard.mark("in a thread")
                mine.leaver = Leaver()
                inside.set(); over.wait()
            mine = threading.local()
            before = laggard.span("DataLoader").begin()
            held = laggard.span("Step", tokens=1).begin()
            elsewhere = []
            t = threading.Thread(target=lambda: elsewhere.append(laggard.span("FP", tokens=2).begin())); t.start(); t.join()
            made = laggard.span("FP")
            actions = [before.end, before.cancel, held.end, held.cancel, elsewhere[0].end, lambda: made.begin().end(),
                       made.begin, lambda: twice("FP"), lambda: twice("FP", tokens=7), lambda: twice("DataLoader"),
                       lambda: twice("a new word"), laggard.communication("all_reduce", "a new group").begin,
                       lambda: laggard.recorder.attach(False), lambda: laggard.recorder.no_ring().begin(laggard.span("FP", tokens=3))]
            for action in actions:
                inside, over = threading.Event(), threading.Event()
                t = threading.Thread(target=work, daemon=True); t.start(); inside.wait()
                child = os.fork()
                if child == 0:
                    laggard.mark("a new word", 2)
                    os._exit(0 if ran and laggard.failures() == 0 else 3)
                assert os.waitpid(child, 0)[1] == 0
                now = image()
                assert now == was, (actions.index(action), [name for name in was if now.get(name) != was[name]], list(now))
                over.set(); t.join()
        """)
        for p in self.processes():
            if len(p.rings) == 1:
                self.assertEqual([(r["kind"], r["value"]) for r in p.records()], [("a new word", 2)])

    def test_a_signal_adds_the_same_word(self):
        """Its number is that of one string, and later words keep theirs."""
        self.python("""
            import os, signal, laggard
            laggard.init(rank=0, job="j")
            laggard.mark("first")
            strings = laggard.recorder.strings
            append = strings._append
            def interrupted(*args):               # behind the last look, before the word is begun
                strings._append = append
                os.kill(os.getpid(), signal.SIGUSR1)
                return append(*args)
            signal.signal(signal.SIGUSR1, lambda *_: strings.id("a word"))
            strings._append = interrupted
            laggard.mark("a word", 1)
            laggard.mark("a later word", 2)
        """)
        p, = self.processes()
        self.assertEqual([r["value"] for r in p.records("a word")], [1])
        self.assertEqual([r["value"] for r in p.records("a later word")], [2])
        self.assertEqual(len(p.strings), len(set(p.strings)))

    def test_a_signal_in_the_middle_of_a_word_makes_no_folder(self):
        """It would have no identity, which is a word as well."""
        self.python("""
            import os, signal, laggard
            laggard.init(rank=0, job="j")
            strings, made = laggard.recorder.strings, []
            def handler(*_):
                laggard.mark("in the handler")
                made.append(laggard.recorder._process is not None)
            signal.signal(signal.SIGUSR1, handler)
            class Slow(dict):
                def __setitem__(self, text, number):
                    if text == "a word": os.kill(os.getpid(), signal.SIGUSR1)
                    dict.__setitem__(self, text, number)
            strings._ids = Slow(strings._ids)
            strings.id("a word")
            assert made == [False], made
            laggard.mark("after")
        """)
        p, = self.processes()
        self.assertEqual([r["kind"] for r in p.records()], ["after"])

    def test_the_lock_goes_with_the_parent(self):
        out, _ = self.python("""
            import fcntl, glob, os, signal, time, laggard
            laggard.init()
            laggard.mark("x")
            read, write = os.pipe()
            child = os.fork()
            if child == 0:                        # lives on, and must not hold the lock
                os.close(write)
                os.read(read, 1)                  # until the grandparent's test is over
                path = glob.glob(os.environ["LAGGARD_RUN"] + "/*/process")[0]
                fd = os.open(path, os.O_RDWR)
                signal.alarm(20)
                fcntl.flock(fd, fcntl.LOCK_EX)    # the parent is just going
                print("free", flush=True)
                os._exit(0)
            path = glob.glob(os.environ["LAGGARD_RUN"] + "/*/process")[0]
            fd = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                print("not held")
            except OSError:
                print("held", flush=True)
            os._exit(0)
        """)
        self.assertEqual(sorted(out.split()), ["free", "held"])
