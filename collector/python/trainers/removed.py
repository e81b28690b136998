"""Trains with one hook point after the other taken away from torch, and from the frameworks
on it: what a version that changed looks like. Prints a line of JSON for each.

Each child is forked out of this process, which has imported them all: it takes the hook
point away, lets laggard instrument what is left, and trains one rank, with torch alone or
as the script in jobs/ does.
"""

import importlib
import json
import os
import runpy
import socket
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


# Script of jobs/ and its argument → hook points of its framework
FRAMEWORKS = {
    ("deepspeed_zero", "1"): (
        "deepspeed.runtime.engine:DeepSpeedEngine",
        "deepspeed.runtime.engine:DeepSpeedEngine.step",
        "deepspeed.runtime.engine:DeepSpeedEngine._take_model_step",
        "deepspeed.runtime.engine:DeepSpeedEngine.save_checkpoint",
    ),
    ("megatron_core", ""): (
        "megatron.core.optimizer.optimizer:MegatronOptimizer",
        "megatron.core.optimizer.optimizer:MegatronOptimizer.step",
        "megatron.core.pipeline_parallel.schedules:custom_backward",
        "megatron.core.dist_checkpointing.serialization:save",
    ),
    ("accelerated", ""): (
        "accelerate.optimizer:AcceleratedOptimizer",
        "accelerate.optimizer:AcceleratedOptimizer.step",
        "accelerate.accelerator:Accelerator.save_state",
        "safetensors.torch:save_file",
    ),
    ("hf_trainer", ""): (
        "transformers.trainer_callback:CallbackHandler.on_train_begin",
        "transformers.trainer_callback:CallbackHandler.on_step_end",
        "transformers.trainer:Trainer._save_checkpoint",
    ),
    ("lightning_automatic", ""): ("lightning.pytorch.trainer.trainer:Trainer.save_checkpoint",),
}


def run(script, argument):
    """Runs a script of jobs/ as the only rank; returns its losses."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs", script + ".py")
    sys.argv[:], sys.path[0] = [path, argument], os.path.dirname(path)
    runpy.run_path(path, run_name="__main__")
    with open(os.path.join(os.environ["TRUTH"], "rank-0.json")) as f:
        return json.load(f)["losses"]


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


def child(job, point, recorded):
    """Returns what a child with a hook point less has to say."""
    with socket.socket() as free:  # of its own: one for all may be taken between two children
        free.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(free.getsockname()[1])
    removed = remove(point) if point else None
    failures = 0
    if recorded:
        import laggard
        laggard.init(auto=True)
    if removed is not None and point not in OURS and removed[1] not in vars(removed[0]):
        setattr(*removed)  # torch itself needs it; we came before it was back
    losses = run(*job) if job else train()
    if recorded:
        from laggard import recorder
        recorder.close()
        failures = laggard.failures()
    return {"losses": losses, "failures": failures}


def main():
    """Forks a child for each point; returns the exit code."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print
    for points in FRAMEWORKS.values():
        for each in points:
            importlib.import_module(each.partition(":")[0])
    cases = {(): POINTS + OURS, **FRAMEWORKS}
    for job, point, recorded in [(job, *each) for job in cases for each in [("", False), ("", True)] + [(p, True) for p in cases[job]]]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                os.dup2(err.fileno(), 2)
                os.dup2(2, 1)
                code = 1
                try:
                    out.write(json.dumps(child(job, point, recorded)).encode())
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
            said.update(job=job, point=point, recorded=recorded, status=status, stderr=err.read().decode())
            answers.write(json.dumps(said) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
