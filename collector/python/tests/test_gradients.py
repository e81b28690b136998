"""DDP with our communication hook computes what DDP without it computes, bit for bit."""

import json

import jobs

SCRIPT = """
    import contextlib, copy, hashlib, json, sys
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist._DEFAULT_FIRST_BUCKET_BYTES = 2048
    rank, world = dist.get_rank(), dist.get_world_size()

    class Net(nn.Module):
        def __init__(self, dtype, sparse=False, unused=False):
            super().__init__()
            self.embed = nn.Embedding(50, 24, sparse=sparse)
            self.a, self.b, self.c = nn.Linear(24, 70), nn.Linear(70, 30), nn.Linear(30, 5)
            self.spare = nn.Linear(5, 5) if unused else None
            self.to(dtype)
        def forward(self, x):
            return self.c(torch.tanh(self.b(torch.relu(self.a(self.embed(x))))))

    def digest(*tensors):
        h = hashlib.sha256()
        for t in tensors:
            t = t.detach().coalesce().to_dense() if t.is_sparse else t.detach()
            h.update(t.contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else str(t.item()).encode())
        return h.hexdigest()[:16]

    def train(name, none=False, accumulate=1, hook=None, late=None, join=None, dtype=torch.float32, builtin=None,
              sparse=False, unused=False, zero_late=False, **ddp):
        torch.manual_seed(7)
        net = DDP(Net(dtype, sparse, unused), bucket_cap_mb=0.01, **ddp)
        if hook is not None:
            net.register_comm_hook({"n": 0}, hook)
        if builtin is not None:
            net._register_builtin_comm_hook(builtin)
        optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.0 if sparse else 0.9)
        seen = []
        generator = torch.Generator().manual_seed(100 + rank)
        steps = 5 if join is None else 4 + rank
        if join is not None:            # our hook is there before the join is
            net(torch.tensor([[1, 2 + rank]])).sum().backward()
        context = net.join(divide_by_initial_world_size=join) if join is not None else contextlib.nullcontext()
        with context:
            for i in range(steps):
                if not zero_late:
                    optimizer.zero_grad(set_to_none=none)
                for part in range(accumulate):
                    with net.no_sync() if part < accumulate - 1 else contextlib.nullcontext():
                        out = net(torch.randint(50, (3, 4), generator=generator))
                        if zero_late:
                            optimizer.zero_grad(set_to_none=none)
                        (out.to(torch.float32) ** 2).sum().backward()
                seen.append(digest(*[p.grad for p in net.parameters() if p.grad is not None]))
                if i == 1 and late is not None:
                    net.register_comm_hook({"n": 0}, late)
                optimizer.step()
        results[name] = seen + [digest(*net.parameters())]

    def theirs(state, bucket):          # one of the user's: sums, does not divide; calls dist
        state["n"] += 1
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

    def quiet(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        state["n"] += 1                 # one that communicates by itself, out of sight
        tensor = bucket.buffer().mul_(0.25)
        return dist.group.WORLD.allreduce([tensor]).get_future().then(lambda f: f.value()[0])

    results = {}
    for view in (False, True):
        for none in (False, True):
            for accumulate in (1, 2):
                train("view %s none %s accumulate %d" % (view, none, accumulate), none, accumulate,
                      gradient_as_bucket_view=view)
    train("fp64 view", dtype=torch.float64, gradient_as_bucket_view=True)
    train("zero after forward", none=True, zero_late=True, gradient_as_bucket_view=True)
    train("bf16", dtype=torch.bfloat16) if False else None
    train("unused", unused=True, find_unused_parameters=True)
    train("static", static_graph=True)
    train("sparse", sparse=True)
    train("hook", hook=theirs)
    train("quiet hook", hook=quiet)
    train("default hook", hook=lambda state, bucket: default_hooks.allreduce_hook(None, bucket))
    train("builtin", builtin=dist.BuiltinCommHookType.ALLREDUCE)
    train("subgroup", process_group=dist.new_group(list(range(world))))
    train("join", join=True)
    train("join by those left", join=False)
    from_here = len(results)
    if sys.argv[1:] != ["plain"]:
        train("late hook", late=theirs)  # DDP takes one hook before backward: inside ours
    # A deep copy has a reducer of its own.
    torch.manual_seed(7)
    net = copy.deepcopy(DDP(Net(torch.float32)))
    net(torch.tensor([[1, 2 + rank]])).sum().backward()
    results["copy"] = [digest(*[p.grad for p in net.parameters()])]
    # A second hook is torch's own error.
    net.register_comm_hook(None, theirs) if sys.argv[1:] != ["plain"] else None
    dist.barrier()
    print(json.dumps(results, sort_keys=True))
    dist.destroy_process_group()
"""


class Identical(jobs.Case):
    def results(self, outputs):
        return [json.loads(out.strip().splitlines()[-1]) for out, _ in outputs]

    def compare(self, world):
        plain = self.results(self.ranks(SCRIPT.replace('sys.argv[1:] != ["plain"]', "False"), world, LAGGARD_AUTO="0"))
        self.assertEqual(self.processes(), [])
        outputs = self.ranks(SCRIPT, world)
        hooked = self.results(outputs)
        for _, err in outputs:
            self.assertNotIn("laggard", err)
        for rank in range(world):
            for name, want in plain[rank].items():
                with self.subTest(rank=rank, case=name):
                    self.assertEqual(hooked[rank][name], want)
        # The late hook sums from its registration on: it ran, and only then.
        late, same = hooked[0]["late hook"], plain[0]["view False none False accumulate 1"]
        self.assertEqual(late[:2], same[:2])
        self.assertNotEqual(late[2:], same[2:])
        return self.processes()

    def test_three_ranks(self):
        found = self.compare(3)
        for p in found:
            buckets = [r for r in p.records("Communication") if r["text"] == "allreduce"]
            self.assertGreater(len(buckets), 150)

    def test_two_ranks(self):
        self.compare(2)


class Visible(jobs.Forking):
    def test_users_hooks_are_seen_once(self):
        self.ranks("""
            import torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            dist.init_process_group("gloo")
            def calls(state, bucket):
                return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])
            def quiet(state, bucket):
                return dist.group.WORLD.allreduce([bucket.buffer()]).get_future().then(lambda f: f.value()[0])
            for hook in (calls, quiet):
                for late in (False, True):
                    net = DDP(torch.nn.Linear(4, 4))
                    if not late: net.register_comm_hook(None, hook)
                    net(torch.ones(1, 4))
                    if late: net.register_comm_hook(None, hook)
                    net(torch.ones(1, 4)).sum().backward()
                    try: net.register_comm_hook(None, hook)
                    except RuntimeError: pass
                    else: raise SystemExit("a second hook was taken")
            dist.barrier()
        """, 2)
        for p in self.processes():
            sums = [r for r in p.records("Communication") if r["text"] in ("allreduce", "all_reduce")]
            self.assertEqual([(r["value"], r["dtype"], r["group"]) for r in sums], [(20, "fp32", "default")] * 4)

    def test_exposed_is_what_backward_waits_for(self):
        """Rank 1 is late; rank 0 waits in the last bucket, once."""
        self.ranks("""
            import time, torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            dist.init_process_group("gloo")
            dist._DEFAULT_FIRST_BUCKET_BYTES = 1024
            torch.manual_seed(0)
            net = DDP(torch.nn.Sequential(*[torch.nn.Linear(40, 40) for _ in range(8)]), bucket_cap_mb=0.005)
            for i in range(6):
                out = net(torch.ones(1, 40)).sum()
                if dist.get_rank() == 1: time.sleep(0.1)
                out.backward()
                dist.barrier()
        """, 2)
        for p in self.processes():
            waits, overlapping = [], []
            for b in p.records("backward")[2:]:
                inside = [r for r in p.records("Communication")
                          if r["text"] == "allreduce" and b["start"] <= r["start"] <= b["start"] + b["dur"]]
                self.assertGreater(len(inside), 3)
                exposed = sum(r["exposed"] for r in inside)
                self.assertLessEqual(exposed, b["dur"])
                waits.append(exposed)
                overlapping.append(sum(r["dur"] for r in inside))
            if p.meta["rank"] == 0:
                self.assertGreater(max(waits), 70000000)
                self.assertGreater(max(overlapping), 2 * 70000000)

    def test_buffers_are_broadcast_outside_of_the_forward_pass(self):
        """What a rank waits for there is no work of its own."""
        self.ranks("""
            import torch, torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel as DDP
            dist.init_process_group("gloo")
            net = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for i in range(3):
                net(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
            net.eval(); net(torch.ones(2, 4))
            dist.barrier()
        """, 2)
        for p in self.processes():
            passes = p.records("FP")
            self.assertEqual(len(passes), 3)
            self.assertEqual(len(p.records("evaluation")), 1)
            sent = [r for r in p.records("Communication") if r["text"] == "broadcast"]
            # the running mean and variance, the number of batches; parameters at the start
            self.assertEqual([(r["value"], r["group"]) for r in sent[-4:]], [(9, "default")] * 4)
            for forward, buffers in zip(passes + p.records("evaluation"), sent[-4:]):
                self.assertEqual(buffers["exposed"], buffers["dur"])
                self.assertLessEqual(buffers["start"] + buffers["dur"], forward["start"])
