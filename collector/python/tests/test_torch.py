"""Unchanged PyTorch scripts in real processes over gloo."""

import os

import jobs

OPERATIONS = """
    import time
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(48, 16), torch.randn(48, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
    class Checked(nn.Module):                       # activation checkpointing
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(16, 300), nn.Linear(300, 4)
        def forward(self, x):
            x = x.requires_grad_()
            from torch.utils.checkpoint import checkpoint
            return self.last(checkpoint(self.first, x))
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096
    model = DDP(Checked(), bucket_cap_mb=0.01)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    criterion = nn.MSELoss()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step(); scheduler.step()
        if i == 2:
            torch.save(model.state_dict(), "checkpoint-%d.pt" % rank)
    with torch.no_grad():
        model(x)
    half = dist.new_group([0, 1])
    t = torch.full((6,), float(rank + 1))
    total = world * (world + 1) / 2

    def check(got, want):
        assert torch.equal(torch.as_tensor(got).float(), torch.as_tensor(want).float()), (got, want)

    a = t.clone(); dist.all_reduce(a); check(a, torch.full((6,), total))
    a = t.clone(); work = dist.all_reduce(a, async_op=True)
    assert isinstance(work, dist.Work), type(work)
    assert type(work).__name__ == "Work" and work.wait() and work.is_completed()
    check(a, torch.full((6,), total))
    if rank < 2:
        a = t.double(); dist.all_reduce(a, group=half); check(a, torch.full((6,), 3.0))
    parts = [torch.zeros(6) for _ in range(world)]; dist.all_gather(parts, t); check(parts[-1], torch.full((6,), float(world)))
    a = t.to(torch.float16).clone(); dist.broadcast(a, 1); check(a, torch.full((6,), 2.0))
    a = t.clone(); dist.reduce(a, 0)
    a = t.clone(); dist.gather(a, parts if rank == 0 else None)
    a = torch.zeros(6); dist.scatter(a, [torch.full((6,), float(i)) for i in range(world)] if rank == 0 else None); check(a, torch.full((6,), float(rank)))
    dist.barrier()
    objects = [None] * world; dist.all_gather_object(objects, {"rank": rank}); assert objects[1] == {"rank": 1}
    one = [rank]; dist.broadcast_object_list(one); assert one == [0]
    if rank == 0:
        dist.send(t, 1); dist.isend(t.long(), 1).wait()
    elif rank == 1:
        a = torch.zeros(6); assert dist.recv(a, 0) == 0; check(a, torch.ones(6))
        a = torch.zeros(6, dtype=torch.long); dist.irecv(a, 0).wait(); check(a, torch.ones(6))
    if rank < 2:
        a = torch.zeros(6)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, t, 1 - rank, half), dist.P2POp(dist.irecv, a, 1 - rank, half)])
        [w.wait() for w in works]; check(a, torch.full((6,), 2.0 - rank))
    many = [dist.all_reduce(t.clone(), async_op=True) for _ in range(50)]
    [w.wait() for w in many]
    dist.all_reduce(t.clone(), async_op=True)   # nobody waits
    dist.barrier()
    dist.destroy_process_group()
"""


class Operations(jobs.Case):
    def test_all_kinds_and_operations(self):
        world = 3
        self.ranks(OPERATIONS, world)
        found = self.processes()
        self.assertEqual([p.meta["rank"] for p in found], list(range(world)))  # and no DataLoader worker
        for p in found:
            with self.subTest(rank=p.meta["rank"]):
                self.rank(p, world)

    def rank(self, p, world):
        rank = p.meta["rank"]
        self.assertEqual((p.meta["world_size"], p.meta["local_rank"], p.state), (world, rank, 2))
        self.assertEqual(p.opened(), [])
        groups = {g["name"]: (g["dim"], g["ranks"], g["index"]) for g in p.meta["groups"]}
        self.assertEqual(groups["default"], ("dp", [0, 1, 2], rank))
        if rank < 2:
            self.assertEqual(groups["pg1"], ("other", [0, 1], rank))
        self.steps(p)
        self.buckets(p)
        got = [(r["text"], r["group"], r["value"], r["dtype"], r["peer"]) for r in p.records("Communication")]
        got = got[len([r for r in p.records("Communication") if r["step"] < 6]):]
        want = [("all_reduce", "default", 6, "fp32", -1)] * 2
        if rank < 2:
            want += [("all_reduce", "pg1", 6, "fp64", -1)]
        want += [("all_gather", "default", 6, "fp32", -1), ("broadcast", "default", 6, "fp16", -1),
                 ("reduce", "default", 6, "fp32", -1), ("gather", "default", 6, "fp32", -1),
                 ("scatter", "default", 6, "fp32", -1), ("barrier", "default", 0, "", -1)]
        objects = [g for g in got if "object" in g[0]]
        self.assertEqual([(g[0], g[1], g[3]) for g in objects], [("all_gather_object", "default", "uint8"),
                                                               ("broadcast_object_list", "default", "uint8")])
        self.assertTrue(all(g[2] > 0 for g in objects))
        got = [g for g in got if "object" not in g[0]]
        if rank == 0:
            want += [("send", "default", 6, "fp32", 1), ("isend", "default", 6, "int64", 1)]
        if rank == 1:
            want += [("recv", "default", 6, "fp32", 0), ("irecv", "default", 6, "int64", 0)]
        if rank < 2:
            want += [("batch_isend_irecv", "pg1", 12, "fp32", 1 - rank)]
        want += [("all_reduce", "default", 6, "fp32", -1)] * 51 + [("barrier", "default", 0, "", -1)]
        self.assertEqual(got, want)
        for r in p.records("Communication"):
            self.assertGreaterEqual(r["exposed"], 0)
            self.assertLessEqual(r["exposed"], r["dur"])

    def steps(self, p):
        steps = p.records("Step")
        self.assertEqual([s["step"] for s in steps], list(range(6)))
        for one, two in zip(steps, steps[1:]):
            gap = two["start"] - one["start"] - one["dur"]  # nothing but our own code, on a busy machine
            self.assertTrue(0 <= gap < 500000000, gap)
        for kind in ("FP", "DataLoader", "backward"):
            self.assertEqual([r["step"] for r in p.records(kind)], list(range(6)), kind)
        saved = p.records("SaveCheckpoint")
        name = "checkpoint-%d.pt" % p.meta["rank"]
        self.assertEqual([(s["text"], s["step"]) for s in saved], [(name, 3)])
        self.assertEqual(saved[0]["value"], os.path.getsize(os.path.join(self.work, name)))
        self.assertEqual(len(p.records("evaluation")), 1)

    def buckets(self, p):
        """DDP's gradients: 300*16 + 300 + 4*300 + 4 elements in each step."""
        for n in range(6):
            buckets = [r for r in p.records("Communication") if r["step"] == n]
            self.assertEqual(sum(r["value"] for r in buckets), 300 * 16 + 300 + 4 * 300 + 4)
            self.assertEqual({(r["text"], r["group"], r["dtype"]) for r in buckets}, {("allreduce", "default", "fp32")})
            if n > 1:
                self.assertGreater(len(buckets), 1)  # rebuilt
            backward = [r for r in p.records("backward") if r["step"] == n][0]
            self.assertLessEqual(sum(r["exposed"] for r in buckets), backward["dur"])


    def test_p2p_functions_from_before_us(self):
        self.ranks("""
            import torch, torch.distributed as dist
            from torch.distributed import P2POp, isend, irecv
            dist.init_process_group("gloo")
            import laggard
            laggard.init(auto=True)
            got, peer = torch.zeros(6), 1 - dist.get_rank()
            for w in dist.batch_isend_irecv([P2POp(isend, torch.ones(6), peer), P2POp(op=irecv, tensor=got, peer=peer)]):
                w.wait()
            assert torch.equal(got, torch.ones(6))
            try: P2POp(dist.all_reduce, got, peer)
            except (RuntimeError, ValueError): pass
            else: raise SystemExit("P2POp takes anything")
        """, 2, LAGGARD_AUTO=None)
        for p in self.processes():
            self.assertEqual([(r["text"], r["value"]) for r in p.records("Communication")], [("batch_isend_irecv", 12)])


class Steps(jobs.Forking):
    def test_accumulation_gan_scaler_and_nesting(self):
        self.python("""
            import torch
            from torch import nn
            model = nn.Linear(4, 4)
            opt = torch.optim.SGD(model.parameters(), 0.1)
            def micro():
                model(torch.ones(2, 4)).sum().backward()
            for _ in range(4):              # gradient accumulation: steps 0-3, two FP each
                micro(); micro(); opt.step(); opt.zero_grad()
            class Sub(torch.optim.Adam):    # nested: an overridden step that calls the one above
                def step(self, closure=None):
                    return super().step(closure)
            del opt
            sub = Sub(model.parameters())
            scaler = torch.cuda.amp.GradScaler(enabled=False)
            for _ in range(3):              # and one inside GradScaler.step: once a step
                micro(); scaler.step(sub)
        """, LAGGARD_AUTO="1")
        p = self.process()
        self.assertEqual([s["step"] for s in p.records("Step")], list(range(7)))
        self.assertEqual([r["step"] for r in p.records("FP")], [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6])
        self.assertEqual(p.opened(), [])

    def test_several_optimizers_make_one_step(self):
        self.python("""
            import torch
            from torch import nn
            g, d = nn.Linear(4, 4), nn.Linear(4, 4)
            og, od = torch.optim.SGD(g.parameters(), 0.1), torch.optim.Adam(d.parameters())
            for _ in range(20):
                for _ in range(5):          # the critic, five times
                    d(g(torch.ones(1, 4))).sum().backward(); od.step(); od.zero_grad()
                d(g(torch.ones(1, 4))).sum().backward(); og.step(); og.zero_grad()
        """, LAGGARD_AUTO="1")
        p = self.process()
        per_step = {}
        for r in p.records("FP"):
            per_step[r["step"]] = per_step.get(r["step"], 0) + 1
        counts = [per_step[s["step"]] for s in p.records("Step")]
        self.assertEqual(counts, [12] * 20)   # 6 iterations of two modules each

    def test_a_skipped_step_ends_the_step(self):
        """GradScaler.step does not call optimizer.step when a gradient is infinite."""
        self.python("""
            import torch
            from torch import nn
            from torch.cuda.amp import GradScaler
            model = nn.Linear(4, 4)
            opt = torch.optim.SGD(model.parameters(), 0.1)
            scaler = GradScaler(enabled=False)
            scaler._enabled = True                      # without a GPU: decide as it does there
            scaler._scale = torch.ones(())
            import collections
            from torch.cuda.amp import grad_scaler
            scaler._per_optimizer_states = collections.defaultdict(grad_scaler._refresh_per_optimizer_state)
            scaler._check_scale_growth_tracker = lambda name: (torch.ones(()), None)
            infinite = {"now": False}
            def unscale(self, optimizer, inverse, found, fp16):
                return {torch.device("cpu"): torch.tensor(float(infinite["now"]))}
            GradScaler._unscale_grads_ = unscale
            GradScaler.unscale_ = lambda self, o: self._per_optimizer_states[id(o)].update(
                found_inf_per_device=unscale(self, o, None, None, None))
            weights = []
            for n in range(4):
                infinite["now"] = n % 2 == 1
                model(torch.ones(1, 4)).sum().backward()
                scaler.step(opt)
                scaler._per_optimizer_states.clear()
                weights.append(float(model.weight.sum()))
            assert weights[0] == weights[1] != weights[2] == weights[3], weights
        """, LAGGARD_AUTO="1")
        self.assertEqual([s["step"] for s in self.process().records("Step")], [0, 1, 2, 3])

    def test_steps_by_hand_win(self):
        self.python("""
            import laggard, torch
            from torch import nn
            model = nn.Linear(4, 4)
            opt = torch.optim.SGD(model.parameters(), 0.1)
            for n in range(100, 103):
                with laggard.step(n, tokens=10):
                    model(torch.ones(1, 4)).sum().backward(); opt.step()
        """, LAGGARD_AUTO="1")
        p = self.process()
        self.assertEqual([(s["step"], s["value"]) for s in p.records("Step")], [(100, 10), (101, 10), (102, 10)])
        self.assertEqual([r["step"] for r in p.records("FP")], [100, 101, 102])

    def test_loss_modules_and_eval_are_no_forward_pass(self):
        self.python("""
            import torch
            from torch import nn
            model, loss = nn.Linear(4, 4), nn.MSELoss()
            loss(model(torch.ones(1, 4)), torch.ones(1, 4)).backward()
            model.eval()
            model(torch.ones(1, 4))
        """, LAGGARD_AUTO="1")
        p = self.process()
        self.assertEqual([r["kind"] for r in p.records()], ["FP", "backward", "evaluation"])

    def test_an_exception_in_forward_passes_through(self):
        self.python("""
            import torch
            from torch import nn
            class Bad(nn.Module):
                def forward(self, x): raise ValueError("mine")
            for _ in range(2):
                try: Bad()(1)
                except ValueError as e: assert str(e) == "mine"
                else: raise SystemExit("swallowed")
        """, LAGGARD_AUTO="1")
        self.assertEqual(len(self.process().records("FP")), 2)


class Processes(jobs.Case):
    def test_helpers_and_launchers_make_no_ring(self):
        self.python("""
            import subprocess, sys, torch, torch.distributed, multiprocessing
            subprocess.check_call([sys.executable, "-c", "import torch"])
            def helper():
                torch.nn.Linear(2, 2)(torch.ones(1, 2)); torch.save({}, "helper.pt")
            for how in ("fork", "spawn")[:1]:
                p = multiprocessing.get_context(how).Process(target=helper); p.start(); p.join()
                assert p.exitcode == 0
        """, LAGGARD_AUTO="1", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LAGGARD_JOB="j")
        self.assertEqual(self.processes(), [])

    def test_forked_helper_of_a_recording_rank(self):
        self.python("""
            import multiprocessing, os, torch
            m = torch.nn.Linear(2, 2); m(torch.ones(1, 2))
            def helper():
                m(torch.ones(1, 2)); torch.save({}, os.devnull)
            p = multiprocessing.get_context("fork").Process(target=helper); p.start(); p.join()
            assert p.exitcode == 0
            pid = os.fork()
            if pid == 0:
                torch.save({}, os.devnull); os._exit(0)
            os.waitpid(pid, 0)
            m(torch.ones(1, 2))
        """, LAGGARD_AUTO="1")
        self.assertEqual([r["kind"] for r in self.process().records()], ["FP", "FP"])

    def test_ranks_that_are_spawned(self):
        self.python("""
            import os, torch, torch.distributed as dist, torch.multiprocessing as mp
            def main(rank):
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="%d")
                dist.init_process_group("gloo", rank=rank, world_size=2)
                m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), .1)
                for _ in range(3):
                    m(torch.ones(1, 2)).sum().backward(); dist.all_reduce(m.weight.grad); o.step()
                dist.destroy_process_group()
            if __name__ == "__main__":
                mp.start_processes(main, nprocs=2, start_method="fork")
        """ % jobs.free_port(), LAGGARD_AUTO="1")
        found = self.processes()
        self.assertEqual([p.meta["rank"] for p in found], [0, 1])
        self.assertEqual(len({p.meta["job"] for p in found}), 1)
        self.assertEqual([len(p.records("Step")) for p in found], [3, 3])
        self.assertEqual([p.state for p in found], [2, 2])

    def test_ranks_agree_on_a_job_without_a_name(self):
        self.ranks("""
            import torch.distributed as dist, torch
            dist.init_process_group("gloo")
            dist.barrier()
        """, 2, LAGGARD_JOB=None)
        jobs_found = [p.meta["job"] for p in self.processes()]
        self.assertEqual(len(jobs_found), 2)
        self.assertEqual(len(set(jobs_found)), 1)
        self.assertRegex(jobs_found[0], r"^default_task_id_\d{10}$")

    def test_a_broken_recorder_leaves_training_alone(self):
        outputs = self.ranks("""
            import torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            m = DDP(torch.nn.Linear(4, 4)); o = torch.optim.SGD(m.parameters(), .1)
            for _ in range(5):
                m(torch.ones(1, 4)).sum().backward(); o.step(); o.zero_grad()
            dist.barrier(); torch.save(m.state_dict(), "x%d.pt" % dist.get_rank())
            print(float(m.module.weight.sum()))
        """, 2, LAGGARD_RUN="/proc/no")
        self.assertEqual(outputs[0][0], outputs[1][0])
        for _, err in outputs:
            self.assertEqual(len([l for l in err.splitlines() if "laggard" in l]), 1, err)

    def test_killed_in_a_collective(self):
        """A rank that hangs in an all-reduce is seen to hang there."""
        import signal
        import subprocess
        import sys
        import time
        path = self.script("""
            import os, signal, torch, torch.distributed as dist
            dist.init_process_group("gloo")
            dist.barrier()
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            print("in", flush=True)
            dist.all_reduce(torch.ones(7))
        """)
        port = jobs.free_port()
        started = [subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, env=self.environment(
            RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            LAGGARD_AUTO="1", LAGGARD_JOB="j")) for r in (0, 1)]
        try:
            self.assertEqual(started[0].stdout.readline(), b"in\n")
            deadline = time.monotonic() + 30
            while True:
                found = [p for p in self.processes() if p.meta["rank"] == 0]
                if found and found[0].opened():
                    break
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual([(r["kind"], r["text"], r["value"]) for r in found[0].opened()],
                             [("Communication", "all_reduce", 7)])
        finally:
            for p in started:
                p.send_signal(signal.SIGKILL)
                p.wait()
                p.stdout.close()
