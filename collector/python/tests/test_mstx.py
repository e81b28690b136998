"""mstx ranges on a machine without an NPU, and NVTX ranges beside ours."""

import os

import jobs


class Mstx(jobs.Case):
    def test_every_kind(self):
        self.python(r"""
            import mstx
            step = mstx.range_start("step 12", stream=object())
            for name in ("forward", "dataloader", "save_checkpoint", "rollout", ""):
                mstx.range_end(mstx.range_start(name))
            text = '{"streamId": "55","count": "4194304","dataType": "bfp16","groupName": "dp0","opName": "HcclAllreduce"}'
            for each in (text, text.replace('"', '\\"')):
                mstx.range_end(mstx.range_start(each, None, "communication"), "communication")
            recv = '{"opName": "HcclRecv", "srcRank": "3", "destRank": "0", "count": 7}'
            mstx.range_end(mstx.range_start(recv, domain="communication"), domain="communication")
            mstx.range_end(mstx.range_start("load", domain="mine"))
            mstx.mark("step 13")
            mstx.range_end(step)
            mstx.range_end(step); mstx.range_end(0); mstx.range_end(None)
            mstx.mark("after")
        """)
        p = self.process()
        self.assertEqual([(r["kind"], r["step"]) for r in p.records()], [
            ("Step", 12), ("FP", 12), ("DataLoader", 12), ("SaveCheckpoint", 12), ("rollout", 12), ("unnamed", 12),
            ("Communication", 12), ("Communication", 12), ("Communication", 12), ("load", 12), ("step 13", 12),
            ("after", -1)])
        self.assertEqual([(r["text"], r["group"], r["value"], r["dtype"], r["peer"]) for r in p.records("Communication")],
                         [("HcclAllreduce", "dp0", 4194304, "bf16", -1)] * 2 + [("HcclRecv", "", 7, "", 3)])
        self.assertEqual(p.records("load")[0]["group"], "mine")
        self.assertEqual(p.opened(), [])

    def test_steps_overlap_and_threads_end_what_others_began(self):
        self.python("""
            import mstx, threading
            one = mstx.range_start("step 1"); two = mstx.range_start("step 2")
            mstx.range_end(one); mstx.mark("in 2")
            t = threading.Thread(target=mstx.range_end, args=(two,)); t.start(); t.join()
            mstx.mark("outside")
        """)
        p = self.process()
        self.assertEqual([(r["kind"], r["step"]) for r in p.records()],
                         [("Step", 1), ("Step", 2), ("in 2", 2), ("outside", -1)])

    def test_what_is_off_has_no_id(self):
        self.python("""
            import mstx
            assert mstx.range_start("step 1") == 0
            assert mstx.range_start("x", domain="communication") == 0
            mstx.range_end(0)
        """, LAGGARD_TRACE="off")
        self.assertEqual(self.process().records(), [])

    def test_nonsense_does_no_harm(self):
        self.python(r"""
            import mstx, laggard
            assert mstx.range_start(None) == 0 and mstx.range_start("x" * 255) == 0 and mstx.range_start("x", domain=5) == 0
            mstx.mark(7)
            number = mstx.range_start("x"); mstx.range_end([]); mstx.range_end(number)
            assert laggard.failures() == 1 and laggard.enabled()
            for bad in ('{', '{"count": "many", "destRank": "-2"}', '[1]', '\\', '{"opName": {}}'):
                number = mstx.range_start(bad, domain="communication")
                assert number > 0
                mstx.range_end(number)
            ids = [mstx.range_start("many") for _ in range(5000)]
            assert ids.count(0) == 5000 - 4096
            @mstx.mstx_range("decorated")
            def fails(): raise ValueError
            for number in ids: mstx.range_end(number)
            try: fails()
            except ValueError: pass
        """)
        self.assertEqual(len(self.process().records("decorated")), 0)  # the light ring was full by then

    def test_an_installed_mstx_goes_first(self):
        theirs = os.path.join(self.work, "theirs")
        os.mkdir(theirs)
        with open(os.path.join(theirs, "mstx.py"), "w") as f:
            f.write("theirs = True\n")
        both = os.pathsep.join([jobs.PACKAGE, theirs])
        self.python("import mstx; assert mstx.theirs and not hasattr(mstx, 'range_start')", PYTHONPATH=both)
        with open(os.path.join(theirs, "mstx.py"), "w") as f:
            f.write("import no_such_driver\n")
        _, err = self.python("import mstx; assert mstx.range_start('x') == 1", PYTHONPATH=both)
        self.assertIn("no_such_driver", err)


class Nvtx(jobs.Case):
    FAKE = """
        import sys, types
        calls = []
        nvtx = types.ModuleType("torch.cuda.nvtx")
        nvtx.range_start = lambda name: calls.append(("start", name)) or len(calls)
        nvtx.range_end = lambda number: calls.append(("end", calls[number - 1][1]))
        sys.modules["torch.cuda.nvtx"] = nvtx
        import laggard
        laggard.init()
    """

    def test_ranges_are_shown(self):
        self.python(self.FAKE + """
        with laggard.step(4):
            with laggard.span("FP"): pass
            with laggard.span("rollout", tokens=3): pass
        span = laggard.communication("all_reduce", "dp0", 5).begin()
        span.end(); span.end()
        laggard.span("DataLoader").begin().cancel()
        names = ["Step 4", "FP", "FP", "rollout", "rollout", "Step 4", "all_reduce", "all_reduce", "DataLoader", "DataLoader"]
        assert [name for _, name in calls] == names, calls
        assert [what for what, _ in calls] == ["start", "start", "end", "start", "end", "end"] + ["start", "end"] * 2, calls
        """, LAGGARD_NVTX="1")
        self.assertEqual(len(self.process().records()), 4)

    def test_not_without_the_variable(self):
        self.python(self.FAKE + """
        with laggard.span("FP"): pass
        assert calls == []
        """)

    def test_a_failing_nvtx_is_left_alone(self):
        _, err = self.python(self.FAKE + """
        torch = {"__name__": "torch.cuda.nvtx"}
        exec("def range_start(name): raise RuntimeError('NVTX functions not installed')", torch)
        nvtx.range_start = torch["range_start"]
        for _ in range(3):
            with laggard.span("FP"): pass
        assert laggard.failures() == 1
        """, LAGGARD_NVTX="1")
        self.assertEqual(err.count("NVTX functions not installed"), 1)
        self.assertEqual(len(self.process().records("FP")), 3)
