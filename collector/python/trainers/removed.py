"""Trains with one hook point after the other taken away from torch: what a version that
changed looks like. Prints a line of JSON for each.

Each child is forked out of this process, which has imported torch: it takes the hook
point away, lets laggard instrument what is left, and trains one rank.
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed
import torch.distributed.checkpoint  # noqa: F401
import torch.distributed.device_mesh  # noqa: F401

from hookpoints import remove

POINTS = (
    "torch.distributed.distributed_c10d:ProcessGroup.register_pre_hook",
    "torch.distributed.distributed_c10d:ProcessGroup.register_post_hook",
    "torch.distributed.distributed_c10d:ProcessGroup._start_coalescing",
    "torch.distributed.distributed_c10d:ProcessGroup._end_coalescing",
    "torch.distributed.distributed_c10d:Work.wait",
    "torch.distributed.distributed_c10d:Work.is_completed",
    "torch.distributed.distributed_c10d:Work.get_future",
    "torch.distributed.distributed_c10d:_register_pg_in_world",
    "torch.distributed.distributed_c10d:all_reduce",
    "torch.distributed.distributed_c10d:Work",
    "torch.distributed.distributed_c10d:_World.pg_map",
    "torch.distributed.distributed_c10d:ProcessGroup.group_name",
    "torch.distributed._functional_collectives:wait_tensor",
    "torch.distributed.device_mesh:DeviceMesh",
    "torch.nn.parallel.distributed:DistributedDataParallel.register_comm_hook",
    "torch.nn.parallel.distributed:DistributedDataParallel._register_builtin_comm_hook",
    "torch.nn.parallel.distributed:Join",
    "torch:is_grad_enabled",
    "torch:save",
    "torch:compiler",
    "torch.autograd:backward",
    "torch.nn.modules:loss",
    "torch.nn:Module.__call__",
    "torch.optim:Optimizer.zero_grad",
    "torch.amp:GradScaler",
    "torch.cuda:amp",
    "torch.utils.data.dataloader:_BaseDataLoaderIter.__next__",
    "torch.utils.data.dataloader:_BaseDataLoaderIter",
    "torch.distributed.checkpoint.state_dict_saver:save",
    "torch._C:_current_graph_task_id",
    "torch._C:_dynamo",
)


# What only we look at: it stays away while the rank trains.
OURS = (
    "torch._C._distributed_c10d:PreHookArgs.name",
    "torch._C._distributed_c10d:HookOpName.value",
    "torch._C._distributed_c10d:PreHookArgs.input_tensors",
    "torch._C._distributed_c10d:PreHookArgs.output_tensors",
    "torch._C._distributed_c10d:PreHookArgs.async_op",
    "torch._C._distributed_c10d:PreHookArgs.root",
    "torch._C._distributed_c10d:PostHookArgs.work",
    "torch._C._distributed_c10d:Work.get_future",
    "torch.distributed.distributed_c10d:get_process_group_ranks",
)


def train():
    """Trains one rank; returns its losses."""
    torch.manual_seed(7)
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.utils.data.TensorDataset(torch.randn(16, 8))
    losses = []
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        torch.distributed.all_reduce(torch.ones(3))
        optimizer.step()
        losses.append(loss.item().hex())
    torch.distributed.destroy_process_group()
    return losses


def child(point, recorded):
    """Returns what a child with a hook point less has to say."""
    removed = remove(point) if point else None
    failures = 0
    if recorded:
        import laggard
        laggard.init(auto=True)
    if removed is not None and point not in OURS and removed[1] not in vars(removed[0]):
        setattr(*removed)  # torch itself needs it; we came before it was back
    losses = train()
    if recorded:
        from laggard import recorder
        recorder.close()
        failures = laggard.failures()
    return {"losses": losses, "failures": failures}


def main():
    """Forks a child for each point; returns the exit code."""
    for point, recorded in [("", False), ("", True)] + [(p, True) for p in POINTS + OURS]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                os.dup2(err.fileno(), 2)
                code = 1
                try:
                    out.write(json.dumps(child(point, recorded)).encode())
                    out.flush()
                    code = 0
                except BaseException:  # pylint: disable=broad-except
                    import traceback
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            status = os.waitpid(pid, 0)[1]
            out.seek(0)
            err.seek(0)
            said = json.loads(out.read() or b"{}")
            said.update(point=point, recorded=recorded, status=status, stderr=err.read().decode())
            print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
