"""The import hook, sitecustomize, and what an unchanged script must not notice."""

import os

import jobs


class Hook(jobs.Case):
    def test_nothing_without_the_variable(self):
        self.python("""
            import sys, torch
            assert "laggard" not in sys.modules
            assert not hasattr(torch.nn.Module.__call__, "__laggard__")
            torch.nn.Linear(2, 2)(torch.ones(1, 2))
        """)
        self.assertEqual(self.processes(), [])

    def test_frameworks_that_changed_cost_a_line_each(self):
        """Modules without what we look for stand for versions that have it elsewhere."""
        _, said = self.python("""
            import sys, types
            from laggard import auto
            from laggard.savers import SAVERS
            names = [name for name, _, _ in auto._COVERS] + ["megatron.core.pipeline_parallel.schedules"]
            names += [name for name in SAVERS if name not in names]
            for name in names:
                sys.modules[name] = types.ModuleType(name)
            import laggard
            laggard.init(auto=True)
            for name in names:
                print(name, file=sys.stderr)
            assert laggard.failures() >= len(names), laggard.failures()
        """)
        ours = [line.split(": ")[1] for line in said.splitlines() if line.startswith("laggard[")]
        names = [line for line in said.splitlines() if not line.startswith("laggard[")]
        self.assertEqual(sorted(ours), sorted("instrument " + name for name in names))

    def test_torch_is_not_imported_by_us(self):
        self.python("""
            import sys
            import laggard
            assert "laggard.auto" in sys.modules and "torch" not in sys.modules
            for heavy in ("torch", "numpy", "asyncio", "multiprocessing", "logging"):
                assert heavy not in sys.modules, heavy
        """, LAGGARD_AUTO="1")
        self.assertEqual(os.listdir(self.run_dir), [])

    def test_the_next_sitecustomize_runs(self):
        theirs = os.path.join(self.work, "theirs")
        os.mkdir(theirs)
        with open(os.path.join(theirs, "sitecustomize.py"), "w") as f:
            f.write("import builtins\nbuiltins.theirs = __file__\n")
        for auto in ("0", "1"):
            out, _ = self.python("import builtins, sys; print(builtins.theirs, sys.modules['sitecustomize'].__file__)",
                                 PYTHONPATH=jobs.PACKAGE + os.pathsep + theirs, LAGGARD_AUTO=auto)
            path = os.path.join(theirs, "sitecustomize.py")
            self.assertEqual(out.split(), [path, path])

    def test_covers_look_like_what_they_cover(self):
        self.python("""
            import copy, inspect, io, pickle
            import torch, torch.distributed as dist
            assert list(inspect.signature(dist.all_reduce).parameters) == ["tensor", "op", "group", "async_op"]
            assert dist.all_reduce.__name__ == "all_reduce" and dist.all_reduce.__doc__
            assert pickle.loads(pickle.dumps(dist.all_reduce)) is dist.all_reduce
            assert pickle.loads(pickle.dumps(torch.save)) is torch.save
            from torch.distributed import all_reduce
            import torch.distributed.distributed_c10d as c
            assert all_reduce is dist.all_reduce is c.all_reduce
            assert torch.__spec__.loader.exec_module.__self__ is torch.__spec__.loader
            assert "def save" in inspect.getsource(torch.save)
            model = torch.nn.Sequential(torch.nn.Linear(2, 2))
            optimizer = torch.optim.Adam(model.parameters())
            copy.deepcopy(model)(torch.ones(1, 2)).sum().backward()
            torch.optim.lr_scheduler.StepLR(optimizer, 1)
            optimizer.step()
            buffer = io.BytesIO(); torch.save(model, buffer); buffer.seek(0)
            assert isinstance(torch.load(buffer), torch.nn.Sequential)
            pickle.loads(pickle.dumps(optimizer))
            scripted = torch.jit.script(model); scripted(torch.ones(1, 2))
            torch.jit.trace(model, torch.ones(1, 2))(torch.ones(1, 2))
            import torch.fx; torch.fx.symbolic_trace(model)(torch.ones(1, 2))
            loss = torch.optim.LBFGS(model.parameters()).step(lambda: model(torch.ones(1, 2)).sum())
        """, LAGGARD_AUTO="1")
        saved = self.process().records("SaveCheckpoint")
        self.assertEqual(len(saved), 1)
        self.assertGreater(saved[0]["value"], 0)

    def test_signals_are_untouched(self):
        self.python("""
            import signal
            before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV)}
            import laggard, torch
            laggard.init(); laggard.mark("x"); torch.nn.Linear(2, 2)(torch.ones(1, 2))
            assert before == {s: signal.getsignal(s) for s in before}
        """, LAGGARD_AUTO="1")
        _, err = self.python("import os, signal, laggard; laggard.init(); laggard.mark('x'); os.kill(os.getpid(), signal.SIGTERM)",
                             code=-15)
        self.assertEqual(err, "")

    def test_a_failing_hook_costs_its_feature_only(self):
        _, err = self.python("""
            import sys, types
            from laggard import modules
            modules.cover.__code__ = compile('lambda torch: 1 / 0', modules.__file__, 'eval').co_consts[0]
            import torch
            m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), .1)
            m(torch.ones(1, 2)).sum().backward(); o.step(); torch.save({}, "x.pt")
            import laggard
            assert laggard.failures() == 1 and laggard.enabled()
        """, LAGGARD_AUTO="1")
        self.assertIn("ZeroDivisionError", err)
        self.assertEqual([r["kind"] for r in self.process().records()], ["SaveCheckpoint"])

    def test_a_handlers_exception_reaches_the_script(self):
        """A time-out that strikes in our code is the script's, not a failure of ours."""
        self.python("""
            import signal, laggard
            laggard.init()
            class TimedOut(Exception): pass
            def handler(*_): raise TimedOut
            signal.signal(signal.SIGALRM, handler)
            laggard.mark("x")
            for n in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + n * 1e-7)
                    while True:
                        with laggard.span("FP"): pass
                except TimedOut:
                    pass
            assert laggard.enabled() and laggard.failures() == 0
        """)


class ByHand(jobs.Case):
    def test_wrap(self):
        self.python("""
            import laggard
            laggard.init()
            class Saver(object):
                def save(self, path, n=1):
                    '''Saves.'''
                    if n < 0: raise ValueError
                    return path * n
            laggard.wrap(Saver, "save", "SaveCheckpoint"); laggard.wrap(Saver, "save", "SaveCheckpoint")
            assert Saver().save("a", n=2) == "aa" and Saver.save.__doc__ == "Saves."
            one = Saver(); laggard.wrap(one, "save", "export"); one.save("b")
            try: Saver().save("c", -1)
            except ValueError: pass
            else: raise SystemExit("swallowed")
        """)
        self.assertEqual(sorted(r["kind"] for r in self.process().records()),
                         ["SaveCheckpoint", "SaveCheckpoint", "SaveCheckpoint", "export"])

    def test_wrap_of_a_generator(self):
        self.python("""
            import laggard
            laggard.init()
            class Stream(object):
                closed = 0
                def __iter__(self):
                    try:
                        for n in range(3): yield n
                    finally:
                        Stream.closed += 1
            laggard.wrap(Stream, "__iter__", "DataLoader"); laggard.wrap(Stream, "__iter__", "DataLoader")
            assert list(Stream()) == [0, 1, 2]
            for n in Stream():
                break
            import gc; gc.collect()
            assert Stream.closed == 2, Stream.closed
        """)
        self.assertEqual([r["kind"] for r in self.process().records()], ["DataLoader"] * 4)

    def test_wrap_of_an_iterator(self):
        self.python("""
            import laggard
            laggard.init()
            class Loader(object):
                left = 3
                def __iter__(self): return self
                def __next__(self):
                    self.left -= 1
                    if self.left < 0: raise StopIteration
                    return self.left
            laggard.wrap(Loader, "__next__", "DataLoader")
            assert list(Loader()) == [2, 1, 0]
        """)
        self.assertEqual([r["kind"] for r in self.process().records()], ["DataLoader"] * 3)

    def test_odd_arguments_do_no_harm(self):
        self.python("""
            import laggard
            laggard.init()
            for tokens in (None, "x", -1, 3.7, 2**80, float("nan")):
                with laggard.span("FP", tokens=tokens): pass
                with laggard.step(tokens, tokens): pass
            with laggard.span("\\ud800 \\u00e9 \\n"): pass
            with laggard.communication(None, None, None, None, 3): pass
            with laggard.span("SaveCheckpoint", path="x" * 10000): pass
            assert laggard.enabled() and laggard.failures() == 0
        """)
        self.assertEqual(len(self.process().records()), 15)

    def test_strings_run_out(self):
        self.python("""
            import laggard
            laggard.init()
            for n in range(900):
                with laggard.span("SaveCheckpoint", path="/checkpoint/%d/" % n + "x" * 600): pass
            with laggard.communication("all_reduce", "late-group"): pass
            assert laggard.enabled() and laggard.failures() == 0
        """)
        p = self.process()
        self.assertGreater(p.refused, 0)
        self.assertEqual(p.records("Communication")[0]["group"], "late-group")  # paths leave room
        self.assertEqual(len(p.records("SaveCheckpoint")), 900)
