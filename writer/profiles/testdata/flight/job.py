"""Data parallel training of a small model on gloo; one rank does twice the work."""
import os, sys, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]))
opt = torch.optim.SGD(model.parameters(), 0.01)
slow = int(sys.argv[2])
for step in range(int(sys.argv[3])):
    loss = model(torch.randn(256, 256)).pow(2).mean()
    if rank == slow:
        for _ in range(40):
            loss = loss + (torch.randn(256, 256) @ torch.randn(256, 256)).mean() * 0
    opt.zero_grad(); loss.backward(); opt.step()
    n = loss.detach().clone(); dist.all_reduce(n)
dist.barrier()
with open(os.path.join(sys.argv[1], f"fr_trace_rank_{rank}.json"), "wb") as f:
    f.write(_dump_fr_trace_json())
dist.destroy_process_group()
